"""Workloads that hold more GPUs than they use, or fewer: idle, fewer GPUs, more GPUs; and those that are fine.

The bands are the field's usual ones: under 30% is too much, 30 to 70% healthy, above 90% sustained too little. Below
70% a workload has room for a bad day, so what is advised leaves its busiest hour at 70%.
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
    workload_list_ratio,
    workload_subject,
)
from gpucost.features.recommendations.model import (
    Finding,
    Level,
    RecommendationContent,
    RecommendationKind,
    WorkloadAssessment,
    format_count,
    recommendation_id,
    round_cents,
    round_ratio,
)
from gpucost.features.recommendations.patches import fewer_gpus_patch, replicas_patch
from gpucost.features.recommendations.pools import gpus_per_node

IDLE = 0.02
"""No hour was busier: what drivers and health checks ask of a GPU stays below."""
LOW, TARGET, HIGH = 0.30, 0.70, 0.90
SUSTAINED = 0.9
"""Part of the hours that must be above `HIGH`."""
SERVICES = frozenset({"Deployment", "StatefulSet", "ReplicaSet", "LeaderWorkerSet", "InferenceService", "RayService"})
"""Kinds that serve: a job at full use is as it should be."""
CERTAIN_HOURS, CERTAIN_COVERAGE = 336, 0.98
"""From two weeks of nearly everything on, confidence is high."""
_MIN_USD = 1.0
"""Per month: what saves less is not said."""
MIN_MEMORY_SHARE = 0.9
"""Part of the GPU-hours whose memory must have been seen for it to be known."""
MEMORY_SPARE = 1.10
"""Memory over the largest ever used."""
_USABLE = 0.9
"""Of a GPU's nominal GB, in GiB."""
_GIB = 2**30
_WORKLOAD_KINDS: tuple[RecommendationKind, ...] = ("idle", "fewer-gpus", "add-gpus", "off-hours")
"""Once one of these is applied, only hours after it say how a workload stands."""
_MIXED_WORKLOAD = "its other pods have another GPU model or resource, and what changes these changes those"


def assess_workloads(
    look_back: LookBack, since: Mapping[str, int]
) -> tuple[list[WorkloadAssessment], list[WorkloadMeasures], list[RecommendationContent]]:
    """How every workload stands, and what to change of those that hold too much or too little.

    Args:
        look: the look-back.
        since: by id of advice, place of the first hour after it was applied.
    """
    assessments, measured, contents = [], [], []
    findings: dict[WorkloadKey, tuple[WorkloadMeasures, Finding, str]] = {}
    for key in sorted(look_back.workloads):
        history = look_back.workloads[key]
        subject = workload_subject(look_back.cluster, history)
        first = max((since.get(recommendation_id(kind, subject), 0) for kind in _WORKLOAD_KINDS), default=0)
        measures = measure_workload(look_back, history, first)
        if measures is not None:
            findings[key] = measures, *classify(measures)
        elif any(history.held[-24:]):
            assessments.append(
                WorkloadAssessment(subject, "unknown", round_cents(0), None, None, "too few hours have figures")
            )
    parts = _split_workloads(look_back, findings)
    for key, (measures, finding, reason) in findings.items():
        subject = workload_subject(look_back.cluster, measures.history)
        others = [findings.get(part) for part in parts.get(key[:4], ()) if part != key]
        # One object makes them all: what is changed for some pods changes the others.
        is_held_back = any(other is None or not finding == other[1] == "idle" for other in others)
        if measures.current_gpus > 0:
            stated_reason = f"{reason}; {_MIXED_WORKLOAD}" if is_held_back else reason
            assessments.append(
                WorkloadAssessment(
                    subject,
                    finding,
                    round_cents(measures.current_gpus),
                    round_ratio(measures.mean),
                    round_ratio(measures.peak),
                    stated_reason,
                )
            )
        if finding == "unknown" or is_held_back:
            continue
        measured.append(measures)
        content = _recommend_zero(look_back, measures) if finding == "idle" else None
        content = content or (_recommend_fewer(look_back, measures) if finding == "low" else None)
        content = content or (_recommend_more(look_back, measures) if finding == "saturated" else None)
        if content is not None:
            contents.append(content)
    return assessments, measured, contents


def _split_workloads(
    look_back: LookBack, findings: Mapping[WorkloadKey, tuple[WorkloadMeasures, Finding, str]]
) -> dict[tuple[str, ...], list[WorkloadKey]]:
    """Workloads whose pods are of several GPU models or resources now, with what each of these is known by."""
    parts: dict[tuple[str, ...], list[WorkloadKey]] = {}
    for key, history in look_back.workloads.items():
        if findings[key][0].current_gpus > 0 if key in findings else any(history.held[-24:]):
            parts.setdefault(key[:4], []).append(key)
    return {name: keys for name, keys in parts.items() if len(keys) > 1}


