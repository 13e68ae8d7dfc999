"""The life of a recommendation: what each run's figures make of what was advised before.

open ──▶ applied ──▶ verified
 │ ▲        │
 │ └────────┘ undone within the week
 ├──▶ withdrawn   newer figures no longer support it, or its subject is gone
 └──▶ dismissed   by somebody, with a reason; stays until somebody opens it again
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Protocol

from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR
from gpucost.features.recommendations.model import Recommendation, RecommendationContent, Subject
from gpucost.features.recommendations.verification import WEEK, SubjectHour, measured_saving

VERIFIED_AFTER = timedelta(days=7)
"""A saving is measured over a whole week: weekdays and weekends cost differently."""
SEEN_AFTER = timedelta(days=8)
"""A schedule is seen in the mean of a whole week."""
WITHDRAWN_KEPT = timedelta(days=90)
_CHANGED = 6
"""Hours that must differ from the same hours of the week before, for advice to count as applied."""
_DAY = 24
_NEAR = 1.05
"""So much more than advised is still as advised."""


class SubjectHistory(Protocol):
    """What the newest hours say of what advice is about."""

    @property
    def start(self) -> datetime:
        """First hour of the look-back."""
        ...

    def gpus(self, advice: RecommendationContent) -> Sequence[float | None] | None:
        """GPUs held in every hour (of a pool: nodes); None for hours without figures.

        None where the subject was not seen in the look-back at all.
        """
        ...

    def hours(self, advice: RecommendationContent) -> Sequence[SubjectHour | None]:
        """What it held and cost in every hour; None for hours without figures."""
        ...


@dataclass(frozen=True, slots=True)
class SingleSubject:
    """A subject's hours, for tests and services alike; fulfils `Subjects` for one subject."""

    start: datetime
    held: Sequence[float | None] | None
    cost: Sequence[float | None]

    def gpus(self, advice: RecommendationContent) -> Sequence[float | None] | None:
        """Whatever is asked about."""
        return self.held

    def hours(self, advice: RecommendationContent) -> Sequence[SubjectHour | None]:
        """Whatever is asked about: as many pods as GPUs, of whose use nobody saw any."""
        pairs = zip(self.held or (), self.cost, strict=True)
        return [None if held is None else SubjectHour(held, usd, held, 0.0) for held, usd in pairs]


def update_recommendations(
    known: Iterable[Recommendation],
    found: Mapping[str, RecommendationContent],
    subjects: SubjectHistory,
    now: datetime,
    standings: Mapping[Subject, str] | None = None,
) -> list[Recommendation]:
    """What is to be stored after a run: recommendations that are new or changed.

    Args:
        known: what was stored before.
        found: what the run advises, by id.
        subjects: what the newest hours say.
        now: the run's time.
        standings: why workloads stand as they do, in words: what a withdrawn recommendation gives as its reason.
    """
    changed = []
    seen = set()
    for one in known:
        seen.add(one.id)
        new = _next(one, found.get(one.id), subjects, now, (standings or {}).get(one.content.subject, ""))
        if new != one:
            changed.append(new)
    changed += [Recommendation(advice, "open", now, now, now) for key, advice in found.items() if key not in seen]
    return changed


def _next(
    one: Recommendation, advice: RecommendationContent | None, subjects: SubjectHistory, now: datetime, standing: str
) -> Recommendation:
    if one.state == "dismissed":
        return replace(one, advice=advice, last_advised=now) if advice else one
    if one.state in {"open", "applied"}:
        applied = _applied_at(one, subjects)
        if applied is not None:
            return _applied(one, applied, subjects, now)
    if advice is None:
        if one.state in {"open", "applied"}:
            is_gone = _is_gone(one.content, subjects.gpus(one.content))
            if one.state == "applied" and not is_gone:
                # Undone. The run left out what was before it was applied; the next one counts all hours again.
                return replace(one, state="open", since=now, applied_at=None)
            if one.content.kind == "off-hours" and not is_gone and now - one.last_recommended <= SEEN_AFTER:
                return one  # its hours may be empty because it is followed: a whole week will tell
            reason = "its subject is gone" if is_gone else "newer figures no longer support it"
            if standing and not is_gone:
                reason = f"{reason}: {standing}"
            return replace(one, state="withdrawn", since=now, reason=reason, applied_at=None)
        return one
    if one.state == "open":
        # Where a change has begun that is not believed yet, newer figures claim only what it has left.
        change = _change(one, subjects.gpus(one.content))
        return replace(one, advice=advice if change is None or not change[1] else one.content, last_advised=now)
    # Verified or withdrawn, and advised again: the thing is back.
    return replace(
        one, advice=advice, state="open", since=now, last_advised=now, applied_at=None, verified_usd=None, reason=""
    )


