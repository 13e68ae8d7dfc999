"""The advise function's job where something goes wrong, and what it asks of prices and memory."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpucost.core.errors import MetricsUnavailableError, SourceError
from gpucost.core.ledger import Manifest
from gpucost.core.pricing.prices import Price
from gpucost.features.recommendations.daily_cache import MAX_ROWS, RETENTION, gpu_memory_cache, waiting_pods_cache
from gpucost.features.recommendations.history import Disruption, Wait
from gpucost.features.recommendations.model import Recommendation, Review
from gpucost.features.recommendations.price_lists import node_list_prices, node_spot_prices
from gpucost.features.recommendations.service import RecommendationService
from gpucost.features.recommendations.storage.gpu_memory import DynamoGpuMemory
from gpucost.features.recommendations.storage.waiting_pods import DynamoWaitingPods
from gpucost.runtime.messages import RecommendationsDue
from gpucost.settings import ClusterSettings
from gpucost.settings_document import parse_settings
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings
from gpucost.storage.price_book import PriceStore
from gpucost.storage.price_types import PricesInForce
from tests.conftest import DynamoTable

NOW = datetime(2026, 11, 16, 4, 10, tzinfo=UTC)
DAY = timedelta(days=1)
TEXT = """
clusters:
  - {name: a, prometheus: {url: "http://127.0.0.1:9"}}
  - {name: b, prometheus: {url: "http://127.0.0.1:9"}}
  - {name: c, prometheus: {url: "http://127.0.0.1:9"}}
