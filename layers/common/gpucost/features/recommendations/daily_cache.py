"""What the ledger lacks and metrics know, by whole UTC days: GPU memory of pods, and who waited for GPUs.

Each day is asked once and kept; what cannot be had is left out, and advice goes without it.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Generic, TypeVar

from gpucost.core.errors import SourceError
from gpucost.core.hours import floor_day
from gpucost.core.rollups import DAY
from gpucost.features.recommendations.history import Wait
from gpucost.features.recommendations.ports import MemoryReaders, MemoryStore, WaitingPodsReaders, WaitingPodsStore
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.observability import logger
from gpucost.settings import ClusterSettings
from gpucost.storage.ports import Clock

KEPT = 40 * DAY
"""A little longer than advice looks back."""
Day = TypeVar("Day")


class DailyCache(Generic[Day]):
    """Asks for the days that are not known yet.

    Args:
        what: is asked for, as logs name it.
        ask: a cluster's metrics for a day.
        known: the days in `[start, end)` that were kept of a cluster, by its name.
        keep: a cluster's day until a time.
        clock: the time now.
    """

    def __init__(
        self,
        what: str,
        ask: Callable[[ClusterSettings, Deadline | None], Callable[[datetime], Day]],
        known: Callable[[str, datetime, datetime], dict[datetime, Day]],
        keep: Callable[[str, datetime, Day, datetime], None],
        *,
        clock: Clock,
    ) -> None:
        self._what = what
        self._ask = ask
        self._known = known
        self._keep = keep
        self._clock = clock

    def days(
        self, cluster: ClusterSettings, start: datetime, end: datetime, deadline: Deadline | None = None
    ) -> dict[datetime, Day]:
        """The whole UTC days of `[start, end)`; days that cannot be had are missing, and advice goes without them.

        They are asked for newest first, and the first failure ends it: what is older is no easier to have.

        Raises:
            SourceError: the store failed.
        """
        first, last = floor_day(start), floor_day(end)
        if first < start:
            first += DAY
        found = self._known(cluster.name, first, last)
        ask = self._ask(cluster, deadline)
        day = last - DAY
        while day >= first:
            if day not in found:
                try:
                    found[day] = ask(day)
                except SourceError as error:
                    logger.warning("metrics do not tell", what=self._what, cluster=cluster.name, reason=str(error))
                    break
                self._keep(cluster.name, day, found[day], self._clock() + KEPT)
            day -= DAY
        return found


def gpu_memory_cache(
    readers: MemoryReaders, store: MemoryStore, *, clock: Clock
) -> DailyCache[dict[tuple[str, str], float]]:
    """Keeps the most bytes that pods used of any GPU."""

    def peaks(
        cluster: ClusterSettings, deadline: Deadline | None
    ) -> Callable[[datetime], dict[tuple[str, str], float]]:
        return readers(cluster, deadline).peaks

    return DailyCache("GPU memory", peaks, store.memory, store.put_memory, clock=clock)


def waiting_pods_cache(readers: WaitingPodsReaders, store: WaitingPodsStore, *, clock: Clock) -> DailyCache[list[Wait]]:
    """Keeps who waited for GPUs."""

    def waits(cluster: ClusterSettings, deadline: Deadline | None) -> Callable[[datetime], list[Wait]]:
        return readers(cluster, deadline).waits

    return DailyCache("who waited for GPUs", waits, store.waits, store.put_waits, clock=clock)
