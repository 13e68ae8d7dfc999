"""The alert function's entry: what to decide and deliver when an hour is closed, on a tick, and on AMP's word."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from gpucost.core.errors import ConflictError, SettingsMissingError, SourceError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.features.alerting.amp_alerts import AmpAlertEvaluation
from gpucost.features.alerting.delivery import Delivery
from gpucost.features.alerting.hourly_evaluation import CROSS_CLUSTER_SCOPE, HourlyEvaluation
from gpucost.features.alerting.muting import current_muting
from gpucost.features.alerting.model import FLEET_SCOPE, Alert, AlertGroup, Notification
from gpucost.features.alerting.muting import Muting
from gpucost.features.alerting.ports import (
    AlertHistory,
    AlertSources,
    AlertStates,
    Notifier,
    Notifiers,
    ScopeStates,
    Silences,
)
from gpucost.features.alerting.scheduled_evaluation import ScheduledEvaluation
from gpucost.features.alerting.scope_update import HISTORY
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.runtime.messages import ExternalAlerts, HourClosed, Tick
from gpucost.runtime.observability import logger
from gpucost.storage.ports import Clock, SettingsStore, StoredSettings

MAX_ATTEMPTS = 8
T = TypeVar("T")


def _now() -> datetime:
    return datetime.now(UTC)


class AlertService:
    """Decides and delivers.

    Args:
        settings_store: the settings document.
        sources: what rules look at.
        memory: what alerting remembers.
        history: what people were told.
        silences: who wants to hear nothing.
        receivers: who is told, by stable name.
        clock: the time now; only leases, quiet hours and silences use it.
    """

    def __init__(
        self,
        settings_store: SettingsStore[AlertingSettings],
        sources: AlertSources,
        memory: AlertStates,
        history: AlertHistory,
        silences: Silences,
        receivers: Notifiers,
        clock: Clock = _now,
    ) -> None:
        self._settings_store = settings_store
        self._memory = memory
        self._history = history
        self._silences = silences
        self._receivers = receivers
        self._clock = clock
        self._hours = HourlyEvaluation(sources.ledger, memory)
        self._ticks = ScheduledEvaluation(sources, memory)
        self._external = AmpAlertEvaluation(memory)

    def hour_closed(self, message: HourClosed) -> None:
        """Decide all rules of a cluster through an hour, then deliver what is in its outboxes.

        Raises:
            SourceError: a receiver could not be told; what it should hear waits in the outbox for a retry.
            ConflictError: others kept writing the same books; a retry decides anew.
        """
        if message.origin != "schedule":
            return
        stored = self._settings()
        if stored is None or stored.settings.cluster(message.cluster) is None:
            return
        _retry_on_conflict(lambda: self._hours.evaluate_cluster(stored.settings, message.cluster, message.hour))
        self._deliver(stored.settings, message.cluster)

    def tick(self, message: Tick) -> None:
        """Decide what looks at several clusters or at silence, repeat what goes on, deliver what had to wait.

        Raises:
            SourceError: a receiver could not be told.
            ConflictError: others kept writing the same books; a retry decides anew.
        """
        stored = self._settings()
        if stored is None:
            return
        settings, at = stored.settings, floor_hour(message.scheduled_time)
        _retry_on_conflict(lambda: self._hours.evaluate_cross_cluster(settings, at - 2 * HOUR))
        _retry_on_conflict(lambda: self._ticks.evaluate(stored, message))
        known = {scope: self._memory.load(scope) for scope in alert_scopes(settings)}
        hold = current_muting(settings, self._silences.all(), known[FLEET_SCOPE].groups, self._clock())
        books = {scope: self._repeated(settings, memory, at, hold) for scope, memory in known.items()}
        failures = self._deliveries(settings, books, hold)
        failures |= self._keep_alive(settings, books, hold)
        _raise_failures(failures)

    def _repeated(
        self, settings: AlertingSettings, memory: ScopeStates, at: datetime, hold: Muting
    ) -> tuple[AlertGroup, ...]:
        """A scope's books, with what is to be said again."""
        try:
            return self._ticks.repeat(settings, memory, at, hold)
        except ConflictError:
            logger.info("others decided meanwhile; what is to be said again is said on the next tick")
            return self._memory.load(memory.cursor.scope).groups

    def amp_alerts(self, message: ExternalAlerts) -> None:
        """Pass on what AMP's alerting rules say.

        Raises:
            SourceError: a receiver could not be told.
            ConflictError: others kept writing the same books; a retry decides anew.
        """
        stored = self._settings()
        if stored is None:
            return
        _retry_on_conflict(lambda: self._external.evaluate(stored.settings, message))
        self._deliver(stored.settings, FLEET_SCOPE)

    def _settings(self) -> StoredSettings[AlertingSettings] | None:
        try:
            return self._settings_store.current()
        except SettingsMissingError:
            logger.info("no settings have been pushed yet: no alert rules, nothing to do")
            return None

    def _hold(self, settings: AlertingSettings, now: datetime) -> Muting:
        return current_muting(settings, self._silences.all(), self._memory.load(FLEET_SCOPE).groups, now)

    def _deliver(self, settings: AlertingSettings, scope: str) -> None:
        hold = self._hold(settings, self._clock())
        _raise_failures(self._deliveries(settings, {scope: self._memory.load(scope).groups}, hold))

    def _deliveries(
        self, settings: AlertingSettings, books: Mapping[str, tuple[AlertGroup, ...]], hold: Muting
    ) -> dict[str, str]:
        failures: dict[str, str] = {}
        people = self._receivers(settings)
        for scope, own in books.items():
            receivers: dict[str, Notifier] = {**people, HISTORY: _HistoryNotifier(self._history, scope)}
            for failed, why in failures.items():
                receivers[failed] = _FailedNotifier(why)
            delivery = Delivery(self._memory, receivers, hold, self._clock)
            delivery.deliver(own)
            failures |= delivery.failures
        return failures

    def _keep_alive(
        self, settings: AlertingSettings, books: Mapping[str, tuple[AlertGroup, ...]], hold: Muting
    ) -> dict[str, str]:
        """Tell receivers that forget what they do not hear of every hour."""
        rules, failures = settings.alerts.named_rules(), {}
        for key, notifier in self._receivers(settings).items():
            if not notifier.needs_resend:
                continue
            mine = {name for name, rule in rules.items() if key in settings.alerts.receiver_keys(rule)}
            firing = [
                alert.notification for own in books.values() for book in own for alert in book.alerts
                if _is_told(alert) and alert.rule in mine and alert.notification is not None and not hold.mutes(alert.notification)
            ]  # fmt: skip
            try:
                for at in range(0, len(firing), notifier.max_batch_size):
                    notifier.send(firing[at : at + notifier.max_batch_size])
            except SourceError as error:
                failures[key] = str(error)
        return failures


