"""A local incoming webhook, which records the messages that would be posted to Slack."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from gpucost_devstack.loopback import LoopbackServer, serving_in_background


class SlackWebhook(LoopbackServer):
    """The webhook. `posts` holds the received payloads, oldest first."""

    posts: list[dict[str, Any]]

    @property
    def url(self) -> str:
        """The webhook's URL."""
        return f"{super().url}/services/local"


class _Handler(BaseHTTPRequestHandler):
    server: SlackWebhook

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
def running_slack() -> Iterator[SlackWebhook]:
    """Serve on a free port of the loopback address."""
    server = SlackWebhook(0, _Handler)
    server.posts = []
    with serving_in_background(server):
        yield server
