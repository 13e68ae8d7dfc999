"""Recommends sharing GPUs (time-slicing, MPS) between workloads that are busy at different hours.

It covers pods that hold one whole GPU each and whose utilization and memory are known, if whole nodes become free.
Hours are means, so pods can still compete within an hour, and memory is not isolated. Therefore confidence is never
high. Where a GPU supports MIG, slices are recommended unless sharing saves more.

Groups have no hour above the utilization limit, and not more memory than available. For up to ten pods the search is
exact and tries every set. For more pods it is first fit, largest pods first, which is valid but may need more groups
than necessary.
"""

from collections.abc import Iterator, Sequence
from math import ceil
from typing import Final

from msgspec import Struct

from gpucost.core.metering.gpu_models import memory_gb
from gpucost.features.recommendations.history import LookBack, PoolHourlySeries, PoolKey
from gpucost.features.recommendations.kinds.base import PoolPlan, RecommendationKind, ReviewedCluster, single_line
from gpucost.features.recommendations.measuring import (
    CERTAIN_COVERAGE,
    CERTAIN_HOURS,
    GIB,
    MEMORY_SPARE,
    MIN_MEMORY_SHARE,
    MIN_MONTHLY_SAVING_USD,
    TARGET,
    USABLE_MEMORY_RATIO,
    WorkloadMeasures,
    workload_subject,
)
from gpucost.features.recommendations.model import RecommendationContent, RecommendationSubject, round_cents
from gpucost.features.recommendations.pools import (
    enough_nodes_fact,
    estimate_pool_saving,
    fewer_nodes_phrase,
    gpus_per_node,
    has_enough_prices,
    mean_node_cost,
    mean_pool_cost,
    newest_hour_indexes,
    pool_evidence,
    pool_subject,
)

MAX_PODS: Final = 400
"""Pods per pool; beyond it, those of the first workloads by name."""
MAX_EXACT_PODS: Final = 10
"""Pods for which the search tries all 1,024 sets."""
MAX_PODS_PER_GPU: Final = 8
"""Pods that may share one GPU."""
_GROUPS_SHOWN = 3
_RISK = (
    "Hourly means do not show minutes: pods that are busy at the same time slow each other down. Memory is not "
    "isolated: a pod that allocates more memory can terminate the others."
)


