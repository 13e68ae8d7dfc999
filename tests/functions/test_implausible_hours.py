"""An hour whose stored figures are implausibly large has no figures in any report, export or alert."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from gpucost.container import Container
from gpucost.core.amounts import CapacityCosts, Costs, Totals
from gpucost.core.errors import ConflictError, DataExpiredError
from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import DAY, HOUR, floor_day, format_timestamp
from gpucost.runtime.process import Environment
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings, Table
from gpucost.storage.rollups import RollupStore
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table
from tests.conftest import DynamoTable
from tests.functions.api_requests import iam_caller, request_as, serving
from tests.records import amount, line, record

NOW = datetime.now(UTC).replace(microsecond=0)
FIRST = floor_day(NOW) - 3 * DAY
ABSURD = FIRST + 5 * HOUR
DOCUMENT = """
clusters:
  - {name: east, prometheus: {url: "http://127.0.0.1:9090"}}
  - {name: west, prometheus: {url: "http://127.0.0.1:9090"}}
pricing: {source: constant, gpu_hourly_usd: 12}
business_units: [{name: research, namespaces: ["bu-a"]}]
"""
WHOLE = {"start": format_timestamp(FIRST), "end": format_timestamp(FIRST + 2 * DAY)}
HOURS = {"start": format_timestamp(ABSURD - HOUR), "end": format_timestamp(ABSURD + 2 * HOUR)}
USER = "arn:aws:iam::123456789012:user/x"


class Store:
    """A settings store of one document."""

    def current(self) -> StoredSettings:
        return StoredSettings(1, DOCUMENT, parse_settings(DOCUMENT), "test", NOW)


def hour(cluster: str, start: datetime) -> HourRecord:
    lines = [line("research", "bu-a", "p", "4"), line("vision", "bu-b", "q", "8")]
    return record(lines, hour=start, cluster=cluster)


def absurd(usd: str) -> HourRecord:
    """An hour in which a pod's line has an impossibly large amount."""
    huge = line("vision", "bu-b", "q", "8")._replace(allocated_usd=amount(usd), waste_usd=amount(usd))
    lines = [line("research", "bu-a", "p", "4"), huge]
    costs = Costs(allocated_gpu_hours=amount(1), allocated_usd=amount(usd), waste_usd=amount(usd))
    totals = Totals(costs, CapacityCosts(node_cost_usd=amount(4), residual_usd=-amount(usd)))
    return replace(record([], hour=ABSURD, cluster="east"), lines=tuple(lines), totals=totals)


def publish(ledger_table: Table, usd: str) -> None:
    """Every sixth hour of two days in two clusters, one of them implausible."""
    ledger = Ledger(ledger_table)
    for cluster in ("east", "west"):
        for number in range(5, 48, 6):
            start = FIRST + number * HOUR
            hour_record = absurd(usd) if (cluster, start) == ("east", ABSURD) else hour(cluster, start)
            ledger.publish(hour_record, replacing=None, settings_version=1, now=NOW)
    RollupStore(ledger_table).roll_up("west", FIRST, NOW)
    RollupStore(ledger_table).roll_up("east", FIRST + DAY, NOW)
    with pytest.raises(DataExpiredError, match="implausibly large"):
        RollupStore(ledger_table).roll_up("east", FIRST, NOW)


@pytest.fixture(
    scope="module",
    params=["1E+308", pytest.param("123456789012345678901234567890.123456789012", marks=pytest.mark.tools)],
)
def published(request: pytest.FixtureRequest, dynamodb_url: str) -> Iterator[DynamoTable]:
    table = DynamoTable(local_client("dynamodb", dynamodb_url), f"absurd-{uuid4()}")
    create_table(*table)
    publish(DynamoDBTable(*table), request.param)
    environment = Environment(table=table.name)
    with serving(
        Container(environment, clock=lambda: NOW, client=lambda _service: table.client, settings_store=Store())
    ):
        yield table


