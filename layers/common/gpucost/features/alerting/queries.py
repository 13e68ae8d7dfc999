"""What people do with alerts: look at them, silence them for a while, take them on."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpucost.core.errors import ConflictError, InvalidInputError, NotFoundError
from gpucost.core.hours import HOUR
from gpucost.features.alerting.model import Alert, Book, Notification, Subject
from gpucost.features.alerting.ports import AlertHistory, AlertMemory, Silences
from gpucost.features.alerting.service import scopes_of
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.features.alerting.timing import Silence
from gpucost.storage.ports import Clock, SettingsStore

LONGEST_HISTORY = timedelta(days=100)
LONGEST_SILENCE = timedelta(days=365)
LONGEST_TEXT = 500
FIELDS = ("rule", *Subject._fields)
TRIES = 8


@dataclass(frozen=True, slots=True)
class Listed:
    """An alert that is pending or firing."""

    id: str
    """Twelve letters that name it as long as it lasts: what `gpucost ack` takes."""
    scope: str
    alert: Alert
    silenced_by: tuple[str, ...]
    """Ids of the silences that cover it now."""


class AlertDesk:
    """Lists and changes; the API only lists.

    Args:
        settings_store: the settings document: which clusters there are.
        memory: what alerting remembers.
        history: what was decided.
        silences: who wants to hear nothing.
        clock: the time now.
    """

    def __init__(
        self,
        settings_store: SettingsStore[AlertingSettings],
        memory: AlertMemory,
        history: AlertHistory,
        silences: Silences,
        clock: Clock,
    ) -> None:
        self._settings_store = settings_store
        self._memory = memory
        self._history = history
        self._silences = silences
        self._clock = clock

    def now(self) -> datetime:
        """The time by which silences hold or not."""
        return self._clock()

    def active(self) -> list[Listed]:
        """Alerts that are pending or firing: firing ones first, the oldest first.

        Raises:
            SettingsMissingError: nothing was pushed yet.
        """
        now = self._clock()
        silences = [one for one in self._silences.all() if one.is_active(now)]
        found = []
        for scope in self._scopes():
            for book in self._memory.load(scope).books:
                for alert in book.alerts:
                    covering = tuple(one.id for one in silences if one.covers(alert.rule, alert.subject))
                    found.append(Listed(id_of(scope, alert), scope, alert, covering))
        return sorted(found, key=lambda one: (one.alert.phase != "firing", one.alert.since, one.id))

    def past(self, start: datetime, end: datetime) -> list[Notification]:
        """What was decided by hours in `[start, end)`, oldest first: the history of every alert.

        Raises:
            InvalidInputError: a period of more than 100 days, or one that ends before it starts.
            SettingsMissingError: nothing was pushed yet.
        """
        if start >= end:
            raise InvalidInputError("start must be before end")
        if end - start > LONGEST_HISTORY:
            raise InvalidInputError(f"at most {LONGEST_HISTORY.days} days of history can be asked for at once")
        news = [one for scope in self._scopes() for one in self._history.between(scope, start, end)]
        return sorted(news, key=lambda one: (one.hour, one.id))

    def silences(self) -> list[Silence]:
        """Those in force, those to come, and those of the last three months; the one that ends last first."""
        return self._silences.all()

    def silence(
        self, matchers: Mapping[str, str], *, author: str, comment: str, hours: float, starts_at: datetime | None = None
    ) -> Silence:
        """Hear nothing of some alerts for a time; what still fires afterwards is told then.

        Raises:
            InvalidInputError: a matcher that alerts do not have, none at all, no comment, or a time that is none.
        """
        if unknown := sorted(set(matchers) - set(FIELDS)):
            raise InvalidInputError(f"{unknown[0]!r} is nothing to match by; allowed: {', '.join(FIELDS)}")
        if not matchers:
            raise InvalidInputError("at least one of rule=, business_unit=, cluster=, … is needed")
        if not comment.strip():
            raise InvalidInputError("a comment is needed: why nobody wants to hear of it")
        if not 0 < hours <= LONGEST_SILENCE / HOUR:  # not a number is neither
            raise InvalidInputError("a silence must be longer than nothing and at most a year")
        begins = (starts_at or self._clock()).replace(microsecond=0)
        text = repr((sorted(matchers.items()), author, comment, begins))
        silence = Silence(
            hashlib.sha256(text.encode()).hexdigest()[:12],
            author,
            comment.strip()[:LONGEST_TEXT],
            begins,
            begins + timedelta(hours=hours),
            dict(matchers),
        )
        self._silences.put(silence)
        return silence

    def end_silence(self, silence_id: str) -> Silence:
        """Let a silence end now.

        Raises:
            NotFoundError: there is none of that id in force or to come.
        """
        now = self._clock().replace(microsecond=0)
        for one in self._silences.all():
            if one.id == silence_id and one.ends_at > now:
                ended = replace(one, ends_at=now, starts_at=min(one.starts_at, now))
                self._silences.put(ended)
                return ended
        raise NotFoundError(f"no silence {silence_id!r} is in force or to come")

    def acknowledge(self, alert_id: str, *, author: str) -> Listed:
        """Take an alert on: it is not said again until it is over; that it is over is said.

        Raises:
            NotFoundError: nothing of that id is firing.
            ConflictError: the alert function kept writing; nothing was written.
        """
        if not re.fullmatch(r"[0-9a-f]{12}", alert_id):
            raise InvalidInputError(f"{alert_id!r} is not the id of an alert; `gpucost alerts list` shows them")
        for _ in range(TRIES):
            scope, book, alert = self._find(alert_id)
            taken = replace(alert, acknowledged_by=author, acknowledged_at=self._clock().replace(microsecond=0))
            try:
                self._memory.save_book(book.with_alerts([taken, *(one for one in book.alerts if one.key != alert.key)]))
            except ConflictError:
                continue
            return Listed(alert_id, scope, taken, ())
        raise ConflictError("the alert changed again and again; try once more")

    def _find(self, alert_id: str) -> tuple[str, Book, Alert]:
        for scope in self._scopes():
            for book in self._memory.load(scope).books:
                for alert in book.alerts:
                    if alert.phase == "firing" and id_of(scope, alert) == alert_id:
                        return scope, book, alert
        raise NotFoundError(f"no alert {alert_id!r} is firing")

    def _scopes(self) -> Sequence[str]:
        return scopes_of(self._settings_store.current().settings)


def id_of(scope: str, alert: Alert) -> str:
    """A short name of an alert, the same as long as it lasts."""
    text = "\0".join((scope, alert.rule, *alert.subject, alert.since.isoformat()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