pricing: {source: constant, gpu_hourly_usd: 1}
"""
SETTINGS = parse_settings(TEXT)


def price(source: str, amount: str, since: int = 0, **applies_to: str) -> Price:
    return Price(source, "node-hour", Decimal(amount), applies_to, "USD", NOW - DAY * since)  # type: ignore[arg-type]


class Book:
    def __init__(self, prices: list[Price]) -> None:
        self._prices = prices
        self.readings = 0

    def newest(self, source: str) -> list[Price]:
        return [one for one in self._prices if one.source == source]

    def in_force(self, start: datetime, end: datetime, *, sources: Any = None) -> PricesInForce:
        assert sources == {"spot"}
        self.readings += 1
        return PricesInForce(self._prices)


def test_list_prices_of_several_regions_are_no_list_price_unless_they_agree() -> None:
    book = Book([
        price("on-demand", "1.0", instance_type="g5.xlarge", region="us-east-1"),
        price("on-demand", "1.2", instance_type="g5.xlarge", region="eu-west-1"),
        price("on-demand", "7.0", instance_type="p5.4xlarge", region="us-east-1"),
        price("spot", "3.0", instance_type="p5.4xlarge", region="us-east-1", zone="a"),
        Price("on-demand", "node-hour", Decimal(9), {"instance_type": "g6.xlarge"}, "CNY"),
    ])  # fmt: skip
    assert node_list_prices(book) == {"p5.4xlarge": 7.0}


def test_spot_is_the_mean_over_time_in_the_zone_that_is_dearest_on_average(table: DynamoTable) -> None:
    """Zone a: $1.20 for the last of ten days, $0.50 before. Zone b: $0.60 all along."""
    book = PriceStore(table.client, table.name)
    applies = {"instance_type": "g5.xlarge", "region": "r", "product": "Linux/UNIX"}
    prices = [
        Price("spot", "node-hour", Decimal(usd), {**applies, "zone": zone}, "USD", NOW - DAY * since)
        for zone, usd, since in (("a", "0.50", 12), ("a", "1.20", 1), ("b", "0.60", 12))
    ]
    book.replace("spot", prices, since=NOW - DAY * 12, rated_until=NOW, now=NOW)
    ten = node_spot_prices(book, NOW - DAY * 10, NOW)
    assert [*ten] == ["g5.xlarge"]
    assert tuple(ten["g5.xlarge"]) == pytest.approx((0.6, 0.6, 0.6)), "zone b: a costs 0.57"
    five = node_spot_prices(book, NOW - DAY * 5, NOW)
    assert tuple(five["g5.xlarge"]) == pytest.approx(((4 * 0.5 + 1.2) / 5, 0.5, 1.2)), "zone a"


class Memory:
    """Answers of Prometheus, by day; days before the first are not there."""

    def __init__(self, first: datetime) -> None:
        self.first = first
        self.asked: list[datetime] = []

    def __call__(self, cluster: ClusterSettings, _deadline: object = None) -> "Memory":
        assert cluster in SETTINGS.clusters
        return self

    def peaks(self, day: datetime) -> dict[tuple[str, str], float]:
        self.asked.append(day)
        if day < self.first:
            raise MetricsUnavailableError("unreachable")
        return {("ns", "p"): 2.0**30}


class Kept(DynamoGpuMemory):
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


def test_whole_days_are_queried_once_and_failures_do_not_stop_the_review() -> None:
    start, end = NOW - 10 * DAY, NOW
    midnight = NOW.replace(hour=0, minute=0)
    metrics, store = Memory(midnight - 4 * DAY), Kept()
    memory = gpu_memory_cache(metrics, store, clock=lambda: NOW)
    found = memory.days(SETTINGS.clusters[0], start, end)
    assert sorted(found) == [midnight - DAY * number for number in (4, 3, 2, 1)]
    assert metrics.asked == [midnight - DAY * number for number in (1, 2, 3, 4, 5)], (
        "newest first, one failure is enough"
    )
    assert store.expires == {NOW + RETENTION}
    metrics.asked.clear()
    metrics.first = midnight - 30 * DAY
    found = memory.days(SETTINGS.clusters[0], start, end)
    assert metrics.asked == [midnight - DAY * number for number in (5, 6, 7, 8, 9)]
    assert min(found) == midnight - 9 * DAY, "the day that the look-back only begins in is not whole"


class CrowdedMemory:
    """Reports more pods on one day than a cluster can have."""

    def __call__(self, _cluster: ClusterSettings, _deadline: object = None) -> "CrowdedMemory":
        return self

    def peaks(self, day: datetime) -> dict[tuple[str, str], float]:
        pods = MAX_ROWS + 1 if day == NOW.replace(hour=0, minute=0) - 2 * DAY else 1
        return {("ns", f"pod-{number}"): 1.0 for number in range(pods)}


def test_day_with_too_many_pods_is_left_out_and_not_stored() -> None:
    midnight, store = NOW.replace(hour=0, minute=0), Kept()
    cache = gpu_memory_cache(CrowdedMemory(), store, clock=lambda: NOW)
    days = cache.days(SETTINGS.clusters[0], midnight - 3 * DAY, NOW)
    assert sorted(days) == sorted(store.days) == [midnight - 3 * DAY, midnight - DAY]


class Waits:
    """No pod waits."""

    def __call__(self, cluster: ClusterSettings, _deadline: object = None) -> "Waits":
        assert cluster in SETTINGS.clusters
        return self

    def waits(self, *_: object) -> Any:
        raise MetricsUnavailableError("unreachable")


class NoDays(DynamoWaitingPods):
    def __init__(self) -> None:
        pass

    def waits(self, *_: object) -> dict[datetime, list[Wait]]:
        return {}

    def put_waits(self, *_: object) -> None:
        raise AssertionError("nobody told anything that could be kept")


class Silent:
    """Karpenter's metrics cannot be had."""

    def __call__(self, cluster: ClusterSettings, _deadline: object = None) -> "Silent":
        assert cluster in SETTINGS.clusters
        return self

    def week(self, _end: datetime) -> Disruption:
        raise MetricsUnavailableError("unreachable")


class SmallLedger(Ledger):
    """Clusters with one hour each; one of them is broken."""

    def __init__(self, broken: str) -> None:
        self.read: list[str] = []
        self._broken = broken

    def latest(self, cluster: str) -> Manifest | None:
        return Manifest(cluster, NOW - DAY, "complete", 1, "1-a", 1, None, 0, None, NOW)

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        self.read.append(cluster)
        if cluster == self._broken:
            raise SourceError("the table is throttled")
        return [Manifest(cluster, NOW.replace(minute=0) - DAY, "complete", 1, "1-a", 1, None, 0, None, NOW)]

    def uses_of(self, _manifest: Manifest) -> list[Any]:
        return []

    def nodes_of(self, _manifest: Manifest) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return (), ()


