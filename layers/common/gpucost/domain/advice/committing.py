"""Commitments: nodes of an instance type that are nearly always there, at the reserved price that the settings give."""

from typing import Final

from gpucost.domain.advice.history import LookBack, PoolHistory
from gpucost.domain.advice.measuring import LEAST_KNOWN, saving_of
from gpucost.domain.advice.model import About, Advice, Evidence, cents
from gpucost.domain.advice.packing import gpus_of_node

LEAST_HOURS: Final = 672
"""Four weeks: what is bought for a year must have been there for more than a good week."""
STEADY: Final = 0.95
"""Part of the hours in which a node of the floor must have been there."""
_RISK = "It binds for a year or three. Do the other recommendations first: what they free need not be committed to."
_LEAST_USD = 1.0
_DAY = 24


def commit(look: LookBack) -> list[Advice]:
    """Instance types with a steady floor on demand whose reserved price is known and lower."""
    by_type: dict[str, list[PoolHistory]] = {}
    for key in sorted(look.pools):
        if key.capacity_type == "on-demand":
            by_type.setdefault(key.instance_type, []).append(look.pools[key])
    found = [_type(look, name, by_type[name]) for name in by_type if name in look.reserved_prices]
    return [one for one in found if one is not None]


def _type(look: LookBack, name: str, pools: list[PoolHistory]) -> Advice | None:
    known = [place for place in range(look.hours) if look.known[place]]
    gpus = max(gpus_of_node(pool) for pool in pools)
    if len(known) < max(LEAST_HOURS, LEAST_KNOWN * look.hours) or not gpus or any(pool.has_unknown for pool in pools):
        return None
    there = [sum(pool.capacity[place] for pool in pools) / gpus for place in range(look.hours)]
    cost = [sum(pool.cost[place] for pool in pools) for place in range(look.hours)]
    ranked = sorted(there[place] for place in known)
    floor = int(ranked[int((1 - STEADY) * len(ranked))] + 1e-6)
    price = look.reserved_prices[name]
    if floor < 1 or any(there[place] < 1 for place in known[-_DAY:]):
        return None

    def freed(place: int) -> tuple[float, float]:
        """What the floor cost on demand, less what it costs whether it is there or not."""
        covered = min(floor, there[place])
        rate = cost[place] / there[place] if there[place] else 0.0
        return covered * rate - floor * price, 0.0

    shares = [pool.cash.share() for pool in pools]
    cash = None if None in shares else min(share for share in shares if share is not None)
    listed = 1.0 if all(pool.cash.is_listed for pool in pools) else None
    saving = saving_of(look, 0, freed, cash, listed)
    if saving.usd < _LEAST_USD:
        return None
    newest = [there[place] for place in known[-_DAY:]]
    now = sum(newest) / len(newest)
    about = About(look.cluster, instance_type=name, capacity_type="on-demand", gpu_model=pools[0].key.gpu_model)
    used = sum(min(floor, there[place]) for place in known) / (floor * len(known))
    return Advice(
        "commitment", about,
        f"Commit to {floor} {name} node{'s' if floor > 1 else ''}: in {STEADY:.0%} of the hours at least as many were "
        "there on demand",
        saving,
        Evidence(
            look.moment(0), look.moment(look.hours - 1), len(known), look.hours - len(known), None, None, None,
            {
                "reserved price": f"${price:.3f} a node-hour, from the settings' rates",
                "floor in use": f"{used:.1%} of its hours",
                "nodes": f"{min(ranked):.3g} to {max(ranked):.3g}",
            },
        ),
        "medium", "high", _RISK, "high", "", cents(now), cents(max(0.0, now - floor)),
        cents(sum(cost[place] for place in known) / len(known)),
    )  # fmt: skip
