"""Delivery of outboxes: one message per receiver and group, each sent once; a failing receiver delays no other.

A notification that cannot be turned into a message, or that its receiver refuses for good, is set aside in the
dead-letter queue, which has an alarm. It delays no other notification.

After a receiver failed, notifications that matter no more are left out. They leave the outbox
together with the message whose note says so.

A message is sent and then removed from the stored outbox before the next message is sent. A crash between the two
repeats that one message, and loses none. Receivers that recognize duplicates (the history, Alertmanager) show it once.
Slack webhooks and SNS email have no such key.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from gpucost.core.errors import ConflictError, SourceError
from gpucost.core.hours import format_timestamp
from gpucost.features.alerting.model import AlertGroup, OutboxEntry
from gpucost.features.alerting.muting import Muting, drop_alerts_resolved_while_muted
from gpucost.features.alerting.ports import AlertStateStore, Notifier, RefusedMessageError
from gpucost.features.alerting.scope_update import HISTORY_RECEIVER
from gpucost.runtime.observability import logger
from gpucost.storage.ports import Clock

SetAside = Callable[[OutboxEntry, str], None]
"""Sends an entry that can never be delivered to the dead-letter queue, with the reason; raises `SourceError`."""
LEASE = timedelta(seconds=55)
"""How long one delivery may take. It expires before Lambda's first retry, after 60 s."""
MAX_SAVE_ATTEMPTS = 20
MAX_SET_ASIDE = 10
"""How many notifications of a receiver one delivery sets aside. A receiver that refuses more is left alone until the
next one: it probably refuses everything, which takes time."""


class _Message(NamedTuple):
    """The entries of a message to one receiver, and the stale entries that its note stands for."""

    entries: tuple[OutboxEntry, ...]
    stale_entries: tuple[OutboxEntry, ...] = ()

    @property
    def receiver(self) -> str:
        return self.entries[0].receiver


class _Outcome(NamedTuple):
    """Which entries leave the outbox, and the receiver that got a message, if any."""

    removed: tuple[OutboxEntry, ...] = ()
    reached_receiver: str | None = None


