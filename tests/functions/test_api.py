"""The api function's real handler with API Gateway's events and in-memory hours."""

import csv
import io
import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import jsonschema
import pytest
from msgspec.structs import replace

from authoring.openapi import main as openapi_main
from gpucost.core.amounts import Costs
from gpucost.core.hours import HOUR, format_timestamp
from gpucost.core.ledger import ClosedMonth
from gpucost_devstack.template import REPOSITORY
from tests.functions.in_memory_hours import DAY, DOCUMENT, INJECTION, NOON, NOW, Ask, InMemoryHours, at, usd
from tests.records import amount


def schema_of(path: str) -> dict[str, Any]:
    document = json.loads((REPOSITORY / "docs" / "reference" / "openapi.json").read_text())
    answer = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    return {**answer, "components": document["components"]}


@pytest.mark.usefixtures("day")
def test_costs_by_unit_and_hour_sum_exactly_to_the_totals(ask: Ask) -> None:
    answer = ask("/v1/costs", {**DAY, "group_by": "business_unit"})

    assert answer.status == 200
    rows = answer.json["rows"]
    assert [(row["start"], row["end"], row["group"], row["allocated_usd"]) for row in rows] == [
        ("2026-11-19T00:00:00Z", "2026-11-19T01:00:00Z", {"business_unit": "research"}, Decimal("17.000000000001")),
        ("2026-11-19T01:00:00Z", "2026-11-19T02:00:00Z", {"business_unit": INJECTION}, Decimal("3.333333333333")),
        ("2026-11-19T01:00:00Z", "2026-11-19T02:00:00Z", {"business_unit": "research"}, Decimal(5)),
    ]
    for name in Costs.names():
        amounts = [row[name] for row in rows if row[name] is not None]
        assert (sum(amounts) if amounts else None) == answer.json["totals"][name], "energy is not measured"
    for row in [*rows, answer.json["totals"]]:
        assert row["allocated_usd"] == row["effective_usd"] + row["waste_usd"] + row["unmeasured_usd"]
    assert answer.json["totals"]["node_cost_usd"] == 4 * 96
    assert {key: answer.json[key] for key in ("start", "end", "granularity", "group_by", "currency", "cursor")} == {
        **DAY,
        "granularity": "hour",
        "group_by": ["business_unit"],
        "currency": "USD",
        "cursor": None,
    }


@pytest.mark.usefixtures("day")
def test_gaps_add_nothing_and_lower_coverage(ask: Ask) -> None:
    answer = ask("/v1/costs", {**DAY, "cluster": "east"}).json

    assert answer["coverage"] == {
        "hours_expected": 23,
        "hours_complete": 2,
        "allocation": Decimal("0.75"),
        "utilization": None,
    }, "the day's last hour has just ended and is still computed"
    assert [row["start"] for row in answer["rows"]] == ["2026-11-19T00:00:00Z", "2026-11-19T01:00:00Z"]


def test_an_empty_ledger_has_no_rows_and_no_figures(ask: Ask) -> None:
    answer = ask("/v1/costs", DAY).json

    assert answer["rows"] == []
    assert set(answer["totals"].values()) == {None}
    assert answer["coverage"]["hours_complete"] == 0


@pytest.mark.usefixtures("day")
def test_a_day_is_a_single_period_in_any_order_of_dimensions(ask: Ask) -> None:
    answer = ask("/v1/costs", {**DAY, "granularity": "day", "group_by": "namespace,business_unit"}).json

    assert answer["group_by"] == ["namespace", "business_unit"]
    assert [(list(row["group"]), row["allocated_usd"]) for row in answer["rows"]] == [
        (["namespace", "business_unit"], Decimal("3.333333333333")),
        (["namespace", "business_unit"], Decimal(22)),
        (["namespace", "business_unit"], Decimal("0.000000000001")),
    ]
    assert {(row["start"], row["end"]) for row in answer["rows"]} == {(DAY["start"], DAY["end"])}


def test_capacity_is_null_if_an_hour_has_none(ask: Ask, day: InMemoryHours) -> None:
    day.put("east", at(3), {("research", "r1"): usd("1")}, capacity=None)
    totals = ask("/v1/costs", DAY).json["totals"]

    assert totals["node_cost_usd"] is None
    assert totals["allocated_usd"] == Decimal("26.333333333334")


def test_hours_that_have_not_ended_or_are_still_computed_are_not_expected(ask: Ask) -> None:
    query = {"start": "2026-11-19T22:00:00Z", "end": "2026-11-20T10:00:00Z", "cluster": "east"}

    assert ask("/v1/costs", query).json["coverage"]["hours_expected"] == 1


