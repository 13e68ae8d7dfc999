"""What is visible on a phone, on 1440 pixels and on 4K: figures next to names, time axes, columns, legends, groups."""

import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
import simplejson
from msgspec.structs import replace
from playwright.sync_api import Locator, Page, Route, ViewportSize, expect

from gpucost.core.amounts import CapacityCosts, Costs, Totals
from gpucost.core.hour_record import HourRecord, Line, NodeHour
from gpucost.core.hours import HOUR, floor_hour
from tests.browser.shown import usd
from tests.browser.site import Site, deployment
from tests.browser.tabs import settled
from tests.records import amount, line, record

SETTINGS = """
clusters: [{name: west, prometheus: {url: "http://127.0.0.1:9"}}]
pricing: {source: constant, gpu_hourly_usd: 2}
"""
END = floor_hour(datetime.now(UTC))
HOURS = 24
START = END - HOURS * HOUR
DAY = f"start={START:%Y-%m-%dT%H:00:00Z}&end={END:%Y-%m-%dT%H:00:00Z}"
PERIOD = f"{DAY}&zone=utc"
UNMEASURED = END - 5 * HOUR
"""In this hour, only a quarter of the physics pod's time was measured; in all others, nothing."""
PHONE = ViewportSize(width=360, height=740)
LAPTOP = ViewportSize(width=1440, height=900)
WIDE = ViewportSize(width=3840, height=2160)
JOBS = {"train-2106-1": 6, "train-2107-1": 9, "train-2108-1": 9}
"""Hours of each Job, one after the other."""


def held(unit: str, workload: str, node: str, kind: str = "Deployment", used: int = 0) -> Line:
    """A GPU of 2 USD for the hour, and the percentage that was used."""
    return line(unit, unit, f"{workload}-0", "2")._replace(
        workload=workload,
        workload_kind=kind,
        node=node,
        gpu_hourly_usd=Decimal(2),
        price_source="list-price",
        gpu_share=Decimal(1),
        utilization=Decimal(used) / 100,
        allocated_gpu_hours=amount(1),
        effective_gpu_hours=amount(1) * used // 100,
        effective_usd=amount(2) * used // 100,
        waste_usd=amount(2) - amount(2) * used // 100,
    )


def unmeasured(pod: Line, percentage: int) -> Line:
    """The measured rest is waste."""
    return pod._replace(
        utilization=None,
        utilization_source="none",
        effective_gpu_hours=0,
        effective_usd=0,
        unmeasured_gpu_hours=amount(1) * percentage // 100,
        unmeasured_usd=amount(2) * percentage // 100,
        waste_usd=amount(2) - amount(2) * percentage // 100,
    )


def records() -> Iterator[HourRecord]:
    names = [name for name, hours in JOBS.items() for _ in range(hours)]
    for number in range(HOURS):
        hour = START + number * HOUR
        physics = held("robotics", "physics-of-a-long-name-for-phones", "n1")
        lines = [
            held("research", names[number], "n1", "Job", 90),
            held("research", "train-server", "n1", used=40),
            held("research", "notebook", "n2"),
            unmeasured(physics, 75 if hour == UNMEASURED else 100),
        ]
        yield on_nodes(record(lines, hour=hour, cluster="west"))


def on_nodes(hour: HourRecord) -> HourRecord:
    """The record with two nodes of four GPUs; the second one begins two hours later."""
    nodes = []
    for name in ["n1", "n2"][: 1 if hour.hour < START + 2 * HOUR else 2]:
        costs = Costs.total(pod.costs() for pod in hour.lines if pod.node == name)
        free = amount(4) - costs.allocated_gpu_hours
        capacity = CapacityCosts(
            capacity_gpu_hours=amount(4), unallocated_gpu_hours=free, unallocated_usd=2 * free, node_cost_usd=amount(8)
        )
        nodes.append(
            NodeHour(
                name,
                f"i-{name}",
                "pool",
                "g5",
                "on-demand",
                "a",
                "A10G",
                "constant",
                "gpu-bears-all",
                None,
                costs.allocated_usd,
                capacity,
            )
        )
    assert hour.totals is not None
    return replace(
        hour, nodes=tuple(nodes), totals=Totals(hour.totals.costs, CapacityCosts.total(node.capacity for node in nodes))
    )


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with deployment(SETTINGS, records(), end=END) as deployed:
        yield deployed


