"""Messages that became stale while their receiver could not be reached: a note in the next message stands for them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from gpucost.core.hours import format_timestamp
from gpucost.features.alerting.model import OutboxEntry


def leave_out_stale(
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
        current[0] = _add_note(current[0], _note(len(stale), failed_since))
    return tuple(current), stale


def _note(count: int, failed_since: datetime) -> str:
    left_out = "1 older notification is" if count == 1 else f"{count} older notifications are"
    return (
        f"messages to this receiver failed from {format_timestamp(failed_since)} on. {left_out} left out, because the "
        "alerts have resolved or were notified again; the alert history has them"
    )


def _add_note(entry: OutboxEntry, note: str) -> OutboxEntry:
    notes = filter(None, (entry.notification.note, note))
    return entry._replace(notification=replace(entry.notification, note="; ".join(notes)))
