"""The alert function's service: evaluates and notifies when an hour is published, on a tick, and on alerts of AMP."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from gpucost.core.errors import ConflictError, SettingsMissingError, SourceError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.features.alerting.delivery import Delivery
from gpucost.features.alerting.hourly_evaluation import HourlyRuleEvaluator
from gpucost.features.alerting.model import AlertGroup, Notification
from gpucost.features.alerting.muting import Muting, current_muting
from gpucost.features.alerting.ports import AlertStateStore, MakeNotifiers, Notifier, RuleInputs, ScopeStates
from gpucost.features.alerting.received_amp_alerts import AmpAlertHandler
from gpucost.features.alerting.scheduled_evaluation import ScheduledRuleEvaluator
from gpucost.features.alerting.scope_update import HISTORY_RECEIVER
from gpucost.features.alerting.settings import SettingsWithAlerts, alert_scopes
from gpucost.features.alerting.storage.notification_history import AlertHistory, SilenceStore
from gpucost.features.alerting.subjects import FLEET_SCOPE
from gpucost.runtime.messages import AlertTick, ExternalAlerts, HourPublished
from gpucost.runtime.observability import logger
from gpucost.storage.ports import Clock, SettingsStore, StoredSettings

MAX_EVALUATION_ATTEMPTS = 8
Result = TypeVar("Result")


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
        clock: the time now; only leases, quiet hours and silences use it.
    """

    def __init__(
        self,
        settings_store: SettingsStore[SettingsWithAlerts],
        inputs: RuleInputs,
        state_store: AlertStateStore,
        history: AlertHistory,
        silences: SilenceStore,
        notifiers: MakeNotifiers,
        clock: Clock = _now,
    ) -> None:
        self._settings_store = settings_store
        self._state_store = state_store
        self._history = history
        self._silences = silences
        self._make_notifiers = notifiers
        self._clock = clock
        self._hourly_evaluator = HourlyRuleEvaluator(inputs, state_store)
        self._scheduled_evaluator = ScheduledRuleEvaluator(inputs, state_store)
        self._amp_alert_handler = AmpAlertHandler(state_store)

    def handle_hour_published(self, message: HourPublished) -> None:
        """Evaluate all rules of a cluster through an hour, then deliver its outboxes.

        Raises:
            SourceError: a receiver failed; its messages stay in the outbox for a retry.
            ConflictError: other writers kept changing the same groups; a retry evaluates again.
        """
        if message.origin != "schedule":
            return
        stored = self._current_settings()
        if stored is None or stored.settings.cluster(message.cluster) is None:
            return
        _retry_on_conflict(
            lambda: self._hourly_evaluator.evaluate_cluster(stored.settings, message.cluster, message.hour)
        )
        self._deliver_scope(stored.settings, message.cluster)

    def handle_tick(self, message: AlertTick) -> None:
        """Evaluate the rules on several clusters and on missing data, repeat notifications, and deliver all outboxes.

        Raises:
            SourceError: a receiver failed.
            ConflictError: other writers kept changing the same groups; a retry evaluates again.
        """
        stored = self._current_settings()
        if stored is None:
            return
        settings, at = stored.settings, floor_hour(message.scheduled_time)
        _retry_on_conflict(lambda: self._hourly_evaluator.evaluate_cross_cluster_waste(settings, at - 2 * HOUR))
        _retry_on_conflict(lambda: self._scheduled_evaluator.evaluate(stored, message))
        states_by_scope = {scope: self._state_store.load(scope) for scope in alert_scopes(settings)}
        muting = current_muting(settings, self._silences.all(), states_by_scope[FLEET_SCOPE].groups, self._clock())
        groups = {
            scope: self._repeat_notifications(settings, states, at, muting) for scope, states in states_by_scope.items()
        }
        failures = self._deliver(settings, groups, muting)
        failures |= self._resend_firing(settings, groups, muting)
        _raise_failures(failures)

    def _repeat_notifications(
        self, settings: SettingsWithAlerts, states: ScopeStates, at: datetime, muting: Muting
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
        _retry_on_conflict(lambda: self._amp_alert_handler.handle(stored.settings, message))
        self._deliver_scope(stored.settings, FLEET_SCOPE)

    def _current_settings(self) -> StoredSettings[SettingsWithAlerts] | None:
        try:
            return self._settings_store.current()
        except SettingsMissingError:
            logger.info("no settings have been pushed yet: there are no alert rules to evaluate")
            return None

    def _deliver_scope(self, settings: SettingsWithAlerts, scope: str) -> None:
        now = self._clock()
        muting = current_muting(settings, self._silences.all(), self._state_store.load(FLEET_SCOPE).groups, now)
        _raise_failures(self._deliver(settings, {scope: self._state_store.load(scope).groups}, muting))

    def _deliver(
        self, settings: SettingsWithAlerts, groups: Mapping[str, tuple[AlertGroup, ...]], muting: Muting
    ) -> dict[str, str]:
        """Deliver the outboxes of groups by scope, and return why receivers failed, by receiver."""
        failures: dict[str, str] = {}
        notifiers = self._make_notifiers(settings)
        for scope, scope_groups in groups.items():
            scope_notifiers: dict[str, Notifier] = {
                **notifiers,
                HISTORY_RECEIVER: _HistoryNotifier(self._history, scope),
            }
            for receiver, reason in failures.items():
                scope_notifiers[receiver] = _FailedReceiverNotifier(reason)
            delivery = Delivery(self._state_store, scope_notifiers, muting, self._clock)
            delivery.deliver(scope_groups)
            failures |= delivery.failures
        return failures

    def _resend_firing(
        self, settings: SettingsWithAlerts, groups: Mapping[str, tuple[AlertGroup, ...]], muting: Muting
    ) -> dict[str, str]:
        """Send firing alerts again to receivers that would resolve them otherwise."""
        rules, failures = settings.alerts.rules_by_name(), {}
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
                for start in range(0, len(firing), notifier.max_batch_size):
                    notifier.send(firing[start : start + notifier.max_batch_size])
            except SourceError as error:
                failures[receiver] = str(error)
        return failures


class _HistoryNotifier:
    """Records notifications in the history; a repeated one is recorded once."""

    max_batch_size = 500
    needs_resend = False

    def __init__(self, history: AlertHistory, scope: str) -> None:
        self._history = history
        self._scope = scope

    def send(self, notifications: Sequence[Notification]) -> None:
        for notification in notifications:
            logger.info("alert changed", notification=notification.id)
        self._history.add(self._scope, notifications)


class _FailedReceiverNotifier:
    """Stands in for a receiver that failed a moment ago, so that no time is spent on it again."""

    max_batch_size = 1
    needs_resend = False

    def __init__(self, reason: str) -> None:
        self._reason = reason

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


def _raise_failures(failures: dict[str, str]) -> None:
    if failures:
        raise SourceError("; ".join(f"{receiver}: not delivered: {reason}" for receiver, reason in failures.items()))
