"""Utilization: how much of its GPUs each pod used, from the best source that the settings allow.

First, how pods divide a shared GPU by their processes; last, the use by containers under fraction schedulers.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from msgspec import Struct, field

from gpucost.core.hour_record import MEASURED_SOURCES, UtilizationSource
from gpucost.core.intervals import IntervalMs, Scrapes, gaps, overlap_length, overlapping, overlapping_keys, union
from gpucost.core.metering.accelerators import accelerator_of_vendor, vendor_of
from gpucost.core.metering.device_use import (
    UNLABELED,
    DeviceAssignments,
    DeviceHour,
    DeviceKey,
    GpusOfPod,
    LabeledPod,
    continuous_times_of,
    devices_expected,
    gpus_of_device,
    is_shared_resource,
    labeled_pods_of_holding,
    replicas_held,
    replicas_per_device,
    uuids_of_fractions,
)
from gpucost.core.metering.fraction_schedulers import CORE_RESOURCES
from gpucost.core.metering.gpu_shares import FRACTION
from gpucost.core.metering.observations import DeviceSeries, ScrapeTarget
from gpucost.core.metering.usage import UNMEASURED, Holding, Use

# How pods divide the use of a shared GPU, by the utilization that dcgm-exporter reports of their processes.
#
# In virtual-GPU mode, dcgm-exporter 4.5.3-4.8.2 and later (pull request 594) reports `DCGM_FI_DEV_GPU_UTIL` of a GPU
# several times: the device's own value, without pod, and for each pod on it the sum of its processes' values, with
# `pod_uid`. A pod without processes gets 0. So does a pod whose processes the exporter cannot see (no `hostPID`), and a
# pod whose uid it does not know, then without `pod_uid`. Such zeros are not measurements.

ZERO = Fraction(0)


class ProcessShares(Struct, frozen=True):
    """The pods' parts of a device's use in times in which the same pods have values; their sum is at most 1."""

    times: Sequence[IntervalMs]
    by_uid: Mapping[str, Fraction]


class ProcessUse(Struct, frozen=True):
    """What the processes' values say about one device."""

    shares: Sequence[ProcessShares] = ()
    unexplained_ms: Fraction = ZERO
    """Use of the device in the times in which the processes' values do not account for it."""


class _Values(Struct):
    """The values of the times in which the same pods run and the same pods have values, each × time."""

    times: list[IntervalMs] = field(default_factory=list)
    device_ms: Fraction = ZERO
    pod_ms: dict[str, Fraction] = field(default_factory=dict)


def process_use(values: DeviceHour, device: DeviceHour, holdings: Iterable[Holding]) -> ProcessUse:
    """Compute how pods divide a device's use, from what its processes use.

    Only proportions are taken from the values: they are one snapshot per scrape, and `GPU_UTIL` overstates use. What
    the device's own value exceeds the pods' sum by belongs to processes of no pod on the device.

    Args:
        values: the device by the signal that exporters report per process.
        device: the device by its best signal.
        holdings: all holdings that include the device.
    """
    shares: list[ProcessShares] = []
    unexplained_ms = ZERO
    for running, observed in _values_by_pods(values, list(holdings)):
        times = union(observed.times)
        total = max(observed.device_ms, sum(observed.pod_ms.values(), ZERO))
        used_ms = sum((device.use_during(time).used_ms for time in times), ZERO)
        if total and _accounts_for_use(observed, has_all_pods=running <= observed.pod_ms.keys()):
            shares.append(ProcessShares(times, {uid: pod_ms / total for uid, pod_ms in observed.pod_ms.items()}))
        elif not used_ms:
            shares.append(ProcessShares(times, dict.fromkeys(observed.pod_ms, ZERO)))
        else:
            unexplained_ms += used_ms
    return ProcessUse(shares, unexplained_ms)


