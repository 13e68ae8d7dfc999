"""GPU nodes over an hour: when they existed, and their facts at each time."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction

from msgspec import Struct

from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.accelerators import AMD, NVIDIA, accelerator_of_vendor, vendor_of
from gpucost.core.metering.gpu_shares import GPU, MIG_PREFIX, GpuNode, is_neuron
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE, zone_of_provider_id
from gpucost.core.metering.kubernetes_labels import (
    AMD_PARTITION_LABEL,
    AMD_PRODUCT_LABEL,
    CAPACITY_TYPE_LABEL,
    GPU_COUNT_LABEL,
    GPU_PRODUCT_LABEL,
    GPU_REPLICAS_LABEL,
    GPU_SHARING_LABEL,
    INSTANCE_TYPE_LABEL,
    NODE_POOL_LABEL,
    ZONE_ID_LABEL,
    ZONE_LABEL,
    parse_whole_number,
)
from gpucost.core.metering.observations import DeviceSeries, NodeObservation

_MIN_SHARED_UNITS = 2
MAX_GPUS_OF_NODE = 16
"""No EC2 instance has more GPUs."""
CAPACITY_TYPES = ("on-demand", "spot", "reserved", "capacity-block")
"""The capacity types of nodes of EKS and Karpenter. Labels of other tools may have others."""
_NO_UNITS: Mapping[str, Fraction] = {}
_CAPACITY_TYPES = {"spot": "spot", "ec2spot": "spot", "on-demand": "on-demand", "ondemand": "on-demand"}


class NodeLifecycle(Struct, frozen=True):
    """A node in one hour: when it existed, and its states while it advertised GPUs."""

    node: GpuNode
    """Its facts over the hour: the latest labels, and what it advertised last."""
    present: IntervalMs
    states: tuple[tuple[IntervalMs, GpuNode], ...]
    """The times in which it advertised GPUs, with its facts then; disjoint, in order."""

    def state_during(self, time: IntervalMs) -> GpuNode:
        """Return the node's state for most of some time; `node` if it advertised no GPUs then."""
        longest = max(self.states, key=lambda state: state[0].overlap(time).length, default=None)
        return longest[1] if longest is not None and longest[0].overlap(time).length else self.node