def classify(measures: WorkloadMeasures) -> tuple[Finding, str]:
    """How a workload uses what it holds, and why that is said."""
    if measures.missing_data or measures.mean is None or measures.peak is None:
        return "unknown", measures.missing_data or "nobody observed its use"
    mean, peak = measures.mean, measures.peak
    reason = f"{mean:.0%} used on average, {peak:.0%} in the busiest hour"
    if peak < IDLE:
        return "idle", reason
    if mean < LOW:
        return ("low", reason) if peak < LOW else ("bursty", reason)
    if mean <= TARGET:
        return "healthy", reason
    return ("saturated", reason) if _is_sustained(measures) else ("busy", reason)


def _is_sustained(measures: WorkloadMeasures) -> bool:
    history = measures.history
    is_high = [
        history.used[index] / history.observed[index] >= HIGH
        for index in range(measures.first, len(history.held))
        if history.observed[index] > 0
    ]
    return sum(is_high) >= SUSTAINED * len(is_high)


def _recommend_zero(look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
    history, subject = measures.history, workload_subject(look_back.cluster, measures.history)

    def freed(index: int) -> tuple[float, float]:
        return history.usd[index], history.held[index]

    cash = workload_cash_share(look_back, measures, measures.current_gpus)
    saving = estimate_saving(
        look_back, measures.first, freed, cash, workload_list_ratio(look_back, history), history.unpriced
    )
    if saving.usd < _MIN_USD:
        return None
    held = sum(1 for index in range(measures.first, look_back.hours) if history.held[index])
    return RecommendationContent(
        "idle",
        subject,
        f"Scale {subject.workload_kind} {subject.namespace}/{subject.workload} to zero: it holds {format_count(measures.current_gpus)} GPUs, "
        f"and no hour of {held} used more than {measures.peak or 0:.1%}",
        saving,
        workload_evidence(
            look_back, measures, {"peak": "mean of the busiest hour", **_cash_fact(look_back, measures, measures.current_gpus)}
        ),
        confidence_level(measures),
        "low" if subject.workload_kind in {"Pod", "Notebook", "StatefulSet"} else "medium",
        "Nothing ran on it; somebody may still expect it to answer.",
        "low",
        replicas_patch(subject, 0),
        round_cents(measures.current_gpus),
        round_cents(0),
        round_cents(measures.usd_hourly),
    )


def _recommend_fewer(look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
    history, subject = measures.history, workload_subject(look_back.cluster, measures.history)
    sizes = _smaller_size(measures)
    if sizes is None:
        return None
    pods, units = sizes
    # Replicas are so many; where they stay as many as there are, each keeps a part of what it holds.
    kept_share = units / history.units_per_pod
    kept_gpus = pods * units * history.gpu_share if pods else measures.current_gpus * kept_share

    def freed(index: int) -> tuple[float, float]:
        held = history.held[index]
        part = (max(0.0, held - kept_gpus) / held if pods else 1 - kept_share) if held else 0.0
        return history.usd[index] * part, held * part

    cash = workload_cash_share(look_back, measures, measures.current_gpus - kept_gpus)
    saving = estimate_saving(
        look_back, measures.first, freed, cash, workload_list_ratio(look_back, history), history.unpriced
    )
    if saving.usd < _MIN_USD or measures.current_gpus <= kept_gpus * 1.001:
        return None
    if pods:
        target = f"{pods} replica{'s' if pods > 1 else ''}"
        patch = replicas_patch(subject, pods) if units == history.units_per_pod else ""
        if units != history.units_per_pod:
            target += f" of {units} × {subject.resource}"
            patch = fewer_gpus_patch(subject, units, pods)
        risk: Level = "low" if pods > 1 else "medium"
        note = "Nothing stands in for a single replica." if pods == 1 else "Each replica is busier; latency may rise."
    else:
        target = f"{units} × {subject.resource} per pod"
        patch = fewer_gpus_patch(subject, units)
        risk, note = "medium", "What splits its work over GPUs (tensor or data parallel) must be told the new number."
    if units < history.units_per_pod and not _is_memory_known(measures):
        risk, note = "high", f"{note} Nobody saw its GPU memory: what filled more GPUs may not fit."
    return RecommendationContent(
        "fewer-gpus",
        subject,
        f"Give {subject.workload_kind} {subject.namespace}/{subject.workload} {target}: the {format_count(measures.current_gpus)} GPUs that it "
        f"holds were never above {measures.peak or 0:.0%} in any hour",
        saving,
        workload_evidence(
            look_back,
            measures,
            {
                "peak": "mean of the busiest hour",
                "GPUs used in the busiest hour": f"{measures.peak_gpus:.2f}",
                "busiest hour with the advice": f"{measures.peak_gpus / kept_gpus if pods else measures.pod_peak / kept_share:.0%}",
                **_cash_fact(look_back, measures, measures.current_gpus - kept_gpus),
            },
        ),
        confidence_level(measures),
        risk,
        note,
        "low" if pods else "medium",
        patch,
        round_cents(measures.current_gpus),
        round_cents(kept_gpus),
        round_cents(measures.usd_hourly),
    )


def workload_cash_share(look_back: LookBack, measures: WorkloadMeasures, freed: float) -> float | None:
    """The part of a saving that leaves the bill; None where it is not known.

    GPUs given back are cash once their node goes, which nobody knows of fewer than a node has.
    """
    share = measures.history.cash.cash_share()
    return None if share and freed < _largest_node_gpus(look_back, measures) else share


def _largest_node_gpus(look_back: LookBack, measures: WorkloadMeasures) -> int:
    """Of the largest nodes that it is on."""
    return max((gpus_per_node(look_back.pools[pool]) for pool in measures.history.pools), default=0)


def _cash_fact(look_back: LookBack, measures: WorkloadMeasures, freed: float) -> dict[str, str]:
    """That GPUs given back are no cash yet, where they are less than a node's."""
    node_gpus = _largest_node_gpus(look_back, measures)
    if freed >= node_gpus:
        return {}
    return {"cash": f"once a node goes: {format_count(freed)} of {node_gpus} GPUs are given back, others may hold the rest"}


def _smaller_size(measures: WorkloadMeasures) -> tuple[int, int] | None:
    """Replicas (0: as many as there are) and units per pod that leave the busiest hour at the target.

    Fewer replicas first; of a single replica, fewer units. None where neither is possible.
    """
    history = measures.history
    gpus_per_pod = history.gpus_per_pod
    if gpus_per_pod <= 0:
        return None
    current_pods = max(1, round(measures.current_gpus / gpus_per_pod))
    is_service = history.key.kind in SERVICES
    if is_service and current_pods > 1:
        pods = max(1, ceil(round(measures.peak_gpus / (TARGET * gpus_per_pod), 9)))
        if pods > 1:
            return (pods, history.units_per_pod) if pods < current_pods else None
        units = max(_units_for_memory(measures), ceil(round(measures.peak_gpus / (TARGET * history.gpu_share), 9)))
        return 1, min(units, history.units_per_pod)
    if history.units_per_pod <= 1:
        return None
    # Of several pods of a job, or one pod, each pod keeps what its busiest hour needed.
    units = max(_units_for_memory(measures), ceil(round(measures.pod_peak * history.units_per_pod / TARGET, 9)))
    if units >= history.units_per_pod:
        return None
    return (current_pods, units) if is_service else (0, units)


def _is_memory_known(measures: WorkloadMeasures) -> bool:
    history = measures.history
    return history.memory_gpu_hours >= MIN_MEMORY_SHARE * sum(history.held) and memory_gb(history.key.gpu_model) is not None


def _units_for_memory(measures: WorkloadMeasures) -> int:
    """Units that hold what a pod kept in its GPUs' memory, each taken to be as full as the fullest; 1 if not known."""
    history, size = measures.history, memory_gb(measures.history.key.gpu_model)
    if history.gpu_share != 1.0 or size is None:
        return 1
    return max(1, ceil(history.units_per_pod * history.memory_peak * MEMORY_SPARE / (size * _GIB * _USABLE)))


def _recommend_more(look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
    history, subject = measures.history, workload_subject(look_back.cluster, measures.history)
    if subject.workload_kind not in SERVICES or history.gpus_per_pod <= 0 or measures.mean is None:
        return None
    pods = max(1, round(measures.current_gpus / history.gpus_per_pod))
    replicas = max(pods + 1, ceil(round(measures.mean * measures.current_gpus / (TARGET * history.gpus_per_pod), 9)))
    added_share = replicas / pods - 1

    def freed(index: int) -> tuple[float, float]:
        return -history.usd[index] * added_share, -history.held[index] * added_share

    # What more would cost where some of it is committed to, nobody knows: there may be room left in it.
    cash = 1.0 if history.cash.cash_share() == 1 else None
    saving = estimate_saving(
        look_back, measures.first, freed, cash, workload_list_ratio(look_back, history), history.unpriced
    )
    return RecommendationContent(
        "add-gpus",
        subject,
        f"Give {subject.workload_kind} {subject.namespace}/{subject.workload} {replicas} replicas instead of {pods}: its GPUs "
        f"are {measures.mean:.0%} used on average, and demand above them cannot be seen",
        saving,
        workload_evidence(look_back, measures, {"hours at 90% or more": f"at least {SUSTAINED:.0%}"}),
        confidence_level(measures),
        "low",
        "It costs money; how much work waits is not in these figures.",
        "low",
        replicas_patch(subject, replicas),
        round_cents(measures.current_gpus),
        round_cents(measures.current_gpus * (1 + added_share)),
        round_cents(measures.usd_hourly),
    )


def confidence_level(measures: WorkloadMeasures) -> Level:
    """High or medium: what would be low (less than a week, little observed) is not advised."""
    return "high" if measures.hours >= CERTAIN_HOURS and measures.coverage >= CERTAIN_COVERAGE else "medium"
