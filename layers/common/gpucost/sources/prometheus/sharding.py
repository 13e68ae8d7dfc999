"""Splits queries whose responses would be too large: first into fewer hours, then into fewer series."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain
from threading import Event

from gpucost.core.errors import MetricsTooLargeError
from gpucost.core.hours import HOUR
from gpucost.sources.prometheus.client import PrometheusClient, Series
from gpucost.sources.prometheus.memory_budget import MemoryBudget, derived_size, raw_samples_size
from gpucost.sources.prometheus.queries import Queries, make_shards

CONCURRENT_QUERIES = 2
"""The server evaluates one while the other's response is read. More would only load the workspace."""
SHARD_COUNTS = (4, 12, 36)
"""Numbers of shards that a query's series are divided into, tried in order until the responses are small enough."""

QueryBuilder = Callable[[Queries], str]
KeptSize = Callable[[Sequence[Series]], int]


class ShardedClient:
    """Sends a cluster's queries, in shards where necessary, and remembers the number of shards that each query needs.

    Args:
        client: of the cluster's Prometheus.
        queries: the cluster's queries.
        budget: the client's budget, charged with what is built from its responses.
    """

    def __init__(self, client: PrometheusClient, queries: Queries, budget: MemoryBudget) -> None:
        self._client = client
        self._queries = queries
        self._budget = budget
        self._shard_counts: dict[str, int] = {}

    def query_hours(self, builders: Mapping[str, QueryBuilder], hours: Sequence[datetime]) -> dict[str, list[Series]]:
        """Evaluate queries at the ends of consecutive hours. After a failure, no further query is started.

        Raises:
            MetricsUnavailableError, MetricsResponseError: see `PrometheusClient`. `MetricsTooLargeError` if even the
                smallest shard of one hour is too large.
        """
        ends = [hour + HOUR for hour in hours]
        failed = Event()

        def evaluate(name: str) -> list[Series]:
            if failed.is_set():
                raise CancelledError
            try:
                return self._evaluate(name, builders[name], ends)
            except BaseException:
                failed.set()
                raise

        with ThreadPoolExecutor(CONCURRENT_QUERIES) as pool:
            try:  # an interruption can come while queries are being started
                futures = {name: pool.submit(evaluate, name) for name in builders}
                wait(futures.values(), return_when=FIRST_EXCEPTION)
            except BaseException:  # Ctrl-C: cancel queries that are under way
                failed.set()
                self._client.cancel("interrupted")
                raise
        errors = [error for future in futures.values() if (error := future.exception()) is not None]
        if not errors:
            return {name: future.result() for name, future in futures.items()}
        try:
            raise next((error for error in errors if not isinstance(error, CancelledError)), errors[0])
        finally:
            del futures, errors  # else they and the error keep each other alive

    def query_at(self, builders: Mapping[str, QueryBuilder], at_ms: int) -> dict[str, list[Series]]:
        """Evaluate queries at one time, in milliseconds."""
        time = datetime.fromtimestamp(at_ms / 1000, UTC)
        return {name: self._evaluate(name, build, [time]) for name, build in builders.items()}

    @contextmanager
    def raw_samples(
        self, selector: str, start: datetime, end: datetime, kept_size: KeptSize = raw_samples_size
    ) -> Iterator[list[Series]]:
        """Every sample of a selector's series in `(start, end]`, read in halves if the response is too large.

        The list is empty after the block.

        Args:
            selector: of the series.
            start: before the first sample.
            end: of the last sample.
            kept_size: the bytes of what is built from the series and kept.
        """
        with self._budget.release_at_end():
            series = self._raw_samples(selector, start, end)
            kept = kept_size(series)
            try:
                yield series
            finally:
                series.clear()  # the caller's variable refers to it until the next response is read
        self._budget.charge(kept)

    @contextmanager
    def temporary_samples(self, selector: str, start: datetime, end: datetime) -> Iterator[list[Series]]:
        """Raw samples as in `raw_samples`, of which nothing is kept after the block."""
        with self.raw_samples(selector, start, end, lambda _: 0) as series:
            yield series

    def check_scrapes(self, count: int) -> None:
        """Refuse scrape times that do not fit into memory.

        Raises:
            HoursTooLargeError: they are too many.
        """
        self._budget.check_scrapes(count)

    def _raw_samples(self, selector: str, start: datetime, end: datetime) -> list[Series]:
        try:
            return self._client.raw_samples(selector, start, end)
        except MetricsTooLargeError:
            if end - start < HOUR / 4:
                raise
        # Not in the handler above: there the error would keep the response that was too large.
        middle = start + (end - start) / 2
        merged: dict[frozenset[tuple[str, str]], Series] = {}
        for labels, samples in (*self._raw_samples(selector, start, middle), *self._raw_samples(selector, middle, end)):
            key = frozenset(labels.items())
            earlier = merged[key].samples if key in merged else ()
            merged[key] = Series(labels, (*earlier, *samples))
        return list(merged.values())

    def _evaluate(self, name: str, build: QueryBuilder, ends: Sequence[datetime]) -> list[Series]:
        count = self._shard_counts.get(name, 1)
        try:
            if count == 1:
                series = self._client.query_range(build(self._queries), ends[0], ends[-1])
            else:
                series_by_shard = [
                    self._client.query_range(build(self._queries.for_shard(shard)), ends[0], ends[-1])
                    for shard in make_shards(count)
                ]
                series = list(chain.from_iterable(series_by_shard))
        except MetricsTooLargeError:
            finer = next((shard_count for shard_count in SHARD_COUNTS if shard_count > count), None)
            if len(ends) == 1 and finer is None:
                raise
        else:
            self._budget.charge(derived_size(name, series))
            return series
        # Not in the handler above: there the error would keep the response that was too large.
        if len(ends) > 1:
            middle = len(ends) // 2
            return [*self._evaluate(name, build, ends[:middle]), *self._evaluate(name, build, ends[middle:])]
        self._shard_counts[name] = finer or SHARD_COUNTS[-1]
        return self._evaluate(name, build, ends)
