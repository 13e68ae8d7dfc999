"""Caches metrics that the ledger does not hold, by whole UTC days.

These are GPU memory of pods, pods that waited for GPUs, and the latency of inference servers' requests. Each day is
queried once and stored. Recommendations do without days that are not available.
"""

from collections.abc import Callable, Sized
from datetime import datetime
from typing import Generic, TypeVar

from gpucost.core.errors import SourceError
from gpucost.core.hours import floor_day
from gpucost.core.rollups import DAY
from gpucost.features.recommendations.history import PodLatency, PodWait
from gpucost.features.recommendations.ports import MemoryReaderFactory, WaitingPodsReaderFactory
from gpucost.features.recommendations.sources import latency_reader
from gpucost.features.recommendations.storage import DynamoGpuMemory, DynamoRequestLatency, DynamoWaitingPods
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.observability import logger
from gpucost.settings import ClusterSettings
from gpucost.settings.inference import InferenceSettings
from gpucost.storage.ports import Clock

RETENTION = 40 * DAY
"""A little longer than the look-back."""
MAX_ROWS = 30_000
"""Rows of a day that are kept. A look-back of 30 such days takes 270 MB; clusters have fewer GPU pods a day."""
DayMetrics = TypeVar("DayMetrics", bound=Sized)


class DailyMetricsCache(Generic[DayMetrics]):
    """Queries the days that are not stored yet.

    Args:
        metric_name: the name of the metric in logs.
        reader: makes the function that queries a cluster's metrics for a day.
        load: the stored days in `[start, end)` of a cluster, by its name.
        save: stores a cluster's day until a time.
        clock: the current time.
    """

    def __init__(
        self,
        metric_name: str,
        reader: Callable[[ClusterSettings, Deadline | None], Callable[[datetime], DayMetrics]],
        load: Callable[[str, datetime, datetime], dict[datetime, DayMetrics]],
        save: Callable[[str, datetime, DayMetrics, datetime], None],
        *,
        clock: Clock,
    ) -> None:
        self._metric_name = metric_name
        self._reader = reader
        self._load = load
        self._save = save
        self._clock = clock

    def days(
        self, cluster: ClusterSettings, start: datetime, end: datetime, deadline: Deadline | None = None
    ) -> dict[datetime, DayMetrics]:
        """The whole UTC days of `[start, end)`, without those that are not available.

        Days are queried newest first. The first failure ends it, because older days would most likely fail too. A day
        with more than `MAX_ROWS` rows is left out, because its samples cannot be trusted and would fill the memory.

        Raises:
            SourceError: the store failed.
        """
        first, last = floor_day(start), floor_day(end)
        if first < start:
            first += DAY
        days = self._load(cluster.name, first, last)
        read_day = self._reader(cluster, deadline)
        day = last - DAY
        while day >= first:
            if day not in days:
                try:
                    rows = read_day(day)
                except SourceError as error:
                    self._warn(cluster, str(error))
                    break
                if len(rows) <= MAX_ROWS:
                    days[day] = rows
                    self._save(cluster.name, day, rows, self._clock() + RETENTION)
                else:
                    self._warn(cluster, f"{day:%Y-%m-%d} has {len(rows)} rows; at most {MAX_ROWS} are kept")
            day -= DAY
        return days

    def _warn(self, cluster: ClusterSettings, reason: str) -> None:
        logger.warning("a metric is not available", metric=self._metric_name, cluster=cluster.name, reason=reason)


def gpu_memory_cache(
    create_reader: MemoryReaderFactory, store: DynamoGpuMemory, *, clock: Clock
) -> DailyMetricsCache[dict[tuple[str, str], float]]:
    """The cache of GPU memory peaks by pod."""

    def peaks(
        cluster: ClusterSettings, deadline: Deadline | None
    ) -> Callable[[datetime], dict[tuple[str, str], float]]:
        return create_reader(cluster, deadline).peaks

    return DailyMetricsCache("GPU memory", peaks, store.memory, store.put_memory, clock=clock)


def waiting_pods_cache(
    create_reader: WaitingPodsReaderFactory, store: DynamoWaitingPods, *, clock: Clock
) -> DailyMetricsCache[list[PodWait]]:
    """The cache of pods that waited for GPUs."""

    def waits(cluster: ClusterSettings, deadline: Deadline | None) -> Callable[[datetime], list[PodWait]]:
        return create_reader(cluster, deadline).waits

    return DailyMetricsCache("pods waiting for GPUs", waits, store.waits, store.put_waits, clock=clock)


def request_latency_cache(
    inference: InferenceSettings, store: DynamoRequestLatency, *, clock: Clock
) -> DailyMetricsCache[list[PodLatency]]:
    """The cache of the latency of inference servers' requests."""
    reader = latency_reader(inference)
    return DailyMetricsCache("request latency", reader, store.latencies, store.put_latencies, clock=clock)
