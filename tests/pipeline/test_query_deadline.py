"""With a Prometheus that hangs or responds slowly, the function ends in time, and every hour has a reason."""

import json
import time
import tracemalloc
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import requests

from functions.attribute import app
from gpucost.container import Container
from gpucost.core.errors import MetricsTooLargeError
from gpucost.features.recommendations.review_service import (
    SPARE_SECONDS,
    ReviewService,
    gpu_memory_cache,
    waiting_pods_cache,
)
from gpucost.features.recommendations.sources import PrometheusDisruption, PrometheusGpuMemory, PrometheusWaitingPods
from gpucost.features.recommendations.storage import DynamoGpuMemory
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.messages import HoursDue, RecommendationsDue
from gpucost.runtime.process import gc_paused
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.memory_budget import MemoryBudget
from gpucost.sources.prometheus.sharding import CONCURRENT_QUERIES
from gpucost.storage.ports import StoredSettings, Table
from tests.features.recommendations import stubs
from tests.features.recommendations.stubs import (
    EmptyWaitingPods,
    FakePriceBook,
    InMemoryGpuMemory,
    InMemoryReviews,
    SettingsStub,
    SmallLedger,
)
from tests.functions.api_requests import Context
from tests.pipeline.attributed import NOW, System, busy_hour
from tests.prometheus_clients import SentQuery, recording_client
from tests.raw_server import Exchange, elapsed, raw_server
from tests.system.timeline import HOUR, Timeline

LIMIT = 4.0
"""Time limit of the function, in seconds."""
BUSY = 60.0
"""Additional seconds for a busy machine. Without a deadline, a query to these servers takes 240 s."""


class Lambda(Context):
    """An invocation with a short limit."""

    def __init__(self) -> None:
        self.ends = time.monotonic() + LIMIT
        self.function_name = "attribute"
        self.memory_limit_in_mb = 1024
        self.invoked_function_arn = "arn:aws:lambda:eu-central-1:111122223333:function:attribute"
        self.aws_request_id = "1"

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int(1000 * (self.ends - time.monotonic())))


def invoke(system: System, monkeypatch: pytest.MonkeyPatch, hours: int = 1, version: int = 1) -> None:
    """Deliver a message with the newest hours, and check that it is acknowledged in time."""
    message = HoursDue(
        cluster="demo",
        first_hour=HOUR - timedelta(hours=hours - 1),
        hours=hours,
        settings_version=version,
        origin="schedule",
        correlation_id="why",
    )
    record = {
        "messageId": "1",
        "eventSource": "aws:sqs",
        "body": message.model_dump_json(),
        "attributes": {"ApproximateReceiveCount": "1"},
    }
    context = Lambda()
    answer = app.handler({"Records": [record]}, context, container=Container(attribute_service=system.service))
    assert answer == {"batchItemFailures": []}
    assert time.monotonic() < context.ends + BUSY