def is_inside(inner: Locator, outer: Locator) -> bool:
    """Whether an element is completely in another one's visible width."""
    box, room = inner.bounding_box(), outer.bounding_box()
    assert box is not None
    assert room is not None
    return box["x"] >= room["x"] and box["x"] + box["width"] <= room["x"] + room["width"] + 1


@pytest.mark.parametrize(
    ("view", "table"),
    [
        ("health?", "unmeasured"),
        ("nodes?", "pools"),
        ("nodes?", "removals"),
        ("explore?by=workload&", "explore"),
        (f"hour/{UNMEASURED:%Y-%m-%dT%H:00:00Z}?", "lines"),
        ("overview?", "units"),
        ("explore?by=business_unit&measure=waste_usd&", "explore"),
        ("unit/research?", "hardware"),
    ],
)
def test_first_figure_is_visible_on_a_phone(visit: Callable[..., Page], site: Site, view: str, table: str) -> None:
    page = visit(site, f"{view}{PERIOD}", viewport=PHONE)
    rows = page.get_by_test_id(table).locator("tbody tr").all()
    assert rows
    for row in rows:
        figure = row.locator("td").nth(1)
        expect(figure).to_have_class("figure")
        assert is_inside(figure, page.get_by_role("region").filter(has=page.get_by_test_id(table)).last)


@pytest.mark.parametrize(
    ("view", "table", "titles"),
    [
        ("overview?", "units", ["Business unit", "Waste", "Waste %", "Waste change"]),
        ("explore?by=workload&compare=1&", "explore", ["Workload", "Allocated cost", "Change"]),
        ("nodes?", "removals", ["Node", "Cost without pods", "Hours without pods"]),
    ],
)
def test_tables_on_a_phone_begin_with_the_answer_and_say_that_more_follows(
    visit: Callable[..., Page], site: Site, view: str, table: str, titles: list[str]
) -> None:
    page = visit(site, f"{view}{PERIOD}", viewport=PHONE)
    scroller = page.get_by_test_id(table).locator("..")
    heads = scroller.locator("thead th")
    shown = [head.inner_text().rstrip(" ↓↑↕") for head in heads.all() if is_inside(head, scroller)]
    assert shown[: len(titles)] == titles
    expect(scroller.locator(".more-columns")).to_have_text(f". {heads.count() - len(shown)} more columns →")
    name = scroller.locator("tbody td").first
    before = name.bounding_box()
    scroller.evaluate("(box) => { box.scrollLeft = box.scrollWidth; }")
    assert is_inside(heads.last, scroller)
    expect(heads.last).to_have_css("padding-right", "0px")  # or the table would scroll for an empty edge
    assert name.bounding_box() == before, "the names stay"
    clipped = (
        "(box) => [...box.querySelectorAll('bdi')].filter((name) => name.scrollWidth > name.clientWidth + 1).length"
    )
    assert scroller.evaluate(clipped) == 0
    page.set_viewport_size(WIDE)
    expect(scroller.locator(".more-columns")).to_have_count(0)


def test_amount_that_pods_are_opened_by_is_visible_on_a_phone(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"hour/{UNMEASURED:%Y-%m-%dT%H:00:00Z}?zone=utc&lines-sort=-unmeasured_usd", viewport=PHONE)
    table = page.get_by_test_id("lines")
    expect(table.locator("th").nth(1)).to_have_text("Unmeasured cost ↓")
    expect(table.locator("tbody tr").first.locator("td").nth(1)).to_have_text("$1.50")
    assert is_inside(table.locator("tbody td").nth(1), table.locator(".."))
    table.get_by_role("button", name="Waste").click()
    expect(table.locator("th").nth(2)).to_have_text("Allocated cost ")
    expect(table.locator("th").nth(3)).to_have_text("Waste ↓")


