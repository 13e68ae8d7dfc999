"""`/allocation/compute` of the api function's real handler, over hours in the real database engine."""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jsonschema
import pytest

from gpucost.core.amounts import Costs, to_decimal
from gpucost.core.hour_record import HourRecord
from gpucost.features.opencost.allocation_service import AllocationQuery, CalendarUnit
from gpucost.features.opencost.parameters import all_of, parse_duration, parse_filter, parse_list_filters, parse_window
from gpucost.features.opencost.properties import Properties
from gpucost_devstack.template import REPOSITORY
from tests.enforced_permissions import EnforcedAws
from tests.features.opencost.served_fleet import EXPIRED, HOUR, serving_fleet
from tests.functions.api_requests import ApiResponse, request_as, role_caller
from tests.records import amount

NOW = datetime(2026, 11, 20, 5, 5, tzinfo=UTC)
"""A Friday."""
PUBLISHED_UNTIL = datetime(2026, 11, 20, 4, tzinfo=UTC)
"""The hour that has just ended is still computed."""
WINDOW = "2026-11-17T22:00:00Z,2026-11-19T03:00:00Z"
"""Two hours, a whole UTC day, three hours."""
# Names of core/pkg/opencost/allocation_json.go (5f65333); `omitempty` ones are left out.
OPENCOST_FIELDS = {
    "name",
    "properties",
    "window",
    "start",
    "end",
    "minutes",
    "cpuCores",
    "cpuCoreRequestAverage",
    "cpuCoreUsageAverage",
    "cpuCoreHours",
    "cpuCost",
    "cpuCostAdjustment",
    "cpuCostIdle",
    "cpuEfficiency",
    "gpuCount",
    "gpuRequestAverage",
    "gpuUsageAverage",
    "gpuHours",
    "gpuCost",
    "gpuCostAdjustment",
    "gpuCostIdle",
    "gpuEfficiency",
    "networkTransferBytes",
    "networkReceiveBytes",
    "networkCost",
    "networkCrossZoneCost",
    "networkCrossRegionCost",
    "networkInternetCost",
    "networkCostAdjustment",
    "loadBalancerCost",
    "loadBalancerCostAdjustment",
    "pvBytes",
    "pvByteHours",
    "pvCost",
    "pvs",
    "pvCostAdjustment",
    "ramBytes",
    "ramByteRequestAverage",
    "ramByteUsageAverage",
    "ramByteHours",
    "ramCost",
    "ramCostAdjustment",
    "ramCostIdle",
    "ramEfficiency",
    "externalCost",
    "sharedCost",
    "totalCost",
    "totalEfficiency",
    "lbAllocations",
}


@pytest.fixture(scope="module")
def records(dynamodb_url: str, enforced: EnforcedAws) -> Iterator[list[HourRecord]]:
    with serving_fleet(dynamodb_url, enforced, NOW) as hour_records:
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
        "cluster": "east",
        "node": "n1",
        "namespace": "bu-a",
        "controller": "web",
        "controllerKind": "deployment",
    }
    # Ten hours of one whole GPU at 3.000000000001, a quarter of it used.
    assert (allocation["gpuHours"], allocation["gpuCount"], allocation["gpuRequestAverage"]) == (10, 1, 1)
    assert (allocation["gpuUsageAverage"], allocation["gpuEfficiency"], allocation["totalEfficiency"]) == (
        Decimal("0.25"),
        Decimal("0.25"),
        Decimal("0.25"),
    )
    assert allocation["gpuCost"] == allocation["totalCost"] == Decimal("30.00000000001")
    assert allocation["gpuAllocation"] == {
        "isGPUShared": None,
        "gpuUsageAverage": Decimal("0.25"),
        "gpuRequestAverage": 1,
    }
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
    from gpucost.features.opencost.allocation_service import Allocation
    from gpucost.features.opencost.routes import allocation_fields

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


