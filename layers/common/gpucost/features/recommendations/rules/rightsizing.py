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
SURE_HOURS, SURE_COVERAGE = 336, 0.98
"""From two weeks of nearly everything on, confidence is high."""
_LEAST_USD = 1.0
"""Per month: what saves less is not said."""
LEAST_MEMORY = 0.9
"""Part of the GPU-hours whose memory must have been seen for it to be known."""
MEMORY_SPARE = 1.10
"""Memory over the largest ever used."""
_USABLE = 0.9
"""Of a GPU's nominal GB, in GiB."""
_GIB = 2**30
_OF_WORKLOADS: tuple[RecommendationKind, ...] = ("idle", "fewer-gpus", "add-gpus", "off-hours")
"""Once one of these is applied, only hours after it say how a workload stands."""
_HELD_BACK = "its other pods have another GPU model or resource, and what changes these changes those"


def assess_workloads(
    look_back: LookBack, since: Mapping[str, int]
) -> tuple[list[WorkloadAssessment], list[WorkloadMeasures], list[RecommendationContent]]:
    """How every workload stands, and what to change of those that hold too much or too little.

    Args:
        look: the look-back.
        since: by id of advice, place of the first hour after it was applied.
    """
    judged, measured, advice = [], [], []
    standings: dict[WorkloadKey, tuple[WorkloadMeasures, Finding, str]] = {}
    for key in sorted(look_back.workloads):
        history = look_back.workloads[key]
        subject = workload_subject(look_back.cluster, history)
        begin = max((since.get(recommendation_id(kind, subject), 0) for kind in _OF_WORKLOADS), default=0)
        found = measure_workload(look_back, history, begin)
        if found is not None:
            standings[key] = found, *classify(found)
        elif any(history.held[-24:]):
            judged.append(
                WorkloadAssessment(subject, "unknown", round_cents(0), None, None, "too few hours have figures")
            )
    parts = _parts(look_back, standings)
    for key, (found, standing, why) in standings.items():
        subject = workload_subject(look_back.cluster, found.history)
        others = [standings.get(part) for part in parts.get(key[:4], ()) if part != key]
        # One object makes them all: what is changed for some pods changes the others.
        is_held_back = any(other is None or not standing == other[1] == "idle" for other in others)
        if found.current_gpus > 0:
            said = f"{why}; {_HELD_BACK}" if is_held_back else why
            judged.append(
                WorkloadAssessment(
                    subject,
                    standing,
                    round_cents(found.current_gpus),
                    round_ratio(found.mean),
                    round_ratio(found.peak),
                    said,
                )
            )
        if standing == "unknown" or is_held_back:
            continue
        measured.append(found)
        own = _idle(look_back, found) if standing == "idle" else None
        own = own or (_fewer(look_back, found) if standing == "low" else None)
        own = own or (_more(look_back, found) if standing == "saturated" else None)
        if own is not None:
            advice.append(own)
    return judged, measured, advice


def _parts(
    look_back: LookBack, standings: Mapping[WorkloadKey, tuple[WorkloadMeasures, Finding, str]]
) -> dict[tuple[str, ...], list[WorkloadKey]]:
    """Workloads whose pods are of several GPU models or resources now, with what each of these is known by."""
    found: dict[tuple[str, ...], list[WorkloadKey]] = {}
    for key, history in look_back.workloads.items():
        if standings[key][0].current_gpus > 0 if key in standings else any(history.held[-24:]):
            found.setdefault(key[:4], []).append(key)
    return {name: own for name, own in found.items() if len(own) > 1}


def classify(found: WorkloadMeasures) -> tuple[Finding, str]:
    """How a workload uses what it holds, and why that is said."""
    if found.missing_data or found.mean is None or found.peak is None:
        return "unknown", found.missing_data or "nobody observed its use"
    mean, peak = found.mean, found.peak
    said = f"{mean:.0%} used on average, {peak:.0%} in the busiest hour"
    if peak < IDLE:
        return "idle", said
    if mean < LOW:
        return ("low", said) if peak < LOW else ("bursty", said)
    if mean <= TARGET:
        return "healthy", said
    return ("saturated", said) if _is_sustained(found) else ("busy", said)


def _is_sustained(found: WorkloadMeasures) -> bool:
    history = found.history
    seen = [
        history.used[index] / history.observed[index] >= HIGH
        for index in range(found.first, len(history.held))
        if history.observed[index] > 0
    ]
    return sum(seen) >= SUSTAINED * len(seen)