@pytest.mark.parametrize("view", ["health?", "unit/research?", f"hour/{UNMEASURED:%Y-%m-%dT%H:00:00Z}?"])
def test_summary_is_a_single_column_on_a_phone(visit: Callable[..., Page], site: Site, view: str) -> None:
    page = visit(site, f"{view}{PERIOD}", viewport=PHONE)
    boxes = [box for stat in page.locator("main .stats > .stat").all() if (box := stat.bounding_box())]
    assert len(boxes) > 2
    assert len({box["y"] for box in boxes}) == len(boxes)
    assert min(box["width"] for box in boxes) > PHONE["width"] * 0.7


_AMOUNTS_AFTER_OTHERS = """
() => [...document.querySelectorAll("main table")].flatMap((table) => {
  const titles = [...table.querySelectorAll("thead th")].map((title) => title.textContent.replace(/[ ↓↑↕]+$/, ""));
  const cells = [...(table.querySelector("tbody tr")?.children ?? [])];
  const first = cells.findIndex((cell, at) => at > 0 && !cell.classList.contains("figure"));
  const isAmount = (cell, at) => /^-?[$]/.test(cell.textContent) && titles[at] !== "Price per GPU-hour";
  return first < 0 ? [] : cells.flatMap((cell, at) => at > first && isAmount(cell, at) ? [titles[at]] : []);
})
"""


@pytest.mark.parametrize(
    "view",
    [
        "overview?",
        "unit/research?",
        "nodes?",
        "health?",
        "explore?measure=effective_usd&",
        "explore?measure=waste_usd&",
        "explore?compare=1&",
        f"hour/{UNMEASURED:%Y-%m-%dT%H:00:00Z}?",
        f"hour/{UNMEASURED:%Y-%m-%dT%H:00:00Z}?hours=3&",
    ],
)
def test_amounts_of_tables_come_before_descriptions(visit: Callable[..., Page], site: Site, view: str) -> None:
    page = visit(site, f"{view}{PERIOD}", viewport=PHONE)
    assert page.locator("main table").count()
    assert page.evaluate(_AMOUNTS_AFTER_OTHERS) == []


def test_amounts_of_pods_are_visible_in_the_dialog_on_a_phone(visit: Callable[..., Page], site: Site) -> None:
    hour = f"start={UNMEASURED:%Y-%m-%dT%H:00:00Z}&end={UNMEASURED + HOUR:%Y-%m-%dT%H:00:00Z}&zone=utc"
    page = visit(site, f"overview?{hour}&why=unmeasured_usd", viewport=PHONE)
    dialog = page.get_by_test_id("figure")
    row = dialog.get_by_test_id("figure-pods").locator("tbody tr").first
    expect(row.locator("td").nth(1)).to_have_text("$1.50")
    assert is_inside(row.locator("td").nth(1), dialog)


def test_rows_of_an_hour_have_a_line_each_and_the_causes_come_first(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"health?{PERIOD}", viewport=LAPTOP)
    page.get_by_test_id("findings").get_by_role("link", name=re.compile("UTC")).first.click()
    settled(page)
    table = page.get_by_test_id("lines")
    expect(table.locator("[aria-sort=descending]")).to_have_text("Unmeasured cost ↓")
    heights = [box["height"] for row in table.locator("tbody tr").all() if (box := row.bounding_box()) is not None]
    assert len(heights) == 4
    assert max(heights) < 1.5 * min(heights)
    assert table.locator("tbody tr").first.locator("td").all_inner_texts()[-2:] == ["$2.0000", "list-price"]


def test_cause_in_several_hours_has_the_amount_of_the_period(visit: Callable[..., Page], site: Site) -> None:
    """Pods are read of the hour with the most unmeasured GPU-hours, and of the newest hour: a GPU in each."""
    page = visit(site, f"health?{PERIOD}", viewport=LAPTOP)
    cause = page.get_by_test_id("findings").locator("li").filter(has_text="GPU-hours").first
    workloads = site.ask(f"costs?{DAY}&granularity=total&group_by=cluster,business_unit,namespace,workload")["rows"]
    (workload,) = [row for row in workloads if row["unmeasured_usd"]]
    expect(cause.locator(".amount")).to_have_text(usd(workload["unmeasured_usd"]))
    expect(cause).to_contain_text(f"{workload['unmeasured_gpu_hours']:.2f} GPU-hours in the period, for example in")
    expect(page.locator("main")).to_contain_text("Causes are those of the worst and of the newest hour of each cluster")


