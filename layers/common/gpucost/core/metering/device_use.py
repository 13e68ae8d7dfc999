"""The use of one GPU, partition or NeuronCore over an hour, and the pods that hold it."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import zip_longest
from math import lcm

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.intervals import IntervalMs, Scrapes, overlap_length, overlapping, union
from gpucost.core.metering.accelerators import NEURON, NVIDIA, vendor_of
from gpucost.core.metering.gpu_shares import (
    FRACTION,
    GPU,
    GPU_SHARED,
    MIG_PREFIX,
    NEURON_CORE,
    SHARED_SUFFIX,
    is_neuron,
    partition_type,
)
from gpucost.core.metering.implausible_samples import are_utilizations, is_utilization
from gpucost.core.metering.observations import DeviceSeries, ScrapeTarget
from gpucost.core.metering.spans import DEFAULT_INTERVAL_MS
from gpucost.core.metering.usage import Holding

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


# Assigns devices to the pods that hold them, from the pod labels of GPU exporters.

GpusOfPod = Mapping[tuple[str, str], frozenset[str]]
"""UUIDs of the GPUs on which pods have fractions, by namespace and name."""


class DeviceAssignments(Struct):
    """The devices of each holding, and the holders of each device."""

    devices_of: dict[int, list[DeviceHour]] = field(default_factory=dict)
    """By the index of the holding."""
    holders_of: dict[DeviceKey, list[int]] = field(default_factory=dict)
    """Indexes of holdings, by device."""

    def add(self, holding_index: int, devices: list[DeviceHour]) -> None:
        """Record that a holding's units are some devices, or replicas of them."""
        self.devices_of[holding_index] = devices
        for device in devices:
            self.holders_of.setdefault(device.key, []).append(holding_index)


def assign_devices(
    holdings: Sequence[Holding],
    devices: Iterable[DeviceHour],
    window: IntervalMs,
    suspect_nodes: Container[str] = (),
    gpus_of_pod: GpusOfPod | None = None,
) -> DeviceAssignments:
    """Assign devices to holdings by the pod labels of device series while the pods run.

    A label outside a pod's running time may be left over, premature, or belong to a pod of the same name. It counts
    only if no label within that time exists and no other pod has the name. On a node with a single device, every
    holder is on that device, labeled or not. A pod that holds all of a node's GPUs alone is on all of them, if no
    series of the node has a pod label.

    Args:
        holdings: all holdings of the hour.
        devices: all devices of the hour.
        window: the hour.
        suspect_nodes: names of nodes on which others may have held GPUs.
        gpus_of_pod: UUIDs of the GPUs on which pods have fractions, as their scheduler reports them. It chooses
            other GPUs than the kubelet, so labels say nothing.
    """
    by_name: dict[tuple[str, str], list[int]] = {}
    for index, holding in enumerate(holdings):
        by_name.setdefault((holding.pod.namespace, holding.pod.pod), []).append(index)
    labeled: dict[int, list[_LabeledDevice]] = {}
    on_node: dict[str, list[DeviceHour]] = {}
    mapped_nodes: set[str] = set()
    for device in devices:
        on_node.setdefault(device.node, []).append(device)
        for label in device.labeled_pods:
            indexes = by_name.get(label[:2])
            if indexes:
                mapped_nodes.add(device.node)
                _add_labeled_device(labeled, device, label, indexes, holdings)
    assignments = DeviceAssignments()
    on_unmapped_node: dict[str, list[int]] = {}
    for index, holding in enumerate(holdings):
        if holding.node.name not in mapped_nodes:
            on_unmapped_node.setdefault(holding.node.name, []).append(index)
    for index, holding in enumerate(holdings):
        node_name = holding.node.name
        assigned: list[DeviceHour] = []
        if gpus_of_pod:
            uuids = uuids_of_fractions(holding, gpus_of_pod)
            assigned = [device for device in on_node.get(node_name, ()) if device.key[1] in uuids]
        if not assigned and index in labeled:
            same_name = by_name[holding.pod.namespace, holding.pod.pod]
            has_namesakes = len(same_name) > 1 and len({holdings[other].pod.uid for other in same_name}) > 1
            assigned = _choose_labeled(holding, labeled[index], has_namesakes=has_namesakes)
        assigned = assigned or _only_device(holding, on_node.get(node_name, ()))
        if not assigned and node_name in on_unmapped_node and node_name not in suspect_nodes:
            others = (holdings[other].held for other in on_unmapped_node[node_name] if other != index)
            assigned = _all_devices(holding, on_node.get(node_name, ()), others, window)
        if assigned:
            assignments.add(index, assigned)
    return assignments