def describe_node(
    observed: NodeObservation,
    labels: Mapping[str, str],
    devices: Sequence[DeviceSeries],
    capacity: Mapping[str, Decimal],
    allocatable: Mapping[str, Decimal],
    gpus_by_instance_type: Mapping[str, int | Fraction] = GPUS_OF_INSTANCE,
    gpus_per_unit: Mapping[str, Fraction] = _NO_UNITS,
    *,
    has_vgpus: bool = False,
    holders: Callable[[str], Mapping[tuple[str, str], Decimal]] | None = None,
) -> GpuNode:
    """Derive a node's facts at one time from its labels, capacity and devices.

    The number of physical GPUs is that of the instance type in the catalog. Otherwise it is the number of DCGM UUIDs
    at one time. Otherwise it is the label `nvidia.com/gpu.count`, unless slices are advertised as GPUs, which it would
    count. Exporters sometimes omit idle GPUs. So UUIDs count only if GPUs are sliced or shared, or capacity is unknown.
    Without labels, GPUs are shared if the exporter reports their replicas, if there are more than a node can have, or
    if the exporter also reports idle GPUs, or fewer than pods hold, and these are a fraction of the units.

    Args:
        observed: the node.
        labels: its labels.
        devices: its devices.
        capacity: its units by resource.
        allocatable: its units that pods may have.
        gpus_by_instance_type: GPUs by instance type.
        gpus_per_unit: GPUs per unit of some resources, from the settings.
        has_vgpus: whether a scheduler divides its GPUs by cores and memory.
        holders: returns the pods on a node, by namespace and name, with the units that each requests all hour; None
            where they are unknown, or the settings say how many units a GPU has.
    """
    # What the labels say, or EC2 of nodes without labels.
    product = GPU_PRODUCT_LABEL.value_in(labels)
    is_shared = product.endswith("-SHARED")
    model, _, profile = product.removesuffix("-SHARED").partition("-MIG-")
    profile = "" if profile == "INVALID" else profile
    unlabeled = observed.unlabeled
    labeled_type = INSTANCE_TYPE_LABEL.value_in(labels)
    instance_type = labeled_type or unlabeled.instance_type
    replicas = GPU_REPLICAS_LABEL.value_in(labels)
    sharing = GPU_SHARING_LABEL.value_in(labels) or ("time-slicing" if is_shared else "")
    gpu_count = GPU_COUNT_LABEL.value_in(labels)

    # GPUs are sliced or shared if labels, devices or resources say so. Then the devices are counted.
    is_sliced = (
        has_vgpus
        or bool(profile)
        or replicas not in {"", "0", "1"}
        or any(device.mig_instance or device.slot for device in devices)
    )
    is_sliced = is_sliced or any(name.startswith(MIG_PREFIX) for name in capacity)
    is_sliced = is_sliced or capacity.get(GPU, 0) > MAX_GPUS_OF_NODE
    uuid_count = max_simultaneous_devices(devices) if is_sliced or not capacity else 0
    labeled_gpus = 0 if profile else parse_whole_number(gpu_count)

    # If nothing describes the GPUs, the devices do, compared with the units that pods hold.
    reported = None
    is_described = uuid_count or labeled_gpus or product or replicas or gpus_by_instance_type.get(instance_type)
    if not is_described and holders is not None:
        reported, is_shared_by_device = _reported_gpus(observed.name, devices, capacity, allocatable, holders)
        uuid_count = reported if is_shared_by_device and reported else 0

    neuron_devices, _ = NEURON_OF_INSTANCE.get(instance_type, (0, 0))
    zone, zone_id = zone_of_provider_id(observed.provider_id)
    return GpuNode(
        name=observed.name,
        provider_id=observed.provider_id,
        instance_type=instance_type,
        instance_type_source="" if labeled_type else unlabeled.instance_type_source,
        zone=ZONE_LABEL.value_in(labels) or zone or unlabeled.zone,
        zone_id=ZONE_ID_LABEL.value_in(labels) or zone_id,
        capacity_type=capacity_type(labels) or unlabeled.capacity_type,
        node_pool=NODE_POOL_LABEL.value_in(labels) or unlabeled.node_pool,
        gpu_model=model or _gpu_model(labels, devices, capacity),
        mig_profile=profile,
        partition=_partition(labels, devices, capacity),
        replicas=1 if sharing == "none" else max(1, parse_whole_number(replicas)),
        physical_gpus=gpus_by_instance_type.get(instance_type)
        or neuron_devices
        or uuid_count
        or labeled_gpus
        or _neuron_devices(capacity),
        capacity=capacity,
        allocatable={**capacity, **allocatable},
        labels=labels,
        mig_layouts=_mig_layouts(devices),
        gpus_per_unit=gpus_per_unit,
        reported_gpus=reported,
    )


def _reported_gpus(
    node: str,
    devices: Sequence[DeviceSeries],
    capacity: Mapping[str, Decimal],
    allocatable: Mapping[str, Decimal],
    holders_of: Callable[[str], Mapping[tuple[str, str], Decimal]],
) -> tuple[int | None, bool]:
    """Return how many GPUs exporters report of a node that advertises more units, and whether these are shared.

    An exporter may hide idle GPUs, in virtual-GPU mode before 4.5.3. One that reports an idle GPU hides none; and it
    never hides those that pods hold. A GPU that broke lowers what is allocatable.

    Returns:
        None if no fewer GPUs are reported than units advertised.
    """
    units = capacity.get(GPU, Decimal(0))
    if units < _MIN_SHARED_UNITS or len({device.uuid for device in devices}) >= units or capacity.keys() != {GPU}:
        return None, False  # nearly always
    of_node = [device for device in devices if device.vendor == NVIDIA]
    holders, reported = holders_of(node), max_simultaneous_devices(of_node)
    has_idle = any((device.namespace, device.pod) not in holders for device in of_node)
    is_complete = reported > 0 and (has_idle or sum(holders.values()) > reported)
    is_healthy = allocatable.get(GPU, units) == units
    return reported, is_complete and is_healthy and units % reported == 0


def unlabeled_gpus_notes(lifecycles: Iterable[NodeLifecycle]) -> list[str]:
    """Return notes on nodes of which no label says how many GPUs they have, and whether these are shared."""
    nodes = {
        lifecycle.node.name: lifecycle.node for lifecycle in lifecycles if lifecycle.node.reported_gpus is not None
    }
    shared = sorted(name for name, node in nodes.items() if node.physical_gpus)
    others = sorted(nodes.keys() - shared)
    return [
        f"{len(names)} nodes advertise more GPUs than exporters report, and no label of GPU feature discovery says why "
        f"(the first is {names[0]!r}: {nodes[names[0]].capacity[GPU]} and {nodes[names[0]].reported_gpus}). "
        f"{statement}. Export the labels nvidia.com/gpu.count and nvidia.com/gpu.replicas, or set "
        "slices_per_gpu of the cluster in the settings"
        for names, statement in (
            (shared, "They count as shared, as the exporter reports idle GPUs, too, or fewer than pods hold"),
            (others, "They count as whole GPUs, but may be shared: what their pods hold is uncertain"),
        )
        if names
    ]


