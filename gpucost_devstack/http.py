"""Serves HTTP for the API function: turns requests into API Gateway events (payload 2.0)."""

import base64
import re
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from gpucost.core.errors import GpuCostError
from gpucost_devstack.identity import authorizer_of
from gpucost_devstack.loopback import LoopbackServer, serving_in_background
from gpucost_devstack.signatures import HttpRequest, SignatureError

Invoke = Callable[[Mapping[str, Any]], Any]
Identify = Callable[[HttpRequest], dict[str, Any]]
"""Returns the authorizer context of a request, or raises a `SignatureError`."""


class _Server(LoopbackServer):
    invoke: Invoke
    routes: Sequence[re.Pattern[str]]
    identify: Identify


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_GET  # noqa: N815 - names that the base class looks up

    def _answer(self) -> None:
        length = self.headers.get("Content-Length") or "0"
        if not (length.isascii() and length.isdigit()):  # as API Gateway
            self.close_connection = True
            self._send(400, {"content-type": "application/json"}, b'{"message":"Bad Request"}')
            return
        body = self.rfile.read(int(length))
        address = urlsplit(self.path)
        if not any(
            route.fullmatch(f"{self.command} {address.path}") for route in self.server.routes
        ):  # API Gateway answers this without calling the function
            self._send(404, {"content-type": "application/json"}, b'{"message":"Not Found"}')
            return
        headers: dict[str, str] = {}
        for name, value in self.headers.items():  # API Gateway joins repeated headers with commas
            lower = name.lower()
            headers[lower] = f"{headers[lower]},{value}" if lower in headers else value
        try:
            authorizer = self.server.identify(HttpRequest(self.command, self.path, headers, body))
        except SignatureError:  # an HTTP API does not say why
            self._send(403, {"content-type": "application/json"}, b'{"message":"Forbidden"}')
            return
        event = _api_gateway_event(self.command, self.path, headers, body, authorizer)
        try:
            answer = self.server.invoke(event)
        except GpuCostError:
            self._send(500, {"content-type": "application/json"}, b'{"message":"Internal Server Error"}')
            return
        text = answer.get("body") or ""
        data = base64.b64decode(text) if answer.get("isBase64Encoded") else text.encode()
        self._send(int(answer["statusCode"]), answer.get("headers") or {}, data)

    def _send(self, status: int, headers: Mapping[str, str], data: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep the terminal for results."""


@contextmanager
def serving_api(
    invoke: Invoke, routes: Sequence[str], listener: socket.socket | int, *, identify: Identify = authorizer_of
) -> Iterator[None]:
    """Answer HTTP on the loopback address.

    Args:
        invoke: calls the function with an event.
        routes: route keys, such as `GET /v1/business-units/{name}`. Other requests get 404.
        listener: where to listen: a port, or a socket of `gpucost_devstack.loopback.listen`.
        identify: returns the caller of a request. The default is `gpucost_devstack.identity`.

    Raises:
        GpuCostError: the port is taken.
    """
    server = _Server(listener, _Handler)
    server.invoke, server.routes, server.identify = invoke, [_route_pattern(route) for route in routes], identify
    with serving_in_background(server):
        yield


def _route_pattern(route: str) -> re.Pattern[str]:
    """A pattern for the requests that API Gateway sends to a route.

    `{name}` is one path segment, and `{name+}` the rest of the path.
    """
    pattern = re.sub(r"\\{[^}]*\\\+\\}", ".+", re.escape(route))
    return re.compile(re.sub(r"\\{[^}]*\\}", "[^/]+", pattern))


def _api_gateway_event(
    method: str, target: str, headers: Mapping[str, str], body: bytes, authorizer: Mapping[str, Any]
) -> dict[str, Any]:
    address = urlsplit(target)
    query: dict[str, str] = {}
    for name, value in parse_qsl(address.query, keep_blank_values=True):
        # API Gateway joins repeated parameters with a comma.
        query[name] = f"{query[name]},{value}" if name in query else value
    return {
        "version": "2.0",
        "routeKey": f"{method} {address.path}",
        "rawPath": unquote(address.path),
        "rawQueryString": address.query,
        "headers": headers,
        **({"queryStringParameters": query} if query else {}),
        "requestContext": {
            "accountId": "000000000000",
            "apiId": "local",
            "authorizer": authorizer,
            "domainName": "127.0.0.1",
            "domainPrefix": "local",
            "http": {
                "method": method,
                "path": address.path,
                "protocol": "HTTP/1.1",
                "sourceIp": "127.0.0.1",
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": str(uuid.uuid4()),
            "routeKey": f"{method} {address.path}",
            "stage": "$default",
            "time": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime()),
            "timeEpoch": int(time.time() * 1000),
        },
        **({"body": base64.b64encode(body).decode()} if body else {}),
        "isBase64Encoded": bool(body),
    }
