"""MIG slices for workloads whose pods hold whole GPUs but would fit a slice, and layouts that serve a pool's demand.

A slice saves money only if other pods use the rest of its GPU. So slices are recommended only with a plan of their pool
that frees whole nodes. Memory peaks come from the exporter (`DCGM_FI_DEV_FB_USED`). A workload that reserves all memory
at its start, such as vLLM, fits no slice until it is configured to reserve less.
"""

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import prod
from operator import ge
from shlex import quote

from msgspec import Struct

from gpucost.core.metering.gpu_models import MIG_GPUS, MigGpu, profile_share
from gpucost.features.recommendations.history import LookBack, PoolKey
from gpucost.features.recommendations.kinds.base import (
    API_VERSION_OF_SCALABLE_KIND,
    RecommendationKind,
    remaining_work,
    single_line,
)
from gpucost.features.recommendations.measuring import (
    GIB,
    MIN_MEMORY_SHARE,
    SubjectHour,
    WorkloadMeasures,
    confidence_level,
    estimate_workload_saving,
    workload_evidence,
    workload_subject,
)
from gpucost.features.recommendations.model import (
    RecommendationContent,
    RecommendationSubject,
    round_cents,
    round_ratio,
)

# MIG: which profile a workload fits, and the geometries of a pool that serve its demand on the fewest GPUs.
#
# A GPU has few valid geometries: NVIDIA's MIG user guide lists the memory slices at which a profile may start, and this
# module enumerates all combinations that fit. An exact search finds how many GPUs get which geometry. There is no plan
# if the search is too large. Demand is slices by profile and hour. Pods request a profile by name (strategy *mixed*),
# so a larger slice does not serve a smaller request.

