"""The Prometheus client against a real HTTP server that answers everything but what was hoped for."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread, Timer
from urllib.parse import parse_qs, urlsplit

import pytest

from gpucost.adapters.prometheus import metrics_reader
from gpucost.adapters.prometheus.client import ATTEMPTS, PrometheusClient, parse_duration
from gpucost.adapters.prometheus.limits import PrometheusLimits
from gpucost.adapters.prometheus.memory_budget import ANSWER_BYTES
from gpucost.deadline import Deadline
from gpucost.errors import MetricsAnswerError, MetricsTooLargeError, MetricsUnavailableError, SettingsError
from gpucost.settings import parse_settings
from local.doctor import examine
from tests.raw_server import Exchange, raw_server

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
GOOD = json.dumps(
    {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [{"metric": {"pod": "p"}, "values": [[1795082400, "3"], [1795086000.5, "NaN"]]}],
            "stats": {"samples": {"totalQueryableSamples": 2}},
        },
    }
)
Answer = tuple[int, str, dict[str, str]]


class Server(ThreadingHTTPServer):
    """Gives prepared answers in turn, the last one for ever; remembers what it was asked."""

    answers: list[Answer]
    asked: list[tuple[str, dict[str, str], dict[str, list[str]]]]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.asked.append((self.path, dict(self.headers), parse_qs(body)))
        answers = self.server.answers
        status, text, headers = answers.pop(0) if len(answers) > 1 else answers[0]
        if status == 0:  # hang up in the middle of the answer
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + text.encode())
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


class Dripping(Handler):
    """Sends a byte now and then, each within the wait for the next one."""

    def do_POST(self) -> None:
        self.server.asked.append((self.path, {}, {}))
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


def test_an_answer_that_drips_is_not_waited_for() -> None:
    server = Server(("127.0.0.1", 0), Dripping)
    server.answers, server.asked = [], []
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_port}"
        impatient = PrometheusClient(url, cluster="blue", timeout=0.5, sleep=lambda _: None)
        with pytest.raises(MetricsUnavailableError, match=r"did not answer within 0\.5 s, 4 times"):
            impatient.query_range("up", HOUR, HOUR)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert 0 < len(server.asked) <= ATTEMPTS


@contextmanager
def answering(*answers: Answer) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.answers, server.asked = list(answers), []
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def client(server: Server, sleep: Callable[[float], None] = lambda _: None) -> PrometheusClient:
    return PrometheusClient(f"http://127.0.0.1:{server.server_port}", cluster="blue", sleep=sleep)


def test_a_query_is_posted_as_a_form_and_read_exactly() -> None:
    with answering((200, GOOD, {})) as server:
        (series,) = client(server).query_range('up{a="b+c d"}', HOUR, HOUR + timedelta(hours=2))
    assert series.labels == {"pod": "p"}
    assert series.samples == ((1795082400000, "3"), (1795086000500, "NaN"))
    path, headers, form = server.asked[0]
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
    ("answer", "says"),
    [
        ((400, '{"status":"error","errorType":"bad_data","error":"parse error"}', {}), "400 Bad Request: parse error"),
        ((422, '{"status":"error","errorType":"execution","error":"query timed out"}', {}), "query timed out"),
        ((413, "response larger than the max (181673024 vs 52428800)", {}), "response larger than the max"),
        ((403, "<html><body>Forbidden</body></html>", {}), "403 Forbidden"),
        ((200, '{"status":"error","error":"half of it"}', {}), "half of it"),
        ((200, '["a list"]', {}), "a list"),
        ((200, GOOD.replace('"status"', '"warnings":["partial answer"],"status"'), {}), "partial answer"),
        ((200, GOOD.replace('"status"', '"isPartial":true,"status"'), {}), "a part of the data only"),
        ((422, "too long query; mustn't exceed `-search.maxQueryLen=16384` bytes", {}), "-search.maxQueryLen"),
        ((200, GOOD.replace("matrix", "vector"), {}), "vector"),
        ((200, GOOD.replace('"values"', '"value"'), {}), "not Prometheus' own"),
        ((200, GOOD.replace('"3"', "null"), {}), "not Prometheus' own"),
        ((200, GOOD.replace('"3"', "3"), {}), "not Prometheus' own"),
        ((200, GOOD.replace('{"pod": "p"}', "null"), {}), "not Prometheus' own"),
        ((200, GOOD.replace("1795082400", "1e999"), {}), "not Prometheus' own"),
        ((200, GOOD.replace('"status"', '"warnings":5,"status"'), {}), "a warning: int"),
        ((200, GOOD.replace('"status"', '"warnings":{"a":1},"status"'), {}), "a warning: dict"),
        ((200, GOOD.replace('"matrix"', '["' + "m" * 9000 + '"]'), {}), "answered a ['mmm"),
        ((200, '{"status":"success","data":[1]}', {}), "not Prometheus' own"),
        ((200, '{"status":"success","data":{"resultType":"matrix","result":{"a":1}}}', {}), "not Prometheus' own"),
        ((200, '{"status":"success","data":{"resultType":"matrix","result":[5]}}', {}), "not Prometheus' own"),
        ((400, '{"status":"error","error":{"a":"' + "b" * 9000 + '"}}', {}), '400 Bad Request: {"status"'),
        ((400, '{"error":"\\ud800"}', {}), "400 Bad Request"),
        ((302, "", {"Location": "https://elsewhere.test/x"}), "redirects to 'https://elsewhere.test/x'"),
    ],
)
def test_an_answer_that_is_no_success_is_an_error_that_names_cluster_and_query(answer: Answer, says: str) -> None:
    with answering(answer) as server, pytest.raises(MetricsAnswerError) as error:
        client(server).query_range("up", HOUR, HOUR)
    assert says in str(error.value)
    assert "cluster blue" in str(error.value)
    assert "(query: up)" in str(error.value)
    assert len(str(error.value)) < 1000
    str(error.value).encode()
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answer",
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
def test_what_can_pass_is_tried_again_and_then_given_up(answer: Answer) -> None:
    waits: list[float] = []
    with answering(answer) as server, pytest.raises(MetricsUnavailableError, match="cluster blue"):
        client(server, waits.append).query_range("up", HOUR, HOUR)
    assert len(server.asked) == ATTEMPTS
    assert len(waits) == ATTEMPTS - 1
    assert waits[0] < waits[-1]


def test_a_passing_fault_is_not_noticed() -> None:
    with answering((503, "", {}), (0, "{", {}), (200, GOOD, {})) as server:
        assert len(client(server).query_range("up", HOUR, HOUR)) == 1


def test_the_wait_that_a_server_asks_for_is_kept_within_bounds() -> None:
    waits: list[float] = []
    with answering((429, "", {"Retry-After": "7"}), (429, "", {"Retry-After": "3600"}), (200, GOOD, {})) as server:
        client(server, waits.append).query_range("up", HOUR, HOUR)
    assert waits == [7.0, 10.0]


@pytest.mark.parametrize("text", ["²", "-5", "1e400", "nan", "soon", ""])
def test_retry_after_that_is_no_time_does_not_stop_the_retries(text: str) -> None:
    waits: list[float] = []
    with answering((429, "", {"Retry-After": text}), (200, GOOD, {})) as server:
        assert len(client(server, waits.append).query_range("up", HOUR, HOUR)) == 1
    assert 0 < waits[0] <= 1


def test_after_a_failure_no_query_of_the_same_deadline_starts() -> None:
    deadline = Deadline(60)
    with answering((503, "", {})) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        failing, other = (
            PrometheusClient(url, cluster="blue", deadline=deadline, sleep=lambda _: None) for _ in range(2)
        )
        with pytest.raises(MetricsUnavailableError, match="answered 503") as first:
            failing.query_range("up", HOUR, HOUR)
        asked = len(server.asked)
        for again in (failing, other):
            with pytest.raises(MetricsUnavailableError) as second:
                again.query_range("other", HOUR, HOUR)
            assert str(second.value) == str(first.value)
    assert len(server.asked) == asked == ATTEMPTS


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    waits: list[float] = []
    with answering((429, "", {"Retry-After": "9"})) as server:
        hurried = PrometheusClient(
            f"http://127.0.0.1:{server.server_port}", cluster="blue", deadline=Deadline(5), sleep=waits.append
        )
        with pytest.raises(MetricsUnavailableError, match=r"429 .*the time for all queries is used up"):
            hurried.query_range("up", HOUR, HOUR)
    assert (waits, len(server.asked)) == ([], 1)


def test_after_the_deadline_nothing_is_asked() -> None:
    with answering((200, GOOD, {})) as server:
        late = PrometheusClient(f"http://127.0.0.1:{server.server_port}", cluster="blue", deadline=Deadline(0))
        with pytest.raises(MetricsUnavailableError, match="the 0 s for all queries are used up"):
            late.query_range("up", HOUR, HOUR)
    assert server.asked == []


def test_an_answer_above_the_limit_is_asked_for_in_parts() -> None:
    big = GOOD.replace('"p"', '"' + "p" * ANSWER_BYTES + '"')
    with answering((200, big, {})) as server, pytest.raises(MetricsTooLargeError, match="more than 16 MiB"):
        client(server).query_range("up", HOUR, HOUR)
    assert len(server.asked) == 1


@pytest.mark.parametrize("kept", ["5", '"9' + "9" * 5000 + 'd"', '"²d"', '"٣d"', "null", "[]", '""'])
def test_a_retention_of_another_form_is_not_known(kept: str) -> None:
    with raw_server(lambda exchange: exchange.answer(f'{{"data": {{"storageRetention": {kept}}}}}'.encode())) as server:
        assert PrometheusClient(server.url, cluster="blue").retention() is None


def test_nobody_there() -> None:
    with answering((200, GOOD, {})) as server:
        gone = client(server)
    with pytest.raises(MetricsUnavailableError, match="could not be reached"):
        gone.query_range("up", HOUR, HOUR)


@pytest.mark.parametrize(
    ("text", "length"),
    [("15d", timedelta(days=15)), ("1y2w", timedelta(days=379)), ("90m30s", timedelta(seconds=5430)), ("", None)],
)
def test_durations(text: str, length: timedelta | None) -> None:
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
def test_limits_of_victoria_metrics_ask_for_smaller_parts(limit: str) -> None:
    refusal = json.dumps({"status": "error", "errorType": "422", "error": limit})
    with answering((422, refusal, {})) as server, pytest.raises(MetricsTooLargeError, match="422"):
        client(server).query_range("up", HOUR, HOUR)


def test_staleness_markers_of_victoria_metrics_are_no_samples() -> None:
    """It answers them as NaN where raw samples are asked for; Prometheus, whose answers carry stats, does not."""
    body = json.loads(GOOD)
    del body["data"]["stats"]
    ended = {"metric": {"pod": "ended"}, "values": [[1795082400, "NaN"]]}
    body["data"]["result"].append(ended)
    with answering((200, json.dumps(body), {})) as server:
        (series,) = client(server).raw_samples("up", HOUR, HOUR + timedelta(hours=1))
    assert series.samples == ((1795082400000, "3"),)


def test_whole_answer_of_victoria_metrics_cluster_is_taken() -> None:
    with answering((200, GOOD.replace('"status"', '"isPartial":false,"status"'), {})) as server:
        assert client(server).query_range("up", HOUR, HOUR)


THRESHOLD = json.dumps(
    {"status": "error", "errorType": "execution", "error": "too many samples processed: the error threshold is reached"}
)


@pytest.mark.parametrize(("auth", "limit"), [("sigv4", "500000000"), ("sigv4", "7000000"), ("none", None)])
def test_only_amp_is_asked_to_refuse_dear_queries(
    auth: str, limit: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with answering((200, GOOD, {})) as server:
        prometheus = {"url": f"http://127.0.0.1:{server.server_port}", "auth": auth}
        prometheus |= {"region": "eu-central-1"} if auth == "sigv4" else {}
        own = {} if limit in {None, "500000000"} else {"max_samples_per_query": int(str(limit))}
        document = {
            "clusters": [{"name": "blue", "prometheus": {**prometheus, **own}}],
            "pricing": {"source": "constant", "gpu_hourly_usd": 12},
        }
        settings = parse_settings(json.dumps(document))
        with suppress(MetricsAnswerError):
            metrics_reader(settings.clusters[0], settings).observe([HOUR])
        observed = len(server.asked)
        with suppress(MetricsAnswerError):
            PrometheusLimits(settings.clusters[0]).at_ends([HOUR])
        asked_of_limits = len(server.asked)
        examine(settings.clusters[0], settings, HOUR)
    assert 0 < observed < asked_of_limits < len(server.asked)
    for path, headers, form in server.asked:
        told = parse_qs(urlsplit(path).query)
        assert told == ({"max_samples_processed_error_threshold": [limit]} if limit else {})
        assert ("Authorization" in headers) == (auth == "sigv4")
        assert not any("threshold" in name for name in form)


def test_what_the_limit_refuses_is_neither_tried_again_nor_asked_in_parts() -> None:
    with answering((422, THRESHOLD, {})) as server:
        limited = PrometheusClient(f"http://127.0.0.1:{server.server_port}", cluster="blue", most_samples=10**6)
        with pytest.raises(MetricsAnswerError, match="the error threshold is reached") as refused:
            limited.query_range("up", HOUR, HOUR)
    assert not isinstance(refused.value, MetricsTooLargeError)
    assert len(server.asked) == 1


def test_a_limit_without_amp_is_refused() -> None:
    document = (
        '{"clusters": [{"name": "c", "prometheus": {"url": "http://x", "max_samples_per_query": 5000000}}], '
        '"pricing": {"source": "constant", "gpu_hourly_usd": 1}}'
    )
    with pytest.raises(SettingsError, match="max_samples_per_query goes with auth: sigv4 only"):
        parse_settings(document)


def test_query_that_another_failure_breaks_off_reports_that_failure() -> None:
    """Queries run in parallel: whichever of the two is reported, it says what went wrong first."""
    with raw_server(Exchange.hang) as server:
        deadline = Deadline(60)
        client = PrometheusClient(server.url, cluster="demo", deadline=deadline)
        Timer(0.2, client.end, ["cluster demo: the first query could not be reached"]).start()
        with pytest.raises(MetricsUnavailableError, match=r"^cluster demo: the first query could not be reached$"):
            client.query("up", HOUR)
        assert deadline.has_passed()
