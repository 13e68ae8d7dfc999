"""Programs of the demo end with the demo, even if it is killed."""

import subprocess
import sys
import time

from gpucost_devstack.template import REPOSITORY

SCRIPT = """
import os, signal, subprocess, tempfile
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from gpucost_devstack.alertmanager import running_alertmanager
from gpucost_devstack.dynamodb_local import running_dynamodb
from gpucost_devstack.functions import LocalFunction
from gpucost_devstack.iam.simulator import Simulator
from gpucost_devstack.metrics_segment import Segment, SegmentProcess
from gpucost_devstack.prometheus import running_prometheus

with ExitStack() as running, tempfile.TemporaryDirectory() as folder:
    running.enter_context(running_prometheus(None))
    running.enter_context(running_alertmanager())
    running.enter_context(running_dynamodb())
    function = LocalFunction("dispatch", "app.handler", [Path("functions/dispatch"), Path("layers/common")], {})
    simulator = Simulator()
    end = datetime(2026, 11, 19, tzinfo=UTC)
    segment = SegmentProcess(Path(folder) / "segment", Segment(end - timedelta(days=20), end), 1)
    children = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True).stdout
    print(children, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
WATCHED = 3
"""Prometheus, Alertmanager and the segment have a process that watches them. The others read their standard input."""


def running(pids: list[str]) -> list[str]:
    """Return the commands of the processes that still run."""
    listed = subprocess.run(
        ["ps", "-o", "stat=,command=", "-p", ",".join(pids)], capture_output=True, text=True, check=False
    )
    return [line for line in listed.stdout.splitlines() if not line.startswith("Z")]


def test_programs_end_with_a_killed_demo() -> None:
    killed = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, cwd=REPOSITORY)
    assert killed.returncode == -9, killed.stderr
    pids = killed.stdout.split()
    assert len(pids) == 6 + WATCHED
    deadline = time.monotonic() + 60
    while (left := running(pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert left == []
