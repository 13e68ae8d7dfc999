"""A newcomer's questions, answered within a few clicks. Every answer is compared with the API's figures."""

import csv
import dataclasses
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from zipfile import ZipFile

import pytest
import simplejson
from msgspec.structs import replace
from playwright.sync_api import Browser, Locator, Page, Route, expect

from gpucost.core.amounts import CapacityCosts, Costs, Totals
from gpucost.core.hour_record import HourRecord, Line, NodeHour
from gpucost.core.hours import HOUR, floor_hour
from gpucost.features.recommendations.lifecycle import offered
from gpucost.features.recommendations.model import Recommendation, RecommendationSubject
from gpucost.features.recommendations.routes import build_response
from gpucost.runtime.json_text import dumps
from tests.browser.layout_checks import check_layouts
from tests.browser.shown import change, percent, round_usd, signed_usd, usd
from tests.browser.site import Site, deployment
from tests.browser.tabs import Tabs, settled
from tests.features.recommendations.sample_recommendations import PROPOSED, content
from tests.records import amount, line, record

SETTINGS = """
clusters: [{name: west, prometheus: {url: "http://127.0.0.1:9"}}]
pricing: {source: constant, gpu_hourly_usd: 2}
cost_labels: [team]
"""
PRICE = 2
END = floor_hour(datetime.now(UTC))
WEEK = END.replace(hour=0) - timedelta(days=6)
"""Start of the page's last 7 days, which include today."""
BEGIN = WEEK - timedelta(days=7)
"""Start of the same hours a week before, with which the page compares."""
UNMEASURED = END - 5 * HOUR
"""In this hour, no sample names the pod of chat."""
GPUS_OF_A_NODE = 4
NODES = ("n1", "n2", "n3")


def held(unit: str, workload: str, node: str, gpus: str, used: str) -> Line:
    """A pod's GPUs in one hour, and the part that it used."""
    gpu_hours, effective = Decimal(gpus), Decimal(gpus) * Decimal(used)
    return line(unit, unit, f"{workload}-0")._replace(
        workload=workload,
        node=node,
        gpu_share=Decimal(1),
        units=int(gpu_hours),
        gpu_hourly_usd=Decimal(PRICE),
        allocated_gpu_hours=amount(gpu_hours),
        effective_gpu_hours=amount(effective),
        utilization=Decimal(used),
        allocated_usd=amount(gpu_hours * PRICE),
        effective_usd=amount(effective * PRICE),
        waste_usd=amount((gpu_hours - effective) * PRICE),
        labels={"team": unit[:1]},
    )


def unmeasured(line: Line) -> Line:
    return line._replace(
        utilization=None,
        utilization_source="none",
        effective_gpu_hours=0,
        effective_usd=0,
        waste_usd=0,
        unmeasured_gpu_hours=line.allocated_gpu_hours,
        unmeasured_usd=line.allocated_usd,
    )


