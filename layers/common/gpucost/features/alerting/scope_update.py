"""Findings taken into account: alerts stepped on, news gathered, books saved under their version."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal

from gpucost.core.hours import HOUR, format_timestamp
from gpucost.features.alerting.model import Alert, AlertGroup, OutboxEntry, EventType, Notification, Subject, TopWaster
from gpucost.features.alerting.ports import AlertStates, ScopeStates
from gpucost.features.alerting.settings import AlertSettings
from gpucost.features.alerting.settings.rules import RuleSettings
from gpucost.features.alerting.state_machine import FiringPolicy, Transition, advance, reevaluate
from gpucost.runtime.observability import logger

HISTORY = "history"
"""The receiver that keeps what was decided; it is told first, and of everything."""
TopWasters = Callable[[], tuple[TopWaster, ...]]
LONGEST_NOTE = 500


def no_workloads() -> tuple[TopWaster, ...]:
    """No workloads to name."""
    return ()


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule found of one subject in one hour."""

    subject: Subject
    hour: datetime
    is_breach: bool | None
    threshold: str
    figures: dict[str, Decimal | None]
    currency: str
    policy: FiringPolicy
    top_wasters: TopWasters = no_workloads
    """The workloads to name, read only when people are told."""
    note: str = ""
    is_muted: bool = False
    """Kept in the history, told nobody: something higher says it."""


