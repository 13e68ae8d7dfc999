"""A real Prometheus behind a limit on the response size, like Amazon's service."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import requests


@dataclass
class Traffic:
    """The requests and responses that passed the limit."""

    answered: list[int] = field(default_factory=list)
    """Bytes of each forwarded response."""
    refused: list[int] = field(default_factory=list)
    """Bytes of each refused response."""
    queries: list[str] = field(default_factory=list)


class _Server(ThreadingHTTPServer):
    upstream: str
    most: int
    traffic: Traffic


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kind = {"Content-Type": self.headers["Content-Type"]}
        answer = requests.post(self.server.upstream + self.path, data=body, headers=kind, timeout=60)
        self.server.traffic.queries.append(body.decode())
        size = len(answer.content)
        if size > self.server.most:
            self.server.traffic.refused.append(size)
            text = f"response larger than the max ({size} vs {self.server.most})".encode()
            self._say(413, "text/plain", text)
        else:
            self.server.traffic.answered.append(size)
            self._say(answer.status_code, answer.headers["Content-Type"], answer.content)

    def do_GET(self) -> None:
        self._say(404, "text/plain", b"not found")

    def _say(self, status: int, kind: str, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


@contextmanager
def limited(upstream: str, most: int) -> Iterator[tuple[str, Traffic]]:
    """Run the limit in front of a Prometheus. Yields its URL and its traffic."""
    server = _Server(("127.0.0.1", 0), _Handler)
    server.upstream, server.most, server.traffic = upstream, most, Traffic()
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.traffic
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
