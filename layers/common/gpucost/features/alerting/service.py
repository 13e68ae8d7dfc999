"""The alert function's entry: what to decide and deliver when an hour is closed, on a tick, and on AMP's word."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar

from gpucost.core.errors import ConflictError, SettingsMissingError, SourceError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.features.alerting.amp_alerts import ExternalDecisions
from gpucost.features.alerting.decisions import HISTORY
from gpucost.features.alerting.delivery import Delivery
from gpucost.features.alerting.hourly_evaluation import ACROSS, HourDecisions
from gpucost.features.alerting.inhibition import hold_of
from gpucost.features.alerting.model import FLEET, Alert, Book, Notification
from gpucost.features.alerting.ports import (
    AlertHistory,
    AlertMemory,
    AlertSources,
    Memory,
    Notifier,
    Notifiers,
    Silences,
)
from gpucost.features.alerting.scheduled_evaluation import TickDecisions
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.features.alerting.timing import Hold
from gpucost.runtime.messages import ExternalAlerts, HourClosed, Tick
from gpucost.runtime.observability import logger
from gpucost.storage.ports import Clock, SettingsStore, StoredSettings

TRIES = 8
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
        memory: AlertMemory,
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
        self._hours = HourDecisions(sources.ledger, memory)
        self._ticks = TickDecisions(sources, memory)
        self._external = ExternalDecisions(memory)

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
        _persistently(lambda: self._hours.decide_cluster(stored.settings, message.cluster, message.hour))
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
        _persistently(lambda: self._hours.decide_across(settings, at - 2 * HOUR))
        _persistently(lambda: self._ticks.decide(stored, message))
        known = {scope: self._memory.load(scope) for scope in scopes_of(settings)}
        hold = hold_of(settings, self._silences.all(), known[FLEET].books, self._clock())
        books = {scope: self._repeated(settings, memory, at, hold) for scope, memory in known.items()}
        failures = self._deliveries(settings, books, hold)
        failures |= self._keep_alive(settings, books, hold)
        _refuse(failures)

    def _repeated(self, settings: AlertingSettings, memory: Memory, at: datetime, hold: Hold) -> tuple[Book, ...]:
        """A scope's books, with what is to be said again."""
        try:
            return self._ticks.repeat(settings, memory, at, hold)
        except ConflictError:
            logger.info("others decided meanwhile; what is to be said again is said on the next tick")
            return self._memory.load(memory.cursor.scope).books

    def external(self, message: ExternalAlerts) -> None:
        """Pass on what AMP's alerting rules say.

        Raises:
            SourceError: a receiver could not be told.
            ConflictError: others kept writing the same books; a retry decides anew.
        """
        stored = self._settings()
        if stored is None:
            return
        _persistently(lambda: self._external.decide(stored.settings, message))
        self._deliver(stored.settings, FLEET)

    def _settings(self) -> StoredSettings[AlertingSettings] | None:
        try:
            return self._settings_store.current()
        except SettingsMissingError:
            logger.info("no settings have been pushed yet: no alert rules, nothing to do")
            return None

    def _hold(self, settings: AlertingSettings, now: datetime) -> Hold:
        return hold_of(settings, self._silences.all(), self._memory.load(FLEET).books, now)

    def _deliver(self, settings: AlertingSettings, scope: str) -> None:
        hold = self._hold(settings, self._clock())
        _refuse(self._deliveries(settings, {scope: self._memory.load(scope).books}, hold))

    def _deliveries(self, settings: AlertingSettings, books: Mapping[str, tuple[Book, ...]], hold: Hold) -> dict[str, str]:
        failures: dict[str, str] = {}
        people = self._receivers(settings)
        for scope, own in books.items():
            receivers: dict[str, Notifier] = {**people, HISTORY: _Historian(self._history, scope)}
            for failed, why in failures.items():
                receivers[failed] = _Broken(why)
            delivery = Delivery(self._memory, receivers, hold, self._clock)
            delivery.deliver(own)
            failures |= delivery.failures
        return failures

    def _keep_alive(self, settings: AlertingSettings, books: Mapping[str, tuple[Book, ...]], hold: Hold) -> dict[str, str]:
        """Tell receivers that forget what they do not hear of every hour."""
        rules, failures = settings.alerts.named_rules(), {}
        for key, notifier in self._receivers(settings).items():
            if not notifier.keeps_alive:
                continue
            mine = {name for name, rule in rules.items() if key in settings.alerts.receiver_keys(rule)}
            firing = [
                alert.news for own in books.values() for book in own for alert in book.alerts
                if _is_told(alert) and alert.rule in mine and alert.news is not None and not hold.holds(alert.news)
            ]  # fmt: skip
            try:
                for at in range(0, len(firing), notifier.most):
                    notifier.send(firing[at : at + notifier.most])
            except SourceError as error:
                failures[key] = str(error)
        return failures


class _Historian:
    """Fulfils `Notifier`: takes the same thing twice for one."""

    most = 500
    keeps_alive = False

    def __init__(self, history: AlertHistory, scope: str) -> None:
        self._history = history
        self._scope = scope

    def send(self, notifications: Sequence[Notification]) -> None:
        self._history.add(self._scope, notifications)


class _Broken:
    """Fulfils `Notifier` for one that failed a moment ago: it is not kept waiting for again."""

    most = 1
    keeps_alive = False

    def __init__(self, why: str) -> None:
        self._why = why

    def send(self, notifications: Sequence[Notification]) -> None:
        raise SourceError(self._why)


def scopes_of(settings: AlertingSettings) -> list[str]:
    """Every scope that may remember something."""
    return [FLEET, ACROSS, *(cluster.name for cluster in settings.clusters)]


def _is_told(alert: Alert) -> bool:
    return alert.phase == "firing" and alert.told_at is not None


def _persistently(decide: Callable[[], T]) -> T:
    """Decide again where somebody else wrote first.

    Raises:
        ConflictError: again and again.
    """
    for _ in range(TRIES):
        try:
            return decide()
        except ConflictError:
            logger.info("others decided meanwhile; deciding again")
    raise ConflictError(f"alert books changed {TRIES} times while deciding")


def _refuse(failures: dict[str, str]) -> None:
    if failures:
        raise SourceError("; ".join(f"{name} was not told: {why}" for name, why in failures.items()))
