"""A cheaper GPU model for an inference server whose pods already run on two, at the same latency.

The evidence is what the pods on the cheaper model did. In some hours, each of them served as many requests as a pod on
the other model served on average in the busiest hour. If their p95 was the same by the server's own latency histogram,
they can replace those pods one for one. Nothing is extrapolated, and the pods are equal: a single object creates them.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.measuring import (
    WorkloadMeasures,
    estimate_saving,
    measure_workload,
    workload_evidence,
    workload_subject,
)
from gpucost.features.recommendations.model import RecommendationContent, recommendation_id, round_cents
from gpucost.features.recommendations.patches import instance_types_patch
from gpucost.features.recommendations.rules.replicas import MIN_POD_HOURS, P95_TOLERANCE, hours_with_latency, mean_p95
from gpucost.features.recommendations.rules.rightsizing import (
    MIN_MONTHLY_SAVING_USD,
    SERVICE_KINDS,
    confidence_level,
    workload_cash_share,
)


class _Part(NamedTuple):
    """The pods of a workload on one GPU model."""

    measures: WorkloadMeasures
    usd_per_gpu_hour: float

    @property
    def gpu_model(self) -> str:
        return self.measures.history.key.gpu_model


def recommend_cheaper_gpus(look_back: LookBack, since: Mapping[str, int]) -> list[RecommendationContent]:
    """Recommend a cheaper GPU model for the pods of inference servers that run on several.

    Args:
        look_back: the look-back.
        since: index of the first hour after a recommendation was applied, by its id.
    """
    parts_of_server: dict[tuple[object, ...], list[_Part]] = {}
    for key, history in sorted(look_back.workloads.items()):
        if key.kind not in SERVICE_KINDS or not history.latencies:
            continue
        subject = workload_subject(look_back.cluster, history)
        measures = measure_workload(look_back, history, since.get(recommendation_id("cheaper-gpus", subject), 0))
        if measures is None or measures.missing_data_reason:
            continue
        # The price must differ because of the GPU, and not because one of the two is spot or reserved.
        capacity_types = frozenset(pool.capacity_type for pool in history.gpu_millihours_by_pool)
        server = (*key[:4], key.resource, history.gpus_per_pod, capacity_types)
        parts_of_server.setdefault(server, []).append(_Part(measures, _usd_per_gpu_hour(look_back, measures)))
    contents = []
    for parts in parts_of_server.values():
        parts.sort(key=lambda part: part.usd_per_gpu_hour)
        for position, part in enumerate(parts):
            candidates = (_recommend(look_back, part, cheaper) for cheaper in parts[:position])
            contents += [content for content in candidates if content is not None][:1]
    return contents


def _usd_per_gpu_hour(look_back: LookBack, measures: WorkloadMeasures) -> float:
    """The mean price of the hours that have one: at least nine tenths, or there would be no recommendation."""
    history = measures.history
    indexes = look_back.priced_hour_indexes(history.is_unpriced, measures.first_held_index)
    held_gpu_hours = sum(history.held_gpu_hours[index] for index in indexes)
    return sum(history.cost_usd[index] for index in indexes) / held_gpu_hours


def _recommend(look_back: LookBack, part: _Part, cheaper: _Part) -> RecommendationContent | None:
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
        kind="cheaper-gpus",
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
                f"p95 latency on {there}": f"{mean_p95(at_load):.3g} s in {len(at_load)} hours of pods with as many "
                "requests",
                "price per GPU-hour": f"{part.usd_per_gpu_hour:.4g} ({here}), {cheaper.usd_per_gpu_hour:.4g} ({there})",
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


def _instance_types(measures: WorkloadMeasures) -> Sequence[str]:
    return sorted({pool.instance_type for pool in measures.history.gpu_millihours_by_pool})