@pytest.mark.parametrize(
    ("parameters", "has_idle"),
    [
        ({"idle": "true"}, True),
        ({"idle": "true", "includeIdle": "false"}, True),
        ({"idle": "false", "includeIdle": "true"}, False),
        ({"includeIdle": "true"}, True),
        ({}, False),
    ],
)
def test_older_name_of_include_idle_comes_first(
    records: list[HourRecord], parameters: dict[str, str], *, has_idle: bool
) -> None:
    """As in OpenCost (`pkg/costmodel/allocation.go`), whose older clients send `idle`, such as kubectl-cost."""
    (allocations,) = sets(aggregate="cluster", **parameters)
    assert ("__idle__" in allocations) == has_idle


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
        ('controller:"train"', "job"),
        ('deployment:"web"', "web"),
        ('deployment:"train"', ""),
        ('job:"train"', "job"),
        ('cluster:"east" namespace:"bu-a"', "web"),
        ('cluster:"east" (pod:"train-0"|pod:"bare")', "job"),
    ],
)
def test_filters_match_as_in_opencost(text: str, lets_through: str) -> None:
    parsed_filter = parse_filter(text, ("team", "app"))
    assert " ".join(name for name, piece in PIECES.items() if parsed_filter.matches(piece)) == lets_through


@pytest.mark.parametrize(
    ("parameters", "lets_through"),
    [
        ({}, "web job bare"),
        ({"filterNamespaces": "", "filterPods": " , "}, "web job bare"),
        ({"filterNamespaces": "bu-a"}, "web"),
        ({"filterNamespaces": "bu-a, kube*"}, "web bare"),
        ({"filterClusters": "east", "filterNodes": "n2"}, "job"),
        ({"filterControllerKinds": "Deployment"}, "web"),
        ({"filterControllers": "deployment:web,train"}, "web job"),
        ({"filterControllers": "job:web"}, ""),
        ({"filterControllers": "deployment:w*"}, "web"),
        ({"filterPods": "*-0,bare"}, "bare"),
        ({"filterLabels": "team:a,team:b"}, "web job"),
        ({"filterLabels": "app:w*"}, "web"),
        ({"filterTeams": "b"}, "job"),
        ({"filterProducts": "web"}, "web"),
        ({"filterNamespaces": "__unallocated__"}, ""),
        ({"window": "7d", "filter": "x", "metrics": "totalCost"}, "web job bare"),
    ],
)
def test_older_filters_match_as_in_opencost(parameters: dict[str, str], lets_through: str) -> None:
    """As the filters of version 1 in core/pkg/util/filterutil (5f65333)."""
    parsed_filter = all_of(parse_list_filters(parameters, ("team", "app")))
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
        ("today", "2026-11-20T00", "2026-11-20T04"),
        ("yesterday", "2026-11-19T00", "2026-11-20T00"),
        ("week", "2026-11-15T00", "2026-11-20T04"),
        ("lastweek", "2026-11-08T00", "2026-11-15T00"),
        ("month", "2026-11-01T00", "2026-11-20T04"),
        ("lastmonth", "2026-10-01T00", "2026-11-01T00"),
        ("7d", "2026-11-14T00", "2026-11-20T04"),
        ("1w", "2026-11-14T00", "2026-11-20T04"),
        ("12h", "2026-11-19T16", "2026-11-20T04"),
        ("120m", "2026-11-20T02", "2026-11-20T04"),
        ("60m", "2026-11-20T03", "2026-11-20T04"),
        ("2026-11-19T00:00:00Z,2026-11-19T23:59:59Z", "2026-11-19T00", "2026-11-20T00"),
        ("2026-11-20T00:00:00Z,2026-11-20T23:59:59Z", "2026-11-20T00", "2026-11-20T04"),
        ("2026-11-18T05:20:15Z,2026-11-19T05:20:15Z", "2026-11-18T05", "2026-11-19T05"),
        ("2026-11-20T04:00:00Z,2026-11-20T05:00:00Z", "2026-11-20T04", "2026-11-20T04"),
        ("2026-11-18T00:00:00Z,2026-11-19T01:00:00+01:00", "2026-11-18T00", "2026-11-19T00"),
        ("1763424000,1763510400", "2025-11-18T00", "2025-11-19T00"),
        ("1763424000-1763510400", "2025-11-18T00", "2025-11-19T00"),
    ],
)
def test_windows_match_opencost_and_end_with_the_newest_published_hour(text: str, start: str, end: str) -> None:
    window = parse_window(text, NOW, lambda: PUBLISHED_UNTIL)
    assert tuple(f"{moment:%Y-%m-%dT%H}" for moment in window) == (start, end)


