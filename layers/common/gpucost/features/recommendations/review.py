"""The review of one cluster: the recommendations of all kinds on one look-back, and an assessment of every workload."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from gpucost.core.hours import HOUR
from gpucost.features.recommendations.history import LookBack, WorkloadKey
from gpucost.features.recommendations.kinds import RECOMMENDATION_KINDS
from gpucost.features.recommendations.kinds.base import Choice, PoolPlan, ReviewedCluster
from gpucost.features.recommendations.measuring import (
    WorkloadMeasures,
    classify_workload,
    measure_workload,
    workload_subject,
)
from gpucost.features.recommendations.model import (
    RecommendationContent,
    RecommendationSubject,
    Review,
    WorkloadAssessment,
    WorkloadFinding,
    recommendation_id,
    round_cents,
    round_ratio,
)

_MIXED_WORKLOAD = "its other pods have another GPU model or resource, and a change would affect all of them"


def review_cluster(look_back: LookBack, now: datetime, since: Mapping[str, int]) -> Review:
    """Apply the rules of all kinds to a look-back, and assess every workload.

    Args:
        look_back: the look-back.
        now: the current time.
        since: index of the first hour after a recommendation was applied, by its id.

    Returns:
        The review. It has no recommendations if the hours have several currencies, which cannot be added up.
    """
    assessments, measured = _assess_workloads(look_back, since)
    cluster = ReviewedCluster(look_back, measured, since)
    contents = _largest_per_subject(_recommendations(cluster, "largest"))
    plans = _plans(cluster, {content.subject for content in contents})
    contents += [content for plan in plans for content in (plan.content, *plan.parts)]
    contents += _recommendations(cluster, "always")
    covered = {content.subject for content in contents}.union(*(plan.workloads for plan in plans))
    contents += [content for content in _recommendations(cluster, "otherwise") if content.subject not in covered]
    currency = next(iter(look_back.currencies)) if len(look_back.currencies) == 1 else ""
    contents_in_currency = [replace(content, currency=currency) for content in contents] if currency else []
    return Review(
        look_back.cluster,
        look_back.start,
        look_back.start + HOUR * look_back.hours,
        now,
        sum(look_back.has_figures),
        tuple(contents_in_currency),
        tuple(assessments),
        currency or "USD",
    )


def _recommendations(cluster: ReviewedCluster, choice: Choice) -> list[RecommendationContent]:
    """The recommendations of the kinds with a choice."""
    return [
        content
        for kind in RECOMMENDATION_KINDS
        if kind.choice == choice
        for content in kind.recommend(cluster)
        if content is not None
    ]


def _plans(cluster: ReviewedCluster, excluded: set[RecommendationSubject]) -> list[PoolPlan]:
    """The plan of each pool that saves most. MIG slices come first, because they isolate pods."""
    plans = [plan for kind in RECOMMENDATION_KINDS for plan in kind.plans(cluster, excluded)]
    largest = {content.id for content in _largest_per_subject([plan.content for plan in plans])}
    return [plan for plan in plans if plan.content.id in largest]


def _largest_per_subject(contents: Sequence[RecommendationContent]) -> list[RecommendationContent]:
    """Keep the recommendation with the largest saving for each subject: they would change the same pods."""
    best: dict[RecommendationSubject, RecommendationContent] = {}
    for content in contents:
        previous = best.get(content.subject)
        if previous is None or previous.saving.usd < content.saving.usd:
            best[content.subject] = content
    return list(best.values())


def _assess_workloads(
    look_back: LookBack, since: Mapping[str, int]
) -> tuple[list[WorkloadAssessment], list[WorkloadMeasures]]:
    """Assess how every workload uses its GPUs.

    Args:
        look_back: the look-back.
        since: index of the first hour after a recommendation was applied, by its id.

    Returns:
        The assessments, and the measures of the workloads that may get recommendations.
    """
    assessments, measured = [], []
    findings: dict[WorkloadKey, tuple[WorkloadMeasures, WorkloadFinding, str]] = {}
    for key in sorted(look_back.workloads):
        history = look_back.workloads[key]
        subject = workload_subject(look_back.cluster, history)
        # Hours before a change of the workload do not show how it uses its GPUs now.
        first = max(
            since.get(recommendation_id(kind.name, subject), 0)
            for kind in RECOMMENDATION_KINDS
            if kind.choice == "largest"
        )
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
        if finding != "unknown" and not has_other_parts:
            measured.append(measures)
    return assessments, measured


def _split_workloads(
    look_back: LookBack, findings: Mapping[WorkloadKey, tuple[WorkloadMeasures, WorkloadFinding, str]]
) -> dict[tuple[str, ...], list[WorkloadKey]]:
    """The keys of workloads whose pods now have several GPU models or resources."""
    parts: dict[tuple[str, ...], list[WorkloadKey]] = {}
    for key, history in look_back.workloads.items():
        if findings[key][0].current_gpus > 0 if key in findings else any(history.held_gpu_hours[-24:]):
            parts.setdefault(key[:4], []).append(key)
    return {name: keys for name, keys in parts.items() if len(keys) > 1}
