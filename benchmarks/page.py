"""Size of the page, and time until its first chart (make bench).

On the demo, in Debian's Chromium, each time in a fresh context (nothing cached). The floor is the same questions asked
of the API one after the other by a bare client, which is as fast as its one process answers them. Then 200 business
units × 35 days, made up in the browser's place of the API: until the heat map by hour is there, and how smooth it is.
"""

import gzip
import re
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import requests
from playwright.sync_api import Browser, Page

from benchmarks.figures import Figure, against, stand_alone
from tests.browser.simulated_fleet import ADDRESS, BUILT
from tests.browser.simulated_fleet import large as large_fleet
from tests.browser.tabs import running_chromium, settled
from tests.system.running_demo import running_demo

ROUNDS, UNITS, DAYS, STEPS = 5, 200, 35, 50
_WATCH = """() => { window.longest = 0; new PerformanceObserver((list) => {
  for (const one of list.getEntries()) window.longest = Math.max(window.longest, one.duration);
}).observe({ entryTypes: ["longtask"] }); }"""
FIRST_CHART = "() => document.querySelector('.plot canvas') && performance.now()"


def figures(quick: bool) -> list[Figure]:
    """Figures of the built page."""
    files = [path for path in sorted(BUILT.rglob("*")) if path.suffix]
    size = sum(len(gzip.compress(path.read_bytes(), 9)) for path in files) / 1000
    with tempfile.TemporaryDirectory() as state, running_demo(Path(state)) as demo, running_chromium() as browser:
        rounds = [first_chart(browser, demo.url) for _ in range((1 if quick else ROUNDS) + 1)]
        seconds, floor = zip(*rounds[1:], strict=True)  # the first warms the function up
        large_page = large(browser)
    fleet = f"{UNITS} business units × {DAYS} days by hour"
    return [
        Figure("all files, gzipped", size, "kB", aim=300),
        against("first chart of the overview, ÷ its questions asked bare", seconds, floor, None),
        Figure(f"{fleet}: drawn", large_page.drawn, "s"),
        Figure(f"{fleet}: to the next frame from a key", large_page.key, "ms"),
        Figure(f"{fleet}: from a move of the pointer", large_page.move, "ms"),
        Figure(f"{fleet}: from scrolling", large_page.scroll, "ms"),
        Figure(f"{fleet}: the longest task", large_page.longest, "ms"),
    ]


def first_chart(browser: Browser, url: str) -> tuple[float, float]:
    """Seconds until the first chart, and seconds of the same requests from a bare client."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{url}/#/overview")
    milliseconds = page.wait_for_function(FIRST_CHART).json_value()
    settled(page)
    context.close()
    begin = time.perf_counter()
    with requests.Session() as session:
        for path in dict.fromkeys(requested):
            session.get(path, timeout=30).raise_for_status()
    return milliseconds / 1000, time.perf_counter() - begin


@dataclass(frozen=True)
class Smoothness:
    """Seconds until the page of a large fleet is there, and milliseconds: from a key, or a move of the pointer, to the
    next frame (median), and of the longest task in which nothing moves, once it is drawn."""

    drawn: float
    key: float
    move: float
    scroll: float
    longest: float


def large(browser: Browser) -> Smoothness:
    """Render the page, move in the heat map by keys and pointer, and scroll."""
    context = browser.new_context(viewport={"width": 1920, "height": 1080})
    page = context.new_page()
    large_fleet(UNITS, DAYS).serve(page)
    begin = time.perf_counter()
    page.goto(f"{ADDRESS}/#/overview?window={DAYS}d&zone=utc")
    settled(page)
    drawn = time.perf_counter() - begin
    page.evaluate(_WATCH)
    heat = page.get_by_role("application", name=re.compile("by hour"))
    heat.scroll_into_view_if_needed()
    box = heat.bounding_box()
    assert box is not None
    heat.focus()
    keys = [_frame(page, lambda: page.keyboard.press("ArrowRight")) for _ in range(STEPS)]
    x, y = box["x"], box["y"]
    wide, tall = box["width"] / STEPS, box["height"] / STEPS
    moves = [_frame(page, partial(page.mouse.move, x + n * wide, y + n * tall)) for n in range(STEPS)]
    scrolls = [_frame(page, lambda: page.mouse.wheel(0, 40)) for _ in range(STEPS)]
    longest = page.evaluate("window.longest")
    context.close()
    key, move, scroll = (1000 * statistics.median(seconds) for seconds in (keys, moves, scrolls))
    return Smoothness(drawn, key, move, scroll, longest)


def _frame(page: Page, act: Callable[[], object]) -> float:
    """Seconds until the frame after something was done is drawn."""
    begin = time.perf_counter()
    act()
    page.evaluate("new Promise(requestAnimationFrame)")
    return time.perf_counter() - begin


if __name__ == "__main__":
    stand_alone(figures, __doc__)
