"""One HTTP server for all external systems except AWS's core services: metrics, prices, Slack, Alertmanager."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.golden.aws_prices import AwsPrices
from tests.golden.metrics import Metrics


class Outside(ThreadingHTTPServer):
    """The server.

    Attributes:
        metrics: what `/prometheus/<cluster>` answers.
        down: clusters whose metrics are unavailable at the moment. Their Prometheus answers 400.
        prices: what `/aws/<service>` answers.
        posts: what was posted to `/slack/<name>` and `/alertmanager/<name>` since somebody took it.
        api: calls the api function with an event, for `/api`.
    """

    daemon_threads = True
    metrics: Metrics
    down: set[str]
    prices: AwsPrices
    posts: list[dict[str, Any]]
    api: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    lock: Lock

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_port}"

    def answer(self, method: str, target: str, headers: Mapping[str, str], body: str) -> tuple[int, str, str]:
        """Status, content type and body."""
        address = urlsplit(target)
        match address.path.strip("/").split("/"):
            case ["prometheus", cluster, "api", "v1", *path]:
                if cluster in self.down:
                    return 400, "application/json", json.dumps({"status": "error", "error": "golden: out of order"})
                if path == ["status", "runtimeinfo"]:
                    retention = {"status": "success", "data": {"storageRetention": "400d"}}
                    return 200, "application/json", json.dumps(retention)
                if path == ["status", "buildinfo"]:
                    build = {
                        "status": "success",
                        "data": {"version": "2.42.0", "branch": "HEAD", "goVersion": "go1.20"},
                    }
                    return 200, "application/json", json.dumps(build)
                if method == "GET":
                    return 404, "text/plain", "not found"
                status, answer = self.metrics.answer("/".join(path), body)
                return status, "application/json", json.dumps(answer)
            case ["aws", service, *_]:
                return self.prices.answer(service, headers.get("x-amz-target", ""), body)
            case ["slack" | "alertmanager" as kind, name, *_]:
                self.posts.append({"to": f"{kind}/{name}", "body": json.loads(body)})
                return 200, "text/plain", "ok"
            case ["api", *path] if self.api is not None:
                answer = self.api(event(method, f"/{'/'.join(path)}", address.query, {"iam": {"userArn": ADMIN}}))
                return answer["statusCode"], answer["headers"].get("content-type", "application/json"), body_of(answer)
            case _:
                return 404, "text/plain", "not found"


ADMIN = "arn:aws:iam::210987654321:user/admin"


def event(method: str, path: str, query: str, authorizer: Mapping[str, Any], authorization: str = "") -> dict[str, Any]:
    """A request as an API Gateway HTTP API forwards it (payload 2.0)."""
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        parameters[name] = f"{parameters[name]},{value}" if name in parameters else value
    http = {"method": method, "path": path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1", "userAgent": "golden"}
    return {
        "version": "2.0",
        "routeKey": f"{method} {path}",
        "rawPath": unquote(path),
        "rawQueryString": query,
        "headers": {"host": "costs.example.com", **({"authorization": authorization} if authorization else {})},
        **({"queryStringParameters": parameters} if parameters else {}),
        "requestContext": {
            **({"authorizer": authorizer} if authorizer else {}),
            "domainName": "costs.example.com",
            "http": http,
            "requestId": "golden",
            "stage": "$default",
        },
        "isBase64Encoded": False,
    }


def body_of(answer: Mapping[str, Any]) -> str:
    """The text of a function's answer."""
    text = answer.get("body") or ""
    return base64.b64decode(text).decode() if answer.get("isBase64Encoded") else text


class _Handler(BaseHTTPRequestHandler):
    server: Outside
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or every answer waits 40 ms for an acknowledgement

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        headers = {name.lower(): value for name, value in self.headers.items()}
        with nullcontext() if self.path.startswith("/api") else self.server.lock:
            status, content_type, text = self.server.answer(self.command, self.path, headers, body)
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET  # noqa: N815 - a name that the base class looks up

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Print nothing."""


@contextmanager
def running_outside(metrics: Metrics) -> Iterator[Outside]:
    """Serve on a free port of the loopback address."""
    server = Outside(("127.0.0.1", 0), _Handler)
    server.metrics, server.prices, server.posts, server.down, server.lock = metrics, AwsPrices(), [], set(), Lock()
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
