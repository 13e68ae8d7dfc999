"""Right-sizing: assesses every workload, and recommends zero, fewer or more GPUs.

The usual bands apply: below 30% utilization a workload has too many GPUs, 30 to 70% is healthy, and sustained use above
90% is too little capacity. Recommendations leave the busiest hour at 70%, as a reserve.
"""

from collections.abc import Mapping
from math import ceil

from gpucost.core.metering.gpu_models import memory_gb
from gpucost.features.recommendations.history import LookBack, WorkloadKey
from gpucost.features.recommendations.measuring import (
    WorkloadMeasures,
    estimate_saving,
    measure_workload,
    workload_evidence,
    workload_list_price_ratio,
    workload_subject,
)
from gpucost.features.recommendations.model import (
    ConfidenceLevel,
    RecommendationContent,
    RecommendationKind,
    WorkloadAssessment,
    WorkloadFinding,
    format_count,
    format_gpus,
    recommendation_id,
    round_cents,
    round_ratio,
)
from gpucost.features.recommendations.patches import fewer_gpus_patch, replicas_patch
from gpucost.features.recommendations.pools import gpus_per_node
from gpucost.features.recommendations.rules.replicas import fitting_replicas

IDLE_UTILIZATION = 0.02
"""Utilization below which a GPU counts as idle. Drivers and health checks stay below it."""
LOW, TARGET, HIGH = 0.30, 0.70, 0.90
SATURATED_HOURS_SHARE = 0.9
"""Part of the hours that must be above `HIGH` for a saturated workload."""
SERVICE_KINDS = frozenset(
    {"Deployment", "StatefulSet", "ReplicaSet", "LeaderWorkerSet", "InferenceService", "RayService"}
)
"""Kinds that serve requests. A job at full utilization needs no change."""
CERTAIN_HOURS, CERTAIN_COVERAGE = 336, 0.98
"""Confidence is high from two weeks and this coverage on."""
MIN_MONTHLY_SAVING_USD = 1.0
"""Smallest monthly saving of a recommendation."""
MIN_MEMORY_SHARE = 0.9
"""Part of the GPU-hours that must have observed memory."""
MEMORY_SPARE = 1.10
"""GPU memory ÷ the memory peak."""
_USABLE_MEMORY_RATIO = 0.9
"""Usable part of a GPU's nominal GB, in GiB."""
_GIB = 2**30
_WORKLOAD_KINDS: tuple[RecommendationKind, ...] = ("idle", "fewer-gpus", "cheaper-gpus", "add-gpus", "off-hours")
"""After one of these is applied, only later hours count for the finding."""
_MIXED_WORKLOAD = "its other pods have another GPU model or resource, and a change would affect all of them"


def assess_workloads(
    look_back: LookBack, since: Mapping[str, int]
) -> tuple[list[WorkloadAssessment], list[WorkloadMeasures], list[RecommendationContent]]:
    """Assess every workload, and recommend a change for those with too many or too few GPUs.

    Args:
        look_back: the look-back.
        since: index of the first hour after a recommendation was applied, by its id.

    Returns:
        The assessments, the measures of workloads that other rules may use, and the recommendations.
    """
    assessments, measured, contents = [], [], []
    findings: dict[WorkloadKey, tuple[WorkloadMeasures, WorkloadFinding, str]] = {}
    for key in sorted(look_back.workloads):
        history = look_back.workloads[key]
        subject = workload_subject(look_back.cluster, history)
        first = max((since.get(recommendation_id(kind, subject), 0) for kind in _WORKLOAD_KINDS), default=0)
        measures = measure_workload(look_back, history, first)
        if measures is not None:
            findings[key] = measures, *classify_workload(measures)
        elif any(history.held_gpu_hours[-24:]):
            assessments.append(
                WorkloadAssessment(subject, "unknown", round_cents(0), None, None, "too few hours have figures")
            )
    parts = _split_workloads(look_back, findings)
    for key, (measures, finding, reason) in findings.items():
        subject = workload_subject(look_back.cluster, measures.history)
        others = [findings.get(part) for part in parts.get(key[:4], ()) if part != key]
        # One object creates all these pods, so a change affects all of them.
        has_other_parts = any(other is None or not finding == other[1] == "idle" for other in others)
        if measures.current_gpus > 0:
            stated_reason = f"{reason}; {_MIXED_WORKLOAD}" if has_other_parts else reason
            assessments.append(
                WorkloadAssessment(
                    subject,
                    finding,
                    round_cents(measures.current_gpus),
                    round_ratio(measures.mean_utilization),
                    round_ratio(measures.peak_utilization),
                    stated_reason,
                )
            )
        if finding == "unknown" or has_other_parts:
            continue
        measured.append(measures)
        content = _recommend_zero(look_back, measures) if finding == "idle" else None
        content = content or _recommend_replicas(look_back, measures)
        content = content or (_recommend_fewer(look_back, measures) if finding == "low" else None)
        content = content or (_recommend_more(look_back, measures) if finding == "saturated" else None)
        if content is not None:
            contents.append(content)
    return assessments, measured, contents


