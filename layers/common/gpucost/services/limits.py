"""Keeps what clusters let people have, hour by hour, and reports it beside what they held."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpucost.deadline import Deadline
from gpucost.domain.access import Scope
from gpucost.domain.hours import HOUR
from gpucost.domain.limits import Limits, PoolLimit, Quota
from gpucost.domain.model import Line
from gpucost.domain.money import quantize
from gpucost.domain.reporting.periods import Period, parse_period
from gpucost.domain.reporting.question import HOURS_OF_LINES
from gpucost.errors import InvalidInputError, ParameterError, SourceError
from gpucost.observability import logger
from gpucost.ports import Clock, LimitsReaders, LimitsStore, ReportedHours, SettingsStore
from gpucost.services.reports.asking import Asked, clusters_of
from gpucost.services.reports.reading import MOST_LINES
from gpucost.services.scoped import scoped_hours
from gpucost.settings import ClusterSettings, Settings

MOST_ROWS = 10_000


class LimitsKeeper:
    """Asks for the limits of hours that were published, and keeps them.

    Args:
        readers: of each cluster's metrics.
        store: where they are kept.
    """

    def __init__(self, readers: LimitsReaders, store: LimitsStore) -> None:
        self._readers = readers
        self._store = store

    def keep(
        self,
        cluster: ClusterSettings,
        settings: Settings,
        hours: Sequence[datetime],
        now: datetime,
        deadline: Deadline | None = None,
    ) -> None:
        """Keep the limits of hours. An hour's figures do not wait for them: what cannot be had is logged and left out.

        Hours that have some are not asked for again; those of a delivery that was killed after publishing are.

        Args:
            cluster: whose hours.
            settings: say how long they are kept.
            hours: any, in order.
            now: the time.
            deadline: for the queries.
        """
        if not hours:
            return
        expires_at = now + settings.retention.periods().lines
        try:
            known = {one.hour for one in self._store.limits(cluster.name, hours[0], hours[-1] + HOUR)}
            for run in _runs([hour for hour in hours if hour not in known]):
                for one in self._readers(cluster, deadline).at_ends(run):
                    if one.pools or one.quotas:
                        self._store.put(one, expires_at)
        except SourceError as error:
            logger.warning("limits were not kept", cluster=cluster.name, reason=str(error))


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

    def pools(self, asked: Asked, *, scope: Scope) -> tuple[Period, list[PoolRow]]:
        """Every node pool's use against its limit, in order of hour, cluster and name.

        Raises:
            ParameterError: a period longer than 48 hours, or an unknown cluster.
            InvalidInputError: the answer would be too long.
        """
        period, found = self._limits(asked, scope)
        rows = [PoolRow(one.cluster, one.hour, pool) for one in found for pool in one.pools]
        _refuse_too_many(len(rows), MOST_ROWS, "rows")
        return period, rows

    def quotas(self, asked: Asked, *, scope: Scope) -> tuple[Period, list[QuotaRow]]:
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
            _refuse_too_many(read, MOST_LINES, "pods' hours to sum")
            held: dict[tuple[str, str], list[Line]] = {}
            for line in lines:
                held.setdefault((line.namespace, line.resource), []).append(line)
            for quota in one.quotas:
                own = held.get((quota.namespace, quota.resource), [])
                rows.append(QuotaRow(one.cluster, one.hour, quota, *_units(own)))
        _refuse_too_many(len(rows), MOST_ROWS, "rows")
        return period, rows

    def _limits(self, asked: Asked, scope: Scope) -> tuple[Period, list[Limits]]:
        period = parse_period(asked.start, asked.end, asked.window, self._clock())
        if period.hours() > HOURS_OF_LINES:
            raise ParameterError(period.given_by, f"limits are answered for at most {HOURS_OF_LINES} hours at once")
        clusters = clusters_of(asked.cluster, self._settings_store.current(), scope)
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


def _runs(hours: Sequence[datetime]) -> list[list[datetime]]:
    """Consecutive hours together."""
    runs: list[list[datetime]] = []
    for hour in hours:
        if runs and runs[-1][-1] + HOUR == hour:
            runs[-1].append(hour)
        else:
            runs.append([hour])
    return runs
