"""Keeps what clusters let people have, hour by hour, and reports it beside what they held."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpucost.core.access import Scope
from gpucost.core.errors import InvalidInputError, ParameterError
from gpucost.core.limits import Limits, PoolLimit, Quota
from gpucost.core.model import Line
from gpucost.core.money import quantize
from gpucost.core.query.cost_query import HOURS_OF_LINES
from gpucost.core.query.periods import Period, parse_period
from gpucost.reports.parameters import QueryParameters, select_clusters
from gpucost.reports.reading import MAX_LINES
from gpucost.reports.scoped import scoped_hours
from gpucost.storage.ports import Clock, LimitsStore, ReportedHours, SettingsStore

MAX_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class PoolRow:
    """A node pool's resource at the end of an hour."""

    cluster: str
    hour: datetime
    limit: PoolLimit


@dataclass(frozen=True, slots=True)
class QuotaRow:
    """A quota at the end of an hour, beside what the namespace held and used in that hour.

    Both are means over the hour in the quota's own units: unit-hours of lines ÷ 1 hour.
    """

    cluster: str
    hour: datetime
    quota: Quota
    held: Decimal
    used: Decimal | None
    """None where nobody observed the use of anything held; what nobody observed of the rest counts nothing."""


class LimitReports:
    """Reads what was kept.

    Args:
        settings_store: names the clusters.
        ledger: lines of hours.
        store: limits of hours.
        clock: the time now, for windows.
    """

    def __init__(self, settings_store: SettingsStore, ledger: ReportedHours, store: LimitsStore, clock: Clock) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._store = store
        self._clock = clock

    def pools(self, asked: QueryParameters, *, scope: Scope) -> tuple[Period, list[PoolRow]]:
        """Every node pool's use against its limit, in order of hour, cluster and name.

        Raises:
            ParameterError: a period longer than 48 hours, or an unknown cluster.
            InvalidInputError: the answer would be too long.
        """
        period, found = self._limits(asked, scope)
        rows = [PoolRow(one.cluster, one.hour, pool) for one in found for pool in one.pools]
        _refuse_too_many(len(rows), MAX_ROWS, "rows")
        return period, rows

    def quotas(self, asked: QueryParameters, *, scope: Scope) -> tuple[Period, list[QuotaRow]]:
        """Every GPU quota against what its namespace held and used, in order of hour, cluster and name.

        Raises:
            As `pools`.
        """
        period, found = self._limits(asked, scope)
        ledger, rows, read = scoped_hours(self._ledger, scope), [], 0
        for one in found:
            if not one.quotas:
                continue
            lines = ledger.lines(one.cluster, one.hour)
            read += len(lines)
            _refuse_too_many(read, MAX_LINES, "pods' hours to sum")
            held: dict[tuple[str, str], list[Line]] = {}
            for line in lines:
                held.setdefault((line.namespace, line.resource), []).append(line)
            for quota in one.quotas:
                own = held.get((quota.namespace, quota.resource), [])
                rows.append(QuotaRow(one.cluster, one.hour, quota, *_units(own)))
        _refuse_too_many(len(rows), MAX_ROWS, "rows")
        return period, rows

    def _limits(self, asked: QueryParameters, scope: Scope) -> tuple[Period, list[Limits]]:
        period = parse_period(asked.start, asked.end, asked.window, self._clock())
        if period.hours() > HOURS_OF_LINES:
            raise ParameterError(period.given_by, f"limits are answered for at most {HOURS_OF_LINES} hours at once")
        clusters = select_clusters(asked.cluster, self._settings_store.current(), scope)
        found = [one for name in clusters for one in self._store.limits(name, period.start, period.end)]
        return period, sorted(found, key=lambda one: (one.hour, one.cluster))


def _units(lines: Sequence[Line]) -> tuple[Decimal, Decimal | None]:
    """Mean units held and used: hours of physical GPU ÷ physical GPUs per unit."""
    held = sum((line.allocated_gpu_hours / line.gpu_share for line in lines if line.gpu_share), Decimal(0))
    used = [
        line.effective_gpu_hours / line.gpu_share
        for line in lines
        if line.gpu_share and line.effective_gpu_hours is not None
    ]
    return quantize(held), quantize(sum(used, Decimal(0))) if used or not lines else None


def _refuse_too_many(count: int, most: int, what: str) -> None:
    if count > most:
        raise InvalidInputError(
            f"the answer would have more than {most:,} {what}; shorten the period, or name one cluster"
        )
