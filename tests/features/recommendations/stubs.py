"""Stubs of the recommendation service's stores and metrics, and the settings of three clusters."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from gpucost.core.errors import MetricsUnavailableError, SourceError
from gpucost.core.hour_record import CompactLine, HourRecord
from gpucost.core.hours import HOUR
from gpucost.core.ledger import Manifest
from gpucost.core.pricing.prices import Price
from gpucost.features.recommendations.history import KarpenterDisruption, PodWait
from gpucost.features.recommendations.model import Recommendation, Review
from gpucost.features.recommendations.review_service import ReviewService, gpu_memory_cache, waiting_pods_cache
from gpucost.features.recommendations.storage import DynamoGpuMemory, DynamoWaitingPods
from gpucost.runtime.messages import RecommendationsDue
from gpucost.settings import ClusterSettings
from gpucost.settings_document import parse_settings
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings
from gpucost.storage.price_book import PricesInForce
from tests.features.recommendations import simulated_fleet as sim
from tests.records import compact_line_of

NOW = datetime(2026, 11, 16, 4, 10, tzinfo=UTC)
DAY = timedelta(days=1)
SETTINGS_TEXT = """
clusters:
  - {name: a, prometheus: {url: "http://127.0.0.1:9"}}
  - {name: b, prometheus: {url: "http://127.0.0.1:9"}}
  - {name: c, prometheus: {url: "http://127.0.0.1:9"}}
pricing: {source: constant, gpu_hourly_usd: 1}
"""
SETTINGS = parse_settings(SETTINGS_TEXT)


def price(source: str, amount: str, days_ago: int = 0, **applies_to: str) -> Price:
    return Price(source, "node-hour", Decimal(amount), applies_to, "USD", NOW - DAY * days_ago)  # type: ignore[arg-type]


class FakePriceBook:
    def __init__(self, prices: list[Price]) -> None:
        self._prices = prices
        self.read_count = 0

    def newest(self, source: str) -> list[Price]:
        return [price for price in self._prices if price.source == source]

    def in_force(self, start: datetime, end: datetime, *, sources: Any = None) -> PricesInForce:
        assert sources == {"spot"}
        self.read_count += 1
        return PricesInForce(self._prices)


class FakeGpuMemoryMetrics:
    """Peaks by day; days before the first are unavailable."""

    def __init__(self, first: datetime) -> None:
        self.first = first
        self.queried_days: list[datetime] = []

    def __call__(self, cluster: ClusterSettings, _deadline: object = None) -> "FakeGpuMemoryMetrics":
        assert cluster in SETTINGS.clusters
        return self

    def peaks(self, day: datetime) -> dict[tuple[str, str], float]:
        self.queried_days.append(day)
        if day < self.first:
            raise MetricsUnavailableError("unreachable")
        return {("ns", "p"): 2.0**30}


class InMemoryGpuMemory(DynamoGpuMemory):
    def __init__(self) -> None:
        self.days: dict[datetime, dict[tuple[str, str], float]] = {}
        self.expires: set[datetime] = set()

    def put_memory(
        self, cluster: str, day: datetime, peaks: Mapping[tuple[str, str], float], expires_at: datetime
    ) -> None:
        assert cluster in {"a", "b", "c"}
        self.days[day] = dict(peaks)
        self.expires.add(expires_at)

    def memory(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, dict[tuple[str, str], float]]:
        assert cluster in {"a", "b", "c"}
        return {day: peaks for day, peaks in self.days.items() if start <= day < end}


class UnreachableWaitingPods:
    """Metrics of waiting pods are unavailable."""

    def __call__(self, cluster: ClusterSettings, _deadline: object = None) -> "UnreachableWaitingPods":
        assert cluster in SETTINGS.clusters
        return self

    def waits(self, *_: object) -> Any:
        raise MetricsUnavailableError("unreachable")


class EmptyWaitingPods(DynamoWaitingPods):
    def __init__(self) -> None:
        pass

    def waits(self, *_: object) -> dict[datetime, list[PodWait]]:
        return {}

    def put_waits(self, *_: object) -> None:
        raise AssertionError("there is nothing to store")


class UnreachableKarpenter:
    """Karpenter's metrics are unavailable."""

    def __call__(self, cluster: ClusterSettings, _deadline: object = None) -> "UnreachableKarpenter":
        assert cluster in SETTINGS.clusters
        return self

    def week(self, _end: datetime) -> KarpenterDisruption:
        raise MetricsUnavailableError("unreachable")


