"""Whether a commitment that was advised is there: what prices and capacity tell of it.

Kubernetes knows no Savings Plan and no Reserved Instance: they are discounts of the bill. Two things show one:

- nodes whose capacity type turns `reserved` (an On-Demand Capacity Reservation);
- what nodes on demand are charged, where the bill (`cur`) or a price set for them says so: at a rate between the
  reserved price and the one before, so many of them are covered that the rate is the mean of both,

      covered = nodes × (rate before − rate) ÷ (rate before − reserved price)

Where the bill prices a pool, hours that it does not price yet tell nothing. A price list or constant that falls is
nobody's commitment: at such prices nothing is covered.
"""

from collections.abc import Sequence
from typing import Final

from gpucost.features.recommendations.history import LookBack, PoolHistory
from gpucost.features.recommendations.model import Advice
from gpucost.features.recommendations.pools import gpus_of_node, node_hourly
from gpucost.features.recommendations.verification import SubjectHour

_FULL: Final = 0.95
"""Of what was advised: as much counts as all of it."""
_DAY = 24


def is_of(scope: str, instance_type: str) -> bool:
    """Whether a commitment to a type, or to a family as `g5.*`, covers an instance type."""
    return instance_type == scope or (scope.endswith(".*") and instance_type.startswith(scope[:-1]))


def uncovered(look: LookBack, advice: Advice) -> list[float | None] | None:
    """Nodes (of a family: GPUs) that would be on demand, by hour: what was there, less what is covered of the floor.

    None for hours of which it cannot be told; None altogether where nothing of the type or family is left.
    """
    own = _pools(look, advice)
    if not any(any(pool.nodes[-_DAY:]) for pool in own):
        return None
    floor, then = float(advice.gpus_now - advice.gpus_then), float(advice.gpus_then)
    reserved = [
        sum(pool.nodes[place] * _weight(advice, pool) for pool in own if pool.key.capacity_type == "reserved")
        for place in range(look.hours)
    ]
    least = min((amount for amount, known in zip(reserved, look.known, strict=True) if known), default=0.0)
    on_demand = [(pool, _rate_before(look, pool)) for pool in own if pool.key.capacity_type == "on-demand"]
    found: list[float | None] = []
    for place in range(look.hours):
        parts = [_covered(look, pool, before, place) for pool, before in on_demand if pool.nodes[place]]
        if not look.known[place] or None in parts:
            found.append(None)
            continue
        weights = [_weight(advice, pool) for pool, _ in on_demand if pool.nodes[place]]
        covered = reserved[place] - least
        covered += sum((part or 0.0) * weight for part, weight in zip(parts, weights, strict=True))
        found.append(then if covered >= _FULL * floor else then + floor - covered)
    return found


def committed_hours(look: LookBack, advice: Advice) -> list[SubjectHour | None]:
    """What nodes on demand and reserved held and cost together."""
    own = _pools(look, advice)
    found: list[SubjectHour | None] = []
    for place, known in enumerate(look.known):
        there = [pool for pool in own if pool.nodes[place]]
        held = sum(pool.nodes[place] * _weight(advice, pool) for pool in there)
        usd = None if any(_is_open(pool, place) for pool in there) else sum(pool.cost[place] for pool in there)
        found.append(SubjectHour(held, usd, held, 0.0) if known else None)
    return found


def shows(pools: Sequence[PoolHistory]) -> bool:
    """Whether a Savings Plan or Reserved Instance would show in what these pools are charged."""
    return any(any(pool.billed) for pool in pools)


def _pools(look: LookBack, advice: Advice) -> list[PoolHistory]:
    return [
        pool
        for key, pool in look.pools.items()
        if is_of(advice.about.instance_type, key.instance_type) and key.capacity_type in {"on-demand", "reserved"}
    ]


def _weight(advice: Advice, pool: PoolHistory) -> int:
    return gpus_of_node(pool) if advice.about.instance_type.endswith(".*") else 1


def _is_open(pool: PoolHistory, place: int) -> bool:
    """Whether an hour's price is missing or provisional: the bill prices the pool, and this hour not yet."""
    return bool(pool.unpriced[place]) or (any(pool.billed) and not pool.billed[place])


def _rate_before(look: LookBack, pool: PoolHistory) -> float:
    """USD per node-hour without a commitment: the highest that is known."""
    paid = [node_hourly(pool, place) for place in look.priced(pool.unpriced)]
    return max([*paid, look.list_prices.get(pool.key.instance_type, 0.0)])


def _covered(look: LookBack, pool: PoolHistory, before: float, place: int) -> float | None:
    """Nodes of a pool on demand that are charged as committed; None where an hour's price is not known yet."""
    price = look.reserved_prices.get(pool.key.instance_type)
    if price is None:
        return 0.0
    if _is_open(pool, place):
        return None
    if not pool.telling[place]:
        return 0.0
    if before <= price.usd:
        return float(pool.nodes[place])
    return pool.nodes[place] * min(1.0, max(0.0, (before - node_hourly(pool, place)) / (before - price.usd)))
