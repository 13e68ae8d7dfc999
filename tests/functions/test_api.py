"""The api function's real handler, asked with API Gateway's events, over prepared hours."""

import csv
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jsonschema
import pytest

from gpucost import bootstrap
from gpucost.domain.hours import HOUR, floor_day, format_instant
from gpucost.domain.ledger import HourSummary, Manifest, Restatement
from gpucost.domain.model import Capacity, ClusterCharge, Costs, Coverage, Line, NodeHour, Status, Totals
from gpucost.domain.money import quantize, split
from gpucost.domain.rollups import DaySummary, FactKey, days_of, sum_day
from gpucost.errors import ConflictError, GpuCostError, NotFoundError, SettingsMissingError, SourceError
from gpucost.ports import StoredSettings
from gpucost.services.reports import reading, service
from gpucost.settings import parse_settings
from local.openapi import main as openapi_main
from tests.functions.asking import Answer, ask_as, by_iam

NOW = datetime(2026, 11, 20, 0, 5, tzinfo=UTC)
NOON = datetime(2026, 11, 19, 12, tzinfo=UTC)
DAY = {"start": "2026-11-19T00:00:00Z", "end": "2026-11-20T00:00:00Z"}
DOCUMENT = """
clusters:
  - {name: east, prometheus: {url: "http://127.0.0.1:9090"}}
  - {name: west, prometheus: {url: "http://127.0.0.1:9090"}}
pricing: {source: constant, gpu_hourly_usd: 12}
business_units: [{name: research, namespaces: ["r*"]}, {name: idle, namespaces: ["idle"]}]
"""
CAPACITY = Capacity(node_cost_usd=quantize(96))
SOMEBODY = by_iam("arn:aws:iam::123456789012:user/finance")
NASTY = '=cmd|"<script>"\n,<!here>'


class Prepared:
    """Settings and hours as a test prepares them; raises what a test wants."""

    def __init__(self) -> None:
        self.summaries_of: dict[tuple[str, datetime], HourSummary] = {}
        self.failure: Exception | None = None

    def current(self) -> StoredSettings:
        if self.failure is not None:
            raise self.failure
        return StoredSettings(1, DOCUMENT, parse_settings(DOCUMENT), "test", NOW)

    def put(
        self,
        cluster: str,
        hour: datetime,
        groups: dict[tuple[str, str], Costs],
        status: Status = "complete",
        capacity: Capacity | None = CAPACITY,
    ) -> None:
        totals = None if status == "incomplete" else Totals(Costs.total(groups.values()), capacity)
        coverage = Coverage(Decimal("0.25") if totals is None else Decimal(1), None)
        self.summaries_of[cluster, hour] = HourSummary(cluster, hour, status, 1, coverage, totals, groups)

    def summaries(self, cluster: str, start: datetime, end: datetime) -> list[HourSummary]:
        found = sorted(self.summaries_of.items())
        return [summary for (name, hour), summary in found if name == cluster and start <= hour < end]

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        return [
            Manifest(cluster, summary.hour, summary.status, 1, "run", 1, summary.coverage, 0, None, NOW)
            for summary in self.summaries(cluster, start, end)
        ]

    def days(self, cluster: str, start: datetime, end: datetime) -> list[DaySummary]:
        """Each from its hours, as the table's own do (tests/adapters/test_rollups.py)."""
        manifests = self.manifests(cluster, start, end)
        return [
            sum_day(
                cluster,
                day,
                [one for one in manifests if floor_day(one.hour) == day],
                self.summaries(cluster, day, day + 24 * HOUR),
            )
            for day in days_of(manifest.hour for manifest in manifests)
        ]

    def facts(
        self, cluster: str, start: datetime, end: datetime, business_unit: str | None = None
    ) -> list[tuple[datetime, dict[FactKey, Costs]]]:
        """Each hour's groups, as workloads that have no other facts."""
        assert business_unit is None
        return [
            (
                floor_day(one.hour),
                {
                    FactKey(unit, namespace, "", "", "", "", "", "", "", "", ()): costs
                    for (unit, namespace), costs in one.groups.items()
                },
            )
            for one in self.summaries(cluster, start, end)
        ]  # fmt: skip

    def lines(self, cluster: str, hour: datetime, business_unit: str | None = None) -> list[Line]:
        """Nobody holds anything on the nodes below."""
        return []

    def nodes(self, cluster: str, hour: datetime) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """One with a price and one without, beside a commitment that nobody used."""
        two = quantize(Decimal(2))
        known = Capacity(capacity_gpu_hours=two, unallocated_gpu_hours=two, node_cost_usd=two, unallocated_usd=two)
        unknown = Capacity(capacity_gpu_hours=two, unallocated_gpu_hours=two, unpriced_capacity_gpu_hours=two)
        facts = ("pool", "g5.xlarge", "spot", "a", "A10G")
        nodes = (
            NodeHour("n1", "aws:///a/i-1", *facts, "spot", "scad", None, quantize(Decimal(0)), known),
            NodeHour("n2", "aws:///a/i-2", *facts, "", "", None, quantize(Decimal(0)), unknown),
        )
        return nodes, (ClusterCharge("unused-savings-plan", "sp-1", Decimal(3)),)

    def restatements(self, cluster: str, start: datetime, end: datetime) -> list[Restatement]:
        """The first hour of every cluster cost twice as much before."""
        found = self.summaries(cluster, start, end)[:1]
        return [
            Restatement(
                cluster, one.hour, 2, NOW, 3, "a deal", doubled(one.totals), one.totals,
                {unit: (doubled(Totals(costs, None)).costs, costs) for (unit, _), costs in one.groups.items()},
            )
            for one in found
            if one.totals is not None
        ]  # fmt: skip

    def notes(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, tuple[str, ...]]:
        return {summary.hour: ("a note",) for summary in self.summaries(cluster, start, end)}


