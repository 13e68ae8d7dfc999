"""Recommends sharing GPUs (time-slicing, MPS) between workloads that are busy at different hours.

It covers pods that hold one whole GPU each and whose utilization and memory are known, if whole nodes become free.
Hours are means, so pods can still compete within an hour, and memory is not isolated. Therefore confidence is never
high. Where a GPU supports MIG, slices are recommended unless sharing saves more.
"""

from collections.abc import Sequence
from math import ceil
from typing import Final

from msgspec import Struct

from gpucost.core.metering.gpu_models import memory_gb
from gpucost.features.recommendations.fewer_nodes import enough_nodes_fact, fewer_nodes_phrase
from gpucost.features.recommendations.history import LookBack, PoolHourlySeries, PoolKey
from gpucost.features.recommendations.measuring import WorkloadMeasures, estimate_saving, workload_subject
from gpucost.features.recommendations.model import RecommendationContent, RecommendationSubject, round_cents
from gpucost.features.recommendations.patches import sharing_patch
from gpucost.features.recommendations.pools import (
    gpus_per_node,
    has_enough_prices,
    mean_node_cost,
    mean_pool_cost,
    newest_hour_indexes,
    pool_evidence,
    pool_list_price_ratio,
    pool_subject,
)
from gpucost.features.recommendations.rules.rightsizing import CERTAIN_COVERAGE, CERTAIN_HOURS
from gpucost.features.recommendations.rules.time_slicing_groups import MAX_EXACT_PODS, SharingPod, group_pods

TARGET: Final = 0.70
"""Utilization of a GPU by all its pods in the busiest hour."""
MEMORY_SPARE: Final = 1.10
"""GPU memory ÷ the sum of the pods' memory peaks."""
MIN_MEMORY_SHARE: Final = 0.9
"""Part of the GPU-hours that must have observed memory."""
MAX_PODS: Final = 400
"""Pods per pool; beyond it, those of the first workloads by name."""
_USABLE_MEMORY_RATIO = 0.9
"""Usable part of the nominal GB, in GiB: an A10G of 24 GB has 22.5, and each process needs memory of its own."""
_MIN_MONTHLY_SAVING_USD = 1.0
_GROUPS_SHOWN = 3
_GIB = 2**30
_RISK = (
    "Hourly means do not show minutes: pods that are busy at the same time slow each other down. Memory is not "
    "isolated: a pod that allocates more memory can terminate the others."
)


class SharingPlan(Struct, frozen=True):
    """The recommendation for a pool, and the workloads that take part."""

    content: RecommendationContent
    pool: PoolKey
    subjects: frozenset[RecommendationSubject]


def recommend_sharing(
    look_back: LookBack, measured: Sequence[WorkloadMeasures], excluded: set[RecommendationSubject]
) -> list[SharingPlan]:
    """Recommend sharing for the pools in which whole nodes become free.

    Args:
        look_back: the look-back.
        measured: workloads with sufficient measures.
        excluded: workloads that already have another recommendation.
    """
    by_pool: dict[PoolKey, list[WorkloadMeasures]] = {}
    for measures in measured:
        if workload_subject(look_back.cluster, measures.history) not in excluded and _can_share(measures):
            by_pool.setdefault(next(iter(measures.history.gpu_millihours_by_pool)), []).append(measures)
    plans = [_plan_sharing(look_back, look_back.pools[key], by_pool[key]) for key in sorted(by_pool)]
    return [plan for plan in plans if plan is not None]


def _can_share(measures: WorkloadMeasures) -> bool:
    """Whether each of its pods holds one whole GPU of one pool, and its utilization and memory are known."""
    history = measures.history
    return (
        history.units_per_pod == 1
        and history.gpu_share == 1.0
        and measures.current_gpus > 0
        and measures.pod_peak_utilization >= 0
        and len(history.gpu_millihours_by_pool) == 1
        and history.memory_observed_gpu_hours
        >= MIN_MEMORY_SHARE * sum(history.held_gpu_hours[measures.first_held_index :])
        and memory_gb(history.key.gpu_model) is not None
    )