def test_nodes_of_a_long_period_say_first_that_they_are_of_a_week(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "nodes?window=35d&zone=utc", viewport=LAPTOP)
    period = page.get_by_test_id("nodes-period")
    expect(period).to_contain_text("All figures are of seven days:")
    expect(page.get_by_role("heading", level=1)).to_have_text("Nodes, last seven days of the period")
    expect(page.locator("option:checked").filter(has_text="days, incl.")).to_have_text(
        "35 days, incl. today (UTC): its last 7 days"
    )
    follows = "(section, period) => period.compareDocumentPosition(section) & Node.DOCUMENT_POSITION_FOLLOWING"
    assert page.locator("main section").first.evaluate(follows, period.element_handle())
    expect(page.get_by_test_id("removals").locator("caption")).to_contain_text("All amounts are of these 7 days")
    week = visit(site, "nodes?zone=utc")
    expect(week.get_by_role("combobox", name="Period")).to_have_value("7d")
    expect(week.get_by_test_id("nodes-period")).not_to_contain_text("All figures are of")


def test_each_row_of_cards_of_a_unit_says_its_period(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"unit/research?{PERIOD}", viewport=LAPTOP)
    texts = (
        page.locator("main")
        .locator("h1, h2, .stats")
        .evaluate_all("(found) => found.map((element) => element.className === 'stats' ? 'cards' : element.innerText)")
    )
    of_cards = [texts[at - 1] for at, text in enumerate(texts) if text == "cards"]
    first, last = (f"{at:%a} {at.day} {at:%b, %H:%M} UTC" for at in (START, END))
    assert of_cards == ["This month (UTC), all clusters", f"{first} to {last}"]


@pytest.mark.parametrize("viewport", [PHONE, LAPTOP])
def test_views_are_in_one_row_and_the_others_in_a_menu(
    visit: Callable[..., Page], site: Site, viewport: ViewportSize
) -> None:
    page = visit(site, f"overview?{PERIOD}", viewport=viewport)
    views = page.get_by_role("navigation", name="Views")
    assert views.evaluate("(nav) => nav.scrollWidth <= nav.clientWidth")
    tops = views.locator("> a, > button").evaluate_all("(found) => found.map((element) => element.offsetTop)")
    assert len(tops) >= 5
    assert len(set(tops)) == 1
    more = views.get_by_role("button", name="More")
    more.focus()
    page.keyboard.press("Enter")
    menu = page.locator("#menu").get_by_role("link")
    hidden = ["Data health"] if viewport == PHONE else []
    assert menu.all_inner_texts() == [*hidden, "Hour", "Split policies", "Glossary", "API ↗"]
    page.keyboard.press("Escape")
    expect(menu.first).to_be_hidden()
    more.click()
    menu.filter(has_text="Glossary").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Glossary")
    expect(menu.first).to_be_hidden()
    expect(more).to_have_attribute("aria-current", "true")


def test_many_missing_hours_are_folded(visit: Callable[..., Page], site: Site) -> None:
    """The API's hours with every second one missing."""
    page = visit(site, f"overview?{PERIOD}", viewport=PHONE)

    def lose_hours(route: Route) -> None:
        response = simplejson.loads(route.fetch().text(), use_decimal=True)
        rows = [{**row, "status": "missing"} if at % 2 else row for at, row in enumerate(response["rows"])]
        route.fulfill(body=simplejson.dumps({**response, "rows": rows}), content_type="application/json")

    page.route("**/v1/hours*", lose_hours)
    page.reload()
    settled(page)
    folded = page.get_by_test_id("folded-gaps")
    assert folded.inner_text() == "12 cluster-hours without figures: 12 gaps in 1 cluster"
    folded.locator("summary").click()
    expect(folded.locator("li")).to_have_count(12)


