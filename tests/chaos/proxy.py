"""A real Prometheus behind a proxy that fails like networks and Amazon's service."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import requests

DRIP_SECONDS = 0.4
Failure = Callable[["_Handler", bytes], None]
"""Answers one query, from Prometheus' own response."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    upstream: str
    failure: Failure
    remaining: int
    refused: int


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kind = {"Content-Type": self.headers["Content-Type"]}
        answer = requests.post(self.server.upstream + self.path, data=body, headers=kind, timeout=60)
        if self.server.remaining:
            self.server.remaining -= 1
            self.server.refused += 1
            self.server.failure(self, answer.content)
        else:
            self.say(answer.status_code, answer.content)

    def do_GET(self) -> None:
        self.say(404, b"not found")

    def say(self, status: int, content: bytes, **headers: str) -> None:
        """Send a complete response."""
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def begin(self, content: bytes) -> None:
        """Send the headers of a complete response, and the first half of its body."""
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2])
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


def _refusal(status: int, text: str, **headers: str) -> Failure:
    return lambda handler, _: handler.say(status, text.encode(), **headers)


def _reset(handler: _Handler, content: bytes) -> None:
    handler.begin(content)
    handler.close_connection = True


def _drip(handler: _Handler, content: bytes) -> None:
    handler.begin(content)
    try:
        for position in range(len(content) // 2, len(content)):
            time.sleep(DRIP_SECONDS)
            handler.wfile.write(content[position : position + 1])
            handler.wfile.flush()
    except OSError:
        handler.close_connection = True


def _warn(handler: _Handler, content: bytes) -> None:
    """Every other series, with a warning, as a query front end answers without one of its stores."""
    answer = json.loads(content)
    answer["data"]["result"] = answer["data"]["result"][::2]
    handler.say(200, json.dumps({**answer, "warnings": ["a store is away"]}).encode())


FAILURES: dict[str, Failure] = {
    "429 with Retry-After": _refusal(429, "slow down", Retry_After="1"),
    "429 without Retry-After": _refusal(429, "slow down"),
    "503": _refusal(503, "away"),
    "422 query timed out": _refusal(422, '{"status": "error", "errorType": "timeout", "error": "query timed out"}'),
    "413": _refusal(413, "response larger than the max"),
    "reset in the middle of an answer": _reset,
    "an answer that drips": _drip,
    "partial data with a warning": _warn,
}


@contextmanager
def failing_proxy(upstream: str, failure: str, queries: int) -> Iterator[tuple[str, Callable[[], int]]]:
    """Let some queries fail. Yields (URL, function that returns how many failed)."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.upstream, server.failure, server.remaining, server.refused = upstream, FAILURES[failure], queries, 0
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", lambda: server.refused
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
