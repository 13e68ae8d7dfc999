"""The run rate: what a period will cost at the mean hourly cost so far.

    run rate = spent + spent ÷ hours with data × hours of the period without data, for each cluster

Hours without data are unknown: they are assumed to cost as much as those with data, also those before the first data of
the fleet. A cluster that joined a fleet with data had no cost before, and one that left has none any more. There is no
run rate before a day of hours has data, or if fewer than half of the hours so far have data, in any cluster of the sum.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from msgspec import Struct

from gpucost.core.amounts import WIDE_CONTEXT, quantize
from gpucost.core.hours import HOUR

MIN_RUN_RATE_HOURS = 24


class ClusterSpend(Struct, frozen=True):
    """What was spent in one cluster in a period so far."""

    spent: Decimal
    hours_with_data: int
    since: datetime
    """When the cluster joined: its first recorded hour in the period. The start of the period if none is recorded."""
    has_left: bool = False


def counted_since(first_hour: datetime | None, fleet_first_hour: datetime | None, start: datetime) -> datetime:
    """Return since when a cluster's hours of a period count.

    A cluster that joined a fleet with data had no cost before. If the data of the whole fleet begin later than a day
    after the period's start, nothing is known of the hours before in any cluster.

    Args:
        first_hour: the cluster's first recorded hour in the period.
        fleet_first_hour: that of all clusters.
        start: the period's start.
    """
    if first_hour is None or fleet_first_hour is None or fleet_first_hour - start > MIN_RUN_RATE_HOURS * HOUR:
        return start
    return first_hour


def estimate_so_far(clusters: Sequence[ClusterSpend], until: datetime) -> Decimal:
    """Return the part of the run rate that is of hours so far without data.

    Args:
        clusters: those of a run rate that is known.
        until: as there.
    """
    total = Decimal(0)
    for cluster in clusters:
        missing = 0 if cluster.has_left else (until - cluster.since) // HOUR - cluster.hours_with_data
        if missing > 0:
            total += quantize(WIDE_CONTEXT.divide(cluster.spent * missing, Decimal(cluster.hours_with_data)))
    return total


def run_rate(clusters: Sequence[ClusterSpend], until: datetime, end: datetime) -> Decimal | None:
    """Project a period's cost over all clusters; None if too few hours have data.

    Args:
        clusters: of the sum; a business unit's are those in which it held GPUs.
        until: end of the newest hour that should have data.
        end: end of the period.
    """
    total = Decimal(0)
    for cluster in clusters:
        if cluster.has_left:
            total += cluster.spent
            continue
        period_hours, hours_so_far = (end - cluster.since) // HOUR, (until - cluster.since) // HOUR
        if cluster.hours_with_data < MIN_RUN_RATE_HOURS or 2 * cluster.hours_with_data < hours_so_far:
            return None
        total += quantize(WIDE_CONTEXT.divide(cluster.spent * period_hours, Decimal(cluster.hours_with_data)))
    return total
