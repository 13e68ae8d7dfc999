"""Which signal and which rung of the ladder would tell the use of how many GPUs held right now."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from gpucost_cli.doctor import sharing
from gpucost_cli.doctor.checks.model import CheckContext
from gpucost_cli.doctor.facts import NEURON_RESOURCE, Device, Facts, Holder
from gpucost_cli.doctor.signals import NEURON


@dataclass(frozen=True, slots=True)
class HeldGpus:
    """So many physical GPUs (for Neuron, devices), held by pods that run."""

    signal: str | None
    """None where nobody measures."""
    source: str
    """`pod`, `shared`, `node`, `cluster` or `none`."""
    gpus: Decimal


def held_gpus(case: CheckContext) -> list[HeldGpus]:
    """GPUs held, by signal and rung; the best rung that the settings allow for each holder."""
    facts = case.facts
    sums: dict[tuple[str | None, str], Fraction] = {}
    for holder in facts.holders:
        signal, rung = _signal_and_source(case, holder)
        share = sharing.gpu_share(facts, holder, case.cluster.slices_per_gpu)
        sums[signal, rung] = sums.get((signal, rung), Fraction(0)) + holder.units * share
    order = ("pod", "shared", "node", "cluster", "none")
    rows = sorted(sums.items(), key=lambda item: (order.index(item[0][1]), item[0][0] or ""))
    return [HeldGpus(signal, rung, _number(gpus)) for (signal, rung), gpus in rows]


def _signal_and_source(case: CheckContext, holder: Holder) -> tuple[str | None, str]:
    facts, ladder = case.facts, case.settings.utilization.sources
    own = _devices_of_pod(facts, holder)
    node = facts.nodes.get(holder.node)
    shared = node is not None and sharing.is_shared(facts, node)
    for rung in ladder:
        if rung in {"pod", "shared"}:
            found = own if shared == (rung == "shared") else []
            if rung == "shared" and not _all_sharers_have_devices(facts, holder, own):
                found = []
        elif rung == "node":
            found = _unclaimed(facts, holder, facts.devices_on.get(holder.node, ()))
        else:
            found = _unclaimed(facts, holder, facts.devices)
        if found:
            return found[0].signal, rung
    return None, "none"


def _devices_of_pod(facts: Facts, holder: Holder) -> list[Device]:
    """The devices labelled with the pod; where its node has one GPU only, that one; all where it holds all alone."""
    on_node = [device for device in facts.devices_on.get(holder.node, ()) if _is_of_kind(device, holder)]
    own = [device for device in facts.devices if device.workload == holder.name and _is_of_kind(device, holder)]
    node = facts.nodes.get(holder.node)
    is_only = node is not None and sharing.is_shared(facts, node) and sharing.device_count(facts, node) == 1
    if own or sharing.holds_whole_node(facts, holder):
        return own or on_node
    return on_node if is_only and len({device.key for device in on_node}) == 1 else []


def _all_sharers_have_devices(facts: Facts, holder: Holder, own: Sequence[Device]) -> bool:
    """Whether no sharer of the node is on nobody knows which of its devices: its part would be given to the others."""
    sharers = [one for one in facts.holders if one.node == holder.node]
    return bool(own) and all(_devices_of_pod(facts, one) for one in sharers)


def _unclaimed(facts: Facts, holder: Holder, devices: Iterable[Device]) -> list[Device]:
    return [device for device in devices if not facts.is_labeled_with_holder(device) and _is_of_kind(device, holder)]


def _is_of_kind(device: Device, holder: Holder) -> bool:
    return (device.signal == NEURON.name) == holder.resource.startswith(NEURON_RESOURCE)


def _number(gpus: Fraction) -> Decimal:
    """To a millionth, without trailing zeros."""
    return round(Decimal(gpus.numerator) / Decimal(gpus.denominator), 6)