@pytest.mark.usefixtures("day")
def test_amounts_are_exact_json_numbers(ask: Ask) -> None:
    body = ask("/v1/costs", {**DAY, "group_by": "business_unit,namespace"}).body

    assert '"allocated_usd": 0.000000000001,' in body
    assert '"unmeasured_gpu_hours": 0,' in body
    assert "E-" not in body


@pytest.mark.usefixtures("day")
def test_csv_download_escapes_formulas(ask: Ask) -> None:
    answer = ask("/v1/costs", {**DAY, "group_by": "business_unit", "format": "csv"})

    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="costs.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.body, newline="")))
    assert rows[1]["business_unit"] == "'" + INJECTION
    assert rows[1]["allocated_usd"] == "3.333333333333"
    assert list(rows[0]) == ["start", "end", "business_unit", *Costs.names()]


@pytest.mark.usefixtures("day")
def test_business_units_include_units_without_gpus(ask: Ask) -> None:
    answer = ask("/v1/business-units", DAY).json

    assert [(row["business_unit"], row["allocated_usd"]) for row in answer["rows"]] == [
        (INJECTION, Decimal("3.333333333333")),
        ("idle", 0),
        ("research", Decimal("22.000000000001")),
    ]


@pytest.mark.usefixtures("day")
def test_hours_report_the_status_of_each_hour(ask: Ask) -> None:
    answer = ask("/v1/hours", {**DAY, "end": "2026-11-19T04:00:00Z", "cluster": "east"}).json

    assert [row["status"] for row in answer["rows"]] == ["complete", "complete", "incomplete", "missing"]
    assert answer["rows"][2]["coverage"] == {"allocation": Decimal("0.25"), "utilization": None}
    assert answer["rows"][2]["notes"] == ["a note"]
    assert answer["rows"][3]["version"] is None
    assert answer["coverage"]["hours_complete"] == 2
    assert {row["closed"] for row in answer["rows"]} == {False}


@pytest.mark.usefixtures("day")
def test_hours_of_a_closed_month_say_so(ask: Ask, prepared: InMemoryHours) -> None:
    prepared.months = [ClosedMonth("2026-10", NOW, "me", "chargeback")]
    answer = ask("/v1/hours", {"start": "2026-10-31T23:00:00Z", "end": "2026-11-01T01:00:00Z", "cluster": "east"}).json
    assert [(row["status"], row["closed"]) for row in answer["rows"]] == [("missing", True), ("missing", False)]


@pytest.mark.usefixtures("day")
def test_nodes_report_cost_and_price_source(ask: Ask) -> None:
    answer = ask("/v1/nodes", {**DAY, "end": "2026-11-19T01:00:00Z", "cluster": "east"}).json
    assert [(row["kind"], row["node"], row["price_source"], row["node_cost_usd"]) for row in answer["rows"]] == [
        ("node", "n1", "spot", 2),
        ("node", "n2", "", None),
        ("unused-savings-plan", "sp-1", "cur", 3),
    ]
    assert answer["rows"][1]["unpriced_capacity_gpu_hours"] == 2
    parts_without_price = [f"{part}_usd" for part in ("allocated", "effective", "waste", "unmeasured")]
    assert [answer["rows"][1][name] for name in parts_without_price] == [None] * 4
    assert answer["rows"][2]["capacity_gpu_hours"] is None
    refused = ask("/v1/nodes", {"start": "2026-11-17T00:00:00Z", "end": "2026-11-20T00:00:00Z"})
    assert refused.status == 400
    assert "more than 48 hours" in refused.json["detail"]


@pytest.mark.usefixtures("day")
def test_restatements_report_previous_figures_and_reason(ask: Ask) -> None:
    answer = ask("/v1/restatements", DAY).json
    assert [row["cluster"] for row in answer["rows"]] == ["east", "west"]
    row = answer["rows"][0]
    assert (row["version"], row["settings_version"], row["reason"], row["currency"]) == (2, 3, "a deal", "USD")
    assert row["restated_at"] == format_timestamp(NOW)
    assert row["before"]["allocated_usd"] == 2 * row["after"]["allocated_usd"] > 0
    for unit in row["business_units"]:
        assert unit["before"]["allocated_usd"] == 2 * unit["after"]["allocated_usd"]
    assert ask("/v1/restatements", {**DAY, "cluster": "north"}).status == 400


@pytest.mark.usefixtures("day")
@pytest.mark.parametrize(
    "path", ["/v1/costs", "/v1/business-units", "/v1/hours", "/v1/nodes", "/v1/restatements", "/health"]
)
def test_every_response_matches_the_openapi_document(ask: Ask, path: str) -> None:
    answer = ask(path, {} if path == "/health" else DAY)

    assert answer.status == 200
    jsonschema.validate(json.loads(answer.body), schema_of(path), cls=jsonschema.Draft202012Validator)


