"""When people are told: quiet hours, silences, inhibition. What is held is told later, if it is still true then."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta, tzinfo
from fnmatch import fnmatchcase

from gpucost.features.alerting.model import OutboxEntry, Notification, Subject

INHIBITED_BY_MISSING_DATA = frozenset({"waste", "idle-workload", "unallocated", "spend-change"})


@dataclass(frozen=True, slots=True)
class QuietHours:
    """A part of the day, in a time zone, in which nobody is disturbed; it may go over midnight."""

    begin: time
    end: time
    zone: tzinfo
    weekends: bool = False
    """Saturday and Sunday as a whole, too."""

    def contains(self, now: datetime) -> bool:
        """Whether a moment lies in it."""
        local = now.astimezone(self.zone)
        if self.weekends and local.isoweekday() > 5:  # noqa: PLR2004 - Friday
            return True
        at = local.time().replace(tzinfo=None)
        if self.begin <= self.end:
            return self.begin <= at < self.end
        return at >= self.begin or at < self.end


@dataclass(frozen=True, slots=True)
class Silence:
    """Somebody wants to hear nothing of some alerts until an end."""

    id: str
    author: str
    comment: str
    starts_at: datetime
    ends_at: datetime
    matchers: Mapping[str, str]
    """Patterns as in a shell by field: `rule` or one of a subject's; all must match."""

    def is_active(self, now: datetime) -> bool:
        """Whether it holds now."""
        return self.starts_at <= now < self.ends_at

    def matches(self, rule: str, subject: Subject) -> bool:
        """Whether an alert is meant."""
        known = {"rule": rule, **subject._asdict()}
        return all(fnmatchcase(known.get(name, ""), pattern) for name, pattern in self.matchers.items())


@dataclass(frozen=True, slots=True)
class Muting:
    """Why notifications may have to wait, at one moment."""

    now: datetime
    quiet_hours: Mapping[str, QuietHours]
    """By rule."""
    silences: Sequence[Silence] = ()
    clusters_missing_data: frozenset[str] = frozenset()
    """Clusters whose data is missing."""

    def mutes(self, notification: Notification) -> bool:
        """Whether a notification waits. Critical ones do not wait for morning; news of missing data inhibit nothing
        but what is computed from that data."""
        quiet = self.quiet_hours.get(notification.rule)
        if quiet is not None and notification.severity != "critical" and quiet.contains(self.now):
            return True
        if notification.kind in INHIBITED_BY_MISSING_DATA and notification.subject.cluster in self.clusters_missing_data:
            return True
        return any(
            silence.is_active(self.now) and silence.matches(notification.rule, notification.subject)
            for silence in self.silences
        )


def drop_alerts_resolved_while_muted(outbox: Iterable[OutboxEntry], hold: Muting) -> tuple[OutboxEntry, ...]:
    """Without the alerts that a receiver was never told of and that are over: held when they fired, resolved now."""
    entries = tuple(outbox)
    untold: set[tuple[str, str, Subject]] = set()
    dropped: set[int] = set()
    waiting: dict[tuple[str, str, Subject], list[int]] = {}
    for place, (receiver, news) in enumerate(entries):
        key = (receiver, *news.alert_key)
        if news.event == "firing":
            untold.add(key)
            waiting[key] = [place]
        elif news.event == "repeat" and key in untold:
            waiting[key].append(place)
        elif news.event == "resolved" and key in untold and hold.mutes(entries[waiting[key][0]].notification):
            dropped |= {*waiting.pop(key), place}
            untold.discard(key)
    return tuple(entry for place, entry in enumerate(entries) if place not in dropped)


def is_repeat_due(told_at: datetime | None, now: datetime, every: timedelta | None) -> bool:
    """Whether a firing alert is to be said again."""
    return told_at is not None and every is not None and now - told_at >= every
