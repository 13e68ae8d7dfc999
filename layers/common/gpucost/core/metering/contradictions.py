"""Sources that contradict each other: exporters, and signals that are stuck at 0 although a GPU was in use."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from itertools import filterfalse
from operator import attrgetter

from msgspec import Struct

from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.accelerators import NVIDIA, accelerator_of_vendor
from gpucost.core.metering.device_use import DeviceAssignments, DeviceHour, DeviceKey, devices_expected
from gpucost.core.metering.implausible_samples import SUSPECT_PREFIX, is_utilization, overlap_beyond_lag
from gpucost.core.metering.nodes import NodeLifecycle, max_simultaneous_devices
from gpucost.core.metering.observations import DeviceSeries, PodObservation, ScrapeTarget
from gpucost.core.metering.usage import Holding

# GPU exporters that contradict each other: the use of their devices then counts as unmeasured.
#
# A node has one exporter. Where two report its devices at the same time and disagree, one of them is wrong or
# fabricated.

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


# Signals that are stuck at 0: a second witness says that a GPU was in use although its signal is exactly 0 all hour.
#
# DCGM's profiling counters read 0 while another tool holds them, or after a fault of the driver. Other vendors' GPUs
# have their power as a witness. A GPU that is idle according to every witness is idle.

MIN_WITNESSED_USE = Fraction(1, 10)
"""The mean of another utilization signal that contradicts a signal of 0."""
MIN_POWER_RATIO = 2
"""How many times the power of its lowest hour of the day a GPU draws if it contradicts a signal of 0."""
_RESET_OF_NVIDIA = "restart dcgm-exporter, and end other tools that use DCGM's profiling counters"
Gpu = tuple[str, str]
"""Node and UUID."""


class PowerByHour(Struct, frozen=True):
    """The mean power of a GPU in the hour, and in its lowest hour of the day, this one included."""

    watts: Decimal
    lowest: Decimal

    @property
    def is_contradiction(self) -> bool:
        """Whether the GPU draws more than an idle one."""
        return self.lowest > 0 and self.watts >= MIN_POWER_RATIO * self.lowest


def gpus_at_zero(devices: Collection[DeviceSeries], pods: Collection[PodObservation]) -> dict[Gpu, str]:
    """Return the GPUs of the nodes of which every held device has a signal of exactly 0 all hour, with their vendors.

    Held are the devices that are labeled with a pod; all of a node that has no labels of pods. Vendors whose exporter
    has no other metric of a device's use are left out.

    Args:
        devices: the series of every device.
        pods: all that hold GPUs.
    """
    without_sum = filterfalse(attrgetter("sample_sum"), devices)  # few; no bytecode for each of the others
    nodes = {device.node for device in without_sum if _is_zero(device)}
    doubtful = nodes.intersection(pod.node for pod in pods) if nodes else nodes
    if not doubtful:
        return {}
    holders = {(pod.namespace, pod.pod) for pod in pods}
    at_zero: dict[tuple[str, str], set[str]] = {}
    in_use: set[Gpu] = set()
    nodes_in_use: set[tuple[str, str]] = set()
    held_in_use: set[tuple[str, str]] = set()
    labeled: dict[tuple[str, str], set[str]] = {}
    for device in devices:
        if device.node not in doubtful or not _has_witness(device.vendor):
            continue
        of_vendor = device.node, device.vendor
        is_held = (device.namespace, device.pod) in holders
        if not _is_zero(device):
            in_use.add((device.node, device.uuid))
            nodes_in_use.add(of_vendor)
            if is_held:
                held_in_use.add(of_vendor)
            continue
        at_zero.setdefault(of_vendor, set()).add(device.uuid)
        if is_held:
            labeled.setdefault(of_vendor, set()).add(device.uuid)
    gpus: dict[Gpu, str] = {}
    for (node, vendor), uuids in at_zero.items():
        # Without labels, any device in use may be held.
        if (node, vendor) not in (held_in_use if (node, vendor) in labeled else nodes_in_use):
            of_node = {(node, uuid) for uuid in labeled.get((node, vendor), uuids)}
            gpus |= dict.fromkeys(of_node - in_use, vendor)
    return gpus


def _has_witness(vendor: str) -> bool:
    accelerator = accelerator_of_vendor(vendor)
    return vendor == NVIDIA or (accelerator is not None and bool(accelerator.power_metrics))


def _is_zero(device: DeviceSeries) -> bool:
    if device.samples is not None:
        return bool(device.samples) and not any(use for _, use in device.samples)
    return device.sample_count > 0 and device.sample_sum == 0


def contradicted_gpus(
    gpus: Collection[Gpu], witnesses: Iterable[tuple[str, DeviceSeries]], power: Mapping[Gpu, PowerByHour]
) -> dict[Gpu, str]:
    """Return the GPUs whose signal of 0 is contradicted, each with what the witness says.

    Args:
        gpus: with a signal of 0.
        witnesses: their series of other signals, each with the signal's name.
        power: by GPU.
    """
    contradicted: dict[Gpu, str] = {}
    for signal, witness in witnesses:
        gpu = witness.node, witness.uuid
        if gpu in gpus and says_in_use(witness):
            contradicted.setdefault(gpu, f"{signal} says that they are in use")
    for gpu, by_hour in power.items():
        if gpu in gpus and by_hour.is_contradiction:
            contradicted.setdefault(gpu, "they draw at least twice the power of their lowest hour of the day")
    return contradicted


def says_in_use(series: DeviceSeries) -> bool:
    """Whether the mean of a witness's series contradicts a signal of 0."""
    return (
        series.sample_count > 0
        and series.sample_sum.is_finite()
        and Fraction(series.sample_sum) >= MIN_WITNESSED_USE * Fraction(series.scale) * series.sample_count
    )


def stuck_signal_notes(
    contradicted: Mapping[Gpu, str], measured: Collection[Gpu], vendors: Mapping[Gpu, str]
) -> Sequence[str]:
    """Return a note for each node with contradicted GPUs.

    Args:
        contradicted: the GPUs with what the witness says.
        measured: those that are measured by the witness.
        vendors: the vendor of each GPU.
    """
    by_node: dict[tuple[str, str, bool, str], int] = {}
    for gpu, statement in contradicted.items():
        accelerator = accelerator_of_vendor(vendors[gpu])
        reset = accelerator.reset if accelerator is not None else _RESET_OF_NVIDIA
        key = gpu[0], statement, gpu in measured, reset[0].upper() + reset[1:]
        by_node[key] = by_node.get(key, 0) + 1
    return [
        f"the utilization signal of {count} GPUs of node {node!r} is 0 all hour, although {statement}: "
        + ("they are measured by the latter" if is_measured else "their use counts as unmeasured")
        + f" (utilization.on_contradiction). {reset}"
        for (node, statement, is_measured, reset), count in sorted(by_node.items())
    ]
