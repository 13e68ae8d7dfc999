"""The alert function's service: evaluates and notifies when an hour is published, on a tick, and on alerts of AMP.

Alerts of AMP's alerting rules catch what is not visible in hourly records. Their state machine is Prometheus's: a
received alert is already firing or resolved. Each causes one notification until it is resolved. Repetitions, silences
and quiet hours apply as to other alerts.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from pydantic import TypeAdapter

from gpucost.core.errors import ConflictError, IntegrityError, SettingsMissingError, SourceError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.features.alerting.delivery import Delivery
from gpucost.features.alerting.evaluation import HourlyRuleEvaluator, ScheduledRuleEvaluator
from gpucost.features.alerting.model import (
    Alert,
    AlertGroup,
    Notification,
    NotificationEvent,
    OutboxEntry,
    notification_id,
)
from gpucost.features.alerting.muting import Muting, current_muting
from gpucost.features.alerting.ports import AlertStateStore, MakeNotifiers, Notifier, RuleInputs, ScopeStates
from gpucost.features.alerting.rule_kinds.base import FLEET_SCOPE, Severity, Subject
from gpucost.features.alerting.rule_kinds.external import ExternalRule
from gpucost.features.alerting.scope_update import HISTORY_RECEIVER, MAX_NOTE_LENGTH, ScopeUpdate
from gpucost.features.alerting.settings import SettingsDocument, alert_scopes, rules_of_scope
from gpucost.features.alerting.storage import AlertHistory, SilenceStore
from gpucost.runtime.messages import AlertTick, ExternalAlert, ExternalAlerts, HourPublished, NotificationSetAside
from gpucost.runtime.observability import logger
from gpucost.storage.ports import Clock, SettingsStore, StoredSettings

MAX_EVALUATION_ATTEMPTS = 8
MAX_HISTORY_BATCH_SIZE = 500
Result = TypeVar("Result")
SendDeadLetter = Callable[[str, str], None]
"""Sends a body to the dead-letter queue, with the reason; raises `SourceError`."""
_NOTIFICATION_ADAPTER = TypeAdapter(Notification)


def _now() -> datetime:
    return datetime.now(UTC)


class AlertService:
    """Evaluates alert rules and delivers notifications.

    Args:
        settings_store: the settings document.
        inputs: what rules read.
        state_store: stored alert states.
        history: records every notification.
        silences: stored silences.
        notifiers: makes the notifiers of the settings' receivers.
        send_dead_letter: takes what can never be sent.
        clock: the time now; only leases, quiet hours and silences use it.
    """

    def __init__(
        self,
        settings_store: SettingsStore[SettingsDocument],
        inputs: RuleInputs,
        state_store: AlertStateStore,
        history: AlertHistory,
        silences: SilenceStore,
        notifiers: MakeNotifiers,
        send_dead_letter: SendDeadLetter,
        clock: Clock = _now,
    ) -> None:
        self._settings_store = settings_store
        self._state_store = state_store
        self._history = history
        self._silences = silences
        self._make_notifiers = notifiers
        self._send_dead_letter = send_dead_letter
        self._clock = clock
        self._hourly_evaluator = HourlyRuleEvaluator(inputs, state_store)
        self._scheduled_evaluator = ScheduledRuleEvaluator(inputs, state_store)
        self._amp_alert_handler = AmpAlertHandler(state_store)

    def handle_hour_published(self, message: HourPublished) -> None:
        """Evaluate all rules of a cluster through an hour, then deliver its outboxes, even if a rule failed.

        Raises:
            SourceError: the evaluation or a receiver failed; its messages stay in the outbox for a retry.
        """
        if message.origin != "schedule":
            return
        stored = self._current_settings()
        if stored is None or stored.settings.cluster(message.cluster) is None:
            return
        failures: list[str] = []
        groups = _try_to_evaluate(
            f"rules of the cluster {message.cluster}",
            lambda: self._hourly_evaluator.evaluate_cluster(stored.settings, message.cluster, message.hour),
            failures,
        )
        _raise_failures([*failures, *self._deliver_scope(stored.settings, message.cluster, groups)])

    def handle_tick(self, message: AlertTick) -> None:
        """Evaluate the rules on several clusters and on missing data, repeat notifications, and deliver all outboxes.

        A failure of one step stops none of the others.

        Raises:
            SourceError: an evaluation, a scope or a receiver failed.
        """
        stored = self._current_settings()
        if stored is None:
            return
        settings, at = stored.settings, floor_hour(message.scheduled_time)
        failures: list[str] = []
        _try_to_evaluate(
            "waste rules across clusters",
            lambda: self._hourly_evaluator.evaluate_cross_cluster_waste(settings, at - 2 * HOUR),
            failures,
        )
        _try_to_evaluate("rules of the schedule", lambda: self._scheduled_evaluator.evaluate(stored, message), failures)
        states_by_scope: dict[str, ScopeStates] = {}
        for scope in alert_scopes(settings):
            try:
                states_by_scope[scope] = self._state_store.load(scope)
            except IntegrityError as error:
                failures.append(str(error))
        fleet_groups = states_by_scope[FLEET_SCOPE].groups if FLEET_SCOPE in states_by_scope else ()
        muting = current_muting(settings, self._silences.all(), fleet_groups, self._clock())
        groups = {
            scope: self._repeat_notifications(settings, states, at, muting) for scope, states in states_by_scope.items()
        }
        failures += self._deliver(settings, groups, muting)
        failures += self._resend_firing(settings, groups, muting)
        _raise_failures(failures)

    def _repeat_notifications(
        self, settings: SettingsDocument, states: ScopeStates, at: datetime, muting: Muting
    ) -> tuple[AlertGroup, ...]:
        """Return a scope's groups, with repeated notifications in their outboxes."""
        try:
            return self._scheduled_evaluator.repeat_notifications(settings, states, at, muting)
        except ConflictError:
            logger.info("another writer changed the alerts: the next tick repeats notifications")
            return self._state_store.load(states.cursor.scope).groups

    def handle_amp_alerts(self, message: ExternalAlerts) -> None:
        """Forward alerts of AMP's alerting rules.

        Raises:
            SourceError: a receiver failed.
            ConflictError: other writers kept changing the same groups; a retry evaluates again.
        """
        stored = self._current_settings()
        if stored is None:
            return
        excess = _retry_on_conflict(lambda: self._amp_alert_handler.handle(stored.settings, message))
        if excess:
            body = ExternalAlerts(alerts=tuple(excess)).model_dump_json(by_alias=True)
            self._send_dead_letter(body, f"{MAX_FIRING_ALERTS} alerts of AMP fire already")
        _raise_failures(self._deliver_scope(stored.settings, FLEET_SCOPE))

    def _current_settings(self) -> StoredSettings[SettingsDocument] | None:
        try:
            return self._settings_store.current()
        except SettingsMissingError:
            logger.info("no settings have been pushed yet: there are no alert rules to evaluate")
            return None

    def _deliver_scope(
        self, settings: SettingsDocument, scope: str, groups: tuple[AlertGroup, ...] | None = None
    ) -> list[str]:
        """Deliver the outboxes of a scope's groups, which are loaded unless they are passed; return what failed."""
        fleet_groups = self._state_store.load(FLEET_SCOPE).groups
        if groups is None:
            groups = fleet_groups if scope == FLEET_SCOPE else self._state_store.load(scope).groups
        return self._deliver(
            settings, {scope: groups}, current_muting(settings, self._silences.all(), fleet_groups, self._clock())
        )

    def _deliver(
        self, settings: SettingsDocument, groups: Mapping[str, tuple[AlertGroup, ...]], muting: Muting
    ) -> list[str]:
        """Deliver the outboxes of groups by scope, and return what failed."""
        failures: dict[str, str] = {}
        notifiers = self._make_notifiers(settings)
        for scope, scope_groups in groups.items():
            scope_notifiers: dict[str, Notifier] = {
                **notifiers,
                HISTORY_RECEIVER: _HistoryNotifier(self._history, scope),
            }
            for receiver, reason in failures.items():
                scope_notifiers[receiver] = _FailedReceiverNotifier(reason)
            delivery = Delivery(self._state_store, scope_notifiers, muting, self._set_aside, self._clock)
            delivery.deliver(scope_groups)
            failures |= delivery.failures
        return [f"{receiver}: not delivered: {reason}" for receiver, reason in failures.items()]

    def _set_aside(self, entry: OutboxEntry, reason: str) -> None:
        content = _NOTIFICATION_ADAPTER.dump_python(entry.notification, mode="json")
        letter = NotificationSetAside(
            receiver=entry.receiver, notification_id=entry.notification.id, notification=content
        )
        self._send_dead_letter(letter.model_dump_json(), reason)

    def _resend_firing(
        self, settings: SettingsDocument, groups: Mapping[str, tuple[AlertGroup, ...]], muting: Muting
    ) -> list[str]:
        """Send firing alerts again to receivers that would resolve them otherwise, and return what failed."""
        rules, failures = settings.alerts.rules_by_name(), []
        for receiver, notifier in self._make_notifiers(settings).items():
            if not notifier.needs_resend:
                continue
            rule_names = {name for name, rule in rules.items() if receiver in settings.alerts.receiver_keys(rule)}
            firing = [
                alert.notification
                for scope_groups in groups.values()
                for group in scope_groups
                for alert in group.alerts
                if alert.rule in rule_names
                and alert.phase == "firing"
                and alert.notified_at is not None
                and alert.notification is not None
                and not muting.mutes(alert.notification)
            ]
            try:
                while firing:
                    size = notifier.batch_size(firing)
                    failures += _send_each_that_can_be_sent(notifier, firing[:size])
                    firing = firing[size:]
            except SourceError as error:
                failures.append(f"{receiver}: not delivered: {error}")
        return failures


