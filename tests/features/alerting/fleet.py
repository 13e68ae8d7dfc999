"""Alerting over the real ledger in DynamoDB Local, with people who write down what they hear."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from gpucost.container import workload_savings
from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR, month_bounds
from gpucost.core.model import Capacity, Costs, Coverage, HourRecord, Line, NodeHour, Status, Totals
from gpucost.core.money import quantize
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.ports import AlertSources, Notifier
from gpucost.features.alerting.service import AlertService
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.features.alerting.storage.history import AlertHistory, SilenceStore
from gpucost.features.alerting.storage.spend import DynamoSpendStore
from gpucost.features.alerting.storage.states import DynamoAlertStates
from gpucost.features.recommendations.storage.recommendations import DynamoRecommendations
from gpucost.runtime.messages import ClusterState, HourClosed, Origin, Tick
from gpucost.settings_document import DocumentStore
from gpucost.storage.ledger import Ledger
from gpucost.storage.rollups import RollupStore
from tests.conftest import DynamoTable
from tests.records import line

START = month_bounds(month_bounds(datetime.now(UTC))[0] - timedelta(days=32))[0]
"""The first moment of a month; items expire: the ledger's hours must be of our time."""
PRICE = Decimal(12)


class RecordingNotifier:
    """Hears notifications, unless broken."""

    max_batch_size = 10
    needs_resend = False

    def __init__(self) -> None:
        self.messages: list[list[Notification]] = []
        self.fails = False

    def send(self, notifications: Sequence[Notification]) -> None:
        if self.fails:
            raise SourceError("out of order")
        self.messages.append(list(notifications))

    @property
    def notifications(self) -> list[Notification]:
        return [one for message in self.messages for one in message]

    def take(self) -> list[str]:
        """What was heard since the last call, in short."""
        heard = [describe(one) for one in self.notifications]
        self.messages.clear()
        return heard


def describe(news: Notification) -> str:
    """`firing waste research`, with whatever tells it from others."""
    who = [part for part in (news.subject.business_unit, news.subject.workload, news.subject.node_pool,
                             news.subject.detail) if part]  # fmt: skip
    return " ".join([news.event, news.rule, *who])


def pod(unit: str = "research", name: str = "train", gpus: int = 1, use: str = "0.9", **changes: Any) -> Line:
    """A pod that holds GPUs at $12 all hour."""
    held = quantize(Decimal(gpus))
    used = quantize(held * Decimal(use))
    given: dict[str, Any] = {
        "workload": name, "units": gpus, "gpu_share": quantize(1), "allocated_gpu_hours": held,
        "effective_gpu_hours": used, "utilization": quantize(Decimal(use)), "gpu_hourly_usd": PRICE,
        "allocated_usd": held * PRICE, "effective_usd": used * PRICE, "waste_usd": (held - used) * PRICE, **changes,
    }  # fmt: skip
    return line(unit, f"{unit}-ns", pod=f"{name}-0")._replace(**{key: _exact(value) for key, value in given.items()})


def _exact(value: Any) -> Any:
    return quantize(value) if isinstance(value, Decimal) else value


def node(pool: str, unallocated: str, name: str = "n1") -> NodeHour:
    """A node of a pool of which nobody holds so much money's worth."""
    usd = quantize(Decimal(unallocated))
    capacity = Capacity(unallocated_usd=usd, unallocated_gpu_hours=quantize(usd / PRICE))
    return NodeHour(name, f"i-{name}", pool, "p5", "spot", "a", "H100", "spot", "x", None, quantize(0), capacity)


