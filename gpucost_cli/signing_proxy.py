"""A local proxy for a deployment's API that signs requests with the caller's credentials.

It is for browsers and OpenCost's tools, which cannot sign requests. It listens on the loopback address, forwards only
GET and HEAD, and checks the Host header to prevent DNS rebinding.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from urllib3.exceptions import HTTPError

from gpucost.core.errors import GpuCostError
from gpucost.runtime.bounded_http import connection_problem
from gpucost.runtime.json_text import dumps
from gpucost_devstack.loopback import LoopbackServer, serving_in_background

SignRequest = Callable[[str], Mapping[str, str]]
"""Returns the headers of a signed GET request for a URL."""

_FORWARDED_HEADERS = {
    "accept",
    "accept-encoding",
    "accept-language",
    "if-none-match",
    "if-modified-since",
    "user-agent",
}
_HOP_BY_HOP_HEADERS = {"connection", "keep-alive", "transfer-encoding", "upgrade", "trailer", "te", "server", "date"}
"""Hop-by-hop headers, which are not forwarded (RFC 9110, 7.6.1), and headers that the proxy writes itself."""
_CHUNK_BYTES = 64 * 1024
_TIMEOUT = (5, 35)
"""Seconds to connect and to wait for data. API Gateway's timeout is 30 seconds."""


def signer(credentials: Any, region: str) -> SignRequest:
    """Return a signer (SigV4, service `execute-api`). Temporary credentials are refreshed when they expire.

    Args:
        credentials: botocore credentials.
        region: region of the API.
    """

    def sign(url: str) -> Mapping[str, str]:
        request = AWSRequest("GET", url)
        SigV4Auth(credentials.get_frozen_credentials(), "execute-api", region).add_auth(request)
        return dict(request.headers.items())

    return sign


def encoded_target(target: str) -> str:
    """Encode a path and query as AWS does (RFC 3986: all but unreserved characters).

    AWS verifies the signature of what it encodes again from the request that arrived, whereas botocore signs a URL's
    query as it is: a comma, colon, asterisk, quote or `+` that a browser or curl leaves as it is would be refused.
    """
    path, mark, query = target.partition("?")
    segments = [
        quote(unquote(segment, errors="surrogateescape"), safe="", errors="surrogateescape")
        for segment in path.split("/")
    ]
    parameters = parse_qsl(query, keep_blank_values=True, errors="surrogateescape")
    return "/".join(segments) + mark + urlencode(parameters, quote_via=quote, safe="", errors="surrogateescape")


def region_of(url: str, default: str | None) -> str:
    """Return the region in an API's URL, or the default for custom domains.

    Raises:
        GpuCostError: the URL has no region, and there is no default.
    """
    labels = (urlsplit(url).hostname or "").split(".")
    if "execute-api" in labels[:-1]:
        return labels[labels.index("execute-api") + 1]
    if default is None:
        raise GpuCostError(f"the region of {url} is not known. Set AWS_REGION.")
    return default


def _keep_authorization(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Keep the signature. Without this, requests would replace it with credentials from ~/.netrc."""
    return request


class _Server(LoopbackServer):
    upstream: str
    sign: SignRequest | None
    allowed_hosts: Collection[str]
    session: requests.Session


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        if rejection := self._rejection():
            self._problem(403, "Forbidden", rejection)
        elif not self.path.startswith("/"):
            self._problem(400, "Bad Request", "the path must start with a slash")
        else:
            self._forward()

    do_HEAD = do_GET  # noqa: N815 - names that the base class looks up

    def do_POST(self) -> None:
        self.close_connection = True  # a body may follow, which is not read
        self._problem(
            405, "Method Not Allowed", "only GET and HEAD are allowed, because the API is read-only", allow=True
        )

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = do_POST  # noqa: N815

    def _rejection(self) -> str | None:
        port = self.server.server_address[1]
        hosts = self.headers.get_all("Host") or []
        if hosts not in ([f"127.0.0.1:{port}"], [f"localhost:{port}"]) and not self._is_allowed_by_option(hosts):
            return f"wrong Host header. Use http://127.0.0.1:{port}, or allow the name with --allow-host"
        if self.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
            return "cross-site requests are not allowed"
        if self.headers.get("Content-Length", "0") != "0" or self.headers.get("Transfer-Encoding"):
            self.close_connection = True
            return "request bodies are not allowed"
        return None

    def _is_allowed_by_option(self, hosts: list[str]) -> bool:
        return len(hosts) == 1 and hosts[0].partition(":")[0].lower() in self.server.allowed_hosts

    def _forward(self) -> None:
        headers = {name: value for name, value in self.headers.items() if name.lower() in _FORWARDED_HEADERS}
        request = requests.Request("GET", self.server.upstream + encoded_target(self.path), headers=headers)
        prepared = self.server.session.prepare_request(request)
        if self.server.sign is not None:
            prepared.headers.update(self.server.sign(str(prepared.url)))
        session = self.server.session
        settings = session.merge_environment_settings(str(prepared.url), {}, True, None, None)
        try:
            response = session.send(prepared, timeout=_TIMEOUT, allow_redirects=False, **settings)
        except requests.RequestException as error:
            self._problem(502, "Bad Gateway", f"the API is not reachable: {connection_problem(error)}")
            return
        with response:
            self.send_response(response.status_code)
            for name, value in response.headers.items():
                if name.lower() not in _HOP_BY_HOP_HEADERS:
                    self.send_header(name, value)
            has_length = "Content-Length" in response.headers
            if not has_length:
                self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if self.command != "HEAD":
                self._stream(response, chunked=not has_length)

    def _stream(self, response: requests.Response, *, chunked: bool) -> None:
        try:
            for part in response.raw.stream(_CHUNK_BYTES, decode_content=False):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
        except (OSError, HTTPError):
            self.close_connection = True  # the closed connection shows the client that the response is truncated

    def _problem(self, status: int, title: str, detail: str, *, allow: bool = False) -> None:
        problem = {"type": "about:blank", "title": title, "status": status, "detail": detail}
        body = dumps({**problem, "instance": urlsplit(self.path).path}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/problem+json")
        self.send_header("Content-Length", str(len(body)))
        if allow:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


@contextmanager
def serve_proxy(
    upstream: str, sign: SignRequest | None, port: int, *, allowed_hosts: Collection[str] = ()
) -> Iterator[str]:
    """Run the proxy and yield its local URL.

    Args:
        upstream: the API's URL.
        sign: signs requests; None for APIs without signatures, such as the demo's.
        port: port to listen on; 0 for any free port.
        allowed_hosts: further names of this proxy, for proxies in front of it that send one in the Host header.

    Raises:
        GpuCostError: the port is in use.
    """
    server = _Server(port, _Handler)
    server.upstream, server.sign, server.session = upstream.rstrip("/"), sign, requests.Session()
    server.allowed_hosts = {name.lower() for name in allowed_hosts}
    server.session.auth = _keep_authorization
    with server.session, serving_in_background(server):
        yield server.url
