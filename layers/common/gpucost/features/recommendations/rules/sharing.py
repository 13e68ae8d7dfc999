"""GPUs that several workloads could take turns on (time-slicing, MPS), because they are busy at different hours.

Only pods that have a whole GPU each, whose use and memory are known, and whole nodes that go. Hours are means: two
that are busy in the same minutes of different hours' means still meet, and nothing keeps one from the other's memory,
so confidence is never high. Where a GPU can be cut into MIG slices, those are advised unless sharing saves more.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from gpucost.core.metering.gpu_models import memory_gb
from gpucost.features.recommendations.history import LookBack, PoolHistory, PoolKey
from gpucost.features.recommendations.measuring import Measured, about_workload, saving_of
from gpucost.features.recommendations.model import About, Advice, cents, counted
from gpucost.features.recommendations.patches import sharing_patch
from gpucost.features.recommendations.pools import (
    about_pool,
    evidence_of_pool,
    gpus_of_node,
    is_priced,
    list_ratio_of_pool,
    newest_hours,
    node_hourly,
    usd_hourly,
)
from gpucost.features.recommendations.rules.rightsizing import SURE_COVERAGE, SURE_HOURS
from gpucost.features.recommendations.rules.sharing_groups import EXACT, Sharer, groups

TARGET: Final = 0.70
"""Of a GPU, by all its pods together in their busiest hour."""
MEMORY_SPARE: Final = 1.10
"""A GPU's memory over the sum of the largest ever used."""
LEAST_MEMORY: Final = 0.9
"""Part of the GPU-hours whose memory must have been seen."""
MOST_PODS: Final = 400
"""Of a pool; of more, those of the first workloads by name."""
_USABLE = 0.9
"""Of a GPU's nominal GB, in GiB: an A10G of 24 GB has 22.5, and each process' context takes its part."""
_LEAST_USD = 1.0
_SHOWN = 3
_GIB = 2**30
_RISK = (
    "Hourly means do not show minutes: who is busy at once takes turns, and slows down. No memory isolation: one pod "
    "that takes more ends the others' work."
)


@dataclass(frozen=True, slots=True)
class Shared:
    """A pool's plan, and whose pods are in it."""

    advice: Advice
    pool: PoolKey
    workloads: frozenset[About]


def share_gpus(look: LookBack, measured: Sequence[Measured], taken: set[About]) -> list[Shared]:
    """Plans of pools.

    Args:
        look: the look-back.
        measured: workloads of which enough is known.
        taken: workloads that something else is advised of.
    """
    by_pool: dict[PoolKey, list[Measured]] = {}
    for one in measured:
        if about_workload(look.cluster, one.history) not in taken and _can_share(one):
            by_pool.setdefault(next(iter(one.history.pools)), []).append(one)
    found = [_pool(look, look.pools[key], by_pool[key]) for key in sorted(by_pool)]
    return [one for one in found if one is not None]


def _can_share(one: Measured) -> bool:
    """Whether each of its pods has one whole GPU of one pool, and its use and memory are known."""
    history = one.history
    return (
        history.units_per_pod == 1
        and history.share == 1.0
        and one.now > 0
        and one.pod_peak >= 0
        and len(history.pools) == 1
        and history.memory_known >= LEAST_MEMORY * sum(history.held[one.first :])
        and memory_gb(history.key.gpu_model) is not None
    )


def _pool(look: LookBack, pool: PoolHistory, own: Sequence[Measured]) -> Shared | None:
    gpus, model = gpus_of_node(pool), pool.key.gpu_model
    memory = (memory_gb(model) or 0) * _GIB * _USABLE / MEMORY_SPARE
    pods = [one for one in _pods(look, own) if max(one.use) <= TARGET and one.memory <= memory]
    found = [group for group in groups(pods, TARGET, memory) if len(group) > 1]
    if not found or not gpus or not is_priced(look, pool):
        return None
    there = [[pods[place] for place in group] for group in found]
    whole = [sum(round(size * count) for size, count in hour) for hour in pool.pods]
    moved = [sum(one.is_there[place] for group in there for one in group) for place in range(look.hours)]
    shared = [sum(any(one.is_there[place] for one in group) for group in there) for place in range(look.hours)]
    first = min(one.first for one in own)

    def nodes(place: int) -> tuple[int, int]:
        """Nodes before and after."""
        return ceil(whole[place] / gpus), ceil((whole[place] - moved[place] + shared[place]) / gpus)

    def freed(place: int) -> tuple[float, float]:
        before, after = nodes(place)
        return (before - after) * node_hourly(pool, place), float((before - after) * gpus)

    saving = saving_of(look, first, freed, pool.cash.share(), list_ratio_of_pool(look, pool), pool.unpriced)
    newest = newest_hours(look, first)
    before, after = (sum(nodes(place)[which] for place in newest) / max(1, len(newest)) for which in (0, 1))
    if saving.usd < _LEAST_USD or before <= after:
        return None
    names = [[own[one.workload].history.key.name for one in group] for group in there]
    busiest = max(sum(one.use[place] for one in group) for group in there for place in range(look.hours))
    fullest = max(sum(one.memory for one in group) for group in there)
    replicas = max(len(group) for group in there)
    sure = min(one.hours for one in own) >= SURE_HOURS and min(one.coverage for one in own) >= SURE_COVERAGE
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    advice = Advice(
        "sharing", about_pool(look, pool),
        f"Let {sum(map(len, names))} pods take turns on {len(names)} GPU{'s' if len(names) > 1 else ''} of node pool "
        f"{pool.key.node_pool or '(none)'} (time-slicing or MPS, {replicas} replicas): {counted(before)} "
        f"{pool.key.instance_type} nodes become {counted(after)}",
        saving,
        evidence_of_pool(
            look, pool, first, {
                "together": "; ".join(" + ".join(group) for group in names[:_SHOWN]) + more,
                "replayed": f"{sum(look.known[first:])} hours: no GPU was used more than {busiest:.0%} in any",
                "GPU memory": f"{fullest / _GIB:.1f} GiB at most of {memory_gb(model)} GB",
                "grouped": "exactly" if len(pods) <= EXACT else "by first fit: maybe not the fewest GPUs",
            },
        ),
        "medium" if sure else "low", "high", _RISK, "high", sharing_patch(pool.key.node_pool, replicas),
        cents(before), cents(after), cents(usd_hourly(look, pool, first)),
    )  # fmt: skip
    workloads = {about_workload(look.cluster, own[one.workload].history) for group in there for one in group}
    return Shared(advice, pool.key, frozenset(workloads))


def _pods(look: LookBack, own: Sequence[Measured]) -> list[Sharer]:
    """The first, second … pod of each workload, each as busy as the busiest; fully busy where nobody saw it."""
    found: list[Sharer] = []
    for number, one in enumerate(own):
        history = one.history
        for place in range(history.pods_at_once()):
            is_there = [count > place for count in history.pods]
            use = [
                (1.0 if busy < 0 else busy) if there else 0.0
                for there, busy in zip(is_there, history.busiest, strict=True)
            ]
            found.append(Sharer(number, use, history.memory_peak, is_there))
    return found[:MOST_PODS]
