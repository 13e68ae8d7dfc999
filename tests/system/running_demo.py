"""Runs `gpucost demo` as a separate process."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import requests
import simplejson

from gpucost.core.hours import HOUR, hours_between
from gpucost_devstack.fleet import demo, truth
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.prometheus import free_port
from gpucost_devstack.template import REPOSITORY

GPUCOST = REPOSITORY / ".venv" / "bin" / "gpucost"
ANSWERS = "the API answers at "
DEFAULT_FLAGS = ("--history", "0", "--verbose")
HOURS = 48
"""Of the demo that tests share. Alerts about idle workloads need 24."""


@dataclass
class Demo:
    url: str
    printed: str
    environment: dict[str, str]
    process: subprocess.Popen[str]
    duration: int = HOURS
    """In hours."""

    @property
    def end(self) -> datetime:
        """The end of the days of the summary, as printed: the clock may have passed another hour since."""
        (text,) = re.findall(r"^\S+ to (\S+),", self.printed, re.MULTILINE)
        return datetime.fromisoformat(text)

    @property
    def hours(self) -> list[datetime]:
        return [self.end - timedelta(hours=i) for i in range(self.duration, 0, -1)]

    @property
    def period(self) -> str:
        return f"start={self.hours[0]:%Y-%m-%dT%H:00:00Z}&end={self.end:%Y-%m-%dT%H:00:00Z}"

    def stop(self) -> None:
        """Stop it as Ctrl-C does, if it runs."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=60)

    def ask(self, path: str) -> Any:
        answer = requests.get(self.url + path, timeout=30)
        assert answer.status_code == 200, answer.text
        return simplejson.loads(answer.text, parse_float=Decimal, parse_int=Decimal)


@cache
def true_hours(start: datetime, end: datetime) -> dict[str, list[truth.TrueHour | None]]:
    """The true figures of every hour, by cluster; None where nothing was scraped.

    They are computed hour by hour, which is faster. The fleet's own tests show that the range does not matter.
    """
    hours: dict[str, list[truth.TrueHour | None]] = {name: [] for name in demo.CLUSTERS}
    for hour in hours_between(start, end):
        for scenario in demo.scenarios(hour, hour + HOUR):
            hours[scenario.name].append(truth.true_hour(scenario, 0) if _is_scraped(scenario) else None)
    return hours


def _is_scraped(scenario: Scenario) -> bool:
    """Whether kube-state-metrics was scraped. The demo has an outage every Wednesday."""
    return any(source.scraping.successful_times(scenario.start, scenario.end) for source in scenario.ksm)


@contextmanager
def running_demo(folder: Path, *flags: str, hours: int = HOURS) -> Iterator[Demo]:
    """Start the demo and wait until it answers. Its state and output go to a folder.

    Args:
        folder: the folder.
        flags: options; the default has the last days only, and prints the messages to Slack.
        hours: how many hours the summary covers.
    """
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder), "COLUMNS": "100"}
    out = folder / "out"
    with out.open("w") as stdout, (folder / "err").open("w") as stderr:
        process = subprocess.Popen(
            # Background processes of a script ignore SIGINT, and so would the children of the tests.
            [
                "env",
                "--default-signal=INT",
                GPUCOST,
                "demo",
                "--port",
                str(free_port()),
                "--hours",
                str(hours),
                *(flags or DEFAULT_FLAGS),
            ],
            stdout=stdout,
            stderr=stderr,
            env=environment,
            text=True,
        )
        try:
            deadline = time.monotonic() + 600
            while "gpucost report --stack local" not in out.read_text():
                assert process.poll() is None, (folder / "err").read_text()[-2000:]
                assert time.monotonic() < deadline, "the demo does not start"
                time.sleep(0.2)
            printed = out.read_text()
            (url,) = re.findall(re.escape(ANSWERS) + r"(\S+)", printed)
            yield Demo(url, printed, environment, process, hours)
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(timeout=60)
