"""New rules over stored hours: what would have been decided, when; nobody is told and nothing is remembered.

The services are the deployed ones; only what they remember is kept in this process, beginning with nothing. Hours are
taken as they are in force now, restated ones too, each as if it had been closed in time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR, floor_day, hours_between
from gpucost.core.ledger import DEFAULT_RETENTION, Retention
from gpucost.core.model import Costs
from gpucost.core.rollups import DaySummary, FactKey, UnitHour, costs_by_unit, sum_day
from gpucost.features.alerting.hourly_evaluation import HourlyEvaluation
from gpucost.features.alerting.model import AlertGroup, Cursor, Notification
from gpucost.features.alerting.ports import AlertSources, ClusterDayToDate, MonthPart, ScopeStates
from gpucost.features.alerting.rules.spend_change import DayToDate
from gpucost.features.alerting.scheduled_evaluation import ScheduledEvaluation
from gpucost.features.alerting.scope_update import HISTORY
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.features.alerting.spend import pricing_fingerprint
from gpucost.runtime.messages import ClusterState, Tick
from gpucost.storage.ports import StoredSettings

MAX_PERIOD = timedelta(days=62)


def replay(
    sources: AlertSources, stored: StoredSettings[AlertingSettings], start: datetime, end: datetime
) -> Iterator[Notification]:
    """What the rules of a document would have decided on the hours of `[start, end)`, in order.

    Args:
        sources: what rules look at; prices' age and dead letters of the past are not known, and say nothing.
        stored: the document to try.
        start: first hour; nothing is pending then.
        end: of the period.

    Raises:
        InvalidInputError: no hours, or more than 62 days of them.
    """
    hours = hours_between(start, end)
    if not hours or end - start > MAX_PERIOD:
        raise InvalidInputError(f"a period of 1 hour to {MAX_PERIOD.days} days is needed")
    settings = stored.settings
    rollups = _PastRollups(sources, start)
    past = replace(
        sources,
        rollups=rollups,
        spend=_ReplayedSpend(sources, settings),
        newest_price=lambda: start,
        dead_letters=lambda: None,
    )
    scratch = _InMemoryAlertStates()
    by_hour, by_tick = HourlyEvaluation(sources.ledger, scratch), ScheduledEvaluation(past, scratch)
    published = {
        cluster.name: {
            one.hour for one in sources.ledger.manifests(cluster.name, start, end) if not _is_open(one.status)
        }
        for cluster in settings.clusters
    }
    undated = settings.model_copy(update={"alerts": _without_price_age(settings)})
    for hour in hours:
        rollups.until = hour + HOUR
        for cluster, known in published.items():
            if hour in known:
                by_hour.evaluate_cluster(settings, cluster, hour)
        by_hour.evaluate_cross_cluster(settings, hour - HOUR)
        states = tuple(
            ClusterState(
                cluster=cluster,
                last_complete_hour=None,
                hours_overdue=len([one for one in hours_between(start, hour) if one not in known]),
            )
            for cluster, known in published.items()
        )
        tick = Tick(scheduled_time=hour + HOUR, clusters=states, correlation_id="replay")
        by_tick.evaluate(replace(stored, settings=undated, refused=()), tick)
        yield from scratch.take()


class _InMemoryAlertStates:
    """Fulfils `AlertMemory` for one replay."""

    def __init__(self) -> None:
        self._cursors: dict[str, Cursor] = {}
        self._books: dict[tuple[str, str], AlertGroup] = {}

    def load(self, scope: str) -> ScopeStates:
        """All of a scope."""
        own = tuple(book for (kept, _), book in sorted(self._books.items()) if kept == scope)
        return ScopeStates(self._cursors.get(scope, Cursor(scope)), own)

    def save_group(self, book: AlertGroup) -> AlertGroup:
        """Nobody else writes."""
        self._books[book.scope, book.owner] = book
        return book

    def save_cursor(self, cursor: Cursor) -> Cursor:
        """The same."""
        self._cursors[cursor.scope] = cursor
        return cursor

    def take(self) -> list[Notification]:
        """What was decided since the last call: what the history would hold."""
        found = []
        for key, book in self._books.items():
            found += [entry.notification for entry in book.outbox if entry.receiver == HISTORY]
            self._books[key] = replace(book, outbox=())
        return sorted(found, key=lambda one: (one.hour, one.id))


class _PastRollups:
    """Fulfils `Rollups` as it was at a moment: hours that end later are not there yet."""

    def __init__(self, sources: AlertSources, until: datetime) -> None:
        self._sources = sources
        self.until = until

    def days(self, cluster: str, start: datetime, end: datetime) -> list[DaySummary]:
        """Every UTC day of `[start, end)` that had a published hour, in order."""
        today = floor_day(self.until)
        found = self._sources.rollups.days(cluster, start, min(end, today)) if start < today else []
        if today < end and today < self.until:
            manifests = self._sources.ledger.manifests(cluster, today, self.until)
            if manifests:
                summaries = self._sources.ledger.summaries(cluster, today, self.until)
                found = [*found, sum_day(cluster, today, manifests, summaries)]
        return found

    def unit_hours(self, cluster: str, business_unit: str, start: datetime, end: datetime) -> list[UnitHour]:
        """As it is now; no rule asks."""
        return self._sources.rollups.unit_hours(cluster, business_unit, start, end)

    def facts(
        self, cluster: str, start: datetime, end: datetime, business_unit: str | None = None
    ) -> list[tuple[datetime, dict[FactKey, Costs]]]:
        """As they are now: digests ask for days that are over."""
        return self._sources.rollups.facts(cluster, start, end, business_unit)

    def roll_up(self, cluster: str, day: datetime, now: datetime, retention: Retention = DEFAULT_RETENTION) -> bool:
        """Nothing is written."""
        return False


class _ReplayedSpend:
    """Fulfils `SpendMemory` from stored hours: parts of months while they last, earlier days from their hours."""

    def __init__(self, sources: AlertSources, settings: AlertingSettings) -> None:
        self._sources = sources
        self._sources_of_prices = pricing_fingerprint(settings)
        self._parts: dict[tuple[str, datetime, int], MonthPart] = {}
        self._days: dict[tuple[str, datetime], ClusterDayToDate | None] = {}

    def month_part(self, cluster: str, month: datetime, part: int) -> MonthPart | None:
        """A part of a month as it was last summed."""
        return self._parts.get((cluster, month, part))

    def put_month_part(self, cluster: str, month: datetime, part: int, sums: MonthPart) -> None:
        """Keep it for this replay."""
        self._parts[cluster, month, part] = sums

    def day_to_date(self, cluster: str, hour: datetime) -> ClusterDayToDate | None:
        """The day of an hour, to that hour's end; None where one of its hours has no figures."""
        key = cluster, hour
        if key not in self._days:
            self._days[key] = self._sum(cluster, hour)
        return self._days[key]

    def put_day_to_date(self, cluster: str, hour: datetime, sums: ClusterDayToDate) -> None:
        """Keep it for this replay."""
        self._days[cluster, hour] = sums

    def _sum(self, cluster: str, hour: datetime) -> ClusterDayToDate | None:
        start = floor_day(hour)
        found = self._sources.ledger.summaries(cluster, start, hour + HOUR)
        if len([one for one in found if one.totals is not None]) < (hour + HOUR - start) // HOUR:
            return None
        units: dict[str, DayToDate] = {}
        for summary in found:
            for unit, costs in costs_by_unit(summary).items():
                before = units.get(unit, DayToDate())
                units[unit] = DayToDate(before.usd + costs.allocated_usd, before.gpu_hours + costs.allocated_gpu_hours)
        return ClusterDayToDate(units, self._sources_of_prices)


def _is_open(status: str) -> bool:
    return status == "incomplete"


def _without_price_age(settings: AlertingSettings) -> object:
    rules = tuple(
        rule.model_copy(update={"price_age_hours": None}) if rule.rule == "data" else rule
        for rule in settings.alerts.rules
    )
    return settings.alerts.model_copy(update={"rules": rules})


def count_firings(news: Sequence[Notification]) -> Mapping[str, int]:
    """How often each rule would have fired."""
    found: dict[str, int] = {}
    for one in news:
        if one.event == "firing":
            found[one.rule] = found.get(one.rule, 0) + 1
    return found