class _HistoryNotifier:
    """Fulfils `Notifier`: takes the same thing twice for one."""

    max_batch_size = 500
    needs_resend = False

    def __init__(self, history: AlertHistory, scope: str) -> None:
        self._history = history
        self._scope = scope

    def send(self, notifications: Sequence[Notification]) -> None:
        self._history.add(self._scope, notifications)


class _FailedNotifier:
    """Fulfils `Notifier` for one that failed a moment ago: it is not kept waiting for again."""

    max_batch_size = 1
    needs_resend = False

    def __init__(self, why: str) -> None:
        self._why = why

    def send(self, notifications: Sequence[Notification]) -> None:
        raise SourceError(self._why)


def alert_scopes(settings: AlertingSettings) -> list[str]:
    """Every scope that may remember something."""
    return [FLEET_SCOPE, CROSS_CLUSTER_SCOPE, *(cluster.name for cluster in settings.clusters)]


def _is_told(alert: Alert) -> bool:
    return alert.phase == "firing" and alert.notified_at is not None


def _retry_on_conflict(decide: Callable[[], T]) -> T:
    """Decide again where somebody else wrote first.

    Raises:
        ConflictError: again and again.
    """
    for _ in range(MAX_ATTEMPTS):
        try:
            return decide()
        except ConflictError:
            logger.info("others decided meanwhile; deciding again")
    raise ConflictError(f"alert books changed {MAX_ATTEMPTS} times while deciding")


def _raise_failures(failures: dict[str, str]) -> None:
    if failures:
        raise SourceError("; ".join(f"{name} was not told: {why}" for name, why in failures.items()))
