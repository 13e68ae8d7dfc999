"""Recommends commitments for nodes that nearly always hold pods on demand, at the settings' reserved prices.

A node without pods can be removed instead, so it needs no commitment, even if it is always there.

A price of one instance type commits to nodes, as a reservation does. A price of a family (`g5.*`) commits to an amount
per hour, as an EC2 Instance Savings Plan does: it covers any size of the family at its own price, the largest discount
first, and the unused part is lost (AWS Savings Plans user guide).

Kubernetes does not show Savings Plans and Reserved Instances: they are discounts of the bill. Two things show one:

- nodes whose capacity type turns `reserved` (an On-Demand Capacity Reservation);
- the rate of on-demand nodes, if it comes from the bill (`cur`) or from a price set by hand. A rate between the
  reserved price and the rate before is the mean of covered and uncovered nodes:

      covered = nodes × (rate before − rate) ÷ (rate before − reserved price)

If the bill prices a pool, hours that it does not price yet show nothing. A price list or constant that falls is not a
commitment: nothing is covered at such prices.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct

from gpucost.features.recommendations.history import LookBack, PoolHourlySeries
from gpucost.features.recommendations.kinds.base import RecommendationKind, ReviewedCluster
from gpucost.features.recommendations.measuring import (
    MIN_DATA_SHARE,
    MIN_MONTHLY_SAVING_USD,
    SubjectHour,
    estimate_saving,
    unpriced_facts,
)
from gpucost.features.recommendations.model import (
    Evidence,
    RecommendationContent,
    RecommendationSubject,
    format_count,
    round_cents,
)
from gpucost.features.recommendations.pools import gpus_per_node, mean_node_cost

MIN_HOURS: Final = 672
"""Four weeks. A commitment for a year needs more than one good week."""
STEADY_SHARE: Final = 0.95
"""Part of the hours in which the whole commitment must have been in use."""
_RISK = "It binds for one or three years. Apply the other recommendations first: what they free needs no commitment."
_NOT_VISIBLE = (
    "List prices do not show a Savings Plan or Reserved Instance: dismiss this after you buy one, or add its price to "
    "the settings' rates."
)
_MOST_POOLS: Final = 4
"""Names of node pools in a fact."""
_MIN_NODES_WITHOUT_PODS = 0.05
"""On average. Less is a node that started or ended."""
_FULL_SHARE: Final = 0.95
"""This part of the recommended commitment counts as all of it."""
_DAY = 24
_PRICE_STEPS = 1000
"""Savings Plans are bought in thousandths of a dollar per hour."""


class Commitment(RecommendationKind):
    """Commit to nodes that nearly always hold pods on demand."""

    name = "commitment"
    title = "Commit to steady use"
    when = (
        "for four weeks, a number of nodes of an instance type or family ran on demand and held pods in 95% of the "
        "hours. Also, `pricing.rates` in the settings has a lower reserved price (`capacity_type: reserved`)"
    )
    change = "commit to it, after applying the other recommendations"
    verified = "the lower price per GPU-hour, for GPUs that are still held"
    not_verified = "GPUs that are no longer held"
    is_after_plan = True
    lowers_price = True

    @classmethod
    def recommend(cls, cluster: ReviewedCluster) -> Iterator[RecommendationContent | None]:
        """Recommend commitments for types and families with a steady on-demand floor and a lower reserved price."""
        look_back = cluster.look_back
        by_scope: dict[str, dict[str, list[PoolHourlySeries]]] = {}
        for key in sorted(look_back.pools):
            reserved = look_back.reserved_prices.get(key.instance_type)
            if key.capacity_type == "on-demand" and reserved is not None:
                by_scope.setdefault(reserved.scope, {}).setdefault(key.instance_type, []).append(look_back.pools[key])
        return (cls._recommend_scope(look_back, scope, pools) for scope, pools in by_scope.items())

    @classmethod
    def _recommend_scope(
        cls, look_back: LookBack, scope: str, pools: Mapping[str, Sequence[PoolHourlySeries]]
    ) -> RecommendationContent | None:
        all_pools = [pool for type_pools in pools.values() for pool in type_pools]
        unpriced = [any(pool.is_unpriced[index] for pool in all_pools) for index in range(look_back.hours)]
        priced_hours = look_back.priced_hour_indexes(unpriced)
        if len(priced_hours) < max(MIN_HOURS, MIN_DATA_SHARE * look_back.hours):
            return None
        candidates = [_instance_type(look_back, name, type_pools) for name, type_pools in pools.items()]
        types = [candidate for candidate in candidates if candidate is not None]
        usd_at_reserved_price = [
            sum(instance_type.busy_nodes[index] * instance_type.reserved_usd_per_node_hour for instance_type in types)
            for index in range(look_back.hours)
        ]
        is_family = scope not in pools
        floor = _steady_amount(usd_at_reserved_price, priced_hours)
        step = 1 / _PRICE_STEPS if is_family else types[0].reserved_usd_per_node_hour if types else 1.0
        hourly_commitment = int(floor / step + 1e-6) * step
        if hourly_commitment < MIN_MONTHLY_SAVING_USD / _PRICE_STEPS or any(
            usd_at_reserved_price[index] < step * (1 - 1e-6) for index in priced_hours[-_DAY:]
        ):
            return None

        def freed(index: int) -> tuple[float, float]:
            """The on-demand cost of covered nodes minus the commitment, which is charged whether it is used or not."""
            remaining, covered = hourly_commitment, 0.0
            for instance_type in sorted(
                types, key=lambda candidate: -candidate.charged_rates[index] / candidate.reserved_usd_per_node_hour
            ):
                nodes = min(instance_type.busy_nodes[index], remaining / instance_type.reserved_usd_per_node_hour)
                remaining -= nodes * instance_type.reserved_usd_per_node_hour
                covered += nodes * instance_type.charged_rates[index]
            return covered - hourly_commitment, 0.0

        shares = [pool.spend.avoidable_share() for pool in all_pools]
        cash = None if None in shares else min(share for share in shares if share is not None)
        saving = estimate_saving(
            look_back,
            0,
            freed,
            cash,
            1.0 if all(pool.spend.is_all_at_list_price for pool in all_pools) else None,
            unpriced,
        )
        if saving.usd < MIN_MONTHLY_SAVING_USD:
            return None
        gpus, busy_gpus = (
            [
                sum(nodes[index] * instance_type.gpus for nodes, instance_type in zip(columns, types, strict=True))
                for index in range(look_back.hours)
            ]
            for columns in ([candidate.nodes for candidate in types], [candidate.busy_nodes for candidate in types])
        )
        amounts = gpus if is_family else list(types[0].nodes)
        steady_gpus = _steady_amount(busy_gpus, priced_hours)
        count = int(hourly_commitment / step + 0.5)
        current = sum(amounts[index] for index in priced_hours[-_DAY:]) / len(priced_hours[-_DAY:])
        after = current - (steady_gpus if is_family else count)
        used_share = sum(min(hourly_commitment, usd_at_reserved_price[index]) for index in priced_hours) / (
            hourly_commitment * len(priced_hours)
        )
        lowest, highest = min(_at_indexes(amounts, priced_hours)), max(_at_indexes(amounts, priced_hours))
        amount_range = f"{format_count(lowest)} to {format_count(highest)}"
        commitment = (
            f"${hourly_commitment:.3f} an hour of {scope} (a Savings Plan of the family)"
            if is_family
            else f"{count} {scope} node{'s' if count > 1 else ''}"
        )
        return RecommendationContent(
            kind=cls.name,
            subject=RecommendationSubject(
                look_back.cluster, instance_type=scope, capacity_type="on-demand", gpu_model=_gpu_model(all_pools)
            ),
            title=f"Commit to {commitment}",
            summary=f"Commit to {commitment}: in {STEADY_SHARE:.0%} of the hours, at least as "
            f"{'much was on demand' if is_family else 'many were on demand'} and held pods",
            saving=saving,
            evidence=Evidence(
                look_back.hour_at(0),
                look_back.hour_at(look_back.hours - 1),
                len(priced_hours),
                look_back.hours - sum(look_back.has_figures),
                None,
                None,
                None,
                unpriced_facts(sum(look_back.has_figures) - len(priced_hours), sum(look_back.has_figures))
                | {
                    "reserved price": _format_prices(look_back, sorted(pools)),
                    "utilization of the commitment": f"{used_share:.1%}",
                    "steady": f"{format_count(steady_gpus)} GPUs",
                    "GPUs" if is_family else "nodes": amount_range,
                    "node pools": _pool_names(all_pools),
                    **_nodes_without_pods(all_pools, priced_hours),
                },
            ),
            confidence="medium",
            risk="high",
            risk_note=_RISK if _is_any_billed(all_pools) else f"{_RISK} {_NOT_VISIBLE}",
            effort="high",
            patch="",
            current_gpus=round_cents(current),
            recommended_gpus=round_cents(max(0.0, after)),
            usd_hourly=round_cents(
                sum(pool.cost_usd[index] for pool in all_pools for index in priced_hours) / len(priced_hours)
            ),
        )

    @classmethod
    def hourly_gpus(cls, look_back: LookBack, content: RecommendationContent) -> list[float | None] | None:
        """Nodes (for a family: GPUs) that remain on demand, by hour: the recommended floor minus what is covered of it.

        Returns:
            None for hours in which it is not known; None instead of the list if nothing of the type or family is left.
        """
        pools = _pools(look_back, content)
        if not any(any(pool.node_counts[-_DAY:]) for pool in pools):
            return None
        floor, nodes_after = float(content.current_gpus - content.recommended_gpus), float(content.recommended_gpus)
        reserved = [
            sum(
                pool.node_counts[index] * _weight(content, pool)
                for pool in pools
                if pool.key.capacity_type == "reserved"
            )
            for index in range(look_back.hours)
        ]
        reserved_before = min(
            (amount for amount, has_figures in zip(reserved, look_back.has_figures, strict=True) if has_figures),
            default=0.0,
        )
        on_demand = [
            (pool, _uncommitted_rate(look_back, pool)) for pool in pools if pool.key.capacity_type == "on-demand"
        ]
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

    @classmethod
    def hourly_use_and_cost(cls, look_back: LookBack, content: RecommendationContent) -> Sequence[SubjectHour | None]:
        """What on-demand and reserved nodes held and cost together, by hour."""
        if not look_back.currencies <= {content.currency}:
            return super().hourly_use_and_cost(look_back, content)
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


class _OnDemandInstanceType(Struct, frozen=True):
    """The on-demand nodes of an instance type by hour."""

    reserved_usd_per_node_hour: float
    """Reserved price in USD per node-hour."""
    gpus: int
    nodes: Sequence[float]
    busy_nodes: Sequence[float]
    """Those that held pods, in the hour or in a neighboring one: nodes take minutes to start and stop."""
    charged_rates: Sequence[float]
    """The rate charged in each hour, in USD per node-hour; 0 without nodes."""


def _nodes_without_pods(pools: Sequence[PoolHourlySeries], indexes: Sequence[int]) -> dict[str, str]:
    """A fact about nodes that the commitment does not count; empty if all nodes hold pods."""
    nodes = sum(pool.node_counts[index] for pool in pools for index in indexes) / len(indexes)
    without_pods = nodes - sum(pool.busy_nodes[index] for pool in pools for index in indexes) / len(indexes)
    if without_pods < _MIN_NODES_WITHOUT_PODS:
        return {}
    return {
        "nodes without pods": f"{format_count(without_pods)} of {format_count(nodes)}, on average: the commitment "
        "counts only nodes with pods, because the others can be removed"
    }


def _at_indexes(hours: Sequence[float], indexes: Sequence[int]) -> list[float]:
    return [hours[index] for index in indexes]


def _steady_amount(hours: Sequence[float], indexes: Sequence[int]) -> float:
    """The amount that nearly all of these hours reach."""
    return sorted(_at_indexes(hours, indexes))[int((1 - STEADY_SHARE) * len(indexes))]


def _instance_type(look_back: LookBack, name: str, pools: Sequence[PoolHourlySeries]) -> _OnDemandInstanceType | None:
    gpus = max(gpus_per_node(pool) for pool in pools)
    if not gpus:
        return None
    # A node counts for the time it was there: after ten minutes it has a sixth of its GPU-hours.
    nodes = [sum(pool.capacity_gpu_hours[index] for pool in pools) / gpus for index in range(look_back.hours)]
    rates = [
        sum(pool.cost_usd[index] for pool in pools) / node_count if node_count else 0.0
        for index, node_count in enumerate(nodes)
    ]
    busy = [sum(pool.busy_nodes[index] for pool in pools) for index in range(look_back.hours)]
    needed = [min(node_count, max(busy[max(0, index - 1) : index + 2])) for index, node_count in enumerate(nodes)]
    return _OnDemandInstanceType(look_back.reserved_prices[name].usd, gpus, nodes, needed, rates)


def _gpu_model(pools: Sequence[PoolHourlySeries]) -> str:
    models = {pool.key.gpu_model for pool in pools}
    return models.pop() if len(models) == 1 else ""


def _pool_names(pools: Sequence[PoolHourlySeries]) -> str:
    """The node pools that the nodes are of, so that they are not taken for those of another pool."""
    names = sorted({pool.key.node_pool or "nodes without a node pool" for pool in pools})
    return ", ".join(names[:_MOST_POOLS]) + (f" and {len(names) - _MOST_POOLS} more" if names[_MOST_POOLS:] else "")


def _format_prices(look_back: LookBack, names: Sequence[str]) -> str:
    prices = ", ".join(_format_price(look_back, name) for name in names[:3])
    return f"{prices}{', …' if len(names) > 3 else ''} a node-hour, from the settings' rates"  # noqa: PLR2004 - a line


def _format_price(look_back: LookBack, name: str) -> str:
    price = look_back.reserved_prices[name]
    return f"{name} ${price.usd:.3f}{f' ({price.basis})' if price.basis else ''}"


def _covers(scope: str, instance_type: str) -> bool:
    """Whether a commitment to a type, or to a family such as `g5.*`, covers an instance type."""
    return instance_type == scope or (scope.endswith(".*") and instance_type.startswith(scope[:-1]))


def _is_any_billed(pools: Sequence[PoolHourlySeries]) -> bool:
    """Whether the charges of these pools would show a Savings Plan or Reserved Instance."""
    return any(any(pool.is_billed) for pool in pools)


def _pools(look_back: LookBack, content: RecommendationContent) -> list[PoolHourlySeries]:
    return [
        pool
        for key, pool in look_back.pools.items()
        if _covers(content.subject.instance_type, key.instance_type) and key.capacity_type in {"on-demand", "reserved"}
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
