"""Response models of alerts and silences."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from gpucost.core.query.periods import Period
from gpucost.features.alerting.model import Notification, NotificationEvent
from gpucost.features.alerting.month_budgets import BudgetStatus, MonthBudgets
from gpucost.features.alerting.muting import Silence
from gpucost.features.alerting.notification_text import summary
from gpucost.features.alerting.queries import ListedAlert
from gpucost.features.alerting.rule_kinds import RuleKind
from gpucost.features.alerting.rule_kinds.base import Severity, Subject
from gpucost.http.schemas import Amount, Instant, PeriodResponse, ResponseModel, period_fields


class AlertSubject(ResponseModel):
    """What an alert is about; null for fields that its rule does not use."""

    cluster: str | None
    business_unit: str | None
    namespace: str | None
    workload_kind: str | None
    workload: str | None
    node_pool: str | None
    detail: str | None = Field(
        description="Distinguishes alerts of one rule on the same subject", examples=["2026-11 spent 80%", "overdue"]
    )


class AlertWorkload(ResponseModel):
    """One of the workloads with the most waste."""

    namespace: str
    kind: str
    name: str
    gpu_hours: Amount
    waste: Amount = Field(description="Per hour; in a digest, over its period. In the alert's currency")


class AlertEvent(ResponseModel):
    """An event in the history: an alert fired, was repeated or resolved, or a digest was sent."""

    id: str
    event: NotificationEvent
    kind: RuleKind
    rule: str
    severity: Severity
    subject: AlertSubject
    since: Instant
    hour: Instant = Field(description="Start of the evaluated hour")
    threshold: str = Field(description="The rule's condition in plain text, as it applied")
    figures: dict[str, Amount | None] = Field(description="By name; the names depend on the kind. Null: not available")
    currency: str = Field(examples=["USD"])
    workloads: list[AlertWorkload]
    note: str


class ActiveAlert(ResponseModel):
    """An alert that is pending or firing."""

    id: str = Field(description="Stays the same until the alert resolves; `gpucost alerts acknowledge` takes it")
    rule: str
    phase: Literal["pending", "firing"]
    subject: AlertSubject
    since: Instant = Field(description="Start of the first hour of the breach")
    notified_at: Instant | None = Field(description="When the last notification was sent; null if none was")
    acknowledged_by: str | None
    silenced_by: list[str] = Field(description="Ids of the active silences that match the alert")
    summary: str | None = Field(description="The last notification in a sentence; null if there was none")
    notification: AlertEvent | None = Field(
        description="The last notification, with the newest figures; null while pending, or if it was muted"
    )


class AlertsResponse(PeriodResponse):
    """GET /v1/alerts."""

    active: list[ActiveAlert] = Field(
        description="Alerts now, regardless of the period: firing ones first, then the oldest first"
    )
    history: list[AlertEvent] = Field(description="Events of the hours of the period, oldest first")


class SilenceRow(ResponseModel):
    """A silence: it mutes matching alerts for a time."""

    id: str
    author: str
    comment: str
    start: Instant
    end: Instant
    matchers: dict[str, str] = Field(
        description="Shell patterns by field; all must match", examples=[{"rule": "waste", "cluster": "dev-*"}]
    )
    active: bool = Field(description="Whether the silence has started and not ended")


class SilencesResponse(ResponseModel):
    """GET /v1/silences."""

    rows: list[SilenceRow] = Field(
        description="Active and future silences, and those of the last three months; the latest end first"
    )


def alerts_response(period: Period, active: Sequence[ListedAlert], history: Sequence[Notification]) -> dict[str, Any]:
    """Make the response of `/v1/alerts`."""
    return {
        **period_fields(period),
        "active": [active_alert(listed) for listed in active],
        "history": [alert_event(notification) for notification in history],
    }


def silences_response(silences: Sequence[Silence], now: datetime) -> dict[str, Any]:
    """Make the response of `/v1/silences`."""
    return {"rows": [silence_row(silence, now) for silence in silences]}


def silence_row(silence: Silence, now: datetime) -> dict[str, Any]:
    """Convert a silence to its JSON form."""
    return {
        "id": silence.id,
        "author": silence.author,
        "comment": silence.comment,
        "start": silence.starts_at,
        "end": silence.ends_at,
        "matchers": dict(silence.matchers),
        "active": silence.is_active(now),
    }


class UnitBudgetRow(ResponseModel):
    """A business unit's month against its budget. Amounts are of all clusters."""

    business_unit: str
    status: BudgetStatus = Field(
        description="exceeded: the spend is more than the budget; projected: the projection is; within: neither is; "
        "unknown: the spend is within the budget, and too few hours have figures for a projection"
    )
    budget_usd: Amount = Field(description="The lowest monthly budget of the settings' rules for the unit")
    spent_usd: Amount = Field(description="Allocated cost of the month so far; a lower bound if hours are missing")
    projected_usd: Amount | None = Field(
        description="At the month's end; null if too few hours have figures to say more than that it may stay within"
    )


class BudgetsResponse(ResponseModel):
    """GET /v1/budgets: the largest share of a budget first."""

    start: Instant = Field(description="Start of the month")
    end: Instant = Field(description="End of the month")
    known_until: Instant = Field(
        description="End of the newest hour that all clusters have published. Later hours are projected"
    )
    currency: str = Field(examples=["USD"])
    rows: list[UnitBudgetRow]


def budgets_response(budgets: MonthBudgets) -> dict[str, Any]:
    """Convert budgets to their JSON form."""
    return {
        "start": budgets.start,
        "end": budgets.end,
        "known_until": budgets.known_until,
        "currency": budgets.currency,
        "rows": [
            {
                "business_unit": row.business_unit,
                "status": row.status,
                "budget_usd": row.budget_usd,
                "spent_usd": row.spent_usd,
                "projected_usd": row.projected_usd,
            }
            for row in budgets.rows
        ],
    }


def active_alert(listed: ListedAlert) -> dict[str, Any]:
    """Convert an active alert to its JSON form."""
    alert = listed.alert
    return {
        "id": listed.id,
        "rule": alert.rule,
        "phase": alert.phase,
        "subject": _alert_subject(alert.subject),
        "since": alert.since,
        "notified_at": alert.notified_at,
        "acknowledged_by": alert.acknowledged_by or None,
        "silenced_by": list(listed.silenced_by),
        "summary": None if alert.notification is None else summary(alert.notification),
        "notification": None if alert.notification is None else alert_event(alert.notification),
    }


def alert_event(notification: Notification) -> dict[str, Any]:
    """Convert a notification to its JSON form."""
    return {
        "id": notification.id,
        "event": notification.event,
        "kind": notification.rule_kind,
        "rule": notification.rule,
        "severity": notification.severity,
        "subject": _alert_subject(notification.subject),
        "since": notification.since,
        "hour": notification.hour,
        "threshold": notification.threshold,
        "figures": dict(notification.figures),
        "currency": notification.currency,
        "workloads": [
            {
                "namespace": workload.namespace,
                "kind": workload.kind,
                "name": workload.name,
                "gpu_hours": workload.gpu_hours,
                "waste": workload.waste_usd,
            }
            for workload in notification.workloads
        ],
        "note": notification.note,
    }


def _alert_subject(subject: Subject) -> dict[str, str | None]:
    return {name: field or None for name, field in subject._asdict().items()}
