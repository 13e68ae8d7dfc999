"""What all advice on node pools says alike: which pool it is about, on what it rests, what its nodes cost."""

from gpucost.features.recommendations.history import LookBack, PoolHistory
from gpucost.features.recommendations.measuring import LEAST_PRICED, NEWEST, told_unpriced
from gpucost.features.recommendations.model import About, Evidence


def about_pool(look: LookBack, pool: PoolHistory, resource: str = "") -> About:
    """A pool as what advice is about."""
    key = pool.key
    return About(
        look.cluster, node_pool=key.node_pool, instance_type=key.instance_type, capacity_type=key.capacity_type,
        gpu_model=key.gpu_model, resource=resource,
    )  # fmt: skip


def evidence_of_pool(look: LookBack, pool: PoolHistory, first: int, facts: dict[str, str]) -> Evidence:
    """What advice on a pool rests on, from the first hour that counts."""
    there = [place for place in range(first, look.hours) if look.known[place] and pool.nodes[place]]
    return Evidence(
        look.moment(first), look.moment(look.hours - 1), len(there), look.hours - first - sum(look.known[first:]),
        None, None, None, facts | told_unpriced(sum(pool.unpriced[place] for place in there), len(there)),
    )  # fmt: skip


def is_priced(look: LookBack, pool: PoolHistory) -> bool:
    """Whether all of it has a price in so many of its hours that something can be said of money."""
    there = [place for place in range(look.hours) if look.known[place] and pool.nodes[place]]
    return sum(not pool.unpriced[place] for place in there) >= max(1, LEAST_PRICED * len(there))


def usd_hourly(look: LookBack, pool: PoolHistory, first: int) -> float:
    """What the pool costs in an hour, mean of the hours that have a price."""
    priced = look.priced(pool.unpriced, first)
    return sum(pool.cost[place] for place in priced) / max(1, len(priced))


def node_hourly(pool: PoolHistory, place: int) -> float:
    """What one of its nodes cost in an hour; 0 where there was none."""
    return pool.cost[place] / pool.nodes[place] if pool.nodes[place] else 0.0


def newest_hours(look: LookBack, first: int) -> list[int]:
    """Places of the hours of the newest day that have figures."""
    return [place for place in range(max(first, look.hours - NEWEST), look.hours) if look.known[place]]


def gpus_of_node(pool: PoolHistory) -> int:
    """Physical GPUs of one of its nodes: the most that an hour shows, for nodes that come or go have less."""
    return round(max((c / n for c, n in zip(pool.capacity, pool.nodes, strict=True) if n), default=0.0))


def list_ratio_of_pool(look: LookBack, pool: PoolHistory) -> float | None:
    """List price ÷ what was charged for a pool's nodes; None where the price of its instance type is not known."""
    if pool.cash.is_listed:
        return 1.0
    node_hour = look.list_prices.get(pool.key.instance_type)
    priced = look.priced(pool.unpriced)
    cost = sum(pool.cost[place] for place in priced)
    nodes = sum(pool.nodes[place] for place in priced)
    return None if node_hour is None or not cost else node_hour * nodes / cost
