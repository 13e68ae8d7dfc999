"""A set clock reaches the programs that tests start, and waits take as long as without it. It needs a C compiler."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest

from gpucost_devstack.template import REPOSITORY
from scripts import clocks

START = datetime(2025, 10, 31, 12, 30, tzinfo=UTC)
DYNAMODB = """
import requests
from gpucost_devstack.dynamodb_local import running_dynamodb
with running_dynamodb() as url:
    print(requests.get(url, timeout=60).headers["Date"])
"""
WAITS = """
import datetime, queue, threading, time
time.sleep(0.01)
threading.Event().wait(0.01)
try:
    queue.Queue().get(timeout=0.01)
except queue.Empty:
    print(datetime.datetime.now(datetime.UTC).strftime("%d %b %Y"))
"""
FUNCTION = """
import tempfile
from pathlib import Path
from gpucost_devstack.functions import LocalFunction
with tempfile.TemporaryDirectory() as folder:
    Path(folder, "app.py").write_text(
        "import datetime\\ndef handler(event, context): return f'{datetime.datetime.now(datetime.UTC):%d %b %Y}'"
    )
    function = LocalFunction("clock", "app.handler", [Path(folder)], {})
    print(function.invoke({}))
    function.stop()
"""


@pytest.mark.nightly
@pytest.mark.parametrize(
    "command",
    [
        (sys.executable, "-c", WAITS),
        (sys.executable, "-c", DYNAMODB),
        (sys.executable, "-c", FUNCTION),
        ("node", "-e", "console.log(new Date().toUTCString())"),
        ("sh", "-c", "LC_ALL=C date -u '+%d %b %Y'"),
    ],
    ids=["python", "java", "function", "node", "child"],
)
def test_set_clock_reaches_every_kind_of_program(command: tuple[str, ...]) -> None:
    clocks.build()
    done = subprocess.run(
        command, cwd=REPOSITORY, env=clocks.environment(START), capture_output=True, text=True, check=True, timeout=300
    )
    assert "31 Oct 2025" in done.stdout


@pytest.mark.parametrize("month", range(1, 13))
@pytest.mark.parametrize("day", [1, 15, 28])
def test_clocks_are_a_midnight_an_ordinary_day_and_a_31st_ahead(month: int, day: int) -> None:
    now = datetime(2026, month, day, 9, 30, tzinfo=UTC)
    times = dict(clocks.clocks(now))
    midnight, ordinary, last = times.values()
    assert ordinary < now > midnight
    assert last > now + timedelta(days=100), "longer than what tests expect to be kept"
    assert (midnight.hour, midnight.minute, midnight.second) == (23, 59, 30)
    assert (ordinary.hour, ordinary.minute) == (5, 30)
    assert 1 < ordinary.day < 28
    assert now - ordinary < timedelta(days=7)
    assert ordinary.weekday() < 5
    assert last.day == 31