class _HistoryNotifier:
    """Records notifications in the history; a repeated one is recorded once."""

    needs_resend = False

    def __init__(self, history: AlertHistory, scope: str) -> None:
        self._history = history
        self._scope = scope

    def batch_size(self, notifications: Sequence[Notification]) -> int:
        return min(len(notifications), MAX_HISTORY_BATCH_SIZE)

    def send(self, notifications: Sequence[Notification]) -> None:
        for notification in notifications:
            logger.info("alert changed", notification=notification.id)
        self._history.add(self._scope, notifications)


class _FailedReceiverNotifier:
    """Stands in for a receiver that failed a moment ago, so that no time is spent on it again."""

    needs_resend = False

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def batch_size(self, notifications: Sequence[Notification]) -> int:
        return min(len(notifications), 1)

    def send(self, notifications: Sequence[Notification]) -> None:
        raise SourceError(self._reason)


def _retry_on_conflict(evaluate: Callable[[], Result]) -> Result:
    """Evaluate again if another writer was first.

    Raises:
        ConflictError: all attempts failed.
    """
    for _ in range(MAX_EVALUATION_ATTEMPTS):
        try:
            return evaluate()
        except ConflictError:
            logger.info("another writer changed the alerts: evaluating again")
    raise ConflictError(f"alert groups changed {MAX_EVALUATION_ATTEMPTS} times during the evaluation")


