"""Idle workloads: no hour used their GPUs."""

from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.kinds.base import RecommendationKind, replicas_patch
from gpucost.features.recommendations.measuring import (
    MIN_MONTHLY_SAVING_USD,
    SubjectHour,
    WorkloadMeasures,
    classify_workload,
    confidence_level,
    estimate_workload_saving,
    workload_evidence,
    workload_subject,
)
from gpucost.features.recommendations.model import RecommendationContent, format_gpus, round_cents
from gpucost.features.recommendations.pools import cash_fact, workload_cash_share


class Idle(RecommendationKind):
    """Scale a workload to zero that used its GPUs in no hour."""

    name = "idle"
    title = "Stop idle workload"
    when = "utilization was under 2% in every hour"
    change = "scale to zero"
    verified = "all GPUs that it held, because nothing ran on them"
    choice = "largest"

    @classmethod
    def recommend_for(cls, look_back: LookBack, measures: WorkloadMeasures) -> RecommendationContent | None:
        """Recommend to scale an idle workload to zero."""
        if classify_workload(measures)[0] != "idle":
            return None
        history, subject = measures.history, workload_subject(look_back.cluster, measures.history)

        def freed(index: int) -> tuple[float, float]:
            return history.cost_usd[index], history.held_gpu_hours[index]

        cash = workload_cash_share(look_back, measures, measures.current_gpus)
        saving = estimate_workload_saving(look_back, measures, freed, cash)
        if saving.usd < MIN_MONTHLY_SAVING_USD:
            return None
        title = f"Scale {subject.workload_name} to zero"
        held = sum(1 for index in range(measures.first_held_index, look_back.hours) if history.held_gpu_hours[index])
        return RecommendationContent(
            kind=cls.name,
            subject=subject,
            title=title,
            summary=f"{title}: it holds {format_gpus(measures.current_gpus)}, "
            f"and no hour of {held} used more than {measures.peak_utilization or 0:.1%}",
            saving=saving,
            evidence=workload_evidence(
                look_back,
                measures,
                {"peak": "mean of the busiest hour", **cash_fact(look_back, measures, measures.current_gpus)},
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

    @classmethod
    def expected_amount(cls, content: RecommendationContent, current: SubjectHour, before: SubjectHour) -> float:
        """All of what it held, because nothing ran on it."""
        return before.held
