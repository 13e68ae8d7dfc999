"""HTTP servers that record their requests, and send the same response each time or prepared responses in turn."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ssl import SSLContext
from threading import Thread
from urllib.parse import parse_qs

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


GOOD = json.dumps(
    {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [{"metric": {"pod": "p"}, "values": [[1795082400, "3"], [1795086000.5, "NaN"]]}],
            "stats": {"samples": {"totalQueryableSamples": 2}},
        },
    }
)
Response = tuple[int, str, dict[str, str]]


class Server(ThreadingHTTPServer):
    """Returns prepared responses in turn, the last one forever, and records requests."""

    responses: list[Response]
    requests: list[tuple[str, dict[str, str], dict[str, list[str]]]]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.requests.append((self.path, dict(self.headers), parse_qs(body)))
        responses = self.server.responses
        status, text, headers = responses.pop(0) if len(responses) > 1 else responses[0]
        if status == 0:  # close the connection in the middle of the response
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + text.encode())
            self.close_connection = True
            return
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Log nothing."""


@contextmanager
def answering(*responses: Response) -> Iterator[Server]:
    server = Server(("127.0.0.1", 0), Handler)
    server.responses, server.requests = list(responses), []
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


THRESHOLD = json.dumps(
    {"status": "error", "errorType": "execution", "error": "too many samples processed: the error threshold is reached"}
)
