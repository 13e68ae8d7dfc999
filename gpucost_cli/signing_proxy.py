"""A local address for a deployment's API: requests are signed with the caller's credentials and passed on.

Browsers and OpenCost's tools sign nothing; this does it for them. It listens on the loopback address, for reading
alone, and only for who names it by that address: a web page that lets its own name point here (DNS rebinding) is
refused.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import urlsplit

import requests
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from urllib3.exceptions import HTTPError

from devstack.loopback import LoopbackServer, serving_requests
from gpucost.core.errors import GpuCostError
from gpucost.runtime.json_text import dumps

Sign = Callable[[str], Mapping[str, str]]
"""Headers that make a GET of an address a signed one."""

_PASSED_ON = {"accept", "accept-encoding", "accept-language", "if-none-match", "if-modified-since", "user-agent"}
_OWN = {"connection", "keep-alive", "transfer-encoding", "upgrade", "trailer", "te", "server", "date"}
"""Headers of one connection, which are not passed on (RFC 9110, 7.6.1), and those that are written here."""
_CHUNK = 64 * 1024
_TIMEOUT = (5, 35)
"""Seconds to connect, and to wait for bytes: API Gateway gives up after 30."""


def signer(credentials: Any, region: str) -> Sign:
    """Sign as the caller (SigV4, service `execute-api`); temporary credentials are renewed when they run out.

    Args:
        credentials: botocore's.
        region: of the API.
    """

    def sign(url: str) -> Mapping[str, str]:
        request = AWSRequest("GET", url)
        SigV4Auth(credentials.get_frozen_credentials(), "execute-api", region).add_auth(request)
        return dict(request.headers.items())

    return sign


def region_of(url: str, otherwise: str | None) -> str:
    """The region of an API's address, or of the session where a custom domain does not tell.

    Raises:
        GpuCostError: nothing tells it.
    """
    labels = (urlsplit(url).hostname or "").split(".")
    if "execute-api" in labels[:-1]:
        return labels[labels.index("execute-api") + 1]
    if otherwise is None:
        raise GpuCostError(f"the region of {url} is not known; set AWS_REGION")
    return otherwise


def _unchanged(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """In place of the credentials that requests would look for in ~/.netrc, and put over the signature."""
    return request


class _Server(LoopbackServer):
    upstream: str
    sign: Sign | None
    session: requests.Session


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        if refusal := self._refusal():
            self._problem(403, "Forbidden", refusal)
        elif not self.path.startswith("/"):
            self._problem(400, "Bad Request", "the address must begin with a slash")
        else:
            self._pass_on()

    do_HEAD = do_GET  # noqa: N815 - names that the base class looks up

    def do_POST(self) -> None:
        self.close_connection = True  # a body may follow, which nobody reads
        self._problem(405, "Method Not Allowed", "only GET and HEAD are passed on: the API only reads", allow=True)

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = do_POST  # noqa: N815

    def _refusal(self) -> str | None:
        port = self.server.server_address[1]
        hosts = self.headers.get_all("Host") or []
        if hosts not in ([f"127.0.0.1:{port}"], [f"localhost:{port}"]):
            return f"this is http://127.0.0.1:{port}, and answers to no other name"
        if self.headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
            return "other pages may not read this one"
        if self.headers.get("Content-Length", "0") != "0" or self.headers.get("Transfer-Encoding"):
            self.close_connection = True
            return "a request for reading has no body"
        return None

    def _pass_on(self) -> None:
        kept = {name: value for name, value in self.headers.items() if name.lower() in _PASSED_ON}
        request = requests.Request("GET", self.server.upstream + self.path, headers=kept)
        prepared = self.server.session.prepare_request(request)
        if self.server.sign is not None:
            prepared.headers.update(self.server.sign(str(prepared.url)))
        session = self.server.session
        way = session.merge_environment_settings(str(prepared.url), {}, True, None, None)
        try:
            answer = session.send(prepared, timeout=_TIMEOUT, allow_redirects=False, **way)
        except requests.RequestException as error:
            self._problem(502, "Bad Gateway", f"the API could not be reached ({type(error).__name__})")
            return
        with answer:
            self.send_response(answer.status_code)
            for name, value in answer.headers.items():
                if name.lower() not in _OWN:
                    self.send_header(name, value)
            whole = "Content-Length" in answer.headers
            if not whole:
                self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            if self.command != "HEAD":
                self._stream(answer, chunked=not whole)

    def _stream(self, answer: requests.Response, *, chunked: bool) -> None:
        try:
            for part in answer.raw.stream(_CHUNK, decode_content=False):
                self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part) if chunked else part)
            if chunked:
                self.wfile.write(b"0\r\n\r\n")
        except (OSError, HTTPError):
            self.close_connection = True  # cut short: whoever still reads sees that the end is missing

    def _problem(self, status: int, title: str, detail: str, *, allow: bool = False) -> None:
        told = {"type": "about:blank", "title": title, "status": status, "detail": detail}
        body = dumps({**told, "instance": urlsplit(self.path).path}).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/problem+json")
        self.send_header("Content-Length", str(len(body)))
        if allow:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Keep the terminal quiet."""


@contextmanager
def proxying(upstream: str, sign: Sign | None, port: int) -> Iterator[str]:
    """Pass requests on; yields the local address.

    Args:
        upstream: the API's address.
        sign: None where it asks for no signature, as the demo's.
        port: where to listen; 0 for any.

    Raises:
        GpuCostError: the port is taken.
    """
    server = _Server(port, _Handler)
    server.upstream, server.sign, server.session = upstream.rstrip("/"), sign, requests.Session()
    server.session.auth = _unchanged
    with server.session, serving_requests(server):
        yield server.url