class _LabeledDevice(Struct):
    """A device with a pod's label, and how long it had the label while the pod ran."""

    device: DeviceHour
    labeled_while_running_ms: int = 0


def _add_labeled_device(
    labeled: dict[int, list[_LabeledDevice]],
    device: DeviceHour,
    label: LabeledPod,
    indexes: Iterable[int],
    holdings: Sequence[Holding],
) -> None:
    """Add a device to those of the holdings, among some of the label's pod name, to which the label may refer."""
    for index in indexes:
        holding = holdings[index]
        claimed = holding.pod.claimed_device
        if claimed is not None and (claimed.node, claimed.uuid, claimed.mig_instance) != device.key:
            continue
        if (not label[2] or label[2] == holding.pod.uid) and is_compatible(holding, device):
            of_holding = labeled.setdefault(index, [])
            if not of_holding or of_holding[-1].device is not device:  # else it has two labels of the pod
                of_holding.append(_LabeledDevice(device))
            of_holding[-1].labeled_while_running_ms += device.labeled_ms(label, holding.running)


def _choose_labeled(holding: Holding, labeled: Sequence[_LabeledDevice], *, has_namesakes: bool) -> list[DeviceHour]:
    """Choose the devices of a holding among those with its pod's label."""
    running = [labeled_device for labeled_device in labeled if labeled_device.labeled_while_running_ms]
    if not running:
        return [] if has_namesakes else [labeled_device.device for labeled_device in labeled]
    if has_namesakes and len(running) > devices_expected(holding):
        # The label of another pod of this name may linger on its device, so the longest labeled devices are chosen.
        running = sorted(
            running, key=lambda labeled_device: (-labeled_device.labeled_while_running_ms, labeled_device.device.key)
        )[: devices_expected(holding)]
    return [labeled_device.device for labeled_device in running]


def _only_device(holding: Holding, devices: Sequence[DeviceHour]) -> list[DeviceHour]:
    """Return the only device that a pod with a shared GPU can be on, regardless of labels; empty for several."""
    if not is_shared_resource(holding) or holding.node.devices != 1:
        return []
    compatible = [device for device in devices if is_compatible(holding, device)]
    return compatible if len(compatible) == 1 else []


def _all_devices(
    holding: Holding, devices: Sequence[DeviceHour], held_by_others: Iterable[IntervalMs], window: IntervalMs
) -> list[DeviceHour]:
    """Return all devices of a node whose GPUs one pod holds alone; none where a sample may belong to another pod.

    Means over the hour belong to the pod if it ran all hour. Single samples belong to it if no other pod held GPUs of
    the node within two scrape intervals, because a sample measures the interval before it.
    """
    is_whole = holding.resource in {GPU, GPU_SHARED} or vendor_of(holding.resource) != NVIDIA
    if (
        not is_whole
        or is_shared_resource(holding)
        or holding.node.mig_profile
        or holding.gpus != _gpus_of_node(holding)
    ):
        return []
    compatible = [device for device in devices if not device.is_mig_device and is_compatible(holding, device)]
    if len(compatible) != len(devices) or len(devices) != devices_expected(holding):
        return []
    margin = 2 * max((device.interval for device in devices), default=0)
    time_with_margin = IntervalMs(holding.held.start - margin, holding.held.end + margin)
    if any(held.overlap(time_with_margin).length for held in held_by_others):
        return []
    is_separable = holding.running == window or not any(device.is_continuous for device in devices)
    return compatible if is_separable else []


def uuids_of_fractions(holding: Holding, gpus_of_pod: GpusOfPod) -> frozenset[str]:
    """Return the UUIDs of the GPUs of a pod's vGPUs; none if they are not known.

    Its metrics have no uid. If a pod's name was used again on other GPUs, there are too many.
    """
    if holding.share.source != FRACTION:
        return frozenset()
    uuids = gpus_of_pod.get((holding.pod.namespace, holding.pod.pod), frozenset())
    return uuids if len(uuids) == holding.units else frozenset()