@dataclass
class Fleet:
    """Clusters, their ledger, and the alert function's service."""

    table: DynamoTable
    settings_text: str
    now: datetime = START
    notifiers: dict[str, RecordingNotifier] = field(default_factory=lambda: {"email": RecordingNotifier()})
    prices_fetched_at: datetime | None = None
    dead_letters: int | None = 0

    def __post_init__(self) -> None:
        own = (self.table.client, self.table.name)
        self.ledger = Ledger(*own)
        self.rollups = RollupStore(*own)
        self.alert_states = DynamoAlertStates(*own)
        self.history = AlertHistory(*own)
        self.silences = SilenceStore(*own)
        self.settings_store = DocumentStore(*own, clock=lambda: self.now)
        self.push(self.settings_text)

    @property
    def email(self) -> RecordingNotifier:
        return self.notifiers["email"]

    def push(self, text: str) -> None:
        self.settings_store.push(text, author="test", now=self.now)

    def receivers(self, settings: AlertingSettings) -> dict[str, Notifier]:
        return {one.key: self.notifiers[one.key] for one in settings.alerts.receivers}

    def service(self, client: Any = None) -> AlertService:
        own = (client or self.table.client, self.table.name)
        sources = AlertSources(
            Ledger(*own), RollupStore(*own), DynamoSpendStore(*own), lambda: self.prices_fetched_at,
            lambda: self.dead_letters, workload_savings(DynamoRecommendations(*own)),
        )  # fmt: skip
        memory = DynamoAlertStates(*own)
        return AlertService(
            self.settings_store, sources, memory, AlertHistory(*own), SilenceStore(*own), self.receivers,
            clock=lambda: self.now,
        )  # fmt: skip

    def publish(
        self, number: int, *lines: Line, cluster: str = "demo", status: Status = "complete", coverage: str = "1",
        nodes: Sequence[NodeHour] = (), currency: str = "USD",
    ) -> None:  # fmt: skip
        """A version of an hour, by number, without a word to anybody."""
        hour = START + HOUR * number
        totals = Totals(Costs.total(one.costs() for one in lines), Capacity())
        record = HourRecord(
            cluster, hour, status, Coverage(Decimal(coverage), None), totals, tuple(lines), nodes=tuple(nodes),
            currency=currency,
        )  # fmt: skip
        if status == "incomplete":
            record = replace(record, totals=None, lines=(), coverage=None, notes=("away",))
        before = self.ledger.manifest(cluster, hour)
        self.ledger.publish(record, replacing=before, settings_version=1, now=hour + HOUR)

    def close_hour(self, number: int, cluster: str = "demo", origin: Origin = "schedule") -> None:
        """The hour is announced, a minute after its end."""
        hour = START + HOUR * number
        self.now = max(self.now, hour + HOUR + timedelta(minutes=1))
        message = HourClosed(
            cluster=cluster, hour=hour, status="complete", record_version=1, settings_version=1, origin=origin,
            correlation_id="c",
        )  # fmt: skip
        self.service().hour_closed(message)

    def publish_and_close(self, number: int, *lines: Line, **more: Any) -> list[str]:
        """An hour is published and announced; answers what people hear."""
        self.publish(number, *lines, **more)
        self.close_hour(number, more.get("cluster", "demo"))
        return self.email.take()

    def tick(self, number: int, client: Any = None, **overdue: int) -> list[str]:
        """The schedule fires at the beginning of the hour of that number; answers what people hear."""
        self.service(client).tick(self.tick_message(number, **overdue))
        return self.email.take()

    def tick_message(self, number: int, **overdue: int) -> Tick:
        """The message of that tick, whose time has come."""
        at = START + HOUR * number + timedelta(minutes=5)
        self.now = max(self.now, at)
        names = [one.name for one in self.settings_store.current().settings.clusters]
        states = tuple(
            ClusterState(cluster=name, last_complete_hour=None, hours_overdue=overdue.get(name, 0)) for name in names
        )
        return Tick(scheduled_time=at, clusters=states, correlation_id="t")


def settings_with_rules(*rules: str, clusters: Sequence[str] = ("demo",), more: str = "") -> str:
    """Settings with these rules and email."""
    names = ", ".join(f'{{name: {name}, prometheus: {{url: "http://127.0.0.1:9"}}}}' for name in clusters)
    listed = "\n".join(f"    - {{{rule}}}" for rule in rules)
    return (
        f"clusters: [{names}]\npricing: {{source: constant, gpu_hourly_usd: 12}}\n"
        f"alerts:\n  receivers: [{{type: email}}]\n  rules:\n{listed}\n{more}"
    )