def _values_by_pods(values: DeviceHour, holders: Sequence[Holding]) -> Iterable[tuple[frozenset[str], _Values]]:
    """Return values of scrapes that have some of the device and of pods, with the uids of the pods that run then."""
    by_pods: dict[tuple[frozenset[str], frozenset[str]], _Values] = {}
    for times, by_label in values.readings():
        device = max((utilization for (_, _, uid), utilization in by_label.items() if not uid), default=None)
        # A pod's value is repeated for each of its containers and replicas, so labels of a uid differ in no value.
        pods = {uid: utilization for (_, _, uid), utilization in by_label.items() if uid}
        if device is not None and pods:
            running = frozenset(
                holder.pod.uid for holder in holders if any(holder.running.contains(time.start) for time in times)
            )
            observed = by_pods.setdefault((running, frozenset(pods)), _Values())
            length = sum(time.length for time in times)
            observed.times += times
            observed.device_ms += device * length
            for uid, utilization in pods.items():
                observed.pod_ms[uid] = observed.pod_ms.get(uid, ZERO) + utilization * length
    return [(running, observed) for (running, _), observed in by_pods.items()]


def _accounts_for_use(values: _Values, *, has_all_pods: bool) -> bool:
    """Whether the exporter sees the pods' processes, so that a 0 means no use.

    Values add up to about the device's own. They may be less where other processes use the device, and by chance,
    because both are snapshots; so half is enough. Where a pod has no value, any value above 0 has to do.
    """
    pods_ms = sum(values.pod_ms.values(), ZERO)
    return 2 * pods_ms >= values.device_ms if has_all_pods else pods_ms > 0


# The best source for each pod.

PodName = tuple[str, str]


class _AverageUse(Struct, frozen=True):
    """The mean use of several devices, and for how long any of them was observed."""

    mean: Fraction
    observed_ms: int


class _SharedTime(Struct, frozen=True):
    """A time in which the same pods share a device."""

    interval: IntervalMs
    replicas: Fraction
    """Replicas × share, the sum over the pods."""
    used_ms: Fraction


class _Sharing(Struct, frozen=True):
    """The holdings that share a device, and when."""

    replicas: Mapping[int, Fraction]
    """By the index of the holding."""
    times: Sequence[_SharedTime]


class _Holders(Struct, frozen=True):
    """The holdings of one device."""

    simultaneous: frozenset[int]
    """Indexes of those that hold it while another does."""
    other_labels: frozenset[LabeledPod]
    """Labels of the device that name none of their pods."""


class _SharedUse(Struct):
    """A pod's part of a shared device's use."""

    part_ms: Fraction = ZERO
    device_ms: Fraction = ZERO
    """The device's use in the same time."""
    observed_ms: int = 0
    is_whole: bool = False
    """Whether this is all of the pod's running time, apart from times without samples."""
    is_split_by_replicas: bool = False


