"""A month with a budget, recommendations and two clusters, for which the demo's three days are too short."""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
import simplejson
from playwright.sync_api import Locator, Page, Route, expect

from gpucost.core.hour_record import HourRecord, Line
from gpucost.core.hours import HOUR, floor_hour, month_bounds
from gpucost.core.query.periods import MIN_RUN_RATE_HOURS
from gpucost.features.recommendations.kinds import KindName
from gpucost.features.recommendations.model import (
    Evidence,
    Recommendation,
    RecommendationContent,
    RecommendationSubject,
    Saving,
)
from tests.browser.layout_checks import check_layouts
from tests.browser.shown import percent, round_usd, rounded, usd
from tests.browser.site import Site, deployment, numbers
from tests.browser.tabs import Tabs, settled, violations
from tests.records import line, record

SETTINGS = """
clusters:
  - {name: west, prometheus: {url: "http://127.0.0.1:9"}}
  - {name: east, prometheus: {url: "http://127.0.0.1:9"}}
pricing: {source: constant, gpu_hourly_usd: 12}
business_units: [{name: research, namespaces: ["bu-a"]}, {name: nightly, namespaces: ["bu-n"]}]
alerts:
  rules:
    - {rule: budget, monthly_usd: 900, overrides: [{business_unit: research, monthly_usd: 1500}]}
"""
END = floor_hour(datetime.now(UTC))
DAYS_OF_A_FORECAST = 352 * HOUR
"""A forecast needs two weeks of hours, which take a while to publish."""
MISSING = {END - HOUR * number for number in range(30, 36)}
"""Hours without metrics of cluster west."""
UNPRICED = END - 20 * HOUR
INCOMPLETE = END - 33 * HOUR
"""One of the missing hours, which has a note."""
RESTATED = END - 15 * HOUR
NOTE = "Prometheus has no samples of kube-state-metrics in this hour"
PATCH = "kind: Deployment\nmetadata: {name: '<b>app</b>'}"
EAST = 10 * HOUR
"""Age of cluster east, which has one business unit, on a pool with the same name as in west."""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with deployed_for(40 * HOUR) as deployed:
        yield deployed


@pytest.fixture(scope="module")
def long_site() -> Iterator[Site]:
    """From the begin of the month on: hours before the first data are unknown, and most of them allow no run rate."""
    length = max(DAYS_OF_A_FORECAST, END - month_bounds(END - HOUR)[0])
    with deployed_for(length, age_of_east=length) as deployed:
        yield deployed


def deployed_for(length: timedelta, age_of_east: timedelta = EAST) -> AbstractContextManager[Site]:
    return deployment(
        SETTINGS,
        records(length, age_of_east),
        end=END,
        replacements=list(replacements()),
        recommendations=recommendations(),
    )


