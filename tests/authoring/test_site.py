"""The documentation site is complete, needs no other host, and its search works without one."""

import shutil
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import pytest

from authoring import site

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def built() -> Path:
    assert site.main() == 0
    return site.SITE


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    from tests.browser.tabs import running_chromium

    with running_chromium() as browser:
        yield browser


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture(scope="module")
def address(built: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(built)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.tools
def test_built_site_loads_nothing_from_other_hosts(built: Path) -> None:
    assert list(site.site_problems(built)) == []
    assert len(list(built.rglob("*.html"))) > 60


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('<script src="https://unpkg.com/x.js"></script>', "loads https://unpkg.com/x.js"),
        ('<link rel="stylesheet" href="//fonts.googleapis.com/css">', "loads //fonts.googleapis.com/css"),
        ('<img src="http://example.com/a.png">', "loads http://example.com/a.png"),
        ('<p style="background: url(https://example.com/a.png)">', "loads https://example.com/a.png"),
        ('<pre class="mermaid">', "class mermaid makes the theme load a library"),
        ('<a href="missing.html#part">', "missing.html#part is not in the site"),
    ],
)
def test_address_of_another_host_or_missing_page_is_a_problem(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "page.html").write_text(text + '<a href="https://example.com/">fine</a><a href="#part">fine</a>')
    (problem,) = site.site_problems(tmp_path)
    assert says in problem


@pytest.mark.parametrize("style", ['@import "https://example.com/a.css";', "a { src: url('//example.com/a.woff') }"])
def test_style_sheet_that_loads_from_another_host_is_a_problem(tmp_path: Path, style: str) -> None:
    (tmp_path / "a.css").write_text(style)
    (problem,) = site.site_problems(tmp_path)
    assert "example.com" in problem


def test_navigation_names_every_page_once(tmp_path: Path) -> None:
    assert list(site.navigation_problems()) == []
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "index.md").write_text("# Home")
    (docs / "new.md").write_text("# New")
    configuration = tmp_path / "zensical.toml"
    configuration.write_text('[project]\nnav = [{ "Home" = "index.md" }, { "How-to" = [{ "Old" = "old.md" }] }]')
    missing, unnamed = site.navigation_problems(configuration, docs)
    assert "docs/old.md, which does not exist" in missing
    assert "docs/new.md: the navigation" in unnamed


def test_search_finds_a_settings_key_without_internet(address: str, chromium: "Browser") -> None:
    page = chromium.new_page()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.route(lambda url: not url.startswith(address), lambda route: route.abort())
    page.goto(f"{address}/index.html", wait_until="networkidle")  # the script that opens the search has run
    page.keyboard.press("/")
    page.keyboard.type("lookback_hours", delay=20)
    page.locator("a[href*='reference/settings.html']", has_text="lookback").first.wait_for(timeout=15_000)
    page.goto(f"{address}/reference/settings.html")
    page.goto(f"{address}/explanation/cost-model.html")
    page.close()
    assert [url for url in requests if not url.startswith((address, "data:", "blob:"))] == []


@pytest.mark.tools
def test_strict_build_refuses_a_broken_link(tmp_path: Path) -> None:
    shutil.copy(site.CONFIGURATION, tmp_path)
    shutil.copytree(site.DOCUMENTATION, tmp_path / "docs")
    (tmp_path / "docs" / "index.md").write_text("# Home\n\n[gone](reference/gone.md) [part](reference/cli.md#gone)\n")
    output = site.build(tmp_path)
    assert output is not None
    assert "page does not exist" in output