class Reviews:
    def __init__(self) -> None:
        self.kept: dict[str, Review] = {}

    def recommendations(self, _cluster: str) -> list[Recommendation]:
        return []

    def review(self, cluster: str) -> Review | None:
        return self.kept.get(cluster)

    def put_review(self, review: Review) -> None:
        self.kept[review.cluster] = review


class Store:
    def current(self) -> StoredSettings:
        return StoredSettings(1, TEXT, SETTINGS, "test", NOW)


def service(ledger: Ledger, reviews: Reviews, at: datetime = NOW, book: Book | None = None) -> RecommendationService:
    memory = gpu_memory_cache(Memory(at), Kept(), clock=lambda: at)
    waiting = waiting_pods_cache(Waits(), NoDays(), clock=lambda: at)
    settings_store: Any = Store()
    store: Any = reviews
    prices = book or Book([])
    return RecommendationService(settings_store, ledger, store, prices, memory, waiting, Silent(), clock=lambda: at)


def test_the_price_book_is_read_once_for_all_clusters() -> None:
    book, reviews = Book([]), Reviews()
    found = service(SmallLedger("nobody"), reviews, book=book).review_clusters(
        RecommendationsDue(scheduled_time=NOW), lambda: 900
    )
    assert found is not None
    assert book.readings == 1
    assert sorted(reviews.kept) == ["a", "b", "c"]


def test_a_cluster_that_fails_does_not_hold_up_the_others() -> None:
    ledger, reviews = SmallLedger("b"), Reviews()
    found = service(ledger, reviews).review_clusters(RecommendationsDue(scheduled_time=NOW), lambda: 900)
    assert found is not None
    assert found.failures == ["b: the table is throttled"]
    assert reviews.kept.keys() == {"a", "c"}


def test_next_run_starts_with_clusters_left_for_lack_of_time() -> None:
    ledger, reviews = SmallLedger(""), Reviews()
    first = service(ledger, reviews).review_clusters(RecommendationsDue(scheduled_time=NOW), lambda: 10)
    assert first is not None
    assert (ledger.read, first.clusters_left) == (["a"], 2)
    service(ledger, reviews, NOW + DAY).review_clusters(RecommendationsDue(scheduled_time=NOW + DAY), lambda: 10)
    assert ledger.read == ["a", "b"]


def test_an_older_review_does_not_replace_a_newer_one(table: DynamoTable) -> None:
    from gpucost.features.recommendations.storage.recommendations import DynamoRecommendations

    store = DynamoRecommendations(table.client, table.name)
    newer = Review("a", NOW - DAY, NOW, NOW, 24, (), ())
    store.put_review(newer)
    store.put_review(Review("a", NOW - DAY, NOW, NOW - DAY, 1, (), ()))
    assert store.review("a") == newer
    assert store.review("b") is None


@pytest.mark.parametrize("size", [10, 6000])
def test_reviews_of_any_size_are_stored_whole_and_leave_no_piece_behind(table: DynamoTable, size: int) -> None:
    import random

    from gpucost.features.recommendations.model import RecommendationSubject, WorkloadAssessment
    from gpucost.features.recommendations.storage.recommendations import DynamoRecommendations

    chance = random.Random(1)
    names = [f"{chance.getrandbits(400):x}" for _ in range(size)]
    judged = tuple(
        WorkloadAssessment(RecommendationSubject("a", "u", "n", "Job", name), "idle", Decimal(1), None, None, "why")
        for name in names
    )
    store = DynamoRecommendations(table.client, table.name)
    for at, own in ((0, judged), (1, judged[:3])):
        review = Review("a", NOW - DAY, NOW, NOW + DAY * at, 24, (), own)
        store.put_review(review)
        assert store.review("a") == review