class SmallLedger(Ledger):
    """Clusters with a single hour each; reads of one of them fail."""

    def __init__(self, failing: str) -> None:
        self.read: list[str] = []
        self._broken = failing

    def newest_published_hour(self, cluster: str) -> Manifest | None:
        return Manifest(cluster, NOW - DAY, "complete", 1, "1-a", 1, None, 0, None, NOW)

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        self.read.append(cluster)
        if cluster == self._broken:
            raise SourceError("the table is throttled")
        return [Manifest(cluster, NOW.replace(minute=0) - DAY, "complete", 1, "1-a", 1, None, 0, None, NOW)]

    def compact_lines_of(self, _manifest: Manifest) -> list[Any]:
        return []

    def nodes_and_charges_of(self, _manifest: Manifest) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (), ()


class InMemoryReviews:
    def __init__(self) -> None:
        self.by_cluster: dict[str, Review] = {}

    def recommendations(self, _cluster: str) -> list[Recommendation]:
        return []

    def review(self, cluster: str) -> Review | None:
        return self.by_cluster.get(cluster)

    def put_review(self, review: Review) -> None:
        self.by_cluster[review.cluster] = review


class SettingsStub:
    def __init__(self, stored: StoredSettings | None = None) -> None:
        self._stored = stored or StoredSettings(1, SETTINGS_TEXT, SETTINGS, "test", NOW)

    def current(self) -> StoredSettings:
        return self._stored


class SimulatedLedger(Ledger):
    """Hours of a simulated fleet."""

    def __init__(self, records: Sequence[HourRecord]) -> None:
        self._records = {record.hour: record for record in records}
        self._compact_lines: dict[datetime, list[CompactLine]] = {}

    def newest_published_hour(self, cluster: str) -> Manifest | None:
        return self._manifest(cluster, max(self._records))

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        return [self._manifest(cluster, hour) for hour in sorted(self._records) if start <= hour < end]

    def compact_lines_of(self, manifest: Manifest) -> list[CompactLine]:
        """Many nights read an hour, so it is converted once."""
        if manifest.hour not in self._compact_lines:
            self._compact_lines[manifest.hour] = [compact_line_of(line) for line in self._records[manifest.hour].lines]
        return self._compact_lines[manifest.hour]

    def nodes_and_charges_of(self, manifest: Manifest) -> tuple[Any, Any]:
        return self._records[manifest.hour].nodes, ()

    def _manifest(self, cluster: str, hour: datetime) -> Manifest:
        currency = self._records[hour].currency
        return Manifest(cluster, hour, "complete", 1, "1-a", 1, None, 0, None, hour + HOUR, currency=currency)


class InMemoryRecommendations(InMemoryReviews):
    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, Recommendation] = {}

    def recommendations(self, _cluster: str) -> list[Recommendation]:
        return list(self.rows.values())

    def put(self, recommendation: Recommendation) -> Recommendation:
        self.rows[recommendation.id] = recommendation
        return recommendation


def nightly(
    records: Sequence[HourRecord],
    days: Sequence[int],
    settings: SettingsStub | None = None,
    karpenter: Any = None,
    book: FakePriceBook | None = None,
    latency: Any = None,
) -> list[dict[str, Recommendation]]:
    """The stored recommendations after the run at the end of each day."""
    store, nights = InMemoryRecommendations(), []
    ledger = SimulatedLedger(records)
    for day in days:
        now = sim.START + timedelta(days=day)

        def clock(now: datetime = now) -> datetime:
            return now

        memory = gpu_memory_cache(FakeGpuMemoryMetrics(now), InMemoryGpuMemory(), clock=clock)
        waiting = waiting_pods_cache(UnreachableWaitingPods(), EmptyWaitingPods(), clock=clock)
        stored: Any = settings or SettingsStub()
        prices = book or FakePriceBook([])
        service = ReviewService(
            stored,
            ledger,
            store,
            prices,
            memory,
            waiting,
            karpenter or UnreachableKarpenter(),
            latency=latency,
            clock=clock,
            time_zone=lambda: stored.current().settings.alerts.time_zone,  # noqa: B023 - called within the iteration
        )
        service.review_clusters(RecommendationsDue(scheduled_time=now, cluster="a"), lambda: 900)
        nights.append(dict(store.rows))
    return nights
