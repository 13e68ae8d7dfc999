"""HTTP requests end in time and stay within their limits, against servers that try to prevent both."""

import gzip
import socket
import time
import tracemalloc
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from threading import Timer

import pytest
import requests

from gpucost.runtime.bounded_http import (
    MAX_ERROR_BODY_BYTES,
    REQUEST_ERRORS,
    BoundedHttp,
    HttpResponse,
    ResponseTooLargeError,
    connection_problem,
    is_timeout,
    post_json,
    retry_after,
)
from gpucost.runtime.deadline import Deadline
from tests.raw_server import Exchange, elapsed, raw_server

MIB = 1 << 20
GENEROUS = 20.0
"""Seconds: far more than any deadline in this file, far less than the timeouts without one."""


def get(http: BoundedHttp, url: str, seconds: float = GENEROUS, limit: int = MIB) -> HttpResponse:
    return http.send(requests.Request("GET", url).prepare, deadline=Deadline(seconds), limit=limit)


def drip_status(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 2")
    exchange.drip(b"0", 0.05)


def drip_header(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nX-Long: ")
    exchange.drip(b"x", 0.05)


def drip_continues(exchange: Exchange) -> None:
    exchange.drip(b"HTTP/1.1 100 Continue\r\n\r\n", 0.05)


def drip_body(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    exchange.drip(b" ", 0.05)


def drip_chunk(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    exchange.drip(b"1\r\n \r\n", 0.05)


def drip_chunk_size(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    exchange.drip(b"0", 0.05)


def drip_gzip(exchange: Exchange) -> None:
    exchange.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nConnection: close\r\n\r\n")
    exchange.drip(gzip.compress(b""), 0.05)


@pytest.mark.parametrize(
    "script",
    [Exchange.hang, drip_status, drip_header, drip_continues, drip_body, drip_chunk, drip_chunk_size, drip_gzip],
)
def test_exchange_ends_at_deadline(script: Callable[[Exchange], None]) -> None:
    with raw_server(script) as server, pytest.raises(REQUEST_ERRORS) as failure:
        assert elapsed(lambda: get(BoundedHttp(server.url), server.url, seconds=0.4)) < GENEROUS
    assert is_timeout(failure.value)


def test_name_resolution_ends_at_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: time.sleep(3 * GENEROUS))
    with pytest.raises(TimeoutError):
        assert elapsed(lambda: get(BoundedHttp("http://a.test"), "http://a.test", seconds=0.3)) < GENEROUS


def test_tls_handshake_ends_at_deadline() -> None:
    with raw_server(Exchange.hang) as server, pytest.raises(REQUEST_ERRORS):
        url = server.url.replace("http://", "https://")
        assert elapsed(lambda: get(BoundedHttp(url), url, seconds=0.3)) < GENEROUS


def test_signing_ends_at_deadline() -> None:
    def sign() -> requests.PreparedRequest:
        time.sleep(3 * GENEROUS)
        raise AssertionError

    with raw_server(Exchange.hang) as server, pytest.raises(TimeoutError):
        BoundedHttp(server.url).send(sign, deadline=Deadline(0.3), limit=MIB)
    assert server.queries == []


def test_cancelled_deadline_ends_an_exchange() -> None:
    deadline = Deadline(3 * GENEROUS)
    with raw_server(Exchange.hang) as server, pytest.raises(REQUEST_ERRORS):
        Timer(0.2, deadline.cancel, ("no longer needed",)).start()
        request = requests.Request("GET", server.url).prepare
        assert elapsed(lambda: BoundedHttp(server.url).send(request, deadline=deadline, limit=MIB)) < GENEROUS


def test_error_while_creating_the_request_is_raised() -> None:
    def fail() -> requests.PreparedRequest:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        BoundedHttp("http://127.0.0.1:9").send(fail, deadline=Deadline(GENEROUS), limit=MIB)


def bomb(size: int) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join([*(packer.compress(bytes(MIB)) for _ in range(size // MIB)), packer.flush()])


def test_response_is_decompressed_up_to_its_limit() -> None:
    body = bomb(64 * MIB)
    with raw_server(lambda exchange: exchange.answer(body, "Content-Encoding: gzip")) as server:
        tracemalloc.start()
        try:
            with pytest.raises(ResponseTooLargeError, match="more than 1 MiB"):
                get(BoundedHttp(server.url), server.url)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 6 * MIB


def endless(head: bytes, part: bytes) -> Callable[[Exchange], None]:
    def script(exchange: Exchange) -> None:
        exchange.send(head)
        exchange.drip(part, 0)

    return script


@pytest.mark.parametrize(
    ("head", "part"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", bytes(65536)),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + bytes(65536) + b"\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", bytes(65536)),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n",
            gzip.compress(b"", mtime=0) * 1000,
            marks=pytest.mark.tools,  # seconds
        ),
        (b"HTTP/1.1 200 OK\r\n", b"X: " + b"y" * 60000 + b"\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    ],
    ids=["body", "chunks", "chunk of size -1", "empty gzip members", "headers", "continues"],
)
def test_endless_response_is_read_up_to_its_limit(head: bytes, part: bytes) -> None:
    with raw_server(endless(head, part)) as server, pytest.raises((ResponseTooLargeError, *REQUEST_ERRORS)) as failure:
        get(BoundedHttp(server.url), server.url)
    assert not is_timeout(failure.value)


@pytest.mark.parametrize("status", ["400 Bad Request", "302 Found", "503 Service Unavailable"])
def test_beginning_of_an_error_response_is_read(status: str) -> None:
    with raw_server(lambda exchange: exchange.answer(b"why" * MIB, "Location: /", status=status)) as server:
        response = get(BoundedHttp(server.url), server.url, limit=8 * MIB)
    assert len(response.body) == MAX_ERROR_BODY_BYTES
    assert response.text(6) == "whywhy"
    assert len(server.queries) == 1, "a redirect is not followed"


def test_long_response_to_a_post_is_truncated() -> None:
    with raw_server(lambda exchange: exchange.answer(b"ok" * MIB)) as server:
        assert post_json(server.url, {"a": 1}, seconds=GENEROUS).status == 200


def test_gzip_with_several_members_is_read_completely() -> None:
    body = gzip.compress(b"one ") + gzip.compress(b"two")
    with raw_server(lambda exchange: exchange.answer(body, "Content-Encoding: gzip")) as server:
        assert get(BoundedHttp(server.url), server.url).body == b"one two"


@pytest.mark.parametrize(
    ("body", "encoding"),
    [(gzip.compress(b"x" * 1000, mtime=0)[:-9], "gzip"), (b"not compressed", "gzip"), (b"x", "br"), (b"x", "deflate")],
)
def test_unreadable_body_is_a_failure(body: bytes, encoding: str) -> None:
    with raw_server(lambda exchange: exchange.answer(body, f"Content-Encoding: {encoding}")) as server:
        with pytest.raises(REQUEST_ERRORS) as failure:
            get(BoundedHttp(server.url), server.url)
        assert not is_timeout(failure.value)


def test_incomplete_body_is_a_failure() -> None:
    def script(exchange: Exchange) -> None:
        exchange.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        raise OSError

    with raw_server(script) as server, pytest.raises(REQUEST_ERRORS):
        get(BoundedHttp(server.url), server.url)


def test_connection_is_reused_until_it_is_closed() -> None:
    closing = [False, True, False]

    def script(exchange: Exchange) -> None:
        exchange.answer(b"ok")
        if closing[len(server.queries) - 1]:
            raise OSError

    with raw_server(script) as server:
        http = BoundedHttp(server.url)
        assert get(http, server.url).body == b"ok"
        assert get(http, server.url).body == b"ok"
        assert server.connections == 1
        while http._idle_connections[0].is_connected:
            time.sleep(0.01)
        assert get(http, server.url).body == b"ok"
    assert server.connections == 2


@pytest.mark.parametrize(("text", "minimum", "maximum"), [("7", 7, 7), (" 0 ", 0, 0), ("9" * 400, 1e300, float("inf"))])
def test_retry_after_is_a_number_of_seconds(text: str, minimum: float, maximum: float) -> None:
    seconds = retry_after({"Retry-After": text})
    assert seconds is not None
    assert minimum <= seconds <= maximum


@pytest.mark.parametrize(("hours", "minimum", "maximum"), [(1, 3500, 3600), (-1, 0, 0)])
def test_retry_after_is_a_date(hours: int, minimum: float, maximum: float) -> None:
    date = datetime.now(UTC) + timedelta(hours=hours)  # not when the test is collected, which may be long before
    seconds = retry_after({"Retry-After": format_datetime(date, usegmt=True)})
    assert seconds is not None
    assert minimum <= seconds <= maximum


@pytest.mark.parametrize("text", ["", "²", "٣", "-1", "1.5", "1e3", "nan", "inf", "soon", "Xyz, 99 Foo 99999 99:99:99"])
def test_invalid_retry_after_is_ignored(text: str) -> None:
    assert retry_after({"Retry-After": text}) is None


@pytest.mark.parametrize(
    ("url", "reason"),
    [("http://127.0.0.1:9", "connection refused"), ("http://no-such-host.invalid", "its host name cannot be resolved")],
)
def test_failed_connections_are_described(url: str, reason: str) -> None:
    with pytest.raises(REQUEST_ERRORS) as failure:
        get(BoundedHttp(url), url)
    assert connection_problem(failure.value) == reason


def test_server_without_tls_is_described() -> None:
    """The server answers the client's first bytes, which are no line of HTTP."""

    def refuse(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            with suppress(OSError):
                while connection.recv(1 << 16):  # closing with unread bytes would reset the connection
                    pass

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        refused = threads.submit(refuse, listener)
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(REQUEST_ERRORS) as failure:
            get(BoundedHttp(url), url)
        refused.result()
    assert connection_problem(failure.value) == "TLS failed"


def test_unnamed_problem_has_the_name_of_its_class() -> None:
    assert connection_problem(EOFError("https://hooks.example.com/secret")) == "EOFError"
