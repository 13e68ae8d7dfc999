"""One cluster's review: every kind of advice on one look-back, and how every workload stands."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from gpucost.core.hours import HOUR
from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.measuring import Measured, about_workload
from gpucost.features.recommendations.model import About, Advice, Review
from gpucost.features.recommendations.rules.commitments import commit
from gpucost.features.recommendations.rules.consolidation import consolidate
from gpucost.features.recommendations.rules.rightsizing import judge
from gpucost.features.recommendations.rules.schedules_and_spot import off_hours, spot
from gpucost.features.recommendations.rules.sharing import share_gpus
from gpucost.features.recommendations.rules.slicing import plan_slices
from gpucost.features.recommendations.rules.waiting_pods import add_capacity


def _present(found: Iterable[Advice | None]) -> list[Advice]:
    return [one for one in found if one is not None]


def _larger(advice: Sequence[Advice]) -> list[Advice]:
    """Of several on one workload, which would change the same pods, the one that saves most."""
    best: dict[About, Advice] = {}
    for one in advice:
        known = best.get(one.about)
        if known is None or known.saving.usd < one.saving.usd:
            best[one.about] = one
    return list(best.values())


def _divide(look: LookBack, measured: Sequence[Measured], taken: set[About]) -> tuple[list[Advice], set[About]]:
    """Slices or sharing for each pool: slices, which keep pods apart, unless sharing saves more.

    Returns:
        Also the workloads that are to share.
    """
    slices, shared = plan_slices(look, measured, taken), share_gpus(look, measured, taken)
    plans = {one.about: one for one in slices if one.kind == "mig-geometry"}
    better = [
        one for one in shared
        if one.advice.about not in plans or plans[one.advice.about].saving.usd < one.advice.saving.usd
    ]  # fmt: skip
    worse = {plans[one.advice.about].id for one in better if one.advice.about in plans}
    kept = [one for one in slices if one.id not in worse and one.part_of not in worse]
    return [*kept, *(one.advice for one in better)], {about for one in better for about in one.workloads}


def review(look: LookBack, now: datetime, since: Mapping[str, int]) -> Review:
    """What to change, and how everything stands.

    Args:
        look: the look-back.
        now: the time.
        since: by id of advice, place of the first hour after it was applied.

    Returns:
        Without advice where the hours are of several currencies: their sums mean nothing.
    """
    judged, measured, advice = judge(look, since)
    advice = _larger([*advice, *_present(off_hours(look, one) for one in measured)])
    divided, sharing = _divide(look, measured, {one.about for one in advice})
    advice += divided
    advice += consolidate(look)
    advice += commit(look)
    advice += add_capacity(look)
    taken = {one.about for one in advice} | sharing
    advice += _present(spot(look, one) for one in measured if about_workload(look.cluster, one.history) not in taken)
    currency = next(iter(look.currencies)) if len(look.currencies) == 1 else ""
    found = [replace(one, currency=currency) for one in advice] if currency else []
    return Review(
        look.cluster, look.start, look.start + HOUR * look.hours, now, sum(look.known), tuple(found), tuple(judged),
        currency or "USD",
    )  # fmt: skip
