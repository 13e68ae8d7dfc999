"""Debian's Chromium, with tabs whose errors fail the test."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, sync_playwright

from gpucost_devstack.template import REPOSITORY

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--in-process-gpu",
    "--disable-software-rasterizer",
)
CHROMIUM = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
"""The shell has no user interface, and takes two thirds of the processor time."""
AXE = REPOSITORY / "web" / "node_modules" / "axe-core" / "axe.min.js"
_REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (one) =>
  console.error(`policy: ${one.violatedDirective} ${one.blockedURI} ${one.sourceFile}:${one.lineNumber}`));
"""


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Start Chromium."""
    path = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert path is not None, "Chromium is missing; install it with: make setup"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield browser
        browser.close()


@dataclass
class Tabs:
    """Opens tabs and records their errors.

    Attributes:
        faults: errors on the console, exceptions, violations of the policy, requests to other hosts.
        expected: beginnings of paths whose refusal by the API is part of the page's way.
    """

    browser: Browser
    hosts: set[str]
    expected: tuple[str, ...] = ()
    faults: list[str] = field(default_factory=list)
    contexts: list[BrowserContext] = field(default_factory=list)

    def open(self, address: str, **options: Any) -> Page:
        """Open a tab, by default in the time zone of New York."""
        context_options = {
            "locale": "en-GB",
            "timezone_id": "America/New_York",
            "viewport": {"width": 1280, "height": 900},
        }
        context = self.browser.new_context(**{**context_options, **options})
        context.set_default_timeout(60_000)
        self.contexts.append(context)
        context.add_init_script(_REPORT_VIOLATIONS)
        page = context.new_page()
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"exception: {error}"))
        page.on("request", lambda request: self._request(request.url))
        page.goto(address)
        return page

    def check(self) -> None:
        """Close all tabs, and fail if any had an error."""
        for context in self.contexts:
            context.close()
        self.contexts.clear()
        faults, self.faults = self.faults, []
        assert faults == [], faults

    def _console(self, message: ConsoleMessage) -> None:
        path = urlsplit(message.location.get("url", "")).path
        refused = "Failed to load resource" in message.text and path.startswith(self.expected)
        if message.type == "error" and not refused:
            self.faults.append(f"on the console: {message.text} {message.location}")

    def _request(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("blob", "data") and parts.netloc not in self.hosts:
            self.faults.append(f"a request to another host: {url}")


def settled(page: Page) -> None:
    """Wait until all requests are complete.

    A click on a link changes the address before the page hears of it, so two frames are awaited first. By a function:
    an expression would be evaluated at every look, which the page's policy refuses after the first.
    """
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    page.wait_for_function(
        """() => {
          const view = location.hash.split(/[/?]/)[1];
          return document.title.startsWith(`GPU cost: ${view}`) && document.querySelector("main h1")
            && !document.querySelector(".loading, [aria-busy=true]");
        }"""
    )


def violations(page: Page, *rules: str) -> list[str]:
    """Violations of WCAG 2.2 AA and best practices found by axe-core, or of some rules only."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE.read_text())
    options = {"resultTypes": ["violations"], **({"runOnly": list(rules)} if rules else {})}
    results = page.evaluate("(options) => axe.run(document, options)", options)
    return [
        f"{violation['id']}: {node['html'][:200]}" for violation in results["violations"] for node in violation["nodes"]
    ]
