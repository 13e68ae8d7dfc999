"""Which nodes slice or share their GPUs, and which share of a physical GPU a unit is."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

from gpucost.core.metering.accelerators import NVIDIA, vendor_of
from gpucost.core.metering.gpu_shares import SHARED_SUFFIX, GpuNode
from gpucost.core.metering.kubernetes_labels import GPU_PRODUCT_LABEL, GPU_REPLICAS_LABEL, GPU_SHARING_LABEL
from gpucost.core.metering.nodes import describe_node
from gpucost.core.metering.observations import DeviceSeries, NodeObservation
from gpucost.settings import ClusterSettings
from gpucost_cli.doctor.facts import GPU, MIG, Facts, GpuHolder, ObservedDevice, ObservedNode


def is_sliced(facts: Facts, node: ObservedNode) -> bool:
    """Whether a node's GPUs are divided by MIG."""
    by_name = any(name.startswith(MIG) for name in node.capacity)
    return by_name or "-MIG-" in node.label(GPU_PRODUCT_LABEL) or any(device.mig_id for device in _devices(facts, node))


def is_shared(facts: Facts, node: ObservedNode) -> bool:
    """Whether several pods share a device, by time-slicing or MPS."""
    if any(name.endswith(SHARED_SUFFIX) for name in node.capacity) or node.label(GPU_PRODUCT_LABEL).endswith("-SHARED"):
        return True
    replicas, strategy = node.label(GPU_REPLICAS_LABEL), node.label(GPU_SHARING_LABEL)
    if replicas not in {"", "0", "1"} and strategy != "none":
        return True
    if (
        strategy == "none"
        or "-MIG-" in node.label(GPU_PRODUCT_LABEL)
        or any(name.startswith(MIG) for name in node.capacity)
    ):
        return False
    # No label says so: if the node has more units than GPUs or slices, several units share one.
    devices = max(len({device.key for device in _devices(facts, node)}), device_count(facts, node) or 0)
    return 0 < devices < node.capacity.get(GPU, 0)


def is_divided_by_processes(facts: Facts, device: ObservedDevice) -> bool | None:
    """Whether what pods' processes use accounts for a shared GPU's use, as in metering; None without such values."""
    sums = facts.process_values.get(device.uuid, {})
    return 2 * sums["pods"] >= sums["device"] if sums.keys() == {"pods", "device"} else None


def device_count(facts: Facts, node: ObservedNode) -> int | None:
    """The number of a node's GPU devices, computed as in metering. A device may be a fraction of a GPU."""
    return _as_metering_describes(facts, node).devices


def holds_whole_node(facts: Facts, holder: GpuHolder) -> bool:
    """Whether a pod holds all GPUs of a node, and none of the node's devices is labeled with a pod."""
    node = facts.nodes.get(holder.node)
    if node is None or is_sliced(facts, node) or is_shared(facts, node):
        return False
    others = [other for other in facts.holders if other.node == holder.node and other.name != holder.name]
    devices = {device.key for device in _devices(facts, node)}
    has_labels = any(facts.is_labeled_with_holder(device) for device in _devices(facts, node))
    count = device_count(facts, node)
    if count is None and vendor_of(holder.resource) != NVIDIA:
        count = node.capacity.get(holder.resource)
    return not others and not has_labels and holder.units == count == len(devices)


def gpu_share(facts: Facts, holder: GpuHolder, cluster: ClusterSettings) -> Fraction:
    """Physical GPUs, or devices of other vendors, per unit that a pod holds, computed as in metering."""
    node = facts.nodes.get(holder.node, ObservedNode(holder.node))
    if gpus_of_unit := cluster.gpus_per_unit().get(holder.resource):
        return gpus_of_unit
    described = _as_metering_describes(facts, node, slices_per_gpu=cluster.slices_per_gpu)
    gpus = [
        device.uuid
        for device in _devices(facts, node)
        if device.workload == holder.name and device.uuid in described.mig_layouts
    ]
    if gpus and holder.resource.startswith(MIG):
        return described.mig_share_on(holder.resource, gpus).gpus_per_unit
    return described.share(holder.resource, cluster.slices_per_gpu).gpus_per_unit


def _as_metering_describes(facts: Facts, node: ObservedNode, *, slices_per_gpu: int | None = None) -> GpuNode:
    """The node, described by the function of metering."""

    def holders(name: str) -> dict[tuple[str, str], Decimal]:
        units: dict[tuple[str, str], Decimal] = {}
        for holder in facts.gpu_holders:
            if holder.node == name:
                units[holder.name] = units.get(holder.name, Decimal(0)) + holder.units
        return units

    observation = NodeObservation(node.name, "", None, node.labels, ())
    series = [_series(node, device) for device in _devices(facts, node)]
    capacity = {name: Decimal(units) for name, units in node.capacity.items() if units}
    return describe_node(observation, node.labels, series, capacity, {}, holders=None if slices_per_gpu else holders)


def _series(node: ObservedNode, device: ObservedDevice) -> DeviceSeries:
    namespace, pod = device.workload
    return DeviceSeries(
        node=node.name,
        uuid=device.uuid,
        mig_instance=device.mig_id,
        mig_profile=device.profile,
        model=device.model,
        namespace=namespace,
        pod=pod,
        uid="",
        slot=device.slot,
        resource_claim=device.claim,
        scrape_target="",
        scale=Decimal(1),
        signal_rank=0,
        sample_count=1,
        vendor=device.vendor,
    )  # fmt: skidevices_by_node


def _devices(facts: Facts, node: ObservedNode) -> Sequence[ObservedDevice]:
    return facts.devices_by_node.get(node.name, ())