def test_week_of_a_sunday_begins_on_it() -> None:
    sunday = datetime(2026, 11, 15, 5, 5, tzinfo=UTC)
    until = datetime(2026, 11, 15, 5, tzinfo=UTC)
    assert [f"{moment:%d %H}" for moment in parse_window("week", sunday, lambda: until)] == ["15 00", "15 05"]
    assert [f"{moment:%d %H}" for moment in parse_window("lastweek", sunday, lambda: until)] == ["08 00", "15 00"]


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
        ({"idleByNode": "true"}, "idleByNode", "only false is supported"),
        ({"includeProportionalAssetResourceCosts": "1"}, "includeProportionalAssetResourceCosts", "only false is"),
        ({"includeIdle": "yes"}, "includeIdle", "'yes' is neither true nor false. Use includeIdle=true or"),
        ({"accumulate": "fortnight"}, "accumulate", "'fortnight' is not supported; allowed: true, false, all"),
        ({"accumulateBy": "x", "accumulate": "day"}, "accumulateBy", "'x' is not supported"),
        ({"filterContainers": "web"}, "filterContainers", "Leave it out; allowed: filterClusters, filterNodes"),
        ({"filterLabels": "colour:red"}, "filterLabels", "label 'colour' is not stored"),
    ],
)
def test_invalid_parameter_is_named(
    records: list[HourRecord], query: dict[str, str], parameter: str, says: str
) -> None:
    answer = ask(**query)
    assert answer.status == 400, answer.body
    assert answer.json["errors"][0]["parameter"] == parameter
    assert says in answer.json["errors"][0]["detail"]


@pytest.mark.parametrize(
    ("refused", "remedy"),
    [
        ({"window": "2026-11-18T00:10:00Z,2026-11-18T01:40:00Z"}, None),
        ({"window": "2026-11-18T00:00:01Z,2026-11-18T12:00:00Z"}, None),
        ({"shareIdle": "true"}, {"shareIdle": "true", "includeIdle": "true"}),
        ({"includeIdle": "yes"}, {"includeIdle": "true"}),
        ({"idleByNode": "true"}, {"idleByNode": "false"}),
        ({"step": "90m"}, {"step": "1h"}),
        ({"window": "3d", "aggregate": "pod"}, {"window": "2d", "aggregate": "pod"}),
        ({"window": "3d", "aggregate": "pod"}, {"window": "3d", "aggregate": "controller"}),
        (
            {"window": "3d", "filter": 'node:"n1"'},
            {"window": "3d", "filter": 'namespace:"bu-a"', "aggregate": "cluster"},
        ),
        (
            {"window": "7d", "aggregate": "controller", "step": "5h"},
            {"window": "7d", "aggregate": "controller", "step": "1d"},
        ),
        ({"window": "60d", "aggregate": "cluster"}, {"window": "35d", "aggregate": "cluster"}),
        ({"filterContainers": "web"}, {}),
        ({"filter": 'cluster:"a"+node:"b"|pod:"c"'}, {"filter": 'cluster:"a"+(node:"b"|pod:"c")'}),
    ],
)
def test_every_remedy_of_a_refusal_is_accepted(
    records: list[HourRecord], refused: dict[str, str], remedy: dict[str, str] | None
) -> None:
    answer = ask(**refused)
    assert answer.status == 400, answer.body
    if remedy is None:
        remedy = {"window": re.findall(r"Use (\S+)\.$", answer.json["errors"][0]["detail"])[0]}
    assert ask(**remedy).status == 200, ask(**remedy).body


def test_clusters_of_the_same_currency_can_be_selected(dynamodb_url: str, enforced: EnforcedAws) -> None:
    with serving_fleet(dynamodb_url, enforced, NOW, currencies={"east": "USD", "west": "EUR"}):
        answer = ask(aggregate="cluster")
        assert answer.status == 400
        assert (
            "EUR and USD, which cannot be added up. Select the clusters of one currency with filterClusters"
            in (answer.json["detail"])
        )
        for name in ("east", "west"):
            (allocations,) = sets(aggregate="cluster", filterClusters=name, filterNamespaces="bu-*")
            assert set(allocations) == {name}
        (allocations,) = sets(aggregate="cluster", filter='cluster:"east"')
        assert set(allocations) == {"east"}


RUNNING_DAY = datetime(2026, 11, 18, 10, 15, tzinfo=UTC)


