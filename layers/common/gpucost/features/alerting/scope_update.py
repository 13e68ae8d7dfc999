"""Alerts as a state machine, and the update of one scope: findings change alerts, and changed groups are saved."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Literal

from msgspec import Struct, structs

from gpucost.core.hours import HOUR, format_timestamp
from gpucost.features.alerting.model import (
    Alert,
    AlertGroup,
    AlertPhase,
    Evaluation,
    EvaluationState,
    Notification,
    NotificationEvent,
    OutboxEntry,
    notification_id,
)
from gpucost.features.alerting.ports import AlertStateStore, ScopeStates
from gpucost.features.alerting.rule_kinds.base import Digest, Finding, FiringPolicy, Rule, Subject
from gpucost.features.alerting.settings import AlertSettings

# Alerts as a pure state machine: `(alert, evaluated hour) → (alert, change)`.
#
# | hour | phase |
# | --- | --- |
# | breach | `pending`, then `firing` (one notification) once the run of breaches is as long as the rule's `for_hours` |
# | no breach | pending ends silently; firing ends (one notification) after `keep_firing_hours` clear hours, or 1 |
# | unknown: missing, incomplete, unpriced | unchanged; an unknown hour ends no run |
#
# The phase is a fold over the evaluations, hour by hour. An alert keeps its newest evaluations. When an hour is
# restated, its evaluation is replaced and the fold is repeated. Older evaluations are summarized in an
# `EvaluationState`. `for_hours` and `keep_firing_hours` are Prometheus's `for` and `keep_firing_for`, in hours. An hour
# at or before the newest evaluation was evaluated before: a repeated or late message for it changes nothing.

AlertChange = Literal["firing", "resolved"]


class Transition(Struct, frozen=True):
    """An alert after an evaluation, and what changed."""

    alert: Alert | None
    """None: neither pending nor firing, so that nothing is stored."""
    change: AlertChange | None = None


def advance(
    alert: Alert | None,
    rule_name: str,
    subject: Subject,
    hour: datetime,
    is_breach: bool | None,
    policy: FiringPolicy,
    last_clear_hour: datetime | None = None,
) -> Transition:
    """Apply the evaluation of one more hour.

    Args:
        alert: the alert before; None where it is inactive.
        rule_name: the rule's name.
        subject: the subject of the alert.
        hour: start of the evaluated hour.
        is_breach: whether the hour breaches the rule; None: unknown.
        policy: the rule's durations.
        last_clear_hour: the newest hour known to be without a breach, for an alert that starts here.
    """
    if is_breach is None or (alert is not None and alert.evaluations and hour <= alert.evaluations[-1].hour):
        return Transition(alert)
    if alert is None:
        if not is_breach:
            return Transition(None)
        earlier: tuple[Evaluation, ...] = ()
        if last_clear_hour is not None and last_clear_hour < hour:
            earlier = (Evaluation(last_clear_hour, is_breach=False),)
        alert = Alert(rule_name, subject, "inactive", hour, earlier)
    return _transition(alert, (*alert.evaluations, Evaluation(hour, is_breach)), policy)


def reevaluate(alert: Alert, hour: datetime, is_breach: bool | None, policy: FiringPolicy) -> Transition:
    """Replace the evaluation of a restated hour; an hour whose evaluation is no longer kept changes nothing."""
    if is_breach is None:
        return Transition(alert)
    evaluations = tuple(
        Evaluation(hour, is_breach) if evaluation.hour == hour else evaluation for evaluation in alert.evaluations
    )
    return Transition(alert) if evaluations == alert.evaluations else _transition(alert, evaluations, policy)


def fold_evaluations(
    state: EvaluationState, evaluations: Iterable[Evaluation], policy: FiringPolicy
) -> EvaluationState:
    """Return the state after a sequence of evaluations."""
    firing, breach_run, clear_run = state
    for evaluation in evaluations:
        breach_run, clear_run = (breach_run + 1, 0) if evaluation.is_breach else (0, clear_run + 1)
        if breach_run >= policy.for_hours:
            firing = True
        elif clear_run >= max(1, policy.keep_firing_hours):
            firing = False
    return EvaluationState(firing, breach_run, clear_run)


def phase_of(state: EvaluationState) -> AlertPhase:
    """Return the phase of a state."""
    if state.is_firing:
        return "firing"
    return "pending" if state.consecutive_breach_hours else "inactive"


def _transition(alert: Alert, evaluations: tuple[Evaluation, ...], policy: FiringPolicy) -> Transition:
    """Evaluate an alert with these evaluations, and keep only the newest of them."""
    phase = phase_of(fold_evaluations(alert.earlier_state, evaluations, policy))
    change: AlertChange | None = None
    if phase == "firing" and alert.phase != "firing":
        change = "firing"
    elif alert.phase == "firing" and phase != "firing":
        change = "resolved"
    if phase == "inactive":
        return Transition(None, change)
    since = alert.since if phase == "firing" and alert.phase == "firing" else _start_of_run(alert, evaluations)
    excess = max(0, len(evaluations) - policy.evaluations_to_keep)
    earlier_state = fold_evaluations(alert.earlier_state, evaluations[:excess], policy)
    next_alert = replace(alert, phase=phase, since=since, evaluations=evaluations[excess:], earlier_state=earlier_state)
    if change == "resolved":  # a restatement left a run that is too short to fire: the alert is pending again
        next_alert = replace(next_alert, notified_at=None, notification=None, acknowledged_by="", acknowledged_at=None)
    return Transition(next_alert, change)


def _start_of_run(alert: Alert, evaluations: tuple[Evaluation, ...]) -> datetime:
    """Return the start of the newest run of breaches, which may be older than the evaluations that are kept."""
    start = None
    for evaluation in reversed(evaluations):
        if not evaluation.is_breach:
            break
        start = evaluation.hour
    else:
        return min(alert.since, start) if start else alert.since
    return start or alert.since


# The update of one scope. Changed groups are saved by version.

HISTORY_RECEIVER = "history"
"""The receiver that records every notification. It comes before all other receivers."""
MAX_NOTE_LENGTH = 500


class ScopeUpdate:
    """The alerts of one scope while findings are applied to them.

    Args:
        states: the scope's states as they were loaded.
        settings: the settings' section `alerts`.
        rules: the rules that are evaluated in this scope, by name.
    """

    def __init__(self, states: ScopeStates, settings: AlertSettings, rules: Mapping[str, Rule]) -> None:
        self.cursor = states.cursor
        self._settings = settings
        self._rules = rules
        self._stored_groups = {group.owner: group for group in states.groups}
        self._notifications: dict[str, list[tuple[Notification, bool]]] = {}
        self._alerts = {group.owner: self._covered_alerts(group) for group in states.groups}

    def _covered_alerts(self, group: AlertGroup) -> dict[tuple[str, Subject], Alert]:
        """Return a group's alerts without those that no rule covers any more; they end without a notification."""
        return {
            alert.key: alert
            for alert in group.alerts
            if alert.rule in self._rules and self._rules[alert.rule].covers(alert.subject)
        }

    def alerts_of_rule(self, rule_name: str) -> list[Alert]:
        """Return a rule's pending and firing alerts."""
        return [alert for alert in self.all_alerts() if alert.rule == rule_name]

    def all_alerts(self) -> list[Alert]:
        """Return all pending and firing alerts."""
        return [alert for alerts in self._alerts.values() for alert in alerts.values()]

    def evaluated_through(self, owner: str) -> datetime | None:
        """Return the newest hour that was evaluated for an owner's alerts."""
        group = self._stored_groups.get(owner)
        hours = (self.cursor.evaluated_through, group.evaluated_through if group else None)
        return max((hour for hour in hours if hour is not None), default=None)

    def apply_finding(self, rule_name: str, finding: Finding) -> None:
        """Apply a rule's finding of a new hour. An hour that was evaluated before changes nothing."""
        subject, evaluated_through = finding.subject, self.evaluated_through(finding.subject.business_unit)
        if evaluated_through is not None and finding.hour <= evaluated_through:
            return
        transition = advance(
            self._find_alert(rule_name, subject),
            rule_name,
            subject,
            finding.hour,
            finding.is_breach,
            finding.firing_policy,
            evaluated_through,
        )
        self._apply_transition(rule_name, finding, transition)

    def apply_restated_finding(self, rule_name: str, finding: Finding) -> None:
        """Apply a rule's finding of a restated hour. Without a stored alert, only the newest hour counts."""
        alert = self._find_alert(rule_name, finding.subject)
        if alert is not None:
            transition = reevaluate(alert, finding.hour, finding.is_breach, finding.firing_policy)
        elif finding.hour == self.cursor.evaluated_through:
            transition = advance(
                None, rule_name, finding.subject, finding.hour, finding.is_breach, finding.firing_policy
            )
        else:
            return
        note = f"the hour {format_timestamp(finding.hour)} was restated"
        self._apply_transition(rule_name, structs.replace(finding, note=note), transition)

    def discard_alert(self, alert: Alert) -> None:
        """Remove an alert without a notification."""
        self._alerts[alert.subject.business_unit].pop(alert.key, None)

    def add_external_alert(self, alert: Alert) -> None:
        """Add an alert that was evaluated elsewhere, by AMP."""
        self._alerts.setdefault(alert.subject.business_unit, {})[alert.key] = alert

    def add_notification(self, notification: Notification, *, history_only: bool = False) -> None:
        """Add a notification to its owner's outbox; with `history_only`, it is recorded in the history and not sent."""
        self._notifications.setdefault(notification.subject.business_unit, []).append((notification, history_only))

    def add_digest(self, rule_name: str, digest: Digest) -> None:
        """Add a digest to its business unit's outbox."""
        rule = self._rules[rule_name]
        notification = Notification(
            id=notification_id(rule_name, digest.subject, digest.start, "digest"),
            event="digest",
            rule_kind=rule.kind,
            rule=rule_name,
            severity=rule.effective_severity,
            subject=digest.subject,
            since=digest.start,
            hour=digest.newest_hour,
            threshold="",
            figures=digest.figures,
            currency=digest.currency,
            workloads=digest.workloads,
            note=digest.note,
        )
        self.add_notification(notification)

    def repeat_notification(self, alert: Alert, at: datetime) -> None:
        """Send the notification of a firing alert again."""
        if alert.notification is None:
            return
        repeat_id = notification_id(alert.rule, alert.subject, at, "repeat")
        self.add_notification(replace(alert.notification, id=repeat_id, event="repeat"))
        self._alerts[alert.subject.business_unit][alert.key] = replace(alert, notified_at=at)

    def reported_digest_periods(self, owner: str) -> dict[str, str]:
        """Return the last period that each digest rule reported to an owner."""
        group = self._stored_groups.get(owner)
        return dict(group.digest_periods) if group else {}

    def save(
        self,
        state_store: AlertStateStore,
        evaluated_through: datetime | None = None,
        digest_periods: dict[str, dict[str, str]] | None = None,
    ) -> tuple[AlertGroup, ...]:
        """Write every group that changed, with its messages, and return the scope's groups as they are stored now.

        Args:
            state_store: where to write.
            evaluated_through: the newest hour that was evaluated; None: no further hour.
            digest_periods: the periods that were reported now, by owner and rule.

        Raises:
            ConflictError: another writer was first. Groups saved before that stay evaluated.
        """
        groups = dict(self._stored_groups)
        for owner in sorted(self._alerts.keys() | self._notifications.keys() | (digest_periods or {}).keys()):
            stored = self._stored_groups.get(owner, AlertGroup(self.cursor.scope, owner))
            entries = [
                entry
                for notification, history_only in self._notifications.get(owner, ())
                for entry in self._outbox_entries(notification, history_only)
            ]
            group = replace(stored.with_alerts(self._alerts.get(owner, {}).values()), outbox=(*stored.outbox, *entries))
            if digest_periods and owner in digest_periods:
                periods = {**dict(stored.digest_periods), **digest_periods[owner]}
                group = replace(group, digest_periods=tuple(sorted(periods.items())))
            if group != stored:
                hours = [hour for hour in (evaluated_through, stored.evaluated_through) if hour is not None]
                groups[owner] = state_store.save_group(replace(group, evaluated_through=max(hours, default=None)))
        return tuple(groups[owner] for owner in sorted(groups))

    def _outbox_entries(self, notification: Notification, history_only: bool) -> Iterable[OutboxEntry]:
        yield OutboxEntry(HISTORY_RECEIVER, notification)
        if not history_only:
            receivers = self._settings.receiver_keys(self._rules[notification.rule])
            yield from (OutboxEntry(receiver, notification) for receiver in receivers)

    def _find_alert(self, rule_name: str, subject: Subject) -> Alert | None:
        return self._alerts.get(subject.business_unit, {}).get((rule_name, subject))

    def _apply_transition(self, rule_name: str, finding: Finding, transition: Transition) -> None:
        """Store the alert after a transition, and add the notification of its change."""
        alert, previous = transition.alert, self._find_alert(rule_name, finding.subject)
        if transition.change is not None:
            run = (alert if transition.change == "firing" else previous) or alert
            notification = self._notification(rule_name, finding, transition.change, run.since if run else finding.hour)
            if transition.change == "firing":
                notification = replace(notification, workloads=finding.read_top_wasters())
            is_history_only = (
                finding.is_history_only
                if transition.change == "firing" or previous is None
                else previous.notified_at is None
            )
            self.add_notification(notification, history_only=is_history_only)
            if alert is not None and transition.change == "firing":
                alert = replace(
                    alert,
                    notified_at=None if is_history_only else finding.hour + HOUR,
                    notification=None if is_history_only else notification,
                )
        elif alert is not None and alert.notified_at is not None and alert is not previous and finding.is_breach:
            latest = self._notification(rule_name, finding, "firing", alert.since)
            workloads = alert.notification.workloads if alert.notification else ()
            alert = replace(alert, notification=replace(latest, workloads=workloads))
        alerts = self._alerts.setdefault(finding.subject.business_unit, {})
        if alert is None:
            alerts.pop((rule_name, finding.subject), None)
        else:
            alerts[alert.key] = alert

    def _notification(
        self, rule_name: str, finding: Finding, event: NotificationEvent, since: datetime
    ) -> Notification:
        rule = self._rules[rule_name]
        return Notification(
            id=notification_id(rule_name, finding.subject, finding.hour, event),
            event=event,
            rule_kind=rule.kind,
            rule=rule_name,
            severity=rule.effective_severity,
            subject=finding.subject,
            since=since,
            hour=finding.hour,
            threshold=finding.threshold,
            figures=finding.figures,
            currency=finding.currency,
            note=finding.note[:MAX_NOTE_LENGTH],
        )
