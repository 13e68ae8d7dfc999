"""The utilization ladder: how much of what a pod held was used, from the best evidence that the settings allow."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from gpucost.domain.model import UtilizationSource
from gpucost.domain.observations import DeviceObservation, Instance
from gpucost.domain.usage import Holding, Measurement

DeviceKey = tuple[str, str, str]
UNMEASURED = Measurement("none")


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """One GPU or MIG device as one pod's series shows it: its mean use and for how long that was seen."""

    key: DeviceKey
    mean: Fraction
    seen_ms: int


class Ladder:
    """Finds a holding's use by the first rung that knows it.

    Args:
        holdings: all of the hour.
        devices: all series of the signal in the hour.
        full_scale: the signal's value that means fully used.
        rungs: allowed rungs, best first.
        interval_ms: the signal's scrape interval.
    """

    def __init__(
        self,
        holdings: Sequence[Holding],
        devices: Iterable[DeviceObservation],
        full_scale: Decimal,
        rungs: Sequence[UtilizationSource],
        interval_ms: int,
    ) -> None:
        self._rungs = rungs
        self._interval = interval_ms
        self._by_name: dict[tuple[str, str], list[Holding]] = {}
        for holding in holdings:
            self._by_name.setdefault((holding.pod.namespace, holding.pod.pod), []).append(holding)
        usable = [device for device in devices if device.samples > 0 and device.total.is_finite()]
        self._uses = _merge(usable, full_scale, interval_ms)
        self._claims: dict[str, list[DeviceUse]] = {}
        self._claimants: dict[DeviceKey, list[Holding]] = {}
        claimed: set[DeviceKey] = set()
        for (namespace, pod, uid), uses in self._uses.items():
            for holding in self._holders(namespace, pod, uid):
                self._claims.setdefault(holding.pod.uid, []).extend(uses)
                for use in uses:
                    self._claimants.setdefault(use.key, []).append(holding)
            if "pod" in rungs or "shared" in rungs:
                claimed.update(use.key for use in uses if self._claimants.get(use.key))
        free = _by_device(use for uses in self._uses.values() for use in uses if use.key not in claimed)
        self._cluster = _average(free)
        self._nodes = (
            {node: _average([use for use in free if use.key[0] == node]) for node in {use.key[0] for use in free}}
            if "node" in rungs
            else {}
        )

    def measure(self, holding: Holding) -> Measurement:
        """A holding's use; source `none` where no allowed rung knows it."""
        for rung in self._rungs:
            found = self._try(rung, holding)
            if found is not None:
                return found
        return UNMEASURED

    def _try(self, rung: UtilizationSource, holding: Holding) -> Measurement | None:
        if rung in {"pod", "shared"}:
            uses = self._claims.get(holding.pod.uid)
            if not uses or self._is_shared(holding, uses) != (rung == "shared"):
                return None
            return self._from_devices(rung, holding, uses)
        average = self._cluster if rung == "cluster" else self._nodes.get(holding.node.name)
        if average is None:
            return None
        mean, seen_ms = average
        observed = self._observed(holding, seen_ms)
        return Measurement(rung, mean, observed, min(holding.gpu_ms, holding.gpus * mean * observed))

    def _from_devices(self, rung: UtilizationSource, holding: Holding, uses: Sequence[DeviceUse]) -> Measurement:
        """Mean over the pod's devices; a device that should be there and has no series counts as not observed."""
        devices = len(uses) if rung == "shared" else holding.units
        seen = [self._observed(holding, use.seen_ms) for use in uses]
        if len(uses) == devices == 1 and rung == "pod":  # nearly all pods
            (use,), (time,) = uses, seen
            return Measurement(rung, use.mean, time, min(use.mean * time * holding.gpus, holding.gpu_ms))
        each = holding.gpus / devices
        gpus = [self._part_of_device(holding, use.key) if rung == "shared" else each for use in uses]
        used = [use.mean * time for use, time in zip(uses, seen, strict=True)]
        # Never more than was allocated in the time in which it was seen: a sharer may use what others leave idle.
        most = [time * each for time in seen]
        effective = sum(min(time * part, limit) for time, part, limit in zip(used, gpus, most, strict=True))
        observed = sum(seen)
        return Measurement(
            rung,
            utilization=Fraction(sum(used)) / observed if observed else None,
            # More devices than units were held one after the other, not at once.
            observed_ms=min(Fraction(observed, devices), Fraction(holding.running.length)),
            effective_gpu_ms=min(Fraction(effective), holding.gpu_ms),
        )

    def _is_shared(self, holding: Holding, uses: Iterable[DeviceUse]) -> bool:
        if holding.node.replicas > 1:
            return True
        contested = (use.key for use in uses if len(self._claimants[use.key]) > 1)
        return any(len(self._sharers(holding, key)) > 1 for key in contested)

    def _sharers(self, holding: Holding, key: DeviceKey) -> list[Holding]:
        """Who held the device at the same time, the pod itself included; one after the other is not sharing."""
        tolerance = 2 * self._interval
        return [
            other
            for other in self._claimants[key]
            if other is holding or other.held.overlap(holding.held).length > tolerance
        ]

    def _part_of_device(self, holding: Holding, key: DeviceKey) -> Fraction:
        """A sharer's part of what the device did, in physical GPUs: by replicas held on the device."""
        device = holding.share.of_gpu * max(1, holding.node.replicas)
        return device * Fraction(holding.units, sum(other.units for other in self._sharers(holding, key)))

    def _observed(self, holding: Holding, seen_ms: int) -> Fraction | int:
        """Time of the holding in which its use was seen. A missing sample at an edge is jitter, not a gap.

        Where a name came back under another uid within the hour, the series covers both lives, in proportion.
        """
        namesakes = self._by_name[holding.pod.namespace, holding.pod.pod]
        running = holding.running.length
        seen: Fraction | int = seen_ms
        if len(namesakes) > 1:
            lives = {other.pod.uid: other.running.length for other in namesakes}
            seen = Fraction(seen_ms * running, sum(lives.values()) or 1)
        return running if 2 * (running - seen) <= 3 * self._interval else seen

    def _holders(self, namespace: str, pod: str, uid: str) -> list[Holding]:
        named = self._by_name.get((namespace, pod), [])
        return [holding for holding in named if not uid or holding.pod.uid == uid]