class ScopeUpdate:
    """One scope's memory, while findings are taken into account.

    Args:
        memory: as it was loaded.
        alerts: the settings' section.
        rules: those decided in this scope, by name.
    """

    def __init__(self, memory: ScopeStates, alerts_of: AlertSettings, rules: dict[str, RuleSettings]) -> None:
        self.cursor = memory.cursor
        self._settings = alerts_of
        self._rules = rules
        self._before = {book.owner: book for book in memory.groups}
        self._told: dict[str, list[tuple[Notification, bool]]] = {}
        self._alerts = {book.owner: self._known(book) for book in memory.groups}

    def _known(self, book: AlertGroup) -> dict[tuple[str, Subject], Alert]:
        """A book's alerts: those that no rule looks at any more end untold."""
        return {
            one.key: one for one in book.alerts if one.rule in self._rules and self._rules[one.rule].covers(one.subject)
        }

    def alerts(self, rule: str) -> list[Alert]:
        """A rule's pending and firing alerts."""
        return [one for own in self._alerts.values() for one in own.values() if one.rule == rule]

    def all_alerts(self) -> list[Alert]:
        """Every pending and firing alert."""
        return [one for own in self._alerts.values() for one in own.values()]

    def evaluated_through(self, owner: str) -> datetime | None:
        """The newest hour that an owner's alerts have taken into account."""
        book = self._before.get(owner)
        known = (self.cursor.evaluated_through, book.evaluated_through if book else None)
        return max((moment for moment in known if moment is not None), default=None)

    def apply(self, name: str, finding: Finding) -> None:
        """Take a finding of a new hour into account; of one that is decided, nothing happens."""
        owner, through = finding.subject.business_unit, self.evaluated_through(finding.subject.business_unit)
        if through is not None and finding.hour <= through:
            return
        alert = self._alert(owner, name, finding.subject)
        self._step(
            name,
            finding,
            advance(alert, name, finding.subject, finding.hour, finding.is_breach, finding.policy, through),
        )

    def apply_restated(self, name: str, finding: Finding) -> None:
        """Take new figures of a decided hour into account. Where nothing was pending, only the newest one matters."""
        owner = finding.subject.business_unit
        alert = self._alert(owner, name, finding.subject)
        if alert is not None:
            step = reevaluate(alert, finding.hour, finding.is_breach, finding.policy)
        elif finding.hour == self.cursor.evaluated_through:
            step = advance(None, name, finding.subject, finding.hour, finding.is_breach, finding.policy)
        else:
            return
        note = f"the hour {format_timestamp(finding.hour)} was restated"
        self._step(name, replace(finding, note=note), step)

    def discard(self, alert: Alert) -> None:
        """Let an alert go without a word: its time is over."""
        self._alerts[alert.subject.business_unit].pop(alert.key, None)

    def add(self, alert: Alert) -> None:
        """Remember an alert that others decided."""
        self._alerts.setdefault(alert.subject.business_unit, {})[alert.key] = alert

    def notify(self, notification: Notification, *, muted: bool = False) -> None:
        """Put news in an owner's outbox."""
        self._told.setdefault(notification.subject.business_unit, []).append((notification, muted))

    def repeat(self, alert: Alert, at: datetime) -> None:
        """Say once more that an alert is firing."""
        if alert.notification is None:
            return
        id_ = notification_id(alert.rule, alert.subject, at, "repeat")
        self.notify(replace(alert.notification, id=id_, event="repeat"))
        self._alerts[alert.subject.business_unit][alert.key] = replace(alert, notified_at=at)

    def reported_periods(self, owner: str) -> dict[str, str]:
        """The periods that an owner's digests last reported."""
        book = self._before.get(owner)
        return dict(book.digest_periods) if book else {}

    def save_only(self, store: AlertStates) -> int:
        """Write every book that changed, without any hour having been decided; returns how many did.

        Raises:
            ConflictError: somebody else wrote first.
        """
        return self.save(store, None)

    def save(self, store: AlertStates, through: datetime | None, marks: dict[str, dict[str, str]] | None = None) -> int:
        """Write every book that changed, with its messages; returns how many did.

        Raises:
            ConflictError: somebody else wrote first; what was saved until then is decided, and is not decided again.
        """
        saved = 0
        for owner in sorted(self._alerts.keys() | self._told.keys() | (marks or {}).keys()):
            before = self._before.get(owner, AlertGroup(self.cursor.scope, owner))
            entries = [entry for news, muted in self._told.get(owner, ()) for entry in self._entries(news, muted)]
            after = replace(before.with_alerts(self._alerts.get(owner, {}).values()), outbox=(*before.outbox, *entries))
            if marks and owner in marks:
                after = replace(after, digest_periods=tuple(sorted({**dict(before.digest_periods), **marks[owner]}.items())))
            if after != before:
                moments = [moment for moment in (through, before.evaluated_through) if moment is not None]
                store.save_group(replace(after, evaluated_through=max(moments, default=None)))
                saved += 1
        return saved

    def _entries(self, news: Notification, muted: bool) -> Iterable[OutboxEntry]:
        logger.info("an alert changed", notification=news.id)
        yield OutboxEntry(HISTORY, news)
        if not muted:
            yield from (OutboxEntry(key, news) for key in self._settings.receiver_keys(self._rules[news.rule]))

    def _alert(self, owner: str, name: str, subject: Subject) -> Alert | None:
        return self._alerts.get(owner, {}).get((name, subject))

    def _step(self, name: str, finding: Finding, step: Transition) -> None:
        """Keep what a finding led to, and what people are to be told of it."""
        owner, alert = finding.subject.business_unit, step.alert
        before = self._alert(owner, name, finding.subject)
        if step.change is not None:
            since = (alert if step.change == "firing" else before) or alert
            news = self._news(name, finding, step.change, since.since if since else finding.hour)
            if step.change == "firing":
                news = replace(news, workloads=finding.top_wasters())
            is_muted = finding.is_muted if step.change == "firing" or before is None else before.notified_at is None
            self.notify(news, muted=is_muted)
            if alert is not None and step.change == "firing":
                told_at = None if is_muted else finding.hour + HOUR
                alert = replace(alert, notified_at=told_at, notification=None if is_muted else news)
        elif alert is not None and alert.notified_at is not None and alert is not before and finding.is_breach:
            fresh = self._news(name, finding, "firing", alert.since)
            alert = replace(alert, notification=replace(fresh, workloads=alert.notification.workloads if alert.notification else ()))
        own = self._alerts.setdefault(owner, {})
        if alert is None:
            own.pop((name, finding.subject), None)
        else:
            own[alert.key] = alert

    def _news(self, name: str, finding: Finding, event: EventType, since: datetime) -> Notification:
        rule = self._rules[name]
        return Notification(
            id=notification_id(name, finding.subject, finding.hour, event),
            event=event,
            kind=rule.kind,
            rule=name,
            severity=rule.effective_severity,
            subject=finding.subject,
            since=since,
            hour=finding.hour,
            threshold=finding.threshold,
            figures=finding.figures,
            currency=finding.currency,
            note=finding.note[:LONGEST_NOTE],
        )


def notification_id(rule: str, subject: Subject, hour: datetime, event: EventType) -> str:
    """The same for the same news: `demo/waste/research/2026-11-19T10:00:00Z/firing`."""
    who = "|".join(part.replace("/", "_") for part in subject[1:] if part)
    return f"{subject.cluster or '*'}/{rule}/{who}/{format_timestamp(hour)}/{event}"
