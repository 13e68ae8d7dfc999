"""Groups of pods that could take turns on a GPU: no hour above a limit of use, and no more memory than there is.

The fewest groups are found exactly for up to ten pods, by trying every set of them; for more, by first fit, those that
take most first: possible, and not always the fewest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

EXACT: Final = 10
"""Pods: all 1,024 sets of them are looked at."""
MOST_SHARERS: Final = 8
"""Of a GPU."""


@dataclass(frozen=True, slots=True)
class SharingPod:
    """A pod that has a GPU to itself."""

    workload: int
    """Place of its workload: two pods of one workload never meet, so that a GPU that fails takes one of them."""
    use: Sequence[float]
    """Of the GPU, by hour, 0 to 1; 0 where the pod is not there."""
    memory: float
    """Bytes, the most that any pod of the workload ever used."""
    is_there: Sequence[bool] = ()
    """By hour."""


def group_pods(pods: Sequence[SharingPod], use: float, memory: float) -> list[list[int]]:
    """Places of pods that go together, each pod in one group.

    Args:
        pods: each of which fits by itself.
        use: the most that a group may use of a GPU in any hour.
        memory: bytes that a group may use.
    """
    return _exact(pods, use, memory) if len(pods) <= EXACT else _first_fit(pods, use, memory)


def _exact(pods: Sequence[SharingPod], use: float, memory: float) -> list[list[int]]:
    count = len(pods)
    sums: list[list[float]] = [[0.0] * len(pods[0].use)] if pods else [[]]
    fits = [True]
    for chosen in range(1, 1 << count):
        index = (chosen & -chosen).bit_length() - 1
        rest = chosen & (chosen - 1)
        own = [a + b for a, b in zip(sums[rest], pods[index].use, strict=True)]
        sums.append(own)
        members = [pods[at] for at in range(count) if chosen >> at & 1]
        fits.append(
            fits[rest]
            and max(own, default=0.0) <= use
            and sum(one.memory for one in members) <= memory
            and len({one.workload for one in members}) == len(members) <= MOST_SHARERS
        )
    fewest: list[tuple[int, int]] = [(0, 0)]
    """By set: how many groups it needs, and the group that holds its first pod."""
    for chosen in range(1, 1 << count):
        first, rest = chosen & -chosen, chosen & (chosen - 1)
        best, part = (count + 1, 0), rest
        while True:
            group = part | first
            if fits[group] and fewest[chosen ^ group][0] + 1 < best[0]:
                best = fewest[chosen ^ group][0] + 1, group
            if not part:
                break
            part = (part - 1) & rest
        fewest.append(best)
    found, left = [], (1 << count) - 1
    while left:
        group = fewest[left][1]
        found.append([at for at in range(count) if group >> at & 1])
        left ^= group
    return found


@dataclass(slots=True)
class _Group:
    indexes: list[int]
    workloads: set[int]
    use: list[float]
    memory: float
    peak: float


def _first_fit(pods: Sequence[SharingPod], use: float, memory: float) -> list[list[int]]:
    def size(index: int) -> tuple[float, int]:
        return -max(max(pods[index].use, default=0.0) / use, pods[index].memory / memory), index

    found: list[_Group] = []
    for index in sorted(range(len(pods)), key=size):
        one = pods[index]
        peak = max(one.use, default=0.0)
        group = next((own for own in found if _takes(own, one, peak, use, memory)), None)
        if group is None:
            found.append(_Group([index], {one.workload}, list(one.use), one.memory, peak))
            continue
        group.places.append(index)
        group.workloads.add(one.workload)
        group.use = [a + b for a, b in zip(group.use, one.use, strict=True)]
        group.memory += one.memory
        group.peak = max(group.use)
    return [own.places for own in found]


def _takes(own: _Group, one: SharingPod, peak: float, use: float, memory: float) -> bool:
    if own.memory + one.memory > memory or one.workload in own.workloads or len(own.places) == MOST_SHARERS:
        return False
    if own.peak + peak <= use:  # so that hours need not be looked at
        return True
    return all(a + b <= use for a, b in zip(own.use, one.use, strict=True))