def _split_workloads(
    look_back: LookBack, findings: Mapping[WorkloadKey, tuple[WorkloadMeasures, WorkloadFinding, str]]
) -> dict[tuple[str, ...], list[WorkloadKey]]:
    """The keys of workloads whose pods now have several GPU models or resources."""
    parts: dict[tuple[str, ...], list[WorkloadKey]] = {}
    for key, history in look_back.workloads.items():
        if findings[key][0].current_gpus > 0 if key in findings else any(history.held_gpu_hours[-24:]):
            parts.setdefault(key[:4], []).append(key)
    return {name: keys for name, keys in parts.items() if len(keys) > 1}


def classify_workload(measures: WorkloadMeasures) -> tuple[WorkloadFinding, str]:
    """The finding of a workload and its reason."""
    if measures.missing_data_reason or measures.mean_utilization is None or measures.peak_utilization is None:
        return "unknown", measures.missing_data_reason or "no utilization was observed"
    mean, peak = measures.mean_utilization, measures.peak_utilization
    reason = f"utilization {mean:.0%} on average, {peak:.0%} in the busiest hour"
    if peak < IDLE_UTILIZATION:
        return "idle", reason
    if mean < LOW:
        return ("low", reason) if peak < LOW else ("bursty", reason)
    if mean <= TARGET:
        return "healthy", reason
    return ("saturated", reason) if _is_sustained_high_use(measures) else ("busy", reason)


def _is_sustained_high_use(measures: WorkloadMeasures) -> bool:
    history = measures.history
    is_high = [
        history.used_gpu_hours[index] / history.observed_gpu_hours[index] >= HIGH
        for index in range(measures.first_held_index, len(history.held_gpu_hours))
        if history.observed_gpu_hours[index] > 0
    ]
    return sum(is_high) >= SATURATED_HOURS_SHARE * len(is_high)