def _idle(look_back: LookBack, found: WorkloadMeasures) -> RecommendationContent | None:
    history, subject = found.history, workload_subject(look_back.cluster, found.history)

    def freed(index: int) -> tuple[float, float]:
        return history.usd[index], history.held[index]

    cash = workload_cash_share(look_back, found, found.current_gpus)
    saving = estimate_saving(
        look_back, found.first, freed, cash, workload_list_ratio(look_back, history), history.unpriced
    )
    if saving.usd < _LEAST_USD:
        return None
    held = sum(1 for index in range(found.first, look_back.hours) if history.held[index])
    return RecommendationContent(
        "idle",
        subject,
        f"Scale {subject.workload_kind} {subject.namespace}/{subject.workload} to zero: it holds {format_count(found.current_gpus)} GPUs, "
        f"and no hour of {held} used more than {found.peak or 0:.1%}",
        saving,
        workload_evidence(
            look_back, found, {"peak": "mean of the busiest hour", **_nodes_of(look_back, found, found.current_gpus)}
        ),
        confidence_level(found),
        "low" if subject.workload_kind in {"Pod", "Notebook", "StatefulSet"} else "medium",
        "Nothing ran on it; somebody may still expect it to answer.",
        "low",
        replicas_patch(subject, 0),
        round_cents(found.current_gpus),
        round_cents(0),
        round_cents(found.usd_hourly),
    )


def _fewer(look_back: LookBack, found: WorkloadMeasures) -> RecommendationContent | None:
    history, subject = found.history, workload_subject(look_back.cluster, found.history)
    sizes = _fewer_sizes(found)
    if sizes is None:
        return None
    pods, units = sizes
    # Replicas are so many; where they stay as many as there are, each keeps a part of what it holds.
    kept = units / history.units_per_pod
    keeps = pods * units * history.gpu_share if pods else found.current_gpus * kept

    def freed(index: int) -> tuple[float, float]:
        held = history.held[index]
        part = (max(0.0, held - keeps) / held if pods else 1 - kept) if held else 0.0
        return history.usd[index] * part, held * part

    cash = workload_cash_share(look_back, found, found.current_gpus - keeps)
    saving = estimate_saving(
        look_back, found.first, freed, cash, workload_list_ratio(look_back, history), history.unpriced
    )
    if saving.usd < _LEAST_USD or found.current_gpus <= keeps * 1.001:
        return None
    if pods:
        what = f"{pods} replica{'s' if pods > 1 else ''}"
        patch = replicas_patch(subject, pods) if units == history.units_per_pod else ""
        if units != history.units_per_pod:
            what += f" of {units} × {subject.resource}"
            patch = fewer_gpus_patch(subject, units, pods)
        risk: Level = "low" if pods > 1 else "medium"
        note = "Nothing stands in for a single replica." if pods == 1 else "Each replica is busier; latency may rise."
    else:
        what = f"{units} × {subject.resource} per pod"
        patch = fewer_gpus_patch(subject, units)
        risk, note = "medium", "What splits its work over GPUs (tensor or data parallel) must be told the new number."
    if units < history.units_per_pod and not _knows_memory(found):
        risk, note = "high", f"{note} Nobody saw its GPU memory: what filled more GPUs may not fit."
    return RecommendationContent(
        "fewer-gpus",
        subject,
        f"Give {subject.workload_kind} {subject.namespace}/{subject.workload} {what}: the {format_count(found.current_gpus)} GPUs that it "
        f"holds were never above {found.peak or 0:.0%} in any hour",
        saving,
        workload_evidence(
            look_back,
            found,
            {
                "peak": "mean of the busiest hour",
                "GPUs used in the busiest hour": f"{found.peak_gpus:.2f}",
                "busiest hour with the advice": f"{found.peak_gpus / keeps if pods else found.pod_peak / kept:.0%}",
                **_nodes_of(look_back, found, found.current_gpus - keeps),
            },
        ),
        confidence_level(found),
        risk,
        note,
        "low" if pods else "medium",
        patch,
        round_cents(found.current_gpus),
        round_cents(keeps),
        round_cents(found.usd_hourly),
    )


def workload_cash_share(look_back: LookBack, found: WorkloadMeasures, freed: float) -> float | None:
    """The part of a saving that leaves the bill; None where it is not known.

    GPUs given back are cash once their node goes, which nobody knows of fewer than a node has.
    """
    share = found.history.cash.cash_share()
    return None if share and freed < _gpus_of_nodes(look_back, found) else share


