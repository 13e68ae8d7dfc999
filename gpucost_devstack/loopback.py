"""HTTP servers on the loopback address, reachable from this machine only, unless another address is asked for."""

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from gpucost.core.errors import GpuCostError

HOST = "127.0.0.1"


def listen(port: int, host: str = HOST) -> socket.socket:
    """A socket that listens on a port, which reserves the port. 0 selects any free port.

    Raises:
        GpuCostError: the port is taken or not allowed, or the host is no address of this machine.
    """
    try:
        return socket.create_server((host, port), backlog=128)
    except socket.gaierror as error:
        raise _unknown_address(host) from error
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise _unknown_address(host) from error
        reason = "is taken" if error.errno == errno.EADDRINUSE else f"cannot be used ({os.strerror(error.errno or 0)})"
        raise GpuCostError(f"port {port} {reason}; choose another with --port, or with PORT of make demo") from error


def _unknown_address(host: str) -> GpuCostError:
    return GpuCostError(f"--listen: {host!r} is not an address of this machine. Pass 127.0.0.1 or 0.0.0.0")


class LoopbackServer(ThreadingHTTPServer):
    """Answers each connection in its own thread.

    Args:
        listener: what `listen` returned, or a port.
        handler: request handler class.
    """

    daemon_threads = True

    def __init__(self, listener: socket.socket | int, handler: type[BaseHTTPRequestHandler]) -> None:
        listener = listen(listener) if isinstance(listener, int) else listener
        super().__init__(listener.getsockname(), handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.server_name, self.server_port = listener.getsockname()

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"http://{HOST}:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report errors, except that a client closed its connection."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


@contextmanager
def serving_in_background(server: LoopbackServer) -> Iterator[None]:
    """Answer in the background until the end of the block."""
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
