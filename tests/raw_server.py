"""A TCP server that sends scripted bytes, for responses that HTTP servers never send."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from urllib.parse import parse_qs


class Exchange:
    """A request, with methods to answer it."""

    def __init__(self, connection: socket.socket, head: bytes, body: bytes, ended: Event) -> None:
        self._connection = connection
        self._ended = ended
        self.head = head
        self.form = {name: values[0] for name, values in parse_qs(body.decode()).items()}

    def send(self, data: bytes) -> None:
        """Send raw bytes."""
        self._connection.sendall(data)

    def answer(self, body: bytes, *headers: str, status: str = "200 OK") -> None:
        """Send a complete response."""
        lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
        self.send("\r\n".join(lines).encode() + body)

    def drip(self, data: bytes, seconds: float) -> None:
        """Send single bytes at intervals until the client disconnects."""
        while not self._ended.wait(seconds):
            self.send(data)

    def hang(self) -> None:
        """Send nothing until the server stops."""
        self._ended.wait()


class RawServer:
    """Answers requests with a script."""

    def __init__(self, script: Callable[[Exchange], None]) -> None:
        self._script = script
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._ended = Event()
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.connections = 0
        self.queries: list[dict[str, str]] = []
        """The form parameters of all requests, in order."""

    def run(self) -> None:
        """Accept connections until the server is stopped."""
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                Thread(target=self._serve, args=(connection,), daemon=True).start()

    def stop(self) -> None:
        """Close the listener and all connections."""
        self._ended.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as reader, suppress(OSError):
            while not self._ended.is_set():
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    line = reader.readline()
                    if not line:
                        return
                    head += line
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = reader.read(int(length[0].split(b":")[1])) if length else b""
                exchange = Exchange(connection, head, body, self._ended)
                self.queries.append(exchange.form)
                self._script(exchange)


@contextmanager
def raw_server(script: Callable[[Exchange], None]) -> Iterator[RawServer]:
    """A server on a free port of the loopback address."""
    server = RawServer(script)
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.stop()
        thread.join()


def elapsed(work: Callable[[], object]) -> float:
    """Measure the seconds of a block."""
    began = time.monotonic()
    work()
    return time.monotonic() - began
