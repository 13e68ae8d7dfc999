"""Checks of every view: screen sizes, color schemes, print and keyboard."""

import re
from typing import Any

from playwright.sync_api import Page

from tests.browser.tabs import violations

NARROW, WIDE, PAPER = 360, 3840, 1030
"""Widths in CSS pixels: a small phone, 4K, and landscape A4 without margins."""

LONGEST_LINE = 80 * 28.8
"""Widest line of text on 4K, where a rem has 28.8 pixels."""

_WATCH_FOCUS = """
() => {
  window.reached = new Set();
  window.unmarked = [];
  addEventListener("focusin", ({ target }) => {
    window.reached.add(target);
    const { outlineStyle, outlineWidth } = getComputedStyle(target);
    if (outlineStyle === "none" || parseFloat(outlineWidth) < 2) window.unmarked.push(target.outerHTML.slice(0, 120));
  });
  document.activeElement?.blur();
}
"""
_REACHABLE = """
() => {
  const pressed = "a[href], button:not(:disabled), select, summary, [tabindex='0'], [role=application]";
  const all = (document.querySelector("dialog[open]") ?? document).querySelectorAll(pressed);
  window.reachable = [...all].filter((element) => element.checkVisibility());
  return window.reachable.length;
}
"""
_NOT_REACHED = """
() => [
  ...window.reachable.filter((element) => !window.reached.has(element))
    .map((element) => element.outerHTML.slice(0, 120)),
  ...window.unmarked.map((html) => `no mark: ${html}`),
]
"""
_WIDER_THAN_THEIR_ROOM = """
() => [...document.querySelectorAll(".scroller, .plot, .grid, .stats, section, h1")]
  .filter((element) => element.scrollWidth > element.clientWidth + 1).map((element) => element.outerHTML.slice(0, 120))
"""


_EXTENT = """
() => {
  const boxes = [...document.querySelectorAll("main section")].map((section) => section.getBoundingClientRect());
  return [Math.min(...boxes.map(({ left }) => left)), Math.max(...boxes.map(({ right }) => right))];
}
"""
_LONG_LINES = """
(most) => {
  const isBlock = (element) => ["block", "list-item"].includes(getComputedStyle(element).display);
  const hasText = (element) => [...element.childNodes].some(
    (node) => node.nodeType === Node.TEXT_NODE && node.textContent.trim() !== "");
  return [...document.querySelectorAll("main :is(p, div, li, dd, summary, caption > span)")].filter((element) => {
    if (!hasText(element) || !(isBlock(element) || element.matches("caption > span"))) return false;
    const range = document.createRange();
    range.selectNodeContents(element);
    const lines = {};
    for (const { top, left, right } of range.getClientRects()) {
      const line = (lines[Math.round(top / 8)] ??= [left, right]);
      lines[Math.round(top / 8)] = [Math.min(line[0], left), Math.max(line[1], right)];
    }
    return Math.max(0, ...Object.values(lines).map(([left, right]) => right - left)) > most;
  }).map((element) => element.outerHTML.slice(0, 120));
}
"""
_COLUMNS_OF_LETTERS = """
() => [...document.querySelectorAll("th, td, .answer li > *, dt, dd")]
  .filter((element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    const lines = [...range.getClientRects()];
    return new Set(lines.map(({ top }) => top)).size > 4 && Math.max(...lines.map(({ width }) => width)) < 64;
  })
  .map((element) => element.outerHTML.slice(0, 120))
"""


def check_layouts(page: Page) -> None:
    """Check the view in a tab: 360 px and 4K, light and dark, print, keyboard."""
    for width, height in ((NARROW, 740), (WIDE, 2160)):
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_function("(width) => document.documentElement.scrollWidth <= width", arg=width)
        if page.locator("main section").count():
            left, right = page.evaluate(_EXTENT)
            assert left < width / 20, "the whole width"
            assert right > width - width / 20
        assert not (lines := page.evaluate(_LONG_LINES, LONGEST_LINE)), lines
        assert not (letters := page.evaluate(_COLUMNS_OF_LETTERS)), f"names have room for words: {letters}"
    page.set_viewport_size({"width": 1440, "height": 900})
    page.emulate_media(color_scheme="dark")
    assert _is_dark(page)
    assert violations(page, "color-contrast") == []
    page.emulate_media(color_scheme="light")
    assert not _is_dark(page)
    assert not (faults := violations(page)), faults
    _is_reached_by_keyboard(page)
    page.set_viewport_size({"width": PAPER, "height": 700})
    page.emulate_media(media="print")
    # Charts are drawn again in the frame after a resize.
    page.wait_for_function("(width) => document.documentElement.scrollWidth <= width", arg=PAPER)
    assert page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(255, 255, 255)"
    assert page.locator("h1").is_visible()
    assert not page.locator(".choices, .account, .download, .steps, .u-over").filter(visible=True).count()
    cut: list[Any] = page.evaluate(_WIDER_THAN_THEIR_ROOM)
    assert cut == [], "all columns are printed"
    assert page.pdf(prefer_css_page_size=True).startswith(b"%PDF-")
    page.emulate_media(media="screen")


def _is_reached_by_keyboard(page: Page) -> None:
    """The Tab key reaches every control, shows the focus, and is not trapped."""
    page.evaluate(_WATCH_FOCUS)
    clocks = page.locator('input[type="datetime-local"]').count()
    # Chromium adds scrolled regions to the tab order, and the parts of a field with date and clock.
    for _ in range(page.evaluate(_REACHABLE) + 3 + 7 * clocks):
        page.keyboard.press("Tab")
    missed: list[str] = page.evaluate(_NOT_REACHED)
    assert missed == []


def _is_dark(page: Page) -> bool:
    paper: str = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return sum(map(int, re.findall(r"\d+", paper)[:3])) < 150
