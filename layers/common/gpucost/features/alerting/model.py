"""The records of alerting: alerts and their evaluations, notifications, and groups."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple

from gpucost.core.hours import format_timestamp
from gpucost.features.alerting.rule_kinds import RuleKind
from gpucost.features.alerting.rule_kinds.base import Severity, Subject, WastefulWorkload

AlertPhase = Literal["inactive", "pending", "firing"]
NotificationEvent = Literal["firing", "resolved", "repeat", "digest"]


@dataclass(frozen=True, slots=True)
class Notification:
    """One event to send to receivers. Amounts are in `currency`, whatever the names of the figures say."""

    id: str
    """The same for every attempt to deliver it."""
    event: NotificationEvent
    rule_kind: RuleKind
    rule: str
    severity: Severity
    subject: Subject
    since: datetime
    """Start of the first hour of the breach. In a digest: start of its period."""
    hour: datetime
    """Start of the evaluated hour. In a digest: the last hour of its period."""
    threshold: str
    """The rule's condition in plain text, as it applied."""
    figures: dict[str, Decimal | None]
    """By name; the names depend on the kind. None: not available."""
    currency: str = "USD"
    workloads: tuple[WastefulWorkload, ...] = ()
    """At most three."""
    note: str = ""
    """A remark on the figures, for example that an hour was restated."""

    @property
    def alert_key(self) -> tuple[str, Subject]:
        """The key of the alert that the notification belongs to."""
        return self.rule, self.subject


class OutboxEntry(NamedTuple):
    """A notification that is not yet delivered to a receiver."""

    receiver: str
    notification: Notification


class Evaluation(NamedTuple):
    """Whether the figures of one hour breached a rule."""

    hour: datetime
    is_breach: bool


class EvaluationState(NamedTuple):
    """The state of an alert before the oldest evaluation that is kept."""

    is_firing: bool = False
    consecutive_breach_hours: int = 0
    """Consecutive hours in breach."""
    consecutive_clear_hours: int = 0
    """Consecutive hours without a breach."""


NO_EARLIER_STATE = EvaluationState()


@dataclass(frozen=True, slots=True)
class Alert:
    """The state of one rule for one subject. It is stored only while it is pending or firing."""

    rule: str
    subject: Subject
    phase: AlertPhase
    since: datetime
    """Start of the first hour of the current run of breaches."""
    evaluations: tuple[Evaluation, ...]
    """The newest evaluations, oldest first: all that a restated hour can still change."""
    earlier_state: EvaluationState = NO_EARLIER_STATE
    notified_at: datetime | None = None
    """Time of the tick or hour of the last notification; None while pending or muted."""
    notification: Notification | None = None
    """The last notification with the newest figures; repetitions send it again."""
    acknowledged_by: str = ""
    acknowledged_at: datetime | None = None

    @property
    def key(self) -> tuple[str, Subject]:
        """Identifies the alert within its scope."""
        return self.rule, self.subject


@dataclass(frozen=True, slots=True)
class AlertGroup:
    """All alerts of one owner in one scope, and the messages about them. It is written as a whole."""

    scope: str
    """A cluster, or one of the scopes over several clusters."""
    owner: str
    """A business unit; empty for alerts on node pools and clusters."""
    alerts: tuple[Alert, ...] = ()
    outbox: tuple[OutboxEntry, ...] = ()
    """Messages that are not yet confirmed as delivered, oldest first."""
    evaluated_through: datetime | None = None
    """Start of the newest evaluated hour (or tick). It and older ones are not evaluated again."""
    digest_periods: tuple[tuple[str, str], ...] = ()
    """The last period that each digest rule reported: (rule, period)."""
    version: int = 0
    """0: not stored yet."""
    delivery_lease_until: datetime | None = None
    """Until then one process delivers the outbox, and others leave it alone."""
    failed_since: tuple[tuple[str, datetime], ...] = ()
    """Receivers that have got none of their messages since then: (receiver, time of the first failure)."""

    @property
    def is_empty(self) -> bool:
        """Whether the group has neither alerts nor messages, so that it can expire."""
        return not self.alerts and not self.outbox

    def with_alerts(self, alerts: Iterable[Alert]) -> "AlertGroup":
        """Copy the group with other alerts, in a stable order."""
        return replace(self, alerts=tuple(sorted(alerts, key=lambda alert: alert.key)))


@dataclass(frozen=True, slots=True)
class EvaluationCursor:
    """How far a scope is evaluated, and on which versions of its hours."""

    scope: str
    evaluated_through: datetime | None = None
    versions: tuple[tuple[datetime, int], ...] = ()
    """Versions of the newest hours. A higher version of one of them is a restatement."""
    version: int = 0


def notification_id(rule_name: str, subject: Subject, hour: datetime, event: NotificationEvent) -> str:
    """Return the id of an event, the same for every attempt: `demo/waste/research/2026-11-19T10:00:00Z/firing`."""
    fields = "|".join(field.replace("/", "_") for field in subject[1:] if field)
    return f"{subject.cluster or '*'}/{rule_name}/{fields}/{format_timestamp(hour)}/{event}"
