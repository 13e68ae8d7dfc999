"""Three days and two hours of two clusters in a real table, and the api function that reads them."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import uuid4

import jsonschema
from msgspec.structs import replace

from gpucost.container import Container
from gpucost.core.amounts import CapacityCosts, Totals
from gpucost.core.costs_by_model import InferenceRules, costs_by_model
from gpucost.core.hour_record import HourRecord, Line, NodeHour
from gpucost.core.hours import DAY, HOUR
from gpucost.core.ledger import Limits, PoolLimit, Quota
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.runtime.process import Environment
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.limits_store import LimitsStore
from gpucost.storage.ports import StoredSettings
from gpucost.storage.rollups import RollupStore
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table
from gpucost_devstack.template import REPOSITORY
from tests.enforced_permissions import EnforcedAws
from tests.functions.api_requests import ApiResponse, iam_caller, request_as, serving
from tests.records import amount, line, record

FIRST = datetime(2026, 11, 16, tzinfo=UTC)
NOW = FIRST + 3 * DAY + timedelta(hours=2, minutes=5)
"""Three whole days and two hours of a fourth."""
PERIOD = {"start": "2026-11-16", "end": "2026-11-19T02:00:00Z"}
DOCUMENT = """
clusters:
  - {name: east, prometheus: {url: "http://127.0.0.1:9090"}}
  - {name: west, prometheus: {url: "http://127.0.0.1:9090"}}
pricing: {source: constant, gpu_hourly_usd: 12}
cost_labels: [team]
business_units:
  - {name: research, namespaces: ["bu-a"]}
  - {name: unused, namespaces: ["none"]}
  - {name: "R&D 🚀 #1 50%41", namespaces: ["none-2"]}
"""
SCHEMAS = json.loads((REPOSITORY / "docs" / "reference" / "openapi.json").read_text())


class Store:
    """A settings store of one document."""

    def current(self) -> StoredSettings:
        return StoredSettings(1, DOCUMENT, parse_settings(DOCUMENT), "test", NOW)


def workload_line(hour: int, unit: str, workload: str, usd: str, waste: str, **more: Any) -> Line:
    """A line with this cost and waste; the rest is effective."""
    pod_line = line(unit, f"ns-{unit}", f"{workload}-{hour}", usd)._replace(
        workload=workload, uid=f"{workload}{hour}", waste_usd=amount(waste), effective_usd=amount(usd) - amount(waste)
    )
    return pod_line._replace(**more)


def cluster_hour(cluster: str, hour: int, lines: list[Line], *, twins: bool = False) -> HourRecord:
    """An hour on node n1 and the unallocated node n2, with 5 USD of idle costs."""
    record_without_nodes = record(lines, hour=FIRST + hour * HOUR, cluster=cluster)
    assert record_without_nodes.totals is not None
    usd = record_without_nodes.totals.costs.allocated_usd
    free = CapacityCosts(unallocated_gpu_hours=amount(2), unallocated_usd=amount(3), residual_usd=amount(2))
    rest = CapacityCosts.total([free, CapacityCosts(node_cost_usd=usd + amount(5))])
    facts = ("pool", "p4d.24xlarge", "spot", "a", "A100", "spot", "scad", None)
    second = "n1" if twins else "n2"
    nodes = (
        NodeHour("n1", "aws:///a/i-1", *facts, usd, CapacityCosts(node_cost_usd=usd)),
        NodeHour(
            second,
            "aws:///a/i-2",
            *facts,
            amount(0),
            CapacityCosts.total([free, CapacityCosts(node_cost_usd=amount(5))]),
        ),
    )
    return replace(record_without_nodes, totals=Totals(record_without_nodes.totals.costs, rest), nodes=nodes)


def hours() -> list[HourRecord]:
    """Every fourth hour. East: research trains, wasting from the second day on; a job runs on the first day only."""
    records = []
    for hour in (*range(0, 3 * 24, 4), 72, 73):
        lines = [workload_line(hour, "research", "train", "10", "0" if hour < 24 else "4", labels={"team": "x"})]
        if hour < 24:
            lines.append(workload_line(hour, "=w", "job", "1", "1", labels={}))
        records.append(cluster_hour("east", hour, lines, twins=hour == 72))
    west = [
        serving_hour(cluster_hour("west", hour, [workload_line(hour, "research", "serve", "2", "0.5")]))
        for hour in (0, 28, 73)
    ]
    return [*records, *west, *partly_priced(), *in_yen_and_dollars()]


def serving_hour(hour_record: HourRecord) -> HourRecord:
    """An hour in which the pod of the first line served a model 300,000 prompt and 40,000 generated tokens, and an
    adapter the same again. No other pod is a server.
    """
    name = hour_record.lines[0].namespace, hour_record.lines[0].pod
    served = [ServedTokens(*name, "vllm", model, 300_000, 40_000, 0, 500) for model in ("llama", "llama-sql")]
    return replace(hour_record, models=tuple(costs_by_model(hour_record.lines, served, InferenceRules())))


def partly_priced() -> list[HourRecord]:
    """Two earlier days: on the second, half of what the unit holds has no price."""
    nothing = dict.fromkeys(("gpu_hourly_usd", "allocated_usd", "effective_usd", "waste_usd", "unmeasured_usd"))
    priced = workload_line(-96, "part", "job", "4", "1")
    return [
        cluster_hour("east", -96, [priced]),
        cluster_hour("east", -72, [priced, workload_line(-72, "part", "new", "4", "1", **nothing)]),
    ]


def in_yen_and_dollars() -> list[HourRecord]:
    """Earlier days with an hour each. The settings' currency changed between the last two."""
    records = [
        cluster_hour("east", hour, [workload_line(hour, "abroad", "job", "4", "1")]) for hour in (-1008, -960, -936)
    ]
    return [*(replace(hour_record, currency="JPY") for hour_record in records[:2]), records[2]]


