"""The signing proxy in front of a real HTTP server that checks every signature."""

import http.client
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qsl, unquote

import pytest
from botocore.credentials import Credentials

from gpucost.core.errors import GpuCostError
from gpucost_cli.signing_proxy import region_of, serve_proxy, signer
from gpucost_devstack.signatures import HttpRequest, SignatureError
from tests.signatures import CREDENTIALS, check_signature


@dataclass
class Upstream:
    """Requests that reached the API, and whether their signatures are valid."""

    port: int = 0
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    go_on: Event = field(default_factory=Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def upstream_api() -> Iterator[Upstream]:
    api = Upstream()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            api.requests.append((self.command, self.path, headers))
            try:
                check_signature(HttpRequest(self.command, self.path, headers))
            except SignatureError:
                self.answer(403, b'{"message":"Forbidden"}')
                return
            if self.path.startswith("/slow"):
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self.wfile.write(b"5\r\nfirst\r\n")
                api.go_on.wait(10)
                self.wfile.write(b"4\r\nlast\r\n0\r\n\r\n")
            elif self.path.startswith("/moved"):
                self.send_response(302)
                self.send_header("Location", "http://127.0.0.1:9/")
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self.answer(200, self.path.encode())

        def answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Security-Policy", "default-src 'none'")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.port = int(server.server_address[1])
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        api.go_on.set()
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    with upstream_api() as api:
        yield api


@pytest.fixture(scope="module")
def proxy(upstream: Upstream) -> Iterator[str]:
    with serve_proxy(upstream.url, signer(CREDENTIALS, "eu-central-1"), 0) as address:
        yield address.removeprefix("http://")


def ask(proxy: str, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(proxy, timeout=10)
    connection.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    response = answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
    connection.close()
    return response


@pytest.mark.parametrize(
    "path",
    [
        "/v1/costs?start=2026-11-18T00:00:00Z&end=2026-11-19T00%3A00%3A00Z",
        "/allocation/compute?window=7d&aggregate=namespace,label:team&filter=namespace:%22a%22%2Bpod!:%22b%22",
        "/v1/business-units/my%20unit/workloads?a=&b=%E7%A0%94&b=2",
        "/v1/costs?group_by=namespace,workload&label=team:search,env:!dev&namespace=bu-*&business_unit=my+unit",
        '/allocation?filter=label[team]:"x"',
        "/",
    ],
)
def test_requests_arrive_signed_and_unchanged(proxy: str, upstream: Upstream, path: str) -> None:
    status, headers, body = ask(proxy, path)
    assert (status, headers["content-security-policy"]) == (200, "default-src 'none'")
    assert body.decode() == upstream.requests[-1][1]
    sent = upstream.requests[-1]
    assert sent[0] == "GET"
    assert unquote(sent[1].partition("?")[0]) == unquote(path.partition("?")[0])
    assert parse_qsl(sent[1].partition("?")[2], True) == parse_qsl(path.partition("?")[2], True)


def test_wrong_signatures_are_detected(upstream: Upstream) -> None:
    with serve_proxy(
        upstream.url, signer(Credentials("AKIDEXAMPLE", "wrong", "session-token"), "eu-central-1"), 0
    ) as other:
        assert ask(other.removeprefix("http://"), "/v1/costs")[0] == 403
    with serve_proxy(upstream.url, None, 0) as other:
        assert ask(other.removeprefix("http://"), "/v1/costs")[0] == 403


def test_identity_headers_of_the_caller_are_not_forwarded(proxy: str, upstream: Upstream) -> None:
    status, _, _ = ask(
        proxy, "/x", Authorization="Bearer mine", Cookie="a=b", X_Act_As="arn", X_Amz_Date="x", Accept="text/csv"
    )
    assert status == 200
    headers = upstream.requests[-1][2]
    assert headers["authorization"].startswith("AWS4-HMAC-SHA256")
    assert headers["accept"] == "text/csv"
    assert not {"cookie", "x-act-as"} & headers.keys()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_only_reads_are_forwarded(proxy: str, upstream: Upstream, method: str) -> None:
    before = len(upstream.requests)
    status, headers, body = ask(proxy, "/v1/costs", method)
    assert (status, headers["allow"], headers["content-type"]) == (405, "GET, HEAD", "application/problem+json")
    assert json.loads(body)["detail"].startswith("only GET and HEAD")
    assert len(upstream.requests) == before


def test_head_is_a_get_without_the_body(proxy: str, upstream: Upstream) -> None:
    status, headers, body = ask(proxy, "/v1/costs", "HEAD")
    assert (status, headers["content-length"], body) == (200, "9", b"")
    assert upstream.requests[-1][0] == "GET"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "evil.example:{port}"},
        {"Host": "127.0.0.1"},
        {"Host": "127.0.0.1:{port}.evil.example"},
        {"Host": "0.0.0.0:{port}"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Content_Length": "5"},
        {"Transfer_Encoding": "chunked"},
    ],
)
def test_other_hosts_and_origins_are_refused(proxy: str, upstream: Upstream, headers: dict[str, str]) -> None:
    before = len(upstream.requests)
    port = proxy.rpartition(":")[2]
    status, _, _ = ask(proxy, "/v1/costs", **{name: value.format(port=port) for name, value in headers.items()})
    assert status == 403
    assert len(upstream.requests) == before