def test_day_without_published_hours_is_one_empty_set(dynamodb_url: str, enforced: EnforcedAws) -> None:
    midnight = datetime(2026, 11, 18, tzinfo=UTC)
    with serving_fleet(dynamodb_url, enforced, midnight + timedelta(minutes=10), until=midnight):
        assert sets(window="today", aggregate="namespace") == [{}]
        for path in ("/allocation/summary", "/allocation/compute/summary"):
            answer = request_as(role_caller("viewer"), path, {"window": "today", "aggregate": "namespace"})
            window = {"start": "2026-11-18T00:00:00Z", "end": "2026-11-18T00:00:00Z"}
            assert answer.json["data"] == {"step": 0, "sets": [{"allocations": {}, "window": window}], "window": window}


def test_rates_of_a_running_day_are_those_of_its_published_hours(dynamodb_url: str, enforced: EnforcedAws) -> None:
    """Ten hours are published by 10:15, in each of which `web` holds one GPU and uses a quarter of it."""
    with serving_fleet(dynamodb_url, enforced, RUNNING_DAY, until=RUNNING_DAY):
        for window in ("today", "1d", "2026-11-18T00:00:00Z,2026-11-19T00:00:00Z", "10h", "600m"):
            (allocations,) = sets(window=window, aggregate="controller", accumulate="true")
            web = allocations["deployment:web"]
            assert (web["start"], web["end"]) == ("2026-11-18T00:00:00Z", "2026-11-18T10:00:00Z")
            assert (web["minutes"], web["gpuHours"], web["gpuCount"]) == (600, 10, 1)
            assert (web["gpuRequestAverage"], web["gpuUsageAverage"]) == (1, Decimal("0.25"))
            # kubectl-cost's monthly rate: 43,200 minutes / minutes x cost, of one GPU at 3.000000000001 an hour.
            assert web["gpuCost"] * 43200 / web["minutes"] == Decimal("2160.00000000072")
        (allocations,) = sets(window="24h", aggregate="controller")
        assert allocations["deployment:web"]["start"] == "2026-11-17T10:00:00Z"
        assert allocations["deployment:web"]["gpuCount"] == Decimal("0.5")
        days = sets(window="7d", aggregate="controller", accumulate="day")
        assert [each.get("deployment:web", {}).get("minutes") for each in days] == [None] * 5 + [1440, 600]


@pytest.mark.parametrize(
    ("accumulate", "starts"),
    [
        ({"accumulate": "day"}, ["17T22", "18T00", "19T00"]),
        ({"accumulateBy": "day", "accumulate": "true"}, ["17T22", "18T00", "19T00"]),
        ({"accumulate": "Week"}, ["17T22"]),
        ({"accumulate": "weeknow"}, ["17T22"]),
        ({"accumulate": "month", "step": "1h"}, ["17T22"]),
        ({"accumulate": "quarter"}, ["17T22"]),
        ({"accumulate": "all", "step": "1h"}, ["17T22"]),
        ({"accumulate": "1", "step": "1h"}, ["17T22"]),
        ({"accumulate": "False", "step": "day"}, ["17T22", "18T22"]),
        ({"accumulateBy": "none", "accumulate": "true", "step": "1d"}, ["17T22", "18T22"]),
        ({"step": "week"}, ["17T22"]),
        ({"metrics": "totalCost", "offset": "1d", "resolution": "1m", "sharelb": "true"}, ["17T22"]),
    ],
)
def test_accumulated_sets_are_those_of_the_calendar(
    records: list[HourRecord], accumulate: dict[str, str], starts: list[str]
) -> None:
    allocation_sets = sets(aggregate="namespace", **accumulate)
    assert [min(each["start"] for each in members.values())[8:13] for members in allocation_sets] == starts
    costs = sum(each["gpuCost"] for members in allocation_sets for each in members.values())
    assert costs == sum(truth(records, KEYS["all"], FIRST, LAST).values())


@pytest.mark.parametrize(
    ("unit", "starts"),
    [
        ("week", ["2026-10-30", "2026-11-01", "2026-11-08", "2026-11-15"]),
        ("month", ["2026-10-30", "2026-11-01"]),
        ("quarter", ["2026-10-30"]),
    ],
)
def test_weeks_begin_on_sunday_and_months_and_quarters_in_the_calendar(unit: CalendarUnit, starts: list[str]) -> None:
    start, end = datetime(2026, 10, 30, tzinfo=UTC), datetime(2026, 11, 18, 7, tzinfo=UTC)
    query = AllocationQuery(start, end, end - start, (), parse_filter("", ()), unit=unit)
    periods = list(query.steps())
    assert [f"{period.start:%Y-%m-%d}" for period in periods] == starts
    assert periods[-1].end == end


