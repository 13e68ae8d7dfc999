"""A cheaper GPU model for an inference server whose pods already run on two, at the same latency.

The evidence is what the pods on the cheaper model did. In some hours, each of them served as many requests as a pod on
the other model served on average in the busiest hour. If their p95 was the same by the server's own latency histogram,
they can replace those pods one for one. Nothing is extrapolated, and the pods are equal: a single object creates them.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.kinds.base import RecommendationKind, ReviewedCluster, affinity_patch, quoted
from gpucost.features.recommendations.kinds.fewer_gpus import MIN_POD_HOURS, P95_TOLERANCE, hours_with_latency, mean_p95
from gpucost.features.recommendations.measuring import (
    MIN_MONTHLY_SAVING_USD,
    SERVICE_KINDS,
    SubjectHour,
    WorkloadMeasures,
    confidence_level,
    estimate_saving,
    measure_workload,
    subject_hours,
    workload_evidence,
    workload_subject,
)
from gpucost.features.recommendations.model import (
    RecommendationContent,
    RecommendationSubject,
    recommendation_id,
    round_cents,
)
from gpucost.features.recommendations.pools import workload_cash_share


class _Part(NamedTuple):
    """The pods of a workload on one GPU model."""

    measures: WorkloadMeasures
    usd_per_gpu_hour: float

    @property
    def gpu_model(self) -> str:
        return self.measures.history.key.gpu_model


class CheaperGpus(RecommendationKind):
    """Run all pods of an inference server on the cheaper of its GPU models."""

    name = "cheaper-gpus"
    title = "Use a cheaper GPU model"
    when = (
        "an [inference server](#replicas-of-inference-servers) has pods on two GPU models, and those on the cheaper "
        "one already served as much at the same p95 latency"
    )
    change = "the instance types of the cheaper model, as a node affinity"
    verified = "the lower price per GPU-hour, for GPUs that are still held"
    not_verified = "GPUs that are no longer held"
    choice = "largest"
    lowers_price = True

    @classmethod
    def recommend(cls, cluster: ReviewedCluster) -> Iterator[RecommendationContent]:
        """Recommend a cheaper GPU model for the pods of inference servers that run on several."""
        look_back = cluster.look_back
        parts_of_server: dict[tuple[object, ...], list[_Part]] = {}
        for key, history in sorted(look_back.workloads.items()):
            if key.kind not in SERVICE_KINDS or not history.latencies:
                continue
            subject = workload_subject(look_back.cluster, history)
            measures = measure_workload(look_back, history, cluster.since.get(recommendation_id(cls.name, subject), 0))
            if measures is None or measures.missing_data_reason:
                continue
            # The price must differ because of the GPU, and not because one of the two is spot or reserved.
            capacity_types = frozenset(pool.capacity_type for pool in history.gpu_millihours_by_pool)
            server = (*key[:4], key.resource, history.gpus_per_pod, capacity_types)
            parts_of_server.setdefault(server, []).append(_Part(measures, _usd_per_gpu_hour(look_back, measures)))
        for parts in parts_of_server.values():
            parts.sort(key=lambda part: part.usd_per_gpu_hour)
            for position, part in enumerate(parts):
                candidates = (cls._recommend(look_back, part, cheaper) for cheaper in parts[:position])
                yield from [content for content in candidates if content is not None][:1]

    @classmethod
    def _recommend(cls, look_back: LookBack, part: _Part, cheaper: _Part) -> RecommendationContent | None:
        """Recommend that the pods move to the cheaper model; None if it is not proven to have the same latency."""
        if part.usd_per_gpu_hour <= cheaper.usd_per_gpu_hour:
            return None
        hours, hours_there = (hours_with_latency(look_back, side.measures) for side in (part, cheaper))
        if not hours or not hours_there:
            return None
        busiest = max(sum(pod_hour.requests for pod_hour in hour) / len(hour) for hour in hours)
        at_load = [pod_hour for hour in hours_there for pod_hour in hour if pod_hour.requests >= busiest]
        p95 = mean_p95([pod_hour for hour in hours for pod_hour in hour])
        if len(at_load) < MIN_POD_HOURS or mean_p95(at_load) > P95_TOLERANCE * p95:
            return None
        measures, history = part.measures, part.measures.history
        saved_share = 1 - cheaper.usd_per_gpu_hour / part.usd_per_gpu_hour

        def saved(index: int) -> tuple[float, float]:
            return history.cost_usd[index] * saved_share, 0.0

        # It is cash only if the old nodes leave the bill, and the new ones are on it in the same way.
        cash = workload_cash_share(look_back, measures, measures.current_gpus)
        saving = estimate_saving(
            look_back, measures.first_held_index, saved, cash if cash == 1 else None, None, history.is_unpriced
        )
        if saving.usd < MIN_MONTHLY_SAVING_USD:
            return None
        subject, here, there = workload_subject(look_back.cluster, history), part.gpu_model, cheaper.gpu_model
        title = f"Run {subject.workload_name} on {there} only"
        return RecommendationContent(
            kind=cls.name,
            subject=subject,
            title=title,
            summary=f"{title}: its pods there served as many requests at the same p95 latency "
            f"as those on {here}, and a GPU-hour costs {saved_share:.0%} less",
            saving=saving,
            evidence=workload_evidence(
                look_back,
                measures,
                {
                    "requests per pod": f"{busiest:,.0f} on average in the busiest hour on {here}",
                    f"p95 latency on {here}": f"{p95:.3g} s, mean of hourly p95 by requests, of the server's histogram",
                    f"p95 latency on {there}": f"{mean_p95(at_load):.3g} s in {len(at_load)} hours of pods with as "
                    f"many requests",
                    "price per GPU-hour": f"{part.usd_per_gpu_hour:.4g} ({here}), "
                    f"{cheaper.usd_per_gpu_hour:.4g} ({there})",
                },
            ),
            confidence=confidence_level(measures),
            risk="medium",
            risk_note="All pods then need nodes of one kind. If its pool is at its limit, they wait.",
            effort="low",
            patch=instance_types_patch(subject, _instance_types(cheaper.measures)),
            current_gpus=round_cents(measures.current_gpus),
            recommended_gpus=round_cents(0),
            usd_hourly=round_cents(measures.usd_hourly),
        )

    @classmethod
    def hourly_use_and_cost(cls, look_back: LookBack, content: RecommendationContent) -> Sequence[SubjectHour | None]:
        """What its pods held and cost on all GPU models: those that moved are paid there."""
        return subject_hours(look_back, content, keeps_resource=False)


def _usd_per_gpu_hour(look_back: LookBack, measures: WorkloadMeasures) -> float:
    """The mean price of the hours that have one: at least nine tenths, or there would be no recommendation."""
    history = measures.history
    indexes = look_back.priced_hour_indexes(history.is_unpriced, measures.first_held_index)
    held_gpu_hours = sum(history.held_gpu_hours[index] for index in indexes)
    return sum(history.cost_usd[index] for index in indexes) / held_gpu_hours


def _instance_types(measures: WorkloadMeasures) -> Sequence[str]:
    return sorted({pool.instance_type for pool in measures.history.gpu_millihours_by_pool})


def instance_types_patch(subject: RecommendationSubject, instance_types: Sequence[str]) -> str:
    """A requirement of nodes of some instance types; empty for kinds without a pod template."""
    names = ", ".join(map(_word, instance_types))
    terms = [
        "requiredDuringSchedulingIgnoredDuringExecution:",
        "  nodeSelectorTerms:",
        "    - matchExpressions:",
        f"        - {{key: node.kubernetes.io/instance-type, operator: In, values: [{names}]}}",
    ]
    return affinity_patch(subject, terms, "# add the expression to each of the terms that the workload has already\n")


def _word(text: str) -> str:
    """Write a text in a YAML list, quoted if it is more than a name."""
    return text if re.fullmatch(r"[a-z][a-z0-9.-]*", text) else quoted(text)
