"""The Prometheus client against a real HTTP server with all kinds of faulty responses."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Thread, Timer
from urllib.parse import parse_qs, urlsplit

import pytest

from gpucost.core.errors import MetricsResponseError, MetricsTooLargeError, MetricsUnavailableError, SettingsError
from gpucost.runtime.deadline import Deadline
from gpucost.settings_document import parse_settings
from gpucost.sources.prometheus import metrics_reader
from gpucost.sources.prometheus.client import MAX_ATTEMPTS, PrometheusClient, parse_duration
from gpucost.sources.prometheus.memory_budget import MAX_RESPONSE_BYTES
from gpucost.sources.prometheus.node_pool_limits import NodePoolLimitsReader
from gpucost_cli.doctor import examine_cluster
from tests.raw_server import Exchange, raw_server
from tests.recording_server import GOOD, THRESHOLD, Handler, Response, Server, answering

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)


class Dripping(Handler):
    """Sends single bytes, each within the read timeout."""

    def do_POST(self) -> None:  # noqa: N802 - the base class's name
        self.server.requests.append((self.path, {}, {}))
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        try:
            for _ in range(100):
                self.wfile.write(b" ")
                self.wfile.flush()
                time.sleep(0.03)
        except OSError:
            self.close_connection = True


def test_slow_response_ends_at_the_timeout() -> None:
    server = Server(("127.0.0.1", 0), Dripping)
    server.responses, server.requests = [], []
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        client = PrometheusClient(url, cluster="blue", timeout=0.5, sleep=lambda _: None)
        with pytest.raises(MetricsUnavailableError, match=r"did not answer within 0\.5 s, 4 times"):
            client.query_range("up", HOUR, HOUR)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert 0 < len(server.requests) <= MAX_ATTEMPTS


def client(server: Server, sleep: Callable[[float], None] = lambda _: None) -> PrometheusClient:
    return PrometheusClient(f"http://127.0.0.1:{server.server_port}", cluster="blue", sleep=sleep)


def test_query_is_posted_as_a_form_and_parsed_exactly() -> None:
    with answering((200, GOOD, {})) as server:
        (series,) = client(server).query_range('up{a="b+c d"}', HOUR, HOUR + timedelta(hours=2))
    assert series.labels == {"pod": "p"}
    assert series.samples == ((1795082400000, "3"), (1795086000500, "NaN"))
    path, headers, form = server.requests[0]
    assert path == "/api/v1/query_range"
    assert headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert (form.pop("stats"), form.pop("max_lookback")) == (["true"], ["5m"])
    assert form == {
        "query": ['up{a="b+c d"}'],
        "start": ["1795082400.000"],
        "end": ["1795089600.000"],
        "step": ["3600"],
    }


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ((400, '{"status":"error","errorType":"bad_data","error":"parse error"}', {}), "400 Bad Request: parse error"),
        ((422, '{"status":"error","errorType":"execution","error":"query timed out"}', {}), "query timed out"),
        ((413, "response larger than the max (181673024 vs 52428800)", {}), "response larger than the max"),
        ((403, "<html><body>Forbidden</body></html>", {}), "403 Forbidden"),
        ((200, '{"status":"error","error":"partial result"}', {}), "partial result"),
        ((200, '["a list"]', {}), "a list"),
        ((200, GOOD.replace('"status"', '"warnings":["partial response"],"status"'), {}), "partial response"),
        ((200, GOOD.replace('"status"', '"isPartial":true,"status"'), {}), "partial data"),
        ((422, "too long query; mustn't exceed `-search.maxQueryLen=16384` bytes", {}), "-search.maxQueryLen"),
        ((200, GOOD.replace("matrix", "vector"), {}), "vector"),
        ((200, GOOD.replace('"values"', '"value"'), {}), "is not Prometheus'"),
        ((200, GOOD.replace('"3"', "null"), {}), "is not Prometheus'"),
        ((200, GOOD.replace('"3"', "3"), {}), "is not Prometheus'"),
        ((200, GOOD.replace('{"pod": "p"}', "null"), {}), "is not Prometheus'"),
        ((200, GOOD.replace("1795082400", "1e999"), {}), "is not Prometheus'"),
        ((200, GOOD.replace('"status"', '"warnings":5,"status"'), {}), "a warning: int"),
        ((200, GOOD.replace('"status"', '"warnings":{"a":1},"status"'), {}), "a warning: dict"),
        ((200, GOOD.replace('"matrix"', '["' + "m" * 9000 + '"]'), {}), "answered with a ['mmm"),
        ((200, '{"status":"success","data":[1]}', {}), "is not Prometheus'"),
        ((200, '{"status":"success","data":{"resultType":"matrix","result":{"a":1}}}', {}), "is not Prometheus'"),
        ((200, '{"status":"success","data":{"resultType":"matrix","result":[5]}}', {}), "is not Prometheus'"),
        ((400, '{"status":"error","error":{"a":"' + "b" * 9000 + '"}}', {}), '400 Bad Request: {"status"'),
        ((400, '{"error":"\\ud800"}', {}), "400 Bad Request"),
        ((302, "", {"Location": "https://elsewhere.test/x"}), "redirects to 'https://elsewhere.test/x'"),
    ],
)
def test_unsuccessful_response_is_an_error_with_cluster_and_query(response: Response, expected: str) -> None:
    with answering(response) as server, pytest.raises(MetricsResponseError) as error:
        client(server).query_range("up", HOUR, HOUR)
    assert expected in str(error.value)
    assert "cluster blue" in str(error.value)
    assert "(query: up)" in str(error.value)
    assert len(str(error.value)) < 1000
    str(error.value).encode()
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "response",
    [
        (429, "slow down", {}),
        (503, '{"status":"error","errorType":"unavailable","error":"not yet"}', {}),
        (500, "<html>oops</html>", {}),
        (200, GOOD[:60], {}),
        (200, "<html>a proxy's sign-in page</html>", {}),
        (200, "[" * 200_000, {}),
        (0, GOOD[:60], {}),
    ],
)
def test_temporary_failures_are_retried(response: Response) -> None:
    waits: list[float] = []
    with answering(response) as server, pytest.raises(MetricsUnavailableError, match="cluster blue"):
        client(server, waits.append).query_range("up", HOUR, HOUR)
    assert len(server.requests) == MAX_ATTEMPTS
    assert len(waits) == MAX_ATTEMPTS - 1
    assert waits[0] < waits[-1]


def test_query_succeeds_after_temporary_failures() -> None:
    with answering((503, "", {}), (0, "{", {}), (200, GOOD, {})) as server:
        assert len(client(server).query_range("up", HOUR, HOUR)) == 1


def test_retry_after_is_limited() -> None:
    waits: list[float] = []
    with answering((429, "", {"Retry-After": "7"}), (429, "", {"Retry-After": "3600"}), (200, GOOD, {})) as server:
        client(server, waits.append).query_range("up", HOUR, HOUR)
    assert waits == [7.0, 10.0]


@pytest.mark.parametrize("text", ["²", "-5", "1e400", "nan", "soon", ""])
def test_invalid_retry_after_does_not_stop_retries(text: str) -> None:
    waits: list[float] = []
    with answering((429, "", {"Retry-After": text}), (200, GOOD, {})) as server:
        assert len(client(server, waits.append).query_range("up", HOUR, HOUR)) == 1
    assert 0 < waits[0] <= 1


def test_failure_cancels_other_queries_of_the_deadline() -> None:
    deadline = Deadline(60)
    with answering((503, "", {})) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        failing, other = (
            PrometheusClient(url, cluster="blue", deadline=deadline, sleep=lambda _: None) for _ in range(2)
        )
        with pytest.raises(MetricsUnavailableError, match="answered 503") as first:
            failing.query_range("up", HOUR, HOUR)
        queries_before = len(server.requests)
        for late_client in (failing, other):
            with pytest.raises(MetricsUnavailableError) as second:
                late_client.query_range("other", HOUR, HOUR)
            assert str(second.value) == str(first.value)
    assert len(server.requests) == queries_before == MAX_ATTEMPTS


def test_no_retry_after_the_deadline() -> None:
    waits: list[float] = []
    with answering((429, "", {"Retry-After": "9"})) as server:
        client_with_deadline = PrometheusClient(
            f"http://127.0.0.1:{server.server_port}", cluster="blue", deadline=Deadline(5), sleep=waits.append
        )
        with pytest.raises(MetricsUnavailableError, match=r"429 .*the time for all queries is used up"):
            client_with_deadline.query_range("up", HOUR, HOUR)
    assert (waits, len(server.requests)) == ([], 1)


def test_no_query_after_the_deadline() -> None:
    with answering((200, GOOD, {})) as server:
        late = PrometheusClient(f"http://127.0.0.1:{server.server_port}", cluster="blue", deadline=Deadline(0))
        with pytest.raises(MetricsUnavailableError, match="the 0 s for all queries are used up"):
            late.query_range("up", HOUR, HOUR)
    assert server.requests == []


def test_response_above_the_limit_is_too_large() -> None:
    big = GOOD.replace('"p"', '"' + "p" * MAX_RESPONSE_BYTES + '"')
    with answering((200, big, {})) as server, pytest.raises(MetricsTooLargeError, match="more than 16 MiB"):
        client(server).query_range("up", HOUR, HOUR)
    assert len(server.requests) == 1


@pytest.mark.parametrize("kept", ["5", '"9' + "9" * 5000 + 'd"', '"²d"', '"٣d"', "null", "[]", '""'])
def test_invalid_retention_is_none(kept: str) -> None:
    with raw_server(lambda exchange: exchange.answer(f'{{"data": {{"storageRetention": {kept}}}}}'.encode())) as server:
        assert PrometheusClient(server.url, cluster="blue").retention() is None


def test_unreachable_server_is_unavailable() -> None:
    with answering((200, GOOD, {})) as server:
        stopped = client(server)
    with pytest.raises(MetricsUnavailableError, match=r"could not be reached: connection refused, 4 times$"):
        stopped.query_range("up", HOUR, HOUR)


@pytest.mark.parametrize(
    ("text", "length"),
    [("15d", timedelta(days=15)), ("1y2w", timedelta(days=379)), ("90m30s", timedelta(seconds=5430)), ("", None)],
)
def test_prometheus_durations_are_parsed(text: str, length: timedelta | None) -> None:
    assert parse_duration(text) == length


@pytest.mark.parametrize(
    "limit",
    [
        "the number of matching timeseries exceeds 2; either narrow down the search or increase -search.max*",
        "cannot select more than -search.maxSamplesPerQuery=20 samples",
        "which returns 5 data points across 5 time series according to -search.maxMemoryPerQuery=1000",
        "the response contains more than -search.maxResponseSeries=2 time series",
    ],
)
def test_limits_of_victoria_metrics_count_as_too_large(limit: str) -> None:
    refusal = json.dumps({"status": "error", "errorType": "422", "error": limit})
    with answering((422, refusal, {})) as server, pytest.raises(MetricsTooLargeError, match="422"):
        client(server).query_range("up", HOUR, HOUR)


def test_staleness_markers_of_victoria_metrics_are_removed() -> None:
    """VictoriaMetrics returns them as NaN in raw samples. Prometheus, whose responses contain stats, does not."""
    body = json.loads(GOOD)
    del body["data"]["stats"]
    ended = {"metric": {"pod": "ended"}, "values": [[1795082400, "NaN"]]}
    body["data"]["result"].append(ended)
    with answering((200, json.dumps(body), {})) as server:
        (series,) = client(server).raw_samples("up", HOUR, HOUR + timedelta(hours=1))
    assert series.samples == ((1795082400000, "3"),)


def test_complete_response_of_victoria_metrics_cluster_is_accepted() -> None:
    with answering((200, GOOD.replace('"status"', '"isPartial":false,"status"'), {})) as server:
        assert client(server).query_range("up", HOUR, HOUR)


@pytest.mark.parametrize(("auth", "limit"), [("sigv4", "500000000"), ("sigv4", "7000000"), ("none", None)])
def test_sample_limit_is_sent_to_amp_only(auth: str, limit: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with answering((200, GOOD, {})) as server:
        prometheus = {"url": f"http://127.0.0.1:{server.server_port}", "auth": auth}
        prometheus |= {"region": "eu-central-1"} if auth == "sigv4" else {}
        limits = {} if limit in {None, "500000000"} else {"max_samples_per_query": int(str(limit))}
        document = {
            "clusters": [{"name": "blue", "prometheus": {**prometheus, **limits}}],
            "pricing": {"source": "constant", "gpu_hourly_usd": 12},
        }
        settings = parse_settings(json.dumps(document))
        with suppress(MetricsResponseError):
            metrics_reader(settings.clusters[0], settings).observe([HOUR])
        after_observation = len(server.requests)
        with suppress(MetricsResponseError):
            NodePoolLimitsReader(settings.clusters[0]).read([HOUR])
        after_limits = len(server.requests)
        examine_cluster(settings.clusters[0], settings, HOUR)
    assert 0 < after_observation < after_limits < len(server.requests)
    for path, headers, form in server.requests:
        parameters = parse_qs(urlsplit(path).query)
        assert parameters == ({"max_samples_processed_error_threshold": [limit]} if limit else {})
        assert ("Authorization" in headers) == (auth == "sigv4")
        assert not any("threshold" in name for name in form)


def test_query_over_the_sample_limit_is_not_retried() -> None:
    with answering((422, THRESHOLD, {})) as server:
        limited = PrometheusClient(f"http://127.0.0.1:{server.server_port}", cluster="blue", max_samples=10**6)
        with pytest.raises(MetricsResponseError, match="the error threshold is reached") as refused:
            limited.query_range("up", HOUR, HOUR)
    assert not isinstance(refused.value, MetricsTooLargeError)
    assert len(server.requests) == 1


def test_sample_limit_requires_amp() -> None:
    document = (
        '{"clusters": [{"name": "c", "prometheus": {"url": "http://x", "max_samples_per_query": 5000000}}], '
        '"pricing": {"source": "constant", "gpu_hourly_usd": 1}}'
    )
    with pytest.raises(SettingsError, match="max_samples_per_query is only allowed with auth: sigv4"):
        parse_settings(document)


def test_query_that_another_failure_cancels_reports_that_failure() -> None:
    """Queries run in parallel. Whichever of the two errors is raised, it reports the first failure."""
    with raw_server(Exchange.hang) as server:
        deadline = Deadline(60)
        client = PrometheusClient(server.url, cluster="demo", deadline=deadline)
        Timer(0.2, client.cancel, ["cluster demo: the first query could not be reached"]).start()
        with pytest.raises(MetricsUnavailableError, match=r"^cluster demo: the first query could not be reached$"):
            client.query("up", HOUR)
        assert deadline.has_passed()