def records(length: timedelta, age_of_east: timedelta) -> Iterator[HourRecord]:
    """Lines of an hour. The nightly unit only holds GPUs on even days."""
    for number in range(length // HOUR):
        hour = END - length + number * HOUR
        lines = [line(), *([line("nightly", "bu-n", "n", "3.5")] if hour.day % 2 == 0 else [])]
        if hour == UNPRICED:
            lines = [unpriced(priced_line) for priced_line in lines]
        if hour not in MISSING:
            yield record(lines, hour=hour, cluster="west")
        if hour >= END - age_of_east:
            yield record([line(pod="e")._replace(node="e1")], hour=hour, cluster="east")


def replacements() -> Iterator[tuple[HourRecord, str]]:
    """A restated hour, and an hour that stays incomplete."""
    yield record([line(usd="3.5")], hour=RESTATED, cluster="west"), "the price of g5 changed"
    yield record(hour=INCOMPLETE, cluster="west", status="incomplete", notes=(NOTE,)), ""


def unpriced(line: Line) -> Line:
    return line._replace(
        gpu_hourly_usd=None,
        price_source="",
        allocated_usd=None,
        effective_usd=None,
        waste_usd=None,
        unmeasured_usd=None,
    )


def recommendations() -> list[Recommendation]:
    about = RecommendationSubject("west", "research", "bu-a", "Deployment", "app")
    evidence = Evidence(END - 40 * HOUR, END, 40, 0, Decimal(1), Decimal("0.25"), Decimal("0.3"))
    recommendations: list[Recommendation] = []
    contents: tuple[tuple[KindName, int, str, str], ...] = (
        ("mig-slice", 512, "Take a 1g.5gb slice for <img src=x onerror=alert(1)>", PATCH),
        ("off-hours", 1024, "Scale app to none from 20:00 to 06:00", ""),
    )
    for kind, saved, summary, patch in contents:
        saving = Saving(Decimal(saved), Decimal(saved - 100), Decimal(saved + 100), None, None, Decimal(43))
        content = RecommendationContent(
            kind=kind,
            subject=about,
            summary=summary,
            saving=saving,
            evidence=evidence,
            confidence="high",
            risk="low",
            risk_note="starts take a minute",
            effort="medium",
            patch=patch,
            current_gpus=Decimal(1),
            recommended_gpus=Decimal(0),
            usd_hourly=Decimal("1.71"),
        )
        recommendations.append(Recommendation(content, "open", END, END, END))
    other = replace(
        recommendations[0].content,
        subject=about._replace(business_unit="nightly", workload="other"),
        summary="Not yours",
    )
    costs = Saving(Decimal(-70), Decimal(-80), Decimal(-60), None, Decimal(0), Decimal(43))
    about = RecommendationSubject("west", node_pool="gpu", instance_type="p5.48xlarge")
    pool = replace(
        recommendations[0].content,
        kind="pending",
        subject=about,
        title="Add a node to pool gpu",
        summary="Add a node to pool gpu: pods waited",
        saving=costs,
        worth_usd=Decimal(90),
    )
    loss = replace(
        pool,
        subject=about._replace(node_pool="lossy"),
        title="Add a node to pool lossy",
        summary="Add a node to pool lossy: pods waited",
        worth_usd=Decimal(20),
    )
    open_ones = [*recommendations, *(Recommendation(content, "open", END, END, END) for content in (other, pool, loss))]
    return [*open_ones, *(closed(open_ones[1].content, **fields) for fields in CLOSED)]


CLOSED: tuple[dict[str, Any], ...] = (
    {"state": "dismissed", "reason": "needed for the launch", "author": "ana"},
    {"state": "applied", "applied_at": END - 20 * HOUR},
    {"state": "verified", "applied_at": END - 200 * HOUR, "verified_usd": Decimal("950.25")},
    {"state": "verified", "applied_at": END - 200 * HOUR, "verified_usd": Decimal("100.5")},
    {"state": "withdrawn", "reason": "used more than 30% since"},
)


def closed(content: RecommendationContent, **fields: Any) -> Recommendation:
    """A recommendation that is not open, for a workload named after its fields."""
    about = content.subject._replace(workload=f"was-{fields['state']}-{fields.get('verified_usd', '')}")
    content = replace(content, subject=about, summary=f"Scale {about.workload} to none")
    return Recommendation(content, since=END, first_recommended=END, last_recommended=END, **fields)


@pytest.mark.nightly
def test_month_shows_spend_with_budget_and_projection(visit: Callable[..., Page], long_site: Site) -> None:
    page = visit(long_site, "unit/research?window=48h&zone=utc")
    forecast = long_site.ask("forecasts?business_unit=research")
    if END - month_bounds(END - HOUR)[0] < timedelta(hours=MIN_RUN_RATE_HOURS):  # on the first day of a month
        assert forecast["run_rate_usd"] is None
        return
    assert forecast["run_rate_usd"] > 0
    is_burning_down(page, forecast)


def test_month_shows_spend_with_budget(tabs: Tabs, visit: Callable[..., Page], site: Site) -> None:
    """Whether two days are enough for a projection depends on the date, so the test sets it in the API's response."""
    page = visit(site, "unit/research?window=48h&zone=utc")
    answers: list[str] = []

    def add_projection(route: Route) -> None:
        projected = {"run_rate_usd": 1300.5, "projected_usd": 1200.25, "low_usd": 1100.25, "high_usd": 1400.75}
        answers.append(simplejson.dumps({**numbers(route.fetch().text()), **projected}))
        route.fulfill(body=answers[-1], content_type="application/json")

    page.route("**/v1/forecasts*", add_projection)
    page.reload()
    settled(page)
    is_burning_down(page, numbers(answers[-1]))


def is_burning_down(page: Page, forecast: dict[str, Any]) -> None:
    assert forecast["budget_usd"] == 1500
    shown = {name: page.get_by_test_id(f"month-{name}").inner_text() for name in ("spent", "projected", "budget")}
    assert shown == {
        "spent": round_usd(forecast["spent_usd"]),
        "projected": round_usd(forecast["run_rate_usd"]),
        "budget": "$1,500",
    }
    section = page.get_by_role("region", name="This month (UTC), all clusters")
    expect(section).to_contain_text("at the mean rate so far, as in budget alerts")
    interval = page.get_by_test_id("month-interval")
    if forecast["low_usd"] is None:
        expect(interval).to_have_count(0)
    else:
        low, high = (round_usd(forecast[key], forecast["high_usd"]) for key in ("low_usd", "high_usd"))
        expect(interval).to_have_text(low if low == high else f"{low} to {high}")
        record = forecast["backtest"]
        tested = f"{record['covered']} of {record['evaluated']} past ones were right" if record else "not tested yet"
        expect(section).to_contain_text(f"80% interval by the pattern of past weeks; {tested}")
    expect(section).to_contain_text(f"{percent(forecast['spent_usd'], Decimal(1500))} of it used")
    chart = section.get_by_role("img", name=re.compile("Cumulative allocated cost"))
    label = chart.get_attribute("aria-label") or ""
    assert f"{round_usd(forecast['spent_usd'])} by " in label, "the line ends at the cost of the summary"
    assert f"a run rate of {round_usd(forecast['run_rate_usd'])} for the month, a budget of $1,500" in label
    assert {(0, 114, 178), (185, 65, 110)} <= colours(chart)
    expect(section.locator(".legend")).to_contain_text("run rate")


def colours(chart: Locator) -> set[tuple[int, ...]]:
    """The colors of a chart's pixels."""
    pixels: list[str] = chart.locator("canvas").evaluate(
        """(canvas) => {
          const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
          const seen = new Set();
          for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) seen.add(data.slice(at, at + 3).join());
          return [...seen];
        }"""
    )
    return {tuple(map(int, pixel.split(","))) for pixel in pixels}


KINDS = {
    "mig-slice": "Use a MIG slice",
    "off-hours": "Stop outside working hours",
    "pending": "Add nodes for waiting pods",
}


def test_recommendations_match_the_api(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "unit/research?window=48h")
    rows = site.ask("recommendations?business_unit=research")["rows"]
    assert len(rows) == 2
    table = page.get_by_test_id("recommendations").locator("tbody tr")
    expect(table).to_have_count(2)
    for at, row in enumerate(sorted(rows, key=lambda row: -row["saving"]["usd"])):
        table_row, saving = table.nth(at), row["saving"]
        for text in (
            row["summary"],
            KINDS[row["kind"]],
            round_usd(saving["usd"]),
            f"{round_usd(saving['low_usd'])} to {round_usd(saving['high_usd'])}",
            row["confidence"],
            row["risk"],
            row["effort"],
        ):
            expect(table_row).to_contain_text(text)
    page.get_by_text("Show patch", exact=True).click()
    expect(table.locator("pre")).to_have_text(PATCH)
    assert page.locator("main img, main b").count() == 0
    check_layouts(page)


def test_overview_shows_recommendations_for_pools(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "overview?window=48h")
    rows = site.ask("recommendations")["rows"]
    assert len(rows) == 5
    expect(page.get_by_test_id("recommendations")).to_have_count(0)  # they are listed once, in the summary
    expect(page.get_by_role("region", name="Summary")).to_contain_text(
        "All recommendations: 3 savings + 1 that adds GPUs + 1 alternative"
    )
    totals = site.ask("recommendations")["totals"]["savings"]
    assert page.get_by_test_id("offer").inner_text() == round_usd(totals["usd"])
    best = page.get_by_test_id("best").locator("li")
    largest = sorted((row for row in rows if row["saving"]["usd"] > 0), key=lambda row: -row["saving"]["usd"])
    for at, row in enumerate(largest):
        for text in (row["title"], f"{round_usd(row['saving']['usd'])} a month", f"{row['confidence']} confidence"):
            expect(best.nth(at)).to_contain_text(text)
    best.first.get_by_role("link").click()
    expect(page.get_by_test_id("savings").locator("> li")).to_contain_text(largest[0]["summary"])


def test_overview_lists_commitments_after_the_savings_on_offer(visit: Callable[..., Page], site: Site) -> None:
    """The total leaves commitments out, so a larger commitment must not seem to be a part of it."""
    page = visit(site, "overview?window=48h")
    response = site.ask("recommendations")
    (first, *_), largest = response["rows"], max(row["saving"]["usd"] for row in response["rows"])
    commitments = [
        {
            **first,
            "id": f"commitment-{factor}",
            "kind": "commitment",
            "offer": "after-plan",
            "saving": {**first["saving"], "usd": factor * largest},
        }
        for factor in (4, 2)
    ]

    def add_commitments(route: Route) -> None:
        rows = [*commitments, *response["rows"]]
        route.fulfill(body=simplejson.dumps({**response, "rows": rows}), content_type="application/json")

    page.route("**/v1/recommendations*", add_commitments)
    page.reload()
    expect(page.get_by_test_id("commitments")).to_have_text(round_usd(6 * largest))
    expect(page.get_by_test_id("best").locator("li").first).to_contain_text(round_usd(largest))
    assert page.get_by_test_id("offer").inner_text() == round_usd(response["totals"]["savings"]["usd"])


def test_overview_lists_the_units_over_their_budgets(tabs: Tabs, visit: Callable[..., Page], site: Site) -> None:
    """The API's answer is that of today's date, so the test sets what was spent."""
    page = visit(site, "overview?window=48h")
    budgets = page.get_by_test_id("budgets")
    response = site.ask("budgets")
    assert {row["business_unit"]: row["budget_usd"] for row in response["rows"]} == {"research": 1500, "nightly": 900}
    amounts: list[tuple[str, int, int | None]] = [("exceeded", 1600, 2100), ("projected", 700, 950)]

    def set_spent(route: Route) -> None:
        rows = [
            {**row, "status": status, "spent_usd": spent, "projected_usd": projected}
            for row, (status, spent, projected) in zip(response["rows"], amounts, strict=True)
        ]
        route.fulfill(body=simplejson.dumps({**response, "rows": rows}), content_type="application/json")

    def reloaded() -> str:
        page.reload()
        settled(page)
        return budgets.inner_text()

    page.route("**/v1/budgets*", set_spent)
    first, second = (row["business_unit"] for row in response["rows"])
    first_budget, second_budget = (round_usd(row["budget_usd"]) for row in response["rows"])
    shown = reloaded()
    assert shown.startswith("1 exceeded, 1 will exceed, of 2 business units with a budget this month (UTC):")
    assert budgets.locator(".tag").all_inner_texts() == ["exceeded", "will exceed"]
    assert rows_of(budgets) == [
        [f"{first} exceeded", "$1,600", "$2,100", first_budget],
        [f"{second} will exceed", "$700.00", "$950.00", second_budget],
    ]
    bars = budgets.locator(".budget")
    labels = [bars.nth(at).get_attribute("aria-label") for at in range(2)]
    assert labels == [
        f"allocated cost so far {usd} of the budget"
        for usd in (
            f"$1,600, {percent(Decimal(1600), response['rows'][0]['budget_usd'])}",
            f"$700.00, {percent(Decimal(700), response['rows'][1]['budget_usd'])}",
        )
    ]
    widths = "(bar) => Object.fromEntries([...bar.children].map(({ className, style }) => [className, style.width]))"
    over = {"": "100%", "over": share(1600, 2100), "spent": share(response["rows"][0]["budget_usd"], 2100)}
    assert bars.first.evaluate(widths) == {**over, "limit": ""}, "the run rate, and the part over the budget"
    assert budgets.get_by_role("link").all_inner_texts() == [first, second]
    texts: dict[str, list[tuple[str, int, int | None]]] = {
        "All 2 business units with a budget stay within it.": [("within", 10, 20), ("within", 10, 20)],
        "Whether business units stay within their budgets is not known yet: "
        "too few hours of this month have figures.": [("unknown", 10, None), ("unknown", 10, None)],
        "1 of 2 business units with a budget stay within it. Of the others it is not known yet.": [
            ("within", 10, 20),
            ("unknown", 10, None),
        ],
    }
    for text, of_units in texts.items():
        amounts[:] = of_units
        assert [line for line in reloaded().splitlines() if line] == [text, "All budgets"]
    budgets.get_by_text("All budgets").click()
    assert rows_of(budgets) == [[first, "$10.00", "$20.00", first_budget], [second, "$10.00", "–", second_budget]]
    budgets.get_by_role("link", name=second).click()
    settled(page)
    expect(page.get_by_test_id("month-budget")).to_have_text(second_budget)


def rows_of(table: Locator) -> list[list[str]]:
    rows: list[list[str]] = table.locator("tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    )
    return rows


def share(part: Decimal | int, whole: int) -> str:
    return f"{rounded(100 * Decimal(part) / whole, 1)}%"


def test_savings_show_every_state_as_the_api(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "savings?zone=utc")
    rows, totals = site.ask("recommendations?state=all")["rows"], site.ask("recommendations")["totals"]
    assert page.get_by_test_id("on-offer").inner_text() == round_usd(totals["savings"]["usd"])
    assert page.get_by_test_id("added").inner_text() == round_usd(totals["costs"]["usd"]) == "$70.00"
    assert page.get_by_test_id("cash").inner_text() == "–", "it is not known for any"
    expect(page.locator(".stats").first).to_contain_text(f"not known for {round_usd(totals['savings']['usd'])}")
    expect(page.get_by_test_id("savings").first.locator("> li").first).to_contain_text("cash not known")
    verified = sum(row["verified_usd"] for row in rows if row["state"] == "verified")
    assert page.get_by_test_id("verified").inner_text() == round_usd(verified) == "$1,051"
    for state in ("open", "applied", "verified", "dismissed", "withdrawn"):
        expected = [row for row in rows if row["state"] == state]
        page.get_by_role("navigation", name="States").get_by_role(
            "link", name=re.compile(f"{state} {len(expected)}", re.IGNORECASE)
        ).click()
        cards = page.get_by_test_id("savings").locator("> li")
        expect(cards).to_have_count(len(expected))
        expect(cards.locator(".state")).to_have_count(0)  # the tab says it
        assert expected
        meaning = page.get_by_test_id("state-meaning")
        if state in {"open", "applied", "verified"}:
            expect(meaning).to_contain_text("detects in the figures when a change is applied")
        else:
            expect(meaning).not_to_contain_text("detects in the figures")
        for card, row in zip(cards.all(), expected, strict=True):
            saving = row["saving"]["usd"]
            for text in (
                row["summary"],
                round_usd(saving) if saving >= 0 else f"costs {round_usd(-saving)}",
                row["confidence"],
            ):
                expect(card).to_contain_text(text)
            if state == "verified":
                expect(card).to_contain_text(f"{round_usd(row['verified_usd'])} verified")
        if state == "dismissed":
            expect(cards).to_contain_text("by ana: needed for the launch")
            page.get_by_text("Evidence, risk and commands").click()
            expect(cards).to_contain_text(f"gpucost recommendations reopen {expected[0]['id']} --stack NAME")
            expect(cards).to_contain_text("NAME is the name of the CloudFormation stack")
        if state == "withdrawn":
            expect(cards).to_contain_text("used more than 30% since")
    assert page.locator("main img, main b").count() == 0


def test_cash_savings_at_list_prices_say_so_next_to_the_total(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "savings?zone=utc")
    response = site.ask("recommendations?state=open")
    factors = [Decimal(1)] * len(response["rows"])

    def add_prices(route: Route) -> None:
        rows = []
        for row, by in zip(response["rows"], factors, strict=True):
            usd = row["saving"]["usd"]
            rows.append({**row, "saving": {**row["saving"], "cash_usd": usd, "list_usd": usd * by}})
        route.fulfill(body=simplejson.dumps({**response, "rows": rows}), content_type="application/json")

    page.route("**/v1/recommendations*", add_prices)
    caveat, cards = page.get_by_test_id("list-prices"), page.get_by_test_id("savings").first.locator("> li")
    page.reload()
    expect(caveat).to_have_text(", at list prices")
    expect(cards.first).to_contain_text("all in cash")
    expect(cards.first.locator(".amount")).not_to_contain_text("list prices")
    caveat.get_by_role("button", name="What does at list prices mean?").click()
    expect(page.get_by_test_id("help").filter(visible=True)).to_contain_text("your discounts are not in it")
    assert violations(page) == []
    page.goto(f"{site.address}/#/overview?window=48h")
    expect(caveat).to_have_text(", at list prices")
    savings = [row["saving"]["usd"] for row in response["rows"] if row["saving"]["usd"] > 0]
    factors[response["rows"].index(max(response["rows"], key=lambda row: row["saving"]["usd"]))] = Decimal("1.5")
    page.goto(f"{site.address}/#/savings?zone=utc&state=open")
    page.reload()
    expect(caveat).to_have_text(f", {round_usd(sum(savings) - max(savings))} of it at list prices")
    expect(cards.first.locator(".amount")).to_contain_text("all in cash")
    expect(cards.first.locator(".amount")).not_to_contain_text("list prices")
    expect(cards.nth(1).locator(".amount")).to_contain_text("all in cash, at list prices")


def test_savings_are_in_two_columns_on_4k(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "savings?zone=utc", viewport={"width": 3840, "height": 2160})
    first, second = (
        box
        for card in page.get_by_test_id("savings").first.locator("> li").all()[:2]
        if (box := card.bounding_box()) is not None
    )
    assert first["y"] == second["y"]
    assert first["x"] + first["width"] < second["x"]
    assert second["x"] + second["width"] > 3600


def test_savings_count_adds_up_and_names_each_pool_change(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "savings?zone=utc")
    expect(page.get_by_test_id("counts")).to_contain_text("5 open: 3 savings + 1 that adds GPUs + 1 alternative.")
    expect(page.get_by_role("region", name="Recommendations").get_by_role("heading", level=3)).to_have_text(
        ["Savings", "Added GPUs", "Alternatives"]
    )
    expect(page.get_by_test_id("savings").last).to_contain_text("Add a node to pool lossy")
    card = page.get_by_test_id("savings").locator("> li").filter(has_text="Add a node to pool gpu")
    card.get_by_text("Evidence, risk and commands").click()
    facts = dict(zip(card.locator("dt").all_inner_texts(), card.locator("dd").all_inner_texts(), strict=True))
    assert facts["Nodes"] == "1 now, 0 after, in the newest day"
    assert "GPUs" not in facts


def test_help_mark_opens_the_glossarys_sentence(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "overview?window=48h")
    page.get_by_role("button", name="What does cluster-hour mean?").last.click()
    note = page.get_by_test_id("help").filter(visible=True)
    expect(note).to_contain_text("cluster-hour: One cluster and one UTC hour")
    assert violations(page) == []
    note.get_by_role("link", name="All terms").click()
    settled(page)
    term = page.locator("main dt").filter(has_text=re.compile("^cluster-hour$"))
    expect(term).to_be_in_viewport()
    expect(term.get_by_role("link")).to_be_focused()
    expect(page.locator("main dt").first).to_have_text("node cost")
    expect(page.get_by_role("region", name="Budgets")).to_contain_text("run rate")
    expect(page.locator("main")).to_contain_text("The part of a node's price that the price split policy gives")
    check_layouts(page)


def test_hour_that_has_just_ended_is_being_computed_and_not_missing(visit: Callable[..., Page], site: Site) -> None:
    """The page shows what the API says of the newest hour. Which hour that is depends on the clock."""
    period = f"start={at(END - 3 * HOUR)}&end={at(END)}&cluster=east"
    page = visit(site, f"health?{period}&zone=utc")
    response = site.ask(f"hours?{period}")

    def make_pending(route: Route) -> None:
        *rows, newest = response["rows"]
        pending = {**newest, "status": "pending", "version": None, "coverage": None, "notes": []}
        route.fulfill(body=simplejson.dumps({**response, "rows": [*rows, pending]}), content_type="application/json")

    page.route("**/v1/hours*", make_pending)
    page.reload()
    settled(page)
    assert page.get_by_test_id("hours-missing").inner_text() == "0"
    expect(page.get_by_role("region", name="Coverage by hour and source")).to_contain_text("being computed")
    expect(page.get_by_role("region", name="What to check")).not_to_contain_text("no result")
    page.get_by_test_id("coverage-strip").get_by_role("application").focus()
    for _ in range(2):  # the first key selects the first hour
        page.keyboard.press("End")
    expect(page.locator(".readout").first).to_contain_text("being computed: the hour has just ended")


def test_savings_are_filtered_by_kind_and_unit(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "savings?zone=utc")
    page.get_by_label("Kind").select_option("mig-slice")
    page.get_by_label("Business unit").select_option("research")
    page.wait_for_url(re.compile("unit=research"))
    settled(page)
    response = site.ask("recommendations?business_unit=research&kind=mig-slice")
    assert page.get_by_test_id("on-offer").inner_text() == round_usd(response["totals"]["savings"]["usd"]) == "$512.00"
    card = page.get_by_test_id("savings").locator("> li")
    expect(card).to_have_count(1)
    card.get_by_text("Evidence, risk and commands").click()
    expect(card.locator("pre")).to_have_text(PATCH)
    for text in (
        "starts take a minute",
        "40 observed, 0 without figures",
        "25% on average, 30% in the busiest hour",
        f'gpucost recommendations dismiss {response["rows"][0]["id"]} --stack NAME --reason "…"',
        f"gpucost recommendations show {response['rows'][0]['id']} --stack NAME --patch",
    ):
        expect(card).to_contain_text(text)
    check_layouts(page)


def test_savings_without_recommendations_name_the_next_step(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "savings?cluster=east&zone=utc")
    expect(page.locator("main .empty")).to_contain_text("gpucost recommendations run --stack NAME")
    assert page.get_by_test_id("on-offer").inner_text() == page.get_by_test_id("added").inner_text() == "–"
    expect(page.locator(".stats").first).to_contain_text(re.compile(r"Next review: .*, 04:10 UTC"))
    page = visit(site, "savings?state=applied&kind=mig-slice")
    expect(page.locator("main .empty")).to_contain_text("No recommendation is applied. Select another state.")


def test_savings_are_unknown_after_a_review_of_too_few_hours(visit: Callable[..., Page], site: Site) -> None:
    response = site.ask("recommendations?cluster=east")
    reviewed = {"cluster": "east", "start": at(END), "end": at(END), "reviewed_at": at(END), "workloads": {}}

    def review(route: Route, hours: int) -> None:
        body = {**response, "reviews": [{**reviewed, "hours_known": hours}]}
        route.fulfill(body=simplejson.dumps(body), content_type="application/json")

    def savings(hours: int) -> tuple[str, str]:
        page.unroute_all()
        page.route("**/v1/recommendations*", lambda route: review(route, hours))
        page.reload()
        settled(page)
        return page.get_by_test_id("on-offer").inner_text(), page.locator("main .empty").inner_text()

    page = visit(site, "savings?cluster=east&zone=utc")
    offer, reason = savings(53)
    assert offer == "–"
    assert reason.startswith("The review of ") and " had figures for 53 of the 168 hours " in reason
    expect(page.locator(".stats")).not_to_contain_text(reason)
    offer, reason = savings(168)
    assert offer == "$0.00"
    assert reason.startswith("The last review recommends nothing.")


def test_savings_name_clusters_that_were_reviewed_with_too_few_hours(visit: Callable[..., Page], site: Site) -> None:
    response = site.ask("recommendations?state=all")
    reviewed = {"start": at(END - 720 * HOUR), "end": at(END), "reviewed_at": at(END), "workloads": {}}
    hours = {"north": 66, "west": 715}
    reviews = [{**reviewed, "cluster": cluster, "hours_known": count} for cluster, count in hours.items()]
    body = simplejson.dumps({**response, "reviews": reviews})
    page = visit(site, "savings?zone=utc")
    page.route("**/v1/recommendations*", lambda route: route.fulfill(body=body, content_type="application/json"))
    page.reload()
    settled(page)
    expect(page.get_by_test_id("reviews").locator("tbody tr")).to_contain_text(["66 of 720", "715 of 720"])
    note = "Without north: its review of .* had figures for 66 hours, and recommendations need 168."
    expect(page.locator("main > .note, main .note").filter(has_text="Without")).to_have_text(re.compile(note))


def test_reason_that_all_workloads_share_is_shown_once(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "unit/research?window=48h&zone=utc")
    groups = "window=48h&granularity=total&business_unit=research&group_by=cluster,namespace,workload"
    subjects = [row["group"] for row in site.ask(f"costs?{groups}")["rows"]]
    reasons = ["observed for 53 hours; a recommendation needs 168"] * len(subjects)
    assert len(reasons) > 1

    def shown() -> list[str]:
        findings = [
            {"subject": subject, "finding": "unknown", "reason": reason}
            for subject, reason in zip(subjects, reasons, strict=True)
        ]
        body = simplejson.dumps({**site.ask("recommendations?cluster=east"), "findings": findings})
        page.unroute_all()
        page.route("**/v1/recommendations*", lambda route: route.fulfill(body=body, content_type="application/json"))
        page.reload()
        settled(page)
        return page.get_by_test_id("workloads").locator(".wrapped").all_inner_texts()

    assert set(shown()) == {"–"}
    expect(page.get_by_test_id("common-finding")).to_have_text(
        f"No workload has a recommendation. Too little is known: {reasons[0]}."
    )
    reasons[0] = "observed for 20 hours; a recommendation needs 168"
    assert sorted(shown()) == sorted(f"Too little is known: {reason}" for reason in reasons)
    expect(page.get_by_test_id("common-finding")).to_have_count(0)


def test_data_health_matches_the_api(visit: Callable[..., Page], site: Site) -> None:
    period = f"start={at(END - 40 * HOUR)}&end={at(END)}"
    page = visit(site, f"health?{period}&zone=utc")
    rows = site.ask(f"hours?{period}")["rows"]
    restatements = site.ask(f"restatements?{period}")["rows"]
    statuses = [row["status"] for row in rows]
    for status in ("missing", "incomplete"):
        assert page.get_by_test_id(f"hours-{status}").inner_text() == str(statuses.count(status))
    assert statuses.count("incomplete") == 1
    assert page.get_by_test_id("hours-restated").inner_text() == str(len(restatements)) == "1"
    totals = site.ask(f"costs?{period}&granularity=total")["totals"]
    measured = totals["allocated_gpu_hours"] - totals["unmeasured_gpu_hours"]
    assert page.get_by_test_id("measured").inner_text() == percent(measured, totals["allocated_gpu_hours"])
    scrapes = site.ask(f"hours?{period}")["coverage"]["utilization"]
    assert page.get_by_test_id("scrapes").inner_text() == percent(scrapes)
    hours = totals["unpriced_gpu_hours"]
    assert hours > 0
    assert page.get_by_test_id("unpriced-hours").inner_text() == rounded(hours, 2)
    expect(page.get_by_test_id("note-groups")).to_contain_text(NOTE)
    findings = page.get_by_test_id("findings")
    for cluster in ("east", "west"):
        missing = sum(row["cluster"] == cluster and row["status"] == "missing" for row in rows)
        expect(findings.locator("li").filter(has_text=cluster).first).to_contain_text(f"{missing} hours have no result")
        expect(findings).to_contain_text("samples of the GPU exporter are missing; 1.2% of them in the worst.")
    expect(findings).to_contain_text(
        "To check: Do nodes have the labels that prices depend on? (doctor: kube_node_labels)"
    )
    expect(page.locator("main")).to_contain_text("gpucost doctor --settings FILE")
    table = page.get_by_test_id("restatements").locator("tbody tr")
    row = restatements[0]
    for text in ("the price of g5 changed", usd(row["before"]["allocated_usd"]), usd(row["after"]["allocated_usd"])):
        expect(table).to_contain_text(text)
    expect(page.get_by_test_id("unpriced").locator("tbody tr")).to_have_count(1)
    strip = page.get_by_test_id("coverage-strip").filter(has_text="west")
    strip.get_by_role("application").focus()
    page.keyboard.press("ArrowRight")
    readout = strip.locator(".readout")
    for hour in range(40):
        (status,) = (
            entry["status"]
            for entry in rows
            if entry["cluster"] == "west" and entry["hour"] == at(END - (40 - hour) * HOUR)
        )
        shown = "restated" if END - (40 - hour) * HOUR == RESTATED else status
        expect(readout).to_contain_text(f" {shown}: ")
        page.keyboard.press("ArrowRight")
    check_layouts(page)


def test_complete_period_has_nothing_to_check(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"health?start={at(END - 5 * HOUR)}&end={at(END)}&zone=utc&cluster=east")
    assert page.get_by_test_id("hours-complete").inner_text() == "100%"
    expect(page.get_by_role("region", name="Restatements")).to_contain_text("No hour of this period was restated.")
    expect(page.get_by_role("region", name="Notes on hours")).to_contain_text("No hour of this period has a note.")


def test_workloads_link_to_their_recommendation(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "unit/research?window=48h&cluster=west")
    page.get_by_test_id("workloads").get_by_role("link", name="Stop outside working hours, $1,024").click()
    settled(page)
    expect(page.get_by_test_id("savings").locator("> li")).to_contain_text("Scale app to none from 20:00 to 06:00")


def test_unpriced_costs_are_hatched_and_labeled(visit: Callable[..., Page], site: Site) -> None:
    """An hour without prices between priced hours."""
    start, end = UNPRICED - HOUR, UNPRICED + 2 * HOUR
    page = visit(site, f"overview?start={at(start)}&end={at(end)}&zone=utc&cluster=west")
    totals = site.ask(f"fleet?start={at(start)}&end={at(end)}&cluster=west")["totals"]
    share = totals["unpriced_gpu_hours"] / totals["allocated_gpu_hours"]
    expect(page.locator(".unpriced")).to_have_text(
        f"{percent(share)} of these GPU-hours have no price yet. Amounts exclude them."
    )
    chart = page.get_by_role("application", name=re.compile("cost over time"))
    chart.focus()
    page.keyboard.press("ArrowRight")
    readout = page.get_by_test_id("readout")
    expect(readout).not_to_contain_text("without a price")
    page.keyboard.press("ArrowRight")
    expect(readout).to_contain_text("100% of GPU-hours without a price")
    painted = chart.locator("canvas").evaluate(
        """(canvas) => {
          const pen = canvas.getContext("2d");
          const { data } = pen.getImageData(canvas.width * 0.45, canvas.height * 0.2, 60, 40);
          return data.filter((_, at) => at % 4 === 3 && data[at] > 0).length / 2400;
        }"""
    )
    assert 0.05 < painted < 0.7, "hatched"


@pytest.mark.nightly
@pytest.mark.parametrize(("grain", "shown"), [("", "UTC day"), ("&grain=hour", "hour")])
def test_heat_map_has_the_granularity_of_the_chart(
    visit: Callable[..., Page], long_site: Site, grain: str, shown: str
) -> None:
    """Of more than two weeks, days by default."""
    begin = END - DAYS_OF_A_FORECAST
    page = visit(long_site, f"overview?start={at(begin)}&end={at(END)}&zone=utc{grain}")
    heat = page.get_by_role("application", name=f"Utilization of business units by {shown}")
    heat.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".grid .readout")).to_contain_text("25% of")
    chart = page.get_by_role("application", name=re.compile("cost over time"))
    chart.focus()
    page.keyboard.press("ArrowRight")
    readout = page.get_by_test_id("readout")
    expect(readout).to_contain_text("UTC")
    assert ("UTC day" in readout.inner_text()) == (shown == "UTC day")


