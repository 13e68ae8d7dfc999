"""Which signal and which rung of the ladder would tell the use of how many GPUs held right now."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

from gpucost_cli.doctor import sharing
from gpucost_cli.doctor.checks.model import Case
from gpucost_cli.doctor.facts import NEURON_RESOURCE, Device, Facts, Holder
from gpucost_cli.doctor.signals import NEURON


@dataclass(frozen=True, slots=True)
class Rung:
    """So many physical GPUs (for Neuron, devices), held by pods that run."""

    signal: str | None
    """None where nobody measures."""
    rung: str
    """`pod`, `shared`, `node`, `cluster` or `none`."""
    gpus: Decimal


def rungs(case: Case) -> list[Rung]:
    """GPUs held, by signal and rung; the best rung that the settings allow for each holder."""
    facts = case.facts
    sums: dict[tuple[str | None, str], Fraction] = {}
    for holder in facts.holders:
        signal, rung = _of(case, holder)
        share = sharing.share(facts, holder, case.cluster.slices_per_gpu)
        sums[signal, rung] = sums.get((signal, rung), Fraction(0)) + holder.units * share
    order = ("pod", "shared", "node", "cluster", "none")
    rows = sorted(sums.items(), key=lambda item: (order.index(item[0][1]), item[0][0] or ""))
    return [Rung(signal, rung, _number(gpus)) for (signal, rung), gpus in rows]


def _of(case: Case, holder: Holder) -> tuple[str | None, str]:
    facts, ladder = case.facts, case.settings.utilization.sources
    own = _own(facts, holder)
    node = facts.nodes.get(holder.node)
    shared = node is not None and sharing.is_shared(facts, node)
    for rung in ladder:
        if rung in {"pod", "shared"}:
            found = own if shared == (rung == "shared") else []
            if rung == "shared" and not _all_are_known(facts, holder, own):
                found = []
        elif rung == "node":
            found = _unclaimed(facts, holder, facts.devices_on.get(holder.node, ()))
        else:
            found = _unclaimed(facts, holder, facts.devices)
        if found:
            return found[0].signal, rung
    return None, "none"


def _own(facts: Facts, holder: Holder) -> list[Device]:
    """The devices labelled with the pod; where its node has one GPU only, that one; all where it holds all alone."""
    on_node = [device for device in facts.devices_on.get(holder.node, ()) if _is_of_kind(device, holder)]
    own = [device for device in facts.devices if device.workload == holder.name and _is_of_kind(device, holder)]
    node = facts.nodes.get(holder.node)
    is_only = node is not None and sharing.is_shared(facts, node) and sharing.physical(facts, node) == 1
    if own or sharing.is_alone(facts, holder):
        return own or on_node
    return on_node if is_only and len({device.key for device in on_node}) == 1 else []


def _all_are_known(facts: Facts, holder: Holder, own: Sequence[Device]) -> bool:
    """Whether no sharer of the node is on nobody knows which of its devices: its part would be given to the others."""
    sharers = [one for one in facts.holders if one.node == holder.node]
    return bool(own) and all(_own(facts, one) for one in sharers)


def _unclaimed(facts: Facts, holder: Holder, devices: Iterable[Device]) -> list[Device]:
    return [device for device in devices if not facts.is_claimed(device) and _is_of_kind(device, holder)]


def _is_of_kind(device: Device, holder: Holder) -> bool:
    return (device.signal == NEURON.name) == holder.resource.startswith(NEURON_RESOURCE)


def _number(gpus: Fraction) -> Decimal:
    """To a millionth, without trailing zeros."""
    return round(Decimal(gpus.numerator) / Decimal(gpus.denominator), 6)