def doubled(totals: Totals) -> Totals:
    return replace(totals, costs=Costs.total([totals.costs, totals.costs]))


Ask = Callable[..., Answer]


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> Iterator[Prepared]:
    known = Prepared()
    monkeypatch.setattr(bootstrap, "ledger", lambda: known)
    monkeypatch.setattr(bootstrap, "rollups", lambda: known)
    monkeypatch.setattr(bootstrap, "settings_store", lambda: known)
    monkeypatch.setattr(bootstrap, "utc_now", lambda: NOW)
    for made in (bootstrap.report_service, bootstrap.access_policy):
        made.cache_clear()
    yield known
    for made in (bootstrap.report_service, bootstrap.access_policy):
        made.cache_clear()


@pytest.fixture
def ask(prepared: Prepared) -> Ask:
    return partial(ask_as, SOMEBODY)


def usd(amount: str) -> Costs:
    """Costs with an uneven split, so that sums must be exact to be right."""
    allocated = quantize(Decimal(amount))
    effective, waste, unmeasured = split(allocated, [1, 4, 2])
    return Costs(
        allocated_gpu_hours=quantize(allocated / 12),
        allocated_usd=allocated,
        effective_usd=effective,
        waste_usd=waste,
        unmeasured_usd=unmeasured,
    )


def at(hour: int, day: int = 19) -> datetime:
    return datetime(2026, 11, day, hour, tzinfo=UTC)


@pytest.fixture
def day(prepared: Prepared) -> Prepared:
    """Two hours of two clusters, one incomplete hour, and twenty missing in each."""
    prepared.put("east", at(0), {("research", "r1"): usd("10"), ("research", "r2"): usd("0.000000000001")})
    prepared.put("east", at(1), {("research", "r1"): usd("5"), (NASTY, NASTY): usd("3.333333333333")})
    prepared.put("east", at(2), {}, status="incomplete")
    prepared.put("west", at(0), {("research", "r1"): usd("7")})
    prepared.put("west", at(1), {}, status="complete")
    return prepared


def schema_of(path: str) -> dict[str, Any]:
    document = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())
    answer = document["paths"][path]["get"]["responses"]["200"]["content"]["application/json"]["schema"]
    return {**answer, "components": document["components"]}