class Sharing(RecommendationKind):
    """Let pods share GPUs that are busy at different hours."""

    name = "sharing"
    title = "Share GPUs"
    when = (
        "pods that each have a whole GPU use it at different hours: together at most 70% in every hour of the "
        "look-back, and 1/1.1 of its memory"
    )
    change = "time-slicing (or MPS) with a number of replicas, and the pods to group"
    verified = "nodes, for the pods that still exist"
    not_verified = "nodes that were removed with their pods"

    @classmethod
    def plans(cls, cluster: ReviewedCluster, excluded: set[RecommendationSubject]) -> Iterator[PoolPlan]:
        """Plan sharing for the pools in which whole nodes become free."""
        look_back = cluster.look_back
        by_pool: dict[PoolKey, list[WorkloadMeasures]] = {}
        for measures in cluster.measured:
            if workload_subject(look_back.cluster, measures.history) not in excluded and _can_share(measures):
                by_pool.setdefault(next(iter(measures.history.gpu_millihours_by_pool)), []).append(measures)
        for key in sorted(by_pool):
            plan = cls._plan(look_back, look_back.pools[key], by_pool[key])
            if plan is not None:
                yield plan

    @classmethod
    def _plan(
        cls, look_back: LookBack, pool: PoolHourlySeries, measured: Sequence[WorkloadMeasures]
    ) -> PoolPlan | None:
        gpus, model = gpus_per_node(pool), pool.key.gpu_model
        memory = (memory_gb(model) or 0) * GIB * USABLE_MEMORY_RATIO / MEMORY_SPARE
        pods = [pod for pod in _sharing_pods(measured) if max(pod.utilization) <= TARGET and pod.memory_bytes <= memory]
        groups = [[pods[index] for index in group] for group in group_pods(pods, TARGET, memory) if len(group) > 1]
        if not groups or not gpus or not has_enough_prices(look_back, pool):
            return None
        gpus_before = [sum(round(size * count) for size, count in hour) for hour in pool.pod_sizes]
        moved = [sum(pod.is_running[index] for group in groups for pod in group) for index in range(look_back.hours)]
        shared = [
            sum(any(pod.is_running[index] for pod in group) for group in groups) for index in range(look_back.hours)
        ]
        first = min(measures.first_held_index for measures in measured)

        def nodes(index: int) -> tuple[int, int]:
            """Nodes before and after the change."""
            # Pods that run one after another in an hour count separately, so there are at most the nodes there were.
            before = min(ceil(gpus_before[index] / gpus), pool.node_counts[index])
            return before, min(before, ceil((gpus_before[index] - moved[index] + shared[index]) / gpus))

        def freed(index: int) -> tuple[float, float]:
            before, after = nodes(index)
            return (before - after) * mean_node_cost(pool, index), float((before - after) * gpus)

        saving = estimate_pool_saving(look_back, pool, first, freed)
        newest = newest_hour_indexes(look_back, first)
        before, after = (sum(nodes(index)[position] for index in newest) / max(1, len(newest)) for position in (0, 1))
        if saving.usd < MIN_MONTHLY_SAVING_USD or before <= after:
            return None
        names = [[measured[pod.workload_index].history.key.name for pod in group] for group in groups]
        busiest = max(
            sum(pod.utilization[index] for pod in group) for group in groups for index in range(look_back.hours)
        )
        largest_memory = max(sum(pod.memory_bytes for pod in group) for group in groups)
        replicas = max(len(group) for group in groups)
        is_well_observed = all(
            measures.hours_with_figures >= CERTAIN_HOURS and measures.coverage >= CERTAIN_COVERAGE
            for measures in measured
        )
        more = f" and {len(names) - _GROUPS_SHOWN} more" if len(names) > _GROUPS_SHOWN else ""
        pairs = [nodes(index) for index in newest]
        befores, afters = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        title = (
            f"Let {sum(map(len, names))} pods share {len(names)} GPU{'s' if len(names) > 1 else ''} of node pool "
            f"{pool.key.node_pool or '(none)'}"
        )
        content = RecommendationContent(
            kind=cls.name,
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
                    "GPU memory": f"{largest_memory / GIB:.1f} GiB at most of {memory_gb(model)} GB",
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
            workload_subject(look_back.cluster, measured[pod.workload_index].history)
            for group in groups
            for pod in group
        }
        return PoolPlan(content, frozenset(subjects))


class SharingPod(Struct, frozen=True):
    """A pod that has a GPU to itself."""

    workload_index: int
    """Index of its workload. Two pods of one workload never share a GPU, so that a failing GPU hits one of them."""
    utilization: Sequence[float]
    """Utilization of the GPU by hour, 0 to 1; 0 while the pod is not running."""
    memory_bytes: float
    """The largest GPU memory of any pod of the workload, in bytes."""
    is_running: Sequence[bool] = ()
    """Whether the pod is running, by hour."""


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


def group_pods(pods: Sequence[SharingPod], use: float, memory: float) -> list[list[int]]:
    """Group pods, each of which fits on a GPU alone.

    Args:
        pods: the pods.
        use: the largest utilization of a group in any hour.
        memory: GPU memory of a group, in bytes.

    Returns:
        The groups, as indexes of pods; each pod is in one group.
    """
    return _group_exactly(pods, use, memory) if len(pods) <= MAX_EXACT_PODS else _first_fit(pods, use, memory)


