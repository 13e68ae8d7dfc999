"""Detects from prices and capacity whether a recommended commitment was bought.

Kubernetes does not show Savings Plans and Reserved Instances: they are discounts of the bill. Two things show one:

- nodes whose capacity type turns `reserved` (an On-Demand Capacity Reservation);
- the rate of on-demand nodes, if it comes from the bill (`cur`) or from a price set by hand. A rate between the
  reserved price and the rate before is the mean of covered and uncovered nodes:

      covered = nodes × (rate before − rate) ÷ (rate before − reserved price)

If the bill prices a pool, hours that it does not price yet show nothing. A price list or constant that falls is not a
commitment: nothing is covered at such prices.
"""

from collections.abc import Sequence
from typing import Final

from gpucost.features.recommendations.history import LookBack, PoolHourlySeries
from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.pools import gpus_per_node, mean_node_cost
from gpucost.features.recommendations.verification import SubjectHour

_FULL_SHARE: Final = 0.95
"""This part of the recommended commitment counts as all of it."""
_DAY = 24


def covers_instance_type(scope: str, instance_type: str) -> bool:
    """Whether a commitment to a type, or to a family such as `g5.*`, covers an instance type."""
    return instance_type == scope or (scope.endswith(".*") and instance_type.startswith(scope[:-1]))


def uncovered_nodes(look_back: LookBack, content: RecommendationContent) -> list[float | None] | None:
    """Nodes (for a family: GPUs) that remain on demand, by hour: the recommended floor minus what is covered of it.

    Returns:
        None for hours in which it is not known; None instead of the list if nothing of the type or family is left.
    """
    pools = _pools(look_back, content)
    if not any(any(pool.node_counts[-_DAY:]) for pool in pools):
        return None
    floor, nodes_after = float(content.current_gpus - content.recommended_gpus), float(content.recommended_gpus)
    reserved = [
        sum(pool.node_counts[index] * _weight(content, pool) for pool in pools if pool.key.capacity_type == "reserved")
        for index in range(look_back.hours)
    ]
    reserved_before = min(
        (amount for amount, has_figures in zip(reserved, look_back.has_figures, strict=True) if has_figures),
        default=0.0,
    )
    on_demand = [(pool, _uncommitted_rate(look_back, pool)) for pool in pools if pool.key.capacity_type == "on-demand"]
    uncovered: list[float | None] = []
    for index in range(look_back.hours):
        parts = [
            _covered_nodes(look_back, pool, before, index) for pool, before in on_demand if pool.node_counts[index]
        ]
        if not look_back.has_figures[index] or None in parts:
            uncovered.append(None)
            continue
        weights = [_weight(content, pool) for pool, _ in on_demand if pool.node_counts[index]]
        covered = reserved[index] - reserved_before
        covered += sum((part or 0.0) * weight for part, weight in zip(parts, weights, strict=True))
        uncovered.append(nodes_after if covered >= _FULL_SHARE * floor else nodes_after + floor - covered)
    return uncovered


def commitment_hours(look_back: LookBack, content: RecommendationContent) -> list[SubjectHour | None]:
    """What on-demand and reserved nodes held and cost together, by hour."""
    pools = _pools(look_back, content)
    hours: list[SubjectHour | None] = []
    for index, has_figures in enumerate(look_back.has_figures):
        running_pools = [pool for pool in pools if pool.node_counts[index]]
        held = sum(pool.node_counts[index] * _weight(content, pool) for pool in running_pools)
        usd = (
            None
            if any(_is_price_pending(pool, index) for pool in running_pools)
            else sum(pool.cost_usd[index] for pool in running_pools)
        )
        hours.append(SubjectHour(held, usd, held, 0.0) if has_figures else None)
    return hours


def is_any_billed(pools: Sequence[PoolHourlySeries]) -> bool:
    """Whether the charges of these pools would show a Savings Plan or Reserved Instance."""
    return any(any(pool.is_billed) for pool in pools)


def _pools(look_back: LookBack, content: RecommendationContent) -> list[PoolHourlySeries]:
    return [
        pool
        for key, pool in look_back.pools.items()
        if covers_instance_type(content.subject.instance_type, key.instance_type)
        and key.capacity_type in {"on-demand", "reserved"}
    ]


def _weight(content: RecommendationContent, pool: PoolHourlySeries) -> int:
    return gpus_per_node(pool) if content.subject.instance_type.endswith(".*") else 1


def _is_price_pending(pool: PoolHourlySeries, index: int) -> bool:
    """Whether an hour's price is missing or provisional: the bill prices the pool, but not yet this hour."""
    return bool(pool.is_unpriced[index]) or (any(pool.is_billed) and not pool.is_billed[index])


def _uncommitted_rate(look_back: LookBack, pool: PoolHourlySeries) -> float:
    """USD per node-hour without a commitment: the highest known rate."""
    paid = [mean_node_cost(pool, index) for index in look_back.priced_hour_indexes(pool.is_unpriced)]
    return max([*paid, look_back.list_prices.get(pool.key.instance_type, 0.0)])


def _covered_nodes(look_back: LookBack, pool: PoolHourlySeries, before: float, index: int) -> float | None:
    """On-demand nodes of a pool that are charged as committed; None if the hour's price is not known yet."""
    price = look_back.reserved_prices.get(pool.key.instance_type)
    if price is None:
        return 0.0
    if _is_price_pending(pool, index):
        return None
    if not pool.could_show_commitment[index]:
        return 0.0
    if before <= price.usd:
        return float(pool.node_counts[index])
    return pool.node_counts[index] * min(1.0, max(0.0, (before - mean_node_cost(pool, index)) / (before - price.usd)))