@pytest.mark.usefixtures("day")
def test_costs_by_unit_and_hour_sum_exactly_to_the_totals(ask: Ask) -> None:
    answer = ask("/v1/costs", {**DAY, "group_by": "business_unit"})

    assert answer.status == 200
    rows = answer.json["rows"]
    assert [(row["start"], row["end"], row["group"], row["allocated_usd"]) for row in rows] == [
        ("2026-11-19T00:00:00Z", "2026-11-19T01:00:00Z", {"business_unit": "research"}, Decimal("17.000000000001")),
        ("2026-11-19T01:00:00Z", "2026-11-19T02:00:00Z", {"business_unit": NASTY}, Decimal("3.333333333333")),
        ("2026-11-19T01:00:00Z", "2026-11-19T02:00:00Z", {"business_unit": "research"}, Decimal(5)),
    ]
    for name in Costs.names():
        assert sum(row[name] for row in rows) == answer.json["totals"][name]
    for row in [*rows, answer.json["totals"]]:
        assert row["allocated_usd"] == row["effective_usd"] + row["waste_usd"] + row["unmeasured_usd"]
    assert answer.json["totals"]["node_cost_usd"] == 4 * 96
    assert {key: answer.json[key] for key in ("start", "end", "granularity", "group_by", "currency", "cursor")} == {
        **DAY, "granularity": "hour", "group_by": ["business_unit"], "currency": "USD", "cursor": None,
    }  # fmt: skip


@pytest.mark.usefixtures("day")
def test_gaps_add_nothing_and_are_seen(ask: Ask) -> None:
    answer = ask("/v1/costs", {**DAY, "cluster": "east"}).json

    assert answer["coverage"] == {
        "hours_expected": 24, "hours_complete": 2, "allocation": Decimal("0.75"), "utilization": None,
    }  # fmt: skip
    assert [row["start"] for row in answer["rows"]] == ["2026-11-19T00:00:00Z", "2026-11-19T01:00:00Z"]


def test_an_empty_ledger_has_no_rows_and_no_figures(ask: Ask) -> None:
    answer = ask("/v1/costs", DAY).json

    assert answer["rows"] == []
    assert set(answer["totals"].values()) == {None}
    assert answer["coverage"]["hours_complete"] == 0


@pytest.mark.usefixtures("day")
def test_a_day_is_one_period_whatever_the_order_of_dimensions(ask: Ask) -> None:
    answer = ask("/v1/costs", {**DAY, "granularity": "day", "group_by": "namespace,business_unit"}).json

    assert answer["group_by"] == ["namespace", "business_unit"]
    assert [(list(row["group"]), row["allocated_usd"]) for row in answer["rows"]] == [
        (["namespace", "business_unit"], Decimal("3.333333333333")),
        (["namespace", "business_unit"], Decimal(22)),
        (["namespace", "business_unit"], Decimal("0.000000000001")),
    ]
    assert {(row["start"], row["end"]) for row in answer["rows"]} == {(DAY["start"], DAY["end"])}


def test_a_capacity_that_one_hour_does_not_know_is_null(ask: Ask, day: Prepared) -> None:
    day.put("east", at(3), {("research", "r1"): usd("1")}, capacity=None)
    totals = ask("/v1/costs", DAY).json["totals"]

    assert totals["node_cost_usd"] is None
    assert totals["allocated_usd"] == Decimal("26.333333333334")


def test_hours_that_have_not_ended_are_not_expected(ask: Ask) -> None:
    query = {"start": "2026-11-19T22:00:00Z", "end": "2026-11-20T10:00:00Z", "cluster": "east"}

    assert ask("/v1/costs", query).json["coverage"]["hours_expected"] == 2


@pytest.mark.usefixtures("day")
def test_numbers_are_numbers_with_all_digits(ask: Ask) -> None:
    body = ask("/v1/costs", {**DAY, "group_by": "business_unit,namespace"}).body

    assert '"allocated_usd": 0.000000000001,' in body
    assert '"unmeasured_gpu_hours": 0,' in body
    assert "E-" not in body


@pytest.mark.usefixtures("day")
def test_csv_is_a_download_that_no_spreadsheet_runs(ask: Ask) -> None:
    answer = ask("/v1/costs", {**DAY, "group_by": "business_unit", "format": "csv"})

    assert answer.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="costs.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.body, newline="")))
    assert rows[1]["business_unit"] == "'" + NASTY
    assert rows[1]["allocated_usd"] == "3.333333333333"
    assert list(rows[0]) == ["start", "end", "business_unit", *Costs.names()]


