"""The review of one cluster: all recommendation rules on one look-back, and an assessment of every workload."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from gpucost.core.hours import HOUR
from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.measuring import WorkloadMeasures, workload_subject
from gpucost.features.recommendations.model import RecommendationContent, RecommendationSubject, Review
from gpucost.features.recommendations.rules.cheaper_gpus import recommend_cheaper_gpus
from gpucost.features.recommendations.rules.commitments import recommend_commitments
from gpucost.features.recommendations.rules.consolidation import recommend_consolidation
from gpucost.features.recommendations.rules.mig_slices import recommend_slices
from gpucost.features.recommendations.rules.nodes_for_waiting_pods import recommend_capacity
from gpucost.features.recommendations.rules.rightsizing import assess_workloads
from gpucost.features.recommendations.rules.schedules_and_spot import recommend_off_hours, recommend_spot
from gpucost.features.recommendations.rules.time_slicing import recommend_sharing


def _without_none(candidates: Iterable[RecommendationContent | None]) -> list[RecommendationContent]:
    return [candidate for candidate in candidates if candidate is not None]


def _largest_per_subject(contents: Sequence[RecommendationContent]) -> list[RecommendationContent]:
    """Keep the recommendation with the largest saving for each subject: they would change the same pods."""
    best: dict[RecommendationSubject, RecommendationContent] = {}
    for content in contents:
        previous = best.get(content.subject)
        if previous is None or previous.saving.usd < content.saving.usd:
            best[content.subject] = content
    return list(best.values())


def _slices_or_sharing(
    look_back: LookBack, measured: Sequence[WorkloadMeasures], covered: set[RecommendationSubject]
) -> tuple[list[RecommendationContent], set[RecommendationSubject]]:
    """Recommend MIG slices or sharing for each pool: slices, which isolate pods, unless sharing saves more.

    Returns:
        The recommendations, and the workloads that take part in sharing.
    """
    slices, shared = recommend_slices(look_back, measured, covered), recommend_sharing(look_back, measured, covered)
    plans = {plan.subject: plan for plan in slices if plan.kind == "mig-geometry"}
    preferred = [
        plan
        for plan in shared
        if plan.content.subject not in plans or plans[plan.content.subject].saving.usd < plan.content.saving.usd
    ]
    replaced_ids = {plans[plan.content.subject].id for plan in preferred if plan.content.subject in plans}
    kept_slices = [plan for plan in slices if plan.id not in replaced_ids and plan.part_of not in replaced_ids]
    return [*kept_slices, *(plan.content for plan in preferred)], {
        subject for plan in preferred for subject in plan.subjects
    }


def review_cluster(look_back: LookBack, now: datetime, since: Mapping[str, int]) -> Review:
    """Apply all rules to a look-back, and assess every workload.

    Args:
        look_back: the look-back.
        now: the current time.
        since: index of the first hour after a recommendation was applied, by its id.

    Returns:
        The review. It has no recommendations if the hours have several currencies, which cannot be added up.
    """
    assessments, measured, contents = assess_workloads(look_back, since)
    schedules = _without_none(recommend_off_hours(look_back, measures) for measures in measured)
    contents = _largest_per_subject([*contents, *recommend_cheaper_gpus(look_back, since), *schedules])
    pool_plans, sharing_subjects = _slices_or_sharing(look_back, measured, {content.subject for content in contents})
    contents += pool_plans
    contents += recommend_consolidation(look_back)
    contents += recommend_commitments(look_back)
    contents += recommend_capacity(look_back)
    covered = {content.subject for content in contents} | sharing_subjects
    contents += _without_none(
        recommend_spot(look_back, measures)
        for measures in measured
        if workload_subject(look_back.cluster, measures.history) not in covered
    )
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
