"""GPU nodes over an hour: when they existed, their facts at each time, and those that no label says."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.accelerators import ACCELERATORS, AMD, NVIDIA, accelerator_of_vendor, vendor_of
from gpucost.core.metering.gpu_models import memory_gb
from gpucost.core.metering.gpu_shares import GPU, MIG_PREFIX, NEURON_DEVICES, GpuNode, is_neuron
from gpucost.core.metering.instance_types import (
    AWS_PREFIX,
    CATALOG,
    CATALOG_DAY,
    GPUS_OF_INSTANCE,
    NEURON_OF_INSTANCE,
    SAGEMAKER_PREFIX,
    InstanceType,
    zone_of_provider_id,
)
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
from gpucost.core.metering.observations import DeviceSeries, NodeObservation, UnlabeledFacts

_MIN_SHARED_UNITS = 2
MAX_GPUS_OF_NODE = 16
"""No EC2 instance has more GPUs."""
CAPACITY_TYPES = ("on-demand", "spot", "reserved", "capacity-block")
"""The capacity types of nodes of EKS and Karpenter. Labels of other tools may have others."""
_NO_UNITS: Mapping[str, Fraction] = {}
_CAPACITY_TYPE_OF_SPELLING = {"spot": "spot", "ec2spot": "spot", "on-demand": "on-demand", "ondemand": "on-demand"}


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
    return _CAPACITY_TYPE_OF_SPELLING.get(normalized, normalized)


# The instance type, zone and capacity type of nodes whose labels no metric has.
#
# A stock kube-prometheus-stack exports no labels of nodes. Karpenter, neuron-monitor and EC2 report the instance type.
# Otherwise it is inferred from the node's hardware, if exactly one type of the catalog has it.

MIN_KUBELET_MEMORY, MAX_KUBELET_MEMORY = Decimal("0.85"), Decimal("1.01")
"""What a kubelet reports ÷ the memory of the instance type: the firmware and the kernel keep a few percent."""
MIN_GPU_MEMORY, MAX_GPU_MEMORY = Decimal("0.85"), Decimal("1.1")
"""The same for a GPU, of which the driver keeps a part; names of models round up."""
MIB = 1024 * 1024
MAX_NAMES = 3
"""Nodes that a note names."""
_MANUFACTURERS = {
    NVIDIA: "NVIDIA",
    **{accelerator.vendor: accelerator.manufacturer for accelerator in ACCELERATORS if accelerator.manufacturer},
}
EXPORT_THE_LABEL = (
    "Export the label node.kubernetes.io/instance-type with kube-state-metrics; gpucost doctor has its arguments"
)
SPOT_UNKNOWN = "no metric has its capacity type, so spot is priced as on-demand"


class ReportedNode(Struct, frozen=True):
    """What a controller or an exporter reports about a node."""

    source: str
    """`karpenter`, `neuron-monitor`, or `ec2`, whose API was asked."""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    node_pool: str = ""


class NodeHardware(Struct):
    """A node's size, as metrics other than its labels report it in the hour."""

    cpus: set[Decimal] = field(default_factory=set)
    """Several if the node was replaced by another size under its name."""
    memory_bytes: set[Decimal] = field(default_factory=set)
    gpu_memory_mib: Decimal | None = None
    """The memory of its smallest whole GPU, used and free."""
    reported: list[ReportedNode] = field(default_factory=list)

    @property
    def has_reported_gpus(self) -> bool:
        """Whether a type with accelerators is reported, as of a node that boots and advertises none yet."""
        return any(node.instance_type.removeprefix(SAGEMAKER_PREFIX) in CATALOG for node in self.reported)