@pytest.mark.usefixtures("day")
def test_business_units_with_their_sums_idle_ones_included(ask: Ask) -> None:
    answer = ask("/v1/business-units", DAY).json

    assert [(row["business_unit"], row["allocated_usd"]) for row in answer["rows"]] == [
        (NASTY, Decimal("3.333333333333")), ("idle", 0), ("research", Decimal("22.000000000001")),
    ]  # fmt: skip


@pytest.mark.usefixtures("day")
def test_hours_say_where_each_stands(ask: Ask) -> None:
    answer = ask("/v1/hours", {**DAY, "end": "2026-11-19T04:00:00Z", "cluster": "east"}).json

    assert [row["status"] for row in answer["rows"]] == ["complete", "complete", "incomplete", "missing"]
    assert answer["rows"][2]["coverage"] == {"allocation": Decimal("0.25"), "utilization": None}
    assert answer["rows"][2]["notes"] == ["a note"]
    assert answer["rows"][3]["version"] is None
    assert answer["coverage"]["hours_complete"] == 2


@pytest.mark.usefixtures("day")
def test_nodes_say_what_they_cost_and_where_that_comes_from(ask: Ask) -> None:
    answer = ask("/v1/nodes", {**DAY, "end": "2026-11-19T01:00:00Z", "cluster": "east"}).json
    assert [(row["kind"], row["node"], row["price_source"], row["node_cost_usd"]) for row in answer["rows"]] == [
        ("node", "n1", "spot", 2),
        ("node", "n2", "", None),
        ("unused-savings-plan", "sp-1", "cur", 3),
    ]
    assert answer["rows"][1]["unpriced_capacity_gpu_hours"] == 2
    assert answer["rows"][1]["allocated_usd"] is None
    assert answer["rows"][2]["capacity_gpu_hours"] is None
    refused = ask("/v1/nodes", {"start": "2026-11-17T00:00:00Z", "end": "2026-11-20T00:00:00Z"})
    assert refused.status == 400
    assert "at most 48 hours" in refused.json["detail"]


@pytest.mark.usefixtures("day")
def test_restatements_say_what_was_before_and_why(ask: Ask) -> None:
    answer = ask("/v1/restatements", DAY).json
    assert [row["cluster"] for row in answer["rows"]] == ["east", "west"]
    row = answer["rows"][0]
    assert (row["version"], row["settings_version"], row["why"], row["currency"]) == (2, 3, "a deal", "USD")
    assert row["restated_at"] == format_instant(NOW)
    assert row["before"]["allocated_usd"] == 2 * row["after"]["allocated_usd"] > 0
    for unit in row["business_units"]:
        assert unit["before"]["allocated_usd"] == 2 * unit["after"]["allocated_usd"]
    assert ask("/v1/restatements", {**DAY, "cluster": "north"}).status == 400


