"""The lifecycle of a recommendation: how each review updates it, and the plan that open ones make.

open ──▶ applied ──▶ verified
 │ ▲        │
 │ └────────┘ undone within the week
 ├──▶ withdrawn   newer figures no longer support it, or its subject is gone
 └──▶ dismissed   by a person, with a reason; stays until a person reopens it

The measured saving of an applied recommendation: only the part that its own change explains.

For each hour of the newest week since the change,

    saved = (GPUs held in the same hour before the change − GPUs held now) × price per GPU-hour of the hour

For a pool, nodes count instead of GPUs. For capacity that became cheaper (spot, commitments, another GPU model), the
saving is the GPUs held now × the fall of the price per GPU-hour. The result is the mean hour × 730, at most the
estimate. Hours do not count if something else explains the difference: the work no longer runs, other pods are gone, or
only the price fell. An hour with more GPUs than before is not subtracted from other hours.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, Protocol

from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR, HOURS_PER_MONTH
from gpucost.features.recommendations.kinds import KINDS_BY_NAME
from gpucost.features.recommendations.measuring import SubjectHour
from gpucost.features.recommendations.model import (
    Offer,
    Recommendation,
    RecommendationContent,
    RecommendationSubject,
    round_cents,
)

VERIFIED_AFTER = timedelta(days=7)
"""A saving is measured over a whole week, because weekdays and weekends differ."""
SCHEDULE_VISIBLE_AFTER = timedelta(days=8)
"""A schedule becomes visible in the mean of a whole week."""
WITHDRAWN_RETENTION = timedelta(days=90)
_MIN_CHANGED_HOURS = 6
"""Hours that must differ from the same hours of the week before, so that a recommendation counts as applied."""
WEEK: Final = 168


def measured_saving(
    content: RecommendationContent, hours: Sequence[SubjectHour | None], changed: int
) -> Decimal | None:
    """Measure the monthly saving of an applied recommendation in USD; negative if GPUs were added.

    Args:
        content: the recommendation at the time of the change. Its estimate is the limit.
        hours: the subject's hours of the look-back; None for hours without figures.
        changed: index of the first hour after the change.

    Returns:
        None if less than a week of hours since then has figures and a price.
    """
    pairs = [
        (current, before)
        for index in range(changed, len(hours))
        if (current := hours[index]) is not None and current.usd is not None
        if (before := _same_hour_before(hours, changed, index)) is not None
    ][-WEEK:]
    if len(pairs) < WEEK:
        return None
    usd = round_cents(
        sum(_saved_usd(content, current, before) for current, before in pairs) / len(pairs) * HOURS_PER_MONTH
    )
    estimate = content.saving.usd
    return max(estimate, min(usd, Decimal(0))) if estimate < 0 else min(estimate, max(usd, Decimal(0)))


def _same_hour_before(hours: Sequence[SubjectHour | None], changed: int, index: int) -> SubjectHour | None:
    """The same hour of the newest week before the change; if there is none, of the newest day."""
    for step in (WEEK, _DAY):
        for earlier in range(index - step, -1, -step):
            earlier_hour = hours[earlier] if earlier < changed else None
            if earlier_hour is not None and earlier_hour.usd is not None:
                return earlier_hour
    return None


def _saved_usd(content: RecommendationContent, current: SubjectHour, before: SubjectHour) -> float:
    """USD of an hour that the recommended change explains."""
    if not before.held:
        return 0.0
    price_before = (before.usd or 0.0) / before.held
    price = (current.usd or 0.0) / current.held if current.held else price_before
    if content.saving.usd < 0:
        return -max(0.0, current.held - before.held) * price
    kind = KINDS_BY_NAME[content.kind]
    if kind.lowers_price:
        return min(current.held, before.held) * max(0.0, price_before - price)
    return max(0.0, kind.expected_amount(content, current, before) - current.held) * price


_DAY = 24
_TOLERANCE = 1.05
"""An amount within this factor of the recommended amount counts as reached."""


class SubjectHistories(Protocol):
    """The newest hours of the subjects of recommendations."""

    @property
    def start(self) -> datetime:
        """The first hour of the look-back."""
        ...

    def hourly_gpus(self, content: RecommendationContent) -> Sequence[float | None] | None:
        """GPUs held in every hour (for a pool: nodes); None for hours without figures.

        Returns:
            None if the subject is not in the look-back at all.
        """
        ...

    def hourly_use_and_cost(self, content: RecommendationContent) -> Sequence[SubjectHour | None]:
        """What the subject held and cost in every hour; None for hours without figures."""
        ...


def update_recommendations(
    stored: Iterable[Recommendation],
    current: Mapping[str, RecommendationContent],
    histories: SubjectHistories,
    now: datetime,
    findings: Mapping[RecommendationSubject, str] | None = None,
) -> list[Recommendation]:
    """Update the stored recommendations after a review.

    Args:
        stored: the stored recommendations.
        current: what the review recommends, by id.
        histories: the newest hours of the subjects.
        now: the time of the review.
        findings: the reason of each workload's finding. A withdrawn recommendation gives it as its reason.

    Returns:
        The recommendations that are new or changed.
    """
    changed = []
    seen = set()
    for recommendation in stored:
        seen.add(recommendation.id)
        updated = _updated(
            recommendation,
            current.get(recommendation.id),
            histories,
            now,
            (findings or {}).get(recommendation.content.subject, ""),
        )
        if updated != recommendation:
            changed.append(updated)
    changed += [
        Recommendation(content, "open", now, now, now)
        for recommendation_id, content in current.items()
        if recommendation_id not in seen
    ]
    return changed


def _updated(
    recommendation: Recommendation,
    content: RecommendationContent | None,
    histories: SubjectHistories,
    now: datetime,
    finding: str,
) -> Recommendation:
    if recommendation.state == "dismissed":
        return replace(recommendation, content=content, last_recommended=now) if content else recommendation
    if recommendation.state in {"open", "applied"}:
        applied_at = _applied_at(recommendation, histories)
        if applied_at is not None:
            return _as_applied(recommendation, applied_at, histories, now)
    if content is None:
        if recommendation.state in {"open", "applied"}:
            is_gone = _is_gone(recommendation.content, histories.hourly_gpus(recommendation.content))
            if recommendation.state == "applied" and not is_gone:
                # Undone. This review left out the hours before the change; the next one counts all hours again.
                return replace(recommendation, state="open", since=now, applied_at=None)
            if (
                KINDS_BY_NAME[recommendation.content.kind].shows_in_week
                and not is_gone
                and now - recommendation.last_recommended <= SCHEDULE_VISIBLE_AFTER
            ):
                return recommendation  # its hours may be empty because it was applied; a whole week will show it
            reason = "its subject is gone" if is_gone else "newer figures no longer support it"
            if finding and not is_gone:
                reason = f"{reason}: {finding}"
            return replace(recommendation, state="withdrawn", since=now, reason=reason, applied_at=None)
        return recommendation
    if recommendation.state == "open":
        # While a change has begun but is not confirmed yet, newer figures show only the remaining saving.
        change = _find_change(recommendation, histories.hourly_gpus(recommendation.content))
        return replace(
            recommendation,
            content=content if change is None or not change[1] else recommendation.content,
            last_recommended=now,
        )
    # Verified or withdrawn, and recommended again: the problem is back.
    return replace(
        recommendation,
        content=content,
        state="open",
        since=now,
        last_recommended=now,
        applied_at=None,
        verified_usd=None,
        reason="",
    )


def _applied_at(recommendation: Recommendation, histories: SubjectHistories) -> datetime | None:
    """The first hour since which the recommended amount is reached; None if it is not."""
    change = _find_change(recommendation, histories.hourly_gpus(recommendation.content))
    if change is None:
        return None
    first, changed_hours = change
    if first == 0:
        return recommendation.applied_at  # reached in the whole look-back: applied before it, or there never was more
    return recommendation.applied_at if changed_hours < _MIN_CHANGED_HOURS else histories.start + HOUR * first


def _find_change(recommendation: Recommendation, held: Sequence[float | None] | None) -> tuple[int, int] | None:
    """Find the first hour since which no more than the recommended amount is held (for more GPUs: no less).

    Nights and weekends with less are no change: only hours count that differ from the same hour of the week before,
    or of the day before if there is no such week.

    Returns:
        Its index and the number of changed hours since then; None if the newest hour holds more.
    """
    if held is None or _is_gone(recommendation.content, held):
        return None
    target = float(recommendation.content.recommended_gpus)
    adds_gpus = target > float(recommendation.content.current_gpus)

    def is_reached(amount: float) -> bool:
        return amount >= target / _TOLERANCE if adds_gpus else amount <= target * _TOLERANCE

    first = len(held)
    for index in range(len(held) - 1, -1, -1):
        amount = held[index]
        if amount is not None:
            if not is_reached(amount):
                break
            first = index
    if first == len(held):
        return None
    changed_hours = 0
    for index in range(first, len(held)):
        earlier = _amount_before(held, first, index)
        if earlier is not None and held[index] is not None and not is_reached(earlier):
            changed_hours += 1
    return first, changed_hours


def _amount_before(held: Sequence[float | None], first: int, index: int) -> float | None:
    """The amount in the same hour of the week before; if that is not known, of the newest day before."""
    for earlier in (index - WEEK, *range(index - _DAY, -1, -_DAY)):
        amount: float | None = held[earlier] if 0 <= earlier < first else None
        if amount is not None:
            return amount
    return None


def _is_gone(content: RecommendationContent, held: Sequence[float | None] | None) -> bool:
    """Whether nothing is left of a subject that was meant to keep something."""
    amounts = [] if held is None else [amount for amount in held if amount is not None]
    return not amounts or (content.recommended_gpus > 0 and not any(amounts[-_DAY:]))


def _as_applied(
    recommendation: Recommendation, applied_at: datetime, histories: SubjectHistories, now: datetime
) -> Recommendation:
    updated = recommendation
    if recommendation.state != "applied" or recommendation.applied_at != applied_at:
        updated = replace(
            recommendation,
            state="applied",
            since=now if recommendation.state != "applied" else recommendation.since,
            applied_at=applied_at,
        )
    index = max(0, (applied_at - histories.start) // HOUR)
    hours = histories.hourly_use_and_cost(recommendation.content)
    priced_hours = sum(hour is not None and hour.usd is not None for hour in hours[index:])
    # A schedule shows in the mean of a week, so that it was followed for a week before.
    shows_in_week = KINDS_BY_NAME[recommendation.content.kind].shows_in_week
    changed = index - WEEK + 1 if shows_in_week else index
    usd = (
        measured_saving(recommendation.content, hours, max(0, changed))
        if priced_hours * HOUR >= VERIFIED_AFTER
        else None
    )
    return updated if usd is None else replace(updated, state="verified", since=now, verified_usd=usd)


def dismiss(recommendation: Recommendation, *, author: str, reason: str, now: datetime) -> Recommendation:
    """Dismiss an open recommendation.

    Raises:
        InvalidInputError: no reason, or it is not open.
    """
    if not reason.strip():
        raise InvalidInputError(
            "reason: required. Say why the recommendation is dismissed, for those who review it later."
        )
    if recommendation.state != "open":
        raise InvalidInputError(
            f"{recommendation.id} is {recommendation.state}; only open recommendations can be dismissed"
        )
    return replace(recommendation, state="dismissed", since=now, reason=reason.strip(), author=author)


def reopen(recommendation: Recommendation, *, now: datetime) -> Recommendation:
    """Reopen a dismissed recommendation.

    Raises:
        InvalidInputError: it was not dismissed.
    """
    if recommendation.state != "dismissed":
        raise InvalidInputError(
            f"{recommendation.id} is {recommendation.state}; only dismissed recommendations can be reopened"
        )
    return replace(recommendation, state="open", since=now, reason="", author="")


# Combines the open recommendations into one plan: changes that can all be made, and whose savings add up.
#
# A review recommends at most one change for a workload. Changes that remove nodes of a pool free GPUs that no workload
# holds, or nodes that its pods then no longer need, so they add to what its workloads free: no GPU-hour counts twice.
# Two kinds of changes are not consistent with that:
#
# - Nodes for waiting pods, or more replicas, in a pool whose nodes are to be removed. The pool gets the change that is
#   worth more. The others are its alternatives.
# - Nodes that cost more than the waiting is worth. They are not offered.
#
# A plan is computed whenever recommendations are read, so that it is right after one of them was dismissed.

_Pool = tuple[str, str, str, str, str]
_ZERO = Decimal(0)


def offered(recommendations: Iterable[Recommendation]) -> list[Recommendation]:
    """Set how each open recommendation is offered next to the others.

    Args:
        recommendations: all that are stored for one or more clusters, in any state.
    """
    rows = list(recommendations)
    open_rows = [row for row in rows if row.state == "open"]
    offers = _offers([row.content for row in open_rows])
    return [
        replace(row, offer=offers[row.id][0], alternative_to=offers[row.id][1])
        if row.state == "open"
        else replace(row, offer=None, alternative_to="")
        for row in rows
    ]


def _offers(contents: Sequence[RecommendationContent]) -> dict[str, tuple[Offer, str]]:
    """How each is offered, and the id of the one that it is an alternative to."""
    offers: dict[str, tuple[Offer, str]] = {content.id: _alone(content) for content in contents}
    by_pool: dict[_Pool, list[RecommendationContent]] = {}
    for content in contents:
        if not content.subject.is_workload and not KINDS_BY_NAME[content.kind].is_after_plan:
            by_pool.setdefault(_pool_of(content), []).append(content)
    shrinking: dict[tuple[str, str, str], str] = {}
    """Id of the largest change that removes nodes, by cluster, node pool and instance type."""
    for pool_contents in by_pool.values():
        removals = [content for content in pool_contents if content.saving.usd > 0]
        additions = [content for content in pool_contents if offers[content.id][0] == "cost"]
        if removals and additions:
            is_worth_more = sum(map(_net_worth, additions), _ZERO) > sum(map(_net_worth, removals), _ZERO)
            chosen, others = (additions, removals) if is_worth_more else (removals, additions)
            best = max(chosen, key=lambda content: (_net_worth(content), content.id))
            offers.update({content.id: ("alternative", best.id) for content in others})
            removals = [] if is_worth_more else removals
        if removals:
            best = max(removals, key=lambda content: (content.saving.usd, content.id))
            subject = best.subject
            shrinking[subject.cluster, subject.node_pool, subject.instance_type] = best.id
            offers.update(
                {
                    content.id: ("alternative", best.id)
                    for content in pool_contents
                    if offers[content.id] == ("alternative", "")
                }
            )
    for content in contents:
        removal = next(
            (shrinking[key] for pool in content.pools if (key := (content.subject.cluster, *pool)) in shrinking), ""
        )
        if removal and content.saving.usd < 0:
            offers[content.id] = "alternative", removal
        elif content.part_of in offers:  # a slice comes with the plan of its pool
            offers[content.id] = offers[content.part_of]
    return offers


def _alone(content: RecommendationContent) -> tuple[Offer, str]:
    """How a recommendation is offered if nothing contradicts it."""
    if KINDS_BY_NAME[content.kind].is_after_plan:
        return "after-plan", ""
    if content.saving.usd >= 0:
        return "plan", ""
    is_loss = content.worth_usd is not None and content.worth_usd + content.saving.usd < 0
    return ("alternative" if is_loss else "cost"), ""


def _net_worth(content: RecommendationContent) -> Decimal:
    return content.saving.usd + (content.worth_usd or _ZERO)


def _pool_of(content: RecommendationContent) -> _Pool:
    """The pool of a recommendation. The requested resource does not make it another one."""
    subject = content.subject
    return subject.cluster, subject.node_pool, subject.instance_type, subject.capacity_type, subject.gpu_model
