"""Delivery of what was decided: a receiver's messages of a book together, each once, one's failure delaying no other.

A message is sent, then struck off the stored book, before the next one is sent: a crash between the two repeats that
one message, and nothing is ever lost. Where a receiver takes the same thing twice for one (the history, Alertmanager),
nothing is repeated; Slack's webhooks and SNS email know no such key.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import timedelta

from gpucost.core.errors import ConflictError, SourceError
from gpucost.features.alerting.scope_update import HISTORY
from gpucost.features.alerting.model import AlertGroup, OutboxEntry
from gpucost.features.alerting.ports import AlertStates, Notifier
from gpucost.features.alerting.muting import Muting, drop_alerts_resolved_while_muted
from gpucost.runtime.observability import logger
from gpucost.storage.ports import Clock

LEASE = timedelta(seconds=55)
"""How long one delivery may take; shorter than Lambda's first retry (60 s), which finds the lease expired."""
TRIES = 20


class Delivery:
    """Empties the outboxes of books.

    Args:
        memory: where they are stored.
        receivers: who is told, by stable name.
        hold: what has to wait.
        clock: the time now.

    Attributes:
        failures: why a receiver could not be told, by its name; it is not tried again by this object.
    """

    def __init__(self, memory: AlertStates, receivers: Mapping[str, Notifier], hold: Muting, clock: Clock) -> None:
        self._memory = memory
        self._receivers = receivers
        self._hold = hold
        self._clock = clock
        self.failures: dict[str, str] = {}

    def deliver(self, books: Iterable[AlertGroup]) -> None:
        """Send what books hold and may be sent now, unless somebody else is at it, or wrote since they were read."""
        for book in books:
            claimed = self._claim(book)
            if claimed is not None:
                self._empty(claimed)

    def _claim(self, book: AlertGroup) -> AlertGroup | None:
        now = self._clock()
        if not book.outbox or (book.delivery_lease_until is not None and book.delivery_lease_until > now):
            return None
        wanted = self._without_what_is_over(book)
        if wanted == book and not self._next(book):
            return None
        try:
            return self._memory.save_group(replace(wanted, delivery_lease_until=now + LEASE))
        except ConflictError:
            return None  # whoever wrote first delivers

    def _without_what_is_over(self, book: AlertGroup) -> AlertGroup:
        """What was held when it fired and is over now, nobody is told of; the history is."""
        people = drop_alerts_resolved_while_muted((entry for entry in book.outbox if entry.receiver != HISTORY), self._hold)
        kept = {_key(entry) for entry in people}
        outbox = tuple(entry for entry in book.outbox if entry.receiver == HISTORY or _key(entry) in kept)
        return book if outbox == book.outbox else replace(book, outbox=outbox)

    def _empty(self, book: AlertGroup) -> None:
        """Send message by message; each that is delivered is out of the stored outbox before the next is sent."""
        while batch := self._next(book):
            book = self._settle(book, batch if self._send(batch) else ())

    def _next(self, book: AlertGroup) -> tuple[OutboxEntry, ...]:
        """What goes into the next message: all that one receiver may be told now, as far as it fits."""
        ready = [
            entry
            for entry in book.outbox
            if entry.receiver not in self.failures
            and (entry.receiver == HISTORY or not self._hold.mutes(entry.notification))
        ]
        if not ready:
            return ()
        receiver = ready[0].receiver
        notifier = self._receivers.get(receiver)
        own = tuple(entry for entry in ready if entry.receiver == receiver)
        return own[: notifier.max_batch_size] if notifier else own

    def _send(self, batch: tuple[OutboxEntry, ...]) -> bool:
        receiver = batch[0].receiver
        notifier = self._receivers.get(receiver)
        if notifier is None:
            logger.warning("a receiver is no longer in the settings; its message is dropped", receiver=receiver)
            return True
        try:
            notifier.send([entry.notification for entry in batch])
        except SourceError as error:
            logger.warning("a receiver could not be told", receiver=receiver, notification=batch[0].notification.id)
            self.failures[receiver] = str(error)
            return False
        return True

    def _settle(self, book: AlertGroup, done: tuple[OutboxEntry, ...]) -> AlertGroup:
        """Store the outbox without what is done; the lease goes on while there is more that can be sent.

        Others may have added entries meanwhile: they come back with the book and are this delivery's to send.
        """
        finished = {_key(entry) for entry in done}
        for _ in range(TRIES):
            rest = replace(book, outbox=tuple(entry for entry in book.outbox if _key(entry) not in finished))
            lease = self._clock() + LEASE if self._next(rest) else None
            try:
                return self._memory.save_group(replace(rest, delivery_lease_until=lease))
            except ConflictError:
                stored = self._reload(book)
                if stored is None:
                    return replace(book, outbox=())
                book = stored
        raise ConflictError(f"the outbox of {book.owner!r} in {book.scope!r} changed {TRIES} times")

    def _reload(self, book: AlertGroup) -> AlertGroup | None:
        return next((one for one in self._memory.load(book.scope).groups if one.owner == book.owner), None)


def _key(entry: OutboxEntry) -> tuple[str, str]:
    return entry.receiver, entry.notification.id
