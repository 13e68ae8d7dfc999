"""The utilization ladder: how much of what a pod held was used, from the best evidence that the settings allow."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from gpucost.core.intervals import Interval, gaps, overlap_length, union
from gpucost.core.metering.device_assignment import (
    DeviceAssignments,
    devices_expected,
    gpus_of_device,
    is_shared_resource,
    labels_of_holding,
    replicas_held,
    replicas_per_device,
)
from gpucost.core.metering.device_use import DeviceHour, DeviceKey
from gpucost.core.metering.usage import Holding, Measurement
from gpucost.core.model import UtilizationSource

UNMEASURED = Measurement("none")
ZERO = Fraction(0)
_BY_CLAIM = ("pod", "shared")


@dataclass(frozen=True, slots=True)
class _Average:
    """Mean use of several devices, and for how long any of them was seen."""

    mean: Fraction
    observed_ms: int


@dataclass(frozen=True, slots=True)
class _SharedTime:
    """A time in which the pods that share a device are the same."""

    time: Interval
    replicas: Fraction
    """That they hold together."""
    used_ms: Fraction


@dataclass(frozen=True, slots=True)
class _Sharing:
    """Who shares a device, and when."""

    replicas: Mapping[int, Fraction]
    """By the place of the holding."""
    times: Sequence[_SharedTime]


class UtilizationResolver:
    """Finds every holding's use by the first rung that knows it.

    Args:
        holdings: all of the hour.
        devices: all devices of the hour.
        claims: which device is whose.
        rungs: allowed rungs, best first.
        window: the hour.
    """

    def __init__(
        self,
        holdings: Sequence[Holding],
        devices: Sequence[DeviceHour],
        claims: DeviceAssignments,
        rungs: Sequence[UtilizationSource],
        window: Interval,
    ) -> None:
        self._holdings = holdings
        self._devices = devices
        self._rungs = rungs
        self._window = window
        self._claims = claims
        self._sharing_of: dict[DeviceKey, _Sharing] = {}
        self._unlabelled: dict[str, list[Holding]] = {}
        for place, one in enumerate(holdings):
            if is_shared_resource(one) and place not in self._claims.devices_of:
                self._unlabelled.setdefault(one.node.name, []).append(one)

    def measure(self) -> list[Measurement]:
        """Every holding's use, in their order; source `none` where no allowed rung knows it."""
        found: list[Measurement | None] = [None] * len(self._holdings)
        for rung in self._rungs:
            averages = None if rung in _BY_CLAIM else self._averages(rung, self._spoken_for(found))
            for place, one in enumerate(self._holdings):
                if found[place] is not None:
                    continue
                if averages is None:
                    found[place] = self._by_claim(rung, place)
                else:
                    found[place] = _by_average(rung, one, averages.get(one.node.name if rung == "node" else ""))
        return [one or UNMEASURED for one in found]

    def unlabelled_sharers(self) -> dict[str, int]:
        """How many pods share GPUs of a node, by node, of which nothing tells on which GPU they are."""
        labelled = {device.node for device in self._devices if device.labels}
        return {node: len(others) for node, others in self._unlabelled.items() if node in labelled}

    def unclaimed(self) -> dict[str, Fraction]:
        """Use in GPU-milliseconds, by node, of devices in times when no pod held them; nodes where all holders are
        known only, since use that may be an unlabelled holder's is not nobody's."""
        unknown = {one.node.name for place, one in enumerate(self._holdings) if place not in self._claims.devices_of}
        found: dict[str, Fraction] = {}
        for device in self._devices:
            if device.node in unknown or device.is_part:
                continue
            held = [self._holdings[place].held for place in self._claims.holders_of.get(device.key, ())]
            if self._window in held:
                continue
            for free in gaps(union(held), self._window, 2 * device.interval):
                used = device.use_during(free).used_ms
                if used:
                    found[device.node] = found.get(device.node, ZERO) + used
        return found

    def _by_claim(self, rung: UtilizationSource, place: int) -> Measurement | None:
        one = self._holdings[place]
        devices = self._claims.devices_of.get(place)
        if not devices or self._is_shared(place, devices) != (rung == "shared"):
            return None
        found = self._shared(place, devices) if rung == "shared" else self._own(place, devices)
        # Told by labels, but not in the time in which the pod ran: a lower rung may know more.
        return found if found.observed_ms or not one.running.length else None

    def _own(self, place: int, devices: Sequence[DeviceHour]) -> Measurement:
        """The pod's own devices; one that should be there and has no series counts as not observed."""
        one = self._holdings[place]
        expected = devices_expected(one)
        if len(devices) == expected == 1 and devices[0].is_continuous and one.running.length == self._window.length:
            (device,) = devices  # nearly all pods
            seen = device.use_during(one.running)
            used, observed = seen.used_ms * gpus_of_device(one, device), seen.observed_ms
            return Measurement("pod", device.mean, observed, min(used, one.gpu_ms))
        used, observed = ZERO, 0
        effective = ZERO
        for device in devices:
            # More devices than units were held one after the other: each only while it was labelled so.
            labels = frozenset(labels_of_holding(one, device)) if len(devices) > expected else self._not_others(place, device)
            seen = device.use_during(one.running, labels=labels)
            time = self._observed(one, seen.observed_ms, device, whole=len(devices) <= expected)
            mean = seen.used_ms / seen.observed_ms if seen.observed_ms else ZERO
            used += mean * time
            observed += time
            effective += mean * time * gpus_of_device(one, device)
        return Measurement(
            "pod",
            utilization=used / observed if observed else None,
            observed_ms=min(Fraction(observed, expected), Fraction(one.running.length)),
            effective_gpu_ms=min(effective, one.gpu_ms),
        )

    def _shared(self, place: int, devices: Sequence[DeviceHour]) -> Measurement:
        """A sharer's part of what its devices did, by replicas held on each at that time, up to what it holds."""
        one = self._holdings[place]
        used, observed = ZERO, 0
        credited, beyond = ZERO, ZERO
        for device in devices:
            told = self._told(place, device)
            each = [device.use_during(piece) for piece in told]
            seen_ms = sum(seen.observed_ms for seen in each)
            time = self._observed(one, seen_ms, device, whole=sum(piece.length for piece in told) == one.running.length)
            mean = sum((seen.used_ms for seen in each), ZERO) / seen_ms if seen_ms else ZERO
            used += mean * time
            observed += time
            part = sum((self._part(place, device, piece) for piece in told), ZERO) * gpus_of_device(one, device)
            if seen_ms:
                part = part * time / seen_ms
            # Never more than was allocated in the time in which it was seen: others may leave the device idle.
            most = time * one.gpus / len(devices)
            credited += min(part, most)
            beyond += max(ZERO, part - most)
        return Measurement(
            "shared",
            utilization=used / observed if observed else None,
            observed_ms=min(Fraction(observed, len(devices)), Fraction(one.running.length)),
            effective_gpu_ms=min(credited, one.gpu_ms),
            used_beyond_allocation_gpu_ms=beyond,
        )

    def _part(self, place: int, device: DeviceHour, time: Interval) -> Fraction:
        """A sharer's part of a device's use × time, piece by piece of time in which the sharers are the same."""
        one = self._holdings[place]
        if device.is_measured_per_pod and labels_of_holding(one, device):
            return max(device.use_during(time, label=label).used_ms for label in labels_of_holding(one, device))
        sharing = self._sharing(device)
        total = ZERO
        for shared in sharing.times:
            common = shared.time.overlap(time)
            if common.length:
                used_ms = shared.used_ms if common == shared.time else device.use_during(common).used_ms
                total += used_ms * sharing.replicas[place] / shared.replicas
        return total

    def _sharing(self, device: DeviceHour) -> _Sharing:
        """Worked out once for a device: thousands of pods may share it."""
        known = self._sharing_of.get(device.key)
        if known is not None:
            return known
        replicas_of: dict[int, Fraction] = {}
        changes: dict[int, Fraction] = {}
        for place in self._claims.holders_of[device.key]:
            holder = self._holdings[place]
            held = replicas_held(holder, device, len(self._claims.devices_of[place]))
            replicas_of[place] = held
            changes[holder.running.start] = changes.get(holder.running.start, ZERO) + held
            changes[holder.running.end] = changes.get(holder.running.end, ZERO) - held
        times: list[_SharedTime] = []
        together = ZERO
        for start, end in pairwise(sorted(changes)):
            together += changes[start]
            times.append(_SharedTime(Interval(start, end), together, device.use_during(Interval(start, end)).used_ms))
        self._sharing_of[device.key] = _Sharing(replicas_of, times)
        return self._sharing_of[device.key]

    def _told(self, place: int, device: DeviceHour) -> list[Interval]:
        """The time in which it is known who shared a device: while somebody shares the node's GPUs of whom nothing
        tells on which one, no split is."""
        one = self._holdings[place]
        if device.is_measured_per_pod:
            return [one.running]
        others = self._unlabelled.get(one.node.name, ())
        unknown = union(other.running.overlap(one.running) for other in others if other.resource == one.resource)
        return gaps(unknown, one.running)

    def _is_shared(self, place: int, devices: Sequence[DeviceHour]) -> bool:
        """Whether others may hold a device at the same time; one after the other is not sharing."""
        one = self._holdings[place]
        if any(replicas_per_device(one, device) > 1 for device in devices):
            return True
        return any(
            other != place
            and self._holdings[other].observed_running.overlap(one.observed_running).length > 2 * device.interval
            for device in devices
            for other in self._claims.holders_of[device.key]
        )

    def _not_others(self, place: int, device: DeviceHour) -> frozenset[tuple[str, str, str]] | None:
        """Labels whose samples are the pod's: all but those of another that held the device before or after."""
        holders = self._claims.holders_of[device.key]
        if len(holders) == 1:
            return None
        others = {
            label for other in holders if other != place for label in labels_of_holding(self._holdings[other], device)
        } - set(labels_of_holding(self._holdings[place], device))
        return (device.labels | {("", "", "")}) - others

    def _observed(self, one: Holding, seen_ms: int, device: DeviceHour, *, whole: bool) -> int:
        """Time of a holding in which a device's use was seen; less than an interval at a start or stop is no gap."""
        running = one.running
        inside = (running.start > self._window.start) + (running.end < self._window.end)
        missing = running.length - seen_ms
        # At an edge the exporter's next scrape may come an interval later; nowhere may one scrape be lost, or jitter.
        near = whole and seen_ms and 20 * missing <= (21 * inside if inside else 30) * device.interval
        return running.length if near else seen_ms

    def _spoken_for(self, found: Sequence[Measurement | None]) -> set[DeviceKey]:
        """Devices whose use is known to be their holders'."""
        by_claim = (place for place, one in enumerate(found) if one is not None and one.source in _BY_CLAIM)
        return {device.key for place in by_claim for device in self._claims.devices_of.get(place, ())}

    def _averages(self, rung: UtilizationSource, spoken_for: set[DeviceKey]) -> dict[str, _Average]:
        free: dict[str, list[DeviceHour]] = {}
        for device in self._devices:
            if device.key not in spoken_for and device.observed_times:
                free.setdefault(device.node if rung == "node" else "", []).append(device)
        return {
            name: _Average(
                sum((device.mean for device in devices), ZERO) / len(devices),
                max(overlap_length(device.observed_times, self._window) for device in devices),
            )
            for name, devices in free.items()
        }


def _by_average(rung: UtilizationSource, one: Holding, average: _Average | None) -> Measurement | None:
    if average is None:
        return None
    observed = min(average.observed_ms, one.running.length)
    effective = min(one.gpu_ms, one.gpus * average.mean * observed)
    return Measurement(rung, average.mean, observed, effective)
