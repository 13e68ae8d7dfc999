"""The alert service over a real ledger, with notifiers that record what they receive."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from msgspec.structs import replace

from gpucost.container import workload_savings
from gpucost.core.amounts import CapacityCosts, Costs, Totals
from gpucost.core.costs_by_model import InferenceRules, costs_by_model
from gpucost.core.errors import SourceError
from gpucost.core.hour_record import LINE_AMOUNTS, Coverage, HourRecord, Line, NodeHour, Status
from gpucost.core.hours import HOUR, month_bounds
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.features.alerting.alert_service import AlertService
from gpucost.features.alerting.evaluation import estimates_check
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.ports import Notifier, RefusedMessageError, RuleInputs
from gpucost.features.alerting.rule_kinds import KINDS_BY_NAME
from gpucost.features.alerting.settings import SettingsDocument
from gpucost.features.alerting.storage import AlertHistory, DynamoAlertStateStore, DynamoSpendStore, SilenceStore
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.runtime.messages import AlertTick, AttributionOrigin, ClusterState, HourPublished
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from gpucost.storage.rollups import RollupStore
from gpucost.storage.sqlite_table import SqliteTable
from tests.conftest import DynamoTable
from tests.records import amount, line

START = month_bounds(datetime.now(UTC) - timedelta(days=45))[0]
"""Start of a month, 45 to 76 days ago: silences and items of the ledger expire after 90 days and more."""
PRICE = Decimal(12)


FIGURES_NOT_LISTED = {"spend-change": {"weeks", "by_gpu_hours"}, "token-cost": {"allocated_usd"}}
"""Figures, by kind, that messages do not list."""


class RecordingNotifier:
    """Records notifications, or fails."""

    needs_resend = False

    def __init__(self) -> None:
        self.messages: list[list[Notification]] = []
        self.fails = False
        self.refuses: Callable[[Notification], bool] = lambda _: False

    def batch_size(self, notifications: Sequence[Notification]) -> int:
        return min(len(notifications), 10)

    def send(self, notifications: Sequence[Notification]) -> None:
        if self.fails:
            raise SourceError("out of order")
        if any(self.refuses(notification) for notification in notifications):
            raise RefusedMessageError("HTTP 400 invalid_blocks")
        self.messages.append(list(notifications))

    @property
    def notifications(self) -> list[Notification]:
        return [notification for message in self.messages for notification in message]

    def take(self) -> list[str]:
        """Describe the notifications since the last call. Each must list its figures."""
        for notification in self.notifications:
            figures = KINDS_BY_NAME[notification.rule_kind].figures
            listed = {name for figure in figures for name in (figure.name, figure.percent_name)}
            left_out = notification.figures.keys() - listed - FIGURES_NOT_LISTED.get(notification.rule_kind, set())
            assert not left_out, "the name of a kind's Figure is misspelled"
        descriptions = [describe(notification) for notification in self.notifications]
        self.messages.clear()
        return descriptions


def describe(notification: Notification) -> str:
    """Return event, rule and subject: `firing waste research`."""
    subject = notification.subject
    fields = [field for field in (subject.business_unit, subject.workload, subject.node_pool, subject.detail) if field]
    return " ".join([notification.event, notification.rule, *fields])


def pod(unit: str = "research", name: str = "train", gpus: int = 1, use: str = "0.9", **changes: Any) -> Line:
    """Make the line of a pod that holds GPUs at $12 for the whole hour."""
    used = gpus * Decimal(use)
    fields: dict[str, Any] = {
        "workload": name,
        "units": gpus,
        "gpu_share": Decimal(1),
        "allocated_gpu_hours": Decimal(gpus),
        "effective_gpu_hours": used,
        "utilization": Decimal(use),
        "gpu_hourly_usd": PRICE,
        "allocated_usd": gpus * PRICE,
        "effective_usd": used * PRICE,
        "waste_usd": (gpus - used) * PRICE,
        **changes,
    }
    amounts = {
        name: amount(number) for name, number in fields.items() if name in LINE_AMOUNTS and isinstance(number, Decimal)
    }
    return line(unit, f"{unit}-ns", pod=f"{name}-0")._replace(**fields | amounts)


def node(pool: str, unallocated: str, name: str = "n1") -> NodeHour:
    """Make a node with unallocated capacity of this amount."""
    usd = Decimal(unallocated)
    capacity = CapacityCosts(unallocated_usd=amount(usd), unallocated_gpu_hours=amount(usd / PRICE))
    return NodeHour(name, f"i-{name}", pool, "p5", "spot", "a", "H100", "spot", "x", None, 0, capacity)


@dataclass
class Fleet:
    """Clusters with their ledger and the alert service."""

    table: DynamoTable | SqliteTable
    settings_text: str
    now: datetime = START
    notifiers: dict[str, RecordingNotifier] = field(default_factory=lambda: {"email": RecordingNotifier()})
    prices_fetched_at: datetime | None = None
    dead_letters: int | None = 0
    state_store_class: type[DynamoAlertStateStore] = DynamoAlertStateStore

    def __post_init__(self) -> None:
        table = self.ledger_table()
        self.letters: list[tuple[str, str]] = []
        """Dead letters with their reasons."""
        self.ledger = Ledger(table)
        self.rollups = RollupStore(table)
        self.alert_states = DynamoAlertStateStore(table)
        self.history = AlertHistory(table)
        self.silences = SilenceStore(table)
        self.settings_store = SettingsDocumentStore(table, clock=lambda: self.now)
        self.push(self.settings_text)

    def ledger_table(self, client: Any = None) -> Table:
        """The table, of DynamoDB by a client of the test's choice."""
        if isinstance(self.table, SqliteTable):
            return self.table
        return DynamoDBTable(client or self.table.client, self.table.name)

    @property
    def email(self) -> RecordingNotifier:
        return self.notifiers["email"]

    def set_aside(self, body: str, reason: str) -> None:
        self.letters.append((body, reason))

    def push(self, text: str) -> None:
        self.settings_store.push(text, author="test", now=self.now)

    def receivers(self, settings: SettingsDocument) -> dict[str, Notifier]:
        return {receiver.key: self.notifiers[receiver.key] for receiver in settings.alerts.receivers}

    def service(self, client: Any = None) -> AlertService:
        table = self.ledger_table(client)
        rule_inputs = RuleInputs(
            Ledger(table),
            RollupStore(table),
            DynamoSpendStore(table),
            lambda: self.prices_fetched_at,
            lambda: self.dead_letters,
            estimates_check(self.settings_store),
            workload_savings(DynamoRecommendations(table)),
        )
        return AlertService(
            self.settings_store,
            rule_inputs,
            self.state_store_class(table),
            AlertHistory(table),
            SilenceStore(table),
            self.receivers,
            self.set_aside,
            clock=lambda: self.now,
        )

    def publish(
        self,
        number: int,
        *lines: Line,
        cluster: str = "demo",
        status: Status = "complete",
        coverage: str = "1",
        nodes: Sequence[NodeHour] = (),
        currency: str = "USD",
        settings_version: int = 1,
        served: Sequence[ServedTokens] = (),
        is_abandoned: bool = False,
    ) -> None:
        """Publish a version of an hour, by its number, without a message about it."""
        hour = START + HOUR * number
        totals = Totals(Costs.total(line.costs() for line in lines), CapacityCosts())
        record = HourRecord(
            cluster,
            hour,
            status,
            Coverage(Decimal(coverage), None),
            totals,
            tuple(lines),
            nodes=tuple(nodes),
            currency=currency,
            models=tuple(costs_by_model(lines, served, InferenceRules())),
        )
        if status == "incomplete":
            record = replace(record, totals=None, lines=(), coverage=None, notes=("away",))
        previous = self.ledger.manifest(cluster, hour)
        self.ledger.publish(
            record,
            replacing=previous,
            settings_version=settings_version,
            now=hour + HOUR,
            last_attempt=hour if is_abandoned else None,
        )

    def close_hour(self, number: int, cluster: str = "demo", origin: AttributionOrigin = "schedule") -> None:
        """Send the message that an hour is published, a minute after its end."""
        hour = START + HOUR * number
        self.now = max(self.now, hour + HOUR + timedelta(minutes=1))
        message = HourPublished(
            cluster=cluster,
            hour=hour,
            status="complete",
            record_version=1,
            settings_version=1,
            origin=origin,
            correlation_id="c",
        )
        self.service().handle_hour_published(message)

    def publish_and_close(self, number: int, *lines: Line, **options: Any) -> list[str]:
        """Publish and close an hour, and describe the notifications by email."""
        self.publish(number, *lines, **options)
        self.close_hour(number, options.get("cluster", "demo"))
        return self.email.take()

    def tick(self, number: int, client: Any = None, **overdue: int) -> list[str]:
        """Send the tick at the beginning of an hour, and describe the notifications by email."""
        self.service(client).handle_tick(self.tick_message(number, **overdue))
        return self.email.take()

    def tick_message(self, number: int, **overdue: int) -> AlertTick:
        """Make the message of a tick, and move the clock to its time."""
        at = START + HOUR * number + timedelta(minutes=5)
        self.now = max(self.now, at)
        names = [cluster.name for cluster in self.settings_store.current().settings.clusters]
        states = tuple(
            ClusterState(cluster=name, last_complete_hour=None, hours_overdue=overdue.get(name, 0)) for name in names
        )
        return AlertTick(scheduled_time=at, clusters=states, correlation_id="t")


def settings_with_rules(*rules: str, clusters: Sequence[str] = ("demo",), alert_keys: str = "") -> str:
    """Make settings with these rules and an email receiver."""
    names = ", ".join(f'{{name: {name}, prometheus: {{url: "http://127.0.0.1:9"}}}}' for name in clusters)
    rule_lines = "\n".join(f"    - {{{rule}}}" for rule in rules)
    return (
        f"clusters: [{names}]\npricing: {{source: constant, gpu_hourly_usd: 12}}\n"
        f"alerts:\n  receivers: [{{type: email}}]\n  rules:\n{rule_lines}\n{alert_keys}"
    )
