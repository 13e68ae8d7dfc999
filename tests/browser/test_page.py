"""Every view of the page on the demo's data, compared with the API."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus, unquote

import pytest
import requests
from playwright.sync_api import Browser, Locator, Page, Route, expect

from gpucost.core.hours import parse_timestamp
from gpucost_cli.signing_proxy import serve_proxy
from gpucost_devstack.fleet.demo import CLUSTERS
from tests.browser.first_answers import serving_first_answers
from tests.browser.layout_checks import check_layouts
from tests.browser.shown import AMOUNTS, change, exact_usd, percent, round_usd, rounded, usd
from tests.browser.tabs import Tabs, settled, violations
from tests.system.running_demo import Demo

NODE = "ip-10-0-12-4.ec2.internal"
"""Three of its four GPUs are held."""
DATA_COLOURS = {(79, 191, 161), (210, 120, 81), (186, 194, 253)}
"""70% of the colors of effective cost, waste and unallocated cost, on white."""
CENT = Decimal("0.01")

WATCH_DIALOGS = """
() => { window.dialogs = []; new MutationObserver(() => {
  const dialog = document.querySelector("dialog");
  if (dialog && window.dialogs.length === 0) window.dialogs.push(dialog.open);
}).observe(document.body, { childList: true, subtree: true }); }
"""


@pytest.fixture(scope="module")
def demo(demo: Demo) -> Iterator[Demo]:
    """The demo, whose repeated requests get the first answer."""
    with serving_first_answers(demo.url) as url:
        yield replace(demo, url=url)


@pytest.fixture
def tabs(chromium: Browser, demo: Demo) -> Iterator[Tabs]:
    opened = Tabs(chromium, {demo.url.removeprefix("http://")})
    yield opened
    opened.check()


@pytest.fixture
def visit(tabs: Tabs, demo: Demo) -> Callable[..., Page]:
    """Open a view and wait for it. The period is fixed, because an hour may end meanwhile."""

    def open_view(view: str, **options: Any) -> Page:
        path, _, query = view.partition("?")
        page = tabs.open(f"{demo.url}/#/{path}?{day(demo)}&zone=utc&{query}", **options)
        settled(page)
        return page

    return open_view


def day(demo: Demo, begins: int = 24, ends: int = 0) -> str:
    """A period, given in hours before the demo's end."""
    start, end = (demo.end - timedelta(hours=hours) for hours in (begins, ends))
    return f"start={start:%Y-%m-%dT%H:00:00Z}&end={end:%Y-%m-%dT%H:00:00Z}"


def short(node: str) -> str:
    return node.removesuffix(".ec2.internal")


def cells(page: Page, table: str) -> list[dict[str, str]]:
    """A table's rows, with cells by column title."""
    rows: list[dict[str, str]] = page.get_by_test_id(table).evaluate(
        """(table) => {
          const titles = [...table.tHead.rows[0].cells].map((cell) => cell.innerText.replace(/ [↓↑↕]$/, ""));
          return [...table.tBodies[0].rows].map((row) =>
            Object.fromEntries([...row.cells].map((cell, at) => [titles[at], cell.innerText])));
        }"""
    )
    return rows


def period_of(page: Page) -> Locator:
    """The list of periods; a table's name may also contain the word."""
    return page.get_by_role("combobox", name=re.compile("^Period"))


