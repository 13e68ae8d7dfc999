"""`/v1/lines` and `/v1/fleet`: the lines behind a figure, and the cost identity in every period."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from gpucost.container import Container
from gpucost.core.amounts import CapacityCosts, Costs, Totals, to_decimal
from gpucost.core.hour_record import HourRecord, Line
from gpucost.runtime.process import Environment
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table
from tests.conftest import DynamoTable
from tests.enforced_permissions import EnforcedAws
from tests.functions.api_requests import Caller, request_as, role_caller, serving
from tests.records import HOUR, amount, line, record

NOW = datetime(2026, 11, 19, 14, 5, tzinfo=UTC)
PERIOD = {"start": "2026-11-19T10:00:00Z", "end": "2026-11-19T14:00:00Z"}
VIEWER, ANN = role_caller("viewers"), role_caller("ann")
SETTINGS = """
clusters: [{name: demo, prometheus: {url: "http://127.0.0.1:9090"}}]
pricing: {source: constant, gpu_hourly_usd: 12}
business_units: [{name: research, namespaces: ["bu-a"]}]
access:
  - {principal: "arn:aws:iam::123456789012:role/viewers", roles: [viewer]}
  - {principal: "arn:aws:iam::123456789012:role/ann", roles: ["bu:research"]}
"""
PARTS = (
    "effective_usd",
    "waste_usd",
    "unmeasured_usd",
    "unallocated_usd",
    "stranded_usd",
    "unobserved_usd",
    "host_usd",
    "residual_usd",
)


def hour_record(number: int, lines: list[Line], idle: CapacityCosts) -> HourRecord:
    hour_record = record(lines, hour=HOUR + timedelta(hours=number), notes=("a note",))
    assert hour_record.totals is not None
    costs = Costs.total(pod_line.costs() for pod_line in lines)
    capacity = idle + CapacityCosts(node_cost_usd=costs.allocated_usd + idle.unallocated_usd + idle.stranded_usd)
    return replace(hour_record, totals=Totals(costs, capacity))


PUBLISHED = [
    hour_record(
        0,
        [line("research", "bu-a", "p1"), line("assistant", "bu-b", "p2", "3.25"), line("other", "bu-c", "p3", "5")],
        CapacityCosts(unallocated_usd=amount("1.5"), stranded_usd=amount("0.25")),
    ),
    record(hour=HOUR + timedelta(hours=1), status="incomplete"),
    hour_record(
        2,
        [line("research", "bu-a", "p1", "7.125")._replace(resource_claim="gpu", dra_driver="gpu.nvidia.com")],
        CapacityCosts(unallocated_usd=amount(2)),
    ),
    hour_record(3, [], CapacityCosts(unallocated_usd=amount(4))),
]


@pytest.fixture(scope="module")
def filled(dynamodb_url: str) -> DynamoTable:
    table = DynamoTable(local_client("dynamodb", dynamodb_url), f"lines-{uuid4()}")
    create_table(table.client, table.name)
    ledger = Ledger(DynamoDBTable(table.client, table.name))
    for published_record in PUBLISHED:
        ledger.publish(published_record, replacing=None, settings_version=1, now=NOW)
    return table


@pytest.fixture(autouse=True)
def api(filled: DynamoTable, enforced: EnforcedAws) -> Iterator[None]:
    class Store:
        def current(self) -> StoredSettings:
            return StoredSettings(1, SETTINGS, parse_settings(SETTINGS), "test", NOW)

    client = enforced.client("dynamodb", "ApiFunction")
    environment = Environment(table=filled.name)
    with serving(Container(environment, clock=lambda: NOW, client=lambda _service: client, settings_store=Store())):
        yield


def ask(path: str, query: Mapping[str, str] | None = None, caller: Caller = VIEWER) -> Any:
    answer = request_as(caller, path, {**PERIOD, **(query or {})})
    assert answer.status == 200, answer.body
    return answer.json


def test_every_line_is_reported_as_published() -> None:
    rows = ask("/v1/lines")["rows"]
    published = {
        (published_record.hour, pod_line.business_unit, pod_line.pod): pod_line
        for published_record in PUBLISHED
        for pod_line in published_record.lines
    }
    assert len(rows) == len(published) == 4
    for row in rows:
        pod_line = published[datetime.fromisoformat(row["hour"]), row["business_unit"], row["pod"]]
        assert (row["cluster"], row["currency"]) == ("demo", "USD")
        for name, value in pod_line.figures().items():
            assert row[name] == value, name


@pytest.mark.parametrize(
    ("query", "pods"),
    [
        ({"business_unit": "research"}, ["p1", "p1"]),
        ({"business_unit": "research,assistant"}, ["p2", "p1", "p1"]),
        ({"business_unit": "!research"}, ["p2", "p3"]),
        ({"namespace": "bu-b,bu-c"}, ["p2", "p3"]),
        ({"pod": "p1", "end": "2026-11-19T11:00:00Z"}, ["p1"]),
        ({"node": "n2"}, []),
        ({"resource_claim": "gpu"}, ["p1"]),
        ({"dra_driver": "gpu.*"}, ["p1"]),
        ({"resource_claim": "!gpu"}, ["p1", "p2", "p3"]),
        ({"node_pool": "pool", "workload": "ap*", "pod": "!p1"}, ["p2", "p3"]),
    ],
)
def test_filters_select_lines(query: dict[str, str], pods: list[str]) -> None:
    assert sorted(row["pod"] for row in ask("/v1/lines", query)["rows"]) == sorted(pods)


def test_costs_are_grouped_by_claim() -> None:
    rows = ask("/v1/costs", {"group_by": "resource_claim,dra_driver", "granularity": "total"})["rows"]
    assert {(row["group"]["resource_claim"], row["group"]["dra_driver"]): row["allocated_usd"] for row in rows} == {
        ("", ""): sum(
            to_decimal(pod_line.allocated_usd or 0)
            for published_record in PUBLISHED
            for pod_line in published_record.lines
            if not pod_line.resource_claim
        ),
        ("gpu", "gpu.nvidia.com"): Decimal("7.125"),
    }


def test_only_lines_of_claims_name_a_claim() -> None:
    rows = ask("/v1/lines")["rows"]
    assert [row["resource_claim"] for row in rows if "resource_claim" in row] == ["gpu"]


@pytest.mark.parametrize("query", [{}, {"business_unit": "!assistant"}])
@pytest.mark.parametrize("limit", ["1", "2", "3"])
def test_pages_add_up_to_the_whole_response(query: dict[str, str], limit: str) -> None:
    all_lines = ask("/v1/lines", query)
    rows, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = ask("/v1/lines", {**query, "limit": limit, **({} if cursor is None else {"cursor": cursor})})
        assert len(page["rows"]) <= int(limit)
        rows += page["rows"]
        cursor, pages = page["cursor"], pages + 1
    assert rows == all_lines["rows"]
    assert pages == -(-len(rows) // int(limit))


def test_cursor_is_rejected_for_other_queries_and_callers() -> None:
    cursor = ask("/v1/lines", {"limit": "1"})["cursor"]
    for caller, query in ((VIEWER, {"limit": "2"}), (VIEWER, {"limit": "1", "pod": "p*"}), (ANN, {"limit": "1"})):
        assert request_as(caller, "/v1/lines", {**PERIOD, **query, "cursor": cursor}).status == 400


def test_bu_role_sees_only_its_lines() -> None:
    assert {row["business_unit"] for row in ask("/v1/lines", caller=ANN)["rows"]} == {"research"}
    assert request_as(ANN, "/v1/lines", {**PERIOD, "business_unit": "assistant"}).status == 403
    assert ask("/v1/lines", {"business_unit": "!research"}, ANN)["rows"] == []


def test_lines_of_more_than_48_hours_are_rejected() -> None:
    answer = request_as(VIEWER, "/v1/lines", {"start": "2026-11-17", "end": "2026-11-19T01:00:00Z"})
    assert (answer.status, "more than 48 hours" in answer.json["detail"]) == (400, True)


@pytest.mark.parametrize("granularity", ["hour", "day", "total"])
def test_cost_parts_add_up_to_node_cost_in_every_period(granularity: str) -> None:
    answer = ask("/v1/fleet", {"granularity": granularity})
    assert len(answer["rows"]) == (3 if granularity == "hour" else 1), "the incomplete hour has no row"
    for row in [*answer["rows"], answer["totals"]]:
        assert sum(row[part] for part in PARTS) == row["node_cost_usd"]
    for name in (*PARTS, "node_cost_usd", "allocated_usd"):
        assert sum(row[name] for row in answer["rows"]) == answer["totals"][name]


def test_unit_in_hours_without_figures_has_no_totals() -> None:
    hour = {"start": "2026-11-19T11:00:00Z", "end": "2026-11-19T12:00:00Z"}
    answer = request_as(VIEWER, "/v1/business-units/research", hour)
    assert (answer.status, answer.json["rows"], set(answer.json["totals"].values())) == (200, [], {None})


def test_hours_of_the_fleet_are_as_published() -> None:
    rows = {datetime.fromisoformat(row["start"]): row for row in ask("/v1/fleet")["rows"]}
    for published_record in PUBLISHED:
        if published_record.totals is None or published_record.totals.capacity is None:
            assert published_record.hour not in rows
            continue
        expected = {**published_record.totals.costs.figures(), **published_record.totals.capacity.figures()}
        assert {name: rows[published_record.hour][name] for name in expected} == expected


def test_bu_role_gets_no_capacity() -> None:
    answer = ask("/v1/fleet", caller=ANN)
    for row in [*answer["rows"], answer["totals"]]:
        assert {row[name] for name in CapacityCosts.names()} == {None}
    assert answer["totals"]["allocated_usd"] == Decimal("1.714285714286") + Decimal("7.125")
