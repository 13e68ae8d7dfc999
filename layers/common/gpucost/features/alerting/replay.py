"""Replay of rules over stored hours: which notifications they would have caused. Nothing is sent or stored.

A replay runs the deployed services with alert states in memory, which start empty. Hours are read in their current
version, restated or not, as if each had been closed on time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from msgspec import structs

from gpucost.core.amounts import Costs
from gpucost.core.costs_by_key import CostsByKey, sum_by_key
from gpucost.core.errors import InvalidInputError
from gpucost.core.hours import HOUR, floor_day, format_timestamp, hours_between
from gpucost.core.ledger import DEFAULT_RETENTION, DaySummary, FactKey, Manifest, Retention, costs_by_unit, sum_day
from gpucost.features.alerting.evaluation import HourlyRuleEvaluator, ScheduledRuleEvaluator
from gpucost.features.alerting.model import AlertGroup, EvaluationCursor, Notification
from gpucost.features.alerting.ports import DayToDateSpend, PartialMonthSpend, RuleInputs, ScopeStates
from gpucost.features.alerting.scope_update import HISTORY_RECEIVER
from gpucost.features.alerting.settings import SettingsDocument
from gpucost.features.alerting.tick_figures import pricing_fingerprint
from gpucost.runtime.messages import AlertTick, ClusterState
from gpucost.storage.ports import StoredSettings

MAX_REPLAY_PERIOD = timedelta(days=62)


def replay(
    inputs: RuleInputs, stored_settings: StoredSettings[SettingsDocument], start: datetime, end: datetime
) -> Iterator[Notification]:
    """Yield the notifications that a document's rules would have caused in the hours of `[start, end)`, in order.

    Args:
        inputs: what rules read. Price ages and dead letters of the past are not available, and cause no alerts.
        stored_settings: the document to try.
        start: first hour; no alert is pending then.
        end: end of the period.

    Raises:
        InvalidInputError: no hours, or more than 62 days of them.
    """
    hours = hours_between(start, end)
    if not hours or end - start > MAX_REPLAY_PERIOD:
        raise InvalidInputError(
            f"the period must be 1 hour to {MAX_REPLAY_PERIOD.days} days long, but is from {format_timestamp(start)} "
            f"to {format_timestamp(end)}"
        )
    settings = stored_settings.settings
    rollups = _PastRollups(inputs, start)
    past_inputs = replace(
        inputs,
        rollups=rollups,
        spend_store=_InMemorySpendStore(inputs, settings),
        read_spot_fetch_time=None,
        count_dead_letters=lambda: None,
    )
    alert_states = _InMemoryAlertStateStore()
    hourly = HourlyRuleEvaluator(inputs, alert_states)
    scheduled = ScheduledRuleEvaluator(past_inputs, alert_states)
    published = {
        cluster.name: {
            manifest.hour
            for manifest in inputs.ledger.manifests(cluster.name, start, end)
            if manifest.status != "incomplete"
        }
        for cluster in settings.clusters
    }
    for hour in hours:
        rollups.until = hour + HOUR
        for cluster, published_hours in published.items():
            if hour in published_hours:
                hourly.evaluate_cluster(settings, cluster, hour)
        hourly.evaluate_cross_cluster_waste(settings, hour - HOUR)
        cluster_states = tuple(
            ClusterState(
                cluster=cluster,
                last_complete_hour=None,
                hours_overdue=sum(1 for past_hour in hours_between(start, hour) if past_hour not in published_hours),
            )
            for cluster, published_hours in published.items()
        )
        tick = AlertTick(scheduled_time=hour + HOUR, clusters=cluster_states, correlation_id="replay")
        scheduled.evaluate(structs.replace(stored_settings, refused=()), tick)
        yield from alert_states.take_notifications()


class _InMemoryAlertStateStore:
    """Keeps the alert states of one replay; implements `AlertStateStore`."""

    def __init__(self) -> None:
        self._cursors: dict[str, EvaluationCursor] = {}
        self._groups: dict[tuple[str, str], AlertGroup] = {}

    def load(self, scope: str) -> ScopeStates:
        groups = tuple(group for _, group in sorted(self._groups.items()) if group.scope == scope)
        return ScopeStates(self._cursors.get(scope, EvaluationCursor(scope)), groups)

    def save_group(self, group: AlertGroup) -> AlertGroup:
        self._groups[group.scope, group.owner] = group
        return group

    def save_cursor(self, cursor: EvaluationCursor) -> EvaluationCursor:
        self._cursors[cursor.scope] = cursor
        return cursor

    def take_notifications(self) -> list[Notification]:
        """Return the notifications since the last call, as the history would have recorded them."""
        notifications = []
        for key, group in self._groups.items():
            notifications += [entry.notification for entry in group.outbox if entry.receiver == HISTORY_RECEIVER]
            self._groups[key] = replace(group, outbox=())
        return sorted(notifications, key=lambda notification: (notification.hour, notification.id))


class _PastRollups:
    """Rollups as they were at a moment, without hours that end later; implements `Rollups`."""

    def __init__(self, inputs: RuleInputs, until: datetime) -> None:
        self._inputs = inputs
        self.until = until

    def days(self, cluster: str, start: datetime, end: datetime) -> list[DaySummary]:
        """Return every UTC day of `[start, end)` that had a published hour, in order."""
        today = floor_day(self.until)
        days = self._inputs.rollups.days(cluster, start, min(end, today)) if start < today else []
        if today < end and today < self.until:
            summaries = self._inputs.ledger.summaries(cluster, today, self.until)
            if summaries:
                days = [*days, sum_day(cluster, today, summaries)]
        return days

    def unit_hours(
        self, cluster: str, business_unit: str, start: datetime, end: datetime
    ) -> list[tuple[Manifest, Costs | None]]:
        """Return today's figures; no rule reads them."""
        return self._inputs.rollups.unit_hours(cluster, business_unit, start, end)

    def facts(
        self, cluster: str, start: datetime, end: datetime, business_unit: str | None = None
    ) -> list[tuple[datetime, CostsByKey[FactKey]]]:
        """Return today's facts; digests only read days that were over at the time."""
        return self._inputs.rollups.facts(cluster, start, end, business_unit)

    def roll_up(self, cluster: str, day: datetime, now: datetime, retention: Retention = DEFAULT_RETENTION) -> bool:
        """Write nothing."""
        return False


