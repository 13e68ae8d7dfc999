"""Pods that wait for GPUs: how long, for how many, and the nodes with which they would not have waited.

A pod waits from its creation until it is bound to a node. What more nodes would have changed is played through: pods
take the added nodes, or places that others thereby left, in the order in which they came, hold them as long as the
ledger says that they held GPUs later, and start no later than they did. It is a schedule that was possible, so what is
claimed is there to save; the scheduler may do better. Costs of waiting and of capacity stand side by side; which is
dearer is for people.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpucost.core.hours import HOUR
from gpucost.features.recommendations.history import LookBack, PoolHistory, PoolKey, Wait
from gpucost.features.recommendations.measuring import estimate_saving
from gpucost.features.recommendations.model import (
    HOURS_OF_MONTH,
    Evidence,
    RecommendationContent,
    format_count,
    round_cents,
)
from gpucost.features.recommendations.pools import (
    gpus_per_node,
    has_enough_prices,
    mean_pool_cost,
    newest_hours,
    pool_list_ratio,
    pool_subject,
)

LEAST_DAYS: Final = 7
"""Days on which somebody saw who waited."""
LEAST_WAITED: Final = 2
"""Days on which pods that waited came: one is an incident."""
LEAST_WAIT: Final = 0.25
"""Hours: a node that Karpenter starts takes minutes to come, and pods wait for it however many there are."""
SERVED: Final = 0.9
"""Part of the GPU-hours waited that the added nodes must save."""
MOST_NODES: Final = 100
MOST_PODS: Final = 20_000
"""Of a pool; beyond either nothing is played through, and nothing advised."""
_SURE_DAYS = 14
_LEAST_USD = 1.0
_SHOWN = 3
_RISK = (
    "It costs money. Where a quota, a node pool's limit, a taint or a scheduling gate made them wait, nodes change "
    "nothing: see the pods' events."
)


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod over all the days that it waited."""

    namespace: str
    pod: str
    units: int
    arrived: float
    """Hours since the look-back began."""
    waited: float
    """Hours."""
    runs: float
    """Hours for which it holds its GPUs once it has them."""


def recommend_capacity(look_back: LookBack) -> list[RecommendationContent]:
    """Pools that pods waited for.

    None is given where waiting was seen on fewer than seven days, where it was of one day alone, or where no pool of
    the look-back had what pods asked for: nobody knows what that would cost.
    """
    if len(look_back.waits) < LEAST_DAYS:
        return []
    by_pool: dict[tuple[PoolKey, str], list[PendingPod]] = {}
    pools = _Pools(look_back)
    for resource, one in pending_pods(look_back):
        pool = pools.of(one.namespace, resource)
        if pool is not None:
            by_pool.setdefault((pool, resource), []).append(one)
    found = [
        _pool(look_back, look_back.pools[key], resource, own, pools) for (key, resource), own in sorted(by_pool.items())
    ]
    return [one for one in found if one is not None]


def pending_pods(look_back: LookBack) -> list[tuple[str, PendingPod]]:
    """Every pod that waited for longer than a node takes to start, by arrival, with the resource that it asks for.

    A pod that never ran in the look-back is taken to run as long as others that waited for the resource did, and where
    none did, to the end.
    """
    waits: dict[tuple[str, str], list[tuple[int, float]]] = {}
    named: dict[tuple[str, str], Wait] = {}
    for day in sorted(look_back.waits):
        begin = (day - look_back.start) // HOUR
        for wait in look_back.waits[day]:
            key = wait.uid, wait.resource
            named[key] = wait
            waits.setdefault(key, []).extend((begin + hour, part) for hour, part in wait.hours)
    known: dict[str, list[float]] = {}
    for uid, resource in waits:
        if look_back.run_hours.get(uid):
            known.setdefault(resource, []).append(look_back.run_hours[uid])
    found = []
    for (uid, resource), hours in waits.items():
        hours.sort()
        waited = sum(part for _, part in hours)
        if waited < LEAST_WAIT:
            continue
        index, part = hours[0]
        # It waited the last part of the hour in which it came, if it went on waiting.
        arrived = index + (1 - part if len(hours) > 1 else 0.0)
        runs = look_back.run_hours.get(uid) or (
            sum(known[resource]) / len(known[resource]) if resource in known else max(1.0, look_back.hours - arrived)
        )
        wait = named[uid, resource]
        found.append((resource, PendingPod(wait.namespace, wait.pod, wait.units, arrived, waited, runs)))
    return sorted(found, key=lambda one: (one[1].arrived, one[1].namespace, one[1].pod))


