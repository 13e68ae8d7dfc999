"""GPU exporters that contradict each other: the use of their devices then counts as unmeasured.

A node has one exporter. Where two report its devices at the same time and disagree, one of them is wrong or fabricated.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct

from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.device_assignment import DeviceAssignments, devices_expected
from gpucost.core.metering.device_use import DeviceHour, DeviceKey
from gpucost.core.metering.implausible_samples import SUSPECT_PREFIX, is_utilization, overlap_beyond_lag
from gpucost.core.metering.nodes import NodeLifecycle, max_simultaneous_devices
from gpucost.core.metering.observations import DeviceSeries, ScrapeTarget
from gpucost.core.metering.usage import Holding

MAX_MEAN_DIFFERENCE = Fraction(1, 10)
"""How far the mean use that two exporters report for one GPU may differ; they sample it at different times."""
MAX_EXPORTERS = 10
"""The most exporters of one device at a time. More are fabricated, and comparing all pairs would take too long."""
PodName = tuple[str, str]


class _ExporterReport(Struct, frozen=True):
    """What one exporter reports about a device."""

    time: IntervalMs
    pods: frozenset[PodName]
    series: Sequence[DeviceSeries]

    def mean(self, time: IntervalMs) -> Fraction | None:
        """Return the mean use in some time, the largest of the copies for several pods; None without samples."""
        means = [mean for series in self.series if (mean := _mean_during(series, time)) is not None]
        return max(means, default=None)


def contradictory_devices(
    series_by_device: Mapping[DeviceKey, Sequence[DeviceSeries]], window: IntervalMs, pods: Container[PodName]
) -> dict[DeviceKey, tuple[str, str]]:
    """Return devices that two exporters report with different pods or different use at the same time.

    Args:
        series_by_device: the series of every device.
        window: the hour.
        pods: pods that request GPUs; other pod labels, such as the exporter's pod, are ignored.

    Returns:
        Two contradictory exporters for each device.
    """
    contradictory: dict[DeviceKey, tuple[str, str]] = {}
    for key, device_copies in series_by_device.items():
        if len(device_copies) == 1:  # nearly always
            continue
        best = min(device_series.signal_rank for device_series in device_copies)
        reports = _reports_by_exporter(
            [device_series for device_series in device_copies if device_series.signal_rank == best], window, pods
        )
        pairs, are_too_many = _simultaneous_pairs(reports)
        contradictions = (
            pairs if are_too_many else (pair for pair in pairs if _contradict(reports[pair[0]], reports[pair[1]]))
        )
        pair = next(iter(contradictions), None)
        if pair is not None:
            contradictory[key] = pair
    return contradictory


def nodes_with_surplus_devices(
    lifecycles: Mapping[str, Sequence[NodeLifecycle]], series: Iterable[DeviceSeries], window: IntervalMs
) -> dict[str, tuple[str, str]]:
    """Return nodes for which several exporters together report more GPUs than there are, with two of the exporters."""
    by_node: dict[str, list[DeviceSeries]] = {}
    for device_series in series:
        if "/" not in device_series.uuid:  # otherwise the series have no UUID, and device names differ by exporter
            by_node.setdefault(device_series.node, []).append(device_series)
    surplus: dict[str, tuple[str, str]] = {}
    for name, node_series in by_node.items():
        devices = [
            lifecycle.node.devices for lifecycle in lifecycles.get(name, ()) if lifecycle.node.devices is not None
        ]
        if len(devices) != 1 or len(node_series) <= devices[0] or max_simultaneous_devices(node_series) <= devices[0]:
            continue
        pairs, _ = _simultaneous_pairs(_reports_by_exporter(node_series, window, ()))
        if pairs:
            surplus[name] = pairs[0]
    return surplus


def surplus_assigned_devices(
    holdings: Sequence[Holding], assignments: DeviceAssignments, window: IntervalMs
) -> dict[DeviceKey, tuple[str, str]]:
    """Return the devices of pods that several exporters together assign more devices than they request."""
    surplus: dict[DeviceKey, tuple[str, str]] = {}
    for index, devices in assignments.devices_of.items():
        if len(devices) == 1 or len(devices) <= devices_expected(holdings[index]):
            continue
        series = [device_series for device in devices for device_series in device.series]
        pairs, _ = _simultaneous_pairs(_reports_by_exporter(series, window, ()))
        if pairs:
            surplus.update((device.key, pairs[0]) for device in devices)
    return surplus


def exclude_suspect_devices(
    devices: Iterable[DeviceHour], suspect: Mapping[DeviceKey, tuple[str, str]]
) -> list[DeviceHour]:
    """Return the devices that are not suspect."""
    return [device for device in devices if device.key not in suspect]


def contradiction_notes(suspect: Mapping[DeviceKey, tuple[str, str]]) -> list[str]:
    """Return a note for each pair of exporters of a node that contradict each other."""
    by_exporters: dict[tuple[str, str, str], int] = {}
    for (node, _, _), exporters in suspect.items():
        by_exporters[node, *exporters] = by_exporters.get((node, *exporters), 0) + 1
    return [
        f"{SUSPECT_PREFIX}GPU exporters {first} and {second} contradict each other about {count} devices of "
        f"node {node!r}; their use counts as unmeasured"
        for (node, first, second), count in sorted(by_exporters.items())
    ]


def exporter_of(instance: ScrapeTarget) -> str:
    """Return job and instance, without the name of the Prometheus server that scraped it."""
    job, _, rest = instance.partition("|")
    return f"{job}/{rest.partition('/')[2]}"


def _reports_by_exporter(
    series: Iterable[DeviceSeries], window: IntervalMs, pods: Container[PodName]
) -> dict[str, _ExporterReport]:
    by_exporter: dict[str, list[DeviceSeries]] = {}
    for device_series in series:
        by_exporter.setdefault(exporter_of(device_series.scrape_target), []).append(device_series)
    if len(by_exporter) == 1:  # nearly always
        return {}
    return {
        name: _ExporterReport(
            IntervalMs(
                min(_sample_time_range(device_series, window).start for device_series in exporter_series),
                max(_sample_time_range(device_series, window).end for device_series in exporter_series),
            ),
            frozenset(
                (device_series.namespace, device_series.pod)
                for device_series in exporter_series
                if (device_series.namespace, device_series.pod) in pods
            ),
            exporter_series,
        )
        for name, exporter_series in by_exporter.items()
    }


def _simultaneous_pairs(reports: Mapping[str, _ExporterReport]) -> tuple[list[tuple[str, str]], bool]:
    """Return the pairs of exporters that report at the same time, and whether there are too many to compare them."""
    pairs: list[tuple[str, str]] = []
    current: list[str] = []
    for name, report in sorted(
        reports.items(), key=lambda name_and_report: (name_and_report[1].time.start, name_and_report[0])
    ):
        current = [other for other in current if reports[other].time.end > report.time.start]
        pairs += [
            (min(name, other), max(name, other))
            for other in current
            if overlap_beyond_lag(report.time, reports[other].time)
        ]
        current.append(name)
        if len(current) > MAX_EXPORTERS and pairs:
            return pairs, True
    return pairs, False


def _contradict(left: _ExporterReport, right: _ExporterReport) -> bool:
    if left.pods and right.pods and not (left.pods <= right.pods or right.pods <= left.pods):
        return True
    overlap = left.time.overlap(right.time)
    left_mean, right_mean = left.mean(overlap), right.mean(overlap)
    return left_mean is not None and right_mean is not None and abs(left_mean - right_mean) > MAX_MEAN_DIFFERENCE


def _sample_time_range(series: DeviceSeries, window: IntervalMs) -> IntervalMs:
    if series.samples is None:
        return window
    return (
        IntervalMs(series.samples[0][0], series.samples[-1][0])
        if series.samples
        else IntervalMs(window.end, window.end)
    )


def _mean_during(series: DeviceSeries, time: IntervalMs) -> Fraction | None:
    if series.samples is None:
        return (
            Fraction(series.sample_sum) / Fraction(series.scale) / series.sample_count if series.sample_count else None
        )
    samples = [
        value
        for time_of_sample, value in series.samples
        if time.contains(time_of_sample) and is_utilization(value, series.scale)
    ]
    return sum(map(Fraction, samples), Fraction(0)) / Fraction(series.scale) / len(samples) if samples else None