def test_legends_name_cells_without_gpus_and_without_nodes(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"nodes?{PERIOD}", color_scheme="dark")
    entry = page.locator(".scale > span", has_text="the node did not exist")
    expect(entry.locator("svg.swatch.nothing rect")).to_have_css("fill", "rgb(20, 24, 28)")
    expect(page.locator(".scale > span", has_text="unallocated").locator("svg.swatch rect")).to_be_visible()
    page.goto(f"{site.address}/#/overview?{PERIOD}")
    settled(page)
    expect(page.locator(".scale > span", has_text="no GPUs allocated").locator("svg.swatch.nothing")).to_be_visible()


@pytest.mark.parametrize(
    ("scheme", "unused", "full"),
    [("light", "rgb(228, 217, 140)", "rgb(0, 53, 3)"), ("dark", "rgb(107, 109, 34)", "rgb(216, 242, 156)")],
)
def test_more_utilization_has_more_contrast_in_every_scheme(
    visit: Callable[..., Page], site: Site, scheme: str, unused: str, full: str
) -> None:
    """The notebook is never used."""
    page = visit(site, f"nodes?{PERIOD}&node=n2", color_scheme=scheme)
    pixel = """(canvas) => `rgb(${[...canvas.getContext("2d").getImageData(canvas.width - 6, 4, 1, 1).data].slice(0, 3)
      .join(", ")})`"""
    assert page.get_by_test_id("strip").locator("canvas").evaluate(pixel) == unused
    gradient = page.locator(".scale .use").evaluate("(scale) => getComputedStyle(scale).backgroundImage")
    assert gradient.startswith(f"linear-gradient(to right, {unused}")
    assert gradient.endswith(f"{full})")


@pytest.mark.parametrize("viewport", [PHONE, LAPTOP, WIDE])
def test_every_strip_has_a_whole_time_axis(visit: Callable[..., Page], site: Site, viewport: ViewportSize) -> None:
    page = visit(site, f"nodes?{PERIOD}", viewport=viewport)
    strips = page.get_by_test_id("strip").all()
    assert len(strips) == 2
    for strip in strips:
        labels = strip.locator(".ticks span").all()
        assert len(labels) >= 2
        assert all(is_inside(label, strip.locator(".ticks")) for label in labels)
    page.goto(f"{site.address}/#/overview?{PERIOD}")
    settled(page)
    heat = page.locator(".grid.labelled")
    assert all(is_inside(label, heat.locator(".ticks")) for label in heat.locator(".ticks span").all())


@pytest.mark.parametrize(
    ("view", "left", "right"),
    [
        ("overview?", "Business units by waste", "Utilization over time, by hour"),
        ("nodes?", "Which node to remove", "Node pools"),
        ("unit/research?", "This month (UTC), all clusters", "Allocated cost over time, by hour"),
        ("health?", "Coverage by hour and source", "Unmeasured GPU-hours"),
    ],
)
def test_sections_are_in_two_columns_on_4k(
    visit: Callable[..., Page], site: Site, view: str, left: str, right: str
) -> None:
    page = visit(site, f"{view}{PERIOD}", viewport=WIDE)
    boxes = [page.get_by_role("region", name=name, exact=True).bounding_box() for name in (left, right)]
    first, second = (box for box in boxes if box is not None)
    for box in (first, second):
        assert 1700 < box["width"] < WIDE["width"] / 2
    assert first["x"] + first["width"] < second["x"]
    page.set_viewport_size(LAPTOP)
    narrow = page.get_by_role("region", name=right, exact=True).bounding_box()
    assert narrow is not None
    assert narrow["width"] > LAPTOP["width"] - 150


def test_terms_are_in_two_columns_on_4k(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "glossary", viewport=WIDE)
    sections = page.locator("main section")
    boxes = [box for section in sections.all() if (box := section.bounding_box()) is not None]
    assert boxes[-1]["x"] > WIDE["width"] / 2
    assert boxes[-1]["x"] + boxes[-1]["width"] > WIDE["width"] * 0.95
    assert page.evaluate("document.documentElement.scrollHeight") < 1.5 * WIDE["height"]


