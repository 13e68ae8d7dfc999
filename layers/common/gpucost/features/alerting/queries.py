"""What people do with alerts: look at them, silence them for a while, take them on."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from gpucost.core.errors import ConflictError, InvalidInputError, NotFoundError
from gpucost.core.hours import HOUR
from gpucost.features.alerting.model import Alert, AlertGroup, Notification, Subject
from gpucost.features.alerting.muting import Silence
from gpucost.features.alerting.ports import AlertHistory, AlertStates, Silences
from gpucost.features.alerting.service import alert_scopes
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.storage.ports import Clock, SettingsStore

MAX_HISTORY = timedelta(days=100)
MAX_SILENCE = timedelta(days=365)
MAX_COMMENT_LENGTH = 500
MATCHER_FIELDS = ("rule", *Subject._fields)
MAX_ATTEMPTS = 8


@dataclass(frozen=True, slots=True)
class ListedAlert:
    """An alert that is pending or firing."""

    id: str
    """Twelve letters that name it as long as it lasts: what `gpucost ack` takes."""
    scope: str
    alert: Alert
    silenced_by: tuple[str, ...]
    """Ids of the silences that cover it now."""


class AlertQueries:
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
        memory: AlertStates,
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

    def active(self) -> list[ListedAlert]:
        """Alerts that are pending or firing: firing ones first, the oldest first.

        Raises:
            SettingsMissingError: nothing was pushed yet.
        """
        now = self._clock()
        silences = [one for one in self._silences.all() if one.is_active(now)]
        found = []
        for scope in self._scopes():
            for book in self._memory.load(scope).groups:
                for alert in book.alerts:
                    covering = tuple(one.id for one in silences if one.matches(alert.rule, alert.subject))
                    found.append(ListedAlert(alert_id(scope, alert), scope, alert, covering))
        return sorted(found, key=lambda one: (one.alert.phase != "firing", one.alert.since, one.id))

    def history(self, start: datetime, end: datetime) -> list[Notification]:
        """What was decided by hours in `[start, end)`, oldest first: the history of every alert.

        Raises:
            InvalidInputError: a period of more than 100 days, or one that ends before it starts.
            SettingsMissingError: nothing was pushed yet.
        """
        if start >= end:
            raise InvalidInputError("start must be before end")
        if end - start > MAX_HISTORY:
            raise InvalidInputError(f"at most {MAX_HISTORY.days} days of history can be asked for at once")
        news = [one for scope in self._scopes() for one in self._history.between(scope, start, end)]
        return sorted(news, key=lambda one: (one.hour, one.id))

    def silences(self) -> list[Silence]:
        """Those in force, those to come, and those of the last three months; the one that ends last first."""
        return self._silences.all()

    def add_silence(
        self, matchers: Mapping[str, str], *, author: str, comment: str, hours: float, starts_at: datetime | None = None
    ) -> Silence:
        """Hear nothing of some alerts for a time; what still fires afterwards is told then.

        Raises:
            InvalidInputError: a matcher that alerts do not have, none at all, no comment, or a time that is none.
        """
        if unknown := sorted(set(matchers) - set(MATCHER_FIELDS)):
            raise InvalidInputError(f"{unknown[0]!r} is nothing to match by; allowed: {', '.join(MATCHER_FIELDS)}")
        if not matchers:
            raise InvalidInputError("at least one of rule=, business_unit=, cluster=, … is needed")
        if not comment.strip():
            raise InvalidInputError("a comment is needed: why nobody wants to hear of it")
        if not 0 < hours <= MAX_SILENCE / HOUR:  # not a number is neither
            raise InvalidInputError("a silence must be longer than nothing and at most a year")
        begins = (starts_at or self._clock()).replace(microsecond=0)
        text = repr((sorted(matchers.items()), author, comment, begins))
        silence = Silence(
            hashlib.sha256(text.encode()).hexdigest()[:12],
            author,
            comment.strip()[:MAX_COMMENT_LENGTH],
            begins,
            begins + timedelta(hours=hours),
            dict(matchers),
        )
        self._silences.put(silence)
        return silence

    def expire_silence(self, silence_id: str) -> Silence:
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

    def acknowledge(self, wanted_id: str, *, author: str) -> ListedAlert:
        """Take an alert on: it is not said again until it is over; that it is over is said.

        Raises:
            NotFoundError: nothing of that id is firing.
            ConflictError: the alert function kept writing; nothing was written.
        """
        if not re.fullmatch(r"[0-9a-f]{12}", wanted_id):
            raise InvalidInputError(f"{wanted_id!r} is not the id of an alert; `gpucost alerts list` shows them")
        for _ in range(MAX_ATTEMPTS):
            scope, book, alert = self._find(wanted_id)
            taken = replace(alert, acknowledged_by=author, acknowledged_at=self._clock().replace(microsecond=0))
            try:
                self._memory.save_group(
                    book.with_alerts([taken, *(one for one in book.alerts if one.key != alert.key)])
                )
            except ConflictError:
                continue
            return ListedAlert(wanted_id, scope, taken, ())
        raise ConflictError("the alert changed again and again; try once more")

    def _find(self, wanted_id: str) -> tuple[str, AlertGroup, Alert]:
        for scope in self._scopes():
            for book in self._memory.load(scope).groups:
                for alert in book.alerts:
                    if alert.phase == "firing" and alert_id(scope, alert) == wanted_id:
                        return scope, book, alert
        raise NotFoundError(f"no alert {wanted_id!r} is firing")

    def _scopes(self) -> Sequence[str]:
        return alert_scopes(self._settings_store.current().settings)


def alert_id(scope: str, alert: Alert) -> str:
    """A short name of an alert, the same as long as it lasts."""
    text = "\0".join((scope, alert.rule, *alert.subject, alert.since.isoformat()))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
