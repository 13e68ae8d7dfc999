"""Shapes of the answers about alerts and silences."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from gpucost.core.query.periods import Period
from gpucost.features.alerting.model import EventType, Kind, Notification, Severity, Subject
from gpucost.features.alerting.muting import Silence
from gpucost.features.alerting.queries import ListedAlert
from gpucost.http.schemas import Amount, Instant, PeriodResponse, ResponseModel, period_fields


class AlertSubject(ResponseModel):
    """What an alert is about; null where its rule does not look that closely."""

    cluster: str | None
    business_unit: str | None
    namespace: str | None
    workload_kind: str | None
    workload: str | None
    node_pool: str | None
    detail: str | None = Field(description="What else tells it from others", examples=["2026-11 spent 80%", "overdue"])


class AlertWorkload(ResponseModel):
    """A workload that wastes most."""

    namespace: str
    kind: str
    name: str
    gpu_hours: Amount
    waste: Amount = Field(description="Per hour; in a digest, over its period. In the alert's currency")


class ActiveAlert(ResponseModel):
    """An alert that is pending or firing."""

    id: str = Field(description="The same as long as it lasts: `gpucost ack` takes it")
    rule: str
    phase: Literal["pending", "firing"]
    about: AlertSubject
    since: Instant = Field(description="Start of the first hour of the breach")
    told_at: Instant | None = Field(description="When people were last told; null while nobody was")
    acknowledged_by: str | None
    silenced_by: list[str] = Field(description="Ids of the silences that cover it now")


class AlertEvent(ResponseModel):
    """What was decided: an alert that fired, was said again or resolved, or a digest."""

    id: str
    event: EventType
    kind: Kind
    rule: str
    severity: Severity
    about: AlertSubject
    since: Instant
    hour: Instant = Field(description="Start of the hour that decided it")
    threshold: str = Field(description="The rule in words, as it applied")
    figures: dict[str, Amount | None] = Field(description="By name; which ones depends on the kind. Null is unknown")
    currency: str = Field(examples=["USD"])
    workloads: list[AlertWorkload]
    note: str


class AlertsAnswer(PeriodResponse):
    """GET /v1/alerts."""

    active: list[ActiveAlert] = Field(description="Now, whatever the period: firing ones first, the oldest first")
    history: list[AlertEvent] = Field(description="What was decided by the hours of the period, oldest first")


class SilenceRow(ResponseModel):
    """Somebody wants to hear nothing of some alerts until an end."""

    id: str
    author: str
    comment: str
    start: Instant
    end: Instant
    matchers: dict[str, str] = Field(
        description="Patterns as in a shell, all of which must match", examples=[{"rule": "waste", "cluster": "dev-*"}]
    )
    active: bool = Field(description="Whether it holds now")


class SilencesAnswer(ResponseModel):
    """GET /v1/silences."""

    rows: list[SilenceRow] = Field(description="In force, to come, and of the last three months; by end, latest first")


def alerts_answer(period: Period, active: Sequence[ListedAlert], history: Sequence[Notification]) -> dict[str, Any]:
    """The answer as it is sent."""
    return {
        **period_fields(period),
        "active": [_active(one) for one in active],
        "history": [_news(o) for o in history],
    }


def silences_answer(silences: Sequence[Silence], now: datetime) -> dict[str, Any]:
    """The answer as it is sent."""
    rows = [
        {
            "id": one.id,
            "author": one.author,
            "comment": one.comment,
            "start": one.starts_at,
            "end": one.ends_at,
            "matchers": dict(one.matchers),
            "active": one.is_active(now),
        }
        for one in silences
    ]
    return {"rows": rows}


def _active(one: ListedAlert) -> dict[str, Any]:
    alert = one.alert
    return {
        "id": one.id,
        "rule": alert.rule,
        "phase": alert.phase,
        "about": _about(alert.subject),
        "since": alert.since,
        "told_at": alert.notified_at,
        "acknowledged_by": alert.acknowledged_by or None,
        "silenced_by": list(one.silenced_by),
    }


def _news(one: Notification) -> dict[str, Any]:
    return {
        "id": one.id,
        "event": one.event,
        "kind": one.kind,
        "rule": one.rule,
        "severity": one.severity,
        "about": _about(one.subject),
        "since": one.since,
        "hour": one.hour,
        "threshold": one.threshold,
        "figures": dict(one.figures),
        "currency": one.currency,
        "workloads": [
            {"namespace": w.namespace, "kind": w.kind, "name": w.name, "gpu_hours": w.gpu_hours, "waste": w.waste_usd}
            for w in one.workloads
        ],
        "note": one.note,
    }


def _about(subject: Subject) -> dict[str, str | None]:
    return {name: value or None for name, value in subject._asdict().items()}