def records() -> Iterator[HourRecord]:
    """Both weeks. Chat grew since last week, and batch ended. Node n3 is empty."""
    for number in range((END - BEGIN) // HOUR):
        hour = BEGIN + number * HOUR
        is_new = hour >= WEEK
        chat = held("serving", "chat", "n2", "3" if is_new else "1", "0.6")
        lines = [
            held("research", "notebook", "n1", "3", "0.02"),
            held("research", "train", "n1", "1", "0.9"),
            held("serving", "rank", "n2", "1", "0.5"),
            unmeasured(chat) if hour == UNMEASURED else chat,
            *([] if is_new else [held("batch", "render", "n2", "1", "0.8")]),
        ]
        yield on_nodes(record(lines, hour=hour, cluster="west"))


def on_nodes(hour: HourRecord) -> HourRecord:
    """The record with its nodes, whose cost includes their unallocated GPUs."""
    nodes = []
    for name in NODES:
        costs = Costs.total(line.costs() for line in hour.lines if line.node == name)
        free = amount(GPUS_OF_A_NODE) - costs.allocated_gpu_hours
        capacity = CapacityCosts(
            capacity_gpu_hours=amount(GPUS_OF_A_NODE),
            unallocated_gpu_hours=free,
            unallocated_usd=PRICE * free,
            node_cost_usd=amount(PRICE * GPUS_OF_A_NODE),
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
    totals = Totals(hour.totals.costs, CapacityCosts.total(node.capacity for node in nodes))
    return replace(hour, nodes=tuple(nodes), totals=totals)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with deployment(SETTINGS, records(), end=END) as deployed:
        yield deployed


@pytest.fixture
def tabs(chromium: Browser, site: Site) -> Iterator[Tabs]:
    opened = Tabs(chromium, {site.address.removeprefix("http://")})
    yield opened
    opened.check()


@dataclass
class Newcomer:
    """Clicks through the page and counts."""

    page: Page
    clicks: int = 0

    def click(self, target: Locator) -> None:
        self.clicks += 1
        target.click()
        settled(self.page)


@pytest.fixture
def newcomer(tabs: Tabs, site: Site) -> Callable[..., Newcomer]:
    def open_view(view: str = "overview") -> Newcomer:
        page = tabs.open(f"{site.address}/#/{view}")
        settled(page)
        return Newcomer(page)

    return open_view


DAY = f"start={END - 24 * HOUR:%Y-%m-%dT%H:00:00Z}&end={END:%Y-%m-%dT%H:00:00Z}"
THIS_WEEK = f"start={WEEK:%Y-%m-%dT%H:00:00Z}&end={END:%Y-%m-%dT%H:00:00Z}"
LAST_WEEK = f"start={BEGIN:%Y-%m-%dT%H:00:00Z}&end={END - timedelta(days=7):%Y-%m-%dT%H:00:00Z}"


def grouped(site: Site, period: str, by: str, more: str = "") -> dict[str, dict[str, Any]]:
    rows = site.ask(f"costs?{period}&granularity=total&group_by={by}{more}")["rows"]
    return {row["group"][by]: row for row in rows}


def sheet_of(path: Path) -> list[list[str]]:
    """The cells of a workbook's sheet, as text, by row."""
    name = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with ZipFile(path) as file:
        assert file.testzip() is None, "the checksums match"
        for part in file.namelist():
            ElementTree.fromstring(file.read(part))
        sheet = ElementTree.fromstring(file.read("xl/worksheets/sheet1.xml"))
    return [["".join(cell.itertext()) for cell in row.iter(f"{name}c")] for row in sheet.iter(f"{name}row")]


def cells(page: Page, table: str, column: str) -> list[str]:
    """A column of a table by its title."""
    texts: list[str] = page.get_by_test_id(table).evaluate(
        """(table, column) => {
          const titles = [...table.tHead.rows[0].cells].map((cell) => cell.innerText.replace(/ [↓↑↕]$/, ""));
          const at = titles.indexOf(column);
          return [...table.tBodies[0].rows].map((row) => row.cells[at].innerText);
        }""",
        column,
    )
    return texts


def test_unit_that_wastes_most_and_why_takes_two_clicks(newcomer: Callable[..., Newcomer], site: Site) -> None:
    visitor = newcomer()
    units = grouped(site, DAY, "business_unit")
    worst = max(units, key=lambda unit: units[unit]["waste_usd"])
    workloads = grouped(site, DAY, "workload", f"&business_unit={worst}")
    workload, row = max(workloads.items(), key=lambda entry: entry[1]["waste_usd"])
    answer = visitor.page.get_by_test_id("worst")
    expect(answer).to_contain_text(f"{worst} wastes most: {round_usd(units[worst]['waste_usd'])}, ")
    used = percent(row["effective_gpu_hours"], row["allocated_gpu_hours"])
    expect(answer).to_contain_text(f"{workload} in {worst}: {round_usd(row['waste_usd'])}, at {used} utilization")
    assert visitor.clicks == 0
    visitor.click(answer.get_by_role("link", name=worst))
    assert cells(visitor.page, "workloads", "Workload")[0].split("\n")[0] == workload
    visitor.click(visitor.page.get_by_role("link", name=f"Why {workload}: {usd(row['waste_usd'])} waste?"))
    expect(visitor.page.get_by_test_id("figure-formula")).to_contain_text(f"waste {usd(row['waste_usd'])}")
    expect(visitor.page.get_by_test_id("figure-pods")).to_contain_text(f"{workload}-0")
    assert visitor.clicks == 2


def test_unit_that_wastes_most_is_named_before_the_other_figures_arrive(
    newcomer: Callable[..., Newcomer], site: Site
) -> None:
    page = newcomer("glossary").page
    waiting: list[Route] = []
    held = re.compile(r"/v1/(fleet|hours|recommendations|alerts)\b")

    def hold(route: Route) -> None:
        waiting.append(route)

    page.route(held, hold)
    page.goto(f"{site.address}/#/overview?{DAY}&zone=utc")
    expect(page.get_by_test_id("worst")).to_contain_text("wastes most: ")
    expect(page.get_by_role("status").filter(has_text="Loading")).to_have_count(1)
    expect(page.get_by_test_id("units")).to_have_count(0)
    top = page.get_by_test_id("worst").bounding_box()
    page.route(held, lambda route: route.continue_())
    for route in waiting:
        route.continue_()
    settled(page)
    assert page.get_by_test_id("worst").bounding_box() == top, "it does not move"
    page.get_by_role("combobox", name="Period").select_option("48h")
    expect(page.get_by_test_id("worst")).to_contain_text("wastes most: ")


def test_change_since_last_week_takes_two_clicks(newcomer: Callable[..., Newcomer], site: Site) -> None:
    visitor = newcomer()
    visitor.click(visitor.page.get_by_role("link", name="since last week"))
    now, before = (grouped(site, period, "business_unit") for period in (THIS_WEEK, LAST_WEEK))
    expected = {
        unit: now.get(unit, {"allocated_usd": Decimal(0)})["allocated_usd"]
        - before.get(unit, {"allocated_usd": Decimal(0)})["allocated_usd"]
        for unit in now.keys() | before.keys()
    }
    assert expected["serving"] > 0 > expected["batch"], "a unit that grew, and a unit that ended"
    by_size = sorted((unit for unit in expected if expected[unit]), key=lambda unit: -abs(expected[unit]))
    movers = visitor.page.get_by_test_id("movers").locator("li")
    rows = [f"{unit} {signed_usd(expected[unit])}" for unit in by_size]
    # The nodes cost the same in both weeks, so that less is unallocated.
    expect(movers).to_have_text([*rows, f"Idle cost {signed_usd(-sum(expected.values(), Decimal(0)))}"])
    assert visitor.clicks == 1
    visitor.click(visitor.page.get_by_role("link", name="All changes"))
    table = dict(
        zip(cells(visitor.page, "explore", "Business unit"), cells(visitor.page, "explore", "Change"), strict=True)
    )
    expected["idle cost"] = -sum(expected.values(), Decimal(0))
    assert table == {unit: signed_usd(difference) for unit, difference in expected.items()}, "also what no pod held"
    order = [abs(expected[unit]) for unit in table]
    assert order == sorted(order, reverse=True), "by the size of the change"
    expect(visitor.page.get_by_test_id("explore").locator("[aria-sort=other]")).to_have_text("Change ↕")
    expect(visitor.page.get_by_test_id("explore")).to_contain_text("Largest change first, up or down")
    total = site.ask(f"fleet?{THIS_WEEK}&granularity=total")["totals"]["node_cost_usd"]
    expect(visitor.page.get_by_test_id("explore-total")).to_have_text(usd(total))
    expect(visitor.page.locator(".legend")).to_contain_text("idle cost")
    assert visitor.clicks == 2
    visitor.page.get_by_role("application", name=re.compile("Cost with idle over time")).focus()
    visitor.page.keyboard.press("ArrowRight")
    first_day = f"start={BEGIN:%Y-%m-%dT%H:00:00Z}&end={BEGIN + timedelta(days=1):%Y-%m-%dT%H:00:00Z}"
    earlier = site.ask(f"fleet?{first_day}&granularity=total")["totals"]["node_cost_usd"]
    expect(visitor.page.get_by_test_id("readout")).to_contain_text(f"a week before {usd(earlier)}")


def test_node_to_remove_takes_a_click(newcomer: Callable[..., Newcomer], site: Site) -> None:
    visitor = newcomer()
    visitor.click(visitor.page.get_by_role("link", name="Unallocated cost: which node to remove"))
    rows = site.ask(f"nodes?{DAY}&limit=2000")["rows"]
    empty = {node: sum(row["node"] == node and row["holders"] == [] for row in rows) for node in NODES}
    first = max(empty, key=lambda node: empty[node])
    cost = sum((row["node_cost_usd"] for row in rows if row["node"] == first), Decimal(0))
    answer = visitor.page.get_by_test_id("remove-now").locator("li")
    expect(answer).to_have_count(1)
    # The link keeps the period of the cost that it is beside.
    expect(answer).to_contain_text(
        f"{first} in node pool pool saves {round_usd(cost / 24 * 730)} a month at the rate of these 24 hours: 24 hours"
    )
    assert (visitor.clicks, first, empty[first]) == (1, "n3", 24)


def test_cause_of_unmeasured_cost_takes_a_click(newcomer: Callable[..., Newcomer], site: Site) -> None:
    visitor = newcomer()
    missing = site.ask(f"fleet?{DAY}&granularity=total")["totals"]["unmeasured_usd"]
    assert visitor.page.get_by_test_id("unmeasured").inner_text() == round_usd(missing) == "$6.00"
    visitor.click(visitor.page.get_by_role("link", name=f"Why {round_usd(missing)} unmeasured cost?"))
    panel = visitor.page.get_by_test_id("figure")
    expect(panel.get_by_test_id("causes").locator(".amount")).to_have_text(usd(missing))
    cause = "3.00 GPU-hours, cluster west, node n2: Other pods are measured, but no sample"
    expect(panel.get_by_test_id("causes")).to_contain_text(cause)
    check = "Do the exporter's samples name the pod that holds each GPU? (doctor: pods of devices)"
    expect(panel.get_by_test_id("causes")).to_contain_text(f"Pods: chat-0. To check: {check}")
    assert visitor.clicks == 1
    steps = panel.locator("[data-testid=causes], [data-testid=figure-formula]")
    expect(steps.first).to_have_attribute("data-testid", "causes")


def test_pod_of_an_unmeasured_cost_answers_for_that_cost(newcomer: Callable[..., Newcomer], site: Site) -> None:
    visitor = newcomer()
    missing = site.ask(f"fleet?{DAY}&granularity=total")["totals"]["unmeasured_usd"]
    visitor.click(visitor.page.get_by_role("link", name=f"Why {round_usd(missing)} unmeasured cost?"))
    visitor.click(visitor.page.get_by_test_id("figure-pods").get_by_role("link").first)
    dialog = visitor.page.get_by_test_id("why")
    expect(dialog.get_by_role("heading").first).to_have_text(
        f"How the unmeasured cost of {usd(missing)} was calculated"
    )
    expect(dialog.get_by_test_id("why-answer")).to_have_text(
        f"Without a measurement: 3.000 GPU-hours × $2.00 = unmeasured cost {usd(missing)}"
    )


def test_hour_names_the_cause_of_its_unmeasured_cost(newcomer: Callable[..., Newcomer], site: Site) -> None:
    """From the chart: the hour is opened with one click."""
    visitor = newcomer()
    chart = visitor.page.get_by_role("application", name=re.compile("Node cost over time"))
    chart.focus()
    for key in ("End", *["ArrowLeft"] * 4, "Enter"):
        visitor.page.keyboard.press(key)
    visitor.page.wait_for_url(re.compile("#/hour/"))
    settled(visitor.page)
    hour = f"start={UNMEASURED:%Y-%m-%dT%H:00:00Z}&end={UNMEASURED + HOUR:%Y-%m-%dT%H:00:00Z}"
    (pod,) = [row for row in site.ask(f"lines?{hour}")["rows"] if row["unmeasured_usd"]]
    causes = visitor.page.get_by_test_id("causes")
    expect(causes).to_contain_text(usd(pod["unmeasured_usd"]))
    expect(causes).to_contain_text(pod["pod"])
    check_layouts(visitor.page)


def test_summary_equals_the_api(newcomer: Callable[..., Newcomer], site: Site) -> None:
    page = newcomer("overview?window=7d&zone=utc").page
    now, before = (site.ask(f"fleet?{period}&granularity=total")["totals"] for period in (THIS_WEEK, LAST_WEEK))
    worked = percent(now["effective_usd"], now["node_cost_usd"])
    difference = now["node_cost_usd"] - before["node_cost_usd"]
    shown = {name: page.get_by_test_id(name).inner_text() for name in ("cost-period", "worked", "changed", "offer")}
    assert shown == {
        "cost-period": round_usd(now["node_cost_usd"]),
        "worked": worked,
        "changed": change(difference / before["node_cost_usd"]) if difference else "unchanged",
        "offer": "not yet",
    }
    month = site.ask("fleet?window=month&granularity=total")["coverage"]
    expect(page.get_by_role("region", name="Summary")).to_contain_text(
        re.compile(rf"Complete cluster-hours of it\s+{month['hours_complete']} of {month['hours_expected']}")
    )
    expect(page.get_by_role("region", name="Summary")).to_contain_text("begin with the unit that wastes most: research")


def test_first_week_has_a_node_to_remove_in_what_to_do(newcomer: Callable[..., Newcomer], site: Site) -> None:
    """The node and the amount are those of the view of nodes."""
    page = newcomer().page
    rows = [row for row in site.ask(f"nodes?{DAY}&limit=2000")["rows"] if row["node"] == "n3"]
    assert not site.ask("recommendations")["rows"]
    assert not any(row["holders"] for row in rows)
    cost = sum((row["node_cost_usd"] for row in rows), Decimal(0))
    amount = round_usd(cost / len(rows) * 730)
    entry = page.get_by_test_id("to-remove").locator("li").first
    expect(entry).to_contain_text(f"Remove n3 in node pool pool: {len(rows)} hours without pods")
    expect(entry).to_contain_text(f"{amount} a month")
    entry.get_by_role("link").click()
    expect(page.get_by_test_id("node-removal")).to_have_text(round_usd(cost))
    expect(page.locator(".stat").last).to_contain_text(f"{amount} a month at the rate of these 24 hours")


def test_unmeasured_part_of_a_cell_has_the_color_that_unmeasured_cost_has_in_charts(
    newcomer: Callable[..., Newcomer],
) -> None:
    page = newcomer(f"overview?{DAY}&zone=utc").page
    heat = page.get_by_role("application", name=re.compile("Utilization of business units by hour"))
    serving = page.locator(".labels li").all_inner_texts().index("serving")
    column = 24 - (END - UNMEASURED) // HOUR
    painted = heat.evaluate(
        """(cells, [row, column]) => {
          const canvas = cells.querySelector("canvas"), pen = canvas.getContext("2d");
          const wide = canvas.width / 24, tall = canvas.height / cells.previousSibling.children.length;
          return [0, 0.3].map((from) => {
            const [left, top] = [(column + from) * wide + 1, row * tall + 2];
            const { data } = pen.getImageData(left, top, (from === 0 ? 0.25 : 0.7) * wide - 3, tall - 5);
            const yellow = [255, 234, 88, 255]; // that of unmeasured cost in charts, on white
            const isYellow = (pixel) => yellow.every((channel, at) => data[4 * pixel + at] === channel);
            const pixels = [...Array(data.length / 4).keys()];
            return pixels.filter(isYellow).length / pixels.length;
          });
        }""",
        [serving, column],
    )
    assert painted[0] == 0, "the measured quarter"
    assert 0.4 < painted[1] < 0.95, "lines and the space between them"
    heat.focus()
    for key in ["Home", *["ArrowDown"] * serving, *["ArrowRight"] * column]:
        page.keyboard.press(key)
    expect(page.locator(".grid .readout")).to_contain_text(
        "50% of the 1.00 measured GPU-hours used, $1.00 wasted; 3.00 GPU-hours unmeasured ($6.00)"
    )


def test_explore_compares_with_the_week_before(newcomer: Callable[..., Newcomer], site: Site) -> None:
    page = newcomer(f"explore?{THIS_WEEK}&by=workload&measure=waste_usd").page
    assert "Before" not in page.get_by_test_id("explore").inner_text()
    page.get_by_label("Compare with an earlier period").check()
    expect(page.get_by_test_id("explore")).to_contain_text("Before")
    settled(page)
    now, before = (grouped(site, period, "workload") for period in (THIS_WEEK, LAST_WEEK))
    names = cells(page, "explore", "Workload")
    assert set(names) == now.keys() | before.keys(), "also the workload that ended"
    zero = {"waste_usd": Decimal(0)}
    for name, old, difference in zip(
        names, cells(page, "explore", "Before"), cells(page, "explore", "Change"), strict=True
    ):
        then = before.get(name, zero)["waste_usd"]
        assert (old, difference) == (usd(then), signed_usd(now.get(name, zero)["waste_usd"] - then))


def test_explore_downloads_the_rows_and_order_of_its_table(
    newcomer: Callable[..., Newcomer], site: Site, tmp_path: Path
) -> None:
    page = newcomer(f"explore?{DAY}&by=workload&measure=waste_usd").page
    page.get_by_role("button", name="Exclude train").click()
    page.wait_for_url(re.compile("f.workload=%21train"))
    settled(page)
    page.get_by_test_id("explore").get_by_role("button", name="Effective cost").click()
    page.wait_for_url(re.compile("explore-sort=-effective_usd"))
    rows = grouped(site, DAY, "workload", "&workload=!train")
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download CSV").click()
    coming.value.save_as(tmp_path / "explore.csv")
    with (tmp_path / "explore.csv").open() as file:
        downloaded = list(csv.DictReader(file))
    names = [row["workload"] for row in downloaded]
    assert names == cells(page, "explore", "Workload") == sorted(rows, key=lambda name: -rows[name]["effective_usd"])
    assert [Decimal(row["waste_usd"]) for row in downloaded] == [rows[name]["waste_usd"] for name in names]


def test_explore_offers_labels_weeks_and_idle_costs(newcomer: Callable[..., Newcomer], site: Site) -> None:
    page = newcomer(f"explore?{THIS_WEEK}").page
    page.get_by_label("Group by").select_option(label="Label team")
    page.wait_for_url(re.compile("by=label%3Ateam"))
    settled(page)
    labels = grouped(site, THIS_WEEK, "label:team")
    assert set(cells(page, "explore", "Label team")) == labels.keys() == {"r", "s"}
    page.get_by_role("combobox", name="Granularity").select_option("week")
    page.wait_for_url(re.compile("grain=week"))
    settled(page)
    page.get_by_role("application", name=re.compile("over time")).focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("readout")).to_contain_text("week from")
    page.get_by_label("Measure").select_option("cost_usd")
    settled(page)
    expect(page.get_by_text("Their sums are the same without filters")).to_be_visible()
    total = site.ask(f"fleet?{THIS_WEEK}&granularity=total")["totals"]["node_cost_usd"]
    expect(page.get_by_test_id("explore-total")).to_have_text(usd(total))
    expect(page.locator(".legend")).to_contain_text(f"total {usd(total)}")
    page.get_by_role("link", name="Overview").click()
    settled(page)
    expect(page.get_by_role("combobox", name="Granularity")).to_have_value("")


def test_alerts_lead_to_their_unit_and_workload(newcomer: Callable[..., Newcomer], site: Site) -> None:
    """Firing ones by cost, then the pending ones and the events, folded. Rules take longer than this test."""
    response = site.ask(f"alerts?{DAY}")
    nothing = dict.fromkeys(("namespace", "workload_kind", "workload", "node_pool", "detail"))

    def alert(name: str, unit: str, waste: int | None) -> dict[str, Any]:
        subject = {**nothing, "cluster": "west", "business_unit": unit}
        common = {"id": name, "rule": "waste", "subject": subject, "since": f"{END - 3 * HOUR:%Y-%m-%dT%H:00:00Z}"}
        event = {
            **common,
            "event": "firing",
            "kind": "waste",
            "severity": "warning",
            "threshold": "waste > $1",
            "figures": {"waste_usd_per_hour": waste},
            "currency": "USD",
            "workloads": [],
            "note": "",
            "hour": f"{END - HOUR:%Y-%m-%dT%H:00:00Z}",
        }
        state: dict[str, object] = {"notified_at": None, "acknowledged_by": None, "silenced_by": []}
        return {
            **common,
            **state,
            "phase": "firing" if waste else "pending",
            "summary": f"{unit} wastes" if waste else None,
            "notification": event if waste else None,
        }

    active = [alert("waiting", "batch", None), alert("small", "serving", 2), alert("large", "research", 9)]
    ended = {**active[1]["notification"], "id": "ended", "event": "resolved"}
    body = simplejson.dumps({**response, "active": active, "history": [active[2]["notification"], ended]})
    page = newcomer("glossary").page
    page.route("**/v1/alerts*", lambda route: route.fulfill(body=body, content_type="application/json"))
    page.goto(f"{site.address}/#/overview?{DAY}&zone=utc")
    settled(page)
    assert cells(page, "alerts", "Waste or unallocated cost per hour") == ["$9.00", "$2.00"]
    assert cells(page, "alerts", "Severity") == ["warning", "warning"]
    assert all(since.endswith("or before") for since in cells(page, "alerts", "Since")), "no hour before is known"
    expect(page.get_by_test_id("alerts").locator("caption")).to_contain_text(
        "“or before”: the condition held in the first hour that was evaluated"
    )
    expect(page.get_by_test_id("pending")).to_be_hidden()
    page.get_by_text("1 pending: ").click()
    expect(page.get_by_test_id("pending")).to_contain_text("batch, west")
    page.get_by_text("Last 24 hours: 1 fired, 1 resolved").click()
    assert cells(page, "alert-events", "Event") == ["fired", "resolved"]
    page.get_by_test_id("alerts").get_by_role("link", name="research wastes").click()
    page.wait_for_url(re.compile("#/unit/research.*alert=large"))
    settled(page)
    marked = page.get_by_test_id("alerts").locator("[aria-current]")
    expect(marked).to_contain_text("research wastes")
    expect(marked).to_be_in_viewport()
    page.set_viewport_size({"width": 360, "height": 740})
    expect(marked).to_contain_text("warning since")
    table = page.get_by_role("region").filter(has=page.get_by_test_id("alerts")).last
    assert table.evaluate("(table) => table.scrollWidth <= table.clientWidth"), "a phone shows the whole table"
    assert cells(page, "alerts", "Waste or unallocated cost per hour") == ["$9.00"]
    check_layouts(page)


def test_explore_groups_by_two_dimensions_and_saves_the_view_by_name(
    newcomer: Callable[..., Newcomer], site: Site
) -> None:
    page = newcomer(f"explore?{DAY}").page
    page.get_by_label("and by").select_option(label="Workload")
    page.wait_for_url(re.compile("then=workload"))
    settled(page)
    rows = site.ask(f"costs?{DAY}&granularity=total&group_by=business_unit,workload")["rows"]
    expected = {tuple(row["group"].values()): usd(row["allocated_usd"]) for row in rows}
    titles = ("Business unit", "Workload", "Allocated cost")
    shown = list(zip(*(cells(page, "explore", title) for title in titles), strict=True))
    assert {(unit, workload): cost for unit, workload, cost in shown} == expected
    expect(page.get_by_role("region", name="Allocated cost by business unit × workload")).to_contain_text(
        f"in {len(expected)} rows."
    )
    legend = page.locator(".chart .legend li:has(rect)").all_inner_texts()
    assert dict(text.rsplit(" ", 1) for text in legend) == {" · ".join(names): cost for names, cost in expected.items()}
    saved = page.get_by_role("group", name="Saved views")
    saved.get_by_text("Save this view").click()
    saved.get_by_label("Name of the view").fill("<b>units</b> & workloads")
    saved.get_by_role("button", name="Save").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Explore: <b>units</b> & workloads")
    address = page.url
    page.goto(f"{site.address}/#/explore")
    page.reload()
    settled(page)
    saved.get_by_role("link", name="<b>units</b> & workloads").click()
    settled(page)
    assert page.url == address, "the address has the view and its name"
    page.evaluate("localStorage.setItem('gpucost.explore.views', '[{\"name\": 1}]')")
    page.reload()
    settled(page)
    expect(saved).to_contain_text("The views that this browser saved cannot be read, so they are ignored.")
    expect(saved.get_by_role("link")).to_have_count(0)


def test_explore_shows_the_cost_of_nodes_and_what_is_unallocated(
    newcomer: Callable[..., Newcomer], site: Site, tmp_path: Path
) -> None:
    page = newcomer(f"explore?{DAY}&by=node&measure=unallocated_usd").page
    nodes = site.ask(f"nodes?{DAY}&limit=2000")["rows"]
    free = {name: sum(row["unallocated_usd"] for row in nodes if row["node"] == name) for name in NODES}
    shown = dict(zip(cells(page, "explore", "Node"), cells(page, "explore", "Unallocated cost"), strict=True))
    assert shown == {name: usd(amount) for name, amount in free.items()}
    totals = site.ask(f"fleet?{DAY}&granularity=total")["totals"]
    expect(page.get_by_test_id("explore-total")).to_have_text(usd(totals["unallocated_usd"]))
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download for Excel").click()
    coming.value.save_as(tmp_path / "nodes.xlsx")
    titles, *rows = sheet_of(tmp_path / "nodes.xlsx")
    column = titles.index("Unallocated cost (USD)")
    assert {row[0]: Decimal(row[column]) for row in rows} == free
    assert [row[0] for row in rows] == cells(page, "explore", "Node"), "in the order of the table"
    page.get_by_label("Group by").select_option(label="Cluster")
    page.get_by_label("Measure").select_option(label="Node cost")
    page.get_by_role("combobox", name="Period").select_option("30d")
    page.wait_for_url(re.compile("window=30d"))
    settled(page)
    month = site.ask("fleet?window=30d&granularity=total")["totals"]
    expect(page.get_by_test_id("explore-total")).to_have_text(usd(month["node_cost_usd"]))
    assert cells(page, "explore", "Cluster") == ["west"]
    page.get_by_label("Group by").select_option(label="Business unit")
    expect(page.locator("main")).to_contain_text("The node cost is that of nodes, which have no other dimensions")


def test_unusual_spending_and_prices_are_marks_on_the_cost_chart(newcomer: Callable[..., Newcomer]) -> None:
    """The API's answers are those of an alert and of a price; this site has none."""
    page = newcomer("overview?window=24h&zone=utc").page
    at = f"{END - 6 * HOUR:%Y-%m-%dT%H:00:00Z}"
    event = {
        "id": "a1",
        "event": "firing",
        "kind": "spend-change",
        "rule": "spend-change",
        "severity": "warning",
        "subject": {"business_unit": "serving", "cluster": None},
        "since": at,
        "hour": at,
        "threshold": "30%",
        "figures": {"today_usd": 900, "usual_usd": 300, "change_percent": 200},
        "currency": "USD",
        "note": "",
    }
    price = {
        "id": "p",
        "source": "override",
        "applies_to": {"instance_type": "g5"},
        "unit": "node-hour",
        "amount": 2,
        "currency": "USD",
        "from": at,
        "to": None,
        "fetched_at": None,
        "author": "ana",
        "reason": "a credit",
    }

    def add(rows: str, row: dict[str, Any]) -> Callable[[Route], None]:
        def fulfill(route: Route) -> None:
            is_empty = "source=on-demand" in route.request.url
            body = {**route.fetch().json(), rows: [] if is_empty else [row]}
            route.fulfill(body=simplejson.dumps(body), content_type="application/json")

        return fulfill

    page.route("**/v1/alerts*", add("history", event))
    page.route("**/v1/prices*", add("rows", price))
    page.reload()
    settled(page)
    page.get_by_text("2 events on the chart").click()
    when = f"{END - 6 * HOUR:%a} {(END - 6 * HOUR).day} {END - 6 * HOUR:%b, %H:%M} UTC"
    texts = [
        "serving spent $900.00 that day instead of the usual $300.00 (+200%)",
        "price of g5: $2.00 a node-hour, a credit",
    ]
    shown = page.get_by_test_id("marks").locator("li")
    expect(shown).to_have_text([f"{when}: {text}" for text in texts])
    chart = page.get_by_role("application", name=re.compile("cost over time"))
    expect(page.locator(".chart .legend").first).to_contain_text("2 events")
    chart.focus()
    page.keyboard.press("End")
    for _ in range(5):
        page.keyboard.press("ArrowLeft")
    for text in texts:
        expect(page.get_by_test_id("readout").first).to_contain_text(f"▲ {text}")
    shown.first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Business unit serving")
    settled(page)  # the replaced answers must be complete before the tab is closed


def test_parameters_that_the_page_does_not_have_are_named(newcomer: Callable[..., Newcomer], site: Site) -> None:
    page = newcomer("explore?by=model&measure=profit&window=5y").page
    expect(page.get_by_test_id("ignored")).to_have_text(
        "Ignored in the address: window=5y (not a period, so the period is: Last 24 hours); "
        "by=model (not a dimension of costs, so they are grouped by business unit); "
        "measure=profit (not a measure, so allocated cost is shown). Costs by model: Models."
    )
    assert set(cells(page, "explore", "Business unit")) == {"research", "serving"}
    for label, shown in {"Group by": "business_unit", "Measure": "allocated_usd", "Period": "24h"}.items():
        expect(page.get_by_role("combobox", name=label)).to_have_value(shown)
    days = newcomer("overview?window=6d").page
    expect(days.get_by_role("combobox", name="Period").locator("option:checked")).to_have_text(
        "6 days, incl. today (UTC)"
    )
    expect(days.get_by_test_id("ignored")).to_have_count(0)


def test_data_health_without_allocated_gpus_does_not_say_that_all_is_measured(
    newcomer: Callable[..., Newcomer],
) -> None:
    page = newcomer("health?start=2020-01-01T00:00:00Z&end=2020-01-02T00:00:00Z").page
    for section in ("Unmeasured GPU-hours", "GPU-hours without a price"):
        expect(page.get_by_role("region", name=section)).to_contain_text(
            "No GPU-hour of this period is known to be allocated, so nothing is known to be missing."
        )
    expect(page.locator("main")).not_to_contain_text("Every allocated GPU-hour has")


def test_explore_says_that_no_energy_was_measured(newcomer: Callable[..., Newcomer], site: Site) -> None:
    assert site.ask(f"fleet?{DAY}&granularity=total")["totals"]["energy_kwh"] is None
    page = newcomer(f"explore?{DAY}&measure=energy_kwh").page
    expect(page.locator("main .empty")).to_contain_text("No energy was measured in this period.")
    expect(page.locator("main .empty")).to_contain_text("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION")
    expect(page.locator(".legend")).to_have_count(0)


def test_explore_prints_its_filters(newcomer: Callable[..., Newcomer]) -> None:
    page = newcomer(f"explore?{DAY}&by=workload&f.business_unit=research").page
    page.emulate_media(media="print")
    expect(page.get_by_role("group", name="Filters")).to_contain_text("Business unit is research")
    expect(page.get_by_role("button", name="Remove the filter Business unit research")).to_be_hidden()


def test_saving_has_the_same_amount_in_every_view(newcomer: Callable[..., Newcomer], site: Site) -> None:
    """A pool has a saving on offer, and an alternative with another amount."""
    pool = next(row["node_pool"] for row in site.ask(f"nodes?{DAY}&limit=2000")["rows"] if row["node"] == "n3")
    about = RecommendationSubject("west", node_pool=pool, instance_type="p5.48xlarge")
    saving, cost = Decimal("11174.40"), Decimal("-32058.10")
    changes = (("consolidate", saving, None), ("pending", cost, Decimal("4160.20")))
    contents = [
        dataclasses.replace(
            content(kind),
            subject=about,
            title=f"Change {pool} by {kind}",
            saving=dataclasses.replace(PROPOSED.saving, usd=usd),
            worth_usd=worth,
        )
        for kind, usd, worth in changes
    ]
    rows = offered(Recommendation(each, "open", BEGIN, BEGIN, BEGIN) for each in contents)
    response = dumps(build_response(rows, [], lambda _: True))
    page = newcomer().page
    page.route(
        re.compile(r"/v1/recommendations\b"),
        lambda route: route.fulfill(body=response, content_type="application/json"),
    )
    page.reload()
    shown = round_usd(saving)
    expect(page.get_by_test_id("offer")).to_have_text(shown)
    expect(page.get_by_test_id("best").locator("li")).to_contain_text(f"{shown} a month")
    page.goto(f"{site.address}/#/savings")
    expect(page.get_by_test_id("on-offer")).to_have_text(shown)
    expect(page.get_by_test_id("savings").first).to_contain_text(shown)
    expect(page.get_by_test_id("savings").last).to_contain_text(f"instead of: {contents[0].title}")
    page.goto(f"{site.address}/#/nodes?{DAY}")
    entry = page.get_by_test_id("remove-now").locator("li").first
    expect(entry).to_contain_text(f"{shown} a month")
    planned, _, alternative = entry.inner_text().partition("Alternative (instead of: Change pool by consolidate): ")
    assert re.findall(r"\$[\d,.]+\d", planned) == [shown], "no other amount for the same pool"
    assert alternative.startswith(f"Change pool by pending: costs {round_usd(-cost)} a month, from ")
    page.goto(f"{site.address}/#/nodes?node=n3&{DAY}")
    expect(page.get_by_test_id("removal-recommendation").first).to_contain_text(f"{shown} a month")
