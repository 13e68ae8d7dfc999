"""Deadlines for work that consists of several requests."""

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread
from typing import TypeVar

_POLL_SECONDS = 0.5
"""How often running work checks its deadline, which can be canceled."""
Result = TypeVar("Result")


class Deadline:
    """The time at which work must end. All queries, retries and waits for a message share one deadline.

    Args:
        seconds: time from now.
        within: another deadline that also applies.
    """

    def __init__(self, seconds: float, *, within: "Deadline | None" = None) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds
        self._within = within
        self._ended = Event()
        self.cancel_reason = ""
        """Why the deadline was canceled."""

    def remaining(self) -> float:
        """Seconds left; 0 after the deadline."""
        remaining = 0.0 if self._ended.is_set() else max(0.0, self._end - time.monotonic())
        return remaining if self._within is None else min(remaining, self._within.remaining())

    def has_passed(self) -> bool:
        """Whether no further work may be started."""
        return self.remaining() <= 0

    def cancel(self, reason: str) -> None:
        """End the work now, because it has failed and further attempts would only take time."""
        if not self._ended.is_set():
            self.cancel_reason = reason
            self._ended.set()

    def wait(self, seconds: float) -> None:
        """Sleep for some seconds, at most until the deadline or until it is canceled."""
        self._ended.wait(min(seconds, self.remaining()))


def run_within(deadline: Deadline, work: Callable[[], Result]) -> Result:
    """Run work that has no timeout of its own, such as name resolution. When time is up, it is abandoned.

    Raises:
        TimeoutError: the work did not end in time.
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
            return outcome.result(min(_POLL_SECONDS, deadline.remaining()))
        except TimeoutError:
            continue  # of this wait, or of the work itself, which `result` raises once more
    return outcome.result()