def remaining_wait(own: Sequence[PendingPod], nodes: int, slots: int) -> float:
    """Unit-hours that pods would still have waited with more nodes.

    Args:
        own: by arrival; none overtakes another.
        nodes: added.
        slots: units that a node has.
    """
    free = [[0.0] * slots for _ in range(nodes)]
    """Of each added node: when each of its units is free, soonest first."""
    vacated: list[tuple[float, float, int]] = []
    """Where pods ran that found an earlier place: (from, to, units), soonest first."""
    left = 0.0
    for one in own:
        start = one.arrived + one.waited
        vacated = [index for index in vacated if index[1] > one.arrived]
        best = min(free, key=lambda node: node[one.units - 1]) if one.units <= slots else None
        added = start if best is None else max(one.arrived, best[one.units - 1])
        index = _earliest(vacated, one)
        at = min(start, added, start if index is None else max(one.arrived, index[0]))
        left += one.units * (at - one.arrived)
        if at == start:
            continue
        if best is not None and at == added:
            del best[: one.units]
            for _ in range(one.units):
                insort(best, at + one.runs)
        elif index is not None:
            vacated.remove(index)
            if at + one.runs < index[1]:
                insort(vacated, (at + one.runs, index[1], index[2]))
        insort(vacated, (start, start + one.runs, one.units))
    return left


def _earliest(vacated: Sequence[tuple[float, float, int]], one: PendingPod) -> tuple[float, float, int] | None:
    """The first place that is free for as long as a pod runs."""
    fitting = (
        index for index in vacated if index[2] >= one.units and max(one.arrived, index[0]) + one.runs <= index[1]
    )
    return next(fitting, None)


def fewest_nodes(own: Sequence[PendingPod], slots: int) -> int | None:
    """The fewest nodes that save nine tenths of the waiting; None where so many as are looked at do not."""
    allowed = (1 - SERVED) * sum(one.units * one.waited for one in own) + 1e-9
    low, high = 1, MOST_NODES
    if len(own) > MOST_PODS or remaining_wait(own, high, slots) > allowed:
        return None
    while low < high:
        middle = (low + high) // 2
        if remaining_wait(own, middle, slots) <= allowed:
            high = middle
        else:
            low = middle + 1
    return low


class _Pools:
    """Which pool serves whom: where most of what a namespace held of a resource was; else anybody."""

    def __init__(self, look_back: LookBack) -> None:
        self._of: dict[tuple[str, str], Counter[PoolKey]] = {}
        self._shares: dict[tuple[PoolKey, str], Counter[float]] = {}
        for key, history in look_back.workloads.items():
            for pool, held in history.pools.items():
                for namespace in (key.namespace, ""):
                    self._of.setdefault((namespace, key.resource), Counter())[pool] += held
                self._shares.setdefault((pool, key.resource), Counter())[history.gpu_share] += held

    def of(self, namespace: str, resource: str) -> PoolKey | None:
        """The pool; None where nobody held such a resource."""
        found = self._of.get((namespace, resource)) or self._of.get(("", resource))
        return max(found, key=lambda key: (found[key], key)) if found else None

    def share(self, pool: PoolKey, resource: str) -> float:
        """Physical GPUs of a unit there."""
        ((share, _),) = self._shares[pool, resource].most_common(1)
        return share


