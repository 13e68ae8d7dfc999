"""Models and their consumers: every figure as the API has it, unknown tokens, hours without tokens, no models."""

import csv
import io
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any
from urllib.parse import quote

import pytest
import simplejson
from msgspec.structs import replace
from playwright.sync_api import Locator, Page, Route, expect

from gpucost.core.costs_by_model import InferenceRules, costs_by_model
from gpucost.core.hour_record import HourRecord, Line
from gpucost.core.hours import HOUR, floor_hour
from gpucost.core.metering.inference_servers import ServedTokens
from tests.browser.layout_checks import check_layouts
from tests.browser.shown import percent, round_usd, rounded, usd
from tests.browser.site import Site, deployment, numbers
from tests.browser.tabs import Tabs, settled
from tests.records import amount, line, record

SETTINGS = """
clusters:
  - {name: west, prometheus: {url: "http://127.0.0.1:9"}}
  - {name: east, prometheus: {url: "http://127.0.0.1:9"}}
pricing: {source: constant, gpu_hourly_usd: 4}
business_units: [{name: assistant, namespaces: [chat]}, {name: search, namespaces: [search]}]
inference: {enabled: true, consumer_label: tenant}
"""
END = floor_hour(datetime.now(UTC))
HOURS = 30
LATE = "night, 50% <i>batch</i>?*"
"""A consumer that is no business unit."""
ESCAPED = LATE.replace(",", "\\,").replace("*", "\\*")
LLAMA, RERANKER, ADAPTER = "meta-llama/Llama-3.1-8B-Instruct", "BAAI/bge-reranker-v2-m3", "sql, 50% <b>lora</b>?*"
MISSING = {END - HOUR * number for number in (7, 8)}
UNKNOWN = {END - HOUR * number for number in (11, 12)}
"""Hours in which the tokens of one of the two pods of a model are unknown."""
CONSUMERS = {True: {"search": 60, LATE: 30, "": 10}, False: {"": 100}}
"""By whether it is the first cluster: the percentages of who sent the requests of the first model."""
NIGHT = {END - HOUR * number for number in (3, 4, 5)}
"""Hours in which the model that is always waiting gets no requests."""
UNPRICED = END - 15 * HOUR


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with deployment(SETTINGS, records(), end=END) as deployed:
        yield deployed


def records() -> Iterator[HourRecord]:
    for number in range(HOURS, 0, -1):
        hour = END - number * HOUR
        if hour not in MISSING:
            yield serving_hour("west", hour, number)
        if number <= 20:
            yield serving_hour("east", hour, number)


