"""Rating: multiplies metered GPU time by prices, exact to 1e-12, so that the parts of every node sum to its cost."""

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import Interval
from gpucost.core.metering.usage import NodeUsage, PodUsage, Usage
from gpucost.core.model import Capacity, ClusterCharge, NodeHour
from gpucost.core.money import ZERO, quantize, split_each
from gpucost.core.pricing.node_prices import NodePrice, Pricing, Unpriced


class RatedPod(NamedTuple):
    """A pod's usage with its amounts: `allocated = effective + waste + unmeasured`, in GPU-hours and in money.

    Without a price, all amounts of money are None.
    """

    usage: PodUsage
    price: NodePrice | Unpriced
    gpu_hourly_usd: Decimal | None
    allocated_gpu_hours: Decimal
    effective_gpu_hours: Decimal
    unmeasured_gpu_hours: Decimal
    allocated_usd: Decimal | None
    effective_usd: Decimal | None
    waste_usd: Decimal | None
    unmeasured_usd: Decimal | None


@dataclass(frozen=True, slots=True)
class RatedHour:
    """A cluster-hour's usage with its prices."""

    pods: Sequence[RatedPod]
    """In the order of the usage's pods."""
    nodes: Sequence[NodeHour]
    capacity: Capacity | None
    """None if the capacity is unknown."""
    charges: Sequence[ClusterCharge]
    is_final: bool
    """Whether every node has a price that no preferred source will replace."""
    notes: Sequence[str]


def rate_usage(usage: Usage, pricing: Pricing) -> RatedHour:
    """Rate a cluster-hour's usage.

    If the nodes are known, each node's GPU-hours and cost are split into their parts, which sum to the node's cost to
    the last digit. Otherwise each pod is priced alone and the capacity is None. A node without a price has no money
    and is named in the notes; it does not change the others.
    """
    start = to_epoch_ms(usage.hour)
    hour = Interval(start, start + HOUR_MS)
    if usage.nodes is None:
        pods_rated_alone = [_rate_alone(pod, *_price_alone(usage, pod, pricing)) for pod in usage.pods]
        charge_notes = [
            f"{charge.kind} of {charge.reference} is not in any sum: the nodes are unknown"
            for charge in pricing.cluster_charges(usage.cluster, hour, ())
        ]
        return _rated(pods_rated_alone, [], None, (), [pod.price for pod in pods_rated_alone], charge_notes)
    on_node: dict[tuple[str, str], list[PodUsage]] = {}
    for pod in usage.pods:
        on_node.setdefault((pod.holding.node.name, pod.holding.node.provider_id), []).append(pod)
    rated: dict[int, RatedPod] = {}
    nodes: list[NodeHour] = []
    prices: list[NodePrice | Unpriced] = []
    for node in usage.nodes:
        pods = on_node.get((node.node.name, node.provider_id), [])
        price = pricing.price_node(node.node, usage.cluster, node.present, node.gpus)
        prices.append(price)
        lines, capacity = _rate_node(node, pods, price)
        nodes.append(_node_hour(node, price, lines, capacity))
        rated.update((id(pod), line) for pod, line in zip(pods, lines, strict=True))
    prepaid_nodes = [
        (node.node, node.present)
        for node, price in zip(usage.nodes, prices, strict=True)
        if isinstance(price, NodePrice) and price.source in {"capacity-block", "override"}
    ]
    all_charges = pricing.cluster_charges(usage.cluster, hour, prepaid_nodes)
    charges = [charge for charge in all_charges if charge.currency == pricing.currency]
    foreign_charge_notes = [
        f"{charge.kind} of {charge.reference} is in {charge.currency} and not in any sum: "
        f"the hour is in {pricing.currency}"
        for charge in all_charges
        if charge.currency != pricing.currency
    ]
    capacity = Capacity.total([*(node.capacity for node in nodes), *map(_charge_capacity, charges)])
    return _rated([rated[id(pod)] for pod in usage.pods], nodes, capacity, charges, prices, foreign_charge_notes)


def _rated(
    pods: Sequence[RatedPod],
    nodes: Sequence[NodeHour],
    capacity: Capacity | None,
    charges: Sequence[ClusterCharge],
    prices: Sequence[NodePrice | Unpriced],
    notes: Sequence[str] = (),
) -> RatedHour:
    price_notes = (price.reason if isinstance(price, Unpriced) else price.note for price in prices)
    distinct_notes = dict.fromkeys(filter(None, [*price_notes, *notes]))
    is_final = all(isinstance(price, NodePrice) and price.is_final for price in prices)
    return RatedHour(pods, nodes, capacity, charges, is_final, tuple(distinct_notes))