def test_overview_matches_api(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("overview")
    fleet = demo.ask(f"/v1/fleet?{day(demo)}")
    totals = fleet["totals"]
    measured = totals["allocated_gpu_hours"] - totals["unmeasured_gpu_hours"]
    shown = {
        name: page.get_by_test_id(name).inner_text() for name in ("cost-period", "waste", "utilization", "coverage")
    }
    assert shown == {
        "cost-period": round_usd(totals["node_cost_usd"]),
        "waste": round_usd(totals["waste_usd"]),
        "utilization": percent(totals["effective_gpu_hours"], measured),
        "coverage": percent(measured, totals["allocated_gpu_hours"]),
    }
    hours = fleet["coverage"]
    expect(page.get_by_role("region", name="Summary")).to_contain_text(
        f"Complete cluster-hours {hours['hours_complete']} of {hours['hours_expected']}"
    )
    units = demo.ask(f"/v1/business-units?{day(demo)}")["rows"]
    expected = sorted((row for row in units if row["allocated_usd"]), key=lambda row: -row["waste_usd"])
    assert [
        (row["Business unit"], row["Waste"], row["Allocated cost"], row["Effective cost"])
        for row in cells(page, "units")
    ] == [
        (row["business_unit"], *(usd(row[name]) for name in ("waste_usd", "allocated_usd", "effective_usd")))
        if row["unmeasured_gpu_hours"] < row["allocated_gpu_hours"]
        else (row["business_unit"], "–", usd(row["allocated_usd"]), "–")
        for row in expected
    ]
    before = {  # the demo's history begins after the same hours of the week before
        row["business_unit"]: row["waste_usd"] for row in demo.ask(f"/v1/business-units?{day(demo, 48, 24)}")["rows"]
    }
    hours_before = demo.ask(f"/v1/fleet?{day(demo, 48, 24)}")["coverage"]
    assert hours_before["hours_expected"] == hours["hours_expected"]
    for shown, row in zip(cells(page, "units"), expected, strict=True):
        # The demo has an outage: the earlier figure is that of as many hours as have figures now.
        old = before[row["business_unit"]] * hours["hours_complete"] / hours_before["hours_complete"]
        is_measured = row["unmeasured_gpu_hours"] <= row["allocated_gpu_hours"] * Decimal("0.9")
        waste_change = change((row["waste_usd"] - old) / old) if old and is_measured else "–"
        assert shown["Waste change"] == waste_change, row["business_unit"]
    page.get_by_text("Show as table").click()
    rows = cells(page, "cost-over-time")
    assert [(row["Effective cost"], row["Waste"], row["Unallocated cost"], row["Node cost"]) for row in rows] == [
        tuple(usd(row[name]) for name in ("effective_usd", "waste_usd", "unallocated_usd", "node_cost_usd"))
        for row in fleet["rows"]
    ]
    legend = page.get_by_role("region", name="Node cost over time").locator(".legend")
    for part in ("effective_usd", "waste_usd", "unallocated_usd"):
        expect(legend).to_contain_text(f"{AMOUNTS[part]} {usd(totals[part])}")
    expect(legend).to_contain_text(f"node cost {usd(totals['node_cost_usd'])}")
    alerts = demo.ask(f"/v1/alerts?{day(demo)}")["active"]
    pending = [parse_timestamp(alert["since"]) for alert in alerts if alert["phase"] == "pending"]
    if pending:
        page.get_by_text(f"{len(pending)} pending: ").click()
        newest_first = [f"{at:%a} {at.day} {at:%b, %H:%M} UTC" for at in sorted(pending, reverse=True)]
        assert [row["Since"] for row in cells(page, "pending")] == newest_first
    shown_alerts = cells(page, "alerts")
    assert len(shown_alerts) == len(alerts) - len(pending) > 0
    for alert in alerts:
        if (notification := alert["notification"]) is not None:
            texts = (alert["summary"], notification["threshold"])
            severities = [row["Severity"] for row in shown_alerts if all(text in row["Alert"] for text in texts)]
            assert severities == [notification["severity"]]
    month = demo.ask("/v1/fleet?window=month&granularity=total")["totals"]["node_cost_usd"]
    assert page.get_by_test_id("cost-month").inner_text() == round_usd(month)


def test_chart_is_usable_by_keyboard(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("overview")
    rows = demo.ask(f"/v1/fleet?{day(demo)}")["rows"]
    chart = page.get_by_role("application", name=re.compile("Node cost over time"))
    chart.focus()
    readout = page.get_by_test_id("readout")
    for key, row in (("ArrowRight", rows[0]), ("ArrowRight", rows[1]), ("End", rows[-1]), ("ArrowLeft", rows[-2])):
        page.keyboard.press(key)
        for part in ("effective_usd", "waste_usd", "unallocated_usd"):
            expect(readout).to_contain_text(f"{AMOUNTS[part]} {usd(row[part])}")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("#/hour/"))
    assert f"#/hour/{rows[-2]['start']}" in unquote(page.url)


def test_heat_map_is_usable_by_keyboard_and_pointer(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("overview")
    heat = page.get_by_role("application", name=re.compile("Utilization of business units"))
    heat.focus()
    worst = cells(page, "units")[0]["Business unit"]
    first = demo.ask(f"/v1/costs?{day(demo)}&business_unit={worst}")["rows"][0]
    page.keyboard.press("ArrowRight")
    readout = page.locator(".grid .readout").first
    used = percent(first["effective_gpu_hours"], first["allocated_gpu_hours"])
    expect(readout).to_contain_text(f"{worst} ")
    expect(readout).to_contain_text(f"{used} of ")
    heat.click(position={"x": 3, "y": 3})
    page.wait_for_url(re.compile(f"#/hour/.*unit={worst}"))


def test_drill_down_from_business_unit_to_explanation(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("unit/vision-research")
    answer = demo.ask(f"/v1/business-units/vision-research?{day(demo)}&granularity=total")["totals"]
    for name in ("allocated", "effective", "waste"):
        assert page.get_by_test_id(name).inner_text() == round_usd(answer[f"{name}_usd"])
    workloads = demo.ask(f"/v1/business-units/vision-research/workloads?{day(demo)}")["rows"]
    assert [
        (row["Workload"].split("\n")[0], row["Allocated cost"], row["Waste"].split(" ")[0])
        for row in cells(page, "workloads")
    ] == [
        (row["workload"], usd(row["allocated_usd"]), usd(row["waste_usd"]))
        for row in sorted(workloads, key=lambda row: -row["waste_usd"])
    ]
    assert [row["Waste per month"] for row in cells(page, "workloads")] == [
        round_usd(row["waste_usd"] / 24 * 730) for row in sorted(workloads, key=lambda row: -row["waste_usd"])
    ]
    findings = demo.ask("/v1/recommendations?business_unit=vision-research")["findings"]
    reasons = {finding["subject"]["workload"]: finding["reason"] for finding in findings}
    assert all("a recommendation needs 168" in reason for reason in reasons.values())
    shown = [(row["Recommendation"], reasons[row["Workload"].split("\n")[0]]) for row in cells(page, "workloads")]
    if len({reason for _, reason in shown}) > 1:
        assert all(text == f"Too little is known: {reason}" for text, reason in shown)
    else:  # a reason that all workloads share is shown once
        assert {text for text, _ in shown} == {"–"}
        expect(page.get_by_test_id("common-finding")).to_contain_text(f"Too little is known: {shown[0][1]}.")
    unit_path = f"/v1/costs?{day(demo)}&business_unit=vision-research"
    page.get_by_role("application", name=re.compile("Allocated cost of this business unit over time")).focus()
    for row in demo.ask(unit_path)["rows"][:3]:
        page.keyboard.press("ArrowRight")
        for part in ("effective_usd", "waste_usd"):
            expect(page.get_by_test_id("readout")).to_contain_text(f"{AMOUNTS[part]} {usd(row[part])}")
    hardware = demo.ask(
        f"{unit_path}&granularity=total&group_by=gpu_model,node_pool,capacity_type&sort=-allocated_usd"
    )["rows"]
    assert [(row["GPU model"], row["Node pool"], row["Allocated cost"]) for row in cells(page, "hardware")] == [
        (row["group"]["gpu_model"], row["group"]["node_pool"], usd(row["allocated_usd"])) for row in hardware
    ]
    assert page.get_by_test_id("month-spent").inner_text() == round_usd(
        demo.ask("/v1/forecasts?business_unit=vision-research")["spent_usd"]
    )
    workload = next(row for row in workloads if row["workload"] == "segmentation")
    page.get_by_test_id("workloads").get_by_role("link", name=usd(workload["allocated_usd"])).click()
    page.wait_for_url(re.compile("#/hour/.*hours=24"))
    settled(page)
    lines = demo.ask(f"/v1/lines?{day(demo)}&business_unit=vision-research&workload=segmentation")["rows"]
    pods = {line["pod"]: [other for other in lines if other["pod"] == line["pod"]] for line in lines}
    rows = cells(page, "lines")
    assert len(rows) == len(pods) < len(lines)
    assert sum(line["allocated_usd"] for line in lines) == workload["allocated_usd"], "the lines of the clicked cell"
    sums = [usd(sum(line["allocated_usd"] for line in hours)) for hours in pods.values()]
    assert sorted(row["Allocated cost"] for row in rows) == sorted(sums)
    for name in ("allocated", "waste"):
        assert page.get_by_test_id(f"{name}_usd").inner_text() == round_usd(workload[f"{name}_usd"]), (
            "the workload's summary"
        )
    notes = page.get_by_test_id("notes").locator("li").all_inner_texts()
    assert len(notes) == len(set(notes)) < 10, "equal notes are one"
    pod = max(pods, key=lambda name: len(pods[name]))
    page.get_by_test_id("lines").locator("tr", has_text=pod).get_by_role("button").click()
    expect(page.get_by_test_id("lines").locator("tbody tr")).to_have_count(len(pods) + len(pods[pod]))


def test_amount_is_explained(visit: Callable[..., Page], demo: Demo) -> None:
    hour = demo.end - timedelta(hours=2)
    if (hour.weekday(), hour.hour) == (0, 0):  # notebooks are replaced
        hour -= timedelta(hours=1)
    page = visit(f"hour/{hour:%Y-%m-%dT%H:00:00Z}")
    at = f"start={hour:%Y-%m-%dT%H:00:00Z}&end={hour + timedelta(hours=1):%Y-%m-%dT%H:00:00Z}"
    lines = demo.ask(f"/v1/lines?{at}")["rows"]
    page.get_by_role("button", name=f"Show all {len(lines)}").click()
    assert len(lines) > 25
    expect(page.get_by_test_id("lines").locator("tbody tr")).to_have_count(len(lines))
    line = next(line for line in lines if line["pod"] == "notebook-dmitri-0")
    row = page.get_by_test_id("lines").locator("tr", has_text=line["pod"])
    assert row.get_by_role("link", name="how calculated").first.inner_text() == "$0.96"
    page.evaluate(WATCH_DIALOGS)
    row.get_by_role("link", name="how calculated").first.click()
    explanation = page.get_by_test_id("why")
    # The GPU bears 95% of the list price of g5.xlarge, $1.006, and the scenario uses 0.3% of it.
    for text in (
        "How the allocated cost of $0.9557 was calculated",
        "1 × nvidia.com/gpu, each 1.000 of a physical GPU (source: capacity)",
        "for 1.000 h",
        "$0.9557 per GPU-hour, source list-price, split policy datadog",
        "0.3% on average, from the pod's own GPUs (source: pod)",
        line["pod"],
        "$0.002867",
    ):
        expect(explanation).to_contain_text(text)
    assert page.evaluate("window.dialogs") == [True], "the dialog is open before a key is pressed"
    assert "line=" in page.url
    page.reload()
    expect(explanation).to_contain_text("How the allocated cost of $0.9557 was calculated")
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile("line="))
    expect(explanation).to_have_count(0)


def test_every_node_is_a_strip_with_its_pods(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("nodes")
    answer = demo.ask(f"/v1/nodes?{day(demo)}&limit=1000")["rows"]
    newest = max(row["hour"] for row in answer)
    present = {row["node"] for row in answer if row["hour"] == newest}
    ended = {row["node"] for row in answer} - present
    assert page.get_by_test_id("strip").filter(visible=True).count() == min(24, len(present))
    if ended:
        noun = "node" if len(ended) == 1 else "nodes"
        page.get_by_text(f"{len(ended)} {noun} ended in this period").click()
        expect(page.get_by_test_id("strip").filter(visible=True)).to_have_count(
            min(24, len(present)) + min(24, len(ended))
        )
    pools = {row["Node pool"]: row for row in cells(page, "pools")}
    for pool in {row["node_pool"] for row in answer}:
        pool_rows = [row for row in answer if row["node_pool"] == pool]
        assert pools[pool]["Node cost"] == usd(sum((row["node_cost_usd"] for row in pool_rows), Decimal(0)))
        assert int(pools[pool]["Nodes"]) == len({row["node"] for row in pool_rows})
        held = sum((pod["allocated_gpu_hours"] for row in pool_rows for pod in row["holders"]), Decimal(0))
        capacity = sum((row["capacity_gpu_hours"] for row in pool_rows), Decimal(0))
        assert pools[pool]["Allocated GPU-hours"] == rounded(held, 2)
        assert pools[pool]["Capacity GPU-hours"] == rounded(capacity, 2)
    colors = (
        page.get_by_test_id("strip")
        .first.locator("canvas")
        .evaluate(
            """(canvas) => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          return [...Array(data.length / 4).keys()].map((at) => [...data.slice(4 * at, 4 * at + 3)].join());
        }"""
        )
    )
    assert "186,194,253" in colors, "unallocated GPUs, in the color of unallocated cost in charts"
    page.get_by_test_id("pools").get_by_role("link", name="a10g-serving").click()
    page.wait_for_url(re.compile("pool=a10g-serving"))
    expect(page.get_by_test_id("strip")).to_have_count(2)
    strip = page.get_by_test_id("strip").filter(has_text=NODE)
    strip.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    readout = strip.locator(".readout")
    first = min(row["hour"] for row in answer)
    (pods,) = (row["holders"] for row in answer if (row["node"], row["hour"]) == (NODE, first))
    assert len(pods) >= 3
    shown = [
        f"{pod['pod']} in {pod['namespace']} ({pod['business_unit']}): 1 × nvidia.com/gpu, "
        f"{percent(pod['utilization'])} utilization, allocated cost {usd(pod['allocated_usd'])}, "
        f"waste {usd(pod['waste_usd'])}"
        for pod in pods
    ]
    expect(readout).to_contain_text(re.compile("|".join(map(re.escape, shown))))
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    last = "unallocated" if len(pods) == 3 else "|".join(map(re.escape, shown))
    expect(readout).to_contain_text(re.compile(last))
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(f"#/hour/.*node={NODE}"))


def test_missing_figures_are_hatched_and_not_zero(tabs: Tabs, demo: Demo) -> None:
    """The demo's hours begin in the middle of this period."""
    hours = 2 * demo.duration
    page = tabs.open(f"{demo.url}/#/overview?{day(demo, hours)}&zone=utc")
    settled(page)
    coverage = demo.ask(f"/v1/fleet?{day(demo, hours)}")["coverage"]
    complete = coverage["hours_complete"] / coverage["hours_expected"]
    assert Decimal("0.49") < complete <= Decimal("0.5"), "an outage may be in these days, but not more"
    assert page.get_by_test_id("coverage").inner_text() == percent(complete)
    assert {row["Waste change"] for row in cells(page, "units")} == {"–"}, "an incomplete period is not compared"
    chart = page.get_by_role("application", name=re.compile("Node cost over time"))
    chart.focus()
    page.keyboard.press("Home")
    expect(page.get_by_test_id("readout")).to_contain_text("no data: missing or incomplete")
    seen = chart.locator("canvas").evaluate(
        """(canvas) => {
          const pen = canvas.getContext("2d");
          const of = (left) => [...pen.getImageData(left * canvas.width, canvas.height * 0.3, 60, 60).data];
          return [of(0.25), of(0.75)];
        }"""
    )
    gap, data = ({tuple(part[at : at + 3]) for at in range(0, len(part), 4) if part[at + 3] == 255} for part in seen)
    painted = [sum(part[at + 3] > 0 for at in range(0, len(part), 4)) / 3600 for part in seen]
    assert data & DATA_COLOURS
    assert not gap & DATA_COLOURS
    assert 0.05 < painted[0] < 0.6, "lines and the space between them"
    begin = demo.end - timedelta(hours=hours)
    period = f"{begin:%a} {begin.day} {begin:%b}, {begin:%H}:00 UTC to {demo.hours[0]:%a} {demo.hours[0].day}"
    expect(page.get_by_test_id("gaps").locator("li").filter(has_text="missing")).to_have_text(
        [re.compile(f"^{cluster}: {period} .* UTC, {demo.duration} hours missing$") for cluster in sorted(CLUSTERS)]
    )
    page.get_by_text("Show as table").click()
    rows = cells(page, "cost-over-time")
    assert len(rows) == 50
    assert {(row["Waste"], row["Coverage"]) for row in rows[: demo.duration]} == {("–", "0%")}
    for folded in page.get_by_test_id("folded-gaps").locator("summary").all():  # Wednesday's outage is a fourth gap
        folded.click()
    page.get_by_test_id("gaps").get_by_role("link").first.click()
    expect(page.locator("main")).to_contain_text("No data: the hour is missing or incomplete.")


def test_url_contains_the_whole_state(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("overview")
    period_of(page).select_option("48h")
    page.wait_for_url(re.compile("window=48h"))
    expect(page.get_by_test_id("coverage").locator("..")).to_contain_text(
        re.compile(r"Complete cluster-hours\s+14[0-4] of 144")
    )
    page.get_by_label("Time zone").select_option("local")
    page.wait_for_url(re.compile("zone=local"))
    expect(page.locator("main")).to_contain_text(re.compile(r"\d\d:00 (GMT-[45]|E[SD]T)"))
    page.get_by_role("combobox", name="Cluster").select_option("prod-us-east-1")
    page.get_by_role("combobox", name="Granularity").select_option("day")
    page.wait_for_url(re.compile("cluster=prod-us-east-1.*grain=day"))
    page.get_by_role("button", name="GPU-hours").click()
    page.wait_for_url(re.compile("units-sort=-allocated_gpu_hours"))
    settled(page)
    hours = [Decimal(row["GPU-hours"].replace(",", "")) for row in cells(page, "units")]
    assert hours == sorted(hours, reverse=True)
    before = page.locator("main").inner_text()
    page.reload()
    settled(page)
    expect(page.locator("main")).to_have_text(re.compile("Overview"))
    assert page.locator("main").inner_text() == before
    page.go_back()
    expect(page).not_to_have_url(re.compile("units-sort"))


@pytest.mark.parametrize(
    "view",
    [
        "overview",
        "explore",
        "explore?by=workload&f.business_unit=assistant&trail=business_unit&compare=1",
        "unit/data-science",
        "nodes",
        "nodes?pool=a10g-serving&node=ip-10-0-12-4.ec2.internal",
        "hour",
        "savings",
        "health",
        "splits",
    ],
)
def test_every_view_works_on_all_screens(visit: Callable[..., Page], view: str) -> None:
    check_layouts(visit(view))


def test_sum_is_explained_down_to_samples(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("unit/data-science")
    totals = demo.ask(f"/v1/business-units/data-science?{day(demo)}&granularity=total")["totals"]
    page.evaluate(WATCH_DIALOGS)
    page.get_by_role("link", name=f"Why {round_usd(totals['waste_usd'])} waste?").click()
    panel = page.get_by_test_id("figure")
    expect(panel.get_by_test_id("figure-total")).to_have_text(exact_usd(totals["waste_usd"]))
    assert page.evaluate("window.dialogs") == [True], "the dialog is open before a key is pressed"
    formula = panel.get_by_test_id("figure-formula").inner_text()
    terms = [Decimal(amount.replace(",", "")) for amount in re.findall(r"\$([\d,.]+)", formula)]
    exact = [totals[f"{name}_usd"] for name in ("allocated", "effective", "unmeasured", "waste")]
    assert exact[0] - exact[1] - exact[2] == exact[3]
    assert terms == [round(amount, 6) for amount in exact], "each is rounded by itself"
    hours = demo.ask(f"/v1/costs?{day(demo)}&business_unit=data-science")["rows"]
    shown = [
        Decimal(amount.replace(",", ""))
        for amount in re.findall(r"\$([\d,.]+)", panel.get_by_test_id("figure-periods").inner_text())
    ]
    assert shown[:8] == sorted((row["waste_usd"].quantize(CENT, ROUND_HALF_UP) for row in hours), reverse=True)[:8]
    assert abs(sum(shown) - totals["waste_usd"]) < Decimal("0.1"), "the hours and the others add up to the sum"
    panel.get_by_test_id("figure-periods").get_by_role("link").nth(2).click()
    page.wait_for_url(re.compile("why-at="))
    settled(page)
    at = unquote(page.url.split("why-at=")[1].split("&")[0])
    lines = demo.ask(f"/v1/lines?start={at}&end={day_after(at)}&business_unit=data-science")["rows"]
    rows = cells(page, "figure-pods")
    wasted = sorted((line["waste_usd"] for line in lines if line["waste_usd"]), reverse=True)
    assert [row["Waste"] for row in rows] == [usd(amount) for amount in wasted[:8]]
    notebooks = [line for line in lines if line["node_pool"] == "notebooks"]
    held = rounded(sum(line["allocated_gpu_hours"] for line in notebooks), 3)
    expect(panel.get_by_test_id("figure-prices")).to_contain_text(
        "$0.9557 per GPU-hour, source list-price, split policy datadog (the GPUs bear 95% of the node's price): "
        f"{len(notebooks)} pods, {held} GPU-hours"
    )
    panel.get_by_role("button", name="What does split policy mean?").first.click()
    expect(panel.get_by_test_id("help").filter(visible=True)).to_contain_text("datadog: 95%, as Datadog's")
    page.keyboard.press("Escape")
    expect(panel).to_contain_text("version 1, settings version 1")
    panel.get_by_test_id("figure-pods").get_by_role("link").first.click()
    explanation = page.get_by_test_id("why")
    expect(explanation).to_contain_text('kube_pod_container_resource_requests{namespace="notebooks", pod="notebook-')
    expect(explanation).to_contain_text("Figures: version 1 of the hour (complete)")


def day_after(hour: str) -> str:
    return f"{datetime.fromisoformat(hour) + timedelta(hours=1):%Y-%m-%dT%H:00:00Z}"


@pytest.mark.parametrize("figure", ["node_cost_usd", "waste_usd"])
def test_fleet_sums_are_explained(visit: Callable[..., Page], demo: Demo, figure: str) -> None:
    page = visit("overview", viewport={"width": 360, "height": 800})
    total = demo.ask(f"/v1/fleet?{day(demo)}")["totals"][figure]
    name = figure.removesuffix("_usd").replace("_", " ")
    page.get_by_role("link", name=f"Why {round_usd(total)} {name}?").click()
    expect(page.get_by_test_id("figure-total")).to_have_text(exact_usd(total))
    settled(page)
    assert violations(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert cells(page, "figure-nodes" if figure == "node_cost_usd" else "figure-pods")
    page.keyboard.press("Escape")
    expect(page).not_to_have_url(re.compile("why="))
    expect(page.get_by_test_id("figure")).to_have_count(0)


def test_long_period_is_explained_by_days(visit: Callable[..., Page], demo: Demo) -> None:
    start, end = demo.end - timedelta(hours=71), demo.end
    period = f"start={start:%Y-%m-%dT%H:00:00Z}&end={end:%Y-%m-%dT%H:00:00Z}"
    page = visit("unit/data-science")
    page.goto(f"{demo.url}/#/unit/data-science?{period}&zone=utc&why=allocated_usd&why-unit=data-science")
    settled(page)
    days = demo.ask(f"/v1/costs?{period}&business_unit=data-science&granularity=day")["rows"]
    shown = page.get_by_test_id("figure-periods").locator("li span").all_inner_texts()
    assert sorted(shown) == sorted(usd(row["allocated_usd"]) for row in days)
    page.get_by_test_id("figure-periods").get_by_role("link").first.click()
    expect(page.get_by_test_id("figure-pods")).to_be_visible()


def test_nodes_to_remove_match_the_api(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("nodes")
    answer = demo.ask(f"/v1/nodes?{day(demo)}&limit=1000")["rows"]
    newest = max(row["hour"] for row in answer)
    costs: dict[str, Decimal] = {}
    expected: dict[str, tuple[str, str, str, str]] = {}
    monthly: dict[str, Decimal] = {}
    hours: dict[str, int] = {}  # on Wednesdays, one is missing
    for node in {row["node"] for row in answer if row["hour"] == newest}:
        rows = [row for row in answer if row["node"] == node]
        empty = sum(not row["holders"] for row in rows)
        cost = sum((row["node_cost_usd"] for row in rows), Decimal(0))
        free = sum((row["unallocated_usd"] for row in rows), Decimal(0))
        idle = sum((row["node_cost_usd"] for row in rows if not row["holders"]), Decimal(0))
        costs[node] = idle
        expected[node] = f"{empty} of {len(rows)}", usd(free), usd(cost), usd(idle)
        monthly[node] = cost / len(rows) * 730
        hours[node] = len(rows)
    most = max(monthly.values())
    shown = cells(page, "removals")
    full_names = {short(node): node for node in expected}
    assert {
        full_names[row["Node"]]: (
            row["Hours without pods"],
            row["Unallocated cost"],
            row["Node cost"],
            row["Cost without pods"],
        )
        for row in shown
    }.items() <= expected.items()
    assert len(shown) == min(10, len(expected))
    order = {node: (all_empty(expected[node][0]), cost) for node, cost in costs.items()}
    assert [order[full_names[row["Node"]]] for row in shown] == sorted(order.values(), reverse=True)[: len(shown)]
    assert shown[0]["Hours without pods"] == "24 of 24", "a node of the demo is empty"
    removable = [node for node in expected if expected[node][0] == "24 of 24"]
    now = page.get_by_test_id("remove-now").locator("li")
    expect(now).to_have_count(len(removable))
    expect(now.first).to_contain_text(
        f"saves {round_usd(monthly[full_names[shown[0]['Node']]], most)} a month at the rate of these 24 hours: "
        "24 hours without pods."
    )
    pools: dict[str, Decimal] = {}
    for node, cost in costs.items():
        if cost and node not in removable:
            last = next(row for row in answer if row["node"] == node)
            if last["capacity_type"] != "reserved":  # they cost the same without nodes
                pools[last["node_pool"]] = pools.get(last["node_pool"], Decimal(0)) + cost / hours[node] * 730
    texts = page.get_by_test_id("scale-down").locator("li").all_inner_texts()
    for text, (pool, cost) in zip(texts, sorted(pools.items(), key=lambda entry: -entry[1]), strict=False):
        assert text.startswith(f"Node pool {pool}: up to {round_usd(cost, most)} a month")


def test_nodes_to_remove_of_three_days_say_which_days_their_amounts_are_of(
    visit: Callable[..., Page], demo: Demo
) -> None:
    page = visit("overview")
    page.goto(f"{demo.url}/#/nodes?{day(demo, 72)}&zone=utc")
    settled(page)
    section = page.get_by_role("region", name="Which node to remove")
    expect(section.get_by_role("heading", level=3)).to_contain_text(
        ["Remove now: no pods in the whole period", "Scale down: no pods in some hours"]
    )
    expect(page.get_by_test_id("weekdays")).to_contain_text("as if every day were like them")
    expect(page.get_by_test_id("weekdays")).to_contain_text("Amounts a month are those of 72 hours")
    page.get_by_test_id("weekdays").get_by_role("link", name="all weekdays").click()
    expect(page.get_by_role("combobox", name="Period")).to_have_value("7d")
    expect(page.get_by_test_id("nodes-period")).not_to_contain_text("All figures are of")
    expect(page.get_by_test_id("weekdays")).to_have_count(0)


def all_empty(hours: str) -> bool:
    empty, _, count = hours.partition(" of ")
    return empty == count


def grouped(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Rows by workload; three or more Jobs whose names begin alike are together."""
    families: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        name = row["group"]["workload"]
        start = re.match(r"(.+?)-(?:\w*\d|[a-z]+$)", name) if row["group"]["workload_kind"] == "Job" else None
        families.setdefault(f"{start[1]}-*" if start else name, []).append(row)
    result: dict[str, list[dict[str, Any]]] = {}
    for family, members in families.items():
        if len(members) >= 3:
            result[family] = members
        else:
            result |= {row["group"]["workload"]: [row] for row in members}
    return result


def test_explore_matches_the_api(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("explore?by=workload&measure=waste_usd&f.business_unit=assistant")
    answer = demo.ask(
        f"/v1/costs?{day(demo)}&granularity=total&group_by=workload_kind,workload&business_unit=assistant&sort=-waste_usd"
    )
    families = grouped(answer["rows"])
    shown = cells(page, "explore")
    names = [re.sub(r"^▸\s*|\s*\d+ Jobs$", "", row["Workload"]) for row in shown]
    waste = {name: sum(row["waste_usd"] for row in rows) for name, rows in families.items()}
    assert names == sorted(waste, key=lambda name: -waste[name])
    for name, row in zip(names, shown, strict=True):
        for title, key in (
            ("Allocated cost", "allocated_usd"),
            ("Effective cost", "effective_usd"),
            ("Waste", "waste_usd"),
        ):
            assert row[title] == usd(sum(line[key] for line in families[name]))
    selected = answer["totals"]["waste_usd"] - answer["filtered_out"]["waste_usd"]
    assert page.get_by_test_id("explore-total").text_content() == usd(selected)


def test_explore_is_drilled_down_and_back_by_keyboard(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("explore")
    unit = cells(page, "explore")[0]["Business unit"]
    page.get_by_test_id("explore").get_by_role("link", name=unit).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("explore")).to_contain_text("Every workload")
    address = page.url
    expect(page.get_by_role("group", name="Filters")).to_contain_text(f"Business unit is {unit}")
    page.get_by_role("navigation", name="Trail").get_by_role("link").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_test_id("explore")).to_contain_text("Every business unit")
    assert cells(page, "explore")[0]["Business unit"] == unit
    page.goto(address)
    page.reload()
    settled(page)
    expect(page.get_by_role("group", name="Filters")).to_contain_text(f"Business unit is {unit}")
    page.get_by_role("button", name=f"Remove the filter Business unit {unit}").press("Enter")
    everything = demo.ask(f"/v1/costs?{day(demo)}&granularity=total&group_by=workload_kind,workload")["rows"]
    expect(page.get_by_test_id("explore").locator("tbody tr")).to_have_count(min(50, len(grouped(everything))))


def test_limits_of_the_api_are_sentences_in_explore(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit(f"explore?by=pod&{day(demo, begins=72)}")
    expect(page.get_by_text("Costs by pod are kept for reports of at most 48 hours.")).to_be_visible()
    page = visit("explore?f.namespace=nothing-has-this-name")
    expect(page.get_by_text("Nothing matches these filters")).to_be_visible()


def test_explore_filters_by_cluster(visit: Callable[..., Page]) -> None:
    page = visit("explore")
    with page.expect_request(lambda request: "/v1/costs?" in request.url and "cluster=batch-us-east-1" in request.url):
        page.evaluate("location.hash += '&f.cluster=batch-us-east-1'")
    settled(page)
    expect(page.get_by_role("group", name="Filters")).to_contain_text("Cluster is batch-us-east-1")


def test_pod_of_a_figure_is_shown_above_its_origin(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("overview")
    total = demo.ask(f"/v1/fleet?{day(demo)}")["totals"]["waste_usd"]
    page.get_by_role("link", name=f"Why {round_usd(total)} waste?").click()
    page.get_by_test_id("figure-pods").get_by_role("link").first.click()
    expect(page.get_by_test_id("why")).to_be_visible()
    assert "#/overview" in page.url
    page.get_by_role("button", name="Back").click()
    expect(page.get_by_test_id("why")).to_have_count(0)
    expect(page.get_by_test_id("figure-pods")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_test_id("figure")).to_have_count(0)
    assert "#/overview" in page.url
    assert "cluster=" not in page.url


def test_cluster_of_a_drill_down_stays_in_its_view(visit: Callable[..., Page]) -> None:
    page = visit("nodes")
    page.get_by_test_id("pools").get_by_role("link", name="a10g-serving").click()
    page.wait_for_url(re.compile("pool=a10g-serving"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("cluster prod-us-east-1")
    expect(page.get_by_label("Cluster")).to_have_value("")
    page.get_by_role("link", name="Explore").click()
    settled(page)
    assert "prod-us-east-1" not in page.url


def test_prices_are_those_of_the_figure(visit: Callable[..., Page], demo: Demo) -> None:
    """Only robotics' pods of the last hour are unmeasured, on one instance type."""
    page = visit("overview")
    total = demo.ask(f"/v1/fleet?{day(demo)}")["totals"]["unmeasured_usd"]
    page.get_by_role("link", name=f"Why {round_usd(total)} unmeasured cost?").click()
    hour = demo.end - timedelta(hours=1)
    page.evaluate(f"location.hash += '&why-at={hour:%Y-%m-%dT%H:00:00Z}'")
    expect(page.get_by_test_id("figure")).to_contain_text(f"Pods of {hour:%a} {hour.day} {hour:%b}, {hour:%H}:00 UTC")
    settled(page)
    period = f"start={hour:%Y-%m-%dT%H:00:00Z}&end={demo.end:%Y-%m-%dT%H:00:00Z}"
    lines = [line for line in demo.ask(f"/v1/lines?{period}")["rows"] if line["unmeasured_usd"]]
    prices = {exact_usd(line["gpu_hourly_usd"]) for line in lines}
    shown = page.get_by_test_id("figure-prices").locator("li").all_inner_texts()
    assert {text.split(" ")[0] for text in shown} == prices
    version = page.get_by_test_id("figure").locator("li", has_text="Version of the hour").inner_text()
    types = set(re.findall(r"\w+\d\w*\.\w*xlarge", version))
    assert types <= {line["instance_type"] for line in lines}
    assert {line["cluster"] for line in lines} == {cluster for cluster in CLUSTERS if f"{cluster}:" in version}


def test_missing_hours_of_nodes_are_hatched(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("overview")
    hour = f"{demo.end - timedelta(hours=5):%Y-%m-%dT%H:00:00Z}"

    def lose_hour(route: Route) -> None:
        answer = route.fetch()
        body = answer.json()
        if "/v1/nodes" in route.request.url:
            body["rows"] = [row for row in body["rows"] if row["hour"] != hour]
        else:
            for row in body["rows"]:
                row["status"] = "missing" if row["hour"] == hour else row["status"]
        route.fulfill(response=answer, json=body)

    page.route(re.compile("/v1/(nodes|hours)"), lose_hour)
    page.evaluate("location.hash = location.hash.replace('overview', 'nodes')")
    page.get_by_test_id("strip").first.wait_for()
    strip = page.get_by_test_id("strip").first
    cells_of = strip.get_by_role("application")
    cells_of.focus()
    for key in ("Home", "End", *["ArrowLeft"] * 4):
        page.keyboard.press(key)
    expect(strip.locator(".readout")).to_contain_text("missing or incomplete hour: unknown")
    painted = cells_of.evaluate(
        """(cells) => {
          const canvas = cells.querySelector("canvas"), pen = canvas.getContext("2d"), wide = canvas.width / 24;
          const { data } = pen.getImageData(19 * wide + 2, 0, wide - 4, canvas.height);
          return data.filter((_, at) => at % 4 === 3 && data[at] > 0).length / (data.length / 4);
        }"""
    )
    assert 0.05 < painted < 0.7, "hatched, not blank"


def test_filtered_hour_has_the_totals_of_its_node(visit: Callable[..., Page], demo: Demo) -> None:
    hour = demo.end - timedelta(hours=2)
    at = f"start={hour:%Y-%m-%dT%H:00:00Z}&end={hour + timedelta(hours=1):%Y-%m-%dT%H:00:00Z}"
    page = visit(f"hour/{hour:%Y-%m-%dT%H:00:00Z}?node={NODE}&in=prod-us-east-1")
    (row,) = (row for row in demo.ask(f"/v1/nodes?{at}&limit=1000")["rows"] if row["node"] == NODE)
    fleet = demo.ask(f"/v1/fleet?{at}&cluster=prod-us-east-1&granularity=total")["totals"]
    for name, key in (("node-cost", "node_cost_usd"), ("waste_usd", "waste_usd")):
        tile = page.get_by_test_id(name)
        assert tile.inner_text() == round_usd(row[key])
        expect(tile.locator("..")).to_contain_text(f"of {round_usd(fleet[key])} in prod-us-east-1")
    expect(page.locator(".filter")).to_contain_text(f"Node {NODE}")
    assert [row["Node"] for row in cells(page, "nodes")] == [short(NODE)]


def test_pods_of_several_clusters_fit_on_a_laptop(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit(f"hour/{demo.hours[-8]:%Y-%m-%dT%H:00:00Z}", viewport={"width": 1440, "height": 900})
    table = page.get_by_test_id("lines")
    table.locator("..").get_by_role("button", name=re.compile("^Show all")).click()
    for cluster in CLUSTERS:
        expect(table).to_contain_text(cluster)
    room = table.locator("..").evaluate("(scroller) => scroller.clientWidth - scroller.scrollWidth")
    assert room == 0, "nothing is cut"
    needed = table.evaluate("(table) => { table.style.minWidth = 0; table.style.width = 0; return table.scrollWidth; }")
    assert needed <= 1348 - 15, "a scroll bar has room, also in hours with the long names of repeated jobs"
    request = table.locator("td", has_text="mig-3g.20gb").first
    assert request.locator("span").evaluate("(text) => getComputedStyle(text).whiteSpace") == "nowrap"


def test_node_page_matches_the_api(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit(f"nodes?node={NODE}")
    rows = [row for row in demo.ask(f"/v1/nodes?{day(demo)}&limit=1000")["rows"] if row["node"] == NODE]
    pods = [pod for row in rows for pod in row["holders"] if pod["utilization"] is not None]
    held = sum(pod["allocated_gpu_hours"] for pod in pods)
    used = sum(pod["allocated_gpu_hours"] * pod["utilization"] for pod in pods)
    cost = sum(row["node_cost_usd"] for row in rows)
    assert page.get_by_test_id("node-cost").inner_text() == round_usd(cost)
    assert page.get_by_test_id("node-utilization").inner_text() == percent(used, held)
    assert page.get_by_test_id("node-stranded").inner_text() == round_usd(sum(row["stranded_usd"] for row in rows))
    empty = sum((row["node_cost_usd"] for row in rows if not row["holders"]), Decimal(0))
    assert page.get_by_test_id("node-removal").inner_text() == round_usd(empty)
    expect(page.get_by_test_id("pools")).to_have_count(0)


def test_stranded_gpus_have_a_visible_reason(visit: Callable[..., Page]) -> None:
    page = visit("nodes?pool=a100-mig")
    expect(page.get_by_test_id("stranded").first).to_have_text(
        re.compile(r"Stranded \$\d+\.\d\d an hour, .* GPUs.*: probably the MIG geometry")
    )


@pytest.mark.parametrize(
    ("view", "names"),
    [
        ("nonsense", "The page has no view nonsense."),
        ("nodes?node=nosuch", "There is no node nosuch"),
        ("nodes?pool=nosuch", "There is no node pool nosuch"),
        ("unit/nosuch", "There is no business unit nosuch."),
        ("hour/nonsense", "nonsense is not a full hour."),
    ],
)
def test_unknown_addresses_are_explained(tabs: Tabs, demo: Demo, view: str, names: str) -> None:
    tabs.expected = ("/v1/forecasts",)
    page = tabs.open(f"{demo.url}/#/{view}")
    shown = page.get_by_test_id("not-found")
    expect(shown).to_contain_text(names)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    assert violations(page) == []
    shown.get_by_role("link", name="Overview").click()
    expect(page.get_by_test_id("waste")).to_be_visible()


def test_any_period_can_be_entered(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("overview")
    period_of(page).select_option(label="Custom…")
    start, end = demo.end - timedelta(hours=9), demo.end - timedelta(hours=3)
    page.get_by_label("From").fill(f"{start:%Y-%m-%dT%H:00}")
    page.get_by_label("to", exact=True).fill(f"{start:%Y-%m-%dT%H:00}")
    page.get_by_role("button", name="Show", exact=True).click()
    assert "custom" in period_of(page).input_value(), "a period must have hours"
    page.get_by_label("to", exact=True).fill(f"{end:%Y-%m-%dT%H:00}")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url(re.compile(quote(f"start={start:%Y-%m-%dT%H:00:00Z}&end={end:%Y-%m-%dT%H:00:00Z}", safe="=&")))
    settled(page)
    totals = demo.ask(f"/v1/fleet?{day(demo, 9, 3)}")["totals"]
    assert page.get_by_test_id("cost-period").inner_text() == round_usd(totals["node_cost_usd"])


def test_filters_offer_the_names_of_the_period(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("explore")
    page.get_by_text("Add filter").click()
    expect(page.get_by_label("Name of the label")).to_have_count(0)
    page.get_by_label("Dimension of the filter").select_option("cluster")
    options = page.locator("#filter-names option")
    expect(options).to_have_count(len(CLUSTERS))
    assert options.evaluate_all("(options) => options.map(({ value }) => value)") == sorted(CLUSTERS)
    page.get_by_label("Dimension of the filter").select_option("label")
    expect(page.get_by_label("Name of the label")).to_be_visible()


def test_readout_has_the_total_and_shares(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("overview")
    row = demo.ask(f"/v1/fleet?{day(demo)}")["rows"][0]
    page.get_by_role("application", name=re.compile("Node cost over time")).focus()
    page.keyboard.press("ArrowRight")
    readout = page.get_by_test_id("readout")
    cost = row["node_cost_usd"]
    expect(readout).to_contain_text(f"waste {usd(row['waste_usd'])} ({percent(row['waste_usd'], cost)})")
    expect(readout).to_contain_text(f"node cost {usd(cost)}")


def test_touch_shows_details_before_it_opens_the_hour(visit: Callable[..., Page]) -> None:
    page = visit("nodes?pool=a10g-serving", has_touch=True, viewport={"width": 360, "height": 800})
    strip = page.get_by_test_id("strip").filter(has_text=NODE)
    cells_of = strip.get_by_role("application")
    cells_of.scroll_into_view_if_needed()
    cells_of.tap(position={"x": 4, "y": 6})
    expect(strip.locator(".readout")).to_contain_text(re.compile(r" in [\w-]+ \([\w-]+\): 1 × nvidia\.com/gpu"))
    assert "#/nodes" in page.url
    cells_of.tap(position={"x": 4, "y": 6})
    page.wait_for_url(re.compile("#/hour/"))


def test_explanation_works_on_all_screens(visit: Callable[..., Page]) -> None:
    page = visit("hour")
    page.get_by_role("link", name="how calculated").first.click()
    expect(page.get_by_test_id("why")).to_be_visible()
    check_layouts(page)


UNUSUAL_NAMES = {
    "assistant": "n" * 100 + "-" + "m" * 99,
    "data-science": "صندوق\u202eبحث",
    "notebooks": "🚀👩‍👩‍👧",
    "a10g-serving": "p" * 200,
}


def test_long_and_non_latin_names_fit_the_layout(visit: Callable[..., Page]) -> None:
    page = visit("overview", viewport={"width": 360, "height": 740})
    address = page.url

    def rename(route: Route) -> None:
        url = route.request.url
        for name, unusual in UNUSUAL_NAMES.items():
            url = url.replace(quote_plus(unusual), name).replace(quote(unusual), name)
        answer = route.fetch(url=url)
        text = answer.text()
        for name, unusual in UNUSUAL_NAMES.items():
            text = text.replace(f'"{name}"', json.dumps(unusual))
        route.fulfill(response=answer, body=text)

    page.route("**/v1/**", rename)
    for view in ("overview", f"unit/{quote(UNUSUAL_NAMES['assistant'])}", "nodes", "hour"):
        page.goto("about:blank")
        page.goto(re.sub("#/[^?]*", f"#/{view}", address))
        settled(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, view
        if view != "nodes":
            expect(page.get_by_text(UNUSUAL_NAMES["assistant"]).first).to_be_attached()


def test_print_shows_figures_without_controls(visit: Callable[..., Page]) -> None:
    page = visit("overview", color_scheme="dark")
    page.emulate_media(media="print")
    expect(period_of(page)).to_be_hidden()
    expect(page.get_by_test_id("waste")).to_be_visible()
    paper = "getComputedStyle(document.documentElement).backgroundColor"
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    # uPlot set the screen's width next to its canvas, which is wider than paper.
    wide = page.evaluate(
        """() => {
          const plot = document.querySelector(".plot"), canvas = plot.querySelector("canvas");
          for (const one of [...plot.querySelectorAll(".uplot, .u-wrap"), canvas]) one.style.width = "3000px";
          return canvas.getBoundingClientRect().width - plot.getBoundingClientRect().width;
        }"""
    )
    assert wide <= 0
    labels = page.locator(".plot canvas").first.evaluate(
        """async (canvas) => {
          const darkest = () => {
            const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width * 0.04, canvas.height * 0.8);
            let least = 255;
            for (let at = 0; at < data.length; at += 4) if (data[at + 3] > 200) least = Math.min(least, data[at]);
            return least;
          };
          const seen = [darkest()];
          for (const event of ["beforeprint", "afterprint"]) {
            window.dispatchEvent(new Event(event));
            await 0;
            seen.push(darkest());
          }
          return seen;
        }"""
    )
    assert labels[1] < 80, "dark text on white paper"


def test_all_columns_are_printed(visit: Callable[..., Page], demo: Demo) -> None:
    """Landscape A4 without margins is 1,030 pixels wide."""
    page = visit(f"hour/{demo.end - timedelta(hours=2):%Y-%m-%dT%H:00:00Z}", viewport={"width": 1030, "height": 700})
    page.emulate_media(media="print")
    widths = page.get_by_test_id("lines").evaluate("(table) => [table.scrollWidth, table.parentElement.clientWidth]")
    assert widths[0] <= widths[1]
    expect(page.get_by_test_id("lines")).to_contain_text("list-price")


def test_download_is_the_apis_csv(visit: Callable[..., Page], demo: Demo, tmp_path: Path) -> None:
    page = visit("unit/data-science")
    with page.expect_download() as coming:
        page.get_by_role("button", name="Download CSV").click()
    assert (
        coming.value.suggested_filename
        == f"data-science_{demo.end - timedelta(days=1):%Y-%m-%dT%HZ}_{demo.end:%Y-%m-%dT%HZ}.csv"
    )
    coming.value.save_as(tmp_path / "got.csv")
    group = "group_by=cluster,namespace,workload_kind,workload&sort=-allocated_usd"
    path = f"/v1/costs?{day(demo)}&business_unit=data-science&granularity=total&{group}&format=csv"
    assert (tmp_path / "got.csv").read_bytes() == requests.get(demo.url + path, timeout=30).content


def test_it_works_through_gpucost_dashboard(chromium: Browser, demo: Demo) -> None:
    """With IAM authentication only, the proxy signs the page's requests."""
    with serve_proxy(demo.url, None, 0) as address:
        tabs = Tabs(chromium, {address.removeprefix("http://")})
        page = tabs.open(f"{address}/#/overview?{day(demo)}")
        settled(page)
        waste = demo.ask(f"/v1/fleet?{day(demo)}")["totals"]["waste_usd"]
        assert page.get_by_test_id("waste").inner_text() == round_usd(waste)
        tabs.check()


def test_errors_are_shown_and_retried(tabs: Tabs, demo: Demo) -> None:
    tabs.expected = ("/v1/",)
    page = tabs.open(f"{demo.url}/#/overview?{day(demo)}")
    settled(page)
    broken = {"detail": "the database did not answer", "status": 502}
    fails = True

    def answer(route: Route) -> None:
        if fails:
            route.fulfill(status=502, json=broken, content_type="application/problem+json")
        else:
            route.continue_()

    page.route("**/v1/fleet?*", answer)
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("the database did not answer (502)")
    fails = False
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_test_id("waste")).to_be_visible()
    page.goto(f"{demo.url}/#/overview?start=2020-01-01T00:00:00Z&end=2020-01-02T00:00:00Z")
    expect(page.locator(".empty")).to_contain_text("72 cluster-hours expected, none with figures")


def test_split_policies_show_what_each_would_charge(visit: Callable[..., Page], demo: Demo) -> None:
    page = visit("splits")
    rows = demo.ask(f"/v1/split-policies?{day(demo)}")["rows"]
    charges = {
        row["split_policy"]: {unit["business_unit"]: unit["allocated_usd"] for unit in row["business_units"]}
        for row in rows
    }
    assert {row["split_policy"] for row in rows if row["is_in_force"]} == {"datadog"}
    # The policy in force charges what was published.
    published = {
        row["business_unit"]: row["allocated_usd"]
        for row in demo.ask(f"/v1/business-units?{day(demo)}")["rows"]
        if row["allocated_usd"]
    }
    assert charges["datadog"] == published
    units = sorted(published, key=lambda unit: -published[unit])
    assert [
        (row["Business unit"], row["datadog (in force)"], row["scad"].partition(" ")[0])
        for row in cells(page, "split-units")
    ] == [(unit, usd(charges["datadog"][unit]), usd(charges["scad"][unit])) for unit in units]
    parts = {row["Split policy"]: row for row in cells(page, "split-parts")}
    assert {row["Node cost"] for row in parts.values()} == {usd(rows[0]["capacity"]["node_cost_usd"])}
    assert parts["scad"]["Host cost"].partition(" ")[0] == usd(
        next(row for row in rows if row["split_policy"] == "scad")["capacity"]["host_usd"]
    )
    largest = max(
        ((policy, unit) for policy in charges for unit in units),
        key=lambda named: abs(charges[named[0]][named[1]] - published[named[1]]),
    )
    expect(page.get_by_test_id("largest-change")).to_contain_text(f"{largest[1]} would pay")
    expect(page.get_by_test_id("largest-change")).to_contain_text(f"under {largest[0]}")
