"""GPU memory of pods by day: asked of the metrics once, kept, and left out where it cannot be had."""

from datetime import datetime

from gpucost.advice_ports import MemoryReaders, MemoryStore
from gpucost.domain.hours import floor_day
from gpucost.domain.rollups import DAY
from gpucost.errors import SourceError
from gpucost.observability import logger
from gpucost.ports import Clock
from gpucost.settings import ClusterSettings

KEPT = 40 * DAY
"""A little longer than advice looks back."""


class MemoryKeeper:
    """Asks for what is not known yet.

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
        first = -(-(start - floor_day(start)) // DAY) * DAY + floor_day(start)
        last = floor_day(end)
        found = self._store.memory(cluster.name, first, last)
        reader = self._readers(cluster)
        day = last - DAY
        while day >= first:
            if day not in found:
                try:
                    found[day] = reader.peaks(day)
                except SourceError as error:
                    logger.warning("GPU memory is not known", cluster=cluster.name, reason=str(error))
                    break
                self._store.put_memory(cluster.name, day, found[day], self._clock() + KEPT)
            day -= DAY
        return found