class _InMemorySpendStore:
    """Keeps the sums of one replay, and sums earlier days from stored hours; implements `SpendStore`."""

    def __init__(self, inputs: RuleInputs, settings: SettingsDocument) -> None:
        self._inputs = inputs
        self._pricing_fingerprint = pricing_fingerprint(settings)
        self._parts: dict[tuple[str, datetime, int], PartialMonthSpend] = {}
        self._days: dict[tuple[str, datetime], DayToDateSpend | None] = {}

    def month_part(self, cluster: str, month: datetime, part: int) -> PartialMonthSpend | None:
        return self._parts.get((cluster, month, part))

    def put_month_part(self, cluster: str, month: datetime, part: int, sums: PartialMonthSpend) -> None:
        self._parts[cluster, month, part] = sums

    def day_to_date(self, cluster: str, hour: datetime) -> DayToDateSpend | None:
        """Return the day of an hour, up to the end of that hour; None if one of its hours has no figures."""
        key = cluster, hour
        if key not in self._days:
            self._days[key] = self._sum_day_to_date(cluster, hour)
        return self._days[key]

    def put_day_to_date(self, cluster: str, hour: datetime, sums: DayToDateSpend) -> None:
        self._days[cluster, hour] = sums

    def _sum_day_to_date(self, cluster: str, hour: datetime) -> DayToDateSpend | None:
        start = floor_day(hour)
        summaries = self._inputs.ledger.summaries(cluster, start, hour + HOUR)
        if sum(1 for summary in summaries if summary.totals is not None) < (hour + HOUR - start) // HOUR:
            return None
        units = sum_by_key(costs for summary in summaries for costs in costs_by_unit(summary).items())
        return DayToDateSpend(units, self._pricing_fingerprint)


def count_firings(notifications: Sequence[Notification]) -> Mapping[str, int]:
    """Count how often each rule would have fired."""
    counts: dict[str, int] = {}
    for notification in notifications:
        if notification.event == "firing":
            counts[notification.rule] = counts.get(notification.rule, 0) + 1
    return counts
