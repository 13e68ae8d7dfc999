"""Recommends commitments for nodes that nearly always hold pods on demand, at the settings' reserved prices.

A node without pods can be removed instead, so it needs no commitment, even if it is always there.

A price of one instance type commits to nodes, as a reservation does. A price of a family (`g5.*`) commits to an amount
per hour, as an EC2 Instance Savings Plan does: it covers any size of the family at its own price, the largest discount
first, and the unused part is lost (AWS Savings Plans user guide).
"""

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from gpucost.features.recommendations.history import LookBack, PoolHourlySeries
from gpucost.features.recommendations.measuring import MIN_DATA_SHARE, estimate_saving, unpriced_facts
from gpucost.features.recommendations.model import (
    Evidence,
    RecommendationContent,
    RecommendationSubject,
    format_count,
    round_cents,
)
from gpucost.features.recommendations.pools import gpus_per_node
from gpucost.features.recommendations.rules.commitment_coverage import is_any_billed

MIN_HOURS: Final = 672
"""Four weeks. A commitment for a year needs more than one good week."""
STEADY_SHARE: Final = 0.95
"""Part of the hours in which the whole commitment must have been in use."""
_RISK = "It binds for one or three years. Apply the other recommendations first: what they free needs no commitment."
_NOT_VISIBLE = (
    "List prices do not show a Savings Plan or Reserved Instance: dismiss this after you buy one, or add its price to "
    "the settings' rates."
)
_MIN_MONTHLY_SAVING_USD = 1.0
_MIN_NODES_WITHOUT_PODS = 0.05
"""On average. Less is a node that started or ended."""
_DAY = 24
_PRICE_STEPS = 1000
"""Savings Plans are bought in thousandths of a dollar per hour."""


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


def recommend_commitments(look_back: LookBack) -> list[RecommendationContent]:
    """Recommend commitments for types and families with a steady on-demand floor and a lower reserved price."""
    by_scope: dict[str, dict[str, list[PoolHourlySeries]]] = {}
    for key in sorted(look_back.pools):
        reserved = look_back.reserved_prices.get(key.instance_type)
        if key.capacity_type == "on-demand" and reserved is not None:
            by_scope.setdefault(reserved.scope, {}).setdefault(key.instance_type, []).append(look_back.pools[key])
    contents = [_recommend_scope(look_back, scope, pools) for scope, pools in by_scope.items()]
    return [content for content in contents if content is not None]


def _recommend_scope(
    look_back: LookBack, scope: str, pools: Mapping[str, Sequence[PoolHourlySeries]]
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
    if hourly_commitment < _MIN_MONTHLY_SAVING_USD / _PRICE_STEPS or any(
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
        look_back, 0, freed, cash, 1.0 if all(pool.spend.is_all_at_list_price for pool in all_pools) else None, unpriced
    )
    if saving.usd < _MIN_MONTHLY_SAVING_USD:
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
        kind="commitment",
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
                **_nodes_without_pods(all_pools, priced_hours),
            },
        ),
        confidence="medium",
        risk="high",
        risk_note=_RISK if is_any_billed(all_pools) else f"{_RISK} {_NOT_VISIBLE}",
        effort="high",
        patch="",
        current_gpus=round_cents(current),
        recommended_gpus=round_cents(max(0.0, after)),
        usd_hourly=round_cents(
            sum(pool.cost_usd[index] for pool in all_pools for index in priced_hours) / len(priced_hours)
        ),
    )


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


def _format_prices(look_back: LookBack, names: Sequence[str]) -> str:
    prices = ", ".join(_format_price(look_back, name) for name in names[:3])
    return f"{prices}{', …' if len(names) > 3 else ''} a node-hour, from the settings' rates"  # noqa: PLR2004 - a line


def _format_price(look_back: LookBack, name: str) -> str:
    price = look_back.reserved_prices[name]
    return f"{name} ${price.usd:.3f}{f' ({price.basis})' if price.basis else ''}"
