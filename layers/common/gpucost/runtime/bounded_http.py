"""HTTP with one deadline for a whole request and a limit for the size of its response.

Timeouts of HTTP clients restart with each byte, so that a slow server outlasts them. A compressed response of one
megabyte can expand to a gigabyte. Here name resolution, connecting, TLS, sending, headers and body share one deadline,
and bodies are decompressed up to their limit only. Redirects are not followed: queries and credentials are only sent to
the address in the settings.
"""

import gzip
import io
import socket
import ssl
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
from gpucost.runtime.secrets import origin_of

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from urllib3.response import BaseHTTPResponse

REQUEST_ERRORS = (HTTPError, HTTPException, OSError, EOFError, zlib.error)
"""The errors with which a request can fail."""
_CONNECTION_PROBLEMS: Mapping[type[BaseException], str] = {
    ConnectionRefusedError: "connection refused",
    ConnectionResetError: "connection reset",
    socket.gaierror: "its host name cannot be resolved",
    ssl.SSLCertVerificationError: "its TLS certificate is not trusted",
    ssl.SSLError: "TLS failed",
    TimeoutError: "connecting timed out",
}
"""Causes of failed connections, more specific classes first."""
ACCEPTED_ENCODING = "gzip"
"""Supported compression, for the header Accept-Encoding."""
CONNECT_TIMEOUT_SECONDS = 10.0
"""For each address of a host, so that time is left for the next address if one does not respond."""
_FRAMING_BYTES = 1 << 20
"""Bytes that headers and chunk framing may take in addition to the body."""
MAX_ERROR_BODY_BYTES = 1 << 16
"""Bytes that are read of an error response: enough for its reason."""
_POLL_SECONDS = 0.5
_CHUNK_BYTES = 1 << 16


class ResponseTooLargeError(Exception):
    """A response's body is larger than its limit."""


