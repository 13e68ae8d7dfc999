"""How many held GPUs would be measured by which signal and utilization source."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from gpucost.core.hour_record import UTILIZATION_SOURCES
from gpucost.core.metering.accelerators import vendor_of
from gpucost_cli.doctor import sharing
from gpucost_cli.doctor.checks.model import CheckContext
from gpucost_cli.doctor.facts import Facts, GpuHolder, ObservedDevice


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """Physical GPUs (or other devices) that running pods hold, with the same signal and utilization source."""

    signal: str | None
    """None if there is no signal."""
    source: str
    """`pod`, `process`, `shared`, `node`, `cluster` or `none`."""
    gpus: Decimal


def gpus_held_by_signal_and_source(context: CheckContext) -> list[HeldGpus]:
    """Held GPUs by signal and utilization source: for each pod, the preferred source that is available."""
    facts = context.facts
    sums: dict[tuple[str | None, str], Fraction] = {}
    for holder in facts.holders:
        if holder.node in facts.nodes_with_vgpus:
            continue  # their scheduler measures them, not a signal of a device
        signal, utilization_source = _signal_and_utilization_source(context, holder)
        share = sharing.gpu_share(facts, holder, context.cluster)
        sums[signal, utilization_source] = sums.get((signal, utilization_source), Fraction(0)) + holder.units * share
    keys = sorted(sums, key=lambda key: (UTILIZATION_SOURCES.index(key[1]), key[0] or ""))
    return [HeldGpus(signal, source, _rounded_gpus(sums[signal, source])) for signal, source in keys]


def _signal_and_utilization_source(context: CheckContext, holder: GpuHolder) -> tuple[str | None, str]:
    facts = context.facts
    devices_of_pod = _devices_of_pod(facts, holder)
    node = facts.nodes.get(holder.node)
    is_shared = node is not None and sharing.is_shared(facts, node)
    for utilization_source in context.settings.utilization.sources:
        if utilization_source in {"pod", "shared"}:
            devices = devices_of_pod if is_shared == (utilization_source == "shared") else []
            if utilization_source == "shared" and not _all_sharers_have_devices(facts, holder, devices_of_pod):
                devices = []
        elif utilization_source == "process":
            is_measured = all(sharing.is_divided_by_processes(facts, device) for device in devices_of_pod)
            devices = devices_of_pod if is_shared and is_measured else []
        elif utilization_source == "node":
            devices = _without_holder(facts, holder, facts.devices_by_node.get(holder.node, ()))
        else:
            devices = _without_holder(facts, holder, facts.devices)
        if devices:
            return devices[0].signal, utilization_source
    return None, "none"


def _devices_of_pod(facts: Facts, holder: GpuHolder) -> list[ObservedDevice]:
    """The devices labeled with a pod, else all devices of its node if it holds them all, else the node's only GPU."""
    on_node = [device for device in facts.devices_by_node.get(holder.node, ()) if _has_resource_of(device, holder)]
    labeled = [
        device for device in facts.devices if device.workload == holder.name and _has_resource_of(device, holder)
    ]
    node = facts.nodes.get(holder.node)
    is_only = node is not None and sharing.is_shared(facts, node) and sharing.device_count(facts, node) == 1
    if labeled or sharing.holds_whole_node(facts, holder):
        return labeled or on_node
    return on_node if is_only and len({device.key for device in on_node}) == 1 else []


def _all_sharers_have_devices(facts: Facts, holder: GpuHolder, devices: Sequence[ObservedDevice]) -> bool:
    """Whether the devices of all pods on the node are known. Else an unknown pod's use would count for the others."""
    sharers = [sharer for sharer in facts.holders if sharer.node == holder.node]
    return bool(devices) and all(_devices_of_pod(facts, sharer) for sharer in sharers)


def _without_holder(facts: Facts, holder: GpuHolder, devices: Iterable[ObservedDevice]) -> list[ObservedDevice]:
    return [
        device for device in devices if not facts.is_labeled_with_holder(device) and _has_resource_of(device, holder)
    ]


def _has_resource_of(device: ObservedDevice, holder: GpuHolder) -> bool:
    return device.vendor == vendor_of(holder.resource)


def _rounded_gpus(gpus: Fraction) -> Decimal:
    """Round to a millionth."""
    return round(Decimal(gpus.numerator) / Decimal(gpus.denominator), 6)
