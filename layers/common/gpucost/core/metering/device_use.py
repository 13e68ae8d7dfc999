"""The use of one GPU, partition or NeuronCore over an hour, from the samples of exporters."""

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import zip_longest
from math import lcm

from msgspec import Struct, field

from gpucost.core.intervals import IntervalMs, Scrapes, overlap_length, overlapping, union
from gpucost.core.metering.implausible_samples import are_utilizations, is_utilization
from gpucost.core.metering.observations import DeviceSeries, ScrapeTarget
from gpucost.core.metering.spans import DEFAULT_INTERVAL_MS

DeviceKey = tuple[str, str, str]
"""Node, UUID and MIG instance."""
LabeledPod = tuple[str, str, str]
"""Namespace, pod and, if the exporter reports it, uid of the pod with which a series is labeled."""
UNLABELED: LabeledPod = ("", "", "")
ZERO = Fraction(0)
_NO_LABELS: frozenset[LabeledPod] = frozenset()

_integer_ratio = lru_cache(maxsize=64)(Decimal.as_integer_ratio)
"""The integer ratio of a signal's scale, of which there are few."""


class Sample(Struct, frozen=True, gc=False):
    """A device's utilization at one scrape, and the time that the scrape covers."""

    time: IntervalMs
    numerator: int
    """The device's own utilization, never a sum of its pods' values, × `DeviceSamples.denominator`."""
    labels: frozenset[LabeledPod]
    """The pods with which the device is labeled; `UNLABELED` if a series names none."""


class DeviceSamples(Struct, frozen=True):
    """A device's samples in order of time, as one job reports them."""

    job: str
    samples: Sequence[Sample] = ()
    denominator: int = 1
    """Common to all utilizations."""


class _JobValues(Struct):
    """The values that one job reports for a device, by scrape time: numerators of one denominator."""

    of_device: dict[int, int] = field(default_factory=dict)
    of_processes: dict[int, int] = field(default_factory=dict)
    """The largest value in a series with a pod's uid; it counts where the device's own value is missing."""
    labels: dict[int, frozenset[LabeledPod]] = field(default_factory=dict)
    targets: dict[int, ScrapeTarget] = field(default_factory=dict)


class ObservedUse(Struct, frozen=True):
    """The use observed during some time."""

    used_ms: Fraction
    """Mean use × time observed."""
    observed_ms: int


