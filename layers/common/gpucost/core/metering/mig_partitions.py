"""MIG partitions that a DRA driver offers: where they lie in a GPU, and what else of the GPU claims can have."""

import re
from collections.abc import Collection
from fractions import Fraction
from functools import cache
from typing import NamedTuple

from gpucost.core.metering.gpu_models import MIG_GPUS, profile_share

_NAME = re.compile(r"^(gpu-\d+)-mig-(\d+)g(\d+)gb(?:-[a-z-]+)?-\d+-(\d+)$")
"""`gpu-0-mig-1g5gb-19-4`: GPU, profile, number of the profile, first memory slice. Source: mig.go of
kubernetes-sigs/dra-driver-nvidia-gpu, August 2026 (0.5.0-dev)."""


class Partition(NamedTuple):
    """A MIG partition of a GPU, as a device's name in a ResourceSlice describes it."""

    gpu: str
    """The name of the whole GPU in the ResourceSlice, unique in its node: `gpu-0`."""
    profile: str
    start: int
    """Its first memory slice."""


class _Placement(NamedTuple):
    share: Fraction
    slices: frozenset[int]
    """Memory slices."""


def partition_of(name: str) -> Partition | None:
    """Return the partition that a device of a ResourceSlice is; None if it is a whole GPU or another device."""
    match = _NAME.match(name)
    return Partition(match[1], f"{match[2]}g.{match[3]}gb", int(match[4])) if match else None


def claimable_share(
    model: str, held: Collection[Partition], offered: Collection[Partition] | None = None
) -> Fraction | None:
    """Return the largest share of a GPU that further claims can have, at most what is not held.

    Args:
        model: of the GPU, in any spelling.
        held: the partitions of the GPU that claims hold.
        offered: the partitions in the node's ResourceSlices; None for all that the model has.

    Returns:
        None if a profile, or its place in the GPU, is unknown.
    """
    return _claimable_share(model, frozenset(held), None if offered is None else frozenset(offered))


@cache
def _claimable_share(model: str, held: frozenset[Partition], offered: frozenset[Partition] | None) -> Fraction | None:
    placements = _placements(model)
    of_held = {placements.get((partition.profile, partition.start)) for partition in held}
    taken_placements = [placement for placement in of_held if placement is not None]
    if not placements or None in of_held:
        return None
    taken = frozenset().union(*(placement.slices for placement in taken_placements))
    choices = [
        placement
        for (profile, start), placement in placements.items()
        if taken.isdisjoint(placement.slices)
        and (offered is None or any((other.profile, other.start) == (profile, start) for other in offered))
    ]
    rest = max(Fraction(0), 1 - sum((placement.share for placement in taken_placements), Fraction(0)))
    return min(rest, _largest_sum(choices))


def _largest_sum(placements: Collection[_Placement]) -> Fraction:
    """Return the largest sum of the shares of placements that do not overlap."""
    best_from: dict[int, Fraction] = {}
    for start in range(max((max(placement.slices) for placement in placements), default=-1), -1, -1):
        sums = [
            placement.share + best_from.get(max(placement.slices) + 1, Fraction(0))
            for placement in placements
            if min(placement.slices) == start
        ]
        best_from[start] = max([best_from.get(start + 1, Fraction(0)), *sums])
    return best_from.get(0, Fraction(0))


@cache
def _placements(model: str) -> dict[tuple[str, int], _Placement]:
    """Return where a model's partitions can lie, by profile and first memory slice.

    A partition starts at a multiple of its memory slices, and no more start than their compute slices allow. So it is
    in the output of `nvidia-smi mig -lgipp` of A100, H100 and A30.
    """
    name = model.lower()
    gpu = next((gpu for gpu in MIG_GPUS if all(part in name for part in gpu.model_name_parts)), None)
    if gpu is None:
        return {}
    placements: dict[tuple[str, int], _Placement] = {}
    for profile, size in gpu.memory_slices_by_name.items():
        share = profile_share(profile, model)
        count = min(gpu.memory_slices // size, gpu.compute_slices // int(profile.partition("g")[0]))
        for start in range(0, count * size, size):
            if share is not None:
                placements[profile, start] = _Placement(share, frozenset(range(start, start + size)))
    return placements
