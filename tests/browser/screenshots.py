"""Screenshots of every view with the demo's data: `python -m tests.browser.screenshots [FOLDER [LOOK …]]`.

The README's pictures (docs/pictures) are `overview` and `strips` of the look `readme`, of a demo whose history is
there: `--demo http://127.0.0.1:8080`.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser

from gpucost.core.hours import floor_hour
from tests.browser.tabs import Tabs, running_chromium, settled
from tests.system.running_demo import running_demo

LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1200, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1200, "height": 900}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 360, "height": 800}},
    "readme": {"color_scheme": "light", "viewport": {"width": 1320, "height": 1120}, "device_scale_factor": 0.7},
    "wide": {"color_scheme": "dark", "viewport": {"width": 3840, "height": 2160}},
}


def main(arguments: list[str]) -> int:
    """Take the pictures. Returns exit status 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("screenshots"))
    parser.add_argument("looks", nargs="*", metavar="look", help=f"of {', '.join(LOOKS)}; by default all")
    parser.add_argument("--demo", metavar="URL", help="of a demo that runs already, started in this hour")
    options = parser.parse_args(arguments)
    folder, looks = options.folder, options.looks or list(LOOKS)
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as state, ExitStack() as running:
        browser = running.enter_context(running_chromium())
        if options.demo:
            take(browser, options.demo, floor_hour(datetime.now(UTC)), folder, looks)
        else:
            demo = running.enter_context(running_demo(Path(state)))
            take(browser, demo.url, demo.end, folder, looks)
    sys.stderr.write(f"{len(list(folder.glob('*.png')))} pictures in {folder}\n")
    return 0


def take(browser: Browser, url: str, end: datetime, folder: Path, looks: Sequence[str]) -> None:
    """Take pictures of the last two days of a running demo."""
    tabs = Tabs(browser, {url.removeprefix("http://")})
    hour = f"{end - timedelta(hours=6):%Y-%m-%dT%H:00:00Z}"
    period = f"start={end - timedelta(days=1):%Y-%m-%dT%H:00:00Z}&end={end:%Y-%m-%dT%H:00:00Z}&zone=utc"
    views = {
        "overview": f"overview?{period}",
        "explore": f"explore?{period}&by=workload&measure=waste_usd&compare=1",
        "explore-filtered": f"explore?{period}&by=workload&f.business_unit=data-science&trail=business_unit&grain=hour",
        "unit": f"unit/data-science?{period}",
        "splits": f"splits?{period}",
        "models": f"models?{period}",
        "savings": "savings?zone=utc&state=all",
        "nodes": f"nodes?{period}",
        "strips": f"nodes?{period}&pool=h100-serving",
        "health": f"health?{period}",
        "hour": f"hour/{hour}?zone=utc",
        "empty": "overview?start=2020-01-01T00:00:00Z&end=2020-01-02T00:00:00Z&zone=utc",
    }
    for appearance in looks:
        is_screen = appearance in ("readme", "wide")
        page = tabs.open(f"{url}/docs", **LOOKS[appearance])
        for name, address in views.items():
            page.goto(f"{url}/#/{address}")
            settled(page)
            page.wait_for_timeout(500)
            if name == "strips":
                page.get_by_role("region", name="GPUs by hour").evaluate("(section) => section.scrollIntoView()")
            page.screenshot(path=folder / f"{name}-{appearance}.png", full_page=not is_screen)
        page.goto(f"{url}/#/{views['unit']}&why=waste_usd&why-unit=data-science")
        page.get_by_test_id("figure-pods").wait_for()
        page.screenshot(path=folder / f"figure-{appearance}.png")
        page.goto(f"{url}/#/{views['hour']}")
        page.get_by_test_id("lines").get_by_role("link", name="how calculated").first.click()
        page.get_by_test_id("why").wait_for()
        page.screenshot(path=folder / f"why-{appearance}.png")
    tabs.check()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
