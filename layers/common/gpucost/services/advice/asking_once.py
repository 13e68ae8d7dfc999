"""What the ledger lacks and metrics know, by whole UTC days: GPU memory of pods, and who waited for GPUs.

Each day is asked once and kept; what cannot be had is left out, and advice goes without it.
"""

from collections.abc import Callable
from datetime import datetime
from typing import TypeVar

from gpucost.advice_ports import MemoryReaders, MemoryStore, WaitingReaders, WaitingStore
from gpucost.domain.advice.history import Wait
from gpucost.domain.hours import floor_day
from gpucost.domain.rollups import DAY
from gpucost.errors import SourceError
from gpucost.observability import logger
from gpucost.ports import Clock
from gpucost.settings import ClusterSettings

KEPT = 40 * DAY
"""A little longer than advice looks back."""
Day = TypeVar("Day")


class MemoryKeeper:
    """Asks for the memory peaks that are not known yet.

    Args:
        readers: of each cluster's metrics.
        store: where days are kept.
        clock: the time now.
    """

    def __init__(self, readers: MemoryReaders, store: MemoryStore, *, clock: Clock) -> None:
        self._clock = clock
        self._readers = readers
        self._store = store

    def memory(
        self, cluster: ClusterSettings, start: datetime, end: datetime
    ) -> dict[datetime, dict[tuple[str, str], float]]:
        """The whole UTC days of `[start, end)`; days that cannot be had are missing, and advice goes without them.

        Raises:
            SourceError: the store failed.
        """
        first, last = _whole_days(start, end)
        found = self._store.memory(cluster.name, first, last)

        def keep(day: datetime, peaks: dict[tuple[str, str], float]) -> None:
            self._store.put_memory(cluster.name, day, peaks, self._clock() + KEPT)

        return _ask("GPU memory", cluster, found, first, last, self._readers(cluster).peaks, keep)


class WaitingKeeper:
    """Asks for the days of which it is not known yet who waited.

    Args:
        readers: of each cluster's metrics.
        store: where days are kept.
        clock: the time now.
    """

    def __init__(self, readers: WaitingReaders, store: WaitingStore, *, clock: Clock) -> None:
        self._clock = clock
        self._readers = readers
        self._store = store

    def waits(self, cluster: ClusterSettings, start: datetime, end: datetime) -> dict[datetime, list[Wait]]:
        """The whole UTC days of `[start, end)`; days that cannot be had are missing, and advice goes without them.

        Raises:
            SourceError: the store failed.
        """
        first, last = _whole_days(start, end)
        found = self._store.waits(cluster.name, first, last)

        def keep(day: datetime, waits: list[Wait]) -> None:
            self._store.put_waits(cluster.name, day, waits, self._clock() + KEPT)

        return _ask("who waited for GPUs", cluster, found, first, last, self._readers(cluster).waits, keep)


def _whole_days(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    return -(-(start - floor_day(start)) // DAY) * DAY + floor_day(start), floor_day(end)


def _ask(
    what: str,
    cluster: ClusterSettings,
    found: dict[datetime, Day],
    first: datetime,
    last: datetime,
    ask: Callable[[datetime], Day],
    keep: Callable[[datetime, Day], None],
) -> dict[datetime, Day]:
    """Ask for what is missing, newest first; the first failure ends it, for what is older is no easier to have."""
    day = last - DAY
    while day >= first:
        if day not in found:
            try:
                found[day] = ask(day)
            except SourceError as error:
                logger.warning("metrics do not tell", what=what, cluster=cluster.name, reason=str(error))
                break
            keep(day, found[day])
        day -= DAY
    return found
