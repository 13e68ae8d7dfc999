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
from typing import Final, NamedTuple

from gpucost.features.recommendations.model import (
    HOURS_PER_MONTH,
    RecommendationContent,
    RecommendationKind,
    round_cents,
)
from gpucost.features.recommendations.rules.rightsizing import IDLE_UTILIZATION, SERVICE_KINDS

WEEK: Final = 168
_DAY = 24
_PRICE_ONLY_KINDS: Final = frozenset[RecommendationKind]({"spot", "commitment", "cheaper-gpus"})
"""As many GPUs or nodes at a lower price."""
_PACKING_KINDS: Final = frozenset[RecommendationKind]({"consolidate", "mig-geometry", "sharing", "mig-slice"})
"""The same pods on fewer GPUs or nodes. Pods that are gone took their part with them."""


class SubjectHour(NamedTuple):
    """The subject of a recommendation in one hour."""

    held: float
    """GPUs; for a pool or instance type: nodes."""
    usd: float | None
    """None if a part of it has no price."""
    demand: float
    """Running pods; for a pool to consolidate: the GPUs that they held."""
    used_gpu_hours: float
    """Observed effective GPU-hours."""


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
    if content.kind in _PRICE_ONLY_KINDS:
        return min(current.held, before.held) * max(0.0, price_before - price)
    return max(0.0, _expected_amount(content, current, before) - current.held) * price


def _expected_amount(content: RecommendationContent, current: SubjectHour, before: SubjectHour) -> float:
    """What the hour would hold without the change: of the earlier amount, the part whose work is still there."""
    if content.kind == "idle":  # nothing ran on it
        return before.held
    if content.kind == "off-hours":  # a schedule does not stop hours of work
        return before.held if before.used_gpu_hours < IDLE_UTILIZATION * before.held else 0.0
    if not current.held:
        return 0.0
    if content.kind in _PACKING_KINDS or content.subject.workload_kind not in SERVICE_KINDS:
        return before.held * min(1.0, current.demand / before.demand) if before.demand else 0.0
    return before.held  # fewer replicas are the change
