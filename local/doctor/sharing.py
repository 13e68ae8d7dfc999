"""Which nodes slice or share their GPUs, and what share of a physical GPU a unit is there.

A rough copy of what metering concludes with more care: it is only good for counting GPUs in a report.
"""

from collections.abc import Sequence
from fractions import Fraction

from gpucost.domain.devices import GPUS_OF_INSTANCE, profile_share
from local.doctor.facts import GPU, GPU_SHARED, MIG, NEURON_RESOURCE, Device, Facts, Holder, Node
from local.doctor.labels import COUNT, INSTANCE_TYPE, PRODUCT, REPLICAS, SHARING

_SHARED = "_shared"


def is_sliced(facts: Facts, node: Node) -> bool:
    """Whether its GPUs are divided by MIG."""
    by_name = any(name.startswith(MIG) for name in node.capacity)
    return by_name or "-MIG-" in node.label(PRODUCT) or any(device.mig_id for device in _devices(facts, node))


def is_shared(facts: Facts, node: Node) -> bool:
    """Whether several pods take turns on a device: time-slicing or MPS."""
    if any(name.endswith(_SHARED) for name in node.capacity) or node.label(PRODUCT).endswith("-SHARED"):
        return True
    replicas, strategy = node.label(REPLICAS), node.label(SHARING)
    if replicas not in {"", "0", "1"} and strategy != "none":
        return True
    if strategy == "none" or "-MIG-" in node.label(PRODUCT) or any(name.startswith(MIG) for name in node.capacity):
        return False
    # Nothing says so: then more units than there are GPUs, or slices of GPUs, are units of the same ones.
    known = max(len({device.key for device in _devices(facts, node)}), physical(facts, node) or 0)
    return 0 < known < node.capacity.get(GPU, 0)


def physical(facts: Facts, node: Node) -> int | None:
    """GPUs that the node has: by instance type, by what its exporter sees, by its label."""
    known = GPUS_OF_INSTANCE.get(node.label(INSTANCE_TYPE))
    seen = len({device.uuid for device in _devices(facts, node)})
    count = node.label(COUNT)
    told = int(count) if count.isdigit() and "-MIG-" not in node.label(PRODUCT) else None
    return known or seen or told


def share(facts: Facts, holder: Holder, slices_per_gpu: int | None) -> Fraction:
    """Physical GPUs, or Neuron devices, per unit that a pod holds."""
    node = facts.nodes.get(holder.node, Node(holder.node))
    found = _share(facts, node, holder.resource, slices_per_gpu)
    gpus = physical(facts, node)
    if not gpus or not any(name.startswith(MIG) for name in node.capacity):
        return found
    # Dominant shares of a geometry can sum above the GPU (3g+2g+1g+1g is 15/14).
    advertised = sum(units * _share(facts, node, name, slices_per_gpu) for name, units in node.capacity.items())
    return found * gpus / advertised if advertised > gpus else found


def _share(facts: Facts, node: Node, resource: str, slices_per_gpu: int | None) -> Fraction:
    model, _, profile = node.label(PRODUCT).removesuffix("-SHARED").partition("-MIG-")
    replicas = int(node.label(REPLICAS)) if node.label(REPLICAS).isdigit() and is_shared(facts, node) else 1
    units = node.capacity.get(resource, 0)
    if resource.startswith(MIG):
        name = resource.removeprefix(MIG)
        found = profile_share(name.removesuffix(_SHARED).replace("_", "."), model or _model(facts, node))
        return (found or Fraction(1, 7)) / (max(1, replicas) if name.endswith(_SHARED) else 1)
    if resource == GPU and any(name.startswith((MIG, GPU_SHARED)) for name in node.capacity):
        return Fraction(1)
    if resource.startswith(NEURON_RESOURCE):
        devices = node.capacity.get("aws_amazon_com_neuron") or node.capacity.get("aws_amazon_com_neurondevice") or 0
        is_part = resource == "aws_amazon_com_neuroncore" and 0 < devices <= units
        return Fraction(devices, units) if is_part else Fraction(1)
    if profile and (found := profile_share(profile, model)):
        return found / max(1, replicas)
    if replicas > 1:
        return Fraction(1, replicas)
    gpus = physical(facts, node)
    if gpus and units >= gpus:
        return Fraction(gpus, units)
    return Fraction(1, slices_per_gpu or 1) if resource == GPU else Fraction(1)


def _devices(facts: Facts, node: Node) -> Sequence[Device]:
    return facts.devices_on.get(node.name, ())


def _model(facts: Facts, node: Node) -> str:
    return next((device.model for device in _devices(facts, node) if device.model), "")
