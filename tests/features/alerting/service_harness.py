"""The alert service on a real table, with prepared hours and recording receivers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpucost.core.amounts import Costs, Totals
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.errors import SettingsMissingError, SourceError
from gpucost.core.hour_record import ClusterCharge, Coverage, HourRecord, Line, NodeHour, Status
from gpucost.core.hours import HOUR
from gpucost.core.ledger import HourSummary, Manifest
from gpucost.features.alerting.alert_service import AlertService
from gpucost.features.alerting.evaluation import estimates_check
from gpucost.features.alerting.model import AlertGroup, EvaluationCursor, Notification, OutboxEntry
from gpucost.features.alerting.ports import Notifier, RuleInputs
from gpucost.features.alerting.settings import SettingsDocument, alert_scopes
from gpucost.features.alerting.storage import AlertHistory, DynamoAlertStateStore, DynamoSpendStore, SilenceStore
from gpucost.runtime.messages import AlertTick, AttributionOrigin, ClusterState, HourPublished
from gpucost.settings_document import parse_settings
from gpucost.storage.ports import StoredSettings, Table
from gpucost.storage.rollups import RollupStore
from tests.records import amount

START = datetime(2026, 11, 19, tzinfo=UTC)
DOCUMENT = """
clusters: [{name: demo, prometheus: {url: "http://127.0.0.1:9090"}}]
pricing: {source: constant, gpu_hourly_usd: 12}
alerts:
  rules:
    - rule: waste
      waste_usd_per_hour: 10
      waste_percent: 50
      for_hours: 2
      overrides: [{business_unit: patient, for_hours: 3}]
  receivers: [{type: slack, secret: gpucost/slack}, {type: email}]