@pytest.mark.usefixtures("day")
@pytest.mark.parametrize(
    "path", ["/v1/costs", "/v1/business-units", "/v1/hours", "/v1/nodes", "/v1/restatements", "/health"]
)
def test_every_answer_is_what_the_openapi_document_says(ask: Ask, path: str) -> None:
    answer = ask(path, {} if path == "/health" else DAY)

    assert answer.status == 200
    jsonschema.validate(json.loads(answer.body), schema_of(path), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("query", "parameter", "says"),
    [
        ({"start": DAY["start"]}, "end", "is needed and missing"),
        ({**DAY, "start": "yesterday"}, "start", "'yesterday' is not a UTC time like"),
        ({**DAY, "start": "2026-11-19T00:00:00"}, "start", "is not a UTC time like"),
        ({**DAY, "start": "0001-01-01T00:00:00+23:00"}, "start", "of 1971 to 9998"),
        ({**DAY, "end": "9999-12-31T23:00:00Z"}, "end", "of 1971 to 9998"),
        ({**DAY, "start": "2026-11-19T00:30:00Z"}, "start", "2026-11-19T00:30:00Z is not on a full UTC hour"),
        ({**DAY, "end": DAY["start"]}, "end", "must be after start"),
        ({**DAY, "granularity": "year"}, "granularity", "must be 'hour', 'day', 'week', 'month' or 'total'"),
        ({**DAY, "group_by": "team"}, "group_by", "'team' is not a dimension; allowed: business_unit, cluster, "),
        ({**DAY, "group_by": "namespace,namespace"}, "group_by", "named twice"),
        ({**DAY, "cluster": "north"}, "cluster", "'north' is not in the settings; allowed: east, west"),
        ({**DAY, "format": "xml"}, "format", "must be 'json', 'csv' or 'jsonl'"),
        (
            {**DAY, "groupby": "namespace"},
            "groupby",
            "is not a parameter; allowed: start, end, window, granularity, group_by",
        ),
        ({**DAY, "start": "2026-01-01T00:00:00Z"}, "end", "at most 35 days of this kind; granularity=day takes 100"),
        (urlencode(DAY) + "&start=2026-11-18T00:00:00Z", "start", "is given more than once"),
    ],
)
def test_a_wrong_parameter_is_named_with_what_is_allowed(
    ask: Ask, query: dict[str, str] | str, parameter: str, says: str
) -> None:
    answer = ask("/v1/costs", query)

    assert answer.status == 400
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = json.loads(answer.body)
    assert {key: problem[key] for key in ("type", "title", "status", "instance")} == {
        "type": "about:blank", "title": "Bad Request", "status": 400, "instance": "/v1/costs",
    }  # fmt: skip
    (error,) = problem["errors"]
    assert error["parameter"] == parameter
    assert says in error["detail"]
    assert says in problem["detail"]


@pytest.mark.parametrize(
    ("failure", "status", "detail"),
    [
        (SettingsMissingError("no settings have been pushed yet"), 503, "no settings have been pushed yet"),
        (NotFoundError("there is no version 7"), 404, "there is no version 7"),
        (ConflictError("somebody else wrote first"), 409, "somebody else wrote first"),
        (SourceError("the table did not answer"), 502, "the table did not answer"),
        (GpuCostError("secret"), 500, "something went wrong that should not; the function's log says what"),
        (KeyError("secret"), 500, "something went wrong that should not; the function's log says what"),
    ],
)
def test_every_failure_is_a_problem_document_that_leaks_nothing(
    ask: Ask, prepared: Prepared, failure: Exception, status: int, detail: str
) -> None:
    prepared.failure = failure
    answer = ask("/v1/costs", DAY)

    assert (answer.status, json.loads(answer.body)["detail"]) == (status, detail)
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert "secret" not in answer.body


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("GET", "/v2/costs", "there is no GET /v2/costs; /openapi.json lists what there is"),
        ("GET", "/v1/costs/", "no slash at the end"),
        ("POST", "/v1/costs", "there is no POST /v1/costs"),
    ],
)
def test_what_is_not_there_is_a_problem_document(ask: Ask, method: str, path: str, says: str) -> None:
    answer = ask(path, method=method)

    assert answer.status == 404
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert says in json.loads(answer.body)["detail"]