def test_long_tables_of_an_hour_are_folded(visit: Callable[..., Page], site: Site) -> None:
    view = f"hour/{UNMEASURED:%Y-%m-%dT%H:00:00Z}?zone=utc"
    page = visit(site, view, viewport=WIDE)
    hour = f"start={UNMEASURED:%Y-%m-%dT%H:00:00Z}&end={UNMEASURED + HOUR:%Y-%m-%dT%H:00:00Z}"

    def multiply(route: Route, path: str, *names: str) -> None:
        response = site.ask(f"{path}?{hour}")
        rows = [{**response["rows"][0], **{name: f"{name}-{number}" for name in names}} for number in range(60)]
        route.fulfill(body=simplejson.dumps({**response, "rows": rows}), content_type="application/json")

    page.route("**/v1/lines*", lambda route: multiply(route, "lines", "pod", "uid"))
    page.route("**/v1/nodes*", lambda route: multiply(route, "nodes", "node"))
    page.reload()
    settled(page)
    for table, count in (("lines", 25), ("nodes", 15)):
        expect(page.get_by_test_id(table).locator("tbody tr")).to_have_count(count)
    assert page.evaluate("document.documentElement.scrollHeight") < 3 * WIDE["height"]
    page.get_by_role("button", name="Show all 60").first.click()
    expect(page.get_by_test_id("lines").locator("tbody tr")).to_have_count(60)
    page.get_by_role("button", name="Show the first 25").click()
    expect(page.get_by_test_id("lines").locator("tbody tr")).to_have_count(25)


@pytest.mark.parametrize("view", ["explore?", f"hour/{UNMEASURED:%Y-%m-%dT%H:00:00Z}?"])
def test_sections_with_wide_tables_have_the_whole_width_on_4k(
    visit: Callable[..., Page], site: Site, view: str
) -> None:
    page = visit(site, f"{view}{PERIOD}", viewport=WIDE)
    assert page.evaluate("parseFloat(getComputedStyle(document.documentElement).fontSize)") > 28
    widths = [box["width"] for section in page.locator("main section").all() if (box := section.bounding_box())]
    assert min(widths) > WIDE["width"] * 0.95
    for table in page.locator("main .scroller").all():
        assert table.evaluate("(box) => box.scrollWidth <= box.clientWidth + 1"), "all columns are visible"


def test_chart_and_table_have_the_same_groups_of_jobs(visit: Callable[..., Page], site: Site) -> None:
    """Jobs are a group; a Deployment whose name begins alike is none of them."""
    page = visit(site, f"explore?{PERIOD}&by=workload")
    rows = site.ask(f"costs?{DAY}&granularity=total&group_by=workload")["rows"]
    costs = {row["group"]["workload"]: row["allocated_usd"] for row in rows}
    jobs = sum(costs.pop(name) for name in JOBS)
    expected = {"train-*": usd(jobs), **{name: usd(cost) for name, cost in costs.items()}}
    assert jobs == 2 * HOURS
    legend = page.locator(".chart .legend li:has(rect)")
    assert dict(text.rsplit(" ", 1) for text in legend.all_inner_texts()) == expected

    def color_of(entry: Locator) -> Any:
        return entry.locator("rect").evaluate("(rect) => getComputedStyle(rect).fill")

    colors = {entry.inner_text().rsplit(" ", 1)[0]: color_of(entry) for entry in legend.all()}
    assert len(set(colors.values())) == len(expected)
    table = page.get_by_test_id("explore").locator("tbody tr").all()
    assert len(table) == len(expected)
    for row in table:
        name = row.locator("bdi").inner_text()
        assert row.locator("td").nth(1).inner_text() == expected[name]
        assert color_of(row) == colors[name]
    chart = page.get_by_role("application", name="Allocated cost over time by workload")
    chart.focus()
    for _ in range(HOURS):
        page.keyboard.press("ArrowRight")
        expect(page.get_by_test_id("readout")).to_contain_text("train-* $2.00 (25%)")


def test_hardly_measured_waste_says_why_its_share_is_unknown(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"overview?{PERIOD}")
    row = page.get_by_test_id("units").locator("tr", has_text="robotics")
    assert row.locator("td").all_inner_texts()[1:3] == ["$0.50", "–"]
    why = "utilization of less than 10% was measured"
    assert row.locator("td").nth(2).locator("span").get_attribute("title") == f"Unknown: {why}"
    expect(page.get_by_test_id("units").locator("caption")).to_contain_text(f"–: {why}")
    page.goto(f"{site.address}/#/unit/robotics?{PERIOD}")
    settled(page)
    for name in ("effective", "waste"):
        expect(page.locator(".stat", has=page.get_by_test_id(name))).to_contain_text("of the measured part only")


