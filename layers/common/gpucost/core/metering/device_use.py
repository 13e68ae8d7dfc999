"""One GPU's, MIG device's or NeuronCore's hour: how busy it was at each time, as far as samples show."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

from gpucost.core.intervals import Interval, Scrapes, overlap_length, union
from gpucost.core.metering.implausible_samples import is_utilization
from gpucost.core.metering.observations import DeviceSeries, Instance
from gpucost.core.metering.spans import DEFAULT_INTERVAL_MS

DeviceKey = tuple[str, str, str]
"""Node, UUID and MIG instance."""
PodLabel = tuple[str, str, str]
"""Namespace, pod and, where the exporter tells it, uid of the pod that a series is labelled with."""
UNLABELED: PodLabel = ("", "", "")
NEURON_MODEL = "NeuronCore"
"""What stands for a model on the series of neuron-monitor."""
ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class Sample:
    """What one scrape showed of a device, and the time for which it speaks."""

    time: Interval
    utilization: Fraction
    """0 to 1. Exporters copy a device's value to every sharer, so the largest copy is the device's, never their sum."""
    by_label: Mapping[PodLabel, Fraction]


@dataclass(frozen=True, slots=True)
class ObservedUse:
    """Use observed in some time."""

    used_ms: Fraction
    """Mean use × time observed."""
    observed_ms: int


class DeviceHour:
    """A device in one hour.

    Args:
        key: which one.
        series: all of its series, of one signal's rank.
        scrapes: of the exporters.
        window: the hour.
    """

    def __init__(
        self,
        key: DeviceKey,
        series: Sequence[DeviceSeries],
        scrapes: Mapping[Instance, Scrapes],
        window: Interval,
        plain: Mapping[Instance, Sequence[Interval]],
    ) -> None:
        self.key = key
        self.node, _, part = key
        self.is_part = part != ""
        """Whether it is a MIG device."""
        self.series = series
        self.is_plain = all(one.samples is None for one in series)
        """Whether every series was seen at every scrape, so that means tell all."""
        self._scrapes = scrapes
        self._window = window
        self._plain = plain

    @property
    def is_neuron(self) -> bool:
        """Whether it is a NeuronCore."""
        return self.series[0].model == NEURON_MODEL

    @cached_property
    def labels(self) -> frozenset[PodLabel]:
        """Pods that any sample is labelled with."""
        return frozenset(_label(one) for one in self.series) - {UNLABELED}

    @cached_property
    def labels_by_pod(self) -> Mapping[tuple[str, str], Sequence[PodLabel]]:
        """The labels by namespace and pod."""
        found: dict[tuple[str, str], list[PodLabel]] = {}
        for label in self.labels:
            found.setdefault(label[:2], []).append(label)
        return found

    @cached_property
    def interval(self) -> int:
        """The scrape interval in force most of the time, in milliseconds."""
        known = (self._scrapes[one.instance].typical_interval for one in self.series if one.instance in self._scrapes)
        return max(known, default=0) or DEFAULT_INTERVAL_MS

    @cached_property
    def samples(self) -> Sequence[Sample]:
        """Each scrape of the source that saw most; none for a plain device."""
        by_source: dict[str, dict[int, dict[PodLabel, Fraction]]] = {}
        instances: dict[tuple[str, int], Instance] = {}
        for one in self.series:
            source = one.instance.split("/", 1)[0]
            for time, value in one.samples or ():
                if is_utilization(value, one.scale):
                    at = by_source.setdefault(source, {}).setdefault(time, {})
                    at[_label(one)] = max(at.get(_label(one), ZERO), _part(value, one.scale))
                    instances[source, time] = one.instance
        if not by_source:
            return ()
        # Instances of one job follow each other and add up; other jobs, and equal Prometheus servers, show copies.
        source, seen = max(sorted(by_source.items()), key=lambda item: len(item[1]))
        times = sorted(seen)
        own = Scrapes(tuple(times))
        found = []
        for place, time in enumerate(times):
            told = self._scrapes.get(instances[source, time])
            interval = (told.interval_at(time) if told else 0) or own.interval_at(time) or DEFAULT_INTERVAL_MS
            reach = time + interval
            if place + 1 < len(times) and 2 * (times[place + 1] - time) <= 5 * interval:
                reach = times[place + 1]
            found.append(Sample(Interval(time, reach), max(seen[time].values()), seen[time]))
        return found

    @cached_property
    def observed_times(self) -> list[Interval]:
        """Times in which its use was observed."""
        if self.is_plain:
            seen = {one.instance: self._plain.get(one.instance, ()) for one in self.series}
            return union(interval for run in seen.values() for interval in run)
        return union(sample.time.overlap(self._window) for sample in self.samples)

    @cached_property
    def mean(self) -> Fraction:
        """Mean use of the time observed, 0 to 1."""
        if self.is_plain:
            return max((_mean(one) for one in self.series), default=ZERO)
        seen = self.use_during(self._window)
        return seen.used_ms / seen.observed_ms if seen.observed_ms else ZERO

    @cached_property
    def is_measured_per_pod(self) -> bool:
        """Whether a pod's copy is its own use: newer exporters read `GPU_UTIL` per process, so that copies differ."""
        if self.is_plain:
            told: dict[Instance, set[Fraction]] = {}
            for one in self.series:
                told.setdefault(one.instance, set()).add(_mean(one))
            return any(len(means) > 1 for means in told.values())
        return any(len(set(sample.by_label.values())) > 1 for sample in self.samples)

    def use_during(self, time: Interval, *, of: PodLabel | None = None, only: frozenset[PodLabel] | None = None) -> ObservedUse:
        """The use observed in some time.

        Args:
            time: within the hour.
            of: this pod's own copies, instead of the device's use.
            only: only samples labelled with one of these; all where None.
        """
        if self.is_plain:
            mean = self.mean if of is None else max((_mean(s) for s in self.series if _label(s) == of), default=ZERO)
            observed = overlap_length(self.observed_times, time)
            return ObservedUse(mean * observed, observed)
        used, observed = ZERO, 0
        for sample in self.samples:
            length = sample.time.overlap(time).length
            if not length or (only is not None and only.isdisjoint(sample.by_label)):
                continue
            if of is not None and of not in sample.by_label:
                continue
            used += (sample.utilization if of is None else sample.by_label[of]) * length
            observed += length
        return ObservedUse(used, observed)

    def labeled_ms(self, label: PodLabel, time: Interval) -> int:
        """For how long of some time it was labelled with a pod."""
        if self.is_plain:
            return overlap_length(self.observed_times, time) if label in self.labels else 0
        return sum(sample.time.overlap(time).length for sample in self.samples if label in sample.by_label)

    def slot_count(self, label: PodLabel) -> int:
        """How many of its replicas are told to be a pod's; 0 where that is not told."""
        return len(self._slots.get(label, ()))

    @cached_property
    def _slots(self) -> Mapping[PodLabel, set[str]]:
        found: dict[PodLabel, set[str]] = {}
        for one in self.series:
            if one.slot:
                found.setdefault(_label(one), set()).add(one.slot)
        return found


