"""HTTP with a deadline for the whole exchange and a limit for the size of an answer.

A client's time-outs restart with each byte, so that a server that drips outlasts them; and a compressed answer of one
megabyte can hold a gigabyte. Here name resolution, connecting, TLS, sending, headers and body share one deadline, and
bodies are decompressed no further than their limit. Redirects are not followed: the query and its credentials go to the
address of the settings and to no other.
"""

import gzip
import io
import socket
import weakref
import zlib
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse, InvalidURL
from typing import TYPE_CHECKING, Any, NamedTuple

import certifi
import requests
from requests.auth import AuthBase
from requests.models import PreparedRequest
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import HTTPError, NewConnectionError
from urllib3.exceptions import TimeoutError as HttpTimeoutError

from gpucost.runtime.deadline import Deadline, run_within
from gpucost.runtime.destinations import origin_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from urllib3.response import BaseHTTPResponse

FAILURES = (HTTPError, HTTPException, OSError, EOFError, zlib.error)
"""What an exchange can end with."""
ENCODINGS = "gzip"
"""What is decompressed here, for the header Accept-Encoding."""
CONNECT_SECONDS = 10.0
"""For each address of a host, so that a dead one leaves time for the next."""
_FRAMING = 1 << 20
"""Bytes that headers and the framing of chunks may take besides the body."""
ERROR_BODY_LIMIT = 1 << 16
"""Bytes that are read of an answer which is not a success: enough for its reason."""
_TICK_SECONDS = 0.5
_PIECE = 1 << 16


class ResponseTooLargeError(Exception):
    """An answer's body is larger than its limit."""


class HttpResponse(NamedTuple):
    """What a server answered; of a refusal the first bytes alone."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes

    def text(self, most: int) -> str:
        """The beginning of the body in one line."""
        return " ".join(self.body[: 4 * most].decode(errors="replace").split())[:most]


class BoundedHttp:
    """Sends requests to one server, over connections that are kept.

    Args:
        url: names the server.
    """

    def __init__(self, url: str) -> None:
        self._origin = origin_of(url)
        self._idle: list[HTTPConnection] = []
        weakref.finalize(self, _close, self._idle)

    def send(
        self, make_request: Callable[[], PreparedRequest], *, deadline: Deadline, limit: int, truncate: bool = False
    ) -> HttpResponse:
        """Send a request and read the answer.

        Args:
            prepare: makes and signs the request, which may take requests of its own.
            deadline: for all of it.
            limit: bytes that the body of a success may have, compressed and decompressed.
            cut: leave the rest of a longer body unread, instead of refusing it.

        Raises:
            AnswerTooLargeError: the body is larger.
            One of `FAILURES`: there was no whole answer in time.
        """
        connection = self._connection()
        response: BaseHTTPResponse | None = None
        is_reusable = False
        try:
            run_within(deadline, lambda: _send(connection, make_request, deadline))
            if deadline.has_passed():
                raise TimeoutError
            connection.response_class = lambda own, **options: HTTPResponse(  # type: ignore[assignment]
                _BoundedSocket(own, deadline, limit), **options  # type: ignore[arg-type]
            )  # fmt: skip
            response = connection.getresponse()
            is_success = response.status == HTTPStatus.OK
            body, is_whole = _body(response, limit if is_success else ERROR_BODY_LIMIT)
            if is_success and not is_whole and not truncate:
                raise ResponseTooLargeError(f"more than {limit >> 20} MiB")
            is_reusable = is_whole
            return HttpResponse(response.status, response.reason or "", response.headers, body)
        finally:
            if is_reusable:
                self._idle.append(connection)
            else:
                if response is not None:
                    response.close()
                connection.close()

    def _connection(self) -> HTTPConnection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_connected:
                return connection
            connection.close()
        if self._origin is None:
            raise InvalidURL("not an http or https address")
        # The origin that secrets are checked against: another parser could read another host from the same text.
        scheme, host, port = self._origin
        if scheme != "https":
            return HTTPConnection(host, port, timeout=CONNECT_SECONDS)
        return HTTPSConnection(
            host, port, timeout=CONNECT_SECONDS, cert_reqs="CERT_REQUIRED", ca_certs=certifi.where()
        )  # fmt: skip


def post_json(url: str, body: Any, *, seconds: float, auth: AuthBase | None = None) -> HttpResponse:
    """POST a document whose answer matters little; of its body the first bytes are kept.

    Raises:
        One of `FAILURES`: there was no answer in time.
        ValueError: the address is none.
    """
    request = requests.Request("POST", url, json=body, headers={"User-Agent": "gpucost"}, auth=auth)
    return BoundedHttp(url).send(request.prepare, deadline=Deadline(seconds), limit=ERROR_BODY_LIMIT, truncate=True)


def _close(connections: list[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait (RFC 9110, 10.2.3: digits or a date); None where it does not say."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
        return max(0.0, (moment.astimezone(UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def is_timeout(error: BaseException) -> bool:
    """Whether one of `FAILURES` is that time was up."""
    return isinstance(error, (TimeoutError, HttpTimeoutError)) and not isinstance(error, NewConnectionError)


def _send(connection: HTTPConnection, prepare: Callable[[], PreparedRequest], deadline: Deadline) -> None:
    request = prepare()
    if deadline.has_passed():  # signing may have taken all of the time
        raise TimeoutError
    try:
        connection.request(
            str(request.method),
            request.path_url,
            body=request.body,
            headers=dict(request.headers),
            preload_content=False,
            decode_content=False,
        )
    except (BrokenPipeError, ConnectionResetError):
        if connection.sock is None:
            raise
        # A server that refuses a request may answer before it has read all of it.
    finally:
        if deadline.has_passed():  # nobody waits for this connection any more
            connection.close()


def _body(response: "BaseHTTPResponse", limit: int) -> tuple[bytes, bool]:
    """The body, decompressed up to a limit, and whether that is all of it."""
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in {"", "identity", "gzip", "x-gzip"}:
        raise HTTPError(f"an answer compressed by {encoding[:20]!r}, which was not asked for")
    source = gzip.GzipFile(fileobj=response) if encoding.endswith("gzip") else response
    parts: list[bytes] = []
    size = 0
    while part := source.read(_PIECE):
        parts.append(part)
        size += len(part)
        if size > limit:
            return b"".join(parts)[:limit], False
    return b"".join(parts), True


class _BoundedSocket:
    """A socket to read an answer from: each byte of it within one deadline, and not more than a limit."""

    def __init__(self, own: socket.socket, deadline: Deadline, limit: int) -> None:
        self._reads = _BoundedReads(own, deadline, limit)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What `http.client` reads from."""
        return io.BufferedReader(self._reads)


class _BoundedReads(io.RawIOBase):
    """Below `http.client`, so that nothing that a server sends gets around it: a chunk's size of -1, for instance."""

    def __init__(self, own: socket.socket, deadline: Deadline, limit: int) -> None:
        self._own = own
        self._deadline = deadline
        self._limit = limit
        self._left = limit + _FRAMING
        self._file = own.makefile("rb", buffering=0)  # keeps the socket open when the connection lets go of it

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        if self._left <= 0:
            raise ResponseTooLargeError(f"more than {self._limit >> 20} MiB")
        while not self._deadline.has_passed():
            # In short waits, so that a deadline that is moved up is noticed.
            self._own.settimeout(max(0.001, min(_TICK_SECONDS, self._deadline.remaining())))
            try:
                count = self._own.recv_into(buffer)
            except TimeoutError:
                continue
            self._left -= count
            return count
        raise TimeoutError("the answer did not end in time")

    def close(self) -> None:
        self._file.close()
        super().close()
