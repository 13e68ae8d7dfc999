"""`/allocation/compute` of the api function's real handler, over hours in the real database engine."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import uuid4

import jsonschema
import pytest
from msgspec.structs import replace

from gpucost.container import Container
from gpucost.core.amounts import CapacityCosts, Costs, Totals, to_decimal
from gpucost.core.hour_record import HourRecord, Line
from gpucost.features.opencost.filters import parse_filter
from gpucost.features.opencost.properties import Properties
from gpucost.features.opencost.windows import parse_duration, parse_window
from gpucost.runtime.environment import Environment
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table
from gpucost_devstack.template import REPOSITORY
from tests.enforced_permissions import EnforcedAws
from tests.functions.api_requests import ApiResponse, request_as, role_caller, serving
from tests.records import amount, line, record

NOW = datetime(2026, 11, 20, 5, 5, tzinfo=UTC)
"""A Friday."""
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
WINDOW = "2026-11-17T22:00:00Z,2026-11-19T03:00:00Z"
"""Two hours, a whole UTC day, three hours."""
# Names of core/pkg/opencost/allocation_json.go (5f65333); `omitempty` ones are left out.
OPENCOST_FIELDS = {
    "name", "properties", "window", "start", "end", "minutes", "cpuCores", "cpuCoreRequestAverage",
    "cpuCoreUsageAverage", "cpuCoreHours", "cpuCost", "cpuCostAdjustment", "cpuCostIdle", "cpuEfficiency",
    "gpuCount", "gpuRequestAverage", "gpuUsageAverage", "gpuHours", "gpuCost", "gpuCostAdjustment",
    "gpuCostIdle", "gpuEfficiency", "networkTransferBytes", "networkReceiveBytes", "networkCost",
    "networkCrossZoneCost", "networkCrossRegionCost", "networkInternetCost", "networkCostAdjustment",
    "loadBalancerCost", "loadBalancerCostAdjustment", "pvBytes", "pvByteHours", "pvCost", "pvs",
    "pvCostAdjustment", "ramBytes", "ramByteRequestAverage", "ramByteUsageAverage", "ramByteHours", "ramCost",
    "ramCostAdjustment", "ramCostIdle", "ramEfficiency", "externalCost", "sharedCost", "totalCost",
    "totalEfficiency", "lbAllocations",
}  # fmt: skip


def held(namespace: str, kind: str, workload: str, pod: str, usd: str, hours: str, **changes: Any) -> Line:
    """A line that used a quarter of what it held."""
    gpu_hours = amount(hours)
    return line(changes.pop("unit", "research"), namespace, pod, usd)._replace(
        workload_kind=kind, workload=workload, allocated_gpu_hours=gpu_hours,
        effective_gpu_hours=gpu_hours // 4, allocated_usd=amount(usd), **changes,
    )  # fmt: skip


def hour_of(cluster: str, hour: datetime, lines: list[Line], idle: str) -> HourRecord:
    made = record(lines, hour=hour, cluster=cluster)
    assert made.totals is not None
    costs = made.totals.costs
    capacity = CapacityCosts(node_cost_usd=costs.allocated_usd + amount(idle), unallocated_usd=amount(idle),
                        unallocated_gpu_hours=amount(1))  # fmt: skip
    return replace(made, totals=Totals(costs, capacity))


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


@pytest.fixture(scope="module")
def records(dynamodb_url: str, enforced: EnforcedAws) -> Iterator[list[HourRecord]]:
    client, table, hour_records = local_client("dynamodb", dynamodb_url), f"opencost-{uuid4()}", fleet()
    create_table(client, table)
    expired = hour_of("east", EXPIRED, [*hour_records[0].lines], "1")
    for hour_record in (*hour_records, expired):
        Ledger(DynamoDBTable(client, table)).publish(
            hour_record, replacing=None, settings_version=1, now=hour_record.hour + HOUR
        )

    class Store:
        def current(self) -> StoredSettings:
            return StoredSettings(1, DOCUMENT, parse_settings(DOCUMENT), "test", NOW)

    api = enforced.client("dynamodb", "ApiFunction")
    environment = Environment(table=table)
    with serving(Container(environment, clock=lambda: NOW, client=lambda _service: api, settings_store=Store())):
        yield hour_records


def ask(role: str = "viewer", **query: str) -> ApiResponse:
    return request_as(role_caller(role), "/allocation/compute", {"window": WINDOW, **query})


def sets(role: str = "viewer", **query: str) -> list[dict[str, Any]]:
    answer = ask(role, **query)
    assert answer.status == 200, answer.body
    assert (answer.json["code"], answer.json["status"]) == (200, "success")
    allocation_sets: list[dict[str, Any]] = answer.json["data"]
    return allocation_sets


def truth(records: list[HourRecord], key: Any, start: datetime, end: datetime) -> dict[str, Decimal]:
    sums: dict[str, Decimal] = {}
    for hour_record in records:
        for each in hour_record.lines if start <= hour_record.hour < end else ():
            name = key(hour_record.cluster, each)
            sums[name] = sums.get(name, Decimal(0)) + to_decimal(each.allocated_usd or 0)
    return sums


FIRST, LAST = datetime(2026, 11, 17, 22, tzinfo=UTC), datetime(2026, 11, 19, 3, tzinfo=UTC)
KEYS = {
    "all": lambda _, each: "",
    "cluster": lambda cluster, _: cluster,
    "namespace": lambda _, each: each.namespace,
    "cluster,namespace": lambda cluster, each: f"{cluster}/{each.namespace}",
    "controllerKind": lambda _, each: each.workload_kind.lower() or "__unallocated__",
    "controller": lambda _, each: (
        f"{each.workload_kind.lower()}:{each.workload}" if each.workload else "__unallocated__"
    ),
    "deployment": lambda _, each: each.workload if each.workload_kind == "Deployment" else "__unallocated__",
    "label:team": lambda _, each: each.labels.get("team", "__unallocated__"),
    "team": lambda _, each: each.labels.get("team", "__unallocated__"),
    "label:app.kubernetes.io/name": lambda _, each: each.labels.get("app.kubernetes.io/name", "__unallocated__"),
    "node": lambda _, each: each.node,
    "namespace,pod": lambda _, each: f"{each.namespace}/{each.pod}",
    "": lambda cluster, each: f"{cluster}/{each.node}/{each.namespace}/{each.pod}",
}


@pytest.mark.parametrize("aggregate", KEYS)
def test_every_aggregation_is_the_sum_of_the_lines(records: list[HourRecord], aggregate: str) -> None:
    (allocations,) = sets(aggregate=aggregate)
    expected = truth(records, KEYS[aggregate], FIRST, LAST)
    assert {name: allocation["gpuCost"] for name, allocation in allocations.items()} == expected
    assert all(name == allocation["name"] for name, allocation in allocations.items())


def test_expired_lines_are_an_error(records: list[HourRecord]) -> None:
    """Their costs are still known by namespace."""
    window = f"{EXPIRED:%Y-%m-%dT%H:00:00Z},{EXPIRED + HOUR:%Y-%m-%dT%H:00:00Z}"
    answer = ask(window=window, aggregate="pod")
    assert (answer.status, "lines of its hours have expired" in answer.json["detail"]) == (502, True)
    (allocations,) = sets(window=window, aggregate="namespace")
    costs = {name: allocation["gpuCost"] for name, allocation in allocations.items()}
    assert costs == {"bu-a": Decimal("4.700000000001"), "bu-b": Decimal("0.333333333333")}


@pytest.mark.parametrize(
    ("aggregate", "step", "length"),
    [("namespace", "1h", 1), ("controller", "6h", 6), ("controller", "36h", 36), ("namespace,pod", "1d", 24)],
)
def test_steps_start_at_the_start_of_the_window(
    records: list[HourRecord], aggregate: str, step: str, length: int
) -> None:
    allocation_sets = sets(aggregate=aggregate, step=step)
    assert len(allocation_sets) == -(-29 // length)
    for number, each in enumerate(allocation_sets):
        start = FIRST + HOUR * length * number
        end = min(start + HOUR * length, LAST)
        expected = truth(records, KEYS[aggregate], start, end)
        assert {name: allocation["gpuCost"] for name, allocation in each.items()} == expected
        for allocation in each.values():
            assert (allocation["start"], allocation["end"]) == (
                f"{start:%Y-%m-%dT%H:%M:%SZ}",
                f"{end:%Y-%m-%dT%H:%M:%SZ}",
            )
            assert allocation["minutes"] == (end - start) / HOUR * 60
    (whole,) = sets(aggregate=aggregate, step=step, accumulate="true")
    for name, allocation in whole.items():
        assert allocation["gpuCost"] == sum(each[name]["gpuCost"] for each in allocation_sets if name in each)


def test_fields_match_opencost_and_manual_calculation(records: list[HourRecord]) -> None:
    (allocations,) = sets(window="2026-11-18T00:00:00Z,2026-11-18T10:00:00Z", aggregate="controller", step="10h")
    allocation = allocations["deployment:web"]
    assert set(allocation) == OPENCOST_FIELDS | {"rawAllocationOnly", "gpuAllocation"}
    assert allocation["properties"] == {
        "cluster": "east", "node": "n1", "namespace": "bu-a", "controller": "web", "controllerKind": "deployment",
    }  # fmt: skip
    # Ten hours of one whole GPU at 3.000000000001, a quarter of it used.
    assert (allocation["gpuHours"], allocation["gpuCount"], allocation["gpuRequestAverage"]) == (10, 1, 1)
    assert (allocation["gpuUsageAverage"], allocation["gpuEfficiency"], allocation["totalEfficiency"]) == (
        Decimal("0.25"), Decimal("0.25"), Decimal("0.25"),
    )  # fmt: skip
    assert allocation["gpuCost"] == allocation["totalCost"] == Decimal("30.00000000001")
    assert allocation["gpuAllocation"] == {
        "isGPUShared": None, "gpuUsageAverage": Decimal("0.25"), "gpuRequestAverage": 1,
    }  # fmt: skip
    assert {name: allocation[name] for name in ("pvs", "lbAllocations", "rawAllocationOnly")} == dict.fromkeys(
        ("pvs", "lbAllocations", "rawAllocationOnly")
    )
    zero = {name for name in OPENCOST_FIELDS if name.startswith(("cpu", "ram", "network", "load", "pv"))} - {"pvs"}
    assert {allocation[name] for name in zero | {"sharedCost", "externalCost", "gpuCostAdjustment", "gpuCostIdle"}} == {
        0
    }


def test_response_matches_the_openapi_document(records: list[HourRecord]) -> None:
    document = json.loads((REPOSITORY / "docs" / "reference" / "openapi.json").read_text())
    schema = document["paths"]["/allocation/compute"]["get"]["responses"]["200"]["content"]["application/json"][
        "schema"
    ]
    for query in ({}, {"aggregate": "namespace", "includeIdle": "true"}, {"includeAggregatedMetadata": "true"}):
        answer = ask(**query)
        plain = json.loads(answer.body)
        jsonschema.validate(
            plain, {**schema, "components": document["components"]}, cls=jsonschema.Draft202012Validator
        )


def test_unknown_price_and_utilization_are_null() -> None:
    from gpucost.features.opencost.routes import allocation_fields
    from gpucost.features.opencost.service import Allocation

    two = amount(2)
    costs = Costs(allocated_gpu_hours=two, unmeasured_gpu_hours=two, unpriced_gpu_hours=two)
    fields = allocation_fields(Allocation("x", Properties("east"), FIRST, FIRST + 4 * HOUR, costs))
    assert (fields["gpuCost"], fields["totalCost"], fields["gpuEfficiency"], fields["gpuUsageAverage"]) == (None,) * 4
    assert (fields["gpuHours"], fields["gpuCount"]) == (2, Decimal("0.5"))


def test_idle_and_allocations_add_up_to_node_cost(records: list[HourRecord]) -> None:
    (allocations,) = sets(aggregate="namespace", includeIdle="true")
    cost = sum(
        to_decimal(hour_record.totals.capacity.node_cost_usd)
        for hour_record in records
        if hour_record.totals and hour_record.totals.capacity
    )
    assert sum(allocation["totalCost"] for allocation in allocations.values()) == cost
    assert allocations["__idle__"]["gpuCost"] == 29 * Decimal("4.000000000007") + 14 * Decimal("0.5")
    assert allocations["__idle__"]["gpuHours"] == 29 + 14


@pytest.mark.parametrize(("aggregate", "step"), [("namespace", "1h"), ("controller", "29h"), ("namespace,pod", "1d")])
def test_idle_is_shared_by_cost_within_each_cluster_and_step(
    records: list[HourRecord], aggregate: str, step: str
) -> None:
    plain = sets(aggregate=aggregate, step=step)
    shared = sets(aggregate=aggregate, step=step, includeIdle="true", shareIdle="true")
    length = parse_duration(step)
    name_of = KEYS[aggregate]
    for number, (before, after) in enumerate(zip(plain, shared, strict=True)):
        start, end = FIRST + length * number, FIRST + length * (number + 1)
        assert before.keys() == after.keys()
        expected: dict[str, Fraction] = {}
        for cluster in ("east", "west"):
            hours = [
                hour_record
                for hour_record in records
                if hour_record.cluster == cluster and start <= hour_record.hour < end
            ]
            held_by = truth(hours, name_of, start, end)
            total = sum(held_by.values())
            idle = (
                sum(
                    to_decimal(hour.totals.capacity.node_cost_usd)
                    for hour in hours
                    if hour.totals and hour.totals.capacity
                )
                - total
            )
            for name, usd in held_by.items():
                expected[name] = expected.get(name, Fraction(0)) + Fraction(idle) * Fraction(usd) / Fraction(total)
        for name, allocation in after.items():
            assert allocation["gpuCost"] == before[name]["gpuCost"] + allocation["gpuCostIdle"]
            assert abs(Fraction(allocation["gpuCostIdle"]) - expected[name]) < Fraction(1, 10**10)
        assert sum(allocation["gpuCostIdle"] for allocation in after.values()) == sum(expected.values())


def test_filter_keeps_its_share_of_idle(records: list[HourRecord]) -> None:
    shared = sets(aggregate="namespace", includeIdle="true", shareIdle="true")[0]
    (part,) = sets(aggregate="namespace", includeIdle="true", filter='namespace:"bu-b"')
    assert set(part) == {"bu-b", "__idle__"}
    assert part["__idle__"]["gpuCost"] == shared["bu-b"]["gpuCostIdle"]
    assert part["__idle__"]["gpuHours"] is None
    (both,) = sets(aggregate="namespace", includeIdle="true", shareIdle="true", filter='namespace:"bu-b"')
    assert both == {"bu-b": shared["bu-b"]}


def test_bu_role_sees_only_its_costs_and_no_idle(records: list[HourRecord]) -> None:
    expected = truth(records, KEYS["namespace"], FIRST, LAST)["bu-a"]
    for query in ({"aggregate": "namespace"}, {"aggregate": "namespace,controller"}, {"aggregate": "namespace,pod"}):
        (allocations,) = sets("one", **query)
        assert {name.partition("/")[0] for name in allocations} == {"bu-a"}
        assert sum(allocation["gpuCost"] for allocation in allocations.values()) == expected
    assert ask("one", aggregate="namespace", includeIdle="true").status == 403


PIECES = {
    "web": Properties("east", "bu-a", "deployment", "web", "n1", "web-0", (("app", "web"), ("team", "a"))),
    "job": Properties("east", "bu-b", "job", "train", "n2", "train-0", (("team", "b"),)),
    "bare": Properties("west", "kube-system", "", "", "n1", "bare"),
}


@pytest.mark.parametrize(
    ("text", "lets_through"),
    [
        ("", "web job bare"),
        ('cluster:"east"', "web job"),
        ('cluster!:"east"', "bare"),
        ('namespace:"bu-a","bu-b"', "web job"),
        ('namespace!:"bu-a","bu-b"', "bare"),
        ('namespace~:"e-s"', "bare"),
        ('namespace!~:"e-s"', "web job"),
        ('namespace<~:"bu"', "web job"),
        ('namespace!<~:"bu"', "bare"),
        ('namespace~>:"a","b"', "web job"),
        ('namespace!~>:"a"', "job bare"),
        ('controllerKind:"Deployment"', "web"),
        ('controllerKind:"__unallocated__"', "bare"),
        ('controllerName:"train"+node:"n2"', "job"),
        ('node:"n2"|pod:"bare"', "job bare"),
        ('(node:"n2"|pod:"bare")+cluster:"west"', "bare"),
        (' ( ( pod : "bare" ) ) ', "bare"),
        ('cluster:"east" + (pod:"train-0" | (label[app]:"web"+label[team]:"a"))', "web job"),
        ('label[team]:"a"', "web"),
        ('label[team]!:"a"', "job bare"),
        ('label[team]:"__unallocated__"', "bare"),
    ],
)
def test_filters_match_as_in_opencost(text: str, lets_through: str) -> None:
    parsed_filter = parse_filter(text, ("team", "app"))
    assert " ".join(name for name, piece in PIECES.items() if parsed_filter.matches(piece)) == lets_through


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('namespace:"a"+node:"b"|pod:"c"', "mixes + and |"),
        ("namespace:a", "expected a value in \"quotes\" but got 'a'"),
        ('namespace:"a', "cannot be read from character 11"),
        ('(namespace:"a"', "expected ) but got ''"),
        ('namespace:"a")', "expected the end, + or | but got ')'"),
        ('team:"a"', "cannot filter by team; allowed: cluster, node"),
        ('container:"a"', "cannot filter by container"),
        ('colour:"a"', "'colour' is not a field"),
        ('label[colour]:"a"', "label 'colour' is not stored. cost_labels in the settings: team, app"),
        ('label:"team"', "label needs a name, for example label[app]."),
        ("+", "expected a field"),
        ("(" * 30, "more than 20 nested parentheses"),
        ("x" * 5000, "is longer than 4000 characters"),
        ('namespace:"a"\N{SNOWMAN}', "cannot be read from character 14"),
    ],
)
def test_invalid_filter_error_says_why(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=None) as refused:
        parse_filter(text, ("team", "app"))
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("today", "2026-11-20T00", "2026-11-21T00"),
        ("yesterday", "2026-11-19T00", "2026-11-20T00"),
        ("week", "2026-11-15T00", "2026-11-20T06"),
        ("lastweek", "2026-11-08T00", "2026-11-15T00"),
        ("month", "2026-11-01T00", "2026-11-20T06"),
        ("lastmonth", "2026-10-01T00", "2026-11-01T00"),
        ("7d", "2026-11-14T00", "2026-11-21T00"),
        ("1w", "2026-11-14T00", "2026-11-21T00"),
        ("12h", "2026-11-19T18", "2026-11-20T06"),
        ("120m", "2026-11-20T04", "2026-11-20T06"),
        ("2026-11-18T00:00:00Z,2026-11-19T01:00:00+01:00", "2026-11-18T00", "2026-11-19T00"),
        ("1763424000,1763510400", "2025-11-18T00", "2025-11-19T00"),
        ("1763424000-1763510400", "2025-11-18T00", "2025-11-19T00"),
    ],
)
def test_windows_match_opencost(text: str, start: str, end: str) -> None:
    window = parse_window(text, NOW)
    assert tuple(f"{moment:%Y-%m-%dT%H}" for moment in window) == (start, end)


def test_week_of_a_sunday_begins_on_it() -> None:
    sunday = datetime(2026, 11, 15, 5, 5, tzinfo=UTC)
    assert [f"{moment:%d %H}" for moment in parse_window("week", sunday)] == ["15 00", "15 06"]
    assert [f"{moment:%d %H}" for moment in parse_window("lastweek", sunday)] == ["08 00", "15 00"]


@pytest.mark.parametrize(
    ("query", "parameter", "says"),
    [
        ({"window": "30m"}, "window", "'30m' is not a duration of full hours"),
        ({"window": "fortnight"}, "window", "allowed: today, yesterday, week"),
        ({"window": "999999w"}, "window", "begins before 1971"),
        ({"window": "1763424001,1763510400"}, "window", "full UTC hours"),
        ({"window": "999999999999,999999999999"}, "window", "outside the years"),
        ({"window": "2026-11-19T00:00:00Z,2026-11-18T00:00:00Z"}, "window", "must end after its start"),
        ({"window": "60d"}, "window", "longer than 35 days"),
        ({"window": "3d", "aggregate": "pod"}, "window", "hours by node or pod, and 48 is the maximum"),
        ({"window": "7d", "aggregate": "controller", "step": "5h"}, "window", "outside whole UTC days"),
        ({"step": "90m"}, "step", "'90m' is not a duration of full hours"),
        ({"aggregate": "container"}, "aggregate", "cannot aggregate by 'container'; allowed: all, cluster"),
        ({"aggregate": "label:colour"}, "aggregate", "cost_labels in the settings: team, app_kubernetes_io_name"),
        ({"aggregate": "owner"}, "aggregate", "label 'owner' is not stored"),
        ({"aggregate": ","}, "aggregate", "cannot aggregate by ''"),
        ({"filter": "namespace"}, "filter", "expected one of : !:"),
        ({"shareIdle": "true"}, "shareIdle", "requires includeIdle=true"),
        ({"idleByNode": "true"}, "idleByNode", "must be 'false'"),
        ({"includeProportionalAssetResourceCosts": "true"}, "includeProportionalAssetResourceCosts", "must be 'false'"),
        ({"offset": "1d"}, "offset", "unknown parameter. Allowed: window, aggregate"),
    ],
)
def test_invalid_parameter_is_named(
    records: list[HourRecord], query: dict[str, str], parameter: str, says: str
) -> None:
    answer = ask(**query)
    assert answer.status == 400, answer.body
    assert answer.json["errors"][0]["parameter"] == parameter
    assert says in answer.json["errors"][0]["detail"]