class HttpResponse(NamedTuple):
    """A server's response; of an error response only the first bytes of the body."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes

    def text(self, max_length: int) -> str:
        """The beginning of the body as one line."""
        return " ".join(self.body[: 4 * max_length].decode(errors="replace").split())[:max_length]


class BoundedHttp:
    """Sends requests to one server and reuses connections.

    Args:
        url: any address of the server.
        ca_certificates: certificates (PEM) of authorities to trust besides the public ones; None: only those.
    """

    def __init__(self, url: str, ca_certificates: str | None = None) -> None:
        self._origin = origin_of(url)
        self._ca_certificates = ca_certificates
        self._idle_connections: list[HTTPConnection] = []
        weakref.finalize(self, _close_all, self._idle_connections)

    def send(
        self, make_request: Callable[[], PreparedRequest], *, deadline: Deadline, limit: int, truncate: bool = False
    ) -> HttpResponse:
        """Send a request and read the response.

        Args:
            make_request: creates and signs the request, which may send requests of its own.
            deadline: for the whole exchange.
            limit: bytes that the body of a successful response may have, compressed and decompressed.
            truncate: leave the rest of a longer body unread instead of raising an error.

        Raises:
            ResponseTooLargeError: the body is larger.
            One of `REQUEST_ERRORS`: there was no complete response in time.
        """
        connection = self._connection()
        response: BaseHTTPResponse | None = None
        is_reusable = False
        try:
            run_within(deadline, lambda: _send(connection, make_request, deadline))
            if deadline.has_passed():
                raise TimeoutError
            connection.response_class = lambda sock, **options: HTTPResponse(  # type: ignore[assignment]
                _BoundedSocket(sock, deadline, limit),  # type: ignore[arg-type]
                **options,
            )
            response = connection.getresponse()
            is_success = response.status == HTTPStatus.OK
            body, is_whole = _read_body(response, limit if is_success else MAX_ERROR_BODY_BYTES)
            if is_success and not is_whole and not truncate:
                raise ResponseTooLargeError(f"more than {limit >> 20} MiB")
            is_reusable = is_whole
            return HttpResponse(response.status, response.reason or "", response.headers, body)
        finally:
            if is_reusable:
                self._idle_connections.append(connection)
            else:
                if response is not None:
                    response.close()
                connection.close()

    def _connection(self) -> HTTPConnection:
        while self._idle_connections:
            connection = self._idle_connections.pop()
            if connection.is_connected:
                return connection
            connection.close()
        if self._origin is None:
            raise InvalidURL("not an http or https address")
        # The origin that secrets are checked against: another parser could read another host from the same text.
        scheme, host, port = self._origin
        if scheme != "https":
            return HTTPConnection(host, port, timeout=CONNECT_TIMEOUT_SECONDS)
        return HTTPSConnection(
            host,
            port,
            timeout=CONNECT_TIMEOUT_SECONDS,
            cert_reqs="CERT_REQUIRED",
            ca_certs=certifi.where(),
            ca_cert_data=self._ca_certificates,
        )


def post_json(url: str, body: Any, *, seconds: float, auth: AuthBase | None = None) -> HttpResponse:
    """POST a JSON document. Only the first bytes of the response's body are read.

    Raises:
        One of `REQUEST_ERRORS`: there was no response in time.
        ValueError: the address is not an http or https address.
    """
    request = requests.Request("POST", url, json=body, headers={"User-Agent": "gpucost"}, auth=auth)
    return BoundedHttp(url).send(request.prepare, deadline=Deadline(seconds), limit=MAX_ERROR_BODY_BYTES, truncate=True)


def _close_all(connections: list[HTTPConnection]) -> None:
    for connection in connections:
        connection.close()


def retry_after(headers: Mapping[str, str]) -> float | None:
    """The seconds that a server asks to wait (RFC 9110, 10.2.3: digits or a date); None if it does not say."""
    text = headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
        return max(0.0, (moment.astimezone(UTC) - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None


def is_timeout(error: BaseException) -> bool:
    """Whether one of `REQUEST_ERRORS` is a timeout."""
    return isinstance(error, (TimeoutError, HttpTimeoutError)) and not isinstance(error, NewConnectionError)


def connection_problem(error: BaseException | None) -> str:
    """Describe why no response came: the first cause that has a plain name, else the name of the error's class.

    The text contains no address, because an address can be a secret.
    """
    cause = error
    while cause is not None:
        for kind, reason in _CONNECTION_PROBLEMS.items():
            if isinstance(cause, kind):
                return reason
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__


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
        # A server that refuses a request may respond before it has read all of it.
    finally:
        if deadline.has_passed():  # the caller no longer waits for this connection
            connection.close()


def _read_body(response: "BaseHTTPResponse", limit: int) -> tuple[bytes, bool]:
    """Read the body, decompressed up to a limit, and return whether it is complete."""
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in {"", "identity", "gzip", "x-gzip"}:
        raise HTTPError(f"the response is compressed with {encoding[:20]!r}, which the request does not accept")
    source = gzip.GzipFile(fileobj=response) if encoding.endswith("gzip") else response
    chunks: list[bytes] = []
    size = 0
    while chunk := source.read(_CHUNK_BYTES):
        chunks.append(chunk)
        size += len(chunk)
        if size > limit:
            return b"".join(chunks)[:limit], False
    return b"".join(chunks), True


class _BoundedSocket:
    """A socket from which a response is read within a deadline and up to a limit."""

    def __init__(self, sock: socket.socket, deadline: Deadline, limit: int) -> None:
        self._reads = _BoundedRawReader(sock, deadline, limit)

    def makefile(self, _mode: str) -> io.BufferedReader:
        """What `http.client` reads from."""
        return io.BufferedReader(self._reads)


class _BoundedRawReader(io.RawIOBase):
    """Reads below `http.client`, so that no response can bypass the limit, for example with a chunk size of -1."""

    def __init__(self, sock: socket.socket, deadline: Deadline, limit: int) -> None:
        self._socket = sock
        self._deadline = deadline
        self._limit = limit
        self._remaining_bytes = limit + _FRAMING_BYTES
        self._file = sock.makefile("rb", buffering=0)  # keeps the socket open when the connection lets go of it

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        if self._remaining_bytes <= 0:
            raise ResponseTooLargeError(f"more than {self._limit >> 20} MiB")
        while not self._deadline.has_passed():
            # Wait for short times, so that a canceled deadline is noticed.
            self._socket.settimeout(max(0.001, min(_POLL_SECONDS, self._deadline.remaining())))
            try:
                count = self._socket.recv_into(buffer)
            except TimeoutError:
                continue
            self._remaining_bytes -= count
            return count
        raise TimeoutError("the response was not complete in time")

    def close(self) -> None:
        self._file.close()
        super().close()
