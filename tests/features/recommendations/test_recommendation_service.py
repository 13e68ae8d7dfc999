"""The recommendation service when a source fails, and its queries of prices and GPU memory."""

from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from gpucost.core.pricing.prices import Price
from gpucost.features.recommendations.model import Review
from gpucost.features.recommendations.review_service import (
    CACHE_RETENTION,
    MAX_ROWS_OF_DAY,
    ReviewService,
    gpu_memory_cache,
    node_list_prices,
    node_spot_prices,
    waiting_pods_cache,
)
from gpucost.runtime.messages import RecommendationsDue
from gpucost.settings import ClusterSettings
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from gpucost.storage.price_book import PriceStore
from tests.features.recommendations.stubs import (
    DAY,
    NOW,
    SETTINGS,
    EmptyWaitingPods,
    FakeGpuMemoryMetrics,
    FakePriceBook,
    InMemoryGpuMemory,
    InMemoryReviews,
    SettingsStub,
    SmallLedger,
    UnreachableKarpenter,
    UnreachableWaitingPods,
    price,
)


def test_list_price_that_differs_between_regions_is_left_out() -> None:
    book = FakePriceBook(
        [
            price("on-demand", "1.0", instance_type="g5.xlarge", region="us-east-1"),
            price("on-demand", "1.2", instance_type="g5.xlarge", region="eu-west-1"),
            price("on-demand", "7.0", instance_type="p5.4xlarge", region="us-east-1"),
            price("spot", "3.0", instance_type="p5.4xlarge", region="us-east-1", zone="a"),
            Price("on-demand", "node-hour", Decimal(9), {"instance_type": "g6.xlarge"}, "CNY"),
        ]
    )
    assert node_list_prices(book) == {"p5.4xlarge": 7.0}


def test_spot_price_is_the_mean_of_the_most_expensive_zone(ledger_table: Table) -> None:
    """Zone a: $1.20 for the last of ten days, $0.50 before. Zone b: $0.60 all along."""
    book = PriceStore(ledger_table)
    applies = {"instance_type": "g5.xlarge", "region": "r", "product": "Linux/UNIX"}
    prices = [
        Price("spot", "node-hour", Decimal(usd), {**applies, "zone": zone}, "USD", NOW - DAY * since)
        for zone, usd, since in (("a", "0.50", 12), ("a", "1.20", 1), ("b", "0.60", 12))
    ]
    book.merge_prices("spot", prices, since=NOW - DAY * 12, rated_until=NOW, now=NOW)
    ten = node_spot_prices(book, NOW - DAY * 10, NOW)
    assert [*ten] == ["g5.xlarge"]
    assert tuple(ten["g5.xlarge"]) == pytest.approx((0.6, 0.6, 0.6)), "zone b: a costs 0.57"
    five = node_spot_prices(book, NOW - DAY * 5, NOW)
    assert tuple(five["g5.xlarge"]) == pytest.approx(((4 * 0.5 + 1.2) / 5, 0.5, 1.2)), "zone a"


def test_whole_days_are_queried_once_and_failures_do_not_stop_the_review() -> None:
    start, end = NOW - 10 * DAY, NOW
    midnight = NOW.replace(hour=0, minute=0)
    metrics, store = FakeGpuMemoryMetrics(midnight - 4 * DAY), InMemoryGpuMemory()
    memory = gpu_memory_cache(metrics, store, clock=lambda: NOW)
    peaks_by_day = memory.days(SETTINGS.clusters[0], start, end)
    assert sorted(peaks_by_day) == [midnight - DAY * number for number in (4, 3, 2, 1)]
    assert metrics.queried_days == [midnight - DAY * number for number in (1, 2, 3, 4, 5)], (
        "newest first, until the first failure"
    )
    assert store.expires == {NOW + CACHE_RETENTION}
    metrics.queried_days.clear()
    metrics.first = midnight - 30 * DAY
    peaks_by_day = memory.days(SETTINGS.clusters[0], start, end)
    assert metrics.queried_days == [midnight - DAY * number for number in (5, 6, 7, 8, 9)]
    assert min(peaks_by_day) == midnight - 9 * DAY, "the day in which the look-back begins is not complete"


class CrowdedMemory:
    """Reports more pods on one day than a cluster can have."""

    def __call__(self, _cluster: ClusterSettings, _deadline: object = None) -> "CrowdedMemory":
        return self

    def peaks(self, day: datetime) -> dict[tuple[str, str], float]:
        pods = MAX_ROWS_OF_DAY + 1 if day == NOW.replace(hour=0, minute=0) - 2 * DAY else 1
        return {("ns", f"pod-{number}"): 1.0 for number in range(pods)}


