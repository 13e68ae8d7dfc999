"""Workloads that hold more GPUs than they use, or fewer: idle, fewer GPUs, more GPUs; and those that are fine.

The bands are the field's usual ones: under 30% is too much, 30 to 70% healthy, above 90% sustained too little. Below
70% a workload has room for a bad day, so what is advised leaves its busiest hour at 70%.
"""

from collections.abc import Mapping
from math import ceil

from gpucost.core.metering.gpu_models import memory_gb
from gpucost.features.recommendations.history import LookBack, WorkloadKey
from gpucost.features.recommendations.measuring import (
    Measured,
    about_workload,
    evidence_of,
    list_ratio_of,
    measure,
    saving_of,
)
from gpucost.features.recommendations.model import (
    Advice,
    Judged,
    Kind,
    Level,
    Standing,
    cents,
    counted,
    identity,
    ratio,
)
from gpucost.features.recommendations.patches import fewer_gpus_patch, replicas_patch
from gpucost.features.recommendations.pools import gpus_of_node

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
_OF_WORKLOADS: tuple[Kind, ...] = ("idle", "fewer-gpus", "add-gpus", "off-hours")
"""Once one of these is applied, only hours after it say how a workload stands."""
_HELD_BACK = "its other pods have another GPU model or resource, and what changes these changes those"


def judge(look: LookBack, since: Mapping[str, int]) -> tuple[list[Judged], list[Measured], list[Advice]]:
    """How every workload stands, and what to change of those that hold too much or too little.

    Args:
        look: the look-back.
        since: by id of advice, place of the first hour after it was applied.
    """
    judged, measured, advice = [], [], []
    standings: dict[WorkloadKey, tuple[Measured, Standing, str]] = {}
    for key in sorted(look.workloads):
        history = look.workloads[key]
        about = about_workload(look.cluster, history)
        begin = max((since.get(identity(kind, about), 0) for kind in _OF_WORKLOADS), default=0)
        found = measure(look, history, begin)
        if found is not None:
            standings[key] = found, *stand(found)
        elif any(history.held[-24:]):
            judged.append(Judged(about, "unknown", cents(0), None, None, "too few hours have figures"))
    parts = _parts(look, standings)
    for key, (found, standing, why) in standings.items():
        about = about_workload(look.cluster, found.history)
        others = [standings.get(part) for part in parts.get(key[:4], ()) if part != key]
        # One object makes them all: what is changed for some pods changes the others.
        is_held_back = any(other is None or not standing == other[1] == "idle" for other in others)
        if found.now > 0:
            said = f"{why}; {_HELD_BACK}" if is_held_back else why
            judged.append(Judged(about, standing, cents(found.now), ratio(found.mean), ratio(found.peak), said))
        if standing == "unknown" or is_held_back:
            continue
        measured.append(found)
        own = _idle(look, found) if standing == "idle" else None
        own = own or (_fewer(look, found) if standing == "low" else None)
        own = own or (_more(look, found) if standing == "saturated" else None)
        if own is not None:
            advice.append(own)
    return judged, measured, advice


def _parts(
    look: LookBack, standings: Mapping[WorkloadKey, tuple[Measured, Standing, str]]
) -> dict[tuple[str, ...], list[WorkloadKey]]:
    """Workloads whose pods are of several GPU models or resources now, with what each of these is known by."""
    found: dict[tuple[str, ...], list[WorkloadKey]] = {}
    for key, history in look.workloads.items():
        if standings[key][0].now > 0 if key in standings else any(history.held[-24:]):
            found.setdefault(key[:4], []).append(key)
    return {name: own for name, own in found.items() if len(own) > 1}


def stand(found: Measured) -> tuple[Standing, str]:
    """How a workload uses what it holds, and why that is said."""
    if found.lacks or found.mean is None or found.peak is None:
        return "unknown", found.lacks or "nobody observed its use"
    mean, peak = found.mean, found.peak
    said = f"{mean:.0%} used on average, {peak:.0%} in the busiest hour"
    if peak < IDLE:
        return "idle", said
    if mean < LOW:
        return ("low", said) if peak < LOW else ("bursty", said)
    if mean <= TARGET:
        return "healthy", said
    return ("saturated", said) if _is_sustained(found) else ("busy", said)


