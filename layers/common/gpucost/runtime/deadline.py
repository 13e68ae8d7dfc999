"""The time that a piece of work has left."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from typing import TypeVar

_TICK_SECONDS = 0.5
"""How often work that is under way looks at its deadline, which can be moved up."""
Result = TypeVar("Result")


class Deadline:
    """The moment at which work must have ended.

    One object reaches every query, retry and wait of a message.

    Args:
        seconds: from now on.
        within: a deadline that this one never outlasts.
    """

    def __init__(self, seconds: float, *, within: "Deadline | None" = None) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._within = within
        self._ended = Event()
        self.reason = ""
        """Why it was ended early."""

    def remaining(self) -> float:
        """Seconds left; 0 once it has passed."""
        own = 0.0 if self._ended.is_set() else max(0.0, self._end - time.monotonic())
        return own if self._within is None else min(own, self._within.remaining())

    def has_passed(self) -> bool:
        """Whether nothing may be started any more."""
        return self.remaining() <= 0

    def cancel(self, reason: str) -> None:
        """Let it pass now: what it was for has failed, and trying on would only take time."""
        if not self._ended.is_set():
            self.reason = reason
            self._ended.set()

    def wait(self, seconds: float) -> None:
        """Do nothing for a time, or until the deadline is ended."""
        self._ended.wait(min(seconds, self.remaining()))


def run_within(deadline: Deadline, work: Callable[[], Result]) -> Result:
    """Do work that cannot be given a time limit, such as name resolution; it is left behind when time is up.

    Raises:
        TimeoutError: it did not end in time.
    """
    outcome: Future[Result] = Future()

    def run() -> None:
        try:
            outcome.set_result(work())
        except BaseException as error:
            outcome.set_exception(error)

    Thread(target=run, daemon=True).start()
    while not outcome.done():
        if deadline.has_passed():
            raise TimeoutError
        try:
            return outcome.result(min(_TICK_SECONDS, deadline.remaining()))
        except TimeoutError:
            continue  # of this wait, or of the work itself, which `result` raises once more
    return outcome.result()
