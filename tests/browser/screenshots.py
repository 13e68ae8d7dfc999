"""Screenshots of every view with the demo's data: `python -m tests.browser.screenshots [FOLDER [LOOK …]]`.

The README's pictures (docs/pictures) are two of the look `readme`.
"""

import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

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
    folder = Path(arguments[0] if arguments else "screenshots")
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as state, running_demo(Path(state)) as demo, running_chromium() as browser:
        tabs = Tabs(browser, {demo.url.removeprefix("http://")})
        hour = demo.end - timedelta(hours=6)
        period = f"start={demo.end - timedelta(days=2):%Y-%m-%dT%H:00:00Z}&end={demo.end:%Y-%m-%dT%H:00:00Z}&zone=utc"
        views = {
            "overview": f"overview?{period}", "unit": f"unit/research?{period}", "nodes": f"nodes?{period}",
            "hour": f"hour/{hour:%Y-%m-%dT%H:00:00Z}?zone=utc",
        }  # fmt: skip
        for appearance in arguments[1:] or LOOKS:
            page = tabs.open(f"{demo.url}/docs", **LOOKS[appearance])
            for name, address in views.items():
                page.goto(f"{demo.url}/#/{address}")
                settled(page)
                page.wait_for_timeout(500)
                page.screenshot(
                    path=folder / f"{name}-{appearance}.png", full_page=appearance not in ("readme", "wide")
                )
            page.get_by_test_id("lines").get_by_role("link", name="how calculated").first.click()
            page.get_by_test_id("why").wait_for()
            page.screenshot(path=folder / f"why-{appearance}.png")
        tabs.check()
    sys.stderr.write(f"{len(list(folder.glob('*.png')))} pictures in {folder}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
