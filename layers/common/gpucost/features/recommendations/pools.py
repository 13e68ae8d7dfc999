"""What all recommendations for node pools share: their subject, evidence and node costs."""

from gpucost.features.recommendations.history import LookBack, PoolHourlySeries
from gpucost.features.recommendations.measuring import MIN_PRICED_SHARE, NEWEST_HOURS, unpriced_facts
from gpucost.features.recommendations.model import Evidence, RecommendationSubject


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