def _is_sustained(found: Measured) -> bool:
    history = found.history
    seen = [
        history.used[place] / history.observed[place] >= HIGH
        for place in range(found.first, len(history.held))
        if history.observed[place] > 0
    ]
    return sum(seen) >= SUSTAINED * len(seen)


def _idle(look: LookBack, found: Measured) -> Advice | None:
    history, about = found.history, about_workload(look.cluster, found.history)

    def freed(place: int) -> tuple[float, float]:
        return history.usd[place], history.held[place]

    cash = cash_share(look, found, found.now)
    saving = saving_of(look, found.first, freed, cash, list_ratio_of(look, history), history.unpriced)
    if saving.usd < _LEAST_USD:
        return None
    held = sum(1 for place in range(found.first, look.hours) if history.held[place])
    return Advice(
        "idle", about,
        f"Scale {about.workload_kind} {about.namespace}/{about.workload} to zero: it holds {counted(found.now)} GPUs, "
        f"and no hour of {held} used more than {found.peak or 0:.1%}",
        saving, evidence_of(look, found, {"peak": "mean of the busiest hour", **_nodes_of(look, found, found.now)}),
        confidence_of(found), "low" if about.workload_kind in {"Pod", "Notebook", "StatefulSet"} else "medium",
        "Nothing ran on it; somebody may still expect it to answer.", "low",
        replicas_patch(about, 0), cents(found.now), cents(0), cents(found.usd_hourly),
    )  # fmt: skip


def _fewer(look: LookBack, found: Measured) -> Advice | None:
    history, about = found.history, about_workload(look.cluster, found.history)
    sizes = _fewer_sizes(found)
    if sizes is None:
        return None
    pods, units = sizes
    # Replicas are so many; where they stay as many as there are, each keeps a part of what it holds.
    kept = units / history.units_per_pod
    keeps = pods * units * history.share if pods else found.now * kept

    def freed(place: int) -> tuple[float, float]:
        held = history.held[place]
        part = (max(0.0, held - keeps) / held if pods else 1 - kept) if held else 0.0
        return history.usd[place] * part, held * part

    cash = cash_share(look, found, found.now - keeps)
    saving = saving_of(look, found.first, freed, cash, list_ratio_of(look, history), history.unpriced)
    if saving.usd < _LEAST_USD or found.now <= keeps * 1.001:
        return None
    if pods:
        what = f"{pods} replica{'s' if pods > 1 else ''}"
        patch = replicas_patch(about, pods) if units == history.units_per_pod else ""
        if units != history.units_per_pod:
            what += f" of {units} × {about.resource}"
            patch = fewer_gpus_patch(about, units, pods)
        risk: Level = "low" if pods > 1 else "medium"
        note = "Nothing stands in for a single replica." if pods == 1 else "Each replica is busier; latency may rise."
    else:
        what = f"{units} × {about.resource} per pod"
        patch = fewer_gpus_patch(about, units)
        risk, note = "medium", "What splits its work over GPUs (tensor or data parallel) must be told the new number."
    if units < history.units_per_pod and not _knows_memory(found):
        risk, note = "high", f"{note} Nobody saw its GPU memory: what filled more GPUs may not fit."
    return Advice(
        "fewer-gpus", about,
        f"Give {about.workload_kind} {about.namespace}/{about.workload} {what}: the {counted(found.now)} GPUs that it "
        f"holds were never above {found.peak or 0:.0%} in any hour",
        saving,
        evidence_of(look, found, {
            "peak": "mean of the busiest hour", "GPUs used in the busiest hour": f"{found.peak_gpus:.2f}",
            "busiest hour with the advice": f"{found.peak_gpus / keeps if pods else found.pod_peak / kept:.0%}",
            **_nodes_of(look, found, found.now - keeps),
        }),
        confidence_of(found), risk, note, "low" if pods else "medium", patch, cents(found.now), cents(keeps),
        cents(found.usd_hourly),
    )  # fmt: skip


