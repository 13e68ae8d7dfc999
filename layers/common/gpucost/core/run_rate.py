"""The run rate: what a period will cost at the mean hourly cost so far.

    run rate = spent + spent ÷ hours with data × hours of the period without data

Hours without data are assumed to cost as much as those with data. There is none before a day of hours has data, or if
fewer than half of the hours so far have data.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import ROUND_HALF_EVEN, Context, Decimal

from gpucost.core.amounts import quantize
from gpucost.core.hours import HOUR

MIN_RUN_RATE_HOURS = 24
_DECIMAL_CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN)


def run_rate(
    clusters: Sequence[tuple[Decimal, int]], start: datetime, until: datetime, end: datetime
) -> Decimal | None:
    """Project a period's cost over all clusters; None if too few hours have data.

    Args:
        clusters: the amount spent and the hours with data, for each cluster.
        start: start of the period.
        until: end of the newest hour that should have data.
        end: end of the period.
    """
    period_hours, hours_so_far = (end - start) // HOUR, (until - start) // HOUR
    total = Decimal(0)
    for spent, hours_with_data in clusters:
        if hours_with_data < MIN_RUN_RATE_HOURS or 2 * hours_with_data < hours_so_far:
            return None
        total += quantize(_DECIMAL_CONTEXT.divide(spent * period_hours, Decimal(hours_with_data)))
    return total if clusters else None