class Delivery:
    """Sends the outboxes of alert groups.

    Args:
        state_store: where groups are stored.
        notifiers: by receiver key.
        muting: what mutes notifications now.
        set_aside: takes an entry that can never be delivered.
        clock: the time now.

    Attributes:
        failures: why a receiver failed, by its key. This object does not try it again.
    """

    def __init__(
        self,
        state_store: AlertStateStore,
        notifiers: Mapping[str, Notifier],
        muting: Muting,
        set_aside: SetAside,
        clock: Clock,
    ) -> None:
        self._state_store = state_store
        self._notifiers = notifiers
        self._muting = muting
        self._set_aside = set_aside
        self._clock = clock
        self._unbatched_receivers: set[str] = set()
        """Receivers with an entry that cannot be sent. Their entries are sent one by one, to find it."""
        self._set_aside_counts: Counter[str] = Counter()
        self.failures: dict[str, str] = {}

    def deliver(self, groups: Iterable[AlertGroup]) -> None:
        """Send what may be sent now. Groups that another process delivers or has written since are skipped."""
        for group in groups:
            leased_group = self._take_lease(group)
            if leased_group is not None:
                self._send_all(leased_group)

    def _take_lease(self, group: AlertGroup) -> AlertGroup | None:
        now = self._clock()
        if not group.outbox or (group.delivery_lease_until is not None and group.delivery_lease_until > now):
            return None
        current = self._mark_failures(self._drop_resolved_while_muted(group))
        lease = now + LEASE if self._next_message(current) else None
        if current == group and lease is None:
            return None
        try:
            saved = self._state_store.save_group(replace(current, delivery_lease_until=lease))
        except ConflictError:
            return None  # the other writer delivers
        return saved if lease else None

    def _drop_resolved_while_muted(self, group: AlertGroup) -> AlertGroup:
        """Drop messages about alerts that were muted when they fired and have resolved; the history keeps them."""
        messages = (entry for entry in group.outbox if entry.receiver != HISTORY_RECEIVER)
        kept_keys = {_entry_key(entry) for entry in drop_alerts_resolved_while_muted(messages, self._muting)}
        outbox = tuple(
            entry for entry in group.outbox if entry.receiver == HISTORY_RECEIVER or _entry_key(entry) in kept_keys
        )
        return group if outbox == group.outbox else replace(group, outbox=outbox)

    def _mark_failures(self, group: AlertGroup, reached_receiver: str | None = None) -> AlertGroup:
        """Store since when receivers with messages in the outbox fail."""
        failed_since = {receiver: since for receiver, since in group.failed_since if receiver != reached_receiver}
        waiting = {entry.receiver for entry in group.outbox}
        for receiver in self.failures:
            failed_since.setdefault(receiver, self._clock())
        marks = sorted((receiver, since) for receiver, since in failed_since.items() if receiver in waiting)
        return group if tuple(marks) == group.failed_since else replace(group, failed_since=tuple(marks))

    def _send_all(self, group: AlertGroup) -> None:
        """Send message by message; each delivered one leaves the stored outbox before the next is sent."""
        while message := self._next_message(group):
            group = self._save_outcome(group, self._send(message))

    def _next_message(self, group: AlertGroup) -> _Message | None:
        """Return the next message: all that one receiver may get now, as far as it fits."""
        ready = [
            entry
            for entry in group.outbox
            if entry.receiver not in self.failures
            and (entry.receiver == HISTORY_RECEIVER or not self._muting.mutes(entry.notification))
        ]
        if not ready:
            return None
        receiver = ready[0].receiver
        notifier = self._notifiers.get(receiver)
        entries = tuple(entry for entry in ready if entry.receiver == receiver)
        if notifier is None:
            return _Message(entries)
        stale: tuple[OutboxEntry, ...] = ()
        failed_since = dict(group.failed_since).get(receiver)
        if failed_since is not None and receiver != HISTORY_RECEIVER:
            entries, stale = _leave_out_stale(entries, failed_since, sends_all_resolved=notifier.needs_resend)
        if receiver in self._unbatched_receivers:
            return _Message(entries[:1], stale)
        return _Message(entries[: notifier.batch_size([entry.notification for entry in entries])], stale)

    def _send(self, message: _Message) -> _Outcome:
        """Send a message."""
        receiver, first = message.receiver, message.entries[0]
        notifier = self._notifiers.get(receiver)
        if notifier is None:
            logger.warning("receiver is no longer in the settings: its message is dropped", receiver=receiver)
            return _Outcome(message.entries)
        try:
            notifier.send([entry.notification for entry in message.entries])
        except SourceError as error:
            logger.warning("notification failed", receiver=receiver, notification=first.notification.id)
            self.failures[receiver] = str(error)
            return _Outcome()
        except Exception as error:  # receivers report their failures as SourceError: it would fail each time
            if len(message.entries) > 1:
                self._unbatched_receivers.add(receiver)
                return _Outcome()
            reason = str(error) if isinstance(error, RefusedMessageError) else f"{type(error).__name__}: {error}"
            return _Outcome((first,) if self._try_to_set_aside(first, reason) else ())
        return _Outcome((*message.entries, *message.stale_entries), receiver)

    def _try_to_set_aside(self, entry: OutboxEntry, reason: str) -> bool:
        self._set_aside_counts[entry.receiver] += 1
        if self._set_aside_counts[entry.receiver] > MAX_SET_ASIDE:
            self.failures[entry.receiver] = reason
            return False
        logger.exception("a notification cannot be sent", receiver=entry.receiver, notification=entry.notification.id)
        try:
            self._set_aside(entry, reason)
        except SourceError as error:
            self.failures[entry.receiver] = str(error)
            return False
        return True

    def _save_outcome(self, group: AlertGroup, outcome: _Outcome) -> AlertGroup:
        """Store the outbox without the removed entries, and keep the lease while there is more to send.

        Entries that other writers added meanwhile are returned with the group, and this delivery sends them.
        """
        removed_keys = {_entry_key(entry) for entry in outcome.removed}
        for _ in range(MAX_SAVE_ATTEMPTS):
            outbox = tuple(entry for entry in group.outbox if _entry_key(entry) not in removed_keys)
            rest = self._mark_failures(replace(group, outbox=outbox), outcome.reached_receiver)
            lease = self._clock() + LEASE if self._next_message(rest) else None
            try:
                return self._state_store.save_group(replace(rest, delivery_lease_until=lease))
            except ConflictError:
                stored = self._reload_group(group)
                if stored is None:
                    return replace(group, outbox=())
                group = stored
        raise ConflictError(f"the outbox of {group.owner!r} in {group.scope!r} changed {MAX_SAVE_ATTEMPTS} times")

    def _reload_group(self, group: AlertGroup) -> AlertGroup | None:
        groups = self._state_store.load(group.scope).groups
        return next((stored for stored in groups if stored.owner == group.owner), None)


def _entry_key(entry: OutboxEntry) -> tuple[str, str]:
    return entry.receiver, entry.notification.id


def _leave_out_stale(
    entries: Sequence[OutboxEntry], failed_since: datetime, *, sends_all_resolved: bool
) -> tuple[tuple[OutboxEntry, ...], tuple[OutboxEntry, ...]]:
    """Return the entries to send, and the stale ones, which leave the outbox with the first message.

    Of each alert, only the newest entry is sent, and none if the alert fired and resolved since the failure. If all
    entries are stale, the newest one is sent. The first entry to send says in its note how many are left out.

    Args:
        entries: a receiver's entries, oldest first.
        failed_since: time of the first failure.
        sends_all_resolved: whether the receiver may know firing alerts from elsewhere, so that it must learn of their
            end.
    """
    newest = {entry.notification.alert_key: entry.notification for entry in entries}
    oldest = {entry.notification.alert_key: entry.notification for entry in reversed(entries)}

    def is_current(entry: OutboxEntry) -> bool:
        notification, key = entry.notification, entry.notification.alert_key
        is_over = notification.event == "resolved" and oldest[key].event == "firing"
        return notification is newest[key] and (sends_all_resolved or not is_over)

    current = [entry for entry in entries if is_current(entry)] or list(entries[-1:])
    kept = {id(entry) for entry in current}
    stale = tuple(entry for entry in entries if id(entry) not in kept)
    if stale:
        current[0] = _add_note(current[0], _note_on_stale(len(stale), failed_since))
    return tuple(current), stale


def _note_on_stale(count: int, failed_since: datetime) -> str:
    left_out = "1 older notification is" if count == 1 else f"{count} older notifications are"
    return (
        f"messages to this receiver failed from {format_timestamp(failed_since)} on. {left_out} left out, because the "
        "alerts have resolved or were notified again; the alert history has them"
    )


def _add_note(entry: OutboxEntry, note: str) -> OutboxEntry:
    notes = filter(None, (entry.notification.note, note))
    return entry._replace(notification=replace(entry.notification, note="; ".join(notes)))