class UtilizationResolver:
    """Measures the use of every holding with the first utilization source that has it.

    Args:
        holdings: all holdings of the hour.
        devices: all devices of the hour.
        assignments: the devices of each holding.
        sources: the allowed sources, in order of preference.
        window: the hour.
        process_values: shared devices by the signal that exporters report per process.
        containers_of_pod: the use of GPUs by the containers of pods that are measured so, by namespace and name.
    """

    def __init__(
        self,
        holdings: Sequence[Holding],
        devices: Sequence[DeviceHour],
        assignments: DeviceAssignments,
        sources: Sequence[UtilizationSource],
        window: IntervalMs,
        process_values: Iterable[DeviceHour] = (),
        containers_of_pod: Mapping[PodName, Sequence[DeviceHour]] | None = None,
    ) -> None:
        self._holdings = holdings
        self._devices = devices
        self._sources = sources
        self._window = window
        self._assignments = assignments
        self._containers_of_pod = containers_of_pod or {}
        self._sharing_of: dict[DeviceKey, _Sharing] = {}
        self._holders_by_device: dict[DeviceKey, _Holders] = {}
        self._process_values = {values.key: values for values in process_values}
        self._process_use_of: dict[DeviceKey, ProcessUse] = {}
        order = [source for source in sources if source in {"process", "shared"}]
        self._prefers_processes = order == ["process", "shared"]
        # Of these pods, nothing says on which of their node's GPUs they are.
        self._unlabeled: dict[str, list[Holding]] = {}
        for index, holding in enumerate(holdings):
            if is_shared_resource(holding) and index not in self._assignments.devices_of:
                self._unlabeled.setdefault(holding.node.name, []).append(holding)

    @cached_property
    def uses(self) -> Sequence[Use]:
        """The use of each holding, in their order; `UNMEASURED` if no allowed source has it."""
        uses = [UNMEASURED] * len(self._holdings)
        unmeasured: Sequence[int] = range(len(uses))
        for source in self._sources:
            averages = None if source in MEASURED_SOURCES else self._averages(source, self._assigned_devices(uses))
            left: list[int] = []
            for index in unmeasured:
                if averages is None:
                    use = self._by_assignment(source, index)
                else:
                    use = self._by_average(source, index, averages)
                if use is None:
                    left.append(index)
                else:
                    uses[index] = use
            unmeasured = left
        return uses

    def unlabeled_sharers(self) -> dict[str, int]:
        """Return, by node, how many pods share GPUs without a label that says which GPU they are on."""
        labeled_nodes = {device.node for device in self._devices if device.labeled_pods}
        return {node: len(holdings) for node, holdings in self._unlabeled.items() if node in labeled_nodes}

    def pods_without_labels(self) -> dict[str, dict[str, int]]:
        """Return, by vendor and node, how many unmeasured pods are on nodes of which no device names a pod.

        For devices of claims that no exporter of the vendor measures, it makes no difference whether there are any.
        """
        unmeasured = [
            holding
            for holding, use in zip(self._holdings, self.uses, strict=True)
            if use is UNMEASURED and holding.running.length and holding.share.source != FRACTION
        ]
        if not unmeasured:
            return {}
        names = {(holding.pod.namespace, holding.pod.pod) for holding in self._holdings}
        reported = {(device.node, device.vendor) for device in self._devices if not device.is_contradicted}
        labeled = {device.node for device in self._devices if any(label[:2] in names for label in device.labeled_pods)}
        pods: dict[str, dict[str, set[str]]] = {}
        for holding in unmeasured:
            vendor, node = vendor_of(holding.resource), holding.node.name
            accelerator = accelerator_of_vendor(vendor)
            is_never_measured = (
                accelerator is not None and accelerator.use_of_claims and holding.pod.claimed_device is not None
            )
            if is_never_measured or ((node, vendor) in reported and node not in labeled):
                pods.setdefault(vendor, {}).setdefault(node, set()).add(holding.pod.uid)
        return {vendor: {node: len(uids) for node, uids in by_node.items()} for vendor, by_node in pods.items()}

    def fractions_without_gpu(self) -> dict[str, int]:
        """Return, by node with devices, how many pods hold a fraction of a GPU that no metric names."""
        if not self._unlabeled:
            return {}
        nodes = {device.node for device in self._devices}
        counts: dict[str, int] = {}
        for node, holdings in self._unlabeled.items():
            pods = {holding.pod.uid for holding in holdings if holding.share.source == FRACTION}
            if pods and node in nodes:
                counts[node] = len(pods)
        return counts

    def use_while_unallocated(self) -> dict[str, Fraction]:
        """Return, by node, the use of devices in GPU-milliseconds while no pod held them.

        Nodes with holdings without assigned devices are left out, because the use may belong to these.
        """
        nodes_with_unassigned = {
            holding.node.name
            for index, holding in enumerate(self._holdings)
            if index not in self._assignments.devices_of
        }
        unclaimed: dict[str, Fraction] = {}
        for device in self._devices:
            if device.node in nodes_with_unassigned or device.is_mig_device:
                continue
            held_times = [self._holdings[index].held for index in self._assignments.holders_of.get(device.key, ())]
            if self._window in held_times:
                continue
            for free in gaps(union(held_times), self._window, 2 * device.interval):
                used = device.use_during(free).used_ms
                if used:
                    unclaimed[device.node] = unclaimed.get(device.node, ZERO) + used
        return unclaimed

    def unexplained_process_use(self) -> dict[str, Fraction]:
        """Return, by node, the use of shared devices, in GPU-milliseconds, that no values of processes account for."""
        unexplained: dict[str, Fraction] = {}
        _ = self.uses  # determines which values of processes are needed
        for (node, _, _), use in self._process_use_of.items():
            unexplained[node] = unexplained.get(node, ZERO) + use.unexplained_ms
        return unexplained

    def _by_average(self, source: UtilizationSource, index: int, averages: Mapping[str, _AverageUse]) -> Use | None:
        holding = self._holdings[index]
        average = averages.get(holding.node.name if source == "node" else "")
        if average is None:
            return None
        observed_ms = min(average.observed_ms, holding.running.length)
        return _use(holding, source, average.mean, observed_ms, holding.gpus * average.mean * observed_ms)

    def _by_assignment(self, source: UtilizationSource, index: int) -> Use | None:
        if self._containers_of_pod and source == "pod" and (use := self._use_by_containers(index)) is not None:
            return use
        devices = self._assignments.devices_of.get(index)
        if devices and self._is_shared(index, devices) == (source != "pod"):
            if source == "pod":
                return self._exclusive_use(index, devices)
            if source == "shared" or any(self._process_use(device).shares for device in devices):
                return self._use_of_shared(index, devices, source)
        return None

    def _exclusive_use(self, index: int, devices: Sequence[DeviceHour]) -> Use | None:
        """Return the use of the pod's exclusive devices; an expected device without series is unmeasured."""
        holding = self._holdings[index]
        expected = devices_expected(holding)
        if len(devices) == expected == 1 and devices[0].is_continuous and holding.running.length == self._window.length:
            (device,) = devices  # nearly all pods
            time = 0 if device.is_contradicted else overlap_length(device.observed_times, holding.running)
            if time:
                gpus, mean = gpus_of_device(holding, device), device.mean
                used_gpu_ms = Fraction(mean.numerator * gpus.numerator * time, mean.denominator * gpus.denominator)
                return Use("pod", mean, time, min(used_gpu_ms, holding.gpu_ms))
            return None
        used, observed = ZERO, 0
        effective = ZERO
        for device in devices:
            if device.is_contradicted:
                continue
            # More devices than units were held in succession, so each counts only while it had the pod's label.
            pods = (
                frozenset(labeled_pods_of_holding(holding, device))
                if len(devices) > expected
                else self._labeled_pods_except_others(index, device)
            )
            use = device.use_during(holding.running, pods=pods)
            time = self._observed_ms(holding, use.observed_ms, device, is_whole=len(devices) <= expected)
            mean = use.used_ms / use.observed_ms if use.observed_ms else ZERO
            used += mean * time
            observed += time
            effective += mean * time * gpus_of_device(holding, device)
        observed_ms = min(Fraction(observed, expected), Fraction(holding.running.length))
        if not observed_ms and holding.running.length:
            return None  # the devices were not observed while the pod ran, so the next source is used
        return _use(holding, "pod", used / observed if observed else None, observed_ms, effective)

    def _use_by_containers(self, index: int) -> Use | None:
        """Return a fraction's use by its containers, up to what it held; None if they have no samples of its time."""
        holding = self._holdings[index]
        containers = self._containers_of_pod.get((holding.pod.namespace, holding.pod.pod), ())
        if not containers or not is_shared_resource(holding):
            return None
        used, observed = ZERO, 0
        for container in containers:
            use = container.use_during(holding.running)
            time = self._observed_ms(holding, use.observed_ms, container, is_whole=True)
            mean = use.used_ms / use.observed_ms if use.observed_ms else ZERO
            used += mean * time * gpus_of_device(holding, container)
            observed += time
        observed_ms = min(Fraction(observed, holding.units), Fraction(holding.running.length))
        if not observed_ms and holding.running.length:
            return None
        allocated = observed_ms * holding.gpus
        credited = min(used, allocated)
        utilization = credited / allocated if allocated else None
        return _use(holding, "pod", utilization, observed_ms, credited, max(ZERO, used - allocated))

    def _use_of_shared(self, index: int, devices: Sequence[DeviceHour], source: UtilizationSource) -> Use | None:
        """Return the use of a pod's parts of shared devices, up to what it held.

        Args:
            index: of the holding.
            devices: those of which it has replicas.
            source: `process` or `shared`.
        """
        holding = self._holdings[index]
        used, observed, allocated = ZERO, 0, ZERO
        credited, beyond_allocation = ZERO, ZERO
        for device in devices:
            if device.is_contradicted:
                continue
            use = self._shared_use(index, device, source)
            device_observed_ms = self._observed_ms(holding, use.observed_ms, device, is_whole=use.is_whole)
            mean = use.device_ms / use.observed_ms if use.observed_ms else ZERO
            used += mean * device_observed_ms
            observed += device_observed_ms
            part = use.part_ms * gpus_of_device(holding, device)
            if use.observed_ms:
                part = part * device_observed_ms / use.observed_ms
            # The part is capped at what was allocated in the observed time, because other pods may leave a device idle.
            allocated_then = device_observed_ms * holding.gpus / len(devices)
            allocated += allocated_then
            credited += min(part, allocated_then)
            beyond_allocation += max(ZERO, part - allocated_then)
            if use.is_split_by_replicas:
                source = "shared"  # of a line with several sources, the least precise is recorded
        observed_ms = min(Fraction(observed, len(devices)), Fraction(holding.running.length))
        if not observed_ms and holding.running.length:
            return None
        if source == "process":
            utilization = credited / allocated if allocated else None
        else:
            utilization = used / observed if observed else None
        return _use(holding, source, utilization, observed_ms, credited, beyond_allocation)

    def _shared_use(self, index: int, device: DeviceHour, source: UtilizationSource) -> _SharedUse:
        """Return a pod's part of a device's use.

        With source `process`, it is split by replicas while the pod has no value, if the settings allow that.
        """
        holding = self._holdings[index]
        use = _SharedUse()
        by_processes: list[IntervalMs] = []
        if source == "process":
            by_processes = self._add_use_by_processes(index, device, use)
            if use.observed_ms and not self._has_gap(holding, by_processes, device):
                whole = device.use_during(holding.running)
                return _SharedUse(use.part_ms, whole.used_ms, whole.observed_ms, is_whole=True)
            if not self._prefers_processes:
                return use
        rest = [time for piece in self._attributable_times(index, device) for time in gaps(by_processes, piece)]
        for time in rest:
            observed = device.use_during(time)
            use.device_ms += observed.used_ms
            use.observed_ms += observed.observed_ms
            use.part_ms += self._part_by_replicas(index, device, time)
            use.is_split_by_replicas |= observed.observed_ms > 0
        use.is_whole = sum(time.length for time in (*by_processes, *rest)) == holding.running.length
        return use

    def _add_use_by_processes(self, index: int, device: DeviceHour, use: _SharedUse) -> list[IntervalMs]:
        """Add what a pod's processes used, and return the times in which they have values."""
        holding = self._holdings[index]
        times: list[IntervalMs] = []
        for shares in self._process_use(device).shares:
            if holding.pod.uid in shares.by_uid:
                for time in shares.times:
                    observed = device.use_during(time.overlap(holding.running))
                    use.device_ms += observed.used_ms
                    use.observed_ms += observed.observed_ms
                    use.part_ms += observed.used_ms * shares.by_uid[holding.pod.uid]
                    times.append(time.overlap(holding.running))
        return union(times)

    @staticmethod
    def _has_gap(holding: Holding, by_processes: Sequence[IntervalMs], device: DeviceHour) -> bool:
        """Whether a pod has no value while its device was observed, for longer than late or lost scrapes take."""
        missing = [device.use_during(time).observed_ms for time in gaps(by_processes, holding.observed_running)]
        return 2 * max(missing, default=0) > 3 * device.interval or sum(missing) > 3 * device.interval

    def _process_use(self, device: DeviceHour) -> ProcessUse:
        use = self._process_use_of.get(device.key)
        if use is None:
            values = self._process_values.get(device.key)
            holders = (self._holdings[index] for index in self._assignments.holders_of[device.key])
            use = ProcessUse() if values is None else process_use(values, device, holders)
            self._process_use_of[device.key] = use
        return use

    def _part_by_replicas(self, index: int, device: DeviceHour, time: IntervalMs) -> Fraction:
        """Return a pod's part of a shared device's use × time, summed over times in which the same pods share it.

        Where processes of other pods have values, only the use that remains is split, among the pods without values.
        """
        sharing = self._sharing(device)
        total = ZERO
        for shared in overlapping(sharing.times, time, lambda shared: shared.interval):
            overlap = shared.interval.overlap(time)
            rest = [overlap]
            for shares in self._process_use(device).shares if self._prefers_processes else ():
                pieces = [taken.overlap(overlap) for taken in shares.times if taken.overlap(overlap).length]
                if pieces:
                    rest = [part for uncut in rest for part in gaps(pieces, uncut)]
                    left = 1 - sum(shares.by_uid.values(), ZERO)
                    left_ms = left * sum((device.use_during(piece).used_ms for piece in pieces), ZERO)
                    total += (
                        left_ms
                        * sharing.replicas[index]
                        / self._replicas_without_values(index, device, overlap.start, shares)
                    )
            for piece in rest:
                used_ms = shared.used_ms if piece == shared.interval else device.use_during(piece).used_ms
                total += used_ms * sharing.replicas[index] / shared.replicas
        return total

    def _replicas_without_values(self, index: int, device: DeviceHour, time: int, shares: ProcessShares) -> Fraction:
        """Return the replicas of a device that this holding, and all others without values of processes, have."""
        return sum(
            (
                replicas
                for other, replicas in self._sharing(device).replicas.items()
                if other == index
                or (self._holdings[other].running.contains(time) and self._holdings[other].pod.uid not in shares.by_uid)
            ),
            ZERO,
        )

    def _sharing(self, device: DeviceHour) -> _Sharing:
        """Return who shares a device, computed once per device because thousands of pods may share it."""
        sharing = self._sharing_of.get(device.key)
        if sharing is not None:
            return sharing
        replicas_of: dict[int, Fraction] = {}
        changes: dict[int, Fraction] = {}
        for index in self._assignments.holders_of[device.key]:
            holder = self._holdings[index]
            # Fractions of different sizes share a device; replicas of one device have the same size.
            replicas = replicas_held(holder, device, len(self._assignments.devices_of[index])) * (
                holder.share.gpus_per_unit
            )
            replicas_of[index] = replicas
            if not holder.running.length:  # its GPUs were taken back before it ran
                continue
            changes[holder.running.start] = changes.get(holder.running.start, ZERO) + replicas
            changes[holder.running.end] = changes.get(holder.running.end, ZERO) - replicas
        times: list[_SharedTime] = []
        total_replicas = ZERO
        for start, end in pairwise(sorted(changes)):
            total_replicas += changes[start]
            times.append(
                _SharedTime(IntervalMs(start, end), total_replicas, device.use_during(IntervalMs(start, end)).used_ms)
            )
        self._sharing_of[device.key] = _Sharing(replicas_of, times)
        return self._sharing_of[device.key]

    def _attributable_times(self, index: int, device: DeviceHour) -> list[IntervalMs]:
        """Return the time in which all pods that share a device are known.

        While a pod without assigned devices shares GPUs of the node, use cannot be attributed.
        """
        holding = self._holdings[index]
        unlabeled = self._unlabeled.get(holding.node.name, ())
        unlabeled_times = union(
            other.running.overlap(holding.running) for other in unlabeled if other.resource == holding.resource
        )
        return gaps(unlabeled_times, holding.running)

    def _is_shared(self, index: int, devices: Sequence[DeviceHour]) -> bool:
        """Whether other pods may hold a device at the same time; holding it in succession is not sharing."""
        holding = self._holdings[index]
        # Only devices of shared resources have several replicas; the first condition saves the search for others.
        if is_shared_resource(holding) and any(replicas_per_device(holding, device) > 1 for device in devices):
            return True
        return any(
            len(self._assignments.holders_of[device.key]) > 1 and index in self._holders(device).simultaneous
            for device in devices
        )

    def _labeled_pods_except_others(self, index: int, device: DeviceHour) -> frozenset[LabeledPod] | None:
        """Return all labeled pods except others that held the device before or after; None for all."""
        if len(self._assignments.holders_of[device.key]) == 1:
            return None
        return self._holders(device).other_labels.union(labeled_pods_of_holding(self._holdings[index], device))

    def _holders(self, device: DeviceHour) -> _Holders:
        """Return how pods hold a device, computed once per device because a hundred pods may take turns on it."""
        holders = self._holders_by_device.get(device.key)
        if holders is None:
            indexes = self._assignments.holders_of[device.key]
            times = {index: self._holdings[index].observed_running for index in indexes}
            labels = {label for index in indexes for label in labeled_pods_of_holding(self._holdings[index], device)}
            holders = _Holders(
                overlapping_keys(times, 2 * device.interval), (device.labeled_pods | {UNLABELED}) - labels
            )
            self._holders_by_device[device.key] = holders
        return holders

    def _observed_ms(self, holding: Holding, observed_ms: int, device: DeviceHour, *, is_whole: bool) -> int:
        """Return for how long a holding's use was observed; less than an interval at its start or end is no gap."""
        running = holding.running
        edges = (running.start > self._window.start) + (running.end < self._window.end)
        missing_ms = running.length - observed_ms
        # The exporter's next scrape may come up to an interval after a start or end. One may also be lost or late.
        is_complete = is_whole and observed_ms and 20 * missing_ms <= (21 * edges if edges else 30) * device.interval
        return running.length if is_complete else observed_ms

    def _assigned_devices(self, uses: Iterable[Use]) -> set[DeviceKey]:
        """Return the devices whose use was attributed to their holders."""
        indexes = (index for index, use in enumerate(uses) if use.source in MEASURED_SOURCES)
        return {device.key for index in indexes for device in self._assignments.devices_of.get(index, ())}

    def _averages(self, source: UtilizationSource, assigned: set[DeviceKey]) -> dict[str, _AverageUse]:
        unassigned: dict[str, list[DeviceHour]] = {}
        for device in self._devices:
            if device.key not in assigned and device.observed_times and not device.is_contradicted:
                unassigned.setdefault(device.node if source == "node" else "", []).append(device)
        return {
            name: _AverageUse(
                sum((device.mean for device in devices), ZERO) / len(devices),
                max(overlap_length(device.observed_times, self._window) for device in devices),
            )
            for name, devices in unassigned.items()
        }