def _applied_at(one: Recommendation, subjects: SubjectHistory) -> datetime | None:
    """The first hour since which it is as advised, for some hours that were not before; None where it is not so."""
    change = _change(one, subjects.gpus(one.content))
    if change is None:
        return None
    first, changed = change
    if first == 0:
        return one.applied_at  # as advised all the time: applied before the look-back, or never anything else
    return one.applied_at if changed < _CHANGED else subjects.start + HOUR * first


def _change(one: Recommendation, held: Sequence[float | None] | None) -> tuple[int, int] | None:
    """Place of the first hour since which no more is held than was advised (of more GPUs: no less), and how many hours
    since then differ; None where the newest hour holds more.

    That nights and weekends hold less is no change: only hours count that differ from the same hour of the week
    before, or of the day before where no week is known.
    """
    if held is None or _is_gone(one.content, held):
        return None
    then = float(one.content.recommended_gpus)
    is_more = then > float(one.content.current_gpus)

    def is_done(own: float) -> bool:
        return own >= then / _NEAR if is_more else own <= then * _NEAR

    first = len(held)
    for index in range(len(held) - 1, -1, -1):
        own = held[index]
        if own is not None:
            if not is_done(own):
                break
            first = index
    if first == len(held):
        return None
    changed = 0
    for index in range(first, len(held)):
        before = _before(held, first, index)
        if before is not None and held[index] is not None and not is_done(before):
            changed += 1
    return first, changed


def _before(held: Sequence[float | None], first: int, index: int) -> float | None:
    """What was held in the same hour of the week before; where that is not known, of the newest day before."""
    for at in (index - WEEK, *range(index - _DAY, -1, -_DAY)):
        own: float | None = held[at] if 0 <= at < first else None
        if own is not None:
            return own
    return None


def _is_gone(advice: RecommendationContent, held: Sequence[float | None] | None) -> bool:
    """Whether nothing is left of a subject that was to keep something."""
    known = [] if held is None else [own for own in held if own is not None]
    return not known or (advice.recommended_gpus > 0 and not any(known[-_DAY:]))


def _applied(one: Recommendation, at: datetime, subjects: SubjectHistory, now: datetime) -> Recommendation:
    new = one
    if one.state != "applied" or one.applied_at != at:
        new = replace(one, state="applied", since=now if one.state != "applied" else one.since, applied_at=at)
    index = max(0, (at - subjects.start) // HOUR)
    hours = subjects.hours(one.content)
    since = sum(own is not None and own.usd is not None for own in hours[index:])
    # A schedule shows in the mean of a week, so that it was followed for a week before.
    changed = index - WEEK + 1 if one.content.kind == "off-hours" else index
    usd = measured_saving(one.content, hours, max(0, changed)) if since * HOUR >= VERIFIED_AFTER else None
    return new if usd is None else replace(new, state="verified", since=now, verified_usd=usd)


def dismiss(one: Recommendation, *, author: str, reason: str, now: datetime) -> Recommendation:
    """Somebody does not want it.

    Raises:
        InvalidInputError: no reason, or it is not open.
    """
    if not reason.strip():
        raise InvalidInputError("a reason is needed: whoever looks at it next year wants to know")
    if one.state != "open":
        raise InvalidInputError(f"{one.id} is {one.state}; only open recommendations are dismissed")
    return replace(one, state="dismissed", since=now, reason=reason.strip(), author=author)


def reopen(one: Recommendation, *, now: datetime) -> Recommendation:
    """Somebody wants it after all.

    Raises:
        InvalidInputError: it was not dismissed.
    """
    if one.state != "dismissed":
        raise InvalidInputError(f"{one.id} is {one.state}; only dismissed recommendations are opened again")
    return replace(one, state="open", since=now, reason="", author="")