def test_quarters_end_with_the_year() -> None:
    start, end = datetime(2025, 11, 30, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    query = AllocationQuery(start, end, end - start, (), parse_filter("", ()), unit="quarter")
    assert [period.start for period in query.steps()] == [start, datetime(2026, 1, 1, tzinfo=UTC)]


def test_summary_has_the_figures_of_the_allocations(records: list[HourRecord]) -> None:
    parameters = {"window": WINDOW, "aggregate": "namespace", "accumulate": "day", "includeIdle": "true"}
    for path in ("/allocation/summary", "/allocation/compute/summary", "/model/allocation/summary"):
        answer = request_as(role_caller("viewer"), path, parameters)
        assert answer.status == 200, answer.body
        summary = answer.json["data"]
        assert summary["window"] == {"start": "2026-11-17T22:00:00Z", "end": "2026-11-19T03:00:00Z"}
        plain = sets(aggregate="namespace", accumulate="day", includeIdle="true")
        assert [set(each["allocations"]) for each in summary["sets"]] == [set(each) for each in plain]
        for each, members in zip(summary["sets"], plain, strict=True):
            for name, figures in each["allocations"].items():
                assert {key: members[name][key] for key in figures} == figures


def test_assets_are_the_nodes_with_their_cost(records: list[HourRecord]) -> None:
    parameters = {"window": WINDOW, "aggregate": "assetType", "accumulate": "true", "step": "1d"}
    answer = request_as(role_caller("viewer"), "/assets", parameters)
    east, west = answer.json["data"].values()
    expected = {
        name: sum(
            to_decimal(hour.totals.capacity.node_cost_usd)
            for hour in records
            if hour.cluster == name and hour.totals and hour.totals.capacity
        )
        for name in ("east", "west")
    }
    assert {node["properties"]["cluster"]: node["totalCost"] for node in (east, west)} == expected
    assert (east["minutes"], west["minutes"], east["gpuCount"], east["preemptible"]) == (29 * 60, 14 * 60, 8, 1)
    assert east["GPUHours"] == 29 * 8
    for text, names in (('type:"Node"', ["east", "west"]), ('cluster:"west"', ["west"]), ('name!:"n1"', [])):
        filtered = request_as(role_caller("viewer"), "/assets", {"window": WINDOW, "filter": text}).json["data"]
        assert [node["properties"]["cluster"] for node in filtered.values()] == names
    (nodes,) = request_as(role_caller("viewer"), "/model/assets", {"window": WINDOW, "filterTypes": "node"}).json[
        "data"
    ]
    assert nodes == answer.json["data"]
    (none,) = request_as(role_caller("viewer"), "/assets", {"window": WINDOW, "filterTypes": "Disk"}).json["data"]
    assert none == {}
    assert request_as(role_caller("one"), "/assets", {"window": WINDOW}).status == 403


@pytest.mark.parametrize("prefix", ["", "/model"])
def test_currency_is_that_of_the_settings(records: list[HourRecord], prefix: str) -> None:
    answer = request_as(role_caller("one"), f"{prefix}/getConfigs")
    assert answer.json == {"code": 200, "status": "success", "data": {"currencyCode": "USD"}}


@pytest.mark.parametrize("prefix", ["", "/model"])
@pytest.mark.parametrize(
    ("path", "subject"),
    [
        ("/cloudCost", "cloud costs"),
        ("/cloudCost/view/table", "cloud costs"),
        ("/customCost/total", "external costs"),
        ("/savings/requestSizingV2", "savings of CPU and memory requests"),
        ("/prediction/speccost", "cost predictions"),
        ("/clusterInfo", "the cluster of cost predictions"),
        ("/allocation/autocomplete", "suggestions for filters"),
        ("/assets/autocomplete", "suggestions for filters"),
    ],
)
def test_unsupported_routes_are_refused_in_a_sentence(
    records: list[HourRecord], prefix: str, path: str, subject: str
) -> None:
    answer = request_as(role_caller("viewer"), f"{prefix}{path}", {"window": "7d"})
    assert (answer.status, answer.headers["Content-Type"]) == (404, "application/problem+json")
    assert answer.json["detail"].startswith(f"gpucost has no {subject}. Of OpenCost's API it answers allocations, ")


def test_other_paths_below_model_do_not_exist() -> None:
    for path in ("/model", "/model/", "/models", "/model/unknown"):
        assert "there is no GET" in request_as(role_caller("viewer"), path).json["detail"]
