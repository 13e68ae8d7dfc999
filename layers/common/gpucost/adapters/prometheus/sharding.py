"""Asking in parts where a whole answer would be too large: fewer hours first, then fewer series at a time."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

from gpucost.adapters.prometheus import shards
from gpucost.adapters.prometheus.client import PrometheusClient, Series
from gpucost.adapters.prometheus.queries import Queries
from gpucost.domain.hours import HOUR
from gpucost.errors import MetricsTooLargeError

QUERIES_AT_ONCE = 2
"""One is read while the next is worked on; more would only press on the workspace."""
PARTS = (4, 12, 36)
"""Into how many parts a query's series are divided, one after the other, until answers fit."""

Ask = Callable[[Queries], str]


class ShardedClient:
    """Asks a cluster's queries, in parts where that is needed; what was found out for a query is kept for the next."""

    def __init__(self, client: PrometheusClient, queries: Queries) -> None:
        self._client = client
        self._queries = queries
        self._parts: dict[str, int] = {}

    def at_hours(self, asked: Mapping[str, Ask], hours: Sequence[datetime]) -> dict[str, list[Series]]:
        """Evaluate queries at the ends of consecutive hours.

        Raises:
            MetricsUnavailableError, MetricsAnswerError: as the client; `MetricsTooLargeError` where even the smallest
                part of one hour is too large.
        """
        ends = [hour + HOUR for hour in hours]
        with ThreadPoolExecutor(QUERIES_AT_ONCE) as pool:
            results = pool.map(lambda name: self._evaluate(name, asked[name], ends), asked)
            return dict(zip(asked, results, strict=True))

    def at_moment(self, asked: Mapping[str, Ask], at_ms: int) -> dict[str, list[Series]]:
        """Evaluate queries at one moment, in milliseconds."""
        moment = datetime.fromtimestamp(at_ms / 1000, UTC)
        return {name: self._evaluate(name, ask, [moment]) for name, ask in asked.items()}

    def raw_samples(self, selector: str, start: datetime, end: datetime) -> list[Series]:
        """Every sample of a selector's series in `(start, end]`; in halves of the time where that is too much."""
        try:
            return self._client.raw_samples(selector, start, end)
        except MetricsTooLargeError:
            if end - start < HOUR / 4:
                raise
            middle = start + (end - start) / 2
            merged: dict[frozenset[tuple[str, str]], Series] = {}
            for one in (*self.raw_samples(selector, start, middle), *self.raw_samples(selector, middle, end)):
                key = frozenset(one.labels.items())
                before = merged[key].samples if key in merged else ()
                merged[key] = Series(one.labels, (*before, *one.samples))
            return list(merged.values())

    def _evaluate(self, name: str, ask: Ask, ends: Sequence[datetime]) -> list[Series]:
        count = self._parts.get(name, 1)
        try:
            if count == 1:
                return self._client.query_range(ask(self._queries), ends[0], ends[-1])
            answers = [
                self._client.query_range(ask(self._queries.of_shard(part)), ends[0], ends[-1])
                for part in shards.parts(count)
            ]
            return [one for answer in answers for one in answer]
        except MetricsTooLargeError:
            if len(ends) > 1:
                half = len(ends) // 2
                return [*self._evaluate(name, ask, ends[:half]), *self._evaluate(name, ask, ends[half:])]
            finer = next((parts for parts in PARTS if parts > count), None)
            if finer is None:
                raise
            self._parts[name] = finer
            return self._evaluate(name, ask, ends)