@contextmanager
def api_with_hours(dynamodb_url: str, enforced: EnforcedAws) -> Iterator[None]:
    """The api function on a table that holds these hours."""
    api = enforced.client("dynamodb", "ApiFunction")
    client, table = local_client("dynamodb", dynamodb_url), f"reports-{uuid4()}"
    create_table(client, table)
    for hour in hours():
        Ledger(DynamoDBTable(client, table)).publish(hour, replacing=None, settings_version=1, now=NOW)
    for number in range(3):
        RollupStore(DynamoDBTable(client, table)).roll_up("east", FIRST + number * DAY, NOW)
    pools = (
        PoolLimit("gpu", "nvidia.com/gpu", Decimal(6), Decimal(8)),
        PoolLimit("free", "nvidia.com/gpu", Decimal(2), None),
    )
    quotas = (
        Quota("ns-research", "gpus", "nvidia.com/gpu", Decimal(4), Decimal(3)),
        Quota("ns-empty", "gpus", "nvidia.com/gpu", Decimal(4), None),
        Quota("ns-research", "mig", "nvidia.com/mig-1g.5gb", Decimal(7), Decimal(0)),
    )
    LimitsStore(DynamoDBTable(client, table)).put(Limits("east", FIRST, pools, quotas), NOW + 400 * DAY)
    environment = Environment(table=table)
    with serving(Container(environment, clock=lambda: NOW, client=lambda _service: api, settings_store=Store())):
        yield


def ask(path: str, query: dict[str, str] | str | None = None, *, route: str | None = None) -> ApiResponse:
    """Send a request, and check that the response matches its schema in the OpenAPI document."""
    answer = request_as(iam_caller("arn:aws:iam::123456789012:user/x"), path, query)
    responses = SCHEMAS["paths"][route or path]["get"]["responses"]
    content = responses[str(int(answer.status))]["content"]
    if "json" in answer.headers["Content-Type"] and "jsonl" not in answer.headers["Content-Type"]:
        schema = content[answer.headers["Content-Type"]]["schema"]
        schema_with_components = {**schema, "components": SCHEMAS["components"]}
        jsonschema.validate(json.loads(answer.body), schema_with_components, cls=jsonschema.Draft202012Validator)
    else:
        assert answer.headers["Content-Type"].partition(";")[0] in content
    return answer
