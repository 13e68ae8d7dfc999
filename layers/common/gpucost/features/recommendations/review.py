"""One cluster's review: every kind of advice on one look-back, and how every workload stands."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from gpucost.core.hours import HOUR
from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.measuring import WorkloadMeasures, workload_subject
from gpucost.features.recommendations.model import RecommendationContent, Review, Subject
from gpucost.features.recommendations.rules.commitments import recommend_commitments
from gpucost.features.recommendations.rules.consolidation import recommend_consolidation
from gpucost.features.recommendations.rules.rightsizing import assess_workloads
from gpucost.features.recommendations.rules.schedules_and_spot import recommend_off_hours, recommend_spot
from gpucost.features.recommendations.rules.sharing import recommend_sharing
from gpucost.features.recommendations.rules.slicing import recommend_slices
from gpucost.features.recommendations.rules.waiting_pods import recommend_capacity


def _present(found: Iterable[RecommendationContent | None]) -> list[RecommendationContent]:
    return [one for one in found if one is not None]


def _larger(advice: Sequence[RecommendationContent]) -> list[RecommendationContent]:
    """Of several on one workload, which would change the same pods, the one that saves most."""
    best: dict[Subject, RecommendationContent] = {}
    for one in advice:
        known = best.get(one.subject)
        if known is None or known.saving.usd < one.saving.usd:
            best[one.subject] = one
    return list(best.values())


def _divide(look_back: LookBack, measured: Sequence[WorkloadMeasures], taken: set[Subject]) -> tuple[list[RecommendationContent], set[Subject]]:
    """Slices or sharing for each pool: slices, which keep pods apart, unless sharing saves more.

    Returns:
        Also the workloads that are to share.
    """
    slices, shared = recommend_slices(look_back, measured, taken), recommend_sharing(look_back, measured, taken)
    plans = {one.subject: one for one in slices if one.kind == "mig-geometry"}
    better = [
        one for one in shared
        if one.advice.subject not in plans or plans[one.advice.subject].saving.usd < one.advice.saving.usd
    ]  # fmt: skip
    worse = {plans[one.advice.subject].id for one in better if one.advice.subject in plans}
    kept = [one for one in slices if one.id not in worse and one.part_of not in worse]
    return [*kept, *(one.advice for one in better)], {subject for one in better for subject in one.workloads}


def review_cluster(look_back: LookBack, now: datetime, since: Mapping[str, int]) -> Review:
    """What to change, and how everything stands.

    Args:
        look: the look-back.
        now: the time.
        since: by id of advice, place of the first hour after it was applied.

    Returns:
        Without advice where the hours are of several currencies: their sums mean nothing.
    """
    judged, measured, advice = assess_workloads(look_back, since)
    advice = _larger([*advice, *_present(recommend_off_hours(look_back, one) for one in measured)])
    divided, sharing = _divide(look_back, measured, {one.subject for one in advice})
    advice += divided
    advice += recommend_consolidation(look_back)
    advice += recommend_commitments(look_back)
    advice += recommend_capacity(look_back)
    taken = {one.subject for one in advice} | sharing
    advice += _present(recommend_spot(look_back, one) for one in measured if workload_subject(look_back.cluster, one.history) not in taken)
    currency = next(iter(look_back.currencies)) if len(look_back.currencies) == 1 else ""
    found = [replace(one, currency=currency) for one in advice] if currency else []
    return Review(
        look_back.cluster, look_back.start, look_back.start + HOUR * look_back.hours, now, sum(look_back.has_figures), tuple(found), tuple(judged),
        currency or "USD",
    )  # fmt: skip