Geometry = tuple[str, ...]
"""Profiles on one GPU, sorted by name."""
MAX_SEARCH_STATES = 100_000
"""Demand states of the exact search. A pool with more gets no plan."""
COMPUTE_TARGET = 0.70
"""Utilization of a slice in the busiest hour, as for whole GPUs."""
MEMORY_SPARE = 1.10
"""A slice's memory ÷ the memory peak."""
_USABLE_MEMORY_RATIO = 0.95
"""Usable part of the nominal GB, in GiB: 1g.5gb has 4,864 MiB (NVIDIA MIG user guide, profiles of the A100)."""
_GIB = 2**30
_PLACEMENT_STARTS = {
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
"""Memory slices at which a profile may start, by the GPU's compute slices, the profile's, and its memory slices
(`nvidia-smi mig -lgipp`)."""


def mig_gpu(model: str) -> MigGpu | None:
    """The MIG properties of a GPU model; None for models without MIG and for unknown ones."""
    name = model.lower()
    return next((gpu for gpu in MIG_GPUS if all(part in name for part in gpu.model_name_parts)), None)


def other_profile_names(model: str) -> str:
    """The names that some drivers use for a model's profiles; empty if all drivers use the same names."""
    gpu = mig_gpu(model)
    return ", ".join(gpu.memory_slices_by_alias) if gpu else ""


@cache
def geometries(model: str) -> tuple[Geometry, ...]:
    """All maximal geometries of a GPU model, to which no further profile can be added; 38 for an A100.

    They include the whole GPU as one slice (7g, or 4g of four).
    """
    gpu = mig_gpu(model)
    if gpu is None:
        return ()
    placements = [
        (profile, begin, begin + memory)
        for profile, memory in gpu.memory_slices_by_profile.items()
        for begin in _PLACEMENT_STARTS.get((gpu.compute_slices, profile.partition(".")[0], memory), ())
    ]
    geometry_set: set[Geometry] = set()

    def extend(chosen: tuple[tuple[str, int, int], ...], start: int) -> None:
        fitting = [placement for placement in placements if _fits(placement, chosen, gpu)]
        if not fitting:
            geometry_set.add(tuple(sorted(profile for profile, _, _ in chosen)))
        for placement in fitting:
            if placements.index(placement) >= start:
                extend((*chosen, placement), placements.index(placement) + 1)

    extend((), 0)
    return tuple(sorted(geometry_set))


def _fits(placement: tuple[str, int, int], chosen: Sequence[tuple[str, int, int]], gpu: MigGpu) -> bool:
    _, begin, end = placement
    compute = sum(int(profile[0]) for profile, _, _ in (*chosen, placement))
    return compute <= gpu.compute_slices and all(end <= first or begin >= last for _, first, last in chosen)


def fitting_profile(model: str, compute_peak: float, memory_peak: float) -> str | None:
    """Find the smallest profile that fits a pod with a whole GPU; None if no profile smaller than the GPU fits.

    Args:
        model: the GPU model.
        compute_peak: utilization of the GPU in the busiest hour, 0 to 1. On a slice it is higher in proportion to the
            GPU's compute slices ÷ the slice's.
        memory_peak: the memory peak in bytes.
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
        compute, memory = int(match[1]) / gpu.compute_slices, int(match[2]) * _GIB * _USABLE_MEMORY_RATIO
        if compute_peak <= COMPUTE_TARGET * compute and memory_peak * MEMORY_SPARE <= memory:
            fits.append((share, profile))
    return min(fits)[1] if fits else None


class MigPlan(Struct, frozen=True):
    """Geometries for a pool's GPUs, and the demand they serve."""

    model: str
    gpus_by_geometry: Mapping[Geometry, int]
    """Number of GPUs by geometry."""
    demand: Mapping[str, int]
    """The largest number of slices of each profile that any hour needed."""
    unused_gpus: Fraction
    """Compute slices that no hour needed or that the geometries leave unused, in GPUs."""

    @property
    def gpu_count(self) -> int:
        """The number of GPUs."""
        return sum(self.gpus_by_geometry.values())

    def slices_by_profile(self) -> dict[str, int]:
        """Slices by profile."""
        slices: dict[str, int] = {}
        for geometry, count in self.gpus_by_geometry.items():
            for profile in geometry:
                slices[profile] = slices.get(profile, 0) + count
        return slices


def plan_geometries(model: str, demand: Mapping[str, int]) -> MigPlan | None:
    """Find the geometries that serve a demand on the fewest GPUs, by exact search.

    Geometries do not change by hour. So every hour is served if the largest demand for each profile is served.

    Args:
        model: the GPU model.
        demand: the largest number of slices in any hour, by profile.

    Returns:
        None if the model has no MIG, does not have a profile, or the search would be too large.
    """
    profiles = sorted(profile for profile, count in demand.items() if count)
    options = geometries(model)
    supported_profiles = {profile for geometry in options for profile in geometry}
    states = prod(demand[profile] + 1 for profile in profiles)
    if not profiles or not set(profiles) <= supported_profiles or states > MAX_SEARCH_STATES:
        return None
    useful: dict[tuple[int, ...], Geometry] = {}
    for geometry in options:
        useful.setdefault(tuple(geometry.count(profile) for profile in profiles), geometry)
    vectors = [
        vector
        for vector in useful
        if any(vector) and not any(other != vector and all(map(ge, other, vector)) for other in useful)
    ]
    vectors_used = _find_fewest_vectors(tuple(demand[profile] for profile in profiles), vectors)
    chosen: dict[Geometry, int] = {}
    for vector in vectors_used:
        chosen[useful[vector]] = chosen.get(useful[vector], 0) + 1
    gpu = mig_gpu(model)
    slices = gpu.compute_slices if gpu else 1
    served = Fraction(sum(int(profile[0]) * demand[profile] for profile in profiles), slices)
    return MigPlan(model, chosen, {profile: demand[profile] for profile in profiles}, sum(chosen.values()) - served)


def _find_fewest_vectors(demand: tuple[int, ...], vectors: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Find the fewest vectors whose sum covers the demand, by breadth-first search over the remaining demand."""
    predecessors: dict[tuple[int, ...], tuple[tuple[int, ...], tuple[int, ...]]] = {}
    frontier, seen = [demand], {demand}
    covered = tuple(0 for _ in demand)
    while covered not in seen:
        next_frontier = []
        for remaining in frontier:
            for vector in vectors:
                next_remaining = tuple(max(0, a - b) for a, b in zip(remaining, vector, strict=True))
                if next_remaining not in seen:
                    seen.add(next_remaining)
                    predecessors[next_remaining] = (remaining, vector)
                    next_frontier.append(next_remaining)
        frontier = next_frontier
    path, state = [], covered
    while state != demand:
        state, vector = predecessors[state]
        path.append(vector)
    return path


class PlanReplay(Struct, frozen=True):
    """How well a plan would have served the demand of the look-back's hours."""

    replayed_hours: int
    pod_hours_waited: int
    """Pod-hours without a free slice."""
    peak_usage: Fraction
    """The largest part of a profile's slices that was in use in an hour."""


def replay_plan(plan: MigPlan, hours: Sequence[Mapping[str, int]]) -> PlanReplay:
    """Place the pods of every hour on the slices of a plan.

    Args:
        plan: the plan.
        hours: needed slices by profile, for each hour.
    """
    supply = plan.slices_by_profile()
    waited, peak_usage = 0, Fraction(0)
    for hour in hours:
        for profile, count in hour.items():
            available = supply.get(profile, 0)
            waited += max(0, count - available)
            peak_usage = max(peak_usage, Fraction(min(count, available), available) if available else Fraction(0))
    return PlanReplay(len(hours), waited, peak_usage)


# The kind.

_SINGLE_POOL_SHARE = 0.999
"""Part of a workload's GPU-hours that must be in one pool."""
RISK = "A request runs on the compute of one slice, so it may take proportionally longer."


class SliceFit(Struct, frozen=True):
    """A workload, and the MIG profile that it fits."""

    measures: WorkloadMeasures
    pool: PoolKey
    profile: str


class MigSlice(RecommendationKind):
    """Let a workload request a slice of its pool's geometry."""

    name = "mig-slice"
    title = "Use a MIG slice"
    when = (
        "the workload is part of a plan for `mig-geometry`: its busiest pod uses at most 70% of the slice's compute "
        "and 1/1.1 of its memory"
    )
    change = "request the slice"
    verified = "what each remaining pod released"
    not_verified = "pods that are gone"
    keeps_resource = False

    @classmethod
    def recommend_slice(cls, look_back: LookBack, fit: SliceFit, plan_id: str) -> RecommendationContent:
        """Recommend the slice that a workload fits, as part of its pool's plan."""
        history, subject = fit.measures.history, workload_subject(look_back.cluster, fit.measures.history)
        share = float(profile_share(fit.profile, history.key.gpu_model) or 1)

        def freed(index: int) -> tuple[float, float]:
            return history.cost_usd[index] * (1 - share), history.held_gpu_hours[index] * (1 - share)

        saving = estimate_workload_saving(look_back, fit.measures, freed, history.spend.avoidable_share())
        title = f"Let {subject.workload_name} request a {fit.profile} slice instead of a GPU"
        facts = {
            "profile": f"{fit.profile}, {share:.3f} of a GPU",
            "busiest pod": f"{fit.measures.pod_peak_utilization:.1%} of a whole GPU in its busiest hour "
            "(an hour's mean)",
            "GPU memory": f"{history.memory_peak_bytes / GIB:.1f} GiB at most",
        }
        return RecommendationContent(
            kind=cls.name,
            subject=subject,
            title=title,
            summary=f"{title}: its busiest pod uses {fit.measures.pod_peak_utilization:.0%} of the GPU",
            saving=saving,
            evidence=workload_evidence(look_back, fit.measures, facts),
            confidence=confidence_level(fit.measures),
            risk="medium",
            risk_note=RISK,
            effort="medium",
            patch=slice_patch(subject, fit.profile),
            current_gpus=round_cents(fit.measures.current_gpus),
            recommended_gpus=round_ratio(fit.measures.current_gpus * share) or round_cents(0),
            usd_hourly=round_cents(fit.measures.usd_hourly),
            part_of=plan_id,
        )

    @classmethod
    def expected_amount(cls, content: RecommendationContent, current: SubjectHour, before: SubjectHour) -> float:
        """Of what it held, the part of the pods that are still there."""
        return before.held * remaining_work(current, before) if current.held else 0.0


def fit_slice(measures: WorkloadMeasures) -> SliceFit | None:
    """Find the slice that fits a workload's pods, each of which holds one whole GPU.

    Returns:
        None if there is none, or if its memory is not known well enough.
    """
    history = measures.history
    held = sum(history.held_gpu_hours[measures.first_held_index :])
    if (
        history.units_per_pod != 1
        or history.gpu_share != 1.0
        or not history.gpu_millihours_by_pool
        or measures.current_gpus <= 0
        or measures.pod_peak_utilization < 0
    ):
        return None
    ((pool, largest_pool_hours),) = history.gpu_millihours_by_pool.most_common(1)
    if largest_pool_hours < _SINGLE_POOL_SHARE * sum(history.gpu_millihours_by_pool.values()):
        return None
    if history.memory_observed_gpu_hours < MIN_MEMORY_SHARE * held:
        return None
    profile = fitting_profile(history.key.gpu_model, measures.pod_peak_utilization, history.memory_peak_bytes)
    return None if profile is None else SliceFit(measures, pool, profile)


def slice_patch(subject: RecommendationSubject, profile: str) -> str:
    """Commands that let pods request a MIG slice instead of a whole GPU."""
    if subject.workload_kind not in API_VERSION_OF_SCALABLE_KIND:
        return ""
    name = quote(f"{subject.workload_kind.lower()}/{subject.workload}")
    limits = quote(f"--limits={subject.resource}=0,nvidia.com/mig-{profile}=1")
    return (
        f"# the container that has {single_line(subject.resource)}: add -c NAME if there are several\n"
        f"kubectl -n {quote(subject.namespace)} set resources {name} {limits}\n"
    )
