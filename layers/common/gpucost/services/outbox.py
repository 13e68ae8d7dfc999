"""Delivery of decided notifications: once each, in order, one receiver's failure not delaying the others."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from gpucost.domain.alerting import AlertState, Notification
from gpucost.errors import ConflictError, SourceError
from gpucost.observability import logger
from gpucost.ports import AlertStates, Clock, Notifier

LEASE = timedelta(seconds=55)
"""How long one delivery may take; shorter than Lambda's first retry (60 s), which finds the lease expired."""
TRIES = 20
Entry = tuple[str, Notification]


class Outbox:
    """Empties the outboxes of alert states.

    Attributes:
        failures: why a receiver could not be told, by its name; it is not tried again by this object.
    """

    def __init__(self, states: AlertStates, receivers: Mapping[str, Notifier], clock: Clock) -> None:
        self._states = states
        self._receivers = receivers
        self._clock = clock
        self.failures: dict[str, str] = {}

    def deliver(self, cluster: str) -> None:
        """Send whatever a cluster's states hold, unless somebody else is at it."""
        for state in self._states.load(cluster):
            claimed = self._claim(state)
            if claimed is not None:
                self._empty(claimed)

    def _claim(self, state: AlertState) -> AlertState | None:
        now = self._clock()
        if not state.outbox or (state.sending_until is not None and state.sending_until > now):
            return None
        try:
            return self._states.save(replace(state, sending_until=now + LEASE))
        except ConflictError:
            return None  # whoever wrote first delivers

    def _empty(self, state: AlertState) -> None:
        """Send entry by entry; each that is delivered is out of the stored outbox before the next is sent."""
        while (entry := self._next(state)) is not None:
            state = self._settle(state, entry if self._send(entry) else None)

    def _next(self, state: AlertState) -> Entry | None:
        return next((entry for entry in state.outbox if entry[0] not in self.failures), None)

    def _send(self, entry: Entry) -> bool:
        receiver, notification = entry
        notifier = self._receivers.get(receiver)
        if notifier is None:
            logger.warning("a receiver is no longer in the settings; its message is dropped", receiver=receiver)
            return True
        try:
            notifier.send(notification)
        except SourceError as error:
            logger.warning("a receiver could not be told", receiver=receiver, notification=notification.id)
            self.failures[receiver] = str(error)
            return False
        return True

    def _settle(self, state: AlertState, done: Entry | None) -> AlertState:
        """Store the outbox without what is done; the lease goes on while there is more that can be sent.

        Others may have added entries meanwhile: they come back with the state and are this delivery's to send.
        """
        for _ in range(TRIES):
            outbox = tuple(entry for entry in state.outbox if done is None or _key(entry) != _key(done))
            rest = replace(state, outbox=outbox)
            lease = self._clock() + LEASE if self._next(rest) is not None else None
            try:
                return self._states.save(replace(rest, sending_until=lease))
            except ConflictError:
                stored = self._reload(state)
                if stored is None:
                    return replace(state, outbox=())
                state = stored
        raise ConflictError(f"the outbox of {state.business_unit!r} in {state.cluster!r} changed {TRIES} times")

    def _reload(self, state: AlertState) -> AlertState | None:
        stored = self._states.load(state.cluster)
        return next((s for s in stored if (s.rule, s.business_unit) == (state.rule, state.business_unit)), None)


def _key(entry: Entry) -> tuple[str, str]:
    return entry[0], entry[1].id
