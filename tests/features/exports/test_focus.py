"""FOCUS rows of manually calculated hours and of generated hours."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from urllib.parse import unquote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.core.amounts import CapacityCosts, Costs, Totals, to_decimal
from gpucost.core.attribution import AttributionRules, BusinessUnit, build_record
from gpucost.core.hour_record import ClusterCharge, HourRecord, Line, NodeHour, Status
from gpucost.core.ledger import Manifest
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import Observation
from gpucost.core.pricing.node_costs import Pricing
from gpucost.features.exports.exported_days import ExportedDay, day_status, due_days, fingerprint, object_key
from gpucost.features.exports.focus import COLUMNS, Row, focus_rows, region_of
from tests.core.generated_observations import cluster_observations, metering_rules
from tests.features.exports import focus_rules
from tests.records import HOUR, amount, line, record

D = Decimal


def manifest(hour: datetime = HOUR, status: Status = "complete", version: int = 1) -> Manifest:
    return Manifest("demo", hour, status, version, f"{version}-a", 7, record().coverage, 0, None, HOUR)


def node(name: str = "n1", provider: str = "aws:///eu-central-1a/i-1", **amounts: str) -> NodeHour:
    capacity = CapacityCosts(**{key: amount(value) for key, value in amounts.items()})
    facts = ("pool", "p4d.24xlarge", "spot", "eu-central-1a", "A100")
    return NodeHour(name, provider, *facts, "spot", "gpu-bears-all", None, amount(0), capacity)


def held(pod: str, gpu_hours: str, usd: str | None, **more: object) -> Line:
    amounts: dict[str, object] = {"allocated_gpu_hours": amount(gpu_hours), "zone": "eu-central-1a"}
    if usd is None:
        unknown = ("gpu_hourly_usd", "allocated_usd", "effective_usd", "waste_usd", "unmeasured_usd")
        amounts |= {**dict.fromkeys(unknown), "price_source": "", "split_policy": ""}
    return line(pod=pod, usd=usd or "0")._replace(**{**amounts, **more})  # type: ignore[arg-type]


def rows_of(
    lines: Sequence[Line], nodes: Sequence[NodeHour], charges: Sequence[ClusterCharge] = (), **rest: str
) -> list[Row]:
    capacity = CapacityCosts.total(
        [node_hour.capacity for node_hour in nodes] + [CapacityCosts(**{k: amount(v) for k, v in rest.items()})]
    )
    totals = Totals(Costs.total(pod_line.costs() for pod_line in lines), capacity)
    hour = replace(record(), totals=totals, lines=tuple(lines), nodes=tuple(nodes), charges=tuple(charges))
    rows = [*focus_rows(manifest(), hour, "123456789012")]
    assert {name for row in rows for name in row} <= COLUMNS.keys()
    return [{name: row.get(name) for name in COLUMNS} for row in rows]


A_NODE = node(
    capacity_gpu_hours="8",
    unallocated_gpu_hours="1",
    stranded_gpu_hours="2",
    node_cost_usd="40",
    unallocated_usd="4",
    stranded_usd="8",
    host_usd="8",
)


def test_node_hour_matches_manual_calculation() -> None:
    rows = rows_of([held("p", "1", "4"), held("q", "4", "16")], [A_NODE])
    summaries = [
        (row["x_CostPart"], row["AllocatedResourceId"], row["EffectiveCost"], row["PricingQuantity"]) for row in rows
    ]
    assert summaries == [
        ("allocated", "uid-p", 4, 1),
        ("allocated", "uid-q", 16, 4),
        ("unallocated", None, 4, 1),
        ("stranded", None, 8, 2),
        ("host", None, 8, 0),
    ]
    ratios = [json.loads(str(row["AllocatedMethodDetails"]))["Elements"][0] for row in rows]
    assert [ratio["AllocatedRatio"] for ratio in ratios] == [0.1, 0.4, 0.1, 0.2, 0.2]
    assert [ratio["UsageQuantity"] for ratio in ratios] == [1, 4, 1, 2, 0]
    assert {row["ResourceId"] for row in rows} == {"i-1"}
    assert {(row["RegionId"], row["AvailabilityZone"]) for row in rows} == {("eu-central-1", "eu-central-1a")}
    first = rows[0]
    assert (first["x_UsedCost"], first["x_WasteCost"], first["x_UnmeasuredCost"]) == (1, 3, 0)
    assert first["AllocatedTags"] == '{"team": "x"}'
    assert (first["ChargePeriodStart"], first["ChargePeriodEnd"]) == (HOUR, HOUR + timedelta(hours=1))
    assert (first["BillingPeriodStart"], first["BillingPeriodEnd"]) == (
        datetime(2026, 11, 1, tzinfo=UTC),
        datetime(2026, 12, 1, tzinfo=UTC),
    )
    assert focus_rules.violated(rows) == []


def test_focus_effective_cost_includes_unused_cost() -> None:
    (idle,) = rows_of([held("p", "1", "4", effective_usd=0, waste_usd=amount(4))], [])
    assert (idle["EffectiveCost"], idle["x_UsedCost"], idle["x_WasteCost"], idle["BilledCost"]) == (4, 0, 4, 0)


def test_unknown_costs_are_null_and_never_zero() -> None:
    unpriced = replace(node(capacity_gpu_hours="2", unallocated_gpu_hours="1"), price_source="", split_policy="")
    unseen = {"effective_gpu_hours": None, "utilization": None, "utilization_source": "none"}
    rows = rows_of([held("p", "1", None, **unseen)], [unpriced])
    for row in rows:
        costs = [row[name] for name in ("EffectiveCost", "ContractedCost", "ListCost")]
        assert costs == [None] * 3
        assert (row["x_PriceSource"], row["x_SplitPolicy"]) == (None, None)
    pod, free = rows
    columns = (
        "x_UsedCost",
        "x_WasteCost",
        "x_UnmeasuredCost",
        "x_EffectiveGpuHours",
        "x_Utilization",
        "x_GpuHourlyPrice",
    )
    assert [pod[name] for name in columns] == [None] * 6
    assert (pod["x_GpuHours"], free["x_GpuHours"]) == (1, 1)
    ratios = [json.loads(str(row["AllocatedMethodDetails"]))["Elements"][0]["AllocatedRatio"] for row in rows]
    assert ratios == [0.5, 0.5], "split by GPU time"
    # This breaks a FOCUS rule on purpose: three costs must not be null.
    assert [violation.split()[0] for violation in focus_rules.violated(rows)] == [
        "ContractedCost",
        "EffectiveCost",
        "ListCost",
    ]


def test_instances_with_the_same_node_name_are_a_single_origin_charge() -> None:
    second = replace(A_NODE, provider_id="aws:///eu-central-1a/i-2")
    rows = rows_of([held("p", "5", "20"), held("q", "5", "20")], [A_NODE, second])
    assert {(row["ResourceId"], row["ResourceName"]) for row in rows} == {("n1", None)}
    assert sum(D(str(row["EffectiveCost"])) for row in rows) == 80
    assert focus_rules.violated(rows) == []


def test_a_residual_may_be_negative_and_ratios_still_add_up_to_1() -> None:
    rows = rows_of([held("p", "10", "12")], [node(capacity_gpu_hours="8", node_cost_usd="9", residual_usd="-3")])
    assert [(row["x_CostPart"], row["EffectiveCost"]) for row in rows] == [("allocated", 12), ("residual", -3)]
    assert focus_rules.violated(rows) == []


def test_unused_commitments_and_reservations_have_focus_columns() -> None:
    charges = [
        ClusterCharge("unused-savings-plan", "arn:sp", amount("3.5")),
        ClusterCharge("unused-reservation", "arn:ri", amount(2), gpu_hours=amount(8)),
        ClusterCharge("unused-capacity-reservation", "cr-1", amount(1), gpu_hours=amount(4)),
        ClusterCharge("unused-capacity-block", "cr-2", amount(5), gpu_hours=amount(4)),
    ]
    unused = {
        "node_cost_usd": "11.5",
        "unallocated_usd": "11.5",
        "unallocated_gpu_hours": "16",
        "capacity_gpu_hours": "16",
    }
    rows = rows_of([], [], charges, **unused)
    assert [row["EffectiveCost"] for row in rows] == [D("3.5"), 2, 1, 5]
    assert [(row["CommitmentDiscountId"], row["CommitmentDiscountType"]) for row in rows[:2]] == [
        ("arn:sp", "Savings Plan"),
        ("arn:ri", "Reserved Instance"),
    ]
    assert [(row["CapacityReservationId"], row["CapacityReservationStatus"]) for row in rows[2:]] == [
        ("cr-1", "Unused"),
        ("cr-2", "Unused"),
    ]
    assert [(row["PricingQuantity"], row["PricingUnit"]) for row in rows] == [
        (D("3.5"), "USD"),
        (8, "GPU-Hours"),
        (4, "GPU-Hours"),
        (4, "GPU-Hours"),
    ]
    assert focus_rules.violated(rows) == []


def test_remainder_of_the_cluster_has_rows() -> None:
    rows = rows_of([held("p", "1", "4")], [], node_cost_usd="9", unallocated_usd="5", unallocated_gpu_hours="2")
    assert [(row["x_CostPart"], row["EffectiveCost"], row["AllocatedMethodId"] is None) for row in rows] == [
        ("allocated", 4, False),
        ("unallocated", 5, True),
    ]
    assert focus_rules.violated(rows) == []


def test_columns_are_from_focus_or_start_with_x() -> None:
    assert focus_rules.columns_violated([*COLUMNS]) == []
    assert not any("effective" in name.lower() and "cost" in name.lower() for name in COLUMNS if name.startswith("x_"))


def exported(record: HourRecord) -> list[Row]:
    rows = focus_rows(manifest(record.hour), record, "123456789012")
    return [{name: row.get(name) for name in COLUMNS} for row in rows]


@settings(max_examples=30, deadline=None)
@given(cluster_observations(), metering_rules, st.decimals(D("0.01"), 100, places=4).map(Pricing.constant))
def test_rows_add_up_to_the_hour_on_generated_fleets(
    observation: Observation, metering: MeteringRules, rate: Pricing
) -> None:
    units = (BusinessUnit("first", ("a",)), BusinessUnit("rest", ("c-*",)))
    hour_record = build_record(meter(observation, metering), AttributionRules(rate, units))
    rows = exported(hour_record)
    assert focus_rules.violated(rows) == []
    assert hour_record.totals is not None
    costs = [D(str(row["EffectiveCost"])) for row in rows if row["x_CostPart"] == "allocated"]
    assert sum(costs) == to_decimal(hour_record.totals.costs.allocated_usd)
    if hour_record.totals.capacity is not None:
        assert sum(D(str(row["EffectiveCost"])) for row in rows) == to_decimal(
            hour_record.totals.capacity.node_cost_usd
        )
        by_name: dict[str, Decimal] = {}
        for node_hour in hour_record.nodes:
            by_name[node_hour.node] = by_name.get(node_hour.node, D(0)) + to_decimal(node_hour.capacity.node_cost_usd)
        sums: dict[object, Decimal] = {}
        for row in rows:
            name = row["ResourceName"] or row["ResourceId"]
            sums[name] = sums.get(name, D(0)) + D(str(row["EffectiveCost"]))
        assert {name: cost for name, cost in sums.items() if cost} == {name: c for name, c in by_name.items() if c}


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("eu-central-1a", "eu-central-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-gov-west-1b", "us-gov-west-1"),
        ("ap-southeast-12c", "ap-southeast-12"),
        ("a", None),
        ("", None),
        ("rack-7", None),
    ],
)
def test_regions_of_zones(zone: str, region: str | None) -> None:
    assert region_of(zone) == region


@settings(max_examples=25, deadline=None)
@given(st.text(min_size=1, max_size=60))
@pytest.mark.parametrize("odd", ["../../x", "a/b", "..", "date=2026-01-01", "%2e%2e", "\n", "=x", "ä b"])
def test_cluster_names_stay_within_their_folder(odd: str, name: str) -> None:
    day = datetime(2026, 11, 19, tzinfo=UTC)
    for cluster in (odd, name):
        key = object_key(cluster, day)
        folder, month, cluster_part, date, file = key.split("/")
        assert (folder, month, date, file) == ("focus", "billing_period=2026-11", "date=2026-11-19", "rows.parquet")
        assert cluster_part.startswith("cluster=")
        assert unquote(cluster_part.removeprefix("cluster=")) == cluster, "no two clusters share a folder"
        assert key.isascii()


def day_of(*statuses: Status | None) -> list[Manifest]:
    start = HOUR.replace(hour=0)
    return [manifest(start + timedelta(hours=n), status) for n, status in enumerate(statuses) if status]


def test_day_has_the_status_of_its_worst_hour() -> None:
    day = HOUR.replace(hour=0)
    full: list[Status | None] = ["complete"] * 24
    assert day_status(day, day_of(*full)) == "complete"
    assert day_status(day, day_of(*full[:-1])) == "incomplete"
    assert day_status(day, day_of(*full[:-1], "provisional")) == "provisional"
    assert day_status(day, day_of(*full[:-2], "provisional", "incomplete")) == "incomplete"


def test_days_are_due_until_they_have_the_current_versions() -> None:
    day = HOUR.replace(hour=0)
    hours = day_of("complete", "complete")
    exported_day = ExportedDay("demo", day, 1, "incomplete", 2, 3, 4, "USD", HOUR, fingerprint(hours), 2)
    over = day + timedelta(days=1)
    assert due_days({}, hours, over) == [day]
    assert due_days({}, hours, over - timedelta(minutes=1)) == [], "not over yet"
    assert due_days({day: exported_day}, hours, over) == []
    assert due_days({day: exported_day}, hours[::-1], over) == [], "whatever the order"
    assert due_days({day: exported_day}, [hours[0], manifest(hours[1].hour, version=2)], over) == [day], "restated"
    assert due_days({day: exported_day}, [*hours, manifest(day + timedelta(hours=2))], over) == [day], "came late"
    earlier = [manifest(day - timedelta(days=1))]
    assert due_days({}, [*earlier, *hours], over) == [day, day - timedelta(days=1)], "newest first"
