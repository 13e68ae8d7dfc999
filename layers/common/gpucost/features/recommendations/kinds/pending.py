"""Recommends nodes for pods that wait for GPUs, from how long they waited and for how many.

A pod waits from its creation until it is bound to a node. A replay shows what more nodes would have changed: in order
of arrival, pods take the added nodes, or slots that other pods thereby left. They hold them as long as the ledger
shows that they later held GPUs, and start no later than they did. The replay is a valid schedule; the scheduler may do
better. The recommendation shows the cost of waiting and of capacity, and people decide.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpucost.core.hours import HOUR, HOURS_PER_MONTH
from gpucost.features.recommendations.history import COMMITTED_CAPACITY, LookBack, PodWait, PoolHourlySeries, PoolKey
from gpucost.features.recommendations.kinds.base import RecommendationKind, ReviewedCluster
from gpucost.features.recommendations.measuring import estimate_saving
from gpucost.features.recommendations.model import Evidence, RecommendationContent, format_count, round_cents
from gpucost.features.recommendations.pools import (
    gpus_per_node,
    has_enough_prices,
    mean_pool_cost,
    newest_hour_indexes,
    pool_list_price_ratio,
    pool_subject,
)

MIN_DAYS_OBSERVED: Final = 7
"""Days with metrics about waiting pods."""
MIN_DAYS_WAITED: Final = 2
"""Days on which waiting pods arrived. A single day is an incident."""
MIN_WAIT_HOURS: Final = 0.25
"""Hours. Pods always wait some minutes until Karpenter has started a node."""
SERVED_SHARE: Final = 0.9
"""Part of the waited GPU-hours that the added nodes must save."""
MAX_NODES: Final = 100
MAX_PODS: Final = 20_000
"""Waiting pods per pool. Beyond either limit there is no replay and no recommendation."""
_HIGH_CONFIDENCE_DAYS = 14
_MIN_MONTHLY_COST_USD = 1.0
_NAMESPACES_SHOWN = 3
_COST_RISK = "The nodes cost more than the waiting is worth: add them only if the delay costs you the difference. "
_RISK = (
    "It costs money. If a quota, a node pool limit, a taint or a scheduling gate made the pods wait, nodes do not "
    "help: check the pods' events."
)


@dataclass(frozen=True, slots=True)
class PendingPod:
    """A pod that waited for GPUs."""

    namespace: str
    pod: str
    units: int
    arrived: float
    """Arrival, in hours since the start of the look-back."""
    wait_hours: float
    """Hours of waiting."""
    run_hours: float
    """Hours for which it holds its GPUs after the wait."""


class _PoolChoice:
    """Chooses the pool for a pod: the one where its namespace, or else the cluster, held most of the resource."""

    def __init__(self, look_back: LookBack) -> None:
        self._gpu_hours: dict[tuple[str, str], Counter[PoolKey]] = {}
        self._shares: dict[tuple[PoolKey, str], Counter[float]] = {}
        for key, history in look_back.workloads.items():
            for pool, held in history.gpu_millihours_by_pool.items():
                for namespace in (key.namespace, ""):
                    self._gpu_hours.setdefault((namespace, key.resource), Counter())[pool] += held
                self._shares.setdefault((pool, key.resource), Counter())[history.gpu_share] += held

    def choose(self, namespace: str, resource: str) -> PoolKey | None:
        """The pool; None if no pod held such a resource."""
        gpu_hours_by_pool = self._gpu_hours.get((namespace, resource)) or self._gpu_hours.get(("", resource))
        return max(gpu_hours_by_pool, key=lambda key: (gpu_hours_by_pool[key], key)) if gpu_hours_by_pool else None

    def share(self, pool: PoolKey, resource: str) -> float:
        """Physical GPUs per unit in a pool."""
        ((share, _),) = self._shares[pool, resource].most_common(1)
        return share


class Pending(RecommendationKind):
    """Add nodes to a pool that pods wait for."""

    name = "pending"
    title = "Add nodes for waiting pods"
    when = "pods waited for GPUs on two days or more, of seven or more observed days"
    change = "the nodes that remove nine tenths of the waiting. This costs money"
    verified = "the cost of what was added, as a negative figure"

    @classmethod
    def recommend(cls, cluster: ReviewedCluster) -> Iterable[RecommendationContent | None]:
        """Recommend nodes for the pools that pods waited for.

        There is no recommendation with metrics of fewer than seven days, with waiting on one day only, or if no pool
        had the requested resource, because its cost is not known.
        """
        look_back = cluster.look_back
        if len(look_back.waits) < MIN_DAYS_OBSERVED:
            return ()
        by_pool: dict[tuple[PoolKey, str], list[PendingPod]] = {}
        pools = _PoolChoice(look_back)
        for resource, pending_pod in pending_pods(look_back):
            pool = pools.choose(pending_pod.namespace, resource)
            if pool is not None:
                by_pool.setdefault((pool, resource), []).append(pending_pod)
        return (
            cls._recommend_nodes(look_back, look_back.pools[key], resource, pending, pools)
            for (key, resource), pending in sorted(by_pool.items())
        )

    @classmethod
    def _recommend_nodes(
        cls,
        look_back: LookBack,
        pool: PoolHourlySeries,
        resource: str,
        pending: Sequence[PendingPod],
        pools: _PoolChoice,
    ) -> RecommendationContent | None:
        gpus, share = gpus_per_node(pool), pools.share(pool.key, resource)
        priced = look_back.priced_hour_indexes(pool.is_unpriced)
        gpu_hours = sum(pool.capacity_gpu_hours[index] for index in priced)
        days = {int(pod.arrived) // 24 for pod in pending}
        if (
            not gpus
            or not share
            or not gpu_hours
            or not has_enough_prices(look_back, pool)
            or len(days) < MIN_DAYS_WAITED
        ):
            return None
        nodes = fewest_nodes(pending, int(gpus / share + 1e-6))
        if nodes is None:
            return None
        pool_rate = sum(pool.cost_usd[index] for index in priced) / gpu_hours
        on_demand_rate = look_back.list_prices.get(pool.key.instance_type, 0.0) / gpus
        # A reservation has as many nodes as were bought: until more are, additional ones are on demand.
        is_on_demand = pool.key.capacity_type in COMMITTED_CAPACITY and on_demand_rate > pool_rate
        rate = on_demand_rate if is_on_demand else pool_rate
        hours = len(look_back.waits) * 24
        waited = share * sum(pod.units * pod.wait_hours for pod in pending)
        waiting_usd = waited / hours * HOURS_PER_MONTH * pool_rate
        if waiting_usd < _MIN_MONTHLY_COST_USD:
            return None
        remaining = share * remaining_wait(pending, nodes, int(gpus / share + 1e-6))
        by_hour = _units_by_hour(pending)

        def freed(_: int) -> tuple[float, float]:
            return -nodes * gpus * rate, float(-nodes * gpus)

        saving = estimate_saving(
            look_back,
            0,
            freed,
            1.0 if is_on_demand or not pool.spend.unknown else None,
            1.0 if is_on_demand else pool_list_price_ratio(look_back, pool),
            pool.is_unpriced,
        )
        newest = newest_hour_indexes(look_back, 0)
        current_nodes = sum(pool.node_counts[index] for index in newest) / max(1, len(newest))
        longest = max(pending, key=lambda pod: pod.wait_hours)
        key = pool.key
        currency = next(iter(look_back.currencies), "USD")
        sign = "$" if currency == "USD" else f"{currency} "
        costs_more = -saving.usd > round_cents(waiting_usd)
        title = (
            f"Add {nodes} {key.instance_type} node{'s' if nodes > 1 else ''} to node pool {key.node_pool or '(none)'}"
        )
        cost_while_waiting = len(by_hour) / hours * HOURS_PER_MONTH * nodes * gpus * rate
        return RecommendationContent(
            kind=cls.name,
            subject=pool_subject(look_back, pool, resource),
            title=title,
            summary=f"{title}: {len(pending)} pod{'s' if len(pending) > 1 else ''} waited {waited:,.1f} GPU-hours for "
            f"{resource}, worth {sign}{waiting_usd:,.0f} a month{', less than the nodes cost' if costs_more else ''}",
            saving=saving,
            evidence=Evidence(
                look_back.hour_at(0),
                look_back.hour_at(look_back.hours - 1),
                hours,
                look_back.hours - hours,
                None,
                None,
                None,
                {
                    "longest wait": f"{longest.wait_hours:.1f} hours ({longest.namespace}/{longest.pod})",
                    "requested at once": f"{format_count(share * max(by_hour.values()))} GPUs, mean of the busiest "
                    "hour",
                    "waited by namespace": _format_namespaces(pending, share),
                    "value of the waiting": f"{sign}{waiting_usd:,.2f} a month: the waited GPU-hours at "
                    f"{sign}{pool_rate:.3f}, the pool's rate",
                    "price of a node": f"{sign}{rate * gpus:.3f} an hour, "
                    + (
                        f"on demand: a reservation has no further nodes (a reserved one: {sign}{pool_rate * gpus:.3f})"
                        if is_on_demand
                        else "as the pool's nodes"
                    ),
                    "nodes in hours of waiting only": f"{sign}{cost_while_waiting:,.2f} a month",
                    "replay": f"with the nodes, {remaining:,.1f} of {waited:,.1f} GPU-hours of waiting remain",
                },
            ),
            confidence="medium" if len(look_back.waits) >= _HIGH_CONFIDENCE_DAYS else "low",
            risk="high" if costs_more else "low",
            risk_note=f"{_COST_RISK}{_RISK}" if costs_more else _RISK,
            effort="low",
            patch="",
            current_gpus=round_cents(current_nodes),
            recommended_gpus=round_cents(current_nodes + nodes),
            usd_hourly=round_cents(mean_pool_cost(look_back, pool, 0)),
            worth_usd=round_cents(waiting_usd),
        )


def pending_pods(look_back: LookBack) -> list[tuple[str, PendingPod]]:
    """The pods that waited longer than a node needs to start, by arrival, each with the resource that it requests.

    A pod that did not run in the look-back is assumed to run as long as the other pods that waited for the resource; if
    there are none, until the end.
    """
    waits: dict[tuple[str, str], list[tuple[int, float]]] = {}
    wait_by_pod: dict[tuple[str, str], PodWait] = {}
    for day in sorted(look_back.waits):
        first_hour = (day - look_back.start) // HOUR
        for wait in look_back.waits[day]:
            key = wait.uid, wait.resource
            wait_by_pod[key] = wait
            waits.setdefault(key, []).extend((first_hour + hour, part) for hour, part in wait.hours)
    run_hours: dict[str, list[float]] = {}
    for uid, resource in waits:
        if look_back.run_hours.get(uid):
            run_hours.setdefault(resource, []).append(look_back.run_hours[uid])
    pending = []
    for (uid, resource), hours in waits.items():
        hours.sort()
        waited = sum(part for _, part in hours)
        if waited < MIN_WAIT_HOURS:
            continue
        index, part = hours[0]
        # If it waited on in the next hour, it waited for the last part of the hour in which it arrived.
        arrived = index + (1 - part if len(hours) > 1 else 0.0)
        runs = look_back.run_hours.get(uid) or (
            sum(run_hours[resource]) / len(run_hours[resource])
            if resource in run_hours
            else max(1.0, look_back.hours - arrived)
        )
        wait = wait_by_pod[uid, resource]
        pending.append((resource, PendingPod(wait.namespace, wait.pod, wait.units, arrived, waited, runs)))
    return sorted(pending, key=lambda entry: (entry[1].arrived, entry[1].namespace, entry[1].pod))


def remaining_wait(pending: Sequence[PendingPod], nodes: int, units_per_node: int) -> float:
    """The unit-hours that pods would still have waited with more nodes.

    Args:
        pending: the pods by arrival; none overtakes another.
        nodes: number of added nodes.
        units_per_node: units of a node.
    """
    free_at = [[0.0] * units_per_node for _ in range(nodes)]
    """For each added node: when each of its units becomes free, soonest first."""
    vacated: list[tuple[float, float, int]] = []
    """Slots of pods that started earlier in the replay: (from, to, units), soonest first."""
    total_wait = 0.0
    for pod in pending:
        start = pod.arrived + pod.wait_hours
        vacated = [slot for slot in vacated if slot[1] > pod.arrived]
        best_node = min(free_at, key=lambda node: node[pod.units - 1]) if pod.units <= units_per_node else None
        on_added_node = start if best_node is None else max(pod.arrived, best_node[pod.units - 1])
        slot = _earliest_slot(vacated, pod)
        started = min(start, on_added_node, start if slot is None else max(pod.arrived, slot[0]))
        total_wait += pod.units * (started - pod.arrived)
        if started == start:
            continue
        if best_node is not None and started == on_added_node:
            del best_node[: pod.units]
            for _ in range(pod.units):
                insort(best_node, started + pod.run_hours)
        elif slot is not None:
            vacated.remove(slot)
            if started + pod.run_hours < slot[1]:
                insort(vacated, (started + pod.run_hours, slot[1], slot[2]))
        insort(vacated, (start, start + pod.run_hours, pod.units))
    return total_wait


def _earliest_slot(vacated: Sequence[tuple[float, float, int]], pod: PendingPod) -> tuple[float, float, int] | None:
    """The first slot that is free for as long as a pod runs."""
    fitting = (
        slot for slot in vacated if slot[2] >= pod.units and max(pod.arrived, slot[0]) + pod.run_hours <= slot[1]
    )
    return next(fitting, None)


def fewest_nodes(pending: Sequence[PendingPod], units_per_node: int) -> int | None:
    """The fewest nodes that save nine tenths of the waiting; None if `MAX_NODES` do not suffice."""
    allowed = (1 - SERVED_SHARE) * sum(pod.units * pod.wait_hours for pod in pending) + 1e-9
    low, high = 1, MAX_NODES
    if len(pending) > MAX_PODS or remaining_wait(pending, high, units_per_node) > allowed:
        return None
    while low < high:
        middle = (low + high) // 2
        if remaining_wait(pending, middle, units_per_node) <= allowed:
            high = middle
        else:
            low = middle + 1
    return low


def _units_by_hour(pending: Iterable[PendingPod]) -> Mapping[int, float]:
    """The mean number of waiting units, by hour."""
    units: dict[int, float] = {}
    for pod in pending:
        end = pod.arrived + pod.wait_hours
        for hour in range(int(pod.arrived), int(end - 1e-9) + 1):
            units[hour] = units.get(hour, 0.0) + pod.units * (min(end, hour + 1) - max(pod.arrived, hour))
    return units


def _format_namespaces(pending: Iterable[PendingPod], share: float) -> str:
    sums: Counter[str] = Counter()
    for pod in pending:
        sums[pod.namespace] += round(1000 * share * pod.units * pod.wait_hours)
    parts = [f"{name} {sums[name] / 1000:,.1f}" for name, _ in sums.most_common(_NAMESPACES_SHOWN)]
    more = f" and {len(sums) - _NAMESPACES_SHOWN} more" if len(sums) > _NAMESPACES_SHOWN else ""
    return f"{', '.join(parts)}{more}"
