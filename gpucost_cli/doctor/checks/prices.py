"""Checks whether the nodes with accelerators have a price, from the settings, the built-in lists and AWS's answers."""

from collections.abc import Iterable
from datetime import timedelta
from fractions import Fraction

from gpucost.core.hours import HOUR_MS, floor_hour, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode
from gpucost.core.metering.instance_types import NEURON_OF_INSTANCE, SAGEMAKER_PREFIX
from gpucost.core.metering.kubernetes_labels import (
    INSTANCE_TYPE_LABEL,
    NODE_LABELS_METRIC,
    NODE_POOL_LABEL,
    ZONE_ID_LABEL,
    ZONE_LABEL,
)
from gpucost.core.metering.nodes import capacity_type
from gpucost.core.pricing.node_costs import Unpriced
from gpucost.core.pricing.prices import Price, attributes_of_node
from gpucost.pipeline.pricing import pricing_of
from gpucost.settings import CoreSettings
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, doctor_check
from gpucost_cli.doctor.facts import Facts, ObservedNode


def unpriced_nodes(
    facts: Facts, settings: CoreSettings, cluster: str, prices: Iterable[Price] = ()
) -> list[tuple[GpuNode, Unpriced]]:
    """Return the nodes with accelerators that have no price, each with the reason.

    Nodes are left out if a bill, which only the deployment reads, may have their price. So are those whose type or
    region is unknown: labels that are missing have a finding of their own.

    Args:
        facts: about the cluster.
        settings: the settings, with prices of their own.
        cluster: the cluster's name.
        prices: those that AWS answered.
    """
    if "cur" in settings.pricing.ordered_sources:
        return []
    pricing = pricing_of(settings, prices)
    start = to_epoch_ms(floor_hour(facts.evaluated_at - timedelta(milliseconds=1)))
    unpriced = []
    for node in map(_gpu_node, facts.nodes.values()):
        if node.name not in facts.gpu_nodes and not node.capacity and node.instance_type not in NEURON_OF_INSTANCE:
            continue
        has_region = bool(attributes_of_node(node, cluster)["region"]) or node.instance_type.startswith(
            SAGEMAKER_PREFIX
        )
        cost = pricing.node_cost(node, cluster, IntervalMs(start, start + HOUR_MS), Fraction(1))
        if isinstance(cost, Unpriced) and node.instance_type and has_region:
            unpriced.append((node, cost))
    return unpriced


@doctor_check(
    "kube-state-metrics",
    """
price of … | nodes of this type have no price, so that their hours stay provisional. The doctor knows the prices of the settings and the built-in list. If these lack a type, it asks AWS, with the credentials of this shell. EC2's price never applies to a type of [SageMaker HyperPod](../how-to/pricing.md#sagemaker-hyperpod), such as `ml.p5.48xlarge`. With the price source `cur` there is no such finding, because only the deployment reads the bill | the price in the settings, or the credentials, that the finding names
""",  # noqa: E501 - one line for each row
)
def check_prices(context: CheckContext) -> Iterable[Check]:
    """Name the types of nodes without a price, and what to set. Their hours stay provisional."""
    by_type: dict[str, list[Unpriced]] = {}
    unpriced = unpriced_nodes(context.facts, context.settings, context.cluster.name, context.prices)
    for node, reason in sorted(unpriced, key=lambda pair: pair[0].name):
        by_type.setdefault(node.instance_type, []).append(reason)
    for instance_type, (first, *others) in sorted(by_type.items()):
        more = f" (nor for {len(others)} other nodes of this type)" if others else ""
        fault = Fault(f"{first.reason}{more}: their hours stay provisional, without costs", first.change)
        yield context.check(
            f"price of {instance_type}", NODE_LABELS_METRIC, "recommended", fault, status="missing", series=0
        )


def _gpu_node(node: ObservedNode) -> GpuNode:
    zone, zone_id = node.zone_of_provider_id
    return GpuNode(
        name=node.name,
        provider_id=node.instance_id,
        instance_type=node.label(INSTANCE_TYPE_LABEL),
        zone=node.label(ZONE_LABEL) or zone,
        zone_id=node.label(ZONE_ID_LABEL) or zone_id,
        capacity_type=capacity_type(node.labels),
        node_pool=node.label(NODE_POOL_LABEL),
        labels=node.labels,
    )
