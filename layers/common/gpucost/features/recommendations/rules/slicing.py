"""MIG plans: whole-GPU workloads that fit slices, and the geometry of their pool, proven by replaying its hours.

A slice saves money only where others take the rest of its GPU, so workloads are advised with a plan of their pool that
frees whole nodes, never alone. Memory peaks are what the exporter saw (`DCGM_FI_DEV_FB_USED`): what reserves all memory
when it starts, as vLLM does, fits nothing smaller until it is told to reserve less.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from gpucost.core.metering.gpu_models import profile_share
from gpucost.features.recommendations.history import LookBack, PoolHistory, PoolKey
from gpucost.features.recommendations.measuring import (
    WorkloadMeasures,
    estimate_saving,
    workload_evidence,
    workload_list_ratio,
    workload_subject,
)
from gpucost.features.recommendations.model import (
    RecommendationContent,
    Subject,
    format_count,
    recommendation_id,
    round_cents,
    round_ratio,
)
from gpucost.features.recommendations.patches import geometry_patch, slice_patch
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
from gpucost.features.recommendations.rules import mig_layouts as mig
from gpucost.features.recommendations.rules.rightsizing import confidence_level

LEAST_MEMORY = 0.9
"""Part of the GPU-hours whose memory must have been seen."""
_ALONE = 0.999
"""Part of a workload's GPU-hours that must be in one pool."""
_LEAST_USD = 1.0
_GIB = 2**30


@dataclass(frozen=True, slots=True)
class SliceFit:
    """A workload and the slice that it fits."""

    measured: WorkloadMeasures
    pool: PoolKey
    profile: str


def recommend_slices(
    look_back: LookBack, measured: Sequence[WorkloadMeasures], taken: set[Subject]
) -> list[RecommendationContent]:
    """Plans of pools, each with its workloads.

    Args:
        look: the look-back.
        measured: workloads of which enough is known.
        taken: workloads that something else is advised of.
    """
    by_pool: dict[PoolKey, list[SliceFit]] = {}
    for one in measured:
        if workload_subject(look_back.cluster, one.history) in taken:
            continue
        found = fit_slice(one)
        if found is not None:
            by_pool.setdefault(found.pool, []).append(found)
    return [advice for key in sorted(by_pool) for advice in _pool(look_back, look_back.pools[key], by_pool[key])]


def fit_slice(one: WorkloadMeasures) -> SliceFit | None:
    """The slice that a workload's pods fit, each of which has one whole GPU; None where there is none, or too little
    is known of its memory."""
    history = one.history
    held = sum(history.held[one.first :])
    if (
        history.units_per_pod != 1
        or history.gpu_share != 1.0
        or not history.pools
        or one.current_gpus <= 0
        or one.pod_peak < 0
    ):
        return None
    ((pool, most),) = history.pools.most_common(1)
    if most < _ALONE * sum(history.pools.values()) or history.memory_gpu_hours < LEAST_MEMORY * held:
        return None
    profile = mig.fitting_profile(history.key.gpu_model, one.pod_peak, history.memory_peak)
    return None if profile is None else SliceFit(one, pool, profile)


