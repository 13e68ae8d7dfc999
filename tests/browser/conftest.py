"""One browser for all files, which run one after another: Playwright's event loop would disturb other tests."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.site import Site
from tests.browser.tabs import Tabs, running_chromium, settled

expect.set_options(timeout=60_000)  # generous, because the machine may be busy


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    with running_chromium() as browser:
        yield browser


@pytest.fixture
def tabs(chromium: Browser) -> Iterator[Tabs]:
    """Tabs that may only send requests to sites that were visited."""
    opened = Tabs(chromium, set())
    yield opened
    opened.check()


@pytest.fixture
def visit(tabs: Tabs) -> Callable[..., Page]:
    """Open a view of a site and wait for it."""

    def open_view(site: Site, view: str, **options: Any) -> Page:
        tabs.hosts.add(site.address.removeprefix("http://"))
        page = tabs.open(f"{site.address}/#/{view}", **options)
        settled(page)
        return page

    return open_view
