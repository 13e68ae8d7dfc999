"""Commands that ask a Prometheus which accepts a query and never answers."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.raw_server import Exchange, raw_server

PATIENCE = 60.0
"""Seconds, on a busy machine; without breaking off, each of these waits for four minutes."""
_MAIN = "from local.cli import main; main()"


def start(tmp_path: Path, url: str, *arguments: str, timeout_seconds: int = 60) -> "subprocess.Popen[str]":
    settings = tmp_path / "settings.json"
    prometheus = {"url": url, "timeout_seconds": timeout_seconds}
    settings.write_text(
        json.dumps(
            {
                "clusters": [{"name": "blue", "prometheus": prometheus}],
                "pricing": {"source": "constant", "gpu_hourly_usd": 1},
            }
        )
    )
    return subprocess.Popen(
        # A background job ignores the interrupt signal, and so would its children.
        ["env", "--default-signal=INT", sys.executable, "-c", _MAIN, *arguments, "--settings", str(settings)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("arguments", [("attribute", "--hour", "2026-01-05T10:00:00Z"), ("doctor",)])
def test_interrupted_command_ends_at_once(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    def script(exchange: Exchange) -> None:
        if "query" not in exchange.form:
            exchange.answer(b"{}")
        exchange.hang()

    with raw_server(script) as server, start(tmp_path, server.url, *arguments) as process:
        began = time.monotonic()
        while not any("query" in form for form in server.queries):
            assert time.monotonic() < began + PATIENCE
            time.sleep(0.05)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=PATIENCE)
        assert (process.returncode, errors.strip()) == (1, "gpucost: interrupted")


def test_attribute_says_that_metrics_do_not_answer(tmp_path: Path) -> None:
    arguments = ("attribute", "--hour", "2026-01-05T10:00:00Z")
    with raw_server(Exchange.hang) as server, start(tmp_path, server.url, *arguments, timeout_seconds=1) as process:
        _, errors = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == 1
    assert "did not answer within 1 s, 4 times" in errors
    assert len({form["query"] for form in server.queries if form}) <= 2, "after the first failure no other query starts"
