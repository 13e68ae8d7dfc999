"""Muting of notifications: quiet hours, silences, inhibition. A muted message is sent later if it still applies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, tzinfo
from fnmatch import fnmatchcase
from zoneinfo import ZoneInfo

from msgspec import Struct

from gpucost.features.alerting.model import AlertGroup, Notification, OutboxEntry
from gpucost.features.alerting.rule_kinds import KINDS_BY_NAME
from gpucost.features.alerting.rule_kinds.base import Rule, Subject
from gpucost.features.alerting.settings import AlertSettings, SettingsDocument
from gpucost.runtime.observability import logger


class QuietHours(Struct, frozen=True):
    """A time of day, in a time zone, without notifications. It may cross midnight."""

    begin: time
    end: time
    time_zone: tzinfo
    weekends: bool = False
    """Whether all of Saturday and Sunday is quiet, too."""

    def contains(self, now: datetime) -> bool:
        """Whether a moment is within the quiet hours."""
        local = now.astimezone(self.time_zone)
        if self.weekends and local.isoweekday() > 5:  # noqa: PLR2004 - Friday
            return True
        time_of_day = local.time().replace(tzinfo=None)
        if self.begin <= self.end:
            return self.begin <= time_of_day < self.end
        return time_of_day >= self.begin or time_of_day < self.end


@dataclass(frozen=True, slots=True)
class Silence:
    """Mutes matching alerts for a time, as in Alertmanager."""

    id: str
    author: str
    comment: str
    starts_at: datetime
    ends_at: datetime
    matchers: Mapping[str, str]
    """Shell patterns by field: `rule` or a field of the subject. All must match."""

    def is_active(self, now: datetime) -> bool:
        """Whether the silence has started and not ended."""
        return self.starts_at <= now < self.ends_at

    def matches(self, rule_name: str, subject: Subject) -> bool:
        """Whether the silence applies to an alert."""
        fields = {"rule": rule_name, **subject._asdict()}
        return all(fnmatchcase(fields.get(name, ""), pattern) for name, pattern in self.matchers.items())


class Muting(Struct, frozen=True):
    """Everything that mutes notifications at one moment."""

    now: datetime
    quiet_hours: Mapping[str, QuietHours]
    """By rule."""
    silences: Sequence[Silence] = ()
    clusters_missing_data: frozenset[str] = frozenset()

    def mutes(self, notification: Notification) -> bool:
        """Whether a notification is muted now.

        Quiet hours do not mute critical alerts. Missing data inhibits only alerts that are computed from that data.
        """
        quiet_hours = self.quiet_hours.get(notification.rule)
        if quiet_hours is not None and notification.severity != "critical" and quiet_hours.contains(self.now):
            return True
        if (
            KINDS_BY_NAME[notification.rule_kind].is_inhibited_by_missing_data
            and notification.subject.cluster in self.clusters_missing_data
        ):
            return True
        return any(
            silence.is_active(self.now) and silence.matches(notification.rule, notification.subject)
            for silence in self.silences
        )


def current_muting(
    settings: SettingsDocument, silences: Sequence[Silence], groups: Iterable[AlertGroup], now: datetime
) -> Muting:
    """Collect what mutes notifications now, from the settings, the silences and the firing data alerts."""
    rules = settings.alerts.rules_by_name()
    quiet_hours = {
        name: hours for name, rule in rules.items() if (hours := _quiet_hours(settings.alerts, rule)) is not None
    }
    clusters_missing_data = {
        alert.subject.cluster
        for group in groups
        for alert in group.alerts
        if alert.rule in rules
        and alert.phase == "firing"
        and alert.subject.detail in rules[alert.rule].details_of_missing_data
    }
    active_silences = [silence for silence in silences if silence.is_active(now)]
    return Muting(now, quiet_hours, active_silences, frozenset(clusters_missing_data))


def time_zone_of(alerts: AlertSettings, rule: Rule) -> tzinfo:
    """Return a rule's time zone, or UTC if this machine does not have it."""
    name = rule.time_zone or alerts.time_zone
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        logger.warning("unknown time zone: using UTC", time_zone=name)
        return UTC


def _quiet_hours(alerts: AlertSettings, rule: Rule) -> QuietHours | None:
    settings = rule.quiet_hours or alerts.quiet_hours
    if settings is None:
        return None
    return QuietHours(*settings.times(), time_zone_of(alerts, rule), settings.weekends)


def drop_alerts_resolved_while_muted(outbox: Iterable[OutboxEntry], muting: Muting) -> tuple[OutboxEntry, ...]:
    """Leave out alerts that were muted when they fired and have resolved since: their receiver never saw them."""
    entries = tuple(outbox)
    unsent: set[tuple[str, str, Subject]] = set()
    dropped: set[int] = set()
    indexes: dict[tuple[str, str, Subject], list[int]] = {}
    for index, (receiver, notification) in enumerate(entries):
        key = (receiver, *notification.alert_key)
        if notification.event == "firing":
            unsent.add(key)
            indexes[key] = [index]
        elif notification.event == "repeat" and key in unsent:
            indexes[key].append(index)
        elif notification.event == "resolved" and key in unsent and muting.mutes(entries[indexes[key][0]].notification):
            dropped |= {*indexes.pop(key), index}
            unsent.discard(key)
    return tuple(entry for index, entry in enumerate(entries) if index not in dropped)


def is_repeat_due(notified_at: datetime | None, now: datetime, interval: timedelta | None) -> bool:
    """Whether a firing alert has to be sent again."""
    return notified_at is not None and interval is not None and now - notified_at >= interval
