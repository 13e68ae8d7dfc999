"""What an applied recommendation has saved: only what its own change explains.

For each hour of the newest week since the change,

    saved = (GPUs held in the same hour before the change − GPUs held now) × price per GPU-hour of the hour

of a pool nodes, and of capacity that got cheaper (spot, commitments) the GPUs held now × the price per GPU-hour that
they lost. The mean hour × 730 counts, at most as much as was claimed. Nobody's saving are hours in which something else
explains the difference: the work does not run any more, other pods went, or only the price fell. What goes against the
advice in one hour (more GPUs than before) is not set off against another: the bound is what was claimed.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final, NamedTuple

from gpucost.features.recommendations.model import HOURS_OF_MONTH, RecommendationContent, RecommendationKind, round_cents
from gpucost.features.recommendations.rules.rightsizing import IDLE, SERVICES

WEEK: Final = 168
_DAY = 24
_CHEAPER: Final = frozenset[RecommendationKind]({"spot", "commitment"})
"""What stays is held at a lower price."""
_PODS_STAY: Final = frozenset[RecommendationKind]({"consolidate", "mig-geometry", "sharing", "mig-slice"})
"""The same pods on less: pods that are gone took their part with them."""


class SubjectHour(NamedTuple):
    """What advice is about, in one hour."""

    held: float
    """GPUs; of a pool or instance type: nodes."""
    usd: float | None
    """None where a part of it has no price."""
    work: float
    """What ran: pods; of a pool to consolidate the GPUs that they held."""
    used: float
    """GPU-hours of use that somebody saw."""


def measured_saving(advice: RecommendationContent, hours: Sequence[SubjectHour | None], changed: int) -> Decimal | None:
    """USD per month that an applied recommendation saves, as measured; negative for more GPUs, which cost money.

    Args:
        advice: as it was when the change came: what it claimed is the most that is verified.
        hours: the look-back's, None without figures.
        changed: place of the first hour that differs.

    Returns:
        None where fewer than a week's hours since then have figures and a price.
    """
    known = [
        (own, before)
        for index in range(changed, len(hours))
        if (own := hours[index]) is not None and own.usd is not None
        if (before := _usual(hours, changed, index)) is not None
    ][-WEEK:]
    if len(known) < WEEK:
        return None
    usd = round_cents(sum(_saved(advice, own, before) for own, before in known) / len(known) * HOURS_OF_MONTH)
    claimed = advice.saving.usd
    return max(claimed, min(usd, Decimal(0))) if claimed < 0 else min(claimed, max(usd, Decimal(0)))


def _usual(hours: Sequence[SubjectHour | None], changed: int, index: int) -> SubjectHour | None:
    """The same hour of the newest week before the change; where none is known, of the newest day."""
    for step in (WEEK, _DAY):
        for at in range(index - step, -1, -step):
            own = hours[at] if at < changed else None
            if own is not None and own.usd is not None:
                return own
    return None


def _saved(advice: RecommendationContent, own: SubjectHour, before: SubjectHour) -> float:
    """USD of an hour that the advice's change explains."""
    if not before.held:
        return 0.0
    was = (before.usd or 0.0) / before.held
    price = (own.usd or 0.0) / own.held if own.held else was
    if advice.saving.usd < 0:
        return -max(0.0, own.held - before.held) * price
    if advice.kind in _CHEAPER:
        return min(own.held, before.held) * max(0.0, was - price)
    return max(0.0, _explained(advice, own, before) - own.held) * price


def _explained(advice: RecommendationContent, own: SubjectHour, before: SubjectHour) -> float:
    """What would be held in an hour without the change: of what was held before, the part whose work is still there."""
    if advice.kind == "idle":  # there was no work
        return before.held
    if advice.kind == "off-hours":  # hours of work are not stopped by it
        return before.held if before.used < IDLE * before.held else 0.0
    if not own.held:
        return 0.0
    if advice.kind in _PODS_STAY or advice.subject.workload_kind not in SERVICES:
        return before.held * min(1.0, own.work / before.work) if before.work else 0.0
    return before.held  # fewer replicas are the change