def _try_to_evaluate(rules: str, evaluate: Callable[[], Result], failures: list[str]) -> Result | None:
    """Evaluate rules, or add what failed: the notifications of other rules must not wait until they are fixed."""
    try:
        return _retry_on_conflict(evaluate)
    except Exception as error:
        logger.exception("rules could not be evaluated", rules=rules)
        failures.append(f"{rules}: not evaluated: {error}")
        return None


def _send_each_that_can_be_sent(notifier: Notifier, notifications: Sequence[Notification]) -> list[str]:
    """Send notifications as one message, or one by one if one of them cannot be sent. Return what failed.

    Raises:
        SourceError: the receiver failed.
    """
    try:
        notifier.send(notifications)
    except SourceError:
        raise
    except Exception as error:
        if len(notifications) > 1:
            return [failure for single in notifications for failure in _send_each_that_can_be_sent(notifier, [single])]
        logger.exception("a notification cannot be sent", notification=notifications[0].id)
        return [f"{notifications[0].id}: cannot be sent: {type(error).__name__}: {error}"]
    return []


def _raise_failures(failures: Sequence[str]) -> None:
    if failures:
        raise SourceError("; ".join(failures))


AlertKey = tuple[str, Subject]
MAX_DETAIL_LENGTH = 200
MAX_FIRING_ALERTS = 2_000
"""Alerts of AMP that are stored at the same time. A group of 20,000 alerts could not be written any more."""


