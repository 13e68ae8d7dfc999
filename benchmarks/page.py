"""How large the page is, and how long until its first chart (make bench).

On the demo, in Debian's Chromium, each time in a fresh context (nothing cached). The floor is the same questions asked
of the API one after the other by a bare client, which is as fast as its one process answers them. Then 200 business
units × 35 days, made up in the browser's place of the API: until the heat map is there, and for a key pressed on it.
"""

import gzip
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import requests
from playwright.sync_api import Browser, Page, Route

from benchmarks.figures import Figure, against, stand_alone
from local.template import REPOSITORY
from tests.browser.tabs import running_chromium, settled
from tests.system.running_demo import running_demo

BUILT = REPOSITORY / "functions" / "api" / "page"
ROUNDS, UNITS, DAYS, KEYS = 5, 200, 35, 50
FIRST_CHART = "() => document.querySelector('.plot canvas') && performance.now()"


def figures(quick: bool) -> list[Figure]:
    """Of the built page."""
    files = [path for path in sorted(BUILT.rglob("*")) if path.suffix]
    size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) / 1000
    with tempfile.TemporaryDirectory() as state, running_demo(Path(state)) as demo, running_chromium() as browser:
        rounds = [first_chart(browser, demo.url) for _ in range((1 if quick else ROUNDS) + 1)][
            1:
        ]  # the first warms the function up
        seconds, floor = (list(column) for column in zip(*rounds, strict=True))
        drawn, key = large(browser, demo.url)
    large_one = f"{UNITS} business units × {DAYS} days"
    return [
        Figure("all files, gzipped", size, "kB", aim=300),
        against("first chart of the overview, ÷ its questions asked bare", seconds, floor, None),
        Figure(f"{large_one}: drawn", drawn, "s"),
        Figure(f"{large_one}: a key on the heat map", key, "s"),
    ]


def first_chart(browser: Browser, url: str) -> tuple[float, float]:
    """Seconds until the first chart, and for the same questions asked by a bare client."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(f"{url}/#/overview")
    milliseconds = page.wait_for_function(FIRST_CHART).json_value()
    settled(page)
    context.close()
    begin = time.perf_counter()
    with requests.Session() as session:
        for one in dict.fromkeys(asked):
            session.get(one, timeout=30).raise_for_status()
    return milliseconds / 1000, time.perf_counter() - begin


def large(browser: Browser, url: str) -> tuple[float, float]:
    """Seconds until everything is drawn once its answers are there, and for a key pressed on the heat map."""
    context = browser.new_context(viewport={"width": 1920, "height": 1080})
    page = context.new_page()
    answers = Answers()
    page.route("**/v1/**", answers.give)
    begin = time.perf_counter()
    page.goto(f"{url}/#/overview?window={DAYS}d&grain=day")
    settled(page)
    drawn = time.perf_counter() - begin
    key = _key(page)
    context.close()
    return drawn, key


def _key(page: Page) -> float:
    page.get_by_role("application").nth(1).focus()
    begin = time.perf_counter()
    for _ in range(KEYS):
        page.keyboard.press("ArrowRight")
        page.evaluate("new Promise(requestAnimationFrame)")
    return (time.perf_counter() - begin) / KEYS


class Answers:
    """A fleet of many business units, as the API would tell it."""

    def __init__(self) -> None:
        self._end = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        self._start = self._end - timedelta(days=DAYS)

    def give(self, route: Route) -> None:
        """Answer one question."""
        asked = urlsplit(route.request.url)
        query = {name: values[0] for name, values in parse_qs(asked.query).items()}
        period = {"start": self._text(self._start), "end": self._text(self._end)}
        rows: list[dict[str, Any]] = []
        if asked.path == "/v1/costs" and query.get("group_by") == "business_unit":
            days = range(DAYS) if query["granularity"] == "day" else [None]
            rows = [self._row(day, unit) for day in days for unit in range(UNITS)]
        elif asked.path == "/v1/fleet":
            rows = [self._row(day, 0) for day in range(DAYS)]
        coverage = {"hours_expected": 24 * DAYS, "hours_complete": 24 * DAYS}
        totals = self._row(None, 0)
        more = {"rows": rows, "currency": "USD", "totals": totals, "coverage": coverage, "cursor": None, "active": []}
        route.fulfill(json={**period, **more})

    def _row(self, day: int | None, unit: int) -> dict[str, Any]:
        start = self._start + timedelta(days=day or 0)
        end = self._end if day is None else start + timedelta(days=1)
        use = (unit * 37 + (day or 0) * 11) % 100 / 100
        return {
            "start": self._text(start), "end": self._text(end), "group": {"business_unit": f"unit-{unit:03}"},
            "allocated_gpu_hours": 24, "effective_gpu_hours": 24 * use, "unmeasured_gpu_hours": 0,
            "allocated_usd": 288, "effective_usd": 288 * use, "waste_usd": 288 * (1 - use), "unmeasured_usd": 0,
            "node_cost_usd": 300, "unallocated_usd": 12, "stranded_usd": 0, "unobserved_usd": 0, "host_usd": 0,
            "residual_usd": 0,
        }  # fmt: skip

    @staticmethod
    def _text(moment: datetime) -> str:
        return f"{moment:%Y-%m-%dT%H:00:00Z}"


if __name__ == "__main__":
    stand_alone(figures, __doc__)
