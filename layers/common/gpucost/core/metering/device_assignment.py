"""Assigns devices to the pods that hold them, from the pod labels of GPU exporters."""

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from fractions import Fraction

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.accelerators import NEURON, NVIDIA, vendor_of
from gpucost.core.metering.device_use import DeviceHour, DeviceKey, LabeledPod
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
from gpucost.core.metering.usage import Holding

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