def _merge(
    devices: Iterable[DeviceObservation], full_scale: Decimal, interval_ms: int
) -> Mapping[tuple[str, str, str], list[DeviceUse]]:
    """Uses per (namespace, pod, uid) label, each device once."""
    sums: dict[tuple[str, str, str], dict[DeviceKey, dict[Instance, tuple[int, Decimal]]]] = {}
    for device in devices:
        of_label = sums.setdefault((device.namespace, device.pod, device.uid), {})
        of_device = of_label.setdefault((device.node, device.uuid, device.mig_instance), {})
        seen = (device.samples, device.total)
        of_device[device.instance] = max(seen, of_device.get(device.instance, seen))
    scale, per_scale = full_scale.as_integer_ratio()
    return {
        label: [
            DeviceUse(key, _mean(total, samples * scale, per_scale), samples * interval_ms)
            for key, runs in uses.items()
            for samples, total in [_longest(runs)]
        ]
        for label, uses in sums.items()
    }


def _longest(runs: Mapping[Instance, tuple[int, Decimal]]) -> tuple[int, Decimal]:
    """Samples and their sum, of the source that saw most.

    Instances of one job follow each other (a restarted exporter) and add up; jobs, and equal Prometheus servers, show
    the same samples once more.
    """
    if len(runs) == 1:
        return next(iter(runs.values()))
    sources: dict[str, tuple[int, Decimal]] = {}
    for instance, (samples, total) in sorted(runs.items()):
        source = instance.split("/", 1)[0]
        before = sources.get(source, (0, Decimal(0)))
        sources[source] = (before[0] + samples, before[1] + total)
    return max(sources.values())


def _mean(total: Decimal, most: int, per_scale: int) -> Fraction:
    """The mean of samples as a part of full use, kept within 0 and 1 (MIG devices were seen above)."""
    used, parts = total.as_integer_ratio()
    used, full = used * per_scale, parts * most
    return Fraction(min(max(used, 0), full), full)


def _average(uses: Sequence[DeviceUse]) -> tuple[Fraction, int] | None:
    """Mean use of devices and for how long at least one of them was seen."""
    if not uses:
        return None
    return sum((use.mean for use in uses), Fraction(0)) / len(uses), max(use.seen_ms for use in uses)


def _by_device(uses: Iterable[DeviceUse]) -> list[DeviceUse]:
    """One use per device: exporters copy a device's value to every series of it, so copies are never summed."""
    best: dict[DeviceKey, DeviceUse] = {}
    for use in uses:
        if use.key not in best or use.seen_ms > best[use.key].seen_ms:
            best[use.key] = use
    return [best[key] for key in sorted(best)]