def _use(
    holding: Holding,
    source: UtilizationSource,
    utilization: Fraction | None,
    observed_ms: Fraction | int,
    used_gpu_ms: Fraction,
    beyond_allocation_gpu_ms: Fraction = ZERO,
) -> Use:
    """Return a measured use; what is used beyond what is held does not count as effective."""
    effective_gpu_ms = min(used_gpu_ms, holding.gpu_ms)
    return Use(source, utilization, observed_ms, effective_gpu_ms, beyond_allocation_gpu_ms)


def unlabeled_pods_notes(pods: Mapping[str, Mapping[str, int]]) -> list[str]:
    """Return a note for each vendor with pods whose use is unknown, because no device is labeled with a pod.

    Args:
        pods: by vendor and node, as `UtilizationResolver.pods_without_labels` returns them.
    """
    notes = []
    for vendor, by_node in sorted(pods.items()):
        accelerator = accelerator_of_vendor(vendor)
        exporter, change = "dcgm-exporter", "set DCGM_EXPORTER_KUBERNETES in it"
        if accelerator is not None:
            exporter = accelerator.exporter
            change = accelerator.pod_labels_from or "it names none; a pod that holds all devices of a node is measured"
        if accelerator is not None and accelerator.use_of_claims:
            change += f". Of devices of claims: {accelerator.use_of_claims}"
        notes.append(
            f"the use of {sum(by_node.values())} pods on {len(by_node)} nodes (the first is {min(by_node)!r}) is "
            f"unmeasured, because no series of {exporter} names a pod there ({change})"
        )
    return notes


