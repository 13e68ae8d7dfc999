"""An HTTP server that records the headers of its requests and always sends the same response."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from threading import Thread

EMPTY_VECTOR = b'{"status": "success", "data": {"resultType": "vector", "result": []}}'
Received = list[tuple[str, dict[str, str]]]
"""Method of each request, and its headers by lower-case name."""


@contextmanager
def recording_server(
    status: int = 200, body: bytes = EMPTY_VECTOR, *, location: str = "", tls: SSLContext | None = None
) -> Iterator[tuple[str, Received]]:
    """Yield the address of a server, and the requests that it has received.

    Args:
        status: of every response.
        body: of every response.
        location: where the response redirects to; empty for none.
        tls: of an https server; None for http.
    """
    received: Received = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append((self.command, {name.lower(): text for name, text in self.headers.items()}))
            self.rfile.read(int(self.headers["Content-Length"] or 0))
            self.send_response(status)
            if location:
                self.send_header("Location", location)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST  # noqa: N815 - the base class looks it up

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as web:
        if tls is not None:
            web.socket = tls.wrap_socket(web.socket, server_side=True)
        thread = Thread(target=web.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"{'http' if tls is None else 'https'}://127.0.0.1:{web.server_port}", received
        finally:
            web.shutdown()
            thread.join()