def test_a_month_by_day_spans_several_reads(ask: Ask, prepared: InMemoryHours) -> None:
    first = at(0) - timedelta(days=40)
    for number in range(40 * 24):
        prepared.put("east", first + HOUR * number, {("research", "r1"): usd("0.1")})
    query = {"start": format_timestamp(first), "end": DAY["start"], "granularity": "day", "group_by": "business_unit"}
    answer = ask("/v1/costs", query).json

    assert [row["allocated_usd"] for row in answer["rows"]] == [Decimal("2.4")] * 40
    assert answer["totals"]["allocated_usd"] == 96


@pytest.mark.parametrize("path", ["/v1/costs", "/health", "/openapi.json", "/nowhere"])
def test_every_response_has_the_security_headers(ask: Ask, path: str) -> None:
    headers = ask(path).headers

    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


def test_committed_openapi_document_matches_the_served_document(ask: Ask) -> None:
    committed = json.loads((REPOSITORY / "docs" / "reference" / "openapi.json").read_text())

    assert json.loads(ask("/openapi.json").body) == committed
    assert openapi_main(["--check"]) == 0
    for path in committed["paths"].values():
        for parameter in path["get"].get("parameters", []):
            assert parameter["description"]
            schema = parameter["schema"]
            assert {"examples", "enum", "const"} & schema.keys()


def test_a_provisional_hour_counts_its_figures_but_is_not_complete(ask: Ask, prepared: InMemoryHours) -> None:
    prepared.put("east", at(0), {("research", "r1"): usd("1")}, status="provisional")
    answer = ask("/v1/costs", {**DAY, "cluster": "east"}).json

    assert answer["totals"]["allocated_usd"] == 1
    assert answer["coverage"]["hours_complete"] == 0


def test_amounts_in_several_currencies_are_rejected(prepared: InMemoryHours, ask: Ask) -> None:
    figures = {("research", "bu-a"): Costs(allocated_usd=amount(1))}
    prepared.put("east", NOON, figures)
    prepared.put("west", NOON, figures)
    for key, summary in prepared.summaries_by_hour.items():
        if key[0] == "west":
            in_euros = replace(summary.manifest, currency="EUR")
            prepared.summaries_by_hour[key] = replace(summary, manifests=(in_euros,))
    period = {"start": format_timestamp(NOON), "end": format_timestamp(NOON + HOUR)}
    refused = ask("/v1/costs", period)
    assert refused.status == 400
    assert "amounts in EUR and USD, which cannot be added up. Select one cluster" in refused.json["detail"]
    assert ask("/v1/costs", {**period, "cluster": "west"}).json["currency"] == "EUR"
    assert ask("/v1/costs", {**period, "cluster": "east"}).json["currency"] == "USD"


def test_currency_comes_from_settings_without_figures(prepared: InMemoryHours, ask: Ask) -> None:
    prepared.put("east", at(0), {("research", "r1"): usd("1")})
    prepared.document = DOCUMENT.replace("gpu_hourly_usd: 12", "gpu_hourly_usd: 12, currency: EUR")
    assert ask("/v1/costs", {**DAY, "cluster": "west"}).json["currency"] == "EUR"
    assert ask("/v1/costs", {**DAY, "cluster": "east"}).json["currency"] == "USD", (
        "the currency of the hours, if there are any"
    )


def test_amounts_are_null_without_prices(prepared: InMemoryHours, ask: Ask) -> None:
    hours = amount(2)
    unknown = Costs(allocated_gpu_hours=hours, unpriced_gpu_hours=hours)
    costs = Costs(allocated_gpu_hours=hours, allocated_usd=amount(5), unmeasured_usd=amount(5))
    prepared.put("east", NOON, {("dark", "a"): unknown, ("bright", "b"): costs}, "provisional")
    answer = ask(
        "/v1/costs",
        {"start": format_timestamp(NOON), "end": format_timestamp(NOON + HOUR), "group_by": "business_unit"},
    ).json
    rows = {row["group"]["business_unit"]: row for row in answer["rows"]}
    assert (rows["dark"]["allocated_usd"], rows["dark"]["waste_usd"], rows["dark"]["unpriced_gpu_hours"]) == (
        None,
        None,
        2,
    )
    assert (rows["bright"]["allocated_usd"], rows["bright"]["unpriced_gpu_hours"]) == (5, 0)
    assert (answer["totals"]["allocated_usd"], answer["totals"]["unpriced_gpu_hours"]) == (5, 2)
