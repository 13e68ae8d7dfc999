"""A browser per module, because Playwright's event loop would disturb other modules."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.tabs import running_chromium

expect.set_options(timeout=20_000)  # generous, because the machine may be busy


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with running_chromium() as browser:
        yield browser
