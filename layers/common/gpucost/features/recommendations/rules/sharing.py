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
from gpucost.features.recommendations.measuring import WorkloadMeasures, estimate_saving, workload_subject
from gpucost.features.recommendations.model import RecommendationContent, Subject, format_count, round_cents
from gpucost.features.recommendations.patches import sharing_patch
from gpucost.features.recommendations.pools import (
    gpus_per_node,
    has_enough_prices,
    mean_pool_cost,
    newest_hours,
    node_cost,
    pool_evidence,
    pool_list_ratio,
    pool_subject,
)
from gpucost.features.recommendations.rules.rightsizing import SURE_COVERAGE, SURE_HOURS
from gpucost.features.recommendations.rules.sharing_groups import EXACT, SharingPod, group_pods

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
class SharingPlan:
    """A pool's plan, and whose pods are in it."""

    content: RecommendationContent
    pool: PoolKey
    subjects: frozenset[Subject]


def recommend_sharing(
    look_back: LookBack, measured: Sequence[WorkloadMeasures], taken: set[Subject]
) -> list[SharingPlan]:
    """Plans of pools.

    Args:
        look: the look-back.
        measured: workloads of which enough is known.
        taken: workloads that something else is advised of.
    """
    by_pool: dict[PoolKey, list[WorkloadMeasures]] = {}
    for one in measured:
        if workload_subject(look_back.cluster, one.history) not in taken and _can_share(one):
            by_pool.setdefault(next(iter(one.history.pools)), []).append(one)
    found = [_pool(look_back, look_back.pools[key], by_pool[key]) for key in sorted(by_pool)]
    return [one for one in found if one is not None]


def _can_share(one: WorkloadMeasures) -> bool:
    """Whether each of its pods has one whole GPU of one pool, and its use and memory are known."""
    history = one.history
    return (
        history.units_per_pod == 1
        and history.gpu_share == 1.0
        and one.current_gpus > 0
        and one.pod_peak >= 0
        and len(history.pools) == 1
        and history.memory_gpu_hours >= LEAST_MEMORY * sum(history.held[one.first :])
        and memory_gb(history.key.gpu_model) is not None
    )


def _pool(look_back: LookBack, pool: PoolHistory, own: Sequence[WorkloadMeasures]) -> SharingPlan | None:
    gpus, model = gpus_per_node(pool), pool.key.gpu_model
    memory = (memory_gb(model) or 0) * _GIB * _USABLE / MEMORY_SPARE
    pods = [one for one in _pods(look_back, own) if max(one.use) <= TARGET and one.memory <= memory]
    found = [group for group in group_pods(pods, TARGET, memory) if len(group) > 1]
    if not found or not gpus or not has_enough_prices(look_back, pool):
        return None
    there = [[pods[index] for index in group] for group in found]
    whole = [sum(round(size * count) for size, count in hour) for hour in pool.pods]
    moved = [sum(one.is_there[index] for group in there for one in group) for index in range(look_back.hours)]
    shared = [sum(any(one.is_there[index] for one in group) for group in there) for index in range(look_back.hours)]
    first = min(one.first for one in own)

    def nodes(index: int) -> tuple[int, int]:
        """Nodes before and after."""
        return ceil(whole[index] / gpus), ceil((whole[index] - moved[index] + shared[index]) / gpus)

    def freed(index: int) -> tuple[float, float]:
        before, after = nodes(index)
        return (before - after) * node_cost(pool, index), float((before - after) * gpus)

    saving = estimate_saving(
        look_back, first, freed, pool.cash.cash_share(), pool_list_ratio(look_back, pool), pool.unpriced
    )
    newest = newest_hours(look_back, first)
    before, after = (sum(nodes(index)[which] for index in newest) / max(1, len(newest)) for which in (0, 1))
    if saving.usd < _LEAST_USD or before <= after:
        return None
    names = [[own[one.workload].history.key.name for one in group] for group in there]
    busiest = max(sum(one.use[index] for one in group) for group in there for index in range(look_back.hours))
    fullest = max(sum(one.memory for one in group) for group in there)
    replicas = max(len(group) for group in there)
    sure = min(one.hours for one in own) >= SURE_HOURS and min(one.coverage for one in own) >= SURE_COVERAGE
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    advice = RecommendationContent(
        "sharing",
        pool_subject(look_back, pool),
        f"Let {sum(map(len, names))} pods take turns on {len(names)} GPU{'s' if len(names) > 1 else ''} of node pool "
        f"{pool.key.node_pool or '(none)'} (time-slicing or MPS, {replicas} replicas): {format_count(before)} "
        f"{pool.key.instance_type} nodes become {format_count(after)}",
        saving,
        pool_evidence(
            look_back,
            pool,
            first,
            {
                "together": "; ".join(" + ".join(group) for group in names[:_SHOWN]) + more,
                "replayed": f"{sum(look_back.has_figures[first:])} hours: no GPU was used more than {busiest:.0%} in any",
                "GPU memory": f"{fullest / _GIB:.1f} GiB at most of {memory_gb(model)} GB",
                "grouped": "exactly" if len(pods) <= EXACT else "by first fit: maybe not the fewest GPUs",
            },
        ),
        "medium" if sure else "low",
        "high",
        _RISK,
        "high",
        sharing_patch(pool.key.node_pool, replicas),
        round_cents(before),
        round_cents(after),
        round_cents(mean_pool_cost(look_back, pool, first)),
    )
    workloads = {workload_subject(look_back.cluster, own[one.workload].history) for group in there for one in group}
    return SharingPlan(advice, pool.key, frozenset(workloads))


def _pods(look_back: LookBack, own: Sequence[WorkloadMeasures]) -> list[SharingPod]:
    """The first, second … pod of each workload, each as busy as the busiest; fully busy where nobody saw it."""
    found: list[SharingPod] = []
    for number, one in enumerate(own):
        history = one.history
        for index in range(history.max_concurrent_pods()):
            is_there = [count > index for count in history.pods]
            use = [
                (1.0 if busy < 0 else busy) if there else 0.0
                for there, busy in zip(is_there, history.busiest, strict=True)
            ]
            found.append(SharingPod(number, use, history.memory_peak, is_there))
    return found[:MOST_PODS]