def _gpus_of_node(holding: Holding) -> Fraction | None:
    """Return the physical GPUs of a pod's node; None if they are unknown."""
    node = holding.node
    if node.physical_gpus is None and vendor_of(holding.resource) != NVIDIA:
        return node.gpus_of_units(node.capacity, None)
    return None if node.physical_gpus is None else Fraction(node.physical_gpus)


def scale_mig_shares(holdings: Sequence[Holding], assignments: DeviceAssignments) -> list[Holding]:
    """Return holdings of MIG slices with the shares that the slices have on the GPUs assigned to them."""
    scaled = list(holdings)
    for index, devices in assignments.devices_of.items():
        holding = scaled[index]
        if holding.resource.startswith(MIG_PREFIX) and holding.node.mig_layouts:
            if holding.pod.claimed_device is not None:
                continue  # its share depends on the partitions held with it
            gpus = [device.key[1] for device in devices if device.key[1] in holding.node.mig_layouts]
            share = holding.node.mig_share_on(holding.resource, gpus) if gpus else holding.share
            if share.gpus_per_unit != holding.share.gpus_per_unit:
                scaled[index] = replace(holding, share=share)
    return scaled


# What a holding and a device have in common.


def is_compatible(holding: Holding, device: DeviceHour) -> bool:
    """Whether a device is of the kind that a holding requests: a slice of its profile, a whole GPU, a NeuronCore, …"""
    resource = holding.resource
    vendor = vendor_of(resource)
    if vendor != device.vendor:
        return False
    if vendor != NVIDIA:
        partition = partition_type(resource)
        if partition.startswith("spx"):
            return not device.is_mig_device
        return not partition or partition in {series.mig_profile for series in device.series}
    if resource.startswith(MIG_PREFIX):
        requested = resource.removeprefix(MIG_PREFIX).removesuffix(SHARED_SUFFIX)
        profiles = {series.mig_profile for series in device.series}
        return device.is_mig_device and (
            not any(profiles) or requested in {_sanitized(profile) for profile in profiles}
        )
    if holding.node.advertises_mig and resource in {GPU, GPU_SHARED}:
        return not device.is_mig_device
    return device.is_mig_device or not holding.node.mig_profile


def is_shared_resource(holding: Holding) -> bool:
    """Whether units are replicas of devices (time-slicing, MPS)."""
    return holding.share.replicas > 1


def replicas_per_device(holding: Holding, device: DeviceHour) -> int:
    """Return how many units one device provides; a slice whose share is derived from capacity is no replica.

    For fractions, of which a device has no definite number, it is about how many of this size fit.
    """
    return 1 if holding.share.source == "capacity" and device.is_mig_device else holding.share.replicas


def gpus_of_device(holding: Holding, device: DeviceHour) -> Fraction:
    """Return the physical GPUs that a device stands for."""
    if holding.share.source == FRACTION:
        return holding.node.gpu_fraction
    if device.vendor == NEURON.vendor and holding.resource != NEURON_CORE:
        return holding.share.gpus_per_unit / holding.node.cores_per_device()
    count = replicas_per_device(holding, device)
    return holding.share.gpus_per_unit if count == 1 else holding.share.gpus_per_unit * count


def devices_expected(holding: Holding) -> int:
    """Return how many devices an exclusive holding has."""
    has_cores = is_neuron(holding.resource) and holding.resource != NEURON_CORE
    return holding.units * holding.node.cores_per_device() if has_cores else holding.units


def replicas_held(holding: Holding, device: DeviceHour, devices: int) -> Fraction:
    """Return a holding's replicas of one of its devices: from slots, otherwise spread evenly over its devices."""
    slot_count = max((device.slot_count(label) for label in labeled_pods_of_holding(holding, device)), default=0)
    return Fraction(min(slot_count, holding.units)) if slot_count else Fraction(holding.units, max(1, devices))


def labeled_pods_of_holding(holding: Holding, device: DeviceHour) -> list[LabeledPod]:
    """Return the labels of a device that name the holding's pod."""
    labels = device.labeled_pods_by_name.get((holding.pod.namespace, holding.pod.pod), ())
    return [label for label in labels if label[2] in {"", holding.pod.uid}]


def _sanitized(profile: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", profile.lower())