def serving_hour(cluster: str, hour: datetime, number: int) -> HourRecord:
    """A model on two pods, with an adapter; one without tokens at night; one that counts requests only; a server
    whose counters are missing; a pod that is no server. In the first cluster, requests of the first model name who
    sent them.
    """
    is_west = cluster == "west"
    first, second = pod("chat", "llm", "a", Fraction(50 + number, 100)), pod("chat", "llm", "b", Fraction(1, 2))
    lines, served = [first, second], []
    for pod_line in lines:
        load = 1000 * number * (2 if is_west else 3)
        is_unknown = is_west and hour in UNKNOWN and pod_line is second
        served += [
            *(
                [ServedTokens(pod_line.namespace, pod_line.pod, "vllm", "")]
                if is_unknown
                else [
                    *(
                        ServedTokens(
                            pod_line.namespace,
                            pod_line.pod,
                            "vllm",
                            LLAMA,
                            3 * share * load,
                            share * load * 2 // 5,
                            share * load,
                            share * load // 100,
                            consumer,
                        )
                        for consumer, share in CONSUMERS[is_west].items()
                    ),
                    ServedTokens(pod_line.namespace, pod_line.pod, "vllm", ADAPTER, 30 * load, 9 * load, 0, load),
                ]
            )
        ]
    waiting = pod("search", "reranker", "c", Fraction(0), gpu="L4")
    requests_only = pod("search", "vision", "d", Fraction(1, 3), gpu="L4")
    missing = pod("search", "embedder", "e", Fraction(1, 4), gpu="L4")
    calls = 0 if hour in NIGHT else 50_000
    served += [
        ServedTokens("search", waiting.pod, "sglang", RERANKER, calls, calls // 10, None, calls // 100, "search"),
        ServedTokens("search", requests_only.pod, "triton", "resnet", requests=77 * number),
        ServedTokens("search", missing.pod, "tgi", ""),
    ]
    others = [line("assistant", "chat", "training", "8")._replace(gpu_model="H100", workload="train")]
    lines += [waiting, requests_only, missing, *others]
    if hour == UNPRICED:
        lines = [unpriced(pod_line) for pod_line in lines]
    return replace(
        record(lines, hour=hour, cluster=cluster), models=tuple(costs_by_model(lines, served, InferenceRules()))
    )


def pod(namespace: str, workload: str, name: str, use: Fraction, gpu: str = "H100") -> Line:
    """A pod that holds a GPU of 4 USD for the hour."""
    unit = {"chat": "assistant", "search": "search"}[namespace]
    used = line(unit, namespace, f"{workload}-{name}", "4")
    return used._replace(
        workload=workload,
        gpu_model=gpu,
        allocated_gpu_hours=amount(1),
        effective_gpu_hours=amount(use),
        effective_usd=amount(4 * use),
        waste_usd=amount(4) - amount(4 * use),
    )


def unpriced(pod_line: Line) -> Line:
    return pod_line._replace(
        gpu_hourly_usd=None,
        price_source="",
        allocated_usd=None,
        effective_usd=None,
        waste_usd=None,
        unmeasured_usd=None,
    )


DASH = "–"
PERIOD = f"start={END - 24 * HOUR:%Y-%m-%dT%H:00:00Z}&end={END:%Y-%m-%dT%H:00:00Z}"


def price(figure: Decimal | None) -> str:
    """A price of a million tokens."""
    if figure is None:
        return DASH
    if figure and figure < Decimal("0.00005"):
        return "<$0.0001"
    return f"${rounded(figure, 4 if 0 < figure < 10 else 2)}"


def count(figure: Decimal | None) -> str:
    """A count, from 10,000 on with three digits."""
    if figure is None:
        return DASH
    if figure < 10_000:
        return rounded(figure, 0)
    short = figure.quantize(Decimal(1).scaleb(figure.adjusted() - 2), ROUND_HALF_UP)
    thousands = short.adjusted() // 3
    scaled = short.scaleb(-3 * thousands)
    return f"{rounded(scaled, 2 - scaled.adjusted())}{' KMBT'[thousands]}"


def rate(figure: Decimal | None) -> str:
    return DASH if figure is None else rounded(figure, 1) if figure < 10_000 else count(figure)


def cost(figure: Decimal | None) -> str:
    return DASH if figure is None else usd(figure)


COLUMNS: tuple[tuple[str, Callable[[Any], str]], ...] = (
    ("allocated_usd", cost),
    ("usd_per_million_tokens", price),
    ("usd_per_million_tokens_at_full_use", price),
    ("usd_per_million_generated_tokens", price),
    ("effective_usd", cost),
    ("waste_usd", cost),
    ("unmeasured_usd", cost),
    ("unknown_tokens_usd", cost),
    ("tokens_per_gpu_second", rate),
    ("requests", count),
    ("prompt_tokens", count),
    ("cached_tokens", count),
    ("generated_tokens", count),
)
"""The columns of models, in order."""


def figures(row: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """A row as the page shows it: without the columns in which nothing is."""
    optional = ("unmeasured_usd", "unknown_tokens_usd")
    empty = {name for name in optional if all(each[name] == 0 for each in rows)}
    return [show(row[name]) for name, show in COLUMNS if name not in empty]


def owned(row: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    """A row of the table of models, with its business unit after the cost."""
    first, *others = figures(row, rows)
    return [row["group"]["model"] or "unknown", first, row["group"]["business_unit"], *others]


def cells(table: Locator) -> list[list[str]]:
    return [row.locator("td").all_inner_texts() for row in table.locator("tbody tr").all()]


def model_view(name: str, more: str = "") -> str:
    return f"model/{quote(name, safe='')}?{PERIOD}&zone=utc{more}"


def test_models_match_the_api(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"models?{PERIOD}&zone=utc")
    by = "group_by=model,business_unit"
    rows = site.ask(f"inference?{PERIOD}&granularity=total&{by}&server=*&sort=-allocated_usd")["rows"]
    names = [row["group"]["model"] for row in rows]
    assert set(names) == {None, LLAMA, ADAPTER, RERANKER, "resnet"}
    table = page.get_by_test_id("models")
    assert sorted(cells(table)) == sorted(owned(row, rows) for row in rows)
    shown = [Decimal(row[1].strip("$")) for row in cells(table)]
    assert shown == sorted(shown, reverse=True)
    table.get_by_role("button", name="Per 1M tokens").click()
    prices = [row["usd_per_million_tokens"] for row in rows if row["usd_per_million_tokens"] is not None]
    expected = [price(figure) for figure in sorted(prices, reverse=True)] + [DASH] * (len(rows) - len(prices))
    expect(table.locator("tbody tr td:nth-child(4)")).to_have_text(expected)
    assert page.locator("main b").count() == 0, "names are text"


def test_sums_of_models_match_the_api(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"models?{PERIOD}&zone=utc")
    response = site.ask(f"inference?{PERIOD}&granularity=total&server=*")
    (total,) = response["rows"]
    stats = {
        "per-million": price(total["usd_per_million_tokens"]),
        "cost": round_usd(total["allocated_usd"]),
        "serving": round_usd(total["effective_usd"]),
        "waiting": round_usd(total["waste_usd"]),
        "prompt": count(total["prompt_tokens"]),
        "generated": count(total["generated_tokens"]),
        "load": rate(total["tokens_per_gpu_second"]),
    }
    assert {name: page.get_by_test_id(name).inner_text() for name in stats} == stats
    main = page.locator("main")
    expect(main).to_contain_text(f"{price(total['usd_per_million_tokens_at_full_use'])} at full use")
    generated = price(total["usd_per_million_generated_tokens"])
    expect(main).to_contain_text(f"per 1M generated tokens alone {generated}")
    expect(main).to_contain_text(f"{percent(total['waste_usd'], total['allocated_usd'])} of the allocated cost")
    expect(main).to_contain_text("cached: unknown")
    p50, p95 = (rate(total[f"tokens_per_gpu_second_{name}"]) for name in ("p50", "p95"))
    expect(main).to_contain_text(f"p50 {p50}, p95 {p95} of hours")
    expect(main).to_contain_text(f"in {count(total['requests'])} requests")
    expect(page.get_by_test_id("unknown-tokens")).to_contain_text(round_usd(total["unknown_tokens_usd"]))
    expect(main).to_contain_text(f"seen in {response['hours_with_servers']} cluster-hours")


def test_filters_are_those_of_the_api(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"models?{PERIOD}&zone=utc")
    page.get_by_text("Add filter").click()
    page.get_by_label("Dimension of the filter").select_option("gpu_model")
    page.get_by_label("Name that the filter matches").fill("L4")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_role("group", name="Filters")).to_contain_text("GPU model is L4")
    settled(page)
    by = "group_by=model,business_unit"
    rows = site.ask(f"inference?{PERIOD}&granularity=total&{by}&server=*&gpu_model=L4")["rows"]
    assert len(rows) == 3
    expect(page.get_by_test_id("models").locator("tbody tr")).to_have_count(3)
    assert sorted(cells(page.get_by_test_id("models"))) == sorted(owned(row, rows) for row in rows)
    page.get_by_role("link", name="resnet").click()
    settled(page)
    expect(page.get_by_role("group", name="Filters")).to_contain_text("GPU model is L4")
    expect(page.get_by_role("heading", level=1)).to_have_text("Model resnet")


def test_csv_has_the_rows_and_order_of_the_table(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"models?{PERIOD}&zone=utc&models-sort=-requests&f.business_unit=assistant")
    with page.expect_download() as begun:
        page.get_by_role("region", name="Costs by model", exact=True).get_by_role("button", name="Download CSV").click()
    text = begun.value.path().read_text()
    query = f"{PERIOD}&granularity=total&group_by=model&server=*&business_unit=assistant&sort=-requests"
    rows = site.ask(f"inference?{query}")["rows"]
    table = list(csv.DictReader(io.StringIO(text)))
    assert [row["model"] for row in table] == [row["group"]["model"] or "" for row in rows]
    assert [Decimal(row["allocated_usd"]) for row in table] == [row["allocated_usd"] for row in rows]


def test_model_matches_the_api(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"models?{PERIOD}&zone=utc")
    page.get_by_role("link", name=LLAMA).click()
    settled(page)
    assert "#/model/meta-llama%2FLlama-3.1-8B-Instruct?" in page.url
    (total,) = site.ask(f"inference?{PERIOD}&granularity=total&model={LLAMA}")["rows"]
    assert page.get_by_test_id("cost").inner_text() == round_usd(total["allocated_usd"])
    names = ("tokens", "prompt_tokens", "cached_tokens", "generated_tokens")
    prices = [(f"usd_per_million_{name}", 1) for name in names] + [("usd_per_request", 1000)]
    uncached = total["prompt_tokens"] - total["cached_tokens"]
    counts = (
        total["prompt_tokens"] + total["generated_tokens"],
        uncached,
        total["cached_tokens"],
        total["generated_tokens"],
        total["requests"],
    )
    assert [row[1:] for row in cells(page.get_by_test_id("unit-costs"))] == [
        [
            price(factor * total[name]),
            price(factor * total[f"{name}_at_full_use"]),
            price(factor * (total[name] - total[f"{name}_at_full_use"])),
            count(number),
        ]
        for (name, factor), number in zip(prices, counts, strict=True)
    ]
    as_it_was, full = total["usd_per_million_tokens"], total["usd_per_million_tokens_at_full_use"]
    assert legend(page, "Cost per 1M prompt and generated tokens over time") == [
        f"at full use {price(full)}",
        f"added by waiting {price(as_it_was - full)}",
        f"as it was {price(as_it_was)}",
        "missing",
    ]
    assert legend(page, "Allocated cost over time") == [
        f"effective cost {usd(total['effective_usd'])}",
        f"waste {usd(total['waste_usd'])}",
        f"allocated cost {usd(total['allocated_usd'])}",
        "missing",
    ]
    assert legend(page, "Load over time") == [
        f"tokens per GPU-second {rate(total['tokens_per_gpu_second'])}",
        "missing",
    ]


def legend(page: Page, section: str) -> list[str]:
    return page.get_by_role("region", name=f"{section}, by hour", exact=True).locator(".legend li").all_inner_texts()


def test_hours_of_a_model_match_the_api(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, model_view(LLAMA))
    query = f"inference?{PERIOD}&granularity=hour&model={LLAMA}"
    hours = {row["start"]: row for row in site.ask(query)["rows"]}
    costs = readouts(page, "Cost per 1M prompt and generated tokens over time")
    loads = readouts(page, "Load over time")
    assert len(costs) == len(loads) == 24
    for number, (cost_text, load_text) in enumerate(zip(costs, loads, strict=True)):
        hour = END - (24 - number) * HOUR
        row = hours[f"{hour:%Y-%m-%dT%H:00:00Z}"]
        assert f"tokens per GPU-second {rate(row['tokens_per_gpu_second'])}" in load_text
        if hour == UNPRICED:
            assert "The GPUs have no price yet." in cost_text
            assert "$" not in cost_text
            continue
        as_it_was, full = row["usd_per_million_tokens"], row["usd_per_million_tokens_at_full_use"]
        assert f"at full use {price(full)} ({percent(full, as_it_was)})" in cost_text
        assert f"as it was {price(as_it_was)}" in cost_text
        assert ("Tokens of pods that cost $4.00 are unknown." in cost_text) == (hour in UNKNOWN)
        assert ("50% of hours complete" in cost_text) == (hour in MISSING or number < 4)
    unknown = len(UNKNOWN) * 4
    expect(page.get_by_test_id("unknown-pods")).to_contain_text(f"cost ${unknown}.00 have unknown tokens")


def readouts(page: Page, section: str) -> list[str]:
    """The texts of all bars, by keyboard."""
    region = page.get_by_role("region", name=f"{section}, by hour", exact=True)
    region.get_by_role("application").focus()
    texts: list[str] = []
    for _ in range(24):
        page.keyboard.press("ArrowRight")
        texts.append(region.get_by_test_id("readout").inner_text())
    return texts


def test_hours_without_tokens_have_no_price(visit: Callable[..., Page], site: Site) -> None:
    """A cost without tokens is not zero per million, and not unknown: it is waste."""
    page = visit(site, model_view(RERANKER))
    costs = readouts(page, "Cost per 1M prompt and generated tokens over time")
    loads = readouts(page, "Load over time")
    for hour in NIGHT:
        index = 24 - (END - hour) // HOUR
        assert "No tokens were processed. The GPUs cost $8.00." in costs[index]
        assert "at full use" not in costs[index]
        assert "tokens per GPU-second 0.0" in loads[index]


def test_tokens_that_are_not_counted_are_unknown(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, model_view("resnet"))
    assert page.get_by_test_id("per-million").inner_text() == DASH
    assert page.get_by_test_id("prompt").inner_text() == DASH
    assert page.get_by_test_id("load").inner_text() == DASH
    assert all("Tokens are unknown." in text for text in readouts(page, "Load over time"))
    (total,) = site.ask(f"inference?{PERIOD}&granularity=total&model=resnet")["rows"]
    requests = cells(page.get_by_test_id("unit-costs"))[-1]
    assert requests[1] == price(1000 * total["usd_per_request"])
    assert requests[-1] == count(total["requests"])


BREAKDOWNS = {
    "Workload": ("cluster,namespace,workload_kind,workload", ("workload", "cluster")),
    "Consumer": ("consumer", ("consumer",)),
    "Business unit": ("business_unit", ("business_unit",)),
    "Inference server": ("server", ("server",)),
    "GPU model": ("gpu_model", ("gpu_model",)),
    "Cluster": ("cluster", ("cluster",)),
}


def test_breakdowns_match_the_api(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, model_view(LLAMA))
    for title, (group_by, names) in BREAKDOWNS.items():
        page.get_by_role("navigation", name="Dimensions").get_by_role("link", name=title).click()
        expect(page.get_by_test_id("groups").locator("th").first).to_have_text(title)
        settled(page)
        rows = site.ask(f"inference?{PERIOD}&granularity=total&group_by={group_by}&model={LLAMA}")["rows"]
        shown = [[row[0].split("\n")[0], *row[1:]] for row in cells(page.get_by_test_id("groups"))]
        assert sorted(shown) == sorted(
            [*(row["group"][name] or "none" for name in names), *figures(row, rows)] for row in rows
        )


def test_consumers_match_the_api_and_lead_to_their_pages(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"models?{PERIOD}&zone=utc")
    table = page.get_by_test_id("consumers")
    expect(table.locator("th").first).to_have_text("Consumer ")
    query = f"{PERIOD}&granularity=total&group_by=consumer&server=*&sort=-allocated_usd"
    rows = site.ask(f"inference?{query}")["rows"]
    assert [row["group"]["consumer"] for row in rows] == [None, "search", LATE]
    expect(page.get_by_role("region", name="Costs by consumer", exact=True)).to_contain_text(
        "2 consumers, and a row for what has none. The cost of a consumer is its part of the servers' cost"
    )
    assert cells(table) == [[row["group"]["consumer"] or "none", *figures(row, rows)] for row in rows]
    assert page.locator("main i").count() == 0, "names are text"
    with page.expect_download() as begun:
        page.get_by_role("region", name="Costs by consumer", exact=True).get_by_role(
            "button", name="Download CSV"
        ).click()
    csv_rows = csv.DictReader(io.StringIO(begun.value.path().read_text()))
    assert [row["consumer"] for row in csv_rows] == ["", "search", LATE]
    table.get_by_role("link", name=LATE).click()
    settled(page)
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Consumer {LATE}")
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="All consumers").click()
    expect(table).to_contain_text(LATE)


def test_tables_of_models_and_consumers_show_all_columns_on_4k(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"models?{PERIOD}&zone=utc", viewport={"width": 3840, "height": 2160})
    for name in ("Costs by model", "Costs by consumer"):
        table = page.get_by_role("region", name=name, exact=True).locator(".scroller").first
        assert table.evaluate("(box) => box.scrollWidth <= box.clientWidth + 1"), name


def test_consumer_matches_the_api(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"unit/search?{PERIOD}&zone=utc")
    page.get_by_role("link", name="Models that it used").click()
    settled(page)
    expect(page.get_by_role("heading", level=1)).to_have_text("Consumer search")
    query = f"inference?{PERIOD}&server=*&consumer=search"
    (total,) = site.ask(f"{query}&granularity=total")["rows"]
    stats = {
        "per-million": price(total["usd_per_million_tokens"]),
        "cost": round_usd(total["allocated_usd"]),
        "serving": round_usd(total["effective_usd"]),
        "waiting": round_usd(total["waste_usd"]),
        "prompt": count(total["prompt_tokens"]),
        "generated": count(total["generated_tokens"]),
    }
    assert {name: page.get_by_test_id(name).inner_text() for name in stats} == stats
    expect(page.locator("main")).to_contain_text(f"in {count(total['requests'])} requests")
    models = site.ask(f"{query}&granularity=total&group_by=model&sort=-allocated_usd")["rows"]
    assert [row["group"]["model"] for row in models] == [RERANKER, LLAMA]
    assert cells(page.get_by_test_id("groups")) == [[row["group"]["model"], *figures(row, models)] for row in models]
    owners = site.ask(f"{query}&granularity=total&group_by=business_unit&sort=-allocated_usd")["rows"]
    page.get_by_role("navigation", name="Dimensions").get_by_role("link", name="Business unit").click()
    expect(page.get_by_test_id("groups").locator("th").first).to_have_text("Business unit")
    settled(page)
    assert cells(page.get_by_test_id("groups")) == [
        [row["group"]["business_unit"], *figures(row, owners)] for row in owners
    ]
    expect(page.locator("main")).to_contain_text("The business units that own the servers")
    page.get_by_role("navigation", name="Dimensions").get_by_role("link", name="Model", exact=True).click()
    page.get_by_test_id("groups").get_by_role("link", name=LLAMA).click()
    settled(page)
    expect(page.get_by_role("group", name="Filters")).to_contain_text("Consumer is search")
    expect(page.get_by_test_id("cost")).to_have_text(round_usd(models[1]["allocated_usd"]))


def test_hours_of_a_consumer_match_the_api(visit: Callable[..., Page], site: Site) -> None:
    """What unnamed requests to its models cost is said next to it, and part of no figure."""
    page = visit(site, f"consumer/{quote(LATE, safe='')}?{PERIOD}&zone=utc&cluster=west")
    query = f"inference?{PERIOD}&granularity=hour&cluster=west&model={LLAMA}"
    hours = {row["start"]: row for row in site.ask(f"{query}&consumer={quote(ESCAPED, safe='')}")["rows"]}
    unnamed = {row["start"]: row for row in site.ask(f"{query}&consumer=!*")["rows"]}
    texts = readouts(page, "Tokens over time")
    assert len(texts) == 24
    for number, text in enumerate(texts):
        hour = END - (24 - number) * HOUR
        start = f"{hour:%Y-%m-%dT%H:00:00Z}"
        if hour in MISSING:
            assert "no data: missing or incomplete" in text
            continue
        tokens = [Decimal(hours[start][name]) for name in ("prompt_tokens", "generated_tokens")]
        pods, load = 2 - (hour in UNKNOWN), 2000 * (24 - number)
        assert tokens == [pods * 90 * load, pods * 12 * load]
        assert f"prompt tokens {count(tokens[0])}" in text
        assert f"generated tokens {count(tokens[1])}" in text
        if hour != UNPRICED:
            lost = unnamed[start]["allocated_usd"] + 4 * (hour in UNKNOWN)
            assert f"Requests that cost {usd(lost)} have no consumer's name." in text


def test_unknown_consumers_list_the_steps(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"{model_view('resnet')}&by=consumer")
    steps = page.get_by_test_id("no-consumers")
    for text in (
        "Who used this model is unknown",
        "inference.consumer_label",
        "inference.gateway",
        "consumers",
        "docs/explanation/inference.md",
    ):
        expect(steps).to_contain_text(text)
    expect(page.get_by_test_id("groups")).to_have_count(0)
    page.goto(f"{site.address}/#/models?{PERIOD}&zone=utc&cluster=east&f.model=resnet")
    settled(page)
    expect(steps).to_contain_text("Who used the models of this period is unknown")
    page.goto(f"{site.address}/#/consumer/no-such?{PERIOD}&zone=utc")
    settled(page)
    expect(steps).to_contain_text("No requests of this consumer were counted in this period")
    page.get_by_role("link", name="all consumers", exact=True).click()
    expect(page.get_by_test_id("consumers")).to_contain_text("search")


def test_names_with_any_characters_lead_to_their_model(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"models?{PERIOD}&zone=utc")
    page.get_by_role("link", name=ADAPTER).click()
    settled(page)
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Model {ADAPTER}")
    rows = site.ask(f"inference?{PERIOD}&granularity=total&group_by=model&sort=model")["rows"]
    adapter = next(row for row in rows if row["group"]["model"] == ADAPTER)
    expect(page.get_by_test_id("cost")).to_have_text(round_usd(adapter["allocated_usd"]))
    page.get_by_role("navigation", name="Breadcrumb").get_by_role("link", name="All models").click()
    expect(page.get_by_test_id("models")).to_be_visible()


def test_unit_leads_to_its_models(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, f"unit/search?{PERIOD}&zone=utc")
    page.get_by_role("link", name="Models of this unit").click()
    settled(page)
    expect(page.get_by_role("group", name="Filters")).to_contain_text("Business unit is search")
    names = [row[0] for row in cells(page.get_by_test_id("models"))]
    assert sorted(names) == [RERANKER, "resnet", "unknown"]


def test_models_are_listed_only_if_there_are_servers(tabs: Tabs, visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "overview?zone=utc")
    views = page.get_by_role("navigation", name="Views")
    expect(views.get_by_role("link", name="Models")).to_be_visible()

    def without_servers(route: Route) -> None:
        answer = {**numbers(route.fetch().text()), "rows": [], "totals": None, "hours_with_servers": 0}
        route.fulfill(body=simplejson.dumps(answer), content_type="application/json")

    page.route("**/v1/inference*", without_servers)
    with page.expect_response("**/v1/inference*"):
        page.reload()
    settled(page)
    expect(views.get_by_role("link", name="Savings")).to_be_visible()
    expect(views.get_by_role("link", name="Models")).to_have_count(0)
    page.goto(f"{site.address}/#/unit/search?zone=utc")
    settled(page)
    expect(page.get_by_role("link", name="Models of this unit")).to_have_count(0)


def test_period_without_servers_lists_the_steps(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, "models?start=2020-01-01T00:00:00Z&end=2020-01-02T00:00:00Z&zone=utc")
    for text in ("inference: {enabled: true}", "gpucost settings push", "gpucost doctor"):
        expect(page.get_by_test_id("no-servers")).to_contain_text(text)


def test_model_that_was_not_served_says_so(visit: Callable[..., Page], site: Site) -> None:
    page = visit(site, model_view("no/such model"))
    expect(page.locator("main")).to_contain_text("No server of this model was seen in this period")
    page.get_by_role("link", name="all models", exact=True).click()
    expect(page.get_by_test_id("models")).to_be_visible()


@pytest.mark.parametrize("view", ["models", f"model/{quote(LLAMA, safe='')}", f"consumer/{quote(LATE, safe='')}"])
def test_layouts(visit: Callable[..., Page], site: Site, view: str) -> None:
    check_layouts(visit(site, f"{view}?{PERIOD}&zone=utc"))
