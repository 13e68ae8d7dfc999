"""`gpucost doctor` as a page of `gpucost serve`: the command's report of now, which reads the metrics again."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from threading import Lock
from typing import Any

from gpucost_cli.doctor import ClusterReport, render

MAX_AGE = timedelta(seconds=30)
"""Several pages share a report of this age, so that reloading them does not query Prometheus each time."""


class ServedDoctor:
    """Answers the report.

    Args:
        examine: examines all clusters at a time.
        arguments: the options of the command that prints the same report.
        clock: returns the current time.
    """

    def __init__(
        self, examine: Callable[[datetime], Sequence[ClusterReport]], arguments: str, clock: Callable[[], datetime]
    ) -> None:
        self._examine = examine
        self._arguments = arguments
        self._clock = clock
        self._lock = Lock()
        self._document: dict[str, Any] = {}
        self._examined_at: datetime | None = None

    def document(self) -> dict[str, Any]:
        """Return what `gpucost doctor --format json` prints, with the time and the command.

        Raises:
            InvalidInputError: the settings contain a placeholder of an example.
        """
        with self._lock:
            now = self._clock()
            if self._examined_at is None or not timedelta() <= now - self._examined_at < MAX_AGE:
                self._document = {
                    "examined_at": now.replace(microsecond=0),
                    "command": f"gpucost doctor {self._arguments}".rstrip(),
                    **render.reports_document(self._examine(now)),
                }
                self._examined_at = now
            return self._document