class AmpAlertHandler:
    """Applies alerts that AMP's alert manager sent.

    Args:
        state_store: stored alert states.
    """

    def __init__(self, state_store: AlertStateStore) -> None:
        self._state_store = state_store

    def handle(self, settings: SettingsDocument, message: ExternalAlerts) -> list[ExternalAlert]:
        """Store which alerts fire, and notify changes: all receivers if there is no rule of kind `external`.

        Returns:
            The alerts that are too many.

        Raises:
            ConflictError: another writer was first; evaluating again is safe.
        """
        rules = rules_of_scope(settings, FLEET_SCOPE)
        external_rules = {name: rule for name, rule in rules.items() if isinstance(rule, ExternalRule)}
        update = ScopeUpdate(self._state_store.load(FLEET_SCOPE), settings.alerts, rules)
        active = {alert.key: alert for name in external_rules for alert in update.alerts_of_rule(name)}
        excess: list[ExternalAlert] = []
        for alert in message.alerts:
            subject = _subject_from_labels(alert)
            for name, rule in external_rules.items():
                if not rule.covers(subject):
                    continue
                if alert.status == "resolved":
                    _resolve(update, rule, active, (name, subject), alert)
                elif len(active) < MAX_FIRING_ALERTS:
                    _fire(update, rule, active, (name, subject), alert)
                elif (name, subject) not in active:
                    excess.append(alert)
        update.save(self._state_store)
        return excess


def _fire(
    update: ScopeUpdate, rule: ExternalRule, active: dict[AlertKey, Alert], key: AlertKey, alert: ExternalAlert
) -> None:
    if key in active:
        return
    rule_name, subject = key
    started_at = alert.starts_at.astimezone(UTC)
    notification = _notification(rule_name, rule, subject, alert, "firing")
    update.add_notification(notification)
    active[key] = Alert(
        rule_name, subject, "firing", started_at, (), notified_at=floor_hour(started_at), notification=notification
    )
    update.add_external_alert(active[key])


def _resolve(
    update: ScopeUpdate, rule: ExternalRule, active: dict[AlertKey, Alert], key: AlertKey, alert: ExternalAlert
) -> None:
    stored = active.get(key)
    if stored is not None and stored.since <= alert.starts_at:
        update.add_notification(_notification(key[0], rule, key[1], alert, "resolved"))
        update.discard_alert(active.pop(key))


def _notification(
    rule_name: str, rule: ExternalRule, subject: Subject, alert: ExternalAlert, event: NotificationEvent
) -> Notification:
    started_at = alert.starts_at.astimezone(UTC)
    severities: dict[str, Severity] = {"info": "info", "warning": "warning", "critical": "critical"}
    label = severities.get(alert.labels.get("severity", ""), rule.effective_severity)
    hour = floor_hour(started_at)
    # A rule can fire several times within an hour: the id needs the exact time.
    suffix = f"{started_at:%M%S}{started_at.microsecond // 1000:03d}"
    return Notification(
        id=f"{notification_id(rule_name, subject, hour, event)}/{suffix}",
        event=event,
        rule_kind=rule.kind,
        rule=rule_name,
        severity=rule.severity or label,
        subject=subject,
        since=started_at,
        hour=hour,
        threshold="",
        figures={},
        note=(alert.annotations.get("summary") or alert.annotations.get("description", ""))[:MAX_NOTE_LENGTH],
    )


def _subject_from_labels(alert: ExternalAlert) -> Subject:
    """Map an alert's labels to a subject. Labels without a field go into the detail; annotations may change."""
    pool_label = "nodepool" if "nodepool" in alert.labels else "provisioner"
    mapped = {"business_unit", "cluster", "namespace", pool_label}
    other_labels = sorted(
        (name, label) for name, label in alert.labels.items() if name not in {*mapped, "alertname", "severity"}
    )
    detail = [alert.labels.get("alertname", "alert"), *(f"{name}={label}" for name, label in other_labels)]
    return Subject(
        business_unit=alert.labels.get("business_unit", ""),
        cluster=alert.labels.get("cluster", ""),
        namespace=alert.labels.get("namespace", ""),
        node_pool=alert.labels.get(pool_label, ""),
        detail=" ".join(detail)[:MAX_DETAIL_LENGTH],
    )