def test_explore_shows_which_hours_and_prices_are_missing(visit: Callable[..., Page], site: Site) -> None:
    period = f"start={at(END - 40 * HOUR)}&end={at(END)}"
    page = visit(site, f"explore?{period}&zone=utc&grain=day&f.cluster=west")
    hours = site.ask(f"hours?{period}&cluster=west")["rows"]
    day = [row["status"] for row in hours if row["hour"][:10] == at(INCOMPLETE)[:10]]
    share = percent(Decimal(day.count("complete")), Decimal(len(day)))
    page.get_by_role("application", name=re.compile("Allocated cost over time")).focus()
    page.keyboard.press("Home")
    for _ in range((INCOMPLETE.date() - (END - 40 * HOUR).date()).days):
        page.keyboard.press("ArrowRight")
    expect(page.get_by_test_id("readout")).to_contain_text(f"{share} of hours complete")
    missing = sum(row["status"] == "missing" for row in hours)
    gaps = page.get_by_test_id("gaps").locator("li").all_inner_texts()
    assert sum(int(re.findall(r"(\d+) hours? missing", gap)[0]) for gap in gaps if "missing" in gap) == missing > 0
    rows = site.ask(f"costs?{period}&granularity=total&cluster=west&group_by=business_unit")["rows"]
    unpriced, allocated = (sum(row[f"{name}_gpu_hours"] for row in rows) for name in ("unpriced", "allocated"))
    expect(page.locator(".unpriced")).to_contain_text(f"{percent(unpriced, allocated)} of these GPU-hours")


