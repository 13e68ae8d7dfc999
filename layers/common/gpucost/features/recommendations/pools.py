"""What recommendations say about node pools: subject, evidence, node costs, and when freed GPUs become cash."""

from collections.abc import Callable

from gpucost.features.recommendations.history import LookBack, PoolHourlySeries
from gpucost.features.recommendations.measuring import (
    MIN_PRICED_SHARE,
    NEWEST_HOURS,
    WorkloadMeasures,
    estimate_saving,
    unpriced_facts,
)
from gpucost.features.recommendations.model import Evidence, RecommendationSubject, Saving, format_count


def pool_subject(look_back: LookBack, pool: PoolHourlySeries, resource: str = "") -> RecommendationSubject:
    """The subject of recommendations for a pool."""
    key = pool.key
    return RecommendationSubject(
        look_back.cluster,
        node_pool=key.node_pool,
        instance_type=key.instance_type,
        capacity_type=key.capacity_type,
        gpu_model=key.gpu_model,
        resource=resource,
    )


def pool_evidence(look_back: LookBack, pool: PoolHourlySeries, first: int, facts: dict[str, str]) -> Evidence:
    """The evidence of a recommendation for a pool, from the first hour that counts."""
    hours_with_nodes = [
        index for index in range(first, look_back.hours) if look_back.has_figures[index] and pool.node_counts[index]
    ]
    return Evidence(
        look_back.hour_at(first),
        look_back.hour_at(look_back.hours - 1),
        len(hours_with_nodes),
        look_back.hours - first - sum(look_back.has_figures[first:]),
        None,
        None,
        None,
        facts | unpriced_facts(sum(pool.is_unpriced[index] for index in hours_with_nodes), len(hours_with_nodes)),
    )


def has_enough_prices(look_back: LookBack, pool: PoolHourlySeries) -> bool:
    """Whether enough of a pool's hours are completely priced for an estimate of amounts."""
    hours_with_nodes = [
        index for index in range(look_back.hours) if look_back.has_figures[index] and pool.node_counts[index]
    ]
    return sum(not pool.is_unpriced[index] for index in hours_with_nodes) >= max(
        1, MIN_PRICED_SHARE * len(hours_with_nodes)
    )


def mean_pool_cost(look_back: LookBack, pool: PoolHourlySeries, first: int) -> float:
    """The mean cost of a pool per hour, over its priced hours."""
    priced = look_back.priced_hour_indexes(pool.is_unpriced, first)
    return sum(pool.cost_usd[index] for index in priced) / max(1, len(priced))


def mean_node_cost(pool: PoolHourlySeries, index: int) -> float:
    """The mean cost of a pool's nodes in an hour; 0 without nodes."""
    return pool.cost_usd[index] / pool.node_counts[index] if pool.node_counts[index] else 0.0


def newest_hour_indexes(look_back: LookBack, first: int) -> list[int]:
    """Indexes of the newest day's hours that have figures."""
    return [
        index
        for index in range(max(first, look_back.hours - NEWEST_HOURS), look_back.hours)
        if look_back.has_figures[index]
    ]


def gpus_per_node(pool: PoolHourlySeries) -> int:
    """Physical GPUs per node: the maximum over all hours, because nodes that start or stop count only in part."""
    return round(
        max(
            (
                gpu_hours / nodes
                for gpu_hours, nodes in zip(pool.capacity_gpu_hours, pool.node_counts, strict=True)
                if nodes
            ),
            default=0.0,
        )
    )


def pool_list_price_ratio(look_back: LookBack, pool: PoolHourlySeries) -> float | None:
    """List price ÷ what was charged for a pool's nodes; None if its list price is not known."""
    if pool.spend.is_all_at_list_price:
        return 1.0
    list_price = look_back.list_prices.get(pool.key.instance_type)
    priced = look_back.priced_hour_indexes(pool.is_unpriced)
    cost = sum(pool.cost_usd[index] for index in priced)
    nodes = sum(pool.node_counts[index] for index in priced)
    return None if list_price is None or not cost else list_price * nodes / cost


def estimate_pool_saving(
    look_back: LookBack, pool: PoolHourlySeries, first: int, freed_by_hour: Callable[[int], tuple[float, float]]
) -> Saving:
    """Estimate the saving of a change that removes nodes of a pool; see `estimate_saving`."""
    cash, list_ratio = pool.spend.avoidable_share(), pool_list_price_ratio(look_back, pool)
    return estimate_saving(look_back, first, freed_by_hour, cash, list_ratio, pool.is_unpriced)


def workload_cash_share(look_back: LookBack, measures: WorkloadMeasures, freed: float) -> float | None:
    """The part of a saving that leaves the bill; None if it is not known.

    Freed GPUs become cash when their node is removed. That is not known for fewer GPUs than a node has.
    """
    share = measures.history.spend.avoidable_share()
    return None if share and freed < largest_node_gpus(look_back, measures) else share


def largest_node_gpus(look_back: LookBack, measures: WorkloadMeasures) -> int:
    """GPUs of the largest node on which the workload runs."""
    return max((gpus_per_node(look_back.pools[pool]) for pool in measures.history.gpu_millihours_by_pool), default=0)


def cash_fact(look_back: LookBack, measures: WorkloadMeasures, freed: float) -> dict[str, str]:
    """A fact that freed GPUs are no cash yet; empty if they are a whole node."""
    node_gpus = largest_node_gpus(look_back, measures)
    if freed >= node_gpus:
        return {}
    return {
        "cash": f"when a node is removed: {format_count(freed)} of {node_gpus} GPUs become free, others may be held"
    }