def _gpus_of_nodes(look_back: LookBack, found: WorkloadMeasures) -> int:
    """Of the largest nodes that it is on."""
    return max((gpus_per_node(look_back.pools[pool]) for pool in found.history.pools), default=0)


def _nodes_of(look_back: LookBack, found: WorkloadMeasures, freed: float) -> dict[str, str]:
    """That GPUs given back are no cash yet, where they are less than a node's."""
    most = _gpus_of_nodes(look_back, found)
    if freed >= most:
        return {}
    return {"cash": f"once a node goes: {format_count(freed)} of {most} GPUs are given back, others may hold the rest"}


def _fewer_sizes(found: WorkloadMeasures) -> tuple[int, int] | None:
    """Replicas (0: as many as there are) and units per pod that leave the busiest hour at the target.

    Fewer replicas first; of a single replica, fewer units. None where neither is possible.
    """
    history = found.history
    pod = history.gpus_per_pod
    if pod <= 0:
        return None
    most = max(1, round(found.current_gpus / pod))
    is_service = history.key.kind in SERVICES
    if is_service and most > 1:
        pods = max(1, ceil(round(found.peak_gpus / (TARGET * pod), 9)))
        if pods > 1:
            return (pods, history.units_per_pod) if pods < most else None
        units = max(_units_for_memory(found), ceil(round(found.peak_gpus / (TARGET * history.gpu_share), 9)))
        return 1, min(units, history.units_per_pod)
    if history.units_per_pod <= 1:
        return None
    # Of several pods of a job, or one pod, each pod keeps what its busiest hour needed.
    units = max(_units_for_memory(found), ceil(round(found.pod_peak * history.units_per_pod / TARGET, 9)))
    if units >= history.units_per_pod:
        return None
    return (most, units) if is_service else (0, units)


def _knows_memory(found: WorkloadMeasures) -> bool:
    history = found.history
    return history.memory_gpu_hours >= LEAST_MEMORY * sum(history.held) and memory_gb(history.key.gpu_model) is not None


def _units_for_memory(found: WorkloadMeasures) -> int:
    """Units that hold what a pod kept in its GPUs' memory, each taken to be as full as the fullest; 1 if not known."""
    history, size = found.history, memory_gb(found.history.key.gpu_model)
    if history.gpu_share != 1.0 or size is None:
        return 1
    return max(1, ceil(history.units_per_pod * history.memory_peak * MEMORY_SPARE / (size * _GIB * _USABLE)))


def _more(look_back: LookBack, found: WorkloadMeasures) -> RecommendationContent | None:
    history, subject = found.history, workload_subject(look_back.cluster, found.history)
    if subject.workload_kind not in SERVICES or history.gpus_per_pod <= 0 or found.mean is None:
        return None
    pods = max(1, round(found.current_gpus / history.gpus_per_pod))
    wanted = max(pods + 1, ceil(round(found.mean * found.current_gpus / (TARGET * history.gpus_per_pod), 9)))
    extra = wanted / pods - 1

    def freed(index: int) -> tuple[float, float]:
        return -history.usd[index] * extra, -history.held[index] * extra

    # What more would cost where some of it is committed to, nobody knows: there may be room left in it.
    cash = 1.0 if history.cash.cash_share() == 1 else None
    saving = estimate_saving(
        look_back, found.first, freed, cash, workload_list_ratio(look_back, history), history.unpriced
    )
    return RecommendationContent(
        "add-gpus",
        subject,
        f"Give {subject.workload_kind} {subject.namespace}/{subject.workload} {wanted} replicas instead of {pods}: its GPUs "
        f"are {found.mean:.0%} used on average, and demand above them cannot be seen",
        saving,
        workload_evidence(look_back, found, {"hours at 90% or more": f"at least {SUSTAINED:.0%}"}),
        confidence_level(found),
        "low",
        "It costs money; how much work waits is not in these figures.",
        "low",
        replicas_patch(subject, wanted),
        round_cents(found.current_gpus),
        round_cents(found.current_gpus * (1 + extra)),
        round_cents(found.usd_hourly),
    )


def confidence_level(found: WorkloadMeasures) -> Level:
    """High or medium: what would be low (less than a week, little observed) is not advised."""
    return "high" if found.hours >= SURE_HOURS and found.coverage >= SURE_COVERAGE else "medium"
