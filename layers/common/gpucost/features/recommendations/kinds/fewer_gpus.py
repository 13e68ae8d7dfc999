"""Fewer GPUs for workloads that use few: fewer replicas, or fewer GPUs per pod.

Recommendations leave the busiest hour at 70% as a reserve, or keep the latency of an inference server.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from shlex import quote
from typing import NamedTuple

from gpucost.core.metering.gpu_models import memory_gb
from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.kinds.base import (
    API_VERSION_OF_SCALABLE_KIND,
    RecommendationKind,
    replicas_patch,
    single_line,
)
from gpucost.features.recommendations.measuring import (
    GIB,
    MEMORY_SPARE,
    MIN_MEMORY_SHARE,
    MIN_MONTHLY_SAVING_USD,
    SERVICE_KINDS,
    TARGET,
    USABLE_MEMORY_RATIO,
    WorkloadMeasures,
    classify_workload,
    confidence_level,
    estimate_workload_saving,
    workload_evidence,
    workload_subject,
)
from gpucost.features.recommendations.model import (
    ConfidenceLevel,
    RecommendationContent,
    RecommendationSubject,
    format_count,
    round_cents,
)
from gpucost.features.recommendations.pools import cash_fact, workload_cash_share

# Fewer replicas of an inference server, where its own latency histogram shows that they would suffice.
#
# The evidence is what replicas already did: if replicas that served as many requests in an hour as each of fewer ones
# would in the busiest hour had the same p95, then fewer suffice. Nothing is extrapolated. So a server whose replicas
# were always the same and equally loaded gets no recommendation.

MIN_COMPLETE_SHARE = 0.9
"""Part of the hours with GPUs in which the latency of all pods must be known."""
MIN_POD_HOURS = 24
"""Hours of single pods that must have served the load of fewer replicas."""
P95_TOLERANCE = 1.05
"""By how much p95 may be higher and still count as the same: buckets are no finer."""


class PodHour(NamedTuple):
    """The requests of a pod in an hour, and their p95 latency in seconds."""

    requests: float
    p95: float


class FittingReplicas(NamedTuple):
    """The fewest replicas that suffice, and why."""

    replicas: int
    busiest_hour_requests: float
    requests_per_replica: float
    """In the busiest hour, with these replicas."""
    pod_hours: int
    """Hours of pods that served at least that many."""
    p95: float
    """Of all pod-hours: the mean of hourly p95, weighted by requests."""
    p95_at_load: float
    """The same of the pod-hours with at least that many requests."""


def fitting_replicas(look_back: LookBack, measures: WorkloadMeasures) -> FittingReplicas | None:
    """Find the fewest replicas that keep the p95; None if fewer are not proven to do so, or if latency is unknown."""
    history = measures.history
    complete_hours = hours_with_latency(look_back, measures)
    if not complete_hours:
        return None
    pod_hours = [pod_hour for hour in complete_hours for pod_hour in hour]
    busiest = max(sum(pod_hour.requests for pod_hour in hour) for hour in complete_hours)
    p95 = mean_p95(pod_hours)
    for replicas in range(1, max(1, round(measures.current_gpus / history.gpus_per_pod))):
        at_load = [pod_hour for pod_hour in pod_hours if pod_hour.requests >= busiest / replicas]
        if len(at_load) >= MIN_POD_HOURS and mean_p95(at_load) <= P95_TOLERANCE * p95:
            return FittingReplicas(replicas, busiest, busiest / replicas, len(at_load), p95, mean_p95(at_load))
    return None


def hours_with_latency(look_back: LookBack, measures: WorkloadMeasures) -> list[list[PodHour]]:
    """Return the pods of each hour in which the latency of all of them is known; empty if that is too few hours."""
    history = measures.history
    if not history.latencies or history.gpus_per_pod <= 0 or look_back.is_part_of_server(history.key.name):
        return []
    held = [index for index in range(measures.first_held_index, look_back.hours) if history.held_gpu_hours[index] > 0]
    complete_hours = [
        [PodHour(*latency) for latency in history.latencies[index].values()]
        for index in held
        if len(history.latencies.get(index, ())) >= history.pod_counts[index]
    ]
    return complete_hours if len(complete_hours) >= MIN_COMPLETE_SHARE * len(held) else []


def mean_p95(pod_hours: Sequence[PodHour]) -> float:
    """Return the mean of hourly p95, weighted by requests."""
    return sum(requests * p95 for requests, p95 in pod_hours) / sum(requests for requests, _ in pod_hours)


# The kind.


class FewerGpus(RecommendationKind):
    """Give a workload fewer replicas, or fewer GPUs per pod."""

    name = "fewer-gpus"
    title = "Request fewer GPUs"
    when = (
        "utilization was under 30% on average *and* in the busiest hour; or replicas of an "
        "[inference server](#replicas-of-inference-servers) already served, at the same p95 latency, what each of "
        "fewer ones would"
    )
    change = "the fewest replicas, or GPUs per pod, that keep the busiest hour at 70% or less, or the latency"
    verified = "GPUs released while it runs"
    not_verified = "hours in which it no longer runs; for jobs, pods that are gone"
    choice = "largest"

    @classmethod
    def recommend_for(cls, look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
        """Recommend what the latency of an inference server proves, or else what the utilization shows."""
        content = cls._recommend_replicas(look_back, measures)
        if content is None and classify_workload(measures)[0] == "low":
            return cls._recommend_fewer(look_back, measures)
        return content

    @classmethod
    def _recommend_fewer(cls, look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
        sizes = _smaller_size(measures)
        if sizes is None:
            return None
        reason = (
            f"its {format_count(measures.current_gpus)} GPUs were never above {measures.peak_utilization or 0:.0%} in "
            f"any hour"
        )
        return cls._recommend_size(look_back, measures, *sizes, reason, {})

    @classmethod
    def _recommend_replicas(cls, look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
        """Recommend fewer replicas of an inference server, where its latency histogram shows that they suffice."""
        fitting = fitting_replicas(look_back, measures)
        if fitting is None or measures.history.key.kind not in SERVICE_KINDS:
            return None
        reason = (
            f"replicas that served {fitting.requests_per_replica:,.0f} or more requests in an hour had a p95 latency "
            f"of {fitting.p95_at_load:.3g} s, and all together {fitting.p95:.3g} s"
        )
        facts = {
            "requests in the busiest hour": f"{fitting.busiest_hour_requests:,.0f}",
            "requests per replica after the change": f"{fitting.requests_per_replica:,.0f} in the busiest hour",
            "p95 latency": f"{fitting.p95:.3g} s, mean of hourly p95 by requests, of the server's histogram",
            "p95 latency at that load": f"{fitting.p95_at_load:.3g} s in {fitting.pod_hours} hours of single replicas",
        }
        return cls._recommend_size(look_back, measures, fitting.replicas, measures.history.units_per_pod, reason, facts)

    @classmethod
    def _recommend_size(
        cls,
        look_back: LookBack,
        measures: WorkloadMeasures,
        pods: int,
        units: int,
        reason: str,
        facts: Mapping[str, str],
    ) -> RecommendationContent | None:
        """Recommend replicas (0: unchanged) and units per pod; None if that saves nothing worth mentioning."""
        history, subject = measures.history, workload_subject(look_back.cluster, measures.history)
        # Either the number of replicas changes, or each pod keeps a part of its GPUs.
        kept_share = units / history.units_per_pod
        kept_gpus = pods * units * history.gpu_share if pods else measures.current_gpus * kept_share

        def freed(index: int) -> tuple[float, float]:
            held = history.held_gpu_hours[index]
            part = (max(0.0, held - kept_gpus) / held if pods else 1 - kept_share) if held else 0.0
            return history.cost_usd[index] * part, held * part

        cash = workload_cash_share(look_back, measures, measures.current_gpus - kept_gpus)
        saving = estimate_workload_saving(look_back, measures, freed, cash)
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
            kind=cls.name,
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
                    **cash_fact(look_back, measures, measures.current_gpus - kept_gpus),
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
        1, ceil(history.units_per_pod * history.memory_peak_bytes * MEMORY_SPARE / (size * GIB * USABLE_MEMORY_RATIO))
    )


def fewer_gpus_patch(subject: RecommendationSubject, units: int, replicas: int = 0) -> str:
    """Commands that set the GPUs per pod, and the replicas if they change; empty for kinds without a pod template."""
    if subject.workload_kind not in API_VERSION_OF_SCALABLE_KIND:
        return ""
    name = quote(f"{subject.workload_kind.lower()}/{subject.workload}")
    lines = [
        f"# the container that has {single_line(subject.resource)}: add -c NAME if there are several",
        f"kubectl -n {quote(subject.namespace)} set resources {name} " + quote(f"--limits={subject.resource}={units}"),
    ]
    if replicas:
        lines.append(f"kubectl -n {quote(subject.namespace)} scale {name} --replicas={replicas}")
    return "\n".join(lines) + "\n"
