"""Listing, acknowledging and silencing alerts."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from msgspec import Struct

from gpucost.core.errors import ConflictError, InvalidInputError, NotFoundError
from gpucost.core.hours import HOUR, format_timestamp
from gpucost.features.alerting.model import Alert, AlertGroup, Notification
from gpucost.features.alerting.muting import Silence
from gpucost.features.alerting.ports import AlertStateStore
from gpucost.features.alerting.rule_kinds.base import Subject
from gpucost.features.alerting.settings import SettingsDocument, alert_scopes
from gpucost.features.alerting.storage import AlertHistory, SilenceStore
from gpucost.storage.ports import Clock, SettingsStore

MAX_HISTORY_PERIOD = timedelta(days=100)
MAX_SILENCE_DURATION = timedelta(days=365)
MAX_COMMENT_LENGTH = 500
MATCHER_FIELDS = ("rule", *Subject._fields)
MAX_SAVE_ATTEMPTS = 8


class ListedAlert(Struct, frozen=True):
    """A pending or firing alert with its id and silences."""

    id: str
    """Twelve hexadecimal digits, the same until the alert resolves; `gpucost alerts acknowledge` takes it."""
    scope: str
    alert: Alert
    silenced_by: tuple[str, ...]
    """Ids of the active silences that match the alert."""


class AlertQueries:
    """Reads alerts and silences, and changes them for the command line. The API only reads.

    Args:
        settings_store: the settings document, for the names of clusters.
        state_store: stored alert states.
        history: recorded notifications.
        silences: stored silences.
        clock: the time now.
    """

    def __init__(
        self,
        settings_store: SettingsStore[SettingsDocument],
        state_store: AlertStateStore,
        history: AlertHistory,
        silences: SilenceStore,
        clock: Clock,
    ) -> None:
        self._settings_store = settings_store
        self._state_store = state_store
        self._history = history
        self._silences = silences
        self._clock = clock

    def now(self) -> datetime:
        """Return the time that decides whether silences are active."""
        return self._clock()

    def active_alerts(self) -> list[ListedAlert]:
        """List pending and firing alerts: firing ones first, then the oldest first.

        Raises:
            SettingsMissingError: no settings have been pushed yet.
        """
        now = self._clock()
        silences = [silence for silence in self._silences.all() if silence.is_active(now)]
        listed = []
        for scope in self._scopes():
            for group in self._state_store.load(scope).groups:
                for alert in group.alerts:
                    silenced_by = tuple(
                        silence.id for silence in silences if silence.matches(alert.rule, alert.subject)
                    )
                    listed.append(ListedAlert(alert_id(scope, alert), scope, alert, silenced_by))
        return sorted(listed, key=lambda active: (active.alert.phase != "firing", active.alert.since, active.id))

    def notifications(self, start: datetime, end: datetime) -> list[Notification]:
        """List the notifications of the hours in `[start, end)`, oldest first.

        Raises:
            InvalidInputError: a period of more than 100 days, or one that ends before it starts.
            SettingsMissingError: no settings have been pushed yet.
        """
        if start >= end:
            raise InvalidInputError(
                f"start: must be before end ({format_timestamp(end)}), but is {format_timestamp(start)}. Pass an "
                "earlier start"
            )
        if end - start > MAX_HISTORY_PERIOD:
            raise InvalidInputError(
                f"start: must be at most {MAX_HISTORY_PERIOD.days} days before end. Request shorter periods"
            )
        notifications = [
            notification for scope in self._scopes() for notification in self._history.between(scope, start, end)
        ]
        return sorted(notifications, key=lambda notification: (notification.hour, notification.id))

    def silences(self) -> list[Silence]:
        """List active silences, future ones, and those of the last three months; the latest end first."""
        return self._silences.all()

    def add_silence(
        self, matchers: Mapping[str, str], *, author: str, comment: str, hours: float, starts_at: datetime | None = None
    ) -> Silence:
        """Silence matching alerts for some hours. Alerts that still fire when the silence ends are sent then.

        Raises:
            InvalidInputError: an unknown matcher or none at all, no comment, or an invalid duration.
        """
        if unknown := sorted(set(matchers) - set(MATCHER_FIELDS)):
            raise InvalidInputError(f"{unknown[0]!r}: unknown matcher; allowed: {', '.join(MATCHER_FIELDS)}")
        if not matchers:
            raise InvalidInputError("matchers: required. Pass at least one, for example business_unit=research")
        if not comment.strip():
            raise InvalidInputError("comment: required. Say why the alerts are silenced")
        if not 0 < hours <= MAX_SILENCE_DURATION / HOUR:  # also refuses NaN
            raise InvalidInputError(
                f"hours: must be more than 0 and at most {MAX_SILENCE_DURATION // HOUR} (a year), but is {hours:g}"
            )
        start = (starts_at or self._clock()).replace(microsecond=0)
        content = repr((sorted(matchers.items()), author, comment, start))
        silence = Silence(
            hashlib.sha256(content.encode()).hexdigest()[:12],
            author,
            comment.strip()[:MAX_COMMENT_LENGTH],
            start,
            start + timedelta(hours=hours),
            dict(matchers),
        )
        self._silences.put(silence)
        return silence

    def expire_silence(self, silence_id: str) -> Silence:
        """End a silence now.

        Raises:
            NotFoundError: no active or future silence has this id.
        """
        now = self._clock().replace(microsecond=0)
        for silence in self._silences.all():
            if silence.id == silence_id and silence.ends_at > now:
                expired = replace(silence, ends_at=now, starts_at=min(silence.starts_at, now))
                self._silences.put(expired)
                return expired
        raise NotFoundError(f"no active or future silence has the id {silence_id!r}")

    def acknowledge(self, wanted_id: str, *, author: str) -> ListedAlert:
        """Acknowledge a firing alert: it is not repeated, and its end is still notified.

        Raises:
            InvalidInputError: not the id of an alert.
            NotFoundError: no firing alert has this id.
            ConflictError: the alert function kept writing; nothing was changed.
        """
        if not re.fullmatch(r"[0-9a-f]{12}", wanted_id):
            raise InvalidInputError(f"{wanted_id!r}: not the id of an alert; `gpucost alerts list` shows ids")
        for _ in range(MAX_SAVE_ATTEMPTS):
            scope, group, alert = self._find_firing_alert(wanted_id)
            acknowledged = replace(alert, acknowledged_by=author, acknowledged_at=self._clock().replace(microsecond=0))
            others = (other for other in group.alerts if other.key != alert.key)
            try:
                self._state_store.save_group(group.with_alerts([acknowledged, *others]))
            except ConflictError:
                continue
            return ListedAlert(wanted_id, scope, acknowledged, ())
        raise ConflictError("the alert function kept changing the alert; try again")

    def _find_firing_alert(self, wanted_id: str) -> tuple[str, AlertGroup, Alert]:
        for scope in self._scopes():
            for group in self._state_store.load(scope).groups:
                for alert in group.alerts:
                    if alert.phase == "firing" and alert_id(scope, alert) == wanted_id:
                        return scope, group, alert
        raise NotFoundError(f"no firing alert has the id {wanted_id!r}")

    def _scopes(self) -> Sequence[str]:
        return alert_scopes(self._settings_store.current().settings)


def alert_id(scope: str, alert: Alert) -> str:
    """Return a short id of an alert, the same until it resolves."""
    content = "\0".join((scope, alert.rule, *alert.subject, alert.since.isoformat()))
    return hashlib.sha256(content.encode()).hexdigest()[:12]
