"""MIG plans: workloads with whole GPUs that fit slices, and a geometry of their pool, verified by replaying its hours.

A slice saves money only if other pods use the rest of its GPU. So slices are recommended only with a plan of their pool
that frees whole nodes. Memory peaks come from the exporter (`DCGM_FI_DEV_FB_USED`). A workload that reserves all memory
at its start, such as vLLM, fits no slice until it is configured to reserve less.
"""

from collections.abc import Sequence
from math import ceil

from msgspec import Struct

from gpucost.core.metering.gpu_models import profile_share
from gpucost.features.recommendations.fewer_nodes import enough_nodes_fact, fewer_nodes_phrase
from gpucost.features.recommendations.history import LookBack, PoolHourlySeries, PoolKey
from gpucost.features.recommendations.measuring import (
    WorkloadMeasures,
    estimate_saving,
    workload_evidence,
    workload_list_price_ratio,
    workload_subject,
)
from gpucost.features.recommendations.model import (
    RecommendationContent,
    RecommendationSubject,
    recommendation_id,
    round_cents,
    round_ratio,
)
from gpucost.features.recommendations.patches import geometry_patch, slice_patch
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
from gpucost.features.recommendations.rules import mig_layouts as mig
from gpucost.features.recommendations.rules.rightsizing import confidence_level

MIN_MEMORY_SHARE = 0.9
"""Part of the GPU-hours that must have observed memory."""
_SINGLE_POOL_SHARE = 0.999
"""Part of a workload's GPU-hours that must be in one pool."""
_MIN_MONTHLY_SAVING_USD = 1.0
_RISK = "A request runs on the compute of one slice, so it may take proportionally longer."
_GIB = 2**30


class SliceFit(Struct, frozen=True):
    """A workload, and the MIG profile that it fits."""

    measures: WorkloadMeasures
    pool: PoolKey
    profile: str


def recommend_slices(
    look_back: LookBack, measured: Sequence[WorkloadMeasures], excluded: set[RecommendationSubject]
) -> list[RecommendationContent]:
    """Recommend a geometry for each pool, and a slice for each of its workloads that fit one.

    Args:
        look_back: the look-back.
        measured: workloads with sufficient measures.
        excluded: workloads that already have another recommendation.
    """
    by_pool: dict[PoolKey, list[SliceFit]] = {}
    for measures in measured:
        if workload_subject(look_back.cluster, measures.history) in excluded:
            continue
        slice_fit = fit_slice(measures)
        if slice_fit is not None:
            by_pool.setdefault(slice_fit.pool, []).append(slice_fit)
    return [
        content for key in sorted(by_pool) for content in _recommend_plan(look_back, look_back.pools[key], by_pool[key])
    ]


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
    profile = mig.fitting_profile(history.key.gpu_model, measures.pod_peak_utilization, history.memory_peak_bytes)
    return None if profile is None else SliceFit(measures, pool, profile)


