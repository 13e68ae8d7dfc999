"""Request latency of inference servers: read from a real Prometheus, stored by day, and fewer replicas by it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpucost.core.errors import MetricsUnavailableError
from gpucost.core.hours import HOUR, floor_day
from gpucost.core.metering.inference_servers import latency_metrics
from gpucost.features.recommendations.history import PodLatency
from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.review import review_cluster
from gpucost.features.recommendations.review_service import ReviewService, gpu_memory_cache, waiting_pods_cache
from gpucost.features.recommendations.sources import PrometheusRequestLatency
from gpucost.features.recommendations.storage import DynamoRequestLatency
from gpucost.runtime.messages import RecommendationsDue
from gpucost.settings import ClusterSettings
from gpucost.settings_document import parse_settings
from gpucost.storage.ports import StoredSettings, Table
from gpucost_devstack.prometheus import running_prometheus
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of
from tests.features.recommendations.stubs import (
    NOW,
    SETTINGS_TEXT,
    EmptyWaitingPods,
    FakePriceBook,
    InMemoryGpuMemory,
    InMemoryReviews,
    SettingsStub,
    SmallLedger,
    UnreachableKarpenter,
    UnreachableWaitingPods,
)

DAY = floor_day(sim.START)
HOURS = 192
BUCKETS = ("0.5", "1.0", "2.5", "5.0", "+Inf")
Requests = Mapping[int, Sequence[int]]
"""Requests by bucket (not cumulative) in each hour of the day."""


def histogram(name: str, labels: str, requests: Requests, offset: int = 0) -> list[str]:
    """A histogram as prometheus_client exposes it (vLLM and SGLang), scraped every minute of four hours."""
    lines: dict[str, list[str]] = {f"{name}_bucket": [], f"{name}_count": []}
    for minute in range(-10, 4 * 60 + 1):
        at = int(DAY.timestamp()) + 60 * minute + offset
        served = [0] * len(BUCKETS)
        for hour, counts in requests.items():
            part = min(60, max(0, minute - 60 * hour))
            served = [total + count * part // 60 for total, count in zip(served, counts, strict=True)]
        for index, bucket in enumerate(BUCKETS):
            lines[f"{name}_bucket"].append(f'{name}_bucket{{{labels},le="{bucket}"}} {sum(served[: index + 1])} {at}')
        lines[f"{name}_count"].append(f"{name}_count{{{labels}}} {sum(served)} {at}")
    return [*lines[f"{name}_bucket"], *lines[f"{name}_count"]]


def target(pod: str, job: str = "podmonitor/serving", cluster: str = "demo") -> str:
    return f'cluster="{cluster}",job="{job}",instance="10.1.0.1:8000",namespace="serving",pod="{pod}"'


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """vLLM pods with two models and a copy by a second job, an SGLang pod, and one of another cluster."""
    vllm, sglang = "vllm:e2e_request_latency_seconds", "sglang:e2e_request_latency_seconds"
    chat: Requests = {1: (300, 600, 300, 0, 0), 2: (600, 0, 0, 0, 0)}
    adapter: Requests = {1: (0, 0, 600, 600, 0)}
    model = 'engine="0",model_name='
    series = [
        *histogram(vllm, f'{target("chat-0")},{model}"chat"', chat),
        *histogram(vllm, f'{target("chat-0", "second")},{model}"chat"', chat),
        *histogram(vllm, f'{target("chat-0")},{model}"adapter"', adapter),
        *histogram(vllm, f'{target("chat-0", cluster="other")},{model}"chat"', chat),
    ]
    path = tmp_path_factory.mktemp("latency") / "metrics.om"
    families = [
        f"# TYPE {vllm} histogram",
        *series,
        f"# TYPE {sglang} histogram",
        *histogram(sglang, f'{target("long-0")},model_name="m"', {3: (0, 1200, 0, 0, 0)}),
    ]
    path.write_text("\n".join([*families, "# EOF", ""]))
    return path


SETTINGS = """
clusters: [{name: demo, prometheus: {url: "URL"}, selector: {cluster: demo}}]
pricing: {source: constant, gpu_hourly_usd: 1}
inference: {enabled: true}
"""


@pytest.mark.tools
def test_latency_is_read_by_pod_and_hour_from_prometheus(metrics: Path) -> None:
    with running_prometheus(metrics) as url:
        settings = parse_settings(SETTINGS.replace("URL", url))
        reader = PrometheusRequestLatency(settings.clusters[0])
        pods = {pod.pod: pod for pod in reader.latencies(DAY, settings.inference)}
    assert pods.keys() == {"chat-0", "long-0"}
    chat = {hour: [requests, p95] for hour, requests, p95 in pods["chat-0"].hours}
    assert chat.keys() == {1, 2}
    # By hand: 2,400 requests of both models, of which 1,800 are below 2.5 s and 600 from 2.5 to 5 s. The 95th
    # percentile is the 2,280th: 480 of 600 into the bucket.
    assert chat[1] == pytest.approx([2400, 2.5 + 2.5 * 480 / 600], rel=0.02)
    assert chat[2] == pytest.approx([600, 0.475], rel=0.02)
    assert list(pods["long-0"].hours[0]) == pytest.approx([3, 1200, 0.975], rel=0.02)


class LatencyCache:
    """Records for which clusters latency is read."""

    def __init__(self, days: dict[datetime, list[PodLatency]]) -> None:
        self._days = days
        self.clusters: list[str] = []

    def days(self, cluster: ClusterSettings, *_: object) -> dict[datetime, list[PodLatency]]:
        self.clusters.append(cluster.name)
        return self._days


@pytest.mark.parametrize(("inference", "expected"), [("", []), ("inference: {enabled: true}\n", ["a", "b", "c"])])
def test_latency_is_only_read_where_inference_is_enabled(inference: str, expected: list[str]) -> None:
    document = SETTINGS_TEXT + inference
    stored = StoredSettings(1, document, parse_settings(document), "test", NOW)
    cache = LatencyCache({})
    result = review_service(stored, cache).review_clusters(RecommendationsDue(scheduled_time=NOW), lambda: 900)
    assert result is not None
    assert not result.failures
    assert cache.clusters == expected


def review_service(stored: StoredSettings[Any], cache: LatencyCache) -> ReviewService:
    arguments: list[Any] = [
        SettingsStub(stored),
        SmallLedger(""),
        InMemoryReviews(),
        FakePriceBook([]),
        gpu_memory_cache(UnreachableMemory(), InMemoryGpuMemory(), clock=lambda: NOW),
        waiting_pods_cache(UnreachableWaitingPods(), EmptyWaitingPods(), clock=lambda: NOW),
        UnreachableKarpenter(),
    ]
    options: dict[str, Any] = {"latency": lambda _: cache}
    return ReviewService(*arguments, clock=lambda: NOW, **options)


class UnreachableMemory:
    def __call__(self, _cluster: ClusterSettings, _deadline: object = None) -> "UnreachableMemory":
        return self

    def peaks(self, _day: datetime) -> dict[tuple[str, str], float]:
        raise MetricsUnavailableError("unreachable")


def test_histograms_of_configured_servers_are_read_too() -> None:
    document = SETTINGS.replace("URL", "http://127.0.0.1:9")
    metrics = latency_metrics(parse_settings(document).inference.all_servers())
    assert "vllm:e2e_request_latency_seconds_bucket" in metrics
    assert "tgi_request_duration_count" in metrics
    added = document.replace("enabled: true", "enabled: true, servers: [" + SERVER + "]")
    assert "my_latency_seconds_bucket" in latency_metrics(parse_settings(added).inference.all_servers())


SERVER = "{name: s, requests: my_requests_total, request_latency: my_latency_seconds}"


def test_stored_days_are_read_back(ledger_table: Table) -> None:
    store = DynamoRequestLatency(ledger_table)
    pods = [PodLatency("serving", f"chat-{number}", ((0, 5.0, 1.25), (23, 7.0, 0.5))) for number in range(3)]
    store.put_latencies("demo", DAY, pods, DAY + timedelta(days=400))
    store.put_latencies("other", DAY, pods[:1], DAY + timedelta(days=400))
    assert store.latencies("demo", DAY, DAY + timedelta(days=1)) == {DAY: pods}


# ------------------------------------------------------------ replicas


def is_day(hour: int) -> bool:
    return 8 <= hour % 24 < 20


CHAT = sim.Load("chat", lambda hour: 5.4 if is_day(hour) else 1.8, lambda hour: 6 if is_day(hour) else 2)
"""By day six replicas, at night two. All are 90% used at any load, as servers that batch requests are."""
Latency = Callable[[int, int], tuple[float, float] | None]
"""(Requests, p95) of a pod, by hour and number of pods."""


def by_night(hour: int, _: int) -> tuple[float, float]:
    """Each replica serves 500 requests an hour by day, and 1,000 at night, with the same p95."""
    return (500, 2.0) if is_day(hour) else (1000, 2.0)


def recommendation(
    latency: Latency, load: sim.Load = CHAT, *, is_part_of_server: Callable[[str], bool] = lambda _: False
) -> RecommendationContent | None:
    records = list(sim.simulate([load], HOURS))
    days: dict[datetime, dict[tuple[str, str], list[tuple[int, float, float]]]] = {}
    for number, record in enumerate(records):
        pods = sorted({(line.namespace, line.pod) for line in record.lines})
        for namespace, pod in pods:
            if (of_pod := latency(number, len(pods))) is not None:
                of_day = days.setdefault(floor_day(record.hour), {})
                of_day.setdefault((namespace, pod), []).append((record.hour.hour, *of_pod))
    latencies = {
        day: [PodLatency(*name, tuple(hours)) for name, hours in of_day.items()] for day, of_day in days.items()
    }
    look_back = look_back_of(records, latencies=latencies)
    look_back.is_part_of_server = is_part_of_server
    review = review_cluster(look_back, records[-1].hour + 2 * HOUR, {})
    of_kind = [content for content in review.recommendations if content.kind == "fewer-gpus"]
    return of_kind[0] if of_kind else None


def test_load_of_busiest_hour_fits_fewer_replicas_at_the_same_p95() -> None:
    content = recommendation(by_night)
    assert content is not None
    # By hand: 6 × 500 requests by day. At night each replica served 1,000, so that three suffice.
    assert "Give Deployment research-ns/chat 3 replicas" in content.summary
    assert "1,000 or more requests in an hour had a p95 latency of 2 s" in content.summary
    assert content.recommended_gpus == 3
    # Three of six GPUs are free for 12 of 24 hours: 3 × $1.50 × 365 hours a month.
    assert content.saving.usd == Decimal("1642.50")
    facts = content.evidence.facts
    assert facts["requests in the busiest hour"] == "3,000"
    assert facts["p95 latency at that load"] == "2 s in 192 hours of single replicas"
    assert "busiest hour after the change" not in facts, "utilization does not follow the load"
    assert "replicas: 3" in content.patch
    assert "lower its maximum instead" in content.risk_note


def test_higher_p95_at_that_load_gives_no_recommendation() -> None:
    def slower_at_night(hour: int, _: int) -> tuple[float, float]:
        return (500, 2.0) if is_day(hour) else (1000, 2.5)

    assert recommendation(slower_at_night) is None

    def a_little_slower_at_night(hour: int, _: int) -> tuple[float, float]:
        return (500, 2.0) if is_day(hour) else (1000, 2.05)

    assert recommendation(a_little_slower_at_night) is not None


def test_nothing_is_extrapolated_to_higher_loads() -> None:
    # Six pods with 500 requests each need 600 each on five, which none has served.
    assert recommendation(lambda *_: (500, 1.0), replace(CHAT, pods=lambda _: 6, work=lambda _: 5.4)) is None


def test_load_that_was_served_for_few_hours_is_no_evidence() -> None:
    def on_a_single_night(hour: int, _: int) -> tuple[float, float]:
        return (1000, 2.0) if hour in range(20, 31) else (500, 2.0)

    assert recommendation(on_a_single_night) is None, "two replicas in eleven hours"


def test_hours_with_unknown_latency_of_a_pod_do_not_count() -> None:
    def unknown_by_day(hour: int, _: int) -> tuple[float, float] | None:
        return None if is_day(hour) else (1000, 2.0)

    assert recommendation(unknown_by_day) is None, "half of the hours, and the busiest ones, are unknown"
    calls: list[int] = []

    def a_pod_is_unknown(hour: int, pods: int) -> tuple[float, float] | None:
        calls.append(hour)
        return None if is_day(hour) and calls.count(hour) == 1 else by_night(hour, pods)

    assert recommendation(a_pod_is_unknown) is None


def test_prefill_and_decode_workloads_are_no_whole_servers() -> None:
    assert recommendation(by_night, is_part_of_server=lambda name: name == "chat") is None


def test_workload_without_latency_is_reviewed_as_before() -> None:
    records = list(sim.simulate([CHAT], HOURS))
    assert not [
        content
        for content in review_cluster(look_back_of(records), records[-1].hour + 2 * HOUR, {}).recommendations
        if content.kind == "fewer-gpus"
    ]


def test_jobs_get_no_replicas() -> None:
    assert recommendation(by_night, replace(CHAT, kind="Job")) is None