def column(page: Page, table: str, row: str, title: str) -> Locator:
    """The cell of a row in the column with a title."""
    titles = [text.rstrip(" ↓↑↕") for text in page.get_by_test_id(table).locator("thead th").all_inner_texts()]
    return page.get_by_test_id(table).locator("tbody tr", has_text=row).first.locator("td").nth(titles.index(title))


def test_unmeasured_waste_is_unknown_in_every_table(visit: Callable[..., Page], site: Site) -> None:
    """Nothing of robotics was measured in this hour."""
    hour = f"start={START:%Y-%m-%dT%H:00:00Z}&end={START + HOUR:%Y-%m-%dT%H:00:00Z}&zone=utc"
    page = visit(site, f"overview?{hour}")
    cells = {
        f"overview?{hour}": [("units", "robotics", "Waste"), ("units", "robotics", "Effective cost")],
        f"unit/robotics?{hour}": [
            *(("workloads", "physics", title) for title in ("Waste", "Waste per month", "Effective cost")),
            ("hardware", "A100", "Waste"),
        ],
        f"explore?{hour}&measure=waste_usd": [("explore", "robotics", title) for title in ("Waste", "Effective cost")],
        f"hour/{START:%Y-%m-%dT%H:00:00Z}?zone=utc": [
            ("lines", "physics", "Waste"),
            ("lines", "physics", "Effective cost"),
        ],
    }
    for view, unknown in cells.items():
        page.goto(f"{site.address}/#/{view}")
        settled(page)
        for table, row, title in unknown:
            cell = column(page, table, row, title)
            expect(cell).to_have_text("–")
            expect(cell.locator("span")).to_have_attribute("title", "Unknown: utilization was not measured")
            expect(page.get_by_test_id(table).locator("caption")).to_contain_text("–: utilization was not measured")
            expect(column(page, table, row, "Unmeasured cost")).to_have_text("$2.00")
    expect(column(page, "lines", "notebook", "Waste")).to_have_text("$2.00")
    page.goto(f"{site.address}/#/unit/robotics?{hour}")
    settled(page)
    for name in ("effective", "waste"):
        expect(page.get_by_test_id(name)).to_have_text("–")
        expect(page.locator(".stat", has=page.get_by_test_id(name))).to_contain_text("utilization was not measured")
    expect(page.locator(".chart .legend").last).to_contain_text("waste –")


def test_unmeasured_waste_of_a_node_is_unknown(visit: Callable[..., Page], site: Site) -> None:
    def unmeasure(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        for row in body["rows"]:
            if row["node"] == "n2":
                unmeasured = {"unmeasured_gpu_hours": 1, "unmeasured_usd": 2, "waste_usd": 0, "effective_usd": 0}
                row["holders"][0] |= {**unmeasured, "utilization": None}
                row |= {"node_pool": "second", "waste_usd": 0, "effective_usd": 0, "unmeasured_usd": 2}
        route.fulfill(response=answer, json=body)

    page = visit(site, f"overview?{PERIOD}")
    page.route("**/v1/nodes?*", unmeasure)
    page.goto(f"{site.address}/#/nodes?{PERIOD}")
    settled(page)
    expect(column(page, "pools", "second", "Waste")).to_have_text("–")
    expect(column(page, "pools", "second", "Unmeasured cost")).to_have_text(usd(Decimal(2 * (HOURS - 2))))
    expect(column(page, "pools", "pool", "Waste")).not_to_have_text("–")
    page.goto(f"{site.address}/#/hour/{UNMEASURED:%Y-%m-%dT%H:00:00Z}?zone=utc")
    settled(page)
    titles = ("Effective cost", "Waste", "Unmeasured cost")
    assert [column(page, "nodes", "n2", title).inner_text() for title in titles] == ["–", "–", "$2.00"]