def _group_exactly(pods: Sequence[SharingPod], use: float, memory: float) -> list[list[int]]:
    count = len(pods)
    sums: list[list[float]] = [[0.0] * len(pods[0].utilization)] if pods else [[]]
    fits = [True]
    for chosen in range(1, 1 << count):
        index = (chosen & -chosen).bit_length() - 1
        others = chosen & (chosen - 1)
        hourly_sum = [a + b for a, b in zip(sums[others], pods[index].utilization, strict=True)]
        sums.append(hourly_sum)
        members = [pods[position] for position in range(count) if chosen >> position & 1]
        fits.append(
            fits[others]
            and max(hourly_sum, default=0.0) <= use
            and sum(pod.memory_bytes for pod in members) <= memory
            and len({pod.workload_index for pod in members}) == len(members) <= MAX_PODS_PER_GPU
        )
    fewest: list[tuple[int, int]] = [(0, 0)]
    """By set: the number of groups it needs, and the group of its first pod."""
    for chosen in range(1, 1 << count):
        first, others = chosen & -chosen, chosen & (chosen - 1)
        best, subset = (count + 1, 0), others
        while True:
            group = subset | first
            if fits[group] and fewest[chosen ^ group][0] + 1 < best[0]:
                best = fewest[chosen ^ group][0] + 1, group
            if not subset:
                break
            subset = (subset - 1) & others
        fewest.append(best)
    groups, ungrouped = [], (1 << count) - 1
    while ungrouped:
        group = fewest[ungrouped][1]
        groups.append([position for position in range(count) if group >> position & 1])
        ungrouped ^= group
    return groups


class _Group(Struct):
    indexes: list[int]
    workloads: set[int]
    use: list[float]
    memory: float
    peak: float


def _first_fit(pods: Sequence[SharingPod], use: float, memory: float) -> list[list[int]]:
    def size(index: int) -> tuple[float, int]:
        return -max(max(pods[index].utilization, default=0.0) / use, pods[index].memory_bytes / memory), index

    groups: list[_Group] = []
    for index in sorted(range(len(pods)), key=size):
        pod = pods[index]
        peak = max(pod.utilization, default=0.0)
        group = next((candidate for candidate in groups if _fits_into(candidate, pod, peak, use, memory)), None)
        if group is None:
            groups.append(_Group([index], {pod.workload_index}, list(pod.utilization), pod.memory_bytes, peak))
            continue
        group.indexes.append(index)
        group.workloads.add(pod.workload_index)
        group.use = [a + b for a, b in zip(group.use, pod.utilization, strict=True)]
        group.memory += pod.memory_bytes
        group.peak = max(group.use)
    return [candidate.indexes for candidate in groups]


def _fits_into(group: _Group, pod: SharingPod, peak: float, use: float, memory: float) -> bool:
    if (
        group.memory + pod.memory_bytes > memory
        or pod.workload_index in group.workloads
        or len(group.indexes) == MAX_PODS_PER_GPU
    ):
        return False
    if group.peak + peak <= use:  # the peaks fit together, so the hours need no check
        return True
    return all(a + b <= use for a, b in zip(group.use, pod.utilization, strict=True))


def sharing_patch(node_pool: str, replicas: int) -> str:
    """A configuration of NVIDIA's device plugin that lets several pods share each GPU of a pool's nodes."""
    pool = single_line(node_pool)
    return (
        "# a configuration of NVIDIA's device plugin (config map named in devicePlugin.config)\n"
        "version: v1\nsharing:\n  timeSlicing:\n    renameByDefault: false\n    failRequestsGreaterThanOne: true\n"
        f"    resources:\n      - {{name: nvidia.com/gpu, replicas: {replicas}}}\n"
        "# or mps: instead of timeSlicing:, without failRequestsGreaterThanOne: pods run at once, with equal memory\n"
        f"# each node of pool {pool}: kubectl label node NAME nvidia.com/device-plugin.config=shared --overwrite\n"
        "# which pods share a GPU: podAffinity within a group, podAntiAffinity between groups\n"
    )
