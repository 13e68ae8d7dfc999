"""The instance type, zone and capacity type of nodes whose labels no metric has.

A stock kube-prometheus-stack exports no labels of nodes. Karpenter, neuron-monitor and EC2 report the instance type.
Otherwise it is inferred from the node's hardware, if exactly one type of the catalog has it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from typing import NamedTuple

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.metering.accelerators import ACCELERATORS, NVIDIA, vendor_of
from gpucost.core.metering.gpu_models import memory_gb
from gpucost.core.metering.gpu_shares import GPU, MIG_PREFIX, NEURON_DEVICES
from gpucost.core.metering.instance_types import AWS_PREFIX, CATALOG, CATALOG_DAY, SAGEMAKER_PREFIX, InstanceType
from gpucost.core.metering.kubernetes_labels import CAPACITY_TYPE_LABEL, GPU_PRODUCT_LABEL, INSTANCE_TYPE_LABEL
from gpucost.core.metering.nodes import max_simultaneous_devices
from gpucost.core.metering.observations import DeviceSeries, NodeObservation, UnlabeledFacts

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