def test_missing_hours_of_unused_clusters_are_no_gaps(visit: Callable[..., Page], site: Site) -> None:
    """A cluster that no unit uses lacks one hour, in which nightly held nothing."""
    before = (END - n * HOUR for n in range(11, 40))
    hour = next(each for each in before if each.day % 2 == 1 and each != UNPRICED and each not in MISSING)
    period = f"start={at(END - 40 * HOUR)}&end={at(END)}"
    hours = site.ask(f"hours?{period}")
    north = [
        {**row, "cluster": "north", "status": "missing" if row["hour"] == at(hour) else "complete"}
        for row in hours["rows"]
        if row["cluster"] == "west"
    ]

    def add_cluster(route: Route) -> None:
        body = simplejson.dumps({**hours, "rows": [*hours["rows"], *north]})
        route.fulfill(body=body, content_type="application/json")

    page = visit(site, "glossary")
    page.route("**/v1/hours*", add_cluster)
    for view in ("unit/nightly?", "explore?f.business_unit=nightly&"):
        page.goto(f"{site.address}/#/{view}{period}&zone=utc")
        expect(page.get_by_test_id("gaps").first).to_contain_text("west")
        expect(page.get_by_test_id("gaps").first).not_to_contain_text("north")
    page.goto(f"{site.address}/#/overview?{period}&zone=utc")
    expect(page.get_by_test_id("gaps")).to_contain_text("north")
    heat = page.get_by_role("application", name=re.compile("Utilization of business units by hour"))
    nightly = page.locator(".labels li").all_inner_texts().index("nightly")
    heat.focus()
    for key in ["Home", "Home", *["ArrowDown"] * nightly, *["ArrowRight"] * (40 - (END - hour) // HOUR)]:
        page.keyboard.press(key)
    expect(page.locator(".grid .readout")).to_contain_text(f"{hour:%H}:00 UTC: no GPUs allocated")


def test_headline_of_an_hour_names_the_clusters_without_figures(visit: Callable[..., Page], site: Site) -> None:
    """As if east had no record of the hour."""

    def without_east(route: Route) -> None:
        body = numbers(route.fetch().text())
        if "coverage" in body:
            body["coverage"] |= {"hours_complete": body["coverage"]["hours_complete"] - 1}
        for row in body["rows"]:
            if "status" in row and (row["cluster"], row["hour"]) == ("east", at(END - 2 * HOUR)):
                row |= {"status": "missing", "notes": []}
        route.fulfill(body=simplejson.dumps(body), content_type="application/json")

    page = visit(site, f"hour/{at(END - 2 * HOUR)}?zone=utc")
    headline = page.get_by_role("heading", level=1)
    expect(headline).not_to_contain_text("without")
    page.route(re.compile("/v1/(fleet|hours)"), without_east)
    page.goto(f"{site.address}/#/hour/{at(END - 3 * HOUR)}?zone=utc&hours=2")
    expect(headline).to_contain_text("2 hours, without 1 of 4 cluster-hours")
    page.goto(f"{site.address}/#/hour/{at(END - 2 * HOUR)}?zone=utc")
    expect(headline).to_have_text(re.compile("UTC, without east$"))


def test_hour_view_opens_any_hour(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"hour/{at(END - 20 * HOUR)}?zone=utc")
    page.clock.install(time=END + HOUR / 2)  # an hour may end meanwhile
    steps = page.get_by_role("navigation", name="Hours")
    expect(steps.get_by_role("link", name="Next →")).to_be_visible()
    hour = END - HOUR
    steps.get_by_label("Hour").fill(f"{hour:%Y-%m-%dT%H}:40")
    page.get_by_role("button", name="Open", exact=True).click()
    page.wait_for_url(re.compile(f"hour/{hour:%Y-%m-%dT%H}"))
    settled(page)
    lines = site.ask(f"lines?start={at(hour)}&end={at(hour + HOUR)}")["rows"]
    expect(page.get_by_test_id("lines").locator("tbody tr")).to_have_count(len(lines))
    expect(steps).to_contain_text("Newest")
    expect(steps.get_by_role("link", name="Next →")).to_have_count(0)


def test_page_goes_on_by_itself_when_the_notice_changes(tabs: Tabs, visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "overview?window=48h")
    notice = page.get_by_test_id("notice")
    expect(notice).to_have_count(0)
    early, late = "The history is loading: 3 of 35 days.", "The history is loading: 34 of 35 days."
    config = {"sign_in": None, "notice": early}
    page.route("**/config.json", lambda route: route.fulfill(json=config))
    page.route("**/v1/fleet?*", lambda route: route.fulfill(status=500))  # the demo starts
    page.clock.install()
    tabs.expected = ("/v1/fleet",)
    page.reload()
    expect(notice).to_have_text(early)
    expect(page.get_by_role("alert")).to_be_visible()
    page.unroute("**/v1/fleet?*")
    config["notice"] = late
    page.clock.run_for(11_000)
    expect(notice).to_have_text(late)
    expect(page.get_by_test_id("cost-period")).to_be_visible()
    with page.expect_request("**/v1/fleet?*"):
        del config["notice"]
        page.clock.run_for(11_000)
    expect(notice).to_have_count(0)


def test_a_small_missing_part_is_hatched_behind_the_bar(visit: Callable[..., Page], site: Site) -> None:
    """0.1% of the GPU-hours have no price: the place above each bar is hatched down to the bar, not only at the top.

    On odd days, bars have half the height of those of even days: below the middle, there is a bar in every hour.
    """
    period = f"start={at(END - 10 * HOUR)}&end={at(END)}&zone=utc&cluster=west"
    page = visit(site, f"overview?{period}&grain=hour")

    def above_the_bars() -> list[float]:
        canvas = page.get_by_role("application", name=re.compile("cost over time")).locator("canvas")
        painted: list[float] = canvas.evaluate(
            """(canvas) => {
              const pen = canvas.getContext("2d");
              const part = (top) => {
                const { data } = pen.getImageData(canvas.width / 4, top, canvas.width / 2, 6);
                return data.filter((_, at) => at % 4 === 3 && data[at] > 0).length / (data.length / 4);
              };
              return [9, canvas.height * 0.7].map(part);
            }"""
        )
        return painted

    before = above_the_bars()
    assert before[0] < 0.2, "at most one horizontal line of the grid, depending on the time of day"

    def set_unpriced(route: Route) -> None:
        response = numbers(route.fetch().text())
        for row in response["rows"]:
            row["unpriced_gpu_hours"] = row["allocated_gpu_hours"] / 1000
        route.fulfill(body=simplejson.dumps(response), content_type="application/json")

    page.route("**/v1/fleet*", set_unpriced)
    page.reload()
    settled(page)
    top, bar = above_the_bars()
    assert before[0] + 0.1 < top < 0.8, "hatched"
    assert bar == before[1] == 1, "the bar is drawn over the hatching"


def test_clusters_are_distinguished(visit: Callable[..., Page], site: Site) -> None:
    hour = END - 2 * HOUR
    page = visit(site, f"hour/{at(hour)}")
    table = page.get_by_test_id("lines")
    expect(table.get_by_role("columnheader", name="Node, cluster")).to_be_visible()
    lines = site.ask(f"lines?start={at(hour)}&end={at(hour + HOUR)}")["rows"]
    assert {line["cluster"] for line in lines} == {"west", "east"}
    expect(table.locator("tbody tr")).to_have_count(len(lines))
    page.get_by_label("Cluster").select_option("east")
    expect(table.locator("tbody tr")).to_have_count(1)
    expect(table.get_by_role("columnheader", name="Cluster")).to_have_count(0)


def at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:00:00Z}"
