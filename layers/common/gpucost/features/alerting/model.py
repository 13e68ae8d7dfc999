"""The words of alerting as records: what an alert is about, what it remembers, what people are told."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple

Kind = Literal[
    "waste", "idle-workload", "unallocated", "budget", "spend-change", "data", "digest", "external", "sample"
]
Phase = Literal["inactive", "pending", "firing"]
Severity = Literal["info", "warning", "critical"]
EventType = Literal["firing", "resolved", "repeat", "digest"]

FLEET_SCOPE = "*"
"""The scope of what is decided over several clusters; no cluster can be named so."""


class Subject(NamedTuple):
    """What an alert is about. Empty where a rule does not look that closely."""

    cluster: str = ""
    """ "" for all clusters together."""
    business_unit: str = ""
    namespace: str = ""
    workload_kind: str = ""
    workload: str = ""
    node_pool: str = ""
    detail: str = ""
    """What else tells one alert of a rule from another: `2026-11 spent 80`, `coverage`."""


class TopWaster(NamedTuple):
    """One of those that waste most in the hour that decided."""

    namespace: str
    kind: str
    name: str
    gpu_hours: Decimal
    waste_usd: Decimal
    """Per hour; in a digest, over its period."""


@dataclass(frozen=True, slots=True)
class Notification:
    """What people are told. Amounts are in `currency`, whatever the figures' names say."""

    id: str
    """The same for every attempt to deliver it."""
    event: EventType
    kind: Kind
    rule: str
    severity: Severity
    subject: Subject
    since: datetime
    """Start of the first hour of the breach; a digest's first moment."""
    hour: datetime
    """Start of the hour that decided it; a digest's last one."""
    threshold: str
    """The rule in words, as it applied."""
    figures: dict[str, Decimal | None]
    """By name; which ones depends on the kind. None is unknown."""
    currency: str = "USD"
    workloads: tuple[TopWaster, ...] = ()
    """The worst three."""
    note: str = ""
    """What should be known of it: a restatement, a restriction."""

    @property
    def alert_key(self) -> tuple[str, Subject]:
        """Which alert it is news of."""
        return self.rule, self.subject


class OutboxEntry(NamedTuple):
    """A notification that a receiver is still to get."""

    receiver: str
    notification: Notification


class Evaluation(NamedTuple):
    """What the figures in force said of one hour."""

    hour: datetime
    is_breach: bool


class EvaluationState(NamedTuple):
    """What a rule knew before the oldest verdict that it still keeps."""

    firing: bool = False
    breach_run: int = 0
    """Breaching hours on end."""
    clear_run: int = 0
    """Quiet hours on end."""


NO_EARLIER_STATE = EvaluationState()


@dataclass(frozen=True, slots=True)
class Alert:
    """A rule's memory of one subject; kept only while pending or firing."""

    rule: str
    subject: Subject
    phase: Phase
    since: datetime
    """Start of the first hour of the present run of breaching hours."""
    evaluations: tuple[Evaluation, ...]
    """The newest known hours, oldest first: as far back as a restated hour can still change anything."""
    earlier_state: EvaluationState = NO_EARLIER_STATE
    notified_at: datetime | None = None
    """When people were last told (the tick's or hour's own time); None while pending."""
    notification: Notification | None = None
    """What they were told, with the newest figures: what a repetition says."""
    acknowledged_by: str = ""
    acknowledged_at: datetime | None = None

    @property
    def key(self) -> tuple[str, Subject]:
        """What tells it from other alerts."""
        return self.rule, self.subject


@dataclass(frozen=True, slots=True)
class AlertGroup:
    """All that alerting remembers of one owner in one scope: it changes as a whole, or not at all."""

    scope: str
    """A cluster, or `FLEET`."""
    owner: str
    """A business unit; "" for what nobody owns: node pools, clusters."""
    alerts: tuple[Alert, ...] = ()
    outbox: tuple[OutboxEntry, ...] = ()
    """Decided on and not yet known to be delivered, oldest first."""
    evaluated_through: datetime | None = None
    """Start of the newest hour (or tick) taken into account; that and older ones are decided."""
    digest_periods: tuple[tuple[str, str], ...] = ()
    """Which period each digest rule last reported: (rule, period)."""
    version: int = 0
    """0: not stored yet."""
    delivery_lease_until: datetime | None = None
    """Until then somebody is delivering the outbox, and others leave it alone."""

    @property
    def is_empty(self) -> bool:
        """Whether it could as well not be there."""
        return not self.alerts and not self.outbox

    def alert(self, rule: str, subject: Subject) -> Alert | None:
        """One of its alerts."""
        return next((one for one in self.alerts if one.key == (rule, subject)), None)

    def with_alerts(self, alerts: Iterable[Alert]) -> "AlertGroup":
        """The same with other alerts, in a stable order."""
        return replace(self, alerts=tuple(sorted(alerts, key=lambda one: one.key)))


@dataclass(frozen=True, slots=True)
class Cursor:
    """How far a scope is decided, and on which versions of its hours."""

    scope: str
    evaluated_through: datetime | None = None
    versions: tuple[tuple[datetime, int], ...] = ()
    """Of the newest hours: a later version of one of them is a restatement."""
    version: int = 0
