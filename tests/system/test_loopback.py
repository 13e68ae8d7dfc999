"""The local servers: which clients may reach them, and what happens when clients disconnect."""

import socket
import struct
import time
from collections.abc import Mapping
from typing import Any

import pytest
import requests

from gpucost.core.errors import GpuCostError
from gpucost_cli.signing_proxy import serve_proxy
from gpucost_devstack.http import serving_api
from gpucost_devstack.loopback import listen
from gpucost_devstack.prometheus import free_port
from gpucost_devstack.slack import running_slack


def hello(_event: Mapping[str, Any]) -> dict[str, Any]:
    return {"statusCode": 200, "body": "hello"}


def hang_up(port: int, request: bytes, *, after: float = 0.0) -> None:
    """Send a request and reset the connection, like a killed client."""
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(request)
    time.sleep(after)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def test_aborted_client_of_the_api_prints_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    answered = []

    def slow(event: Mapping[str, Any]) -> dict[str, Any]:
        time.sleep(0.3)
        answered.append(event["rawPath"])
        return {"statusCode": 200, "body": "x" * 10_000_000}

    port = free_port()
    with serving_api(slow, ["GET /x"], port):
        hang_up(port, b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n", after=0.1)
        hang_up(port, b"GET /x HTTP/1.1\r\nContent-Length: 5\r\n\r\n")
        deadline = time.monotonic() + 10
        while not answered and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.5)
    assert answered
    assert capfd.readouterr() == ("", "")


def test_aborted_client_of_proxy_and_receiver_prints_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with serve_proxy("http://127.0.0.1:9", None, 0) as address, running_slack() as slack:
        for port, request in (
            (int(address.rpartition(":")[2]), b"GET / HTTP/1.1\r\nHost: "),
            (slack.server_port, b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"),
        ):
            hang_up(port, request, after=0.2)
        time.sleep(0.5)
    assert capfd.readouterr() == ("", "")


def test_fault_of_the_server_itself_is_still_printed(capfd: pytest.CaptureFixture[str]) -> None:
    def broken(_event: Mapping[str, Any]) -> dict[str, Any]:
        raise ZeroDivisionError("a fault")

    port = free_port()
    with serving_api(broken, ["GET /x"], port), pytest.raises(requests.ConnectionError):
        requests.get(f"http://127.0.0.1:{port}/x", timeout=10)
    assert "ZeroDivisionError: a fault" in capfd.readouterr().err


@pytest.mark.parametrize("length", ["-1", "five", "²"])
def test_invalid_content_length_is_400(length: str, capfd: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    with serving_api(hello, ["GET /x"], port), socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(f"GET /x HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode("latin-1"))
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    assert capfd.readouterr() == ("", "")


def test_port_stays_reserved_until_it_is_served() -> None:
    with listen(0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(
            GpuCostError, match=f"^port {port} is taken; choose another with --port, or with PORT of make demo$"
        ):
            listen(port)
        with serving_api(hello, ["GET /x"], listener):
            assert requests.get(f"http://127.0.0.1:{port}/x", timeout=10).text == "hello"
