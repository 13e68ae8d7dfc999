"""MIG: which profile a workload fits, and the geometry of a pool that serves its demand on the fewest GPUs.

A GPU has few valid geometries: NVIDIA's MIG user guide gives each profile the memory slices at which it may begin, and
all that fit side by side are enumerated. A pool's geometry is found by exact search over how many GPUs get which; what
is too large to search exactly gets no plan. Demand counts slices by profile and hour: pods ask for a profile by name
(strategy *mixed*), so a larger slice serves no smaller request.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import prod
from operator import ge

from gpucost.core.metering.gpu_models import MIG_GPUS, MigGpu, profile_share

Geometry = tuple[str, ...]
"""Profiles side by side on one GPU, in order of name."""
LARGEST_SEARCH = 100_000
"""States of demand that the exact search looks at; beyond, a pool gets no plan."""
COMPUTE_TARGET = 0.70
"""The busiest hour on a slice, as for whole GPUs."""
MEMORY_SPARE = 1.10
"""A slice's memory over the largest ever used."""
_USABLE = 0.95
"""Of a profile's nominal GB, in GiB: 1g.5gb has 4,864 MiB (NVIDIA MIG user guide, device profiles of the A100)."""
_GIB = 2**30
_BEGINS = {
    (7, "1g", 1): (0, 1, 2, 3, 4, 5, 6),
    (7, "1g", 2): (0, 2, 4, 6),
    (7, "2g", 2): (0, 2, 4),
    (7, "3g", 4): (0, 4),
    (7, "4g", 4): (0,),
    (7, "7g", 8): (0,),
    (4, "1g", 1): (0, 1, 2, 3),
    (4, "2g", 2): (0, 2),
    (4, "4g", 4): (0,),
}
"""Memory slices at which a profile may begin, by the GPU's compute slices, the profile's, and its memory slices
(`nvidia-smi mig -lgipp`)."""


def mig_gpu(model: str) -> MigGpu | None:
    """How a GPU model divides under MIG; None for models that do not, or that no table knows."""
    name = model.lower()
    return next((gpu for gpu in MIG_GPUS if all(part in name for part in gpu.models)), None)


def other_profile_names(model: str) -> str:
    """What some drivers call profiles of a model, in words; "" where all call them alike."""
    gpu = mig_gpu(model)
    return ", ".join(gpu.memory_slices_by_alias) if gpu else ""


@cache
def geometries(model: str) -> tuple[Geometry, ...]:
    """All maximal geometries of a GPU model: nothing more fits beside them. Of the A100 there are 38, placements apart.

    A whole GPU in one slice (7g, 4g of four) is among them.
    """
    gpu = mig_gpu(model)
    if gpu is None:
        return ()
    spots = [
        (profile, begin, begin + memory)
        for profile, memory in gpu.memory_slices_by_profile.items()
        for begin in _BEGINS.get((gpu.compute_slices, profile.partition(".")[0], memory), ())
    ]
    found: set[Geometry] = set()

    def extend(chosen: tuple[tuple[str, int, int], ...], start: int) -> None:
        fitting = [spot for spot in spots if _fits(spot, chosen, gpu)]
        if not fitting:
            found.add(tuple(sorted(profile for profile, _, _ in chosen)))
        for spot in fitting:
            if spots.index(spot) >= start:
                extend((*chosen, spot), spots.index(spot) + 1)

    extend((), 0)
    return tuple(sorted(found))


def _fits(spot: tuple[str, int, int], chosen: Sequence[tuple[str, int, int]], gpu: MigGpu) -> bool:
    _, begin, end = spot
    compute = sum(int(profile[0]) for profile, _, _ in (*chosen, spot))
    return compute <= gpu.compute_slices and all(end <= first or begin >= last for _, first, last in chosen)


