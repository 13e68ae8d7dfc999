"""Asking in parts where a whole answer would be too large: fewer hours first, then fewer series at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, CancelledError, ThreadPoolExecutor, wait
from contextlib import contextmanager
from datetime import UTC, datetime
from threading import Event

from gpucost.core.errors import MetricsTooLargeError
from gpucost.core.hours import HOUR
from gpucost.sources.prometheus import shards
from gpucost.sources.prometheus.client import PrometheusClient, Series
from gpucost.sources.prometheus.memory_budget import MemoryBudget, derived_size, raw_samples_size
from gpucost.sources.prometheus.queries import Queries

CONCURRENT_QUERIES = 2
"""One is read while the next is worked on; more would only press on the workspace."""
SHARD_COUNTS = (4, 12, 36)
"""Into how many parts a query's series are divided, one after the other, until answers fit."""

QueryBuilder = Callable[[Queries], str]


class ShardedClient:
    """Asks a cluster's queries, in parts where that is needed; what was found out for a query is kept for the next.

    Args:
        client: asks the cluster's Prometheus.
        queries: the cluster's.
        budget: the client's; what is built of its answers is counted here.
    """

    def __init__(self, client: PrometheusClient, queries: Queries, budget: MemoryBudget) -> None:
        self._client = client
        self._queries = queries
        self._budget = budget
        self._parts: dict[str, int] = {}

    def query_hours(self, asked: Mapping[str, QueryBuilder], hours: Sequence[datetime]) -> dict[str, list[Series]]:
        """Evaluate queries at the ends of consecutive hours. After the first that fails, none is started.

        Raises:
            MetricsUnavailableError, MetricsAnswerError: as the client; `MetricsTooLargeError` where even the smallest
                part of one hour is too large.
        """
        ends = [hour + HOUR for hour in hours]
        failed = Event()

        def evaluate(name: str) -> list[Series]:
            if failed.is_set():
                raise CancelledError
            try:
                return self._evaluate(name, asked[name], ends)
            except BaseException:
                failed.set()
                raise

        with ThreadPoolExecutor(CONCURRENT_QUERIES) as pool:
            answers = {name: pool.submit(evaluate, name) for name in asked}
            try:
                wait(answers.values(), return_when=FIRST_EXCEPTION)
            except BaseException:  # Ctrl-C: what is under way is broken off
                failed.set()
                self._client.end("interrupted")
                raise
        errors = [error for answer in answers.values() if (error := answer.exception()) is not None]
        if not errors:
            return {name: answer.result() for name, answer in answers.items()}
        try:
            raise next((error for error in errors if not isinstance(error, CancelledError)), errors[0])
        finally:
            del answers, errors  # else they and the error keep each other

    def query_at(self, asked: Mapping[str, QueryBuilder], at_ms: int) -> dict[str, list[Series]]:
        """Evaluate queries at one moment, in milliseconds."""
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        return {name: self._evaluate(name, ask, [moment]) for name, ask in asked.items()}

    def raw_samples(self, selector: str, start: datetime, end: datetime) -> list[Series]:
        """Every sample of a selector's series in `(start, end]`; in halves of the time where that is too much."""
        series = self._raw_samples(selector, start, end)
        self._budget.charge(raw_samples_size(series))
        return series

    @contextmanager
    def temporary_samples(self, selector: str, start: datetime, end: datetime) -> Iterator[list[Series]]:
        """Raw samples, as `raw_samples`, of which nothing is kept after the block."""
        with self._budget.temporary():
            yield self._raw_samples(selector, start, end)

    def check_scrapes(self, count: int) -> None:
        """Refuse scrape times that there is no memory for.

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
        # Not in the handler above: there the error would keep the answer that was too large.
        middle = start + (end - start) / 2
        merged: dict[frozenset[tuple[str, str]], Series] = {}
        for one in (*self._raw_samples(selector, start, middle), *self._raw_samples(selector, middle, end)):
            key = frozenset(one.labels.items())
            before = merged[key].samples if key in merged else ()
            merged[key] = Series(one.labels, (*before, *one.samples))
        return list(merged.values())

    def _evaluate(self, name: str, ask: QueryBuilder, ends: Sequence[datetime]) -> list[Series]:
        count = self._parts.get(name, 1)
        try:
            if count == 1:
                series = self._client.query_range(ask(self._queries), ends[0], ends[-1])
            else:
                answers = [
                    self._client.query_range(ask(self._queries.for_shard(part)), ends[0], ends[-1])
                    for part in shards.make_shards(count)
                ]
                series = [one for answer in answers for one in answer]
        except MetricsTooLargeError:
            finer = next((parts for parts in SHARD_COUNTS if parts > count), None)
            if len(ends) == 1 and finer is None:
                raise
        else:
            self._budget.charge(derived_size(name, series))
            return series
        # Not in the handler above: there the error would keep the answer that was too large.
        if len(ends) > 1:
            half = len(ends) // 2
            return [*self._evaluate(name, ask, ends[:half]), *self._evaluate(name, ask, ends[half:])]
        self._parts[name] = finer or SHARD_COUNTS[-1]
        return self._evaluate(name, ask, ends)