def drip_headers(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    exchange.drip(b"x", 0.2)


def drip_body(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    exchange.drip(b" ", 0.2)


def throttle(exchange: Exchange) -> None:
    exchange.answer(b"", "Retry-After: 9", status="429 Too Many Requests")


@pytest.mark.parametrize(("trouble", "hours"), [(Exchange.hang, 24), (drip_headers, 1), (drip_body, 1), (throttle, 1)])
def test_function_ends_in_time_and_incomplete_hours_have_a_reason(
    trouble: Callable[[Exchange], None], hours: int, ledger_table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with raw_server(trouble) as server:
        system = System(ledger_table, server.url)
        invoke(system, monkeypatch, hours)
    queried = {query["query"] for query in server.queries}
    assert len(queried) <= CONCURRENT_QUERIES, "after the first failure no other query starts"
    for number in range(hours):
        manifest = system.ledger.manifest("demo", HOUR - timedelta(hours=number))
        assert manifest is not None
        assert manifest.status == "incomplete"
        assert "the time for all queries is used up" in manifest.notes[0]
        assert manifest.next_attempt_at is not None
    assert len(system.bus.closed) == hours
    assert system.bus.letters == []


def test_slow_responses_share_a_deadline(
    ledger_table: Table, prometheus: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each response is in time, but all together are not."""
    upstream = busy_hour(ledger_table, prometheus).url

    def slow(exchange: Exchange) -> None:
        time.sleep(1.6)
        path = exchange.head.split()[1].decode()
        exchange.answer(requests.post(upstream + path, data=exchange.form, timeout=30).content)

    with raw_server(slow) as server:
        system = System(ledger_table, server.url)
        invoke(system, monkeypatch, version=2)
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert manifest.status == "incomplete"
    assert "all queries" in manifest.notes[0]


def test_hours_read_before_a_failure_keep_their_figures(
    ledger_table: Table, prometheus: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    busy = busy_hour(ledger_table, prometheus)
    busy.attribute(start=HOUR - timedelta(hours=1))  # so that the message's other hours are queried separately
    busy_figures = busy.figures()[-1]
    late = (HOUR + timedelta(minutes=59)).timestamp()

    def trouble(exchange: Exchange) -> None:
        if float(exchange.form.get("end") or exchange.form["time"]) >= late:
            exchange.hang()
        path = exchange.head.split()[1].decode()
        exchange.answer(requests.post(busy.url + path, data=exchange.form, timeout=30).content)

    with raw_server(trouble) as server:
        system = System(ledger_table, server.url)
        invoke(system, monkeypatch, hours=3, version=2)
    first = system.ledger.manifest("demo", HOUR - timedelta(hours=2))
    last = system.ledger.manifest("demo", HOUR)
    assert first is not None
    assert last is not None
    assert "coverage of allocation" in first.notes[0], "the response is unchanged"
    assert system.figures()[1] == busy_figures
    assert "the time for all queries is used up" in last.notes[0]


def test_splitting_of_too_large_responses_ends(ledger_table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"status":"success","data":{"resultType":"matrix","result":[' + b" " * (17 << 20) + b"]}}"
    with raw_server(lambda exchange: exchange.answer(body)) as server:
        system = System(ledger_table, server.url)
        system.attribute(hours=2, start=HOUR - timedelta(hours=1))
    for hour in (HOUR - timedelta(hours=1), HOUR):
        manifest = system.ledger.manifest("demo", hour)
        assert manifest is not None
        assert manifest.status == "incomplete"
        assert "answered more than 16 MiB" in manifest.notes[0]
    assert len(server.queries) < 50
    assert system.bus.letters == []


def test_no_further_query_of_an_hour_starts_after_a_refusal(ledger_table: Table) -> None:
    with raw_server(lambda exchange: exchange.answer(b"no", status="400 Bad Request")) as server:
        system = System(ledger_table, server.url)
        system.attribute()
    assert len({query["query"] for query in server.queries}) <= CONCURRENT_QUERIES


def test_refused_responses_are_not_kept_in_memory(ledger_table: Table) -> None:
    """Errors must not keep them either. The garbage collector is off, as it is while an hour is read."""
    body = b'{"status":"success","data":{"resultType":"matrix","result":[' + b" " * (17 << 20) + b"]}}"
    with raw_server(lambda exchange: exchange.answer(body)) as server:
        settings = System(ledger_table, server.url).store.current().settings
        reader = metrics_reader(settings.clusters[0], settings)
        with gc_paused():
            tracemalloc.start()
            try:
                for _ in range(3):
                    with pytest.raises(MetricsTooLargeError):
                        reader.observe([HOUR])
                kept, _ = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
    assert kept < 8 << 20


def test_responses_above_the_limit_are_queried_in_parts_with_the_same_figures(
    ledger_table: Table, prometheus: Callable[[str], str]
) -> None:
    timeline = Timeline()
    timeline.up()
    for number in range(12):
        timeline.node(f"n{number}", capacity={"nvidia_com_gpu": 1})
        timeline.pod(f"p{number}", uid=f"uid-{number:x}", node=f"n{number}")
    sent: list[SentQuery] = []
    client = partial(recording_client(sent), max_answer_bytes=5000)
    system = System(ledger_table, prometheus(timeline.text()), client=client)
    system.attribute()
    assert system.figures() == [("complete", "144", 1)]
    assert any("node=~" in form["query"] and "048cgkosw" in form["query"] for _, form in sent), "queried in parts"


class RecordedBudget(MemoryBudget):
    """Records the largest requested amount."""

    needed = 0

    def _check(self, needed: int) -> None:
        super()._check(needed)
        self.needed = max(self.needed, self._used + needed)


def test_hours_too_large_together_are_queried_separately(ledger_table: Table, prometheus: Callable[[str], str]) -> None:
    timeline = Timeline()
    timeline.up(start=-365)
    timeline.node(start=-365, capacity={"nvidia_com_gpu": 2})
    timeline.pod("p", start=-365)
    system = System(ledger_table, prometheus(timeline.text()))
    settings = system.store.current().settings
    hours = [HOUR - timedelta(hours=back) for back in range(5, -1, -1)]
    needed = []
    for together in ([HOUR], hours):
        budget = RecordedBudget()
        metrics_reader(settings.clusters[0], settings, budget=budget).observe(together)
        needed.append(budget.needed)
    most = sum(needed) // 2  # far from both limits, because the order of responses matters
    assert needed[0] < 0.9 * most
    sent: list[SentQuery] = []
    system.service = system.compose(
        partial(metrics_reader, budget=MemoryBudget(most), make_client=recording_client(sent))
    )
    system.attribute(hours=len(hours), start=hours[0])
    assert [(status, usd) for status, usd, _ in system.figures()] == [("complete", "12")] * len(hours)
    hours_queried = [1 + (float(form["end"]) - float(form["start"])) / 3600 for _, form in sent if "start" in form]
    assert hours_queried[0] == len(hours)
    assert any(1 < together < len(hours) for together in hours_queried), "queried in two halves"


def test_single_hour_that_is_too_large_is_incomplete_with_its_reason(
    ledger_table: Table, prometheus: Callable[[str], str]
) -> None:
    system = busy_hour(ledger_table, prometheus)
    system.service = system.compose(partial(metrics_reader, budget=MemoryBudget(100)))
    system.attribute(hours=2, start=HOUR - timedelta(hours=1))
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert (manifest.status, system.bus.letters) == ("incomplete", [])
    assert "responses that together take more than" in manifest.notes[0]
    assert manifest.next_attempt_at is not None


@pytest.mark.parametrize("is_up_kept", [True, False])
def test_scrape_times_that_take_too_much_memory_are_refused(
    is_up_kept: bool, ledger_table: Table, prometheus: Callable[[str], str]
) -> None:
    """40,000 exporters scraped every 15 seconds took 1.3 GB, although each response is small."""

    class BudgetOfManyExporters(MemoryBudget):
        def check_scrapes(self, count: int) -> None:
            super().check_scrapes(100_000 * count)

    timeline = Timeline()
    if is_up_kept:
        timeline.up()
    timeline.node(capacity={"nvidia_com_gpu": 2})
    timeline.pod("p")
    system = System(ledger_table, prometheus(timeline.text()))
    system.service = system.compose(partial(metrics_reader, budget=BudgetOfManyExporters()))
    system.attribute()
    manifest = system.ledger.manifest("demo", HOUR)
    assert manifest is not None
    assert (manifest.status, system.bus.letters) == ("incomplete", [])
    assert "take more than 416 MiB of memory" in manifest.notes[0]


def test_review_waits_a_limited_time_for_metrics(ledger_table: Table) -> None:
    class Unkept(DynamoGpuMemory):
        def __init__(self) -> None:
            pass

        def memory(self, *_: object) -> dict[Any, Any]:
            return {}

        def put_memory(self, *_: object) -> None:
            raise AssertionError("nothing was answered")

    with raw_server(Exchange.hang) as server:
        system = System(ledger_table, server.url)
        (cluster,) = system.store.current().settings.clusters
        cache = gpu_memory_cache(PrometheusGpuMemory, Unkept(), clock=lambda: NOW)
        assert cache.days(cluster, NOW - timedelta(days=30), NOW, Deadline(1)) == {}
    assert len({json.dumps(query) for query in server.queries}) == 1


def test_review_queries_a_hanging_prometheus_once() -> None:
    """After the first failed query, the review sends no other query."""
    reviews = InMemoryReviews()
    with raw_server(Exchange.hang) as server:
        cluster = f'{{name: a, prometheus: {{url: "{server.url}"}}}}'
        text = f"clusters: [{cluster}]\npricing: {{source: constant, gpu_hourly_usd: 1}}"
        stored = StoredSettings(1, text, parse_settings(text), "test", stubs.NOW)
        service = ReviewService(
            SettingsStub(stored),  # type: ignore[arg-type]
            SmallLedger(""),
            reviews,  # type: ignore[arg-type]
            FakePriceBook([]),
            gpu_memory_cache(PrometheusGpuMemory, InMemoryGpuMemory(), clock=lambda: stubs.NOW),
            waiting_pods_cache(PrometheusWaitingPods, EmptyWaitingPods(), clock=lambda: stubs.NOW),
            PrometheusDisruption,
            clock=lambda: stubs.NOW,
        )
        due = RecommendationsDue(scheduled_time=stubs.NOW)
        assert elapsed(lambda: service.review_clusters(due, lambda: SPARE_SECONDS)) < BUSY
    assert len(server.queries) == 1
    assert reviews.by_cluster.keys() == {"a"}