def _pool(
    look_back: LookBack, pool: PoolHistory, resource: str, own: Sequence[PendingPod], pools: _Pools
) -> RecommendationContent | None:
    gpus, share = gpus_per_node(pool), pools.share(pool.key, resource)
    priced = look_back.priced_hours(pool.unpriced)
    there = sum(pool.capacity[index] for index in priced)
    days = {int(one.arrived) // 24 for one in own}
    if not gpus or not share or not there or not has_enough_prices(look_back, pool) or len(days) < LEAST_WAITED:
        return None
    nodes = fewest_nodes(own, int(gpus / share + 1e-6))
    if nodes is None:
        return None
    rate = sum(pool.cost[index] for index in priced) / there
    hours = len(look_back.waits) * 24
    waited = share * sum(one.units * one.waited for one in own)
    worth = waited / hours * HOURS_OF_MONTH * rate
    if worth < _LEAST_USD:
        return None
    left = share * remaining_wait(own, nodes, int(gpus / share + 1e-6))
    by_hour = _by_hour(own)

    def freed(_: int) -> tuple[float, float]:
        return -nodes * gpus * rate, float(-nodes * gpus)

    saving = estimate_saving(
        look_back, 0, freed, None if pool.cash.unknown else 1.0, pool_list_ratio(look_back, pool), pool.unpriced
    )
    newest = newest_hours(look_back, 0)
    now = sum(pool.nodes[index] for index in newest) / max(1, len(newest))
    longest = max(own, key=lambda one: one.waited)
    key = pool.key
    currency = next(iter(look_back.currencies), "USD")
    sign = "$" if currency == "USD" else f"{currency} "
    only_then = len(by_hour) / hours * HOURS_OF_MONTH * nodes * gpus * rate
    return RecommendationContent(
        "pending",
        pool_subject(look_back, pool, resource),
        f"Add {nodes} {key.instance_type} node{'s' if nodes > 1 else ''} to node pool {key.node_pool or '(none)'}: "
        f"{len(own)} pod{'s' if len(own) > 1 else ''} waited {waited:,.1f} GPU-hours for {resource}",
        saving,
        Evidence(
            look_back.hour_at(0),
            look_back.hour_at(look_back.hours - 1),
            hours,
            look_back.hours - hours,
            None,
            None,
            None,
            {
                "longest wait": f"{longest.waited:.1f} hours ({longest.namespace}/{longest.pod})",
                "wanted at once": f"{format_count(share * max(by_hour.values()))} GPUs, mean of the busiest hour",
                "waited by namespace": _by_namespace(own, share),
                "waiting is worth": f"{sign}{worth:,.2f} a month at {sign}{rate:.3f} a GPU-hour: at that rate alone",
                "nodes in hours of waiting only": f"{sign}{only_then:,.2f} a month",
                "replayed": f"with the nodes {left:,.1f} of {waited:,.1f} GPU-hours of waiting are left",
            },
        ),
        "medium" if len(look_back.waits) >= _SURE_DAYS else "low",
        "low",
        _RISK,
        "low",
        "",
        round_cents(now),
        round_cents(now + nodes),
        round_cents(mean_pool_cost(look_back, pool, 0)),
    )


def _by_hour(own: Iterable[PendingPod]) -> Mapping[int, float]:
    """Units that waited, by hour, as its mean."""
    found: dict[int, float] = {}
    for one in own:
        end = one.arrived + one.waited
        for hour in range(int(one.arrived), int(end - 1e-9) + 1):
            found[hour] = found.get(hour, 0.0) + one.units * (min(end, hour + 1) - max(one.arrived, hour))
    return found


def _by_namespace(own: Iterable[PendingPod], share: float) -> str:
    sums: Counter[str] = Counter()
    for one in own:
        sums[one.namespace] += round(1000 * share * one.units * one.waited)
    told = [f"{name} {sums[name] / 1000:,.1f}" for name, _ in sums.most_common(_SHOWN)]
    more = f" and {len(sums) - _SHOWN} more" if len(sums) > _SHOWN else ""
    return f"{', '.join(told)}{more}"
