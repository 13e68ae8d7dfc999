"""Groups pods that could share a GPU: no hour above a utilization limit, and not more memory than available.

For up to ten pods the search is exact and tries every set. For more pods it is first fit, largest pods first, which is
valid but may need more groups than necessary.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

MAX_EXACT_PODS: Final = 10
"""Pods for which the search tries all 1,024 sets."""
MAX_PODS_PER_GPU: Final = 8
"""Pods that may share one GPU."""


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