class DeviceHour:
    """A device in one hour.

    Args:
        key: identifies the device.
        series: all its series of one signal's rank.
        scrapes: the exporters' scrapes.
        window: the hour.
        continuous_times: the times that each exporter's scrapes cover.
    """

    def __init__(
        self,
        key: DeviceKey,
        series: Sequence[DeviceSeries],
        scrapes: Mapping[ScrapeTarget, Scrapes],
        window: IntervalMs,
        continuous_times: Mapping[ScrapeTarget, Sequence[IntervalMs]],
    ) -> None:
        self.key = key
        self.node, _, mig_instance = key
        self.is_mig_device = mig_instance != ""
        """Whether it is a MIG device, or a partition of an AMD GPU."""
        self.series = series
        self.is_continuous = all(device_series.samples is None for device_series in series)
        """Whether every series has a sample at every scrape, so that only sums are known and needed."""
        self.vendor = series[0].vendor
        """The vendor in the catalog of accelerators."""
        self.is_contradicted = False
        """Whether a second witness contradicts its signal, so that its use is unknown."""
        self.labeled_pods = frozenset(
            [
                (device_series.namespace, device_series.pod, device_series.uid)
                for device_series in series
                if device_series.pod
            ]
        )
        """The pods with which any sample is labeled."""
        self._scrapes = scrapes
        self._window = window
        self._continuous_times = continuous_times
        if self.is_continuous and len(series) == 1:  # nearly always; a cached property takes longer
            self.observed_times = continuous_times.get(series[0].scrape_target, ())

    @cached_property
    def labeled_pods_by_name(self) -> Mapping[tuple[str, str], Sequence[LabeledPod]]:
        """The labeled pods by namespace and name."""
        pods_by_name: dict[tuple[str, str], list[LabeledPod]] = {}
        for pod in self.labeled_pods:
            pods_by_name.setdefault(pod[:2], []).append(pod)
        return pods_by_name

    def last_label(self, pod: tuple[str, str]) -> IntervalMs:
        """Return the time that the last scrape covers in which the device was labeled with a pod, by its name."""
        if self.is_continuous:
            return IntervalMs(self._window.end - self.interval, self._window.end)
        labels = frozenset(self.labeled_pods_by_name[pod])
        return next(sample.time for sample in reversed(self.samples) if not labels.isdisjoint(sample.labels))

    @cached_property
    def interval(self) -> int:
        """The median scrape interval in milliseconds."""
        intervals = (
            self._scrapes[device_series.scrape_target].typical_interval
            for device_series in self.series
            if device_series.scrape_target in self._scrapes
        )
        return max(intervals, default=0) or DEFAULT_INTERVAL_MS

    @property
    def samples(self) -> Sequence[Sample]:
        """The samples of the job with the most samples; empty for a continuous device."""
        return self._samples.samples

    @cached_property
    def _samples(self) -> DeviceSamples:
        ratios = [(device_series, list(_ratios(device_series))) for device_series in self.series]
        common_denominator = lcm(*{denominator for _, of_series in ratios for _, _, denominator in of_series})
        by_job: dict[str, _JobValues] = {}
        for device_series, ratios_of_series in ratios:
            values = by_job.setdefault(_job(device_series), _JobValues())
            label, target = _labeled_pod(device_series), device_series.scrape_target
            numerators = values.of_processes if label[2] else values.of_device
            for time, numerator, denominator in ratios_of_series:
                scaled = numerator * (common_denominator // denominator)
                if numerators.get(time, -1) < scaled:
                    numerators[time] = scaled
                values.labels[time] = _with_label(values.labels.get(time, _NO_LABELS), label)
                values.targets[time] = target
        # Instances of one job succeed each other, so their samples are joined. Other jobs and replicas are copies.
        job, values = max(sorted(by_job.items()), key=lambda job_and_values: len(job_and_values[1].labels))
        numerators, times = values.of_processes | values.of_device, sorted(values.labels)
        sample_times = Scrapes(tuple(times))
        samples = []
        for time, after in zip_longest(times, times[1:]):
            exporter_scrapes = self._scrapes.get(values.targets[time])
            interval = (
                (exporter_scrapes.interval_at(time) if exporter_scrapes else 0)
                or sample_times.interval_at(time)
                or DEFAULT_INTERVAL_MS
            )
            is_on_time = after is not None and 2 * (after - time) <= 5 * interval
            covered = IntervalMs(time, after if is_on_time else time + interval)
            samples.append(Sample(covered, numerators[time], values.labels[time]))
        return DeviceSamples(job, samples, common_denominator)

    @cached_property
    def observed_times(self) -> Sequence[IntervalMs]:
        """The times in which its use was observed."""
        if self.is_continuous:
            times_by_instance = {
                device_series.scrape_target: self._continuous_times.get(device_series.scrape_target, ())
                for device_series in self.series
            }
            return union(interval for times in times_by_instance.values() for interval in times)
        covered = union(sample.time for sample in self.samples)
        return [time.overlap(self._window) for time in covered if time.overlap(self._window).length]

    @cached_property
    def mean(self) -> Fraction:
        """The mean use of the observed time, 0 to 1."""
        if self.is_continuous:
            if len(self.series) == 1:  # nearly always
                return _mean_of_series(self.series[0])
            return max(map(_device_value, self._means_by_target().values()), default=ZERO)
        use = self.use_during(self._window)
        return use.used_ms / use.observed_ms if use.observed_ms else ZERO

    def readings(self) -> Iterable[tuple[Sequence[IntervalMs], Mapping[LabeledPod, Fraction]]]:
        """Return its utilization by labeled pod, and the times within the hour that each reading covers."""
        if not self.is_continuous:
            by_time: dict[int, dict[LabeledPod, Fraction]] = {}
            for device_series in self.series:
                if _job(device_series) == self._samples.job:
                    label = _labeled_pod(device_series)
                    for time, numerator, denominator in _ratios(device_series):
                        by_label = by_time.setdefault(time, {})
                        by_label[label] = max(by_label.get(label, ZERO), Fraction(numerator, denominator))
            for sample in self.samples:
                yield [sample.time.overlap(self._window)], by_time[sample.time.start]
            return
        # Targets are replicas of Prometheus or copies of one exporter, so one of them is enough.
        by_target = self._means_by_target()
        target = max(sorted(by_target), key=lambda target: len(by_target[target]))
        yield self._continuous_times.get(target, ()), by_target[target]

    def _means_by_target(self) -> Mapping[ScrapeTarget, Mapping[LabeledPod, Fraction]]:
        by_target: dict[ScrapeTarget, dict[LabeledPod, Fraction]] = {}
        for device_series in self.series:
            means, label = by_target.setdefault(device_series.scrape_target, {}), _labeled_pod(device_series)
            means[label] = max(means.get(label, ZERO), _mean_of_series(device_series))
        return by_target

    def use_during(self, time: IntervalMs, *, pods: frozenset[LabeledPod] | None = None) -> ObservedUse:
        """Return the use observed during some time.

        Args:
            time: within the hour.
            pods: only samples labeled with one of these count; None for all samples.
        """
        if self.is_continuous:
            observed = overlap_length(self.observed_times, time)
            return ObservedUse(self.mean * observed, observed)
        if not time.length:  # such as the running time of a pod that is pending until the hour's end
            return ObservedUse(ZERO, 0)
        used = observed = 0
        for sample in overlapping(self.samples, time, _time_of_sample):
            if pods is None or not pods.isdisjoint(sample.labels):
                length = min(sample.time.end, time.end) - max(sample.time.start, time.start)
                used += sample.numerator * length
                observed += length
        return ObservedUse(Fraction(used, self._samples.denominator), observed)

    def labeled_ms(self, pod: LabeledPod, time: IntervalMs) -> int:
        """Return for how long of some time the device was labeled with a pod."""
        if self.is_continuous:
            return overlap_length(self.observed_times, time) if pod in self.labeled_pods else 0
        return self.use_during(time, pods=frozenset((pod,))).observed_ms

    def slot_count(self, pod: LabeledPod) -> int:
        """Return how many of its replicas are labeled as a pod's; 0 if the exporter does not report slots."""
        return len(self._slots_by_pod.get(pod, ()))

    @cached_property
    def _slots_by_pod(self) -> Mapping[LabeledPod, set[str]]:
        slots: dict[LabeledPod, set[str]] = {}
        for device_series in self.series:
            if device_series.slot:
                slots.setdefault(_labeled_pod(device_series), set()).add(device_series.slot)
        return slots


def group_by_device(series: Iterable[DeviceSeries]) -> dict[DeviceKey, list[DeviceSeries]]:
    """Group series by their device."""
    series_by_device: dict[DeviceKey, list[DeviceSeries]] = {}
    for device_series in series:
        key = (device_series.node, device_series.uuid, device_series.mig_instance)
        series_by_device.setdefault(key, []).append(device_series)
    return series_by_device


def device_hours(
    series_by_device: Mapping[DeviceKey, Sequence[DeviceSeries]],
    scrapes: Mapping[ScrapeTarget, Scrapes],
    window: IntervalMs,
) -> list[DeviceHour]:
    """Return all devices of an hour that have samples, each with the series of its best signal."""
    if not series_by_device:
        return []
    continuous_times = continuous_times_of(scrapes, window)
    hours = []
    for key in sorted(series_by_device):
        device_copies = [device_series for device_series in series_by_device[key] if _has_samples(device_series)]
        if not device_copies:
            continue
        if len(device_copies) > 1:
            best = min(device_series.signal_rank for device_series in device_copies)
            device_copies = [device_series for device_series in device_copies if device_series.signal_rank == best]
        hours.append(DeviceHour(key, device_copies, scrapes, window, continuous_times))
    return hours


def _has_samples(series: DeviceSeries) -> bool:
    return series.samples is not None or (series.sample_count > 0 and series.sample_sum.is_finite())


def continuous_times_of(
    scrapes: Mapping[ScrapeTarget, Scrapes], window: IntervalMs
) -> dict[ScrapeTarget, Sequence[IntervalMs]]:
    """Return the times that each exporter's scrapes cover."""
    return {instance: scrape_times.coverage(window, DEFAULT_INTERVAL_MS) for instance, scrape_times in scrapes.items()}


def _time_of_sample(sample: Sample) -> IntervalMs:
    return sample.time


def _job(series: DeviceSeries) -> str:
    return series.scrape_target.split("/", 1)[0]


def _labeled_pod(series: DeviceSeries) -> LabeledPod:
    return (series.namespace, series.pod, series.uid) if series.pod else UNLABELED


def _device_value(by_label: Mapping[LabeledPod, Fraction]) -> Fraction:
    """Return a device's value among those with its pods' labels.

    Exporters copy it to each pod. Those that report values per process keep it in a series without uid.
    """
    without_uid = [utilization for (_, _, uid), utilization in by_label.items() if not uid]
    return max(without_uid or by_label.values())


@lru_cache(maxsize=1024)
def _with_label(labels: frozenset[LabeledPod], label: LabeledPod) -> frozenset[LabeledPod]:
    """Add a label. Samples with the same labels share one set."""
    return labels | {label}


def _ratios(series: DeviceSeries) -> Iterable[tuple[int, int, int]]:
    """Return the times of a series' plausible samples, and their ratios to full use as numerator and denominator."""
    samples = series.samples or ()
    are_all_plausible = are_utilizations([value for _, value in samples], series.scale)
    scale, scale_denominator = _integer_ratio(series.scale)
    for time, value in samples:
        if are_all_plausible or is_utilization(value, series.scale):
            numerator, denominator = value.as_integer_ratio()
            full_use = scale * denominator
            yield time, min(numerator * scale_denominator, full_use), full_use


def _mean_of_series(series: DeviceSeries) -> Fraction:
    """Return the mean as a ratio of full use, clamped to 0 to 1, because MIG devices report values above full use."""
    used, used_denominator = series.sample_sum.as_integer_ratio()
    scale, scale_denominator = _integer_ratio(series.scale)
    used, full = used * scale_denominator, scale * used_denominator * series.sample_count
    return Fraction(min(max(used, 0), full), full)