def ask(path: str, query: dict[str, str]) -> Any:
    answer = request_as(iam_caller(USER), path, query)
    assert answer.status == 200, answer.body
    return answer.json


@pytest.mark.tools
@pytest.mark.parametrize(
    "query",
    [
        {**WHOLE, "granularity": "day"},
        {**WHOLE, "granularity": "hour"},
        {**WHOLE, "granularity": "day", "group_by": "business_unit"},
        {**WHOLE, "granularity": "hour", "group_by": "business_unit"},
        {**WHOLE, "granularity": "hour", "group_by": "business_unit", "business_unit": "research,vision"},
        {**WHOLE, "granularity": "day", "group_by": "namespace"},
        {**WHOLE, "granularity": "total", "group_by": "workload"},
        {**WHOLE, "granularity": "total", "group_by": "workload", "business_unit": "research,vision"},
        {**WHOLE, "granularity": "day", "group_by": "business_unit", "idle": "shared-by-allocation"},
    ],
)
def test_costs_exclude_only_the_implausible_hour(published: DynamoTable, query: dict[str, str]) -> None:
    answer = ask("/v1/costs", query)
    assert sum(row["allocated_usd"] for row in answer["rows"]) == 15 * 12
    assert answer["totals"]["allocated_usd"] == 15 * 12
    assert answer["coverage"]["hours_expected"] == 96
    assert answer["coverage"]["hours_complete"] == 15


@pytest.mark.parametrize("unit", ["research", "vision"])
def test_costs_by_pod_exclude_the_implausible_hour(published: DynamoTable, unit: str) -> None:
    query = {**HOURS, "granularity": "hour", "group_by": "pod", "business_unit": unit}
    answer = ask("/v1/costs", query)
    assert sum(row["allocated_usd"] for row in answer["rows"]) == (4 if unit == "research" else 8)
    assert answer["totals"]["allocated_usd"] == 12


def test_other_reports_exclude_the_implausible_hour(published: DynamoTable) -> None:
    assert {row["workload"] for row in ask("/v1/waste", WHOLE)["rows"]} == {"app"}
    assert ask("/v1/waste", HOURS)["totals"]["allocated_usd"] == 12
    units = ask("/v1/business-units", WHOLE)["rows"]
    assert {row["business_unit"]: row["allocated_usd"] for row in units} == {"research": 60, "vision": 120}
    assert ask("/v1/business-units/vision", {**WHOLE, "granularity": "total"})["rows"][0]["allocated_usd"] <= 120
    assert len(ask("/v1/lines", HOURS)["rows"]) == 2
    assert len(ask("/v1/hours", HOURS)["rows"]) == 6
    ask("/v1/nodes", HOURS)
    for aggregate in ("namespace", "pod"):
        window = {"window": f"{HOURS['start']},{HOURS['end']}", "aggregate": aggregate, "includeIdle": "true"}
        ask("/allocation/compute", window)


def test_restated_hour_becomes_incomplete_and_is_due_again(ledger_table: Table) -> None:
    publish(ledger_table, "1E+308")
    ledger = Ledger(ledger_table)
    before = ledger.newest_version_of_hour("east", ABSURD)
    assert before is not None
    assert not ledger.is_intact(before)
    empty = record(hour=ABSURD, cluster="east", status="incomplete")
    after = ledger.publish(empty, replacing=before, settings_version=1, now=NOW)
    assert (after.status, after.next_attempt_at is not None) == ("incomplete", True)
    sound = ledger.newest_version_of_hour("east", ABSURD + 6 * HOUR)
    assert sound is not None
    with pytest.raises(ConflictError, match="an incomplete attempt does not replace figures"):
        ledger.publish(replace(empty, hour=ABSURD + 6 * HOUR), replacing=sound, settings_version=1, now=NOW)
    assert RollupStore(ledger_table).roll_up("east", FIRST, NOW + timedelta(minutes=1))