def _pool(look_back: LookBack, pool: PoolHistory, own: Sequence[SliceFit]) -> list[RecommendationContent]:
    gpus = gpus_per_node(pool)
    model = pool.key.gpu_model
    hours: list[dict[str, int]] = [{} for _ in range(look_back.hours)]
    wanted: dict[str, int] = {}
    for one in own:
        for index, count in enumerate(one.measured.history.pods):
            if count:
                hours[index][one.profile] = hours[index].get(one.profile, 0) + count
    for hour in hours:
        for profile, count in hour.items():
            wanted[profile] = max(wanted.get(profile, 0), count)
    plan = mig.plan_geometries(model, wanted)
    if plan is None or not gpus or not has_enough_prices(look_back, pool):
        return []
    first = min(one.measured.first for one in own)
    known = [index for index in range(first, look_back.hours) if look_back.has_figures[index]]
    proof = mig.replay_plan(plan, [hours[index] for index in known])
    whole = [sum(round(size * count) for size, count in pods) for pods in pool.pods]

    def nodes(index: int) -> tuple[int, int]:
        """Nodes before and after."""
        others = max(0, whole[index] - sum(hours[index].values()))
        # Pods that follow each other within an hour are counted each: no more nodes can go than there are.
        return min(ceil(whole[index] / gpus), pool.nodes[index]), ceil((others + plan.count) / gpus)

    def freed(index: int) -> tuple[float, float]:
        before, after = nodes(index)
        return (before - after) * node_cost(pool, index), float((before - after) * gpus)

    saving = estimate_saving(
        look_back, first, freed, pool.cash.cash_share(), pool_list_ratio(look_back, pool), pool.unpriced
    )
    if proof.pod_hours_waited or saving.usd < _LEAST_USD:
        return []
    newest = newest_hours(look_back, first)
    before, after = (sum(nodes(index)[which] for index in newest) / max(1, len(newest)) for which in (0, 1))
    if before <= after:
        return []
    subject = pool_subject(look_back, pool)
    layouts = [list(geometry) for geometry, count in sorted(plan.gpus.items()) for _ in range(count)]
    layouts += [[] for _ in range(-len(layouts) % gpus)]
    facts = {
        "slices": ", ".join(f"{count} × {profile}" for profile, count in sorted(plan.demand.items())),
        "replayed": f"{proof.hours} hours, {proof.pod_hours_waited} pod-hours waited; at most {float(proof.peak_usage):.0%} in use",
        "GPUs": f"{plan.count}, of which {float(plan.stranded):.2f} stay unused or stranded",
        "workloads": ", ".join(sorted(one.measured.history.key.name for one in own)),
    }
    if others := mig.other_profile_names(model):
        facts["names"] = f"as in NVIDIA's guide; some drivers say {others} instead (nvidia-smi mig -lgip)"
    found = RecommendationContent(
        "mig-geometry",
        subject,
        f"Slice {plan.count} GPUs of node pool {pool.key.node_pool or '(none)'} for {len(own)} workloads that fit MIG "
        f"slices: {format_count(before)} {pool.key.instance_type} nodes become {format_count(after)}",
        saving,
        pool_evidence(look_back, pool, first, facts),
        "medium",
        "medium",
        "One request has a slice's compute alone: it may take as many times longer.",
        "high",
        geometry_patch(pool.key.node_pool, [layouts[at : at + gpus] for at in range(0, len(layouts), gpus)]),
        round_cents(before),
        round_cents(after),
        round_cents(mean_pool_cost(look_back, pool, first)),
    )
    return [found, *(_workload(look_back, one, recommendation_id("mig-geometry", subject)) for one in own)]


def _workload(look_back: LookBack, one: SliceFit, plan_id: str) -> RecommendationContent:
    history, subject = one.measured.history, workload_subject(look_back.cluster, one.measured.history)
    share = float(profile_share(one.profile, history.key.gpu_model) or 1)

    def freed(index: int) -> tuple[float, float]:
        return history.usd[index] * (1 - share), history.held[index] * (1 - share)

    saving = estimate_saving(
        look_back,
        one.measured.first,
        freed,
        history.cash.cash_share(),
        workload_list_ratio(look_back, history),
        history.unpriced,
    )
    facts = {
        "profile": f"{one.profile}, {share:.3f} of a GPU",
        "busiest pod": f"{one.measured.pod_peak:.1%} of a whole GPU in its busiest hour (an hour's mean)",
        "GPU memory": f"{history.memory_peak / _GIB:.1f} GiB at most",
    }
    return RecommendationContent(
        "mig-slice",
        subject,
        f"Let {subject.workload_kind} {subject.namespace}/{subject.workload} request a {one.profile} slice in place of a GPU",
        saving,
        workload_evidence(look_back, one.measured, facts),
        confidence_level(one.measured),
        "medium",
        "One request has a slice's compute alone: it may take as many times longer.",
        "medium",
        slice_patch(subject, one.profile),
        round_cents(one.measured.current_gpus),
        round_ratio(one.measured.current_gpus * share) or round_cents(0),
        round_cents(one.measured.usd_hourly),
        part_of=plan_id,
    )