def _gpu_model(labels: Mapping[str, str], devices: Sequence[DeviceSeries], capacity: Mapping[str, Decimal]) -> str:
    """Return the GPU model of a node without the label of GPU feature discovery."""
    reported = next((device.model for device in devices if device.model), "")
    labeled = AMD_PRODUCT_LABEL.value_in(labels)
    if labeled or reported:
        return labeled.replace("_", "-") or re.sub(r"\s+", "-", reported)
    accelerators = (accelerator_of_vendor(vendor_of(name)) for name in capacity)
    return next((accelerator.model for accelerator in accelerators if accelerator is not None), "")


def _partition(labels: Mapping[str, str], devices: Iterable[DeviceSeries], capacity: Mapping[str, Decimal]) -> str:
    """Return how all AMD GPUs of a node are partitioned; "" if they are whole, or differ."""
    if capacity and all(vendor_of(name) != AMD.vendor for name in capacity):
        return ""
    profiles = {device.mig_profile for device in devices if device.vendor == AMD.vendor}
    if profiles:
        return profiles.pop() if len(profiles) == 1 else ""
    profile = AMD_PARTITION_LABEL.value_in(labels)
    return "" if profile.startswith("spx") else profile


def _mig_layouts(devices: Iterable[DeviceSeries]) -> dict[str, list[str]]:
    """Return the resources of MIG devices, by UUID of their GPU."""
    profiles = {
        (device.uuid, device.mig_instance): device.mig_profile
        for device in devices
        if device.mig_instance and device.mig_profile and device.vendor == NVIDIA
    }
    layouts: dict[str, list[str]] = {}
    for (uuid, _), profile in sorted(profiles.items()):
        layouts.setdefault(uuid, []).append(MIG_PREFIX + re.sub(r"[^a-z0-9]+", "_", profile.lower()))
    return layouts


def max_simultaneous_devices(devices: Iterable[DeviceSeries]) -> int:
    """Return the most distinct UUIDs at one time, so that a GPU that replaced another is not counted twice."""
    present_all_hour: set[str] = set()
    times: dict[str, tuple[int, int]] = {}
    for device in devices:
        if not device.uuid:
            continue
        if device.samples is None:
            present_all_hour.add(device.uuid)
        elif device.samples:
            first, last = device.samples[0][0], device.samples[-1][0]
            earlier = times.get(device.uuid, (first, last))
            times[device.uuid] = (min(first, earlier[0]), max(last, earlier[1]))
    time_ranges = [span for uuid, span in times.items() if uuid not in present_all_hour]
    at_once = (sum(start <= time <= end for start, end in time_ranges) for time, _ in time_ranges)
    return len(present_all_hour) + max(at_once, default=0)


def is_gpu_node(lifecycle: NodeLifecycle) -> bool:
    """Whether a node has GPUs, even if it does not advertise them: a node that boots costs money, too."""
    return bool(lifecycle.node.physical_gpus) or bool(lifecycle.states)


def physical_or_advertised_gpus(node: GpuNode, slices_per_gpu: int | None) -> Fraction:
    """Return a node's physical GPUs; without other information, the GPUs that it advertises."""
    if node.physical_gpus is not None:
        return Fraction(node.physical_gpus)
    return node.gpus_of_units(node.capacity, slices_per_gpu)


def _neuron_devices(capacity: Mapping[str, Decimal]) -> int | None:
    units = [int(count) for name, count in capacity.items() if is_neuron(name)]
    # Devices and cores are the same hardware, so there are at most as many devices as the smaller number.
    return min(units) if units else None


def capacity_type(labels: Mapping[str, str]) -> str:
    """Return a node's capacity type in one spelling, mostly one of `CAPACITY_TYPES`; "" without a label."""
    normalized = CAPACITY_TYPE_LABEL.value_in(labels).lower().replace("_", "-")
    return _CAPACITY_TYPES.get(normalized, normalized)
