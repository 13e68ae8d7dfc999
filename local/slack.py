"""An incoming webhook on this machine: takes what would be posted to Slack and keeps it."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


class Slack(ThreadingHTTPServer):
    """The endpoint; `posts` holds the payloads, oldest first."""

    daemon_threads = True
    posts: list[dict[str, Any]]

    @property
    def url(self) -> str:
        """Where to post."""
        return f"http://127.0.0.1:{self.server_port}/services/local"


class _Handler(BaseHTTPRequestHandler):
    server: Slack

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.posts.append(json.loads(body))
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep the terminal for results."""


@contextmanager
def running_slack() -> Iterator[Slack]:
    """Serve on a free port of the loopback address."""
    server = Slack(("127.0.0.1", 0), _Handler)
    server.posts = []
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