def _plan_sharing(
    look_back: LookBack, pool: PoolHourlySeries, measured: Sequence[WorkloadMeasures]
) -> SharingPlan | None:
    gpus, model = gpus_per_node(pool), pool.key.gpu_model
    memory = (memory_gb(model) or 0) * _GIB * _USABLE_MEMORY_RATIO / MEMORY_SPARE
    pods = [pod for pod in _sharing_pods(measured) if max(pod.utilization) <= TARGET and pod.memory_bytes <= memory]
    groups = [[pods[index] for index in group] for group in group_pods(pods, TARGET, memory) if len(group) > 1]
    if not groups or not gpus or not has_enough_prices(look_back, pool):
        return None
    gpus_before = [sum(round(size * count) for size, count in hour) for hour in pool.pod_sizes]
    moved = [sum(pod.is_running[index] for group in groups for pod in group) for index in range(look_back.hours)]
    shared = [sum(any(pod.is_running[index] for pod in group) for group in groups) for index in range(look_back.hours)]
    first = min(measures.first_held_index for measures in measured)

    def nodes(index: int) -> tuple[int, int]:
        """Nodes before and after the change."""
        # Pods that run one after another within an hour are counted separately, so limit it to the nodes there were.
        before = min(ceil(gpus_before[index] / gpus), pool.node_counts[index])
        return before, min(before, ceil((gpus_before[index] - moved[index] + shared[index]) / gpus))

    def freed(index: int) -> tuple[float, float]:
        before, after = nodes(index)
        return (before - after) * mean_node_cost(pool, index), float((before - after) * gpus)

    saving = estimate_saving(
        look_back, first, freed, pool.spend.avoidable_share(), pool_list_price_ratio(look_back, pool), pool.is_unpriced
    )
    newest = newest_hour_indexes(look_back, first)
    before, after = (sum(nodes(index)[position] for index in newest) / max(1, len(newest)) for position in (0, 1))
    if saving.usd < _MIN_MONTHLY_SAVING_USD or before <= after:
        return None
    names = [[measured[pod.workload_index].history.key.name for pod in group] for group in groups]
    busiest = max(sum(pod.utilization[index] for pod in group) for group in groups for index in range(look_back.hours))
    largest_memory = max(sum(pod.memory_bytes for pod in group) for group in groups)
    replicas = max(len(group) for group in groups)
    is_well_observed = all(
        measures.hours_with_figures >= CERTAIN_HOURS and measures.coverage >= CERTAIN_COVERAGE for measures in measured
    )
    more = f" and {len(names) - _GROUPS_SHOWN} more" if len(names) > _GROUPS_SHOWN else ""
    pairs = [nodes(index) for index in newest]
    befores, afters = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    title = (
        f"Let {sum(map(len, names))} pods share {len(names)} GPU{'s' if len(names) > 1 else ''} of node pool "
        f"{pool.key.node_pool or '(none)'}"
    )
    content = RecommendationContent(
        kind="sharing",
        subject=pool_subject(look_back, pool),
        title=title,
        summary=f"{title}: with time-slicing or MPS of {replicas} replicas, it runs "
        f"{fewer_nodes_phrase(befores, afters)}",
        saving=saving,
        evidence=pool_evidence(
            look_back,
            pool,
            first,
            {
                "nodes": f"{enough_nodes_fact(befores, afters)} of the newest day",
                "groups": "; ".join(" + ".join(group) for group in names[:_GROUPS_SHOWN]) + more,
                "replay": f"{sum(look_back.has_figures[first:])} hours: no GPU above {busiest:.0%} in any",
                "GPU memory": f"{largest_memory / _GIB:.1f} GiB at most of {memory_gb(model)} GB",
                "grouping": "exact" if len(pods) <= MAX_EXACT_PODS else "first fit; fewer GPUs may be possible",
            },
        ),
        confidence="medium" if is_well_observed else "low",
        risk="high",
        risk_note=_RISK,
        effort="high",
        patch=sharing_patch(pool.key.node_pool, replicas),
        current_gpus=round_cents(before),
        recommended_gpus=round_cents(after),
        usd_hourly=round_cents(mean_pool_cost(look_back, pool, first)),
    )
    subjects = {
        workload_subject(look_back.cluster, measured[pod.workload_index].history) for group in groups for pod in group
    }
    return SharingPlan(content, pool.key, frozenset(subjects))


def _sharing_pods(measured: Sequence[WorkloadMeasures]) -> list[SharingPod]:
    """The pods of each workload, each as busy as its busiest pod, and fully busy in hours without samples."""
    pods: list[SharingPod] = []
    for workload_index, measures in enumerate(measured):
        history = measures.history
        for index in range(history.max_concurrent_pods()):
            is_running = [count > index for count in history.pod_counts]
            use = [
                (1.0 if busy < 0 else busy) if running else 0.0
                for running, busy in zip(is_running, history.busiest_pod_utilization, strict=True)
            ]
            pods.append(SharingPod(workload_index, use, history.memory_peak_bytes, is_running))
    return pods[:MAX_PODS]