"""


class StubSettingsStore:
    """Holds the current settings, or none."""

    def __init__(self, text: str | None) -> None:
        self.text = text

    def current(self) -> StoredSettings[SettingsDocument]:
        if self.text is None:
            raise SettingsMissingError("no settings have been pushed yet")
        return StoredSettings(1, self.text, parse_settings(self.text), "test", START)

    def newest(self) -> StoredSettings[SettingsDocument]:
        return self.current()

    def version(self, number: int) -> StoredSettings[SettingsDocument]:
        return self.current()

    def history(self) -> list[StoredSettings[SettingsDocument]]:
        raise NotImplementedError

    def push(self, text: str, *, author: str, now: datetime) -> StoredSettings[SettingsDocument]:
        raise NotImplementedError


class StubLedger:
    """Holds prepared summaries and lines."""

    def __init__(self) -> None:
        self.published: dict[datetime, HourSummary] = {}
        self.lines_by_unit: dict[tuple[datetime, str], list[Line]] = {}
        self.nodes_by_hour: dict[datetime, tuple[NodeHour, ...]] = {}
        self.requested_periods: list[tuple[datetime, datetime]] = []

    def put(self, number: int, status: Status = "complete", *, unpriced: int = 0, **waste: str) -> None:
        """Prepare an hour in which every business unit holds $20, wastes an amount, and holds unpriced GPU-hours."""
        groups = {
            (unit, f"{unit}-ns"): Costs(
                allocated_usd=amount(20), waste_usd=amount(usd), unpriced_gpu_hours=amount(unpriced)
            )
            for unit, usd in waste.items()
        }
        totals = None if status == "incomplete" else Totals(Costs.total(groups.values()), None)
        hour = START + HOUR * number
        manifest = Manifest("demo", hour, status, 1, "r", 1, Coverage(Decimal(1), None), 0, None, hour)
        self.published[hour] = HourSummary("demo", hour, (manifest,), totals, CostsByKey.of(groups if totals else {}))

    def summaries(self, cluster: str, start: datetime, end: datetime) -> list[HourSummary]:
        self.requested_periods.append((start, end))
        return [summary for hour, summary in sorted(self.published.items()) if start <= hour < end]

    def lines(self, cluster: str, hour: datetime, business_unit: str | None = None) -> list[Line]:
        return self.lines_by_unit.get((hour, business_unit or ""), [])

    def nodes_and_charges(self, cluster: str, hour: datetime) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        return self.nodes_by_hour.get(hour, ()), ()

    def manifest(self, cluster: str, hour: datetime) -> Manifest | None:
        raise NotImplementedError

    def newest_published_hour(self, cluster: str) -> Manifest | None:
        raise NotImplementedError

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        return [summary.manifest for hour, summary in sorted(self.published.items()) if start <= hour < end]

    def publish(
        self,
        record: HourRecord,
        *,
        replacing: Manifest | None,
        settings_version: int,
        now: datetime,
        last_attempt: datetime | None = None,
    ) -> Manifest:
        raise NotImplementedError


class HookedAlertStates(DynamoAlertStateStore):
    """The real alert states with a hook before every write, to crash or to let another process write."""

    before_save: Callable[[AlertGroup | EvaluationCursor], None] = staticmethod(lambda written: None)

    def save_group(self, group: AlertGroup) -> AlertGroup:
        self.before_save(group)
        return super().save_group(group)

    def save_cursor(self, cursor: EvaluationCursor) -> EvaluationCursor:
        self.before_save(cursor)
        return super().save_cursor(cursor)


class RecordingNotifier:
    """Records notifications, or fails. `on_send` runs during a delivery."""

    needs_resend = False

    def __init__(self) -> None:
        self.received: list[str] = []
        self.messages: list[list[Notification]] = []
        self.fails = False
        self.on_send: Callable[[], None] = lambda: None

    def batch_size(self, notifications: Sequence[Notification]) -> int:
        return min(len(notifications), 10)

    def send(self, notifications: Sequence[Notification]) -> None:
        if self.fails:
            raise SourceError("out of order")
        self.messages.append(list(notifications))
        self.received += [describe(notification) for notification in notifications]
        self.on_send()


@dataclass
class ServiceHarness:
    table: Table
    states: HookedAlertStates
    store: StubSettingsStore = field(default_factory=lambda: StubSettingsStore(DOCUMENT))
    ledger: StubLedger = field(default_factory=StubLedger)
    slack: RecordingNotifier = field(default_factory=RecordingNotifier)
    email: RecordingNotifier = field(default_factory=RecordingNotifier)
    now: datetime = START

    def receivers(self, settings: SettingsDocument) -> dict[str, Notifier]:
        return {"slack:gpucost/slack": self.slack, "email": self.email} if settings.alerts.receivers else {}

    def service(self) -> AlertService:
        rule_inputs = RuleInputs(
            self.ledger,  # type: ignore[arg-type]  # reports read more
            RollupStore(self.table),
            DynamoSpendStore(self.table),
            lambda: None,
            lambda: 0,
            estimates_check(self.store),
        )
        return AlertService(
            self.store,
            rule_inputs,
            self.states,
            AlertHistory(self.table),
            SilenceStore(self.table),
            self.receivers,
            self.refuse_dead_letter,
            clock=lambda: self.now,
        )

    def refuse_dead_letter(self, body: str, reason: str) -> None:
        raise AssertionError(f"dead letter: {reason}: {body}")

    def close_hours(self, *numbers: int, origin: AttributionOrigin = "schedule") -> None:
        for number in numbers:
            self.service().handle_hour_published(
                HourPublished(
                    cluster="demo",
                    hour=START + HOUR * number,
                    status="complete",
                    record_version=1,
                    settings_version=1,
                    origin=origin,
                    correlation_id="c",
                )
            )

    def tick(self, number: int = 0) -> None:
        state = ClusterState(cluster="demo", last_complete_hour=None, hours_overdue=0)
        at = START + HOUR * number + timedelta(minutes=5)
        self.service().handle_tick(AlertTick(scheduled_time=at, clusters=(state,), correlation_id="c"))

    def outbox(self) -> Sequence[OutboxEntry]:
        return [entry for group in self.states.load("demo").groups for entry in group.outbox]

    def history(self) -> list[str]:
        """Describe the recorded notifications, oldest first."""
        history = AlertHistory(self.table)
        scopes = alert_scopes(parse_settings(self.store.text or DOCUMENT))
        end = START + timedelta(days=9)
        return [describe(notification) for scope in scopes for notification in history.between(scope, START, end)]


def describe(notification: Notification) -> str:
    """Return event, business unit and hour: `firing research 1`."""
    return f"{notification.event} {notification.subject.business_unit} {notification.hour.hour}"


class FunctionKilledError(BaseException):
    """The function was killed."""