def test_an_answer_too_long_to_send_says_how_to_narrow_it(
    ask: Ask, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    for hour in range(4):
        prepared.put("east", at(hour), {(f"unit-{unit}", "n"): usd("1") for unit in range(5)})
    monkeypatch.setattr(reading, "MOST_CELLS", 19)
    monkeypatch.setattr(service, "MOST_ROWS", 47)

    assert ask("/v1/costs", {**DAY, "granularity": "day", "group_by": "business_unit"}).status == 200
    for path, says in (("/v1/costs", "more than 19 rows; shorten the period, ask for"), ("/v1/hours", "than 47 rows")):
        answer = ask(path, {**DAY, "group_by": "business_unit"} if path == "/v1/costs" else DAY)
        assert answer.status == 400
        assert says in json.loads(answer.body)["detail"]


def test_long_names_do_not_break_lambdas_limit(ask: Ask, prepared: Prepared) -> None:
    groups = {(f"{unit:05}" + "研" * 195, "n"): usd("1") for unit in range(4_900)}
    prepared.put("east", at(0), groups)
    query = {**DAY, "group_by": "business_unit"}
    first = ask("/v1/costs", query)

    assert len(first.body.encode()) < 6_000_000
    rest = ask("/v1/costs", {**query, "cursor": first.json["cursor"]}).json
    names = [row["group"]["business_unit"] for row in first.json["rows"] + rest["rows"]]
    assert names == sorted(name for name, _ in groups)
    assert rest["cursor"] is None
    assert rest["totals"] == first.json["totals"]


def test_a_month_by_day_spans_several_reads(ask: Ask, prepared: Prepared) -> None:
    first = at(0) - timedelta(days=40)
    for number in range(40 * 24):
        prepared.put("east", first + HOUR * number, {("research", "r1"): usd("0.1")})
    query = {"start": format_instant(first), "end": DAY["start"], "granularity": "day", "group_by": "business_unit"}
    answer = ask("/v1/costs", query).json

    assert [row["allocated_usd"] for row in answer["rows"]] == [Decimal("2.4")] * 40
    assert answer["totals"]["allocated_usd"] == 96


@pytest.mark.parametrize("path", ["/v1/costs", "/health", "/openapi.json", "/nowhere"])
def test_every_answer_carries_the_security_headers(ask: Ask, path: str) -> None:
    headers = ask(path).headers

    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"


def test_the_committed_openapi_document_is_the_one_that_is_served(ask: Ask) -> None:
    committed = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())

    assert json.loads(ask("/openapi.json").body) == committed
    assert openapi_main(["--check"]) == 0
    for path in committed["paths"].values():
        for parameter in path["get"].get("parameters", []):
            assert parameter["description"]
            schema = parameter["schema"]
            assert {"examples", "enum", "const"} & schema.keys()


def test_a_provisional_hour_counts_its_figures_but_is_not_complete(ask: Ask, prepared: Prepared) -> None:
    prepared.put("east", at(0), {("research", "r1"): usd("1")}, status="provisional")
    answer = ask("/v1/costs", {**DAY, "cluster": "east"}).json

    assert answer["totals"]["allocated_usd"] == 1
    assert answer["coverage"]["hours_complete"] == 0


def test_amounts_in_several_currencies_are_never_added(prepared: Prepared, ask: Ask) -> None:
    figures = {("research", "bu-a"): Costs(allocated_usd=quantize(Decimal(1)))}
    prepared.put("east", NOON, figures)
    prepared.put("west", NOON, figures)
    for key, summary in prepared.summaries_of.items():
        if key[0] == "west":
            prepared.summaries_of[key] = replace(summary, currency="EUR")
    period = {"start": format_instant(NOON), "end": format_instant(NOON + HOUR)}
    refused = ask("/v1/costs", period)
    assert refused.status == 400
    assert "hours in EUR and USD, which are never added up" in refused.json["detail"]
    assert ask("/v1/costs", {**period, "cluster": "west"}).json["currency"] == "EUR"
    assert ask("/v1/costs", {**period, "cluster": "east"}).json["currency"] == "USD"


def test_money_is_null_where_nothing_has_a_price(prepared: Prepared, ask: Ask) -> None:
    hours = quantize(Decimal(2))
    unknown = Costs(allocated_gpu_hours=hours, unpriced_gpu_hours=hours)
    known = Costs(allocated_gpu_hours=hours, allocated_usd=quantize(Decimal(5)), unmeasured_usd=quantize(Decimal(5)))
    prepared.put("east", NOON, {("dark", "a"): unknown, ("bright", "b"): known}, "provisional")
    answer = ask(
        "/v1/costs",
        {"start": format_instant(NOON), "end": format_instant(NOON + HOUR), "group_by": "business_unit"},
    ).json
    rows = {row["group"]["business_unit"]: row for row in answer["rows"]}
    assert (rows["dark"]["allocated_usd"], rows["dark"]["waste_usd"], rows["dark"]["unpriced_gpu_hours"]) == (
        None,
        None,
        2,
    )
    assert (rows["bright"]["allocated_usd"], rows["bright"]["unpriced_gpu_hours"]) == (5, 0)
    assert (answer["totals"]["allocated_usd"], answer["totals"]["unpriced_gpu_hours"]) == (5, 2)