def test_day_with_too_many_pods_is_left_out_and_not_stored() -> None:
    midnight, store = NOW.replace(hour=0, minute=0), InMemoryGpuMemory()
    cache = gpu_memory_cache(CrowdedMemory(), store, clock=lambda: NOW)
    days = cache.days(SETTINGS.clusters[0], midnight - 3 * DAY, NOW)
    assert sorted(days) == sorted(store.days) == [midnight - 3 * DAY, midnight - DAY]


def service(
    ledger: Ledger, reviews: InMemoryReviews, at: datetime = NOW, book: FakePriceBook | None = None
) -> ReviewService:
    memory = gpu_memory_cache(FakeGpuMemoryMetrics(at), InMemoryGpuMemory(), clock=lambda: at)
    waiting = waiting_pods_cache(UnreachableWaitingPods(), EmptyWaitingPods(), clock=lambda: at)
    settings_store: Any = SettingsStub()
    store: Any = reviews
    prices = book or FakePriceBook([])
    return ReviewService(
        settings_store, ledger, store, prices, memory, waiting, UnreachableKarpenter(), clock=lambda: at
    )


def test_the_price_book_is_read_once_for_all_clusters() -> None:
    book, reviews = FakePriceBook([]), InMemoryReviews()
    result = service(SmallLedger(failing=""), reviews, book=book).review_clusters(
        RecommendationsDue(scheduled_time=NOW), lambda: 900
    )
    assert result is not None
    assert book.read_count == 1
    assert sorted(reviews.by_cluster) == ["a", "b", "c"]


def test_failing_cluster_does_not_delay_the_others() -> None:
    ledger, reviews = SmallLedger("b"), InMemoryReviews()
    result = service(ledger, reviews).review_clusters(RecommendationsDue(scheduled_time=NOW), lambda: 900)
    assert result is not None
    assert result.failures == ["b: the table is throttled"]
    assert reviews.by_cluster.keys() == {"a", "c"}


class BrokenLedger(SmallLedger):
    """Has hours of one cluster that nothing can read."""

    def newest_published_hour(self, cluster: str) -> Any:
        if cluster == "b":
            raise TypeError("unhashable type: 'list'")
        return super().newest_published_hour(cluster)


def test_fault_that_a_cluster_triggers_does_not_stop_the_others() -> None:
    reviews = InMemoryReviews()
    result = service(BrokenLedger(failing=""), reviews).review_clusters(
        RecommendationsDue(scheduled_time=NOW), lambda: 900
    )
    assert result is not None
    assert result.failures == ["b: TypeError: unhashable type: 'list'"]
    assert reviews.by_cluster.keys() == {"a", "c"}


def test_next_run_starts_with_clusters_left_for_lack_of_time() -> None:
    ledger, reviews = SmallLedger(""), InMemoryReviews()
    first = service(ledger, reviews).review_clusters(RecommendationsDue(scheduled_time=NOW), lambda: 10)
    assert first is not None
    assert (ledger.read, first.clusters_left) == (["a"], 2)
    service(ledger, reviews, NOW + DAY).review_clusters(RecommendationsDue(scheduled_time=NOW + DAY), lambda: 10)
    assert ledger.read == ["a", "b"]


def test_older_review_does_not_replace_a_newer_review(ledger_table: Table) -> None:
    from gpucost.features.recommendations.storage import DynamoRecommendations

    store = DynamoRecommendations(ledger_table)
    newer = Review("a", NOW - DAY, NOW, NOW, 24, (), ())
    store.put_review(newer)
    store.put_review(Review("a", NOW - DAY, NOW, NOW - DAY, 1, (), ()))
    assert store.review("a") == newer
    assert store.review("b") is None


@pytest.mark.parametrize("size", [10, 6000])
def test_smaller_review_replaces_all_chunks_of_a_larger_review(ledger_table: Table, size: int) -> None:
    import random

    from gpucost.features.recommendations.model import RecommendationSubject, WorkloadAssessment
    from gpucost.features.recommendations.storage import DynamoRecommendations

    rng = random.Random(1)
    names = [f"{rng.getrandbits(400):x}" for _ in range(size)]
    assessments = tuple(
        WorkloadAssessment(RecommendationSubject("a", "u", "n", "Job", name), "idle", Decimal(1), None, None, "why")
        for name in names
    )
    store = DynamoRecommendations(ledger_table)
    for days, stored_assessments in ((0, assessments), (1, assessments[:3])):
        review = Review("a", NOW - DAY, NOW, NOW + DAY * days, 24, (), stored_assessments)
        store.put_review(review)
        assert store.review("a") == review
