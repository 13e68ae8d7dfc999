"""Reports node pool limits and GPU quotas by hour, next to what was requested and used."""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal

from msgspec import Struct

from gpucost.core.access import Scope
from gpucost.core.amounts import quantize, to_decimal
from gpucost.core.errors import InvalidInputError, ParameterError
from gpucost.core.hour_record import Line
from gpucost.core.ledger import Limits, PoolLimit, Quota
from gpucost.core.query.cost_query import MAX_LINE_HOURS
from gpucost.core.query.periods import Period, parse_period
from gpucost.reports.cost_reader import MAX_LINES
from gpucost.reports.parameters import PublishedUntil, QueryParameters, select_clusters
from gpucost.reports.scoped import scoped_hours
from gpucost.storage.limits_store import LimitsStore
from gpucost.storage.ports import Clock, PublishedHours, SettingsStore

MAX_ROWS = 10_000


class PoolRow(Struct, frozen=True):
    """One resource of a node pool at the end of an hour."""

    cluster: str
    hour: datetime
    limit: PoolLimit


class QuotaRow(Struct, frozen=True):
    """A quota at the end of an hour, and what the namespace held and used during that hour.

    `held` and `used` are means over the hour in the quota's units: unit-hours of lines ÷ 1 hour.
    """

    cluster: str
    hour: datetime
    quota: Quota
    held: Decimal
    used: Decimal | None
    """None if no utilization was measured. Lines without a measurement count as zero."""


class LimitReports:
    """Reads the recorded limits of hours.

    Args:
        settings_store: source of the cluster names.
        ledger: source of the lines.
        store: source of the limits.
        clock: returns the current time, for relative windows.
    """

    def __init__(self, settings_store: SettingsStore, ledger: PublishedHours, store: LimitsStore, clock: Clock) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._store = store
        self._clock = clock
        self._published_until = PublishedUntil(settings_store, ledger, clock)

    def pools(self, parameters: QueryParameters, *, scope: Scope) -> tuple[Period, list[PoolRow]]:
        """Return the use and the limit of every node pool, in order of hour, cluster and name.

        Raises:
            ParameterError: a period longer than 48 hours, or an unknown cluster.
            InvalidInputError: the response would have too many rows.
        """
        period, limits = self._read_limits(parameters, scope)
        rows = [PoolRow(hour.cluster, hour.hour, pool) for hour in limits for pool in hour.pools]
        _check_count(len(rows), MAX_ROWS, "rows")
        return period, rows

    def quotas(self, parameters: QueryParameters, *, scope: Scope) -> tuple[Period, list[QuotaRow]]:
        """Return every GPU quota with what its namespace held and used, in order of hour, cluster and name.

        Raises:
            As `pools`.
        """
        period, limits = self._read_limits(parameters, scope)
        ledger, rows, line_count = scoped_hours(self._ledger, scope), [], 0
        for hour in limits:
            if not hour.quotas:
                continue
            lines = ledger.lines(hour.cluster, hour.hour)
            line_count += len(lines)
            _check_count(line_count, MAX_LINES, "pod-hours to sum")
            lines_by_quota: dict[tuple[str, str], list[Line]] = {}
            for line in lines:
                lines_by_quota.setdefault((line.namespace, line.resource), []).append(line)
            for quota in hour.quotas:
                quota_lines = lines_by_quota.get((quota.namespace, quota.resource), [])
                rows.append(QuotaRow(hour.cluster, hour.hour, quota, *_mean_units(quota_lines)))
        _check_count(len(rows), MAX_ROWS, "rows")
        return period, rows

    def _read_limits(self, parameters: QueryParameters, scope: Scope) -> tuple[Period, list[Limits]]:
        period = parse_period(
            parameters.start, parameters.end, parameters.window, self._clock(), published_until=self._published_until
        )
        if period.hours() > MAX_LINE_HOURS:
            raise ParameterError(
                period.parameter,
                f"the period has more than {MAX_LINE_HOURS} hours, the maximum for limits. Shorten the period.",
            )
        clusters = select_clusters(parameters.cluster, self._settings_store.current(), scope)
        limits = [hour for name in clusters for hour in self._store.limits_between(name, period.start, period.end)]
        return period, sorted(limits, key=lambda hour: (hour.hour, hour.cluster))


def _mean_units(lines: Sequence[Line]) -> tuple[Decimal, Decimal | None]:
    """Return the mean units held and used: GPU-hours ÷ physical GPUs per unit."""
    held = sum((to_decimal(line.allocated_gpu_hours) / line.gpu_share for line in lines if line.gpu_share), Decimal(0))
    used = [
        to_decimal(line.effective_gpu_hours) / line.gpu_share
        for line in lines
        if line.gpu_share and line.effective_gpu_hours is not None
    ]
    return quantize(held), quantize(sum(used, Decimal(0))) if used or not lines else None


def _check_count(count: int, maximum: int, noun: str) -> None:
    if count > maximum:
        raise InvalidInputError(
            f"the response would have more than {maximum:,} {noun}. Shorten the period, or select one cluster."
        )