def cash_share(look: LookBack, found: Measured, freed: float) -> float | None:
    """The part of a saving that leaves the bill; None where it is not known.

    GPUs given back are cash once their node goes, which nobody knows of fewer than a node has.
    """
    share = found.history.cash.share()
    return None if share and freed < _gpus_of_nodes(look, found) else share


def _gpus_of_nodes(look: LookBack, found: Measured) -> int:
    """Of the largest nodes that it is on."""
    return max((gpus_of_node(look.pools[pool]) for pool in found.history.pools), default=0)


def _nodes_of(look: LookBack, found: Measured, freed: float) -> dict[str, str]:
    """That GPUs given back are no cash yet, where they are less than a node's."""
    most = _gpus_of_nodes(look, found)
    if freed >= most:
        return {}
    return {"cash": f"once a node goes: {counted(freed)} of {most} GPUs are given back, others may hold the rest"}


def _fewer_sizes(found: Measured) -> tuple[int, int] | None:
    """Replicas (0: as many as there are) and units per pod that leave the busiest hour at the target.

    Fewer replicas first; of a single replica, fewer units. None where neither is possible.
    """
    history = found.history
    pod = history.gpus_per_pod
    if pod <= 0:
        return None
    most = max(1, round(found.now / pod))
    is_service = history.key.kind in SERVICES
    if is_service and most > 1:
        pods = max(1, ceil(round(found.peak_gpus / (TARGET * pod), 9)))
        if pods > 1:
            return (pods, history.units_per_pod) if pods < most else None
        units = max(_units_for_memory(found), ceil(round(found.peak_gpus / (TARGET * history.share), 9)))
        return 1, min(units, history.units_per_pod)
    if history.units_per_pod <= 1:
        return None
    # Of several pods of a job, or one pod, each pod keeps what its busiest hour needed.
    units = max(_units_for_memory(found), ceil(round(found.pod_peak * history.units_per_pod / TARGET, 9)))
    if units >= history.units_per_pod:
        return None
    return (most, units) if is_service else (0, units)


def _knows_memory(found: Measured) -> bool:
    history = found.history
    return history.memory_known >= LEAST_MEMORY * sum(history.held) and memory_gb(history.key.gpu_model) is not None


def _units_for_memory(found: Measured) -> int:
    """Units that hold what a pod kept in its GPUs' memory, each taken to be as full as the fullest; 1 if not known."""
    history, size = found.history, memory_gb(found.history.key.gpu_model)
    if history.share != 1.0 or size is None:
        return 1
    return max(1, ceil(history.units_per_pod * history.memory_peak * MEMORY_SPARE / (size * _GIB * _USABLE)))


def _more(look: LookBack, found: Measured) -> Advice | None:
    history, about = found.history, about_workload(look.cluster, found.history)
    if about.workload_kind not in SERVICES or history.gpus_per_pod <= 0 or found.mean is None:
        return None
    pods = max(1, round(found.now / history.gpus_per_pod))
    wanted = max(pods + 1, ceil(round(found.mean * found.now / (TARGET * history.gpus_per_pod), 9)))
    extra = wanted / pods - 1

    def freed(place: int) -> tuple[float, float]:
        return -history.usd[place] * extra, -history.held[place] * extra

    # What more would cost where some of it is committed to, nobody knows: there may be room left in it.
    cash = 1.0 if history.cash.share() == 1 else None
    saving = saving_of(look, found.first, freed, cash, list_ratio_of(look, history), history.unpriced)
    return Advice(
        "add-gpus", about,
        f"Give {about.workload_kind} {about.namespace}/{about.workload} {wanted} replicas instead of {pods}: its GPUs "
        f"are {found.mean:.0%} used on average, and demand above them cannot be seen",
        saving, evidence_of(look, found, {"hours at 90% or more": f"at least {SUSTAINED:.0%}"}), confidence_of(found),
        "low", "It costs money; how much work waits is not in these figures.", "low",
        replicas_patch(about, wanted), cents(found.now), cents(found.now * (1 + extra)), cents(found.usd_hourly),
    )  # fmt: skip


def confidence_of(found: Measured) -> Level:
    """High or medium: what would be low (less than a week, little observed) is not advised."""
    return "high" if found.hours >= SURE_HOURS and found.coverage >= SURE_COVERAGE else "medium"
