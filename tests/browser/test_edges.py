"""Cases that the demo lacks: large fleets, the repeated hour at the end of summer time, missing responses."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from gpucost.core.hours import HOUR
from tests.browser.shown import percent
from tests.browser.simulated_fleet import ADDRESS, Fleet, large, written
from tests.browser.tabs import Tabs, settled

AUTUMN = datetime(2026, 11, 1, 3, tzinfo=UTC)
"""In New York, summer time ends three hours later."""
HURRY = """
const wait = window.setTimeout;
window.setTimeout = (what, time, ...more) => wait(what, time > 400 && time < 3000 ? time / 20 : time, ...more);
"""
"""Shortens the pauses before retries. The test checks the number of retries."""


@pytest.fixture
def tabs(chromium: Browser) -> Iterator[Tabs]:
    opened = Tabs(chromium, {ADDRESS.removeprefix("http://")})
    yield opened
    opened.check()


@pytest.fixture
def visit(tabs: Tabs) -> Callable[..., Page]:
    def open_view(fleet: Fleet, more: str = "", *, is_hurried: bool = False, **options: Any) -> Page:
        page = tabs.open("about:blank", **options)
        fleet.serve(page)
        if is_hurried:
            page.add_init_script(HURRY)
        page.goto(f"{ADDRESS}/#/overview?start={written(fleet.start)}&end={written(fleet.end)}{more}")
        return page

    return open_view


def heat(page: Page) -> Any:
    return page.get_by_role("application", name=re.compile("Utilization of business units by hour"))


def test_heat_map_of_200_units_over_35_days_is_paged(visit: Callable[..., Page]) -> None:
    fleet = large()
    page = visit(fleet, "&zone=utc&grain=hour")
    settled(page)
    heat_map_page, readout = page.get_by_test_id("heat-page"), page.locator(".grid .readout")
    expect(heat_map_page).to_have_text("1 to 20 of 200, most waste first")
    hourly = [query for path, query in fleet.requests if path == "/v1/costs" and query["granularity"] == "hour"]
    assert [query["business_unit"].count(",") for query in hourly] == [4] * 4, (
        "units whose costs the API reads separately"
    )
    heat(page).focus()
    page.keyboard.press("ArrowRight")
    for _ in range(3):
        page.keyboard.press("ArrowRight")
    for _ in range(19):
        page.keyboard.press("ArrowDown")
    expect(readout).to_contain_text("unit-019")
    expect(readout).to_contain_text(f"{percent(Decimal(str(fleet.use(19, 3))))} of 1.00 GPU-hours used")
    page.keyboard.press("ArrowDown")
    expect(heat_map_page).to_contain_text("21 to 40 of 200")
    expect(readout).to_contain_text("unit-020")
    expect(readout).to_contain_text(f"{percent(Decimal(str(fleet.use(20, 3))))} of 1.00 GPU-hours used")
    page.keyboard.press("ArrowUp")
    expect(readout).to_contain_text("unit-019")
    page.keyboard.press("PageDown")
    expect(readout).to_contain_text("unit-039")
    page.keyboard.press("End")
    expect(readout).to_contain_text(f"{percent(Decimal(str(fleet.use(39, fleet.hours - 1))))} of 1.00 GPU-hours used")
    address = page.url.replace("page=2", "page=99")
    page.goto("about:blank")
    page.goto(address)
    settled(page)
    expect(heat_map_page).to_have_text("181 to 200 of 200, most waste first")
    expect(page.get_by_role("button", name="↓ Next")).to_be_disabled()
    page.get_by_role("button", name="↑ Previous").click()
    expect(heat_map_page).to_contain_text("161 to 180 of 200")
    expect(page.locator(".labels li").first).to_have_text("unit-160")
    heat(page).click(position={"x": 2, "y": 2})
    page.wait_for_url(re.compile("#/hour/.*unit=unit-160"))


def test_figures_of_the_previous_period_become_an_outline(visit: Callable[..., Page]) -> None:
    """The heading names the next period at once, so its figures must not be those of the previous one."""
    page = visit(Fleet(["research"], AUTUMN, 6))
    settled(page)
    spent = page.get_by_test_id("cost-period")
    expect(spent).to_be_visible()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/v1/**", hold)
    page.evaluate(f"location.hash = '#/overview?start={written(AUTUMN)}&end={written(AUTUMN + 3 * HOUR)}'")
    expect(page.locator(".stale")).to_have_attribute("aria-busy", "true")
    expect(spent).to_have_css("opacity", "0")
    expect(page.locator("h1")).to_contain_text("Loading…")
    expect(page.locator(".stale .answer").first).to_have_css("opacity", "1")
    page.unroute("**/v1/**")
    for route in held:
        route.fallback()
    settled(page)
    expect(spent).to_have_css("opacity", "1")


def test_phone_shows_whole_names_and_the_first_rows(visit: Callable[..., Page]) -> None:
    names = [f"a-business-unit-with-a-very-long-name-{number:03}" for number in range(30)]
    page = visit(Fleet(names, AUTUMN, 6), viewport={"width": 360, "height": 740})
    settled(page)
    rows = page.get_by_test_id("units").locator("tbody tr")
    labels = page.locator(".labels li")
    expect(rows).to_have_count(6)
    expect(labels).to_have_count(6)
    more = page.get_by_role("button", name="Show all 30")
    more.first.click()
    expect(rows).to_have_count(30)
    more.click()
    expect(labels).to_have_text(names)
    for label in labels.all():
        assert label.evaluate(
            "(item) => item.scrollHeight <= item.clientHeight && item.scrollWidth <= item.clientWidth"
        )


def test_repeated_hour_at_the_end_of_summer_time(visit: Callable[..., Page]) -> None:
    page = visit(Fleet(["research"], AUTUMN, 6), timezone_id="America/New_York")
    settled(page)
    page.get_by_role("application", name=re.compile("Node cost over time")).focus()
    hours = []
    for _ in range(6):
        page.keyboard.press("ArrowRight")
        hours.append(page.get_by_test_id("readout").locator("strong").inner_text())
    assert hours == [
        "Sat 31 Oct, 23:00 GMT-4",
        "Sun 1 Nov, 00:00 GMT-4",
        "Sun 1 Nov, 01:00 GMT-4",
        "Sun 1 Nov, 01:00 GMT-5",
        "Sun 1 Nov, 02:00 GMT-5",
        "Sun 1 Nov, 03:00 GMT-5",
    ]
    expect(page.get_by_role("combobox", name=re.compile("^Period"))).to_contain_text(
        "Sat 31 Oct, 23:00 GMT-4 to Sun 1 Nov, 04:00 GMT-5"
    )


def test_selected_hour_survives_a_resized_window(visit: Callable[..., Page]) -> None:
    page = visit(Fleet(["research"], AUTUMN, 6))
    settled(page)
    page.get_by_role("application", name=re.compile("Node cost over time")).focus()
    page.keyboard.press("ArrowRight")
    readout = page.get_by_test_id("readout")
    hour = readout.locator("strong").inner_text()
    page.set_viewport_size({"width": 1000, "height": 700})
    page.wait_for_function("document.querySelector('.plot canvas').clientWidth < 1000")
    page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))")
    expect(readout).to_contain_text(hour)


def test_hours_with_an_offset_of_30_minutes(visit: Callable[..., Page]) -> None:
    page = visit(Fleet(["research"], AUTUMN, 6), timezone_id="Asia/Kolkata")
    settled(page)
    heat(page).focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".grid .readout")).to_contain_text("Sun 1 Nov, 08:30 GMT+5:30")


def test_missing_hours_are_hatched_and_not_zero(visit: Callable[..., Page]) -> None:
    page = visit(Fleet(["research"], AUTUMN, 24, missing=frozenset(range(6, 18))), "&zone=utc")
    settled(page)
    painted = heat(page).evaluate(
        """(cells) => {
          const canvas = cells.querySelector("canvas"), pen = canvas.getContext("2d"), wide = canvas.width / 24;
          const part = (hour) => {
            const { data } = pen.getImageData(hour * wide + 2, 2, wide - 4, canvas.height - 6);
            let seen = 0;
            for (let at = 3; at < data.length; at += 4) seen += data[at] > 0;
            return seen / (data.length / 4);
          };
          return [3, 10, 20].map(part);
        }"""
    )
    assert painted[0] > 0.95 < painted[2]
    assert 0.05 < painted[1] < 0.7, "lines and the space between them"
    heat(page).focus()
    page.keyboard.press("Home")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    expect(page.locator(".grid .readout")).to_contain_text("missing or incomplete")
    path = page.locator("svg.spark path").get_attribute("d") or ""
    assert path.count("M") == 2, "a gap"
    assert path.count("L") == 10


def test_bars_are_as_wide_as_their_days(visit: Callable[..., Page]) -> None:
    """The first day is cut to 21 hours, the last to one."""
    page = visit(Fleet(["research"], AUTUMN, 46), "&grain=day")
    settled(page)
    for title in ("Node cost", "Utilization"):
        expect(page.get_by_role("region", name=f"{title} over time, by UTC day", exact=True)).to_be_visible()
    painted = page.get_by_role("application", name=re.compile("Node cost over time")).evaluate(
        """(chart) => {
          const canvas = chart.querySelector("canvas"), over = chart.querySelector(".u-over").getBoundingClientRect();
          const outer = canvas.getBoundingClientRect(), scale = canvas.width / outer.width;
          return [10, 20, 30, 44, 45.5].map((hour) => {
            const left = (over.left - outer.left + (over.width * hour) / 46) * scale;
            const below = (over.bottom - outer.top - 4) * scale;
            return [...canvas.getContext("2d").getImageData(left, below, 1, 1).data.slice(0, 3)].join();
          });
        }"""
    )
    assert painted == ["79,191,161"] * 5, "used cost, from the beginning of each day to its end"


def test_no_allocation_differs_from_missing_figures(visit: Callable[..., Page]) -> None:
    page = visit(Fleet([], AUTUMN, 6))
    settled(page)
    expect(page.locator("main")).to_contain_text("No GPUs were allocated in this period.")
    page = visit(Fleet([], AUTUMN, 6, missing=frozenset(range(6))))
    settled(page)
    expect(page.locator(".empty")).to_have_text(re.compile("6 cluster-hours expected, none with figures"))


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (500, '{"detail": "broken", "status": 500}', "broken (500)"),
        (429, '{"message": "Too Many Requests"}', "Too Many Requests (429)"),
        (403, '{"detail": "needs the role viewer"}', "needs the role viewer (403)"),
        (504, "<html>", "Gateway Timeout (504)"),
    ],
)
def test_api_errors_are_shown(tabs: Tabs, visit: Callable[..., Page], status: int, body: str, message: str) -> None:
    tabs.expected = ("/v1/",)
    page = visit(Fleet(["research"], AUTUMN, 6, refuse=lambda _path: (status, body)), is_hurried=True)
    expect(page.get_by_role("alert")).to_contain_text(message)
    expect(page.get_by_role("button", name="Try again")).to_be_visible()


def test_short_throttling_is_retried(tabs: Tabs, visit: Callable[..., Page]) -> None:
    tabs.expected = ("/v1/",)
    left = {"/v1/alerts": 2, "/v1/fleet": 1}

    def refuse(path: str) -> tuple[int, str] | None:
        left[path] = left.get(path, 0) - 1
        return (429, '{"message": "Too Many Requests"}') if left[path] >= 0 else None

    page = visit(Fleet(["research"], AUTUMN, 6, refuse=refuse), is_hurried=True)
    settled(page)
    expect(page.get_by_test_id("waste")).to_be_visible()
    assert page.get_by_role("alert").count() == 0


def test_optional_parts_of_a_view_fail_separately(tabs: Tabs, visit: Callable[..., Page]) -> None:
    tabs.expected = ("/v1/alerts",)
    page = visit(
        Fleet(["research"], AUTUMN, 6, refuse=lambda path: (500, '{"detail": "no"}') if path == "/v1/alerts" else None)
    )
    settled(page)
    expect(page.get_by_test_id("waste")).to_be_visible()
    expect(page.get_by_role("region", name="Active alerts").get_by_role("alert")).to_have_text("no (500)")


def test_missing_response_times_out(tabs: Tabs) -> None:
    tabs.expected = ("/v1/",)
    page = tabs.open("about:blank")
    Fleet(["research"], AUTUMN, 6).serve(page)
    page.route(f"{ADDRESS}/v1/costs*", lambda _route: None)
    page.clock.install()
    page.goto(f"{ADDRESS}/#/overview")
    expect(page.locator("main .loading")).to_be_visible()
    page.clock.run_for(59_000)
    expect(page.locator("main .loading")).to_be_visible()
    page.clock.run_for(2_000)
    expect(page.get_by_role("alert")).to_contain_text("did not respond within one minute")


def test_invalid_response_shows_an_error(visit: Callable[..., Page]) -> None:
    page = visit(Fleet(["research"], AUTUMN, 6, refuse=lambda path: (200, "{}") if path == "/v1/fleet" else None))
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.get_by_role("link", name="Nodes")).to_be_visible()