def device_hours(
    series: Iterable[DeviceSeries], scrapes: Mapping[Instance, Scrapes], window: Interval
) -> list[DeviceHour]:
    """All devices of an hour, each by the best signal that tells of it."""
    by_key: dict[DeviceKey, list[DeviceSeries]] = {}
    for one in series:
        if one.samples is None and not (one.sample_count and one.total.is_finite()):
            continue
        by_key.setdefault((one.node, one.uuid, one.mig_instance), []).append(one)
    plain = {who: run.coverage(window, DEFAULT_INTERVAL_MS) for who, run in scrapes.items()}
    found = []
    for key in sorted(by_key):
        own = by_key[key]
        best = min(one.rank for one in own)
        found.append(DeviceHour(key, [one for one in own if one.rank == best], scrapes, window, plain))
    return found


def _label(one: DeviceSeries) -> PodLabel:
    return (one.namespace, one.pod, one.uid) if one.pod else UNLABELED


def _part(value: Decimal, scale: Decimal) -> Fraction:
    """A sample as a part of full use, kept within 0 and 1 (MIG devices were seen above)."""
    return min(max(Fraction(value) / Fraction(scale), ZERO), Fraction(1))


def _mean(one: DeviceSeries) -> Fraction:
    used, parts = one.total.as_integer_ratio()
    scale, per_scale = one.scale.as_integer_ratio()
    used, full = used * per_scale, parts * one.sample_count * scale
    return Fraction(min(max(used, 0), full), full)
