"""What all advice on node pools says alike: which pool it is about, on what it rests, what its nodes cost."""

from gpucost.features.recommendations.history import LookBack, PoolHistory
from gpucost.features.recommendations.measuring import MIN_PRICED_SHARE, NEWEST_HOURS, unpriced_facts
from gpucost.features.recommendations.model import Evidence, RecommendationSubject


def pool_subject(look_back: LookBack, pool: PoolHistory, resource: str = "") -> RecommendationSubject:
    """A pool as what advice is about."""
    key = pool.key
    return RecommendationSubject(
        look_back.cluster,
        node_pool=key.node_pool,
        instance_type=key.instance_type,
        capacity_type=key.capacity_type,
        gpu_model=key.gpu_model,
        resource=resource,
    )


def pool_evidence(look_back: LookBack, pool: PoolHistory, first: int, facts: dict[str, str]) -> Evidence:
    """What advice on a pool rests on, from the first hour that counts."""
    hours_with_nodes = [index for index in range(first, look_back.hours) if look_back.has_figures[index] and pool.nodes[index]]
    return Evidence(
        look_back.hour_at(first),
        look_back.hour_at(look_back.hours - 1),
        len(hours_with_nodes),
        look_back.hours - first - sum(look_back.has_figures[first:]),
        None,
        None,
        None,
        facts | unpriced_facts(sum(pool.unpriced[index] for index in hours_with_nodes), len(hours_with_nodes)),
    )


def has_enough_prices(look_back: LookBack, pool: PoolHistory) -> bool:
    """Whether all of it has a price in so many of its hours that something can be said of money."""
    hours_with_nodes = [index for index in range(look_back.hours) if look_back.has_figures[index] and pool.nodes[index]]
    return sum(not pool.unpriced[index] for index in hours_with_nodes) >= max(1, MIN_PRICED_SHARE * len(hours_with_nodes))


def mean_pool_cost(look_back: LookBack, pool: PoolHistory, first: int) -> float:
    """What the pool costs in an hour, mean of the hours that have a price."""
    priced = look_back.priced_hours(pool.unpriced, first)
    return sum(pool.cost[index] for index in priced) / max(1, len(priced))


def node_cost(pool: PoolHistory, index: int) -> float:
    """What one of its nodes cost in an hour; 0 where there was none."""
    return pool.cost[index] / pool.nodes[index] if pool.nodes[index] else 0.0


def newest_hours(look_back: LookBack, first: int) -> list[int]:
    """Places of the hours of the newest day that have figures."""
    return [
        index
        for index in range(max(first, look_back.hours - NEWEST_HOURS), look_back.hours)
        if look_back.has_figures[index]
    ]


def gpus_per_node(pool: PoolHistory) -> int:
    """Physical GPUs of one of its nodes: the most that an hour shows, for nodes that come or go have less."""
    return round(max((gpu_hours / nodes for gpu_hours, nodes in zip(pool.capacity, pool.nodes, strict=True) if nodes), default=0.0))


def pool_list_ratio(look_back: LookBack, pool: PoolHistory) -> float | None:
    """List price ÷ what was charged for a pool's nodes; None where the price of its instance type is not known."""
    if pool.cash.is_all_at_list_price:
        return 1.0
    list_price = look_back.list_prices.get(pool.key.instance_type)
    priced = look_back.priced_hours(pool.unpriced)
    cost = sum(pool.cost[index] for index in priced)
    nodes = sum(pool.nodes[index] for index in priced)
    return None if list_price is None or not cost else list_price * nodes / cost