class _Description(Struct, frozen=True):
    """The hardware of one node, as it is compared with the catalog."""

    manufacturer: str
    model: str
    devices: frozenset[int]
    hardware: NodeHardware

    def fits(self, instance_type: InstanceType) -> bool:
        """Whether an instance type has this hardware."""
        whole = instance_type.devices >= 1
        (cpus,) = self.hardware.cpus
        return (
            instance_type.manufacturer == self.manufacturer
            and instance_type.vcpus == cpus
            and _devices(instance_type) in self.devices
            and (not self.model or _is_model(self.model, instance_type.model))
            and _has_memory(self.hardware.memory_bytes, instance_type.memory_mib)
            and self._has_gpu_memory(instance_type, whole=whole)
        )

    def _has_gpu_memory(self, instance_type: InstanceType, *, whole: bool) -> bool:
        nominal, reported = instance_type.device_memory_mib, self.hardware.gpu_memory_mib
        if not nominal or self.manufacturer != "NVIDIA":
            return True
        of_model = memory_gb(self.model)
        if whole and of_model and not MIN_GPU_MEMORY <= Decimal(nominal) / (of_model * 1024) <= MAX_GPU_MEMORY:
            return False
        return reported is None or MIN_GPU_MEMORY <= reported / nominal <= MAX_GPU_MEMORY

    def text(self, counts: Iterable[int]) -> str:
        """The hardware with one of some counts of devices, as notes say it."""
        count = " or ".join(map(str, sorted(counts)))
        parts = [f"{count} × {self.model or self.manufacturer}", f"{next(iter(self.hardware.cpus))} CPUs"]
        if len(self.hardware.memory_bytes) == 1:
            (memory,) = self.hardware.memory_bytes
            parts.append(f"{memory / MIB / 1024:.0f} GiB")
        return f"{', '.join(parts[:-1])} and {parts[-1]}"


class _Note(NamedTuple):
    """A note about nodes, whose names stand between its parts."""

    before: str
    after: str


def describe_unlabeled_nodes(
    nodes: Sequence[NodeObservation],
    devices: Iterable[DeviceSeries],
    hardware: Mapping[str, NodeHardware],
    with_gpus: Iterable[str],
) -> tuple[tuple[NodeObservation, ...], list[str]]:
    """Return the nodes with what is known about those without labels, and notes about instance types.

    Args:
        nodes: all nodes.
        devices: of all nodes.
        hardware: by node.
        with_gpus: nodes on which pods hold GPUs.
    """
    on_node: dict[str, list[DeviceSeries]] = {}
    for device in devices:
        on_node.setdefault(device.node, []).append(device)
    gpu_nodes = {*with_gpus, *on_node}
    described: list[NodeObservation] = []
    names_by_note: dict[_Note, list[str]] = {}
    for node in nodes:
        of_node = hardware.get(node.name, NodeHardware())
        is_labeled = bool(INSTANCE_TYPE_LABEL.value_in(node.labels))
        if is_labeled or not (node.states or node.name in gpu_nodes or of_node.has_reported_gpus):
            described.append(node)
            continue
        facts, note = _facts(node, on_node.get(node.name, ()), of_node)
        described.append(replace(node, unlabeled=facts))
        if note is not None:
            names_by_note.setdefault(note, []).append(node.name)
    notes = [f"{note.before} {_names(names)} {note.after}" for note, names in sorted(names_by_note.items())]
    return tuple(described), notes


def _facts(
    node: NodeObservation, devices: Sequence[DeviceSeries], hardware: NodeHardware
) -> tuple[UnlabeledFacts, _Note | None]:
    """Return what is known about a node without labels, and a note about its instance type."""
    facts = _reported_facts(hardware)
    has_capacity_type = CAPACITY_TYPE_LABEL.value_in(node.labels) or facts.capacity_type
    as_on_demand = "" if has_capacity_type else f"; {SPOT_UNKNOWN}"
    if facts.instance_type:
        is_of_ec2 = facts.instance_type_source == "ec2"
        source = "EC2's API" if is_of_ec2 else f"the metrics of {facts.instance_type_source}"
        return facts, _Note(f"instance type {facts.instance_type} of", f"is from {source}{as_on_demand}")
    if not node.provider_id.startswith(AWS_PREFIX):
        return facts, None
    description, missing = _description(node, devices, hardware)
    if description is None:
        return facts, _unknown(missing)
    types = [name for name, instance_type in CATALOG.items() if description.fits(instance_type)]
    if "/sagemaker/" in node.provider_id:
        types = [f"{SAGEMAKER_PREFIX}{name}" for name in types]
    if not types:
        return facts, _unknown(f"no type in the catalog of {CATALOG_DAY} has {description.text(description.devices)}")
    hardware_text = description.text({_devices(CATALOG[name.removeprefix(SAGEMAKER_PREFIX)]) for name in types})
    if len(types) > 1:
        return facts, _unknown(f"{', '.join(types[:-1])} and {types[-1]} have {hardware_text}")
    facts = replace(facts, instance_type=types[0], instance_type_source="hardware")
    return facts, _Note(f"instance type {types[0]} of", f"is inferred from {hardware_text}{as_on_demand}")