@pytest.mark.parametrize("host", ["model", "Model:80", "gpucost.example.com:8443"])
def test_allowed_host_names_are_accepted(upstream: Upstream, host: str) -> None:
    allowed = ("model", "gpucost.example.com")
    with serve_proxy(upstream.url, signer(CREDENTIALS, "eu-central-1"), 0, allowed_hosts=allowed) as address:
        proxy = address.removeprefix("http://")
        assert ask(proxy, "/v1/costs", Host=host)[0] == 200
        assert ask(proxy, "/v1/costs", Host=host, Sec_Fetch_Site="cross-site")[0] == 403
        for other in ("evil.example", "model.evil.example", "evil.example:80"):
            status, _, body = ask(proxy, "/v1/costs", Host=other)
            assert (status, "allow the name with --allow-host" in json.loads(body)["detail"]) == (403, True)


@pytest.mark.parametrize("headers", [{"Host": "localhost:{port}"}, {"Sec_Fetch_Site": "same-origin"}])
def test_local_host_names_are_accepted(proxy: str, headers: dict[str, str]) -> None:
    port = proxy.rpartition(":")[2]
    assert ask(proxy, "/v1/costs", **{name: value.format(port=port) for name, value in headers.items()})[0] == 200


def test_answers_are_streamed(proxy: str, upstream: Upstream) -> None:
    upstream.go_on.clear()
    connection = http.client.HTTPConnection(proxy, timeout=10)
    connection.request("GET", "/slow")
    answer = connection.getresponse()
    assert answer.read(5) == b"first", "the first part arrives before the last is sent"
    upstream.go_on.set()
    assert answer.read() == b"last"
    connection.close()


def test_redirects_are_returned_to_the_caller(proxy: str) -> None:
    status, headers, _ = ask(proxy, "/moved")
    assert (status, headers["location"]) == (302, "http://127.0.0.1:9/")


def test_unreachable_api_is_502() -> None:
    with serve_proxy("http://127.0.0.1:9", None, 0) as address:
        status, _, body = ask(address.removeprefix("http://"), "/v1/costs")
    problem: dict[str, Any] = json.loads(body)
    assert (status, problem["instance"]) == (502, "/v1/costs")
    assert "127.0.0.1:9" not in problem["detail"]


def test_port_in_use_is_reported(proxy: str) -> None:
    with pytest.raises(GpuCostError, match="is taken; choose another"), serve_proxy("http://x", None, int(proxy[10:])):
        pass


def test_region_is_read_from_the_url() -> None:
    assert region_of("https://a1.execute-api.eu-central-1.amazonaws.com", "us-east-1") == "eu-central-1"
    assert region_of("https://a1.execute-api.cn-north-1.amazonaws.com.cn", None) == "cn-north-1"
    assert region_of("https://gpucost.example.com", "us-east-1") == "us-east-1"
    with pytest.raises(GpuCostError, match="Set AWS_REGION"):
        region_of("https://gpucost.example.com", None)