def fitting_profile(model: str, compute_peak: float, memory_peak: float) -> str | None:
    """The smallest profile in which a pod that has a whole GPU fits; None where none smaller than the GPU does.

    Args:
        model: the GPU's name.
        compute_peak: utilization of the GPU in the busiest hour, 0 to 1: on a slice it is so many times higher as the
            slice has fewer of the GPU's compute slices.
        memory_peak: the most bytes ever used.
    """
    gpu = mig_gpu(model)
    if gpu is None:
        return None
    fits = []
    for profile in gpu.memory_slices_by_profile:
        match = re.fullmatch(r"(\d)g\.(\d+)gb", profile)
        share = profile_share(profile, model)
        if match is None or share is None or share >= 1:
            continue
        compute, memory = int(match[1]) / gpu.compute_slices, int(match[2]) * _GIB * _USABLE
        if compute_peak <= COMPUTE_TARGET * compute and memory_peak * MEMORY_SPARE <= memory:
            fits.append((share, profile))
    return min(fits)[1] if fits else None


@dataclass(frozen=True, slots=True)
class MigPlan:
    """Geometries for a pool's GPUs, and what they were found from."""

    model: str
    gpus: Mapping[Geometry, int]
    """How many GPUs get which geometry."""
    demand: Mapping[str, int]
    """The most slices of each profile that were wanted in any hour."""
    stranded: Fraction
    """GPUs' worth of compute slices that no hour wanted, or that the geometries leave."""

    @property
    def count(self) -> int:
        """GPUs."""
        return sum(self.gpus.values())

    def supply(self) -> dict[str, int]:
        """Slices by profile."""
        found: dict[str, int] = {}
        for geometry, count in self.gpus.items():
            for profile in geometry:
                found[profile] = found.get(profile, 0) + count
        return found


def plan_geometries(model: str, demand: Mapping[str, int]) -> MigPlan | None:
    """Geometries that serve a demand on the fewest GPUs, and so with the least stranded, by exact search.

    Every hour is served exactly if the most wanted of each profile in any hour is: a geometry does not change by hour.

    Returns:
        None where the model has no MIG, a profile is not its own, or the search would be too large.
    """
    profiles = sorted(profile for profile, count in demand.items() if count)
    options = geometries(model)
    known = {profile for geometry in options for profile in geometry}
    if not profiles or not set(profiles) <= known or prod(demand[one] + 1 for one in profiles) > LARGEST_SEARCH:
        return None
    useful: dict[tuple[int, ...], Geometry] = {}
    for geometry in options:
        useful.setdefault(tuple(geometry.count(profile) for profile in profiles), geometry)
    vectors = [
        one for one in useful if any(one) and not any(other != one and all(map(ge, other, one)) for other in useful)
    ]
    best = _search(tuple(demand[profile] for profile in profiles), vectors)
    chosen: dict[Geometry, int] = {}
    for vector in best:
        chosen[useful[vector]] = chosen.get(useful[vector], 0) + 1
    gpu = mig_gpu(model)
    slices = gpu.compute_slices if gpu else 1
    served = Fraction(sum(int(profile[0]) * demand[profile] for profile in profiles), slices)
    return MigPlan(model, chosen, {profile: demand[profile] for profile in profiles}, sum(chosen.values()) - served)


def _search(wanted: tuple[int, ...], vectors: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The fewest vectors whose sum covers what is wanted: breadth first over what is left, so the first end is best."""
    came: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {}
    level, seen = [wanted], {wanted}
    done = tuple(0 for _ in wanted)
    while done not in seen:
        following = []
        for left in level:
            for vector in vectors:
                after = tuple(max(0, a - b) for a, b in zip(left, vector, strict=True))
                if after not in seen:
                    seen.add(after)
                    came[after] = (left, vector)
                    following.append(after)
        level = following
    path, at = [], done
    while at != wanted:
        at, vector = came[at]
        path.append(vector)
    return path


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """A plan played through the hours that it was made for."""

    hours: int
    pod_hours_waited: int
    """Pod-hours for which no slice was free."""
    peak_usage: Fraction
    """The largest part of any profile's slices in use in one hour."""


def replay_plan(chosen: MigPlan, hours: Sequence[Mapping[str, int]]) -> ReplayResult:
    """Place every hour's pods on a plan's slices.

    Args:
        chosen: the plan.
        hours: slices wanted by profile, hour by hour.
    """
    supply = chosen.supply()
    waited, tightest = 0, Fraction(0)
    for hour in hours:
        for profile, count in hour.items():
            have = supply.get(profile, 0)
            waited += max(0, count - have)
            tightest = max(tightest, Fraction(min(count, have), have) if have else Fraction(0))
    return ReplayResult(len(hours), waited, tightest)
