"""The api function's real handler behind the HTTP adapter, with a month in DynamoDB Local."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from threading import Lock
from typing import Any
from uuid import uuid4

import pytest
from msgspec.structs import replace

from functions.api.app import handler
from gpucost.container import Container
from gpucost.core.amounts import CapacityCosts, Totals
from gpucost.core.hour_record import HourRecord, Line, NodeHour
from gpucost.core.hours import HOUR
from gpucost.core.pricing.prices import Price
from gpucost.settings_document import SettingsDocumentStore
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Table
from gpucost.storage.price_book import PriceStore
from gpucost.storage.rollups import RollupStore
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table
from gpucost_devstack.http import Identify, serving_api
from gpucost_devstack.prometheus import free_port
from gpucost_devstack.signatures import HttpRequest
from gpucost_devstack.template import transformed_template
from tests.enforced_permissions import enforcing
from tests.functions.api_requests import APP, Context
from tests.functions.api_requests import serving as answering
from tests.records import amount, line, record

NOW = datetime(2026, 11, 20, 0, 5, tzinfo=UTC)
DAYS = 31
ADMIN = "contract-admin"
RESEARCH = "contract-research"
SETTINGS = """
clusters:
  - {name: prod-us-east-1, prometheus: {url: "http://127.0.0.1:9090"}}
  - {name: prod-eu, prometheus: {url: "http://127.0.0.1:9090"}}
pricing: {source: constant, gpu_hourly_usd: 12}
business_units: [{name: research, namespaces: [bu-a]}, {name: assistant, namespaces: [bu-b]}]
cost_labels: [team]
access:
  - {principal: "arn:aws:iam::000000000000:user/contract-admin", roles: [admin]}
  - {principal: "arn:aws:iam::000000000000:user/contract-research", roles: ["bu:research"]}
"""


def lines_of(hour: datetime) -> list[Line]:
    """Lines of three units, one of them only in some hours, with a pod without an owner and a pod without a price."""
    held = [
        line("research", "bu-a", f"train-{hour.day % 3}", "3.5")._replace(labels={"team": "x"}),
        line("research", "bu-a", "web-0", "1.25")._replace(workload="web", labels={}),
        line("assistant", "bu-b", "serve-0", "6.000000000001")._replace(
            workload_kind="StatefulSet", labels={"team": "y"}
        ),
    ]
    if hour.hour % 5 == 0:
        held.append(line("kube-system", "kube-system", "bare")._replace(workload_kind="", workload=""))
    if hour.day % 9 == 0:
        unknown_costs = dict.fromkeys(
            ("allocated_usd", "effective_usd", "waste_usd", "unmeasured_usd", "gpu_hourly_usd")
        )
        held.append(line("research", "bu-a", "unpriced")._replace(price_source="", **unknown_costs))  # type: ignore[arg-type]
    return held


def hour_of(cluster: str, hour: datetime, *more: Line) -> HourRecord:
    """An hour with a priced node. One in fifty is incomplete."""
    if hour.toordinal() % 10 == 0 and hour.hour == 3:
        return record(hour=hour, cluster=cluster, status="incomplete")
    hour_record = record(
        [*lines_of(hour), *more],
        hour=hour,
        cluster=cluster,
        notes=("a pod has no allocation metrics",) if hour.hour == 7 else (),
    )
    assert hour_record.totals is not None
    spent = hour_record.totals.costs.allocated_usd
    capacity = CapacityCosts(
        capacity_gpu_hours=amount(8),
        unallocated_gpu_hours=amount(7),
        node_cost_usd=spent + 7,
        unallocated_usd=amount(7),
    )
    node = NodeHour(
        "n1", "aws:///a/i-1", "pool", "p4d.24xlarge", "spot", "a", "A100", "spot", "scad", None, spent, capacity
    )
    return replace(hour_record, totals=Totals(hour_record.totals.costs, capacity), nodes=(node,))


def fill(table: Table, *, days: int = DAYS) -> None:
    """Fill a table with a month of a cluster and two days of another, a restated hour, a price, and the settings."""
    ledger, rollups = Ledger(table), RollupStore(table)
    SettingsDocumentStore(table, clock=lambda: NOW).push(SETTINGS, author="contract", now=NOW)
    midnight = NOW.replace(hour=0, minute=0)
    for cluster, length in (("prod-eu", days), ("prod-us-east-1", 2)):
        first = midnight - timedelta(days=length)
        for number in range(24 * length):
            hour = first + HOUR * number
            published = ledger.publish(hour_of(cluster, hour), replacing=None, settings_version=1, now=NOW)
        restated = hour_of(cluster, hour, line("assistant", "bu-b", "late", "2"))
        ledger.publish(restated, replacing=published, settings_version=1, now=NOW, reason="a price came late")
        for number in range(length):
            rollups.roll_up(cluster, first + timedelta(days=number), NOW)
    listed = Price(
        "on-demand",
        "node-hour",
        Decimal("1.006"),
        {"instance_type": "g5.xlarge"},
        "USD",
        midnight - timedelta(9),
        None,
        NOW,
    )
    PriceStore(table).merge_prices("on-demand", [listed], rated_until=midnight, now=NOW)


def identify(request: HttpRequest) -> dict[str, Any]:
    """An authorizer for two tokens, in place of API Gateway's check of signatures."""
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    if token in (ADMIN, RESEARCH):
        return {"iam": {"userArn": f"arn:aws:iam::000000000000:user/{token}"}}
    return {}


@contextmanager
def running_api(dynamodb_url: str, *, days: int = DAYS, identify: Identify = identify) -> Iterator[str]:
    """Serve a filled ledger; yields the API's address."""
    client, table, lock = local_client("dynamodb", dynamodb_url), f"contract-{uuid4()}", Lock()
    create_table(client, table)
    fill(DynamoDBTable(client, table), days=days)
    routes = [
        body["Properties"]["RouteKey"]
        for body in transformed_template()["Resources"].values()
        if body["Type"] == "AWS::ApiGatewayV2::Route"
    ]

    def invoke(event: Mapping[str, Any]) -> Any:
        with lock:  # an execution environment processes a single request at a time
            return handler(dict(event), Context(), app=APP)  # type: ignore[arg-type]  # a reduced Lambda context

    port = free_port()
    with pytest.MonkeyPatch.context() as patch, enforcing(dynamodb_url) as policies:
        for name, value in {**policies.environment("ApiFunction"), "GPUCOST_TABLE": table}.items():
            patch.setenv(name, value)
        api_client = policies.client("dynamodb", "ApiFunction")
        container = Container(clock=lambda: NOW, client=lambda _service: api_client)
        with answering(container), serving_api(invoke, routes, port, identify=identify):
            yield f"http://127.0.0.1:{port}"


if __name__ == "__main__":  # for manual requests: python -m tests.contract.running
    from gpucost_devstack.dynamodb_local import running_dynamodb

    with running_dynamodb() as url, running_api(url, days=int(os.environ.get("DAYS", "2"))) as address:
        input(f"{address}\n")