def _rate_node(
    node: NodeUsage, pods: Sequence[PodUsage], price: NodePrice | Unpriced
) -> tuple[list[RatedPod], Capacity]:
    outside = _outside_kubernetes(node, price)
    total = node.total_gpu_ms + outside
    hours = quantize(Fraction(total, HOUR_MS))
    cost = ZERO if isinstance(price, Unpriced) else quantize(price.cost)
    of_gpus = ZERO if isinstance(price, Unpriced) else min(quantize(price.gpus_cost), cost)
    hourly = None if isinstance(price, Unpriced) or not total else price.gpus_cost * HOUR_MS / total
    rest = [node.unallocated_gpu_ms, node.stranded_gpu_ms + outside, node.unobserved_gpu_ms]
    if node.excess_gpu_ms or not total:
        # Pods hold more than the node has. Each is priced as reported, and the contradiction shows as residual.
        lines = [_rate_alone(pod, price, hourly) for pod in pods]
        rest_hours = [quantize(Fraction(part, HOUR_MS)) for part in rest]
        rest_usd = [quantize(Fraction(part, HOUR_MS) * (hourly or 0)) for part in rest]
    else:
        parts, amounts = split_each([hours, of_gpus], [pod.holding.gpu_ms for pod in pods] + rest)
        published = _published(hourly)
        lines = [_split_line(*line, price, published) for line in zip(pods, parts, amounts, strict=False)]
        rest_hours, rest_usd = parts[len(pods) :], amounts[len(pods) :]
    accounted = sum((line.allocated_usd or ZERO for line in lines), ZERO) + sum(rest_usd, ZERO)
    return lines, Capacity(
        capacity_gpu_hours=hours,
        unallocated_gpu_hours=rest_hours[0],
        stranded_gpu_hours=rest_hours[1],
        unobserved_gpu_hours=rest_hours[2],
        node_cost_usd=cost,
        unallocated_usd=rest_usd[0],
        stranded_usd=rest_usd[1],
        unobserved_usd=rest_usd[2],
        host_usd=cost - of_gpus,
        residual_usd=of_gpus - accounted,
        unpriced_capacity_gpu_hours=hours if isinstance(price, Unpriced) else ZERO,
    )


def _outside_kubernetes(node: NodeUsage, price: NodePrice | Unpriced) -> Fraction:
    """Return the GPU time that was billed before the node joined or after it left, when no pod could hold it."""
    if isinstance(price, Unpriced) or price.billed_ms is None:
        return Fraction(0)
    return node.gpus * max(0, price.billed_ms - node.present.length)


def _price_alone(usage: Usage, pod: PodUsage, pricing: Pricing) -> tuple[NodePrice | Unpriced, Fraction | None]:
    """Return the price of a pod's node, and of one of its GPUs for an hour, if the node's usage is unknown."""
    node = pod.holding.node
    start = to_epoch_ms(usage.hour)
    # Without the number of GPUs, only a price per GPU can be used, for which one GPU is as good as any number.
    price = pricing.price_node(node, usage.cluster, Interval(start, start + HOUR_MS), Fraction(node.physical or 1))
    if isinstance(price, Unpriced):
        return price, None
    if node.physical is None and not price.is_per_gpu:
        reason = f"the number of GPUs of node {node.name} is unknown, so its {price.source} price cannot be split"
        return Unpriced(reason), None
    return price, price.gpus_cost / (node.physical or 1)


def _rate_alone(pod: PodUsage, price: NodePrice | Unpriced, hourly: Fraction | None) -> RatedPod:
    hours = Fraction(pod.holding.gpu_ms, HOUR_MS)
    return _split_line(pod, quantize(hours), quantize(hours * (hourly or 0)), price, _published(hourly))


def _published(hourly: Fraction | None) -> Decimal | None:
    return None if hourly is None else quantize(hourly)


def _split_line(
    pod: PodUsage, gpu_hours: Decimal, usd: Decimal, price: NodePrice | Unpriced, hourly: Decimal | None
) -> RatedPod:
    weights: list[Fraction | int] = [pod.measurement.effective_gpu_ms, pod.waste_gpu_ms, pod.unmeasured_gpu_ms]
    if hourly is None:
        (hours,) = split_each([gpu_hours], weights)
        return RatedPod(pod, price, None, gpu_hours, hours[0], hours[2], None, None, None, None)
    hours, amounts = split_each([gpu_hours, usd], weights)
    return RatedPod(pod, price, hourly, gpu_hours, hours[0], hours[2], usd, *amounts)


def _node_hour(
    usage: NodeUsage, price: NodePrice | Unpriced, lines: Sequence[RatedPod], capacity: Capacity
) -> NodeHour:
    node = usage.node
    node_price = price if isinstance(price, NodePrice) else None
    return NodeHour(
        node=node.name,
        provider_id=node.provider_id,
        node_pool=node.node_pool,
        instance_type=node.instance_type,
        capacity_type=node.capacity_type,
        zone=node.zone,
        gpu_model=node.gpu_model,
        price_source=node_price.source if node_price else "",
        split_policy=node_price.split_policy if node_price else "",
        billed_usd=node_price.unblended if node_price else None,
        allocated_usd=sum((line.allocated_usd or ZERO for line in lines), ZERO),
        capacity=capacity,
    )


def _charge_capacity(charge: ClusterCharge) -> Capacity:
    hours, amount = quantize(charge.gpu_hours or ZERO), quantize(charge.amount)
    return Capacity(capacity_gpu_hours=hours, unallocated_gpu_hours=hours, node_cost_usd=amount, unallocated_usd=amount)
