"""GPU exporters that contradict each other: what they report of a device is then not observed.

A node has one exporter. Where two report its devices at the same time and disagree, one of them is wrong, or made up.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from gpucost.core.intervals import Interval
from gpucost.core.metering.device_assignment import DeviceAssignments, devices_expected
from gpucost.core.metering.device_use import DeviceHour, DeviceKey
from gpucost.core.metering.implausible_samples import SUSPECT, is_utilization, overlap_beyond_lag
from gpucost.core.metering.nodes import NodeLifecycle, max_simultaneous_devices
from gpucost.core.metering.observations import DeviceSeries, Instance
from gpucost.core.metering.usage import Holding

TOLERANCE = Fraction(1, 10)
"""Two exporters of one GPU read its mean use at different moments; they do not differ by a tenth of full use."""
MAX_EXPORTERS = 10
"""Of one device at one time. More are made up, and to compare each with each would take longer than an hour has."""
Pod = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Report:
    """What one exporter reports of a device."""

    time: Interval
    pods: frozenset[Pod]
    series: Sequence[DeviceSeries]

    def mean(self, time: Interval) -> Fraction | None:
        """Mean use in some time; of the copies for several pods, the largest. None without samples in it."""
        means = [mean for one in self.series if (mean := _mean(one, time)) is not None]
        return max(means, default=None)


def contradictory_devices(
    series: Iterable[DeviceSeries], window: Interval, pods: Container[Pod]
) -> dict[DeviceKey, tuple[str, str]]:
    """Devices that exporters report with other pods, or with another use, at the same time; with these exporters.

    Args:
        series: of all devices.
        window: the hour.
        pods: names of those that request GPUs: other labels, such as the exporter's own pod, say nothing.
    """
    by_device: dict[DeviceKey, list[DeviceSeries]] = {}
    for one in series:
        by_device.setdefault((one.node, one.uuid, one.mig_instance), []).append(one)
    found: dict[DeviceKey, tuple[str, str]] = {}
    for key, copies in by_device.items():
        best = min(one.rank for one in copies)
        reports = _reports([one for one in copies if one.rank == best], window, pods)
        pairs, are_too_many = _simultaneous(reports)
        contradictions = (
            pairs if are_too_many else (pair for pair in pairs if _contradict(reports[pair[0]], reports[pair[1]]))
        )
        pair = next(iter(contradictions), None)
        if pair is not None:
            found[key] = pair
    return found


def surplus_devices(
    lives: Mapping[str, Sequence[NodeLifecycle]], series: Iterable[DeviceSeries], window: Interval
) -> dict[str, tuple[str, str]]:
    """Nodes of which several exporters together report more GPUs than there are; with two of these exporters."""
    by_node: dict[str, list[DeviceSeries]] = {}
    for one in series:
        if "/" not in one.uuid:  # else: no UUID is told, and each exporter's devices have names of their own
            by_node.setdefault(one.node, []).append(one)
    found: dict[str, tuple[str, str]] = {}
    for name, own in by_node.items():
        devices = [life.node.devices for life in lives.get(name, ()) if life.node.devices is not None]
        if len(devices) != 1 or max_simultaneous_devices(own) <= devices[0]:
            continue
        pairs, _ = _simultaneous(_reports(own, window, ()))
        if pairs:
            found[name] = pairs[0]
    return found


def surplus_assignments(holdings: Sequence[Holding], claims: DeviceAssignments, window: Interval) -> dict[DeviceKey, tuple[str, str]]:
    """Devices of pods that several exporters together put on more devices than they request."""
    found: dict[DeviceKey, tuple[str, str]] = {}
    for place, devices in claims.devices_of.items():
        if len(devices) <= devices_expected(holdings[place]):
            continue
        series = [one for device in devices for one in device.series]
        pairs, _ = _simultaneous(_reports(series, window, ()))
        if pairs:
            found.update((device.key, pairs[0]) for device in devices)
    return found


def exclude_suspect(devices: Iterable[DeviceHour], suspect: Mapping[DeviceKey, tuple[str, str]]) -> list[DeviceHour]:
    """Devices that are not suspect."""
    return [device for device in devices if device.key not in suspect]


def contradiction_notes(suspect: Mapping[DeviceKey, tuple[str, str]]) -> list[str]:
    """A note for each two exporters of a node that contradict each other."""
    by_exporters: dict[tuple[str, str, str], int] = {}
    for (node, _, _), exporters in suspect.items():
        by_exporters[node, *exporters] = by_exporters.get((node, *exporters), 0) + 1
    return [
        f"{SUSPECT}GPU exporters {one} and {other} contradict each other about {count} devices of node {node!r}; the "
        "use of these is not observed"
        for (node, one, other), count in sorted(by_exporters.items())
    ]


def exporter_of(instance: Instance) -> str:
    """Job and instance, whichever of several equal Prometheus servers scraped it."""
    job, _, rest = instance.partition("|")
    return f"{job}/{rest.partition('/')[2]}"


def _reports(series: Iterable[DeviceSeries], window: Interval, pods: Container[Pod]) -> dict[str, _Report]:
    by_exporter: dict[str, list[DeviceSeries]] = {}
    for one in series:
        by_exporter.setdefault(exporter_of(one.instance), []).append(one)
    if len(by_exporter) == 1:  # nearly always
        return {}
    return {
        name: _Report(
            Interval(min(_time(one, window).start for one in own), max(_time(one, window).end for one in own)),
            frozenset((one.namespace, one.pod) for one in own if (one.namespace, one.pod) in pods),
            own,
        )
        for name, own in by_exporter.items()
    }


def _simultaneous(reports: Mapping[str, _Report]) -> tuple[list[tuple[str, str]], bool]:
    """Pairs of exporters that report longer than a lag at the same time, and whether too many do to compare them."""
    pairs: list[tuple[str, str]] = []
    current: list[str] = []
    for name, report in sorted(reports.items(), key=lambda item: (item[1].time.start, item[0])):
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


def _contradict(one: _Report, other: _Report) -> bool:
    if one.pods and other.pods and not (one.pods <= other.pods or other.pods <= one.pods):
        return True
    together = one.time.overlap(other.time)
    mean, other_mean = one.mean(together), other.mean(together)
    return mean is not None and other_mean is not None and abs(mean - other_mean) > TOLERANCE


def _time(one: DeviceSeries, window: Interval) -> Interval:
    if one.samples is None:
        return window
    return Interval(one.samples[0][0], one.samples[-1][0]) if one.samples else Interval(window.end, window.end)


def _mean(one: DeviceSeries, time: Interval) -> Fraction | None:
    if one.samples is None:
        return Fraction(one.total) / Fraction(one.scale) / one.sample_count if one.sample_count else None
    values = [value for at, value in one.samples if time.contains(at) and is_utilization(value, one.scale)]
    return sum(map(Fraction, values), Fraction(0)) / Fraction(one.scale) / len(values) if values else None
