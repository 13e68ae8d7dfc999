"""What can be attributed now: who holds GPUs, what they use, and what they cost, in a sentence each."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from gpucost.core.metering.accelerators import may_name_gpus
from gpucost.core.metering.kubernetes_labels import INSTANCE_TYPE_LABEL
from gpucost_cli.doctor.checks import CheckContext
from gpucost_cli.doctor.checks.prices import unpriced_nodes
from gpucost_cli.doctor.facts import CLAIM_INFO
from gpucost_cli.doctor.utilization import HeldGpus

NO_PRICE_NEEDED = "GPU-hours and waste in percent need no price"


@dataclass(frozen=True, slots=True)
class Summary:
    """A sentence each about what can be attributed now."""

    holding: str
    use: str
    price: str


def summarize(context: CheckContext, utilization: Sequence[HeldGpus]) -> Summary:
    """Say what can be attributed now.

    Args:
        context: the facts and settings of a cluster.
        utilization: the GPUs that pods hold.
    """
    total = sum((held.gpus for held in utilization), Decimal(0))
    return Summary(_holding(context, total), _use(utilization, total), _price(context))


def _holding(context: CheckContext, total: Decimal) -> str:
    facts = context.facts
    pods = {(holder.name, holder.uid) for holder in facts.holders}
    more = "; ResourceClaims may hold more" if facts.series.get(CLAIM_INFO) else ""
    unexplained = [each for each in facts.unexplained if each.may_be_gpus]
    if any(each.node in facts.gpu_nodes or may_name_gpus(each.name) for each in unexplained):
        more += "; there may be more that is not understood, see below"
    if not pods:
        return f"no pod requests GPUs now{more}"
    nodes = {holder.node for holder in facts.holders}
    verb = "holds" if len(pods) == 1 else "hold"
    return f"{_counted(len(pods), 'pod')} {verb} {_gpus(total)} GPUs on {_counted(len(nodes), 'node')} now{more}"


def _use(utilization: Sequence[HeldGpus], total: Decimal) -> str:
    measured = [held for held in utilization if held.source != "none"]
    measured_gpus = sum((held.gpus for held in measured), Decimal(0))
    if not total:
        return "no GPU to measure now"
    if not measured_gpus:
        return "unknown for all held GPUs, because no exporter measures them"
    signals = ", ".join(sorted({held.signal for held in measured if held.signal}))
    others = "" if measured_gpus == total else f"; {_gpus(total - measured_gpus)} are unmeasured"
    return f"measured for {_gpus(measured_gpus)} of {_gpus(total)} held GPUs, by {signals}{others}"


def _price(context: CheckContext) -> str:
    facts = context.facts
    if "cur" in context.settings.pricing.ordered_sources:
        return "from the bill, which a deployment reads"
    nodes = [node for node in facts.nodes.values() if node.capacity or node.name in facts.gpu_nodes]
    if not nodes:
        return "no node with GPUs to price now"
    of_nodes = _counted(len(nodes), "node")
    unpriced = [node for node, _ in unpriced_nodes(facts, context.settings, context.cluster.name, context.prices)]
    untyped = [node for node in nodes if not node.label(INSTANCE_TYPE_LABEL)]
    if context.settings.pricing.gpu_hourly_usd is not None:
        return f"known for {of_nodes}, from the settings"
    if unpriced:
        types = ", ".join(sorted({node.instance_type for node in unpriced}))
        return f"unknown for {len(unpriced)} of {of_nodes} ({types}). {NO_PRICE_NEEDED}"
    if untyped:
        return (
            f"{len(untyped)} of {of_nodes} have no label of the instance type. Other metrics stand in for it, and "
            f"notes of each hour say which. {NO_PRICE_NEEDED}"
        )
    return f"known for {of_nodes}"


def _gpus(number: Decimal) -> str:
    return f"{number:,.2f}".rstrip("0").rstrip(".")


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