# The use of GPUs by containers, which the monitors of fraction schedulers measure by process.
#
# Source: HAMi-core, src/multiprocess/multiprocess_utilization_watcher.c: it reads use only in containers whose
# cores are limited. The value of other containers is always 0, and does not count.


def devices_of_containers(
    series: Iterable[DeviceSeries], scrapes: Mapping[ScrapeTarget, Scrapes], window: IntervalMs
) -> dict[PodName, list[DeviceHour]]:
    """Return the use of each GPU by each container, by namespace and name of the pod."""
    copies: dict[tuple[str, str, str, str, str], list[DeviceSeries]] = {}
    for use in series:
        copies.setdefault((use.namespace, use.pod, use.slot, use.node, use.uuid), []).append(use)
    if not copies:
        return {}
    times = continuous_times_of(scrapes, window)
    by_pod: dict[PodName, list[DeviceHour]] = {}
    for (namespace, pod, _, node, uuid), device_copies in sorted(copies.items()):
        device = DeviceHour((node, uuid, ""), device_copies, scrapes, window, times)
        by_pod.setdefault((namespace, pod), []).append(device)
    return by_pod


def pods_measured_by_container(
    holdings: Sequence[Holding], containers: Mapping[PodName, list[DeviceHour]], gpus_of_pod: GpusOfPod
) -> dict[PodName, list[DeviceHour]]:
    """Return the containers of pods that are measured by them: of GPUs on which every pod is.

    If a pod of a GPU is not, the GPU's use is divided among all of them. Otherwise the use of some would count twice.
    """
    if not containers:
        return {}
    measured: set[PodName] = set()
    gpus_with_others: set[str] = set()
    for holding in holdings:
        if holding.share.source != FRACTION:
            continue
        name = holding.pod.namespace, holding.pod.pod
        if name in containers and _limits_cores(holding) and len(containers[name]) <= holding.units:
            measured.add(name)
        else:
            gpus_with_others |= uuids_of_fractions(holding, gpus_of_pod)
    return {
        name: containers[name]
        for name in measured
        if not any(container.key[1] in gpus_with_others for container in containers[name])
    }


def _limits_cores(holding: Holding) -> bool:
    """Whether every container with a vGPU requests cores."""
    with_gpus = {request.container for request in holding.pod.requests if request.resource == holding.resource}
    with_cores = {
        request.container for request in holding.pod.requests if request.resource in CORE_RESOURCES and request.units
    }
    return with_gpus <= with_cores