def _recommend_plan(
    look_back: LookBack, pool: PoolHourlySeries, fits: Sequence[SliceFit]
) -> list[RecommendationContent]:
    gpus = gpus_per_node(pool)
    model = pool.key.gpu_model
    hours: list[dict[str, int]] = [{} for _ in range(look_back.hours)]
    demand: dict[str, int] = {}
    for fit in fits:
        for index, count in enumerate(fit.measures.history.pod_counts):
            if count:
                hours[index][fit.profile] = hours[index].get(fit.profile, 0) + count
    for hour in hours:
        for profile, count in hour.items():
            demand[profile] = max(demand.get(profile, 0), count)
    plan = mig.plan_geometries(model, demand)
    if plan is None or not gpus or not has_enough_prices(look_back, pool):
        return []
    first = min(fit.measures.first_held_index for fit in fits)
    hours_with_figures = [index for index in range(first, look_back.hours) if look_back.has_figures[index]]
    replayed = mig.replay_plan(plan, [hours[index] for index in hours_with_figures])
    gpus_wanted = [sum(round(size * count) for size, count in pods) for pods in pool.pod_sizes]

    def nodes(index: int) -> tuple[int, int]:
        """Nodes before and after the change."""
        others = max(0, gpus_wanted[index] - sum(hours[index].values()))
        # Pods that run one after another within an hour are counted separately, so limit it to the nodes there were.
        return min(ceil(gpus_wanted[index] / gpus), pool.node_counts[index]), ceil((others + plan.gpu_count) / gpus)

    def freed(index: int) -> tuple[float, float]:
        before, after = nodes(index)
        return (before - after) * mean_node_cost(pool, index), float((before - after) * gpus)

    saving = estimate_saving(
        look_back, first, freed, pool.spend.avoidable_share(), pool_list_price_ratio(look_back, pool), pool.is_unpriced
    )
    if replayed.pod_hours_waited or saving.usd < _MIN_MONTHLY_SAVING_USD:
        return []
    newest = newest_hour_indexes(look_back, first)
    before, after = (sum(nodes(index)[position] for index in newest) / max(1, len(newest)) for position in (0, 1))
    if before <= after:
        return []
    subject = pool_subject(look_back, pool)
    pairs = [nodes(index) for index in newest]
    befores, afters = [pair[0] for pair in pairs], [min(pair) for pair in pairs]
    title = (
        f"Slice {plan.gpu_count} GPU{'s' if plan.gpu_count > 1 else ''} of node pool {pool.key.node_pool or '(none)'}, "
        f"and run it {fewer_nodes_phrase(befores, afters)}"
    )
    layouts = [list(geometry) for geometry, count in sorted(plan.gpus_by_geometry.items()) for _ in range(count)]
    layouts += [[] for _ in range(-len(layouts) % gpus)]
    facts = {
        "slices": ", ".join(f"{count} × {profile}" for profile, count in sorted(plan.demand.items())),
        "replay": f"{replayed.replayed_hours} hours, {replayed.pod_hours_waited} pod-hours waited; "
        f"at most {float(replayed.peak_usage):.0%} in use",
        "GPUs": f"{plan.gpu_count}, of which {float(plan.unused_gpus):.2f} stay unused or stranded",
        "nodes": f"{enough_nodes_fact(befores, afters)} of the newest day",
        "workloads": ", ".join(sorted(fit.measures.history.key.name for fit in fits)),
    }
    if others := mig.other_profile_names(model):
        facts["names"] = f"as in NVIDIA's guide; some drivers use {others} instead (nvidia-smi mig -lgip)"
    plan_content = RecommendationContent(
        kind="mig-geometry",
        subject=subject,
        title=title,
        summary=f"{title}: {len(fits)} workload{'s fit' if len(fits) > 1 else ' fits'} MIG slices",
        saving=saving,
        evidence=pool_evidence(look_back, pool, first, facts),
        confidence="medium",
        risk="medium",
        risk_note=_RISK,
        effort="high",
        patch=geometry_patch(
            pool.key.node_pool, [layouts[start : start + gpus] for start in range(0, len(layouts), gpus)]
        ),
        current_gpus=round_cents(before),
        recommended_gpus=round_cents(after),
        usd_hourly=round_cents(mean_pool_cost(look_back, pool, first)),
    )
    return [
        plan_content,
        *(_recommend_slice(look_back, fit, recommendation_id("mig-geometry", subject)) for fit in fits),
    ]


def _recommend_slice(look_back: LookBack, fit: SliceFit, plan_id: str) -> RecommendationContent:
    history, subject = fit.measures.history, workload_subject(look_back.cluster, fit.measures.history)
    share = float(profile_share(fit.profile, history.key.gpu_model) or 1)

    def freed(index: int) -> tuple[float, float]:
        return history.cost_usd[index] * (1 - share), history.held_gpu_hours[index] * (1 - share)

    saving = estimate_saving(
        look_back,
        fit.measures.first_held_index,
        freed,
        history.spend.avoidable_share(),
        workload_list_price_ratio(look_back, history),
        history.is_unpriced,
    )
    title = f"Let {subject.workload_name} request a {fit.profile} slice instead of a GPU"
    facts = {
        "profile": f"{fit.profile}, {share:.3f} of a GPU",
        "busiest pod": f"{fit.measures.pod_peak_utilization:.1%} of a whole GPU in its busiest hour (an hour's mean)",
        "GPU memory": f"{history.memory_peak_bytes / _GIB:.1f} GiB at most",
    }
    return RecommendationContent(
        kind="mig-slice",
        subject=subject,
        title=title,
        summary=f"{title}: its busiest pod uses {fit.measures.pod_peak_utilization:.0%} of the GPU",
        saving=saving,
        evidence=workload_evidence(look_back, fit.measures, facts),
        confidence=confidence_level(fit.measures),
        risk="medium",
        risk_note=_RISK,
        effort="medium",
        patch=slice_patch(subject, fit.profile),
        current_gpus=round_cents(fit.measures.current_gpus),
        recommended_gpus=round_ratio(fit.measures.current_gpus * share) or round_cents(0),
        usd_hourly=round_cents(fit.measures.usd_hourly),
        part_of=plan_id,
    )