def _recommend_zero(look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
    history, subject = measures.history, workload_subject(look_back.cluster, measures.history)

    def freed(index: int) -> tuple[float, float]:
        return history.cost_usd[index], history.held_gpu_hours[index]

    cash = workload_cash_share(look_back, measures, measures.current_gpus)
    saving = estimate_saving(
        look_back,
        measures.first_held_index,
        freed,
        cash,
        workload_list_price_ratio(look_back, history),
        history.is_unpriced,
    )
    if saving.usd < MIN_MONTHLY_SAVING_USD:
        return None
    title = f"Scale {subject.workload_name} to zero"
    held = sum(1 for index in range(measures.first_held_index, look_back.hours) if history.held_gpu_hours[index])
    return RecommendationContent(
        kind="idle",
        subject=subject,
        title=title,
        summary=f"{title}: it holds {format_gpus(measures.current_gpus)}, "
        f"and no hour of {held} used more than {measures.peak_utilization or 0:.1%}",
        saving=saving,
        evidence=workload_evidence(
            look_back,
            measures,
            {"peak": "mean of the busiest hour", **_cash_fact(look_back, measures, measures.current_gpus)},
        ),
        confidence=confidence_level(measures),
        risk="low" if subject.workload_kind in {"Pod", "Notebook", "StatefulSet"} else "medium",
        risk_note="Nothing ran on it, but clients may still expect it to answer.",
        effort="low",
        patch=replicas_patch(subject, 0),
        current_gpus=round_cents(measures.current_gpus),
        recommended_gpus=round_cents(0),
        usd_hourly=round_cents(measures.usd_hourly),
    )


def _recommend_fewer(look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
    sizes = _smaller_size(measures)
    if sizes is None:
        return None
    reason = (
        f"its {format_count(measures.current_gpus)} GPUs were never above {measures.peak_utilization or 0:.0%} in any "
        "hour"
    )
    return _recommend_size(look_back, measures, *sizes, reason, {})


def _recommend_replicas(look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
    """Recommend fewer replicas of an inference server, where its latency histogram shows that they suffice."""
    fitting = fitting_replicas(look_back, measures)
    if fitting is None or measures.history.key.kind not in SERVICE_KINDS:
        return None
    reason = (
        f"replicas that served {fitting.requests_per_replica:,.0f} or more requests in an hour had a p95 latency of "
        f"{fitting.p95_at_load:.3g} s, and all together {fitting.p95:.3g} s"
    )
    facts = {
        "requests in the busiest hour": f"{fitting.busiest_hour_requests:,.0f}",
        "requests per replica after the change": f"{fitting.requests_per_replica:,.0f} in the busiest hour",
        "p95 latency": f"{fitting.p95:.3g} s, mean of hourly p95 by requests, of the server's histogram",
        "p95 latency at that load": f"{fitting.p95_at_load:.3g} s in {fitting.pod_hours} hours of single replicas",
    }
    return _recommend_size(look_back, measures, fitting.replicas, measures.history.units_per_pod, reason, facts)


def _recommend_size(
    look_back: LookBack, measures: WorkloadMeasures, pods: int, units: int, reason: str, facts: Mapping[str, str]
) -> RecommendationContent | None:
    """Recommend a number of replicas (0: unchanged) and units per pod; None if that saves nothing worth mentioning."""
    history, subject = measures.history, workload_subject(look_back.cluster, measures.history)
    # Either the number of replicas changes, or each pod keeps a part of its GPUs.
    kept_share = units / history.units_per_pod
    kept_gpus = pods * units * history.gpu_share if pods else measures.current_gpus * kept_share

    def freed(index: int) -> tuple[float, float]:
        held = history.held_gpu_hours[index]
        part = (max(0.0, held - kept_gpus) / held if pods else 1 - kept_share) if held else 0.0
        return history.cost_usd[index] * part, held * part

    cash = workload_cash_share(look_back, measures, measures.current_gpus - kept_gpus)
    saving = estimate_saving(
        look_back,
        measures.first_held_index,
        freed,
        cash,
        workload_list_price_ratio(look_back, history),
        history.is_unpriced,
    )
    if saving.usd < MIN_MONTHLY_SAVING_USD or measures.current_gpus <= kept_gpus * 1.001:
        return None
    if pods:
        target = f"{pods} replica{'s' if pods > 1 else ''}"
        patch = replicas_patch(subject, pods) if units == history.units_per_pod else ""
        if units != history.units_per_pod:
            target += f" of {units} × {subject.resource}"
            patch = fewer_gpus_patch(subject, units, pods)
        risk: ConfidenceLevel = "low" if pods > 1 else "medium"
        note = (
            "A single replica has no replacement when it fails."
            if pods == 1
            else "Each replica is busier; latency may rise."
        )
        if facts:
            note += " Where an autoscaler sets the replicas, lower its maximum instead."
    else:
        target = f"{units} × {subject.resource} per pod"
        patch = fewer_gpus_patch(subject, units)
        risk, note = (
            "medium",
            "A workload that splits its work over GPUs (tensor or data parallel) must be configured for it.",
        )
    if units < history.units_per_pod and not _has_memory_samples(measures):
        risk, note = "high", f"{note} Its GPU memory was not observed, so it may not fit."
    peak_after = measures.peak_used_gpus / kept_gpus if pods else measures.pod_peak_utilization / kept_share
    return RecommendationContent(
        kind="fewer-gpus",
        subject=subject,
        title=f"Give {subject.workload_name} {target}",
        summary=f"Give {subject.workload_name} {target}: {reason}",
        saving=saving,
        evidence=workload_evidence(
            look_back,
            measures,
            {
                "peak": "mean of the busiest hour",
                "GPUs used in the busiest hour": f"{measures.peak_used_gpus:.2f}",
                # Utilization does not follow the load of a server that batches requests.
                **(facts or {"busiest hour after the change": f"{peak_after:.0%}"}),
                **_cash_fact(look_back, measures, measures.current_gpus - kept_gpus),
            },
        ),
        confidence=confidence_level(measures),
        risk=risk,
        risk_note=note,
        effort="low" if pods else "medium",
        patch=patch,
        current_gpus=round_cents(measures.current_gpus),
        recommended_gpus=round_cents(kept_gpus),
        usd_hourly=round_cents(measures.usd_hourly),
    )


def workload_cash_share(look_back: LookBack, measures: WorkloadMeasures, freed: float) -> float | None:
    """The part of a saving that leaves the bill; None if it is not known.

    Freed GPUs become cash when their node is removed. That is not known for fewer GPUs than a node has.
    """
    share = measures.history.spend.avoidable_share()
    return None if share and freed < _largest_node_gpus(look_back, measures) else share


def _largest_node_gpus(look_back: LookBack, measures: WorkloadMeasures) -> int:
    """GPUs of the largest node on which the workload runs."""
    return max((gpus_per_node(look_back.pools[pool]) for pool in measures.history.gpu_millihours_by_pool), default=0)


def _cash_fact(look_back: LookBack, measures: WorkloadMeasures, freed: float) -> dict[str, str]:
    """A fact that freed GPUs are no cash yet; empty if they are a whole node."""
    node_gpus = _largest_node_gpus(look_back, measures)
    if freed >= node_gpus:
        return {}
    return {
        "cash": f"when a node is removed: {format_count(freed)} of {node_gpus} GPUs become free, others may be held"
    }


def _smaller_size(measures: WorkloadMeasures) -> tuple[int, int] | None:
    """Find the replicas and units per pod that leave the busiest hour at the target utilization.

    Fewer replicas come first; a single replica gets fewer units.

    Returns:
        Replicas (0: unchanged) and units per pod; None if neither can be reduced.
    """
    history = measures.history
    gpus_per_pod = history.gpus_per_pod
    if gpus_per_pod <= 0:
        return None
    current_pods = max(1, round(measures.current_gpus / gpus_per_pod))
    is_service = history.key.kind in SERVICE_KINDS
    if is_service and current_pods > 1:
        pods = max(1, ceil(round(measures.peak_used_gpus / (TARGET * gpus_per_pod), 9)))
        if pods > 1:
            return (pods, history.units_per_pod) if pods < current_pods else None
        units = max(_units_for_memory(measures), ceil(round(measures.peak_used_gpus / (TARGET * history.gpu_share), 9)))
        return 1, min(units, history.units_per_pod)
    if history.units_per_pod <= 1:
        return None
    # For jobs and single pods, each pod keeps what its busiest hour needed.
    units = max(
        _units_for_memory(measures), ceil(round(measures.pod_peak_utilization * history.units_per_pod / TARGET, 9))
    )
    if units >= history.units_per_pod:
        return None
    return (current_pods, units) if is_service else (0, units)


def _has_memory_samples(measures: WorkloadMeasures) -> bool:
    history = measures.history
    return (
        history.memory_observed_gpu_hours >= MIN_MEMORY_SHARE * sum(history.held_gpu_hours)
        and memory_gb(history.key.gpu_model) is not None
    )


def _units_for_memory(measures: WorkloadMeasures) -> int:
    """Units needed for a pod's GPU memory, if each GPU is as full as the fullest; 1 if it is not known."""
    history, size = measures.history, memory_gb(measures.history.key.gpu_model)
    if history.gpu_share != 1.0 or size is None:
        return 1
    return max(
        1, ceil(history.units_per_pod * history.memory_peak_bytes * MEMORY_SPARE / (size * _GIB * _USABLE_MEMORY_RATIO))
    )


def _recommend_more(look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
    history, subject = measures.history, workload_subject(look_back.cluster, measures.history)
    if subject.workload_kind not in SERVICE_KINDS or history.gpus_per_pod <= 0 or measures.mean_utilization is None:
        return None
    pods = max(1, round(measures.current_gpus / history.gpus_per_pod))
    replicas = max(
        pods + 1, ceil(round(measures.mean_utilization * measures.current_gpus / (TARGET * history.gpus_per_pod), 9))
    )
    added_share = replicas / pods - 1

    def freed(index: int) -> tuple[float, float]:
        return -history.cost_usd[index] * added_share, -history.held_gpu_hours[index] * added_share

    added, node_gpus = measures.current_gpus * added_share, _largest_node_gpus(look_back, measures)
    # The cost of more GPUs is not known with commitments, which may have room left, and for fewer GPUs than a node has.
    cash = 1.0 if history.spend.avoidable_share() == 1 and added >= node_gpus else None
    title = f"Give {subject.workload_name} {replicas} replicas instead of {pods}"
    facts = {"at 90% utilization or more": f"in at least {SATURATED_HOURS_SHARE:.0%} of the hours"}
    if added < node_gpus:
        facts["cash"] = f"none while nodes have {format_count(added)} free GPUs; otherwise a node with {node_gpus} GPUs"
    saving = estimate_saving(
        look_back,
        measures.first_held_index,
        freed,
        cash,
        workload_list_price_ratio(look_back, history),
        history.is_unpriced,
    )
    return RecommendationContent(
        kind="add-gpus",
        subject=subject,
        title=title,
        summary=f"{title}: its GPUs "
        f"are {measures.mean_utilization:.0%} utilized on average, and demand above them is not visible",
        saving=saving,
        evidence=workload_evidence(look_back, measures, facts),
        confidence=confidence_level(measures),
        risk="low",
        risk_note="It costs money. These figures do not show how much work is waiting.",
        effort="low",
        patch=replicas_patch(subject, replicas),
        current_gpus=round_cents(measures.current_gpus),
        recommended_gpus=round_cents(measures.current_gpus * (1 + added_share)),
        usd_hourly=round_cents(measures.usd_hourly),
        pools=tuple(sorted({(pool.node_pool, pool.instance_type) for pool in history.gpu_millihours_by_pool})),
    )


def confidence_level(measures: WorkloadMeasures) -> ConfidenceLevel:
    """High or medium. With less than a week or little coverage there is no recommendation."""
    return (
        "high" if measures.hours_with_figures >= CERTAIN_HOURS and measures.coverage >= CERTAIN_COVERAGE else "medium"
    )
