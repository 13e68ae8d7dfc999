"""Node pools whose pods would fit on fewer nodes: bin packing of every hour.

Only GPUs are packed: the ledger does not know what pods ask of CPU and memory, nor affinities and disruption budgets.
First fit decreasing is exact where each size divides the next larger one and the node (1, 2, 4, 8); elsewhere it finds
a packing that is possible, on at most 11/9 of the fewest nodes (Dósa 2007), so that what is claimed is there to save.
"""

from collections.abc import Sequence
from typing import Final

from gpucost.features.recommendations.history import LookBack, PoolHistory
from gpucost.features.recommendations.measuring import LEAST_HOURS, LEAST_KNOWN, NEWEST, saving_of
from gpucost.features.recommendations.model import Advice, cents, counted
from gpucost.features.recommendations.patches import consolidation_patch
from gpucost.features.recommendations.pools import (
    about_pool,
    evidence_of_pool,
    gpus_of_node,
    is_priced,
    list_ratio_of_pool,
    usd_hourly,
)

LEAST_NODES: Final = 0.5
"""Nodes that must be spare on average; less comes and goes with the day."""
_LEAST_USD = 1.0
_SPARE = 1e-6


def consolidate(look: LookBack) -> list[Advice]:
    """Pools that could have done with fewer nodes."""
    found = [_pool(look, look.pools[key]) for key in sorted(look.pools)]
    return [one for one in found if one is not None]


def pack(pods: Sequence[tuple[float, int]], gpus: int) -> int | None:
    """Nodes that pods need, by first fit decreasing; None where a pod is larger than a node.

    Args:
        pods: (GPUs held by a pod, how many such pods), largest first.
        gpus: of a node.
    """
    free: list[float] = []
    for size, count in pods:
        if size > gpus + _SPARE:
            return None
        place = 0  # what had no room for a pod has none for the next of its size
        for _ in range(count):
            while place < len(free) and free[place] < size - _SPARE:
                place += 1
            if place == len(free):
                free.append(gpus)
            free[place] -= size
    return len(free)


def needed_nodes(look: LookBack, pool: PoolHistory, gpus: int) -> list[int] | None:
    """Nodes that each hour's pods need, those of the hours before and after too: nodes take minutes to come and go.

    Pools of slices and shared GPUs are not packed: which geometry a GPU has is not known here. Of them, the nodes on
    which nobody held anything are the ones that are not needed. None where a pod is larger than a node.
    """
    packed: list[int] = []
    known: dict[tuple[tuple[float, int], ...], int | None] = {}
    for pods in pool.pods:
        if pods not in known:
            known[pods] = pack(pods, gpus)
        count = known[pods]
        if count is None:
            return None
        packed.append(count)
    if not is_whole(pool):
        packed = list(pool.busy)
    return [max(packed[max(0, place - 1) : place + 2]) for place in range(look.hours)]


def is_whole(pool: PoolHistory) -> bool:
    """Whether its pods hold whole GPUs alone."""
    return all(abs(size - round(size)) <= _SPARE for pods in set(pool.pods) for size, _ in pods)


def _pool(look: LookBack, pool: PoolHistory) -> Advice | None:
    gpus = gpus_of_node(pool)
    places = [place for place in range(look.hours) if look.known[place] and pool.nodes[place]]
    if not gpus or not places or not is_priced(look, pool) or len(places) < LEAST_HOURS:
        return None
    first = places[0]
    known = sum(look.known[first:])
    needed = needed_nodes(look, pool, gpus) if known >= LEAST_KNOWN * (look.hours - first) else None
    if needed is None:
        return None
    # A node counts as far as it was there: one that joined for ten minutes had a sixth of its GPU-hours.
    spare = [max(0.0, pool.capacity[place] / gpus - needed[place]) for place in range(look.hours)]
    newest = [place for place in places if place >= look.hours - NEWEST]
    now = sum(pool.nodes[place] for place in newest) / max(1, len(newest))
    spare_now = sum(spare[place] for place in newest) / max(1, len(newest))
    mean = sum(spare[place] for place in places) / len(places)
    if min(mean, spare_now) < LEAST_NODES:
        return None

    def freed(place: int) -> tuple[float, float]:
        there = pool.capacity[place] / gpus
        part = spare[place] / there if there else 0.0
        return pool.cost[place] * part, pool.capacity[place] * part

    saving = saving_of(look, first, freed, pool.cash.share(), list_ratio_of_pool(look, pool), pool.unpriced)
    if saving.usd < _LEAST_USD:
        return None
    key = pool.key
    packs = is_whole(pool)
    reason = "underutilized" if packs else "empty"
    allowed = look.disruption.allowed.get((key.node_pool, reason))
    patch = consolidation_patch(key.node_pool, lets_none_go=allowed == 0)
    capacity = sum(pool.capacity) / len(places)
    unallocated = sum(pool.unallocated[place] for place in places) / len(places)
    return Advice(
        "consolidate", about_pool(look, pool),
        f"Let node pool {key.node_pool or '(none)'} consolidate its {key.instance_type} nodes: of {counted(now)}, "
        f"{counted(spare_now)} {'could have been empty with the pods packed closer' if packs else 'held no pod'}",
        saving,
        evidence_of_pool(
            look, pool, first, {
                "packed": "GPUs alone: CPU, memory, affinities and disruption budgets are not known here" if packs
                else "not at all: which slices each GPU is cut into is not known here",
                "unallocated": f"{counted(unallocated)} of {counted(capacity)} GPUs, on average",
                "GPUs of a node": str(gpus),
                "hours with a spare node": f"{sum(spare[place] >= 1 - _SPARE for place in places)} of {len(places)}",
                **_kept_by(look, key.node_pool, reason),
            },
        ),
        "medium", "medium", "Pods are moved: what must not be interrupted needs karpenter.sh/do-not-disrupt.", "low",
        patch, cents(now), cents(now - spare_now),
        cents(usd_hourly(look, pool, first)),
    )  # fmt: skip


def _kept_by(look: LookBack, node_pool: str, reason: str) -> dict[str, str]:
    """What Karpenter's metrics tell of why nodes stayed, and what they do not."""
    if not node_pool:
        return {}
    eligible, allowed = look.disruption.eligible.get(reason), look.disruption.allowed.get((node_pool, reason))
    if eligible is None:
        said = "no metric of Karpenter's tells why nodes stayed"
    elif not eligible:
        said = f"no node of the cluster was eligible as {reason} in the last week: settings, pods or PDBs kept them"
    else:
        budgets = "" if allowed is None else f"; this pool's budgets let {allowed or 'none'} go at once"
        said = f"up to {eligible} nodes of the cluster were eligible as {reason} in the last week{budgets}"
    return {
        "Karpenter": said,
        "its settings": f"no metric tells them: kubectl get nodepool {node_pool} -o jsonpath='{{.spec.disruption}}'",
    }
