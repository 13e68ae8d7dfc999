"""29 hours of two clusters, behind the api function's real handler."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

from msgspec.structs import replace

from gpucost.container import Container
from gpucost.core.amounts import CapacityCosts, Totals
from gpucost.core.hour_record import HourRecord, Line, NodeHour
from gpucost.runtime.process import Environment
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings, Table
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table
from tests.enforced_permissions import EnforcedAws
from tests.functions.api_requests import serving
from tests.records import amount, line, record

HOUR = timedelta(hours=1)
EXPIRED = datetime(2025, 3, 1, 4, tzinfo=UTC)
"""An hour whose lines are no longer kept."""
DOCUMENT = """
clusters:
  - {name: east, prometheus: {url: "http://127.0.0.1:9090"}}
  - {name: west, prometheus: {url: "http://127.0.0.1:9090"}}
pricing: {source: constant, gpu_hourly_usd: 12}
cost_labels: [team, app.kubernetes.io/name]
access:
  - {principal: "arn:aws:iam::123456789012:role/viewer", roles: [viewer]}
  - {principal: "arn:aws:iam::123456789012:role/one", roles: ["bu:research"]}
"""


def held(namespace: str, kind: str, workload: str, pod: str, usd: str, hours: str, **changes: Any) -> Line:
    """A line that used a quarter of what it held."""
    gpu_hours = amount(hours)
    return line(changes.pop("unit", "research"), namespace, pod, usd)._replace(
        workload_kind=kind,
        workload=workload,
        allocated_gpu_hours=gpu_hours,
        effective_gpu_hours=gpu_hours // 4,
        allocated_usd=amount(usd),
        **changes,
    )


def hour_of(cluster: str, hour: datetime, lines: list[Line], idle: str) -> HourRecord:
    made = record(lines, hour=hour, cluster=cluster)
    assert made.totals is not None
    costs = made.totals.costs
    capacity = CapacityCosts(
        node_cost_usd=costs.allocated_usd + amount(idle), unallocated_usd=amount(idle), unallocated_gpu_hours=amount(1)
    )
    node = NodeHour(
        "n1",
        f"aws:///a/{cluster}",
        "pool",
        "p4d.24xlarge",
        "spot",
        "eu-central-1a",
        "A100",
        "spot",
        "scad",
        None,
        costs.allocated_usd,
        replace(capacity, capacity_gpu_hours=amount(8)),
    )
    return replace(made, totals=Totals(costs, capacity), nodes=(node,))


def fleet() -> list[HourRecord]:
    records = []
    first = datetime(2026, 11, 17, 22, tzinfo=UTC)
    app = {"team": "a", "app.kubernetes.io/name": "web"}
    for number in range(29):
        east = [
            held("bu-a", "Deployment", "web", f"web-{number % 3}", "3.000000000001", "1", node="n1", labels=app),
            held("bu-a", "Job", "train", "train-0", "1.7", "0.142857142857", node="n2", labels={"team": "b"}),
            held("bu-b", "", "", "bare", "0.333333333333", "0.5", node="n1", labels={}, unit="assistant"),
        ]
        west = [held("bu-a", "StatefulSet", "db", "db-0", "2.25", "2", node="n1", labels={"team": "a"})]
        hour = first + HOUR * number
        records.append(hour_of("east", hour, east, "4.000000000007"))
        if number % 2:
            records.append(hour_of("west", hour, west, "0.5"))
    return records


STORED = StoredSettings(1, DOCUMENT, parse_settings(DOCUMENT), "test", datetime(2026, 11, 17, tzinfo=UTC))


class Store:
    """Settings in force."""

    def current(self) -> StoredSettings:
        return STORED


def published_fleet(
    table: Table, *, until: datetime | None = None, currencies: Mapping[str, str] = MappingProxyType({})
) -> list[HourRecord]:
    """Publish the fleet's hours, and one whose lines are no longer kept. Returns the former.

    Args:
        table: where to.
        until: hours that end later are not published; None publishes all.
        currencies: of each cluster's amounts, if they are not USD.
    """
    hour_records = [
        replace(hour_record, currency=currencies.get(hour_record.cluster, "USD"))
        for hour_record in fleet()
        if until is None or hour_record.hour + HOUR <= until
    ]
    expired = hour_of("east", EXPIRED, [*hour_records[0].lines], "1")
    for hour_record in (*hour_records, expired):
        Ledger(table).publish(hour_record, replacing=None, settings_version=1, now=hour_record.hour + HOUR)
    return hour_records


@contextmanager
def serving_fleet(
    dynamodb_url: str,
    enforced: EnforcedAws,
    now: datetime,
    *,
    until: datetime | None = None,
    currencies: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[list[HourRecord]]:
    """Publish the fleet's hours in the real database engine, answer requests at a time, and yield the hours.

    Args:
        dynamodb_url: address of the database engine.
        enforced: the api function's permissions.
        now: the time of the requests.
        until: as of `published_fleet`.
        currencies: as of `published_fleet`.
    """
    client, table = local_client("dynamodb", dynamodb_url), f"opencost-{uuid4()}"
    create_table(client, table)
    hour_records = published_fleet(DynamoDBTable(client, table), until=until, currencies=currencies)
    api = enforced.client("dynamodb", "ApiFunction")
    environment = Environment(table=table)
    with serving(Container(environment, clock=lambda: now, client=lambda _service: api, settings_store=Store())):
        yield hour_records


@contextmanager
def serving_fleet_from_file(folder: Path, now: datetime) -> Iterator[list[HourRecord]]:
    """Answer requests from a table in SQLite, for those that take many reads. Yields the hours."""
    with SqliteTable(folder) as table:
        hour_records = published_fleet(table)
        with serving(Container(table=table, clock=lambda: now, settings_store=Store())):
            yield hour_records
