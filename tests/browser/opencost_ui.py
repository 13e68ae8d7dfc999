"""OpenCost's own UI on simulated clusters: `python -m tests.browser.opencost_ui CHECKOUT`.

CHECKOUT is a copy of https://github.com/opencost/opencost-ui, which npm builds in its folder. The figures on its pages
are compared with those of `/v1/fleet` and `/v1/costs`. `make nightly` runs this where GitHub can be reached.
"""

import argparse
import http.server
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import requests
from playwright.sync_api import Browser

from gpucost.storage.sqlite_table import SqliteTable
from gpucost_cli.local_service import LocalService
from gpucost_cli.simulated_fleet import running_fleet
from tests.browser.tabs import running_chromium

WINDOW = "7d"
"""The UI's default."""


class UiServer(http.server.SimpleHTTPRequestHandler):
    """As the web server in the UI's image: files, the page for other paths, and `/model/` from the API."""

    api = ""

    def do_GET(self) -> None:
        """Answer a request."""
        if self.path.startswith("/model/"):
            answer = requests.get(self.api + self.path, timeout=120)
            self.send_response(answer.status_code)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.end_headers()
            self.wfile.write(answer.content)
            return
        if not Path(self.translate_path(self.path)).is_file():
            self.path = "/index.html"
        super().do_GET()

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


def built(checkout: Path, script: str, folder: Path) -> Path:
    """Build the UI with one of its scripts, and return a copy of its files."""
    subprocess.run(["npm", "run", script], cwd=checkout, check=True, stdout=subprocess.DEVNULL)
    return Path(shutil.copytree(checkout / "build" / "client", folder / script.replace(":", "-")))


@contextmanager
def served(files: Path, api: str) -> Iterator[str]:
    """Serve the UI in front of an API, and yield its address."""
    handler = type("Handler", (UiServer,), {"api": api})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(files))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def shown_costs(browser: Browser, url: str) -> dict[str, str]:
    """The last cell of each row of the UI's table of allocations, by its first one."""
    page = browser.new_page(viewport={"width": 1600, "height": 1200})
    page.goto(url)
    page.wait_for_selector("table tr:has-text('$')", timeout=120_000)
    rows = [row.inner_text().split("\n") for row in page.query_selector_all("table tr")]
    cells = [[cell for text in row for cell in text.split("\t") if cell.strip()] for row in rows]
    return {row[0].strip(): row[-1].strip() for row in cells if row and row[-1].strip().startswith("$")}


def true_costs(api: str) -> dict[str, str]:
    """What the UI has to show: cost by namespace, what no pod held, and all."""
    by_namespace = dict[str, Decimal]()
    for row in get(api, "costs", group_by="namespace", granularity="total")["rows"]:
        by_namespace[row["group"]["namespace"]] = Decimal(row["allocated_usd"])
    nodes = Decimal(get(api, "fleet")["totals"]["node_cost_usd"])
    costs = {**by_namespace, "__idle__": nodes - sum(by_namespace.values()), "Totals": nodes}
    return {name: f"${usd:,.2f}" for name, usd in costs.items()}


def get(api: str, route: str, **parameters: str) -> Mapping[str, Any]:
    answer = requests.get(f"{api}/v1/{route}", params={"window": WINDOW, **parameters}, timeout=120)
    answer.raise_for_status()
    return dict(answer.json(parse_float=Decimal))


def main() -> int:
    """Print both figures of each row; the exit status is 1 if any differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout
    if not (checkout / "node_modules").is_dir():
        subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=checkout, check=True)
    differ = False
    with ExitStack() as running:
        folder = Path(running.enter_context(tempfile.TemporaryDirectory()))
        pages = {script: built(checkout, script, folder) for script in ("build", "build:legacy")}
        now = datetime.now(UTC)
        fleet = running.enter_context(running_fleet(now, timedelta(days=1)))
        table = running.enter_context(SqliteTable(folder / "ledger"))
        service = LocalService(table, fleet.settings_text(), author="me", clock=lambda: now, secret_value=str)
        fleet.add_spot_prices(table, now)
        list(service.attribute_newest())
        api = running.enter_context(service.serving(0))
        browser = running.enter_context(running_chromium())
        expected = true_costs(api)
        for script, files in pages.items():
            with served(files, api) as url:
                shown = shown_costs(browser, url)
            for name in sorted({*expected, *shown}):
                is_equal = expected.get(name) == shown.get(name)
                differ |= not is_equal
                outcome = "" if is_equal else f", not {expected.get(name)}"
                sys.stdout.write(f"{script}: {name}: {shown.get(name)}{outcome}\n")
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