def _reported_facts(hardware: NodeHardware) -> UnlabeledFacts:
    """Return what controllers and exporters report."""
    facts = UnlabeledFacts()
    for reported in hardware.reported:
        facts = UnlabeledFacts(
            instance_type=facts.instance_type or reported.instance_type,
            instance_type_source=facts.instance_type_source or (reported.source if reported.instance_type else ""),
            zone=facts.zone or reported.zone,
            capacity_type=facts.capacity_type or reported.capacity_type,
            node_pool=facts.node_pool or reported.node_pool,
        )
    return facts


def _unknown(reason: str) -> _Note:
    return _Note("the instance type of", f"is unknown: {reason}. {EXPORT_THE_LABEL}")


def _description(
    node: NodeObservation, devices: Sequence[DeviceSeries], hardware: NodeHardware
) -> tuple[_Description | None, str]:
    """Return a node's hardware; None, and what is missing, if it is not known."""
    if len(hardware.cpus) != 1:
        return None, (
            "its CPU capacity changed within the hour" if hardware.cpus else "kube_node_status_capacity has no CPUs"
        )
    capacity = node.states[-1].capacity if node.states else {}
    vendors = {vendor_of(name) for name in capacity} | {device.vendor for device in devices}
    manufacturers = {_MANUFACTURERS.get(vendor, "") for vendor in vendors}
    if len(manufacturers) != 1 or "" in manufacturers:
        return None, "no single vendor of EC2's accelerators is in its metrics"
    (manufacturer,) = manufacturers
    model = GPU_PRODUCT_LABEL.value_in(node.labels) or next((device.model for device in devices if device.model), "")
    if manufacturer == "NVIDIA" and not model:
        return None, "no exporter reports the model of its GPUs"
    if manufacturer == "AWS":
        counts = {int(capacity[name]) for name in NEURON_DEVICES if capacity.get(name)}
    else:
        counts = {max_simultaneous_devices(devices)}
        if not any(name.startswith(MIG_PREFIX) for name in capacity):
            counts |= {int(units) for name, units in capacity.items() if name == GPU or manufacturer != "NVIDIA"}
    counts.discard(0)
    if not counts:
        return None, "no metric says how many accelerators it has"
    return _Description(manufacturer, model, frozenset(counts), hardware), ""


def _devices(instance_type: InstanceType) -> int:
    """The devices that nodes of a type have; a part of a GPU is one."""
    return max(1, int(instance_type.devices))


@cache
def _is_model(reported: str, model: str) -> bool:
    """Whether an exporter's name of a GPU, such as `NVIDIA A100-SXM4-40GB`, is a model of the catalog (`A100`)."""
    words = set(re.findall(r"[a-z0-9]+", reported.lower()))
    return words.issuperset(re.findall(r"[a-z0-9]+", model.lower()))


def _has_memory(memory_bytes: set[Decimal], nominal_mib: int) -> bool:
    return all(MIN_KUBELET_MEMORY <= memory / MIB / nominal_mib <= MAX_KUBELET_MEMORY for memory in memory_bytes)


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:MAX_NAMES])
    return f"{shown} and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else shown
