"""The measured saving of an applied recommendation: only the part that its own change explains.

For each hour of the newest week since the change,

    saved = (GPUs held in the same hour before the change − GPUs held now) × price per GPU-hour of the hour

For a pool, nodes count instead of GPUs. For capacity that became cheaper (spot, commitments, another GPU model), the
saving is the GPUs held now × the fall of the price per GPU-hour. The result is the mean hour × 730, at most the
estimate. Hours do not count if something else explains the difference: the work no longer runs, other pods are gone, or
only the price fell. An hour with more GPUs than before is not subtracted from other hours.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import Final

from gpucost.features.recommendations.kinds import KINDS_BY_NAME
from gpucost.features.recommendations.model import HOURS_PER_MONTH, RecommendationContent, round_cents
from gpucost.features.recommendations.subject_hours import SubjectHour

WEEK: Final = 168
_DAY = 24


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
