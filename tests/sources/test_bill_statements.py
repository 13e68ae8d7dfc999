"""The Athena statements, run with DuckDB on Parquet files in the exports' format, compared with results by hand."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import sqlglot
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucost.core.errors import SourceError
from gpucost.core.pricing.bill import BillLine
from gpucost.sources.bill import parse_bill_line, sql_statement, sql_template_name
from gpucost_devstack.bill.export import ExportFormat, write_export
from gpucost_devstack.bill.items import (
    LineItem,
    capacity_block,
    hyperpod,
    on_demand,
    other_charges,
    reserved_instance,
    reserved_instance_fee,
    savings_plan_covered,
    savings_plan_fee,
    spot,
    unused_capacity_reservation,
)
from tests.bill_export import NOW, DuckDbBill, cur_settings, run

NOVEMBER, DECEMBER = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
PLAN, FAMILY_PLAN = "arn:aws:savingsplans::1:savingsplan/compute", "arn:aws:savingsplans::1:savingsplan/p5"
RI = "arn:aws:ec2:eu-central-1:1:reserved-instances/p4d"
ODCR = "arn:aws:ec2:eu-central-1:1:capacity-reservation/cr-0aaa"
BLOCK = "arn:aws:ec2:eu-central-1:1:capacity-reservation/cr-0bbb"
EVERY: list[dict[str, Any]] = [
    {"format": "cur2", "amount": "amortized"},
    {"format": "cur2", "amount": "net_amortized"},
    {"format": "focus-1.0"},
    {"format": "focus-1.2"},
]
each_statement = pytest.mark.parametrize("form", EVERY, ids=lambda form: sql_template_name(cur_settings(**form)))


def read(folder: Path, form: dict[str, Any], items: Sequence[LineItem], **export: Any) -> list[BillLine]:
    """The lines of November that a statement reads."""
    write_export(folder, items, form=form["format"], **export)
    return DuckDbBill(folder, cur_settings(**form)).lines(NOVEMBER, DECEMBER)


def instances(lines: Sequence[BillLine]) -> dict[str, tuple[str, str]]:
    """Amount and hours by instance id."""
    return {
        line.resource_id: (f"{line.amount:f}", f"{float(line.instance_hours or 0):.6f}")
        for line in lines
        if line.kind == "instance"
    }


@each_statement
def test_all_ways_to_pay(tmp_path: Path, form: dict[str, Any]) -> None:
    lines = read(
        tmp_path,
        form,
        [
            on_demand("i-0a", "p5.48xlarge", HOUR, "55.04"),
            *savings_plan_covered("i-0b", "p5.48xlarge", HOUR, "30.123456789", listed="55.04", plan=PLAN),
            reserved_instance("i-0c", "p4d.24xlarge", HOUR, "14.2", ri=RI),
            spot("i-0d", "g5.xlarge", HOUR, "0.3333333333", hours="0.5"),
            spot("i-0e", "g5.xlarge", HOUR, "0", hours="0.25"),
            on_demand("i-0f", "p5.48xlarge", HOUR, "55.04").launched_into(ODCR),
            *other_charges("i-0a", "p5.48xlarge", HOUR),
        ],
    )
    assert instances(lines) == {
        "i-0a": ("55.040000000000", "1.000000"),
        "i-0b": ("30.123456789000", "1.000000"),
        "i-0c": ("14.200000000000", "1.000000"),
        "i-0d": ("0.333333333300", "0.500000"),
        "i-0e": ("0.000000000000", "0.250000"),
        "i-0f": ("55.040000000000", "1.000000"),
    }
    by_id = {line.resource_id: line for line in lines}
    line = by_id["i-0a"]
    assert (line.start, line.end) == (HOUR, HOUR + timedelta(hours=1))
    assert (line.account, line.region, line.instance_type) == ("111122223333", "eu-central-1", "p5.48xlarge")
    assert (line.operation, line.currency, line.is_final) == ("RunInstances", "USD", False)
    kinds = {instance_id: line.capacity_type for instance_id, line in by_id.items()}
    assert (kinds["i-0a"], kinds["i-0b"], kinds["i-0c"]) == ("on-demand", "on-demand", "on-demand"), (
        "discounts are floating-point numbers"
    )
    assert (kinds["i-0d"], kinds["i-0e"]) == ("spot", "spot")
    has_capacity_column = form["format"] != "focus-1.0"
    assert kinds["i-0f"] == ("reserved" if has_capacity_column else "on-demand")
    assert len(lines) == 6, "no other lines are left out"


@each_statement
def test_unused_commitments(tmp_path: Path, form: dict[str, Any]) -> None:
    lines = read(
        tmp_path,
        form,
        [
            savings_plan_fee(PLAN, HOUR, "100", "80.5"),
            savings_plan_fee(FAMILY_PLAN, HOUR, "40", "38", family="p5"),
            savings_plan_fee("arn:other-family", HOUR, "40", "38", family="m5"),
            savings_plan_fee("arn:all-used", HOUR, "40", "40"),
            reserved_instance_fee(RI, "p4d.24xlarge", NOVEMBER, unused="142", unused_hours="10"),
            reserved_instance_fee("arn:ri-m5", "m5.large", NOVEMBER, unused="9", unused_hours="90"),
            *unused_capacity_reservation(ODCR, "p5.48xlarge", HOUR, "110.08", hours="2"),
        ],
    )
    assert {line.resource_id: (line.kind, line.amount, line.start, line.end) for line in lines} == {
        PLAN: ("unused-savings-plan", Decimal("19.5"), HOUR, HOUR + timedelta(hours=1)),
        FAMILY_PLAN: ("unused-savings-plan", Decimal(2), HOUR, HOUR + timedelta(hours=1)),
        RI: ("unused-reservation", Decimal(142), NOVEMBER, DECEMBER),
        ODCR: ("unused-capacity-reservation", Decimal("110.08"), HOUR, HOUR + timedelta(hours=1)),
    }
    assert {line.resource_id: line.instance_hours for line in lines if line.kind == "unused-capacity-reservation"} == {
        ODCR: 2
    }


@each_statement
def test_private_discounts_are_in_net_amounts_only(tmp_path: Path, form: dict[str, Any]) -> None:
    sp, _ = savings_plan_covered("i-0b", "p5.48xlarge", HOUR, "30", listed="55", plan=PLAN)
    lines = read(
        tmp_path,
        form,
        [
            replace(on_demand("i-0a", "p5.48xlarge", HOUR, "55"), net_amortized_cost=Decimal("49.5")),
            replace(sp, net_amortized_cost=Decimal("27.25")),
            replace(reserved_instance("i-0c", "p4d.24xlarge", HOUR, "14", ri=RI), net_amortized_cost=Decimal("12.5")),
            replace(savings_plan_fee(PLAN, HOUR, "100", "80"), net_amortized_cost=Decimal(90)),
            replace(
                reserved_instance_fee(RI, "p4d.24xlarge", NOVEMBER, unused="140", unused_hours="10"),
                net_amortized_cost=Decimal(126),
            ),
        ],
    )
    gross = form.get("amount") == "amortized"
    assert {line.resource_id: line.amount for line in lines} == {
        "i-0a": Decimal(55) if gross else Decimal("49.5"),
        "i-0b": Decimal(30) if gross else Decimal("27.25"),
        "i-0c": Decimal(14) if gross else Decimal("12.5"),
        PLAN: Decimal(20) if gross else Decimal(18),
        RI: Decimal(140) if gross else Decimal(126),
    }


@each_statement
def test_nodes_of_hyperpod_have_the_product_code_of_sagemaker(tmp_path: Path, form: dict[str, Any]) -> None:
    """No documentation says which resource their lines name; storage, training plans and other jobs are no nodes."""
    cluster = "arn:aws:sagemaker:us-east-1:1:cluster/tqci9uwuwqiz"
    node = hyperpod("ml.p4d.24xlarge", HOUR, "25.25", resource=cluster)
    named = hyperpod("ml.g5.8xlarge", HOUR, "3.06", resource=f"{cluster}/i-0f190b8fa232cef49")
    others = [
        replace(node, usage_type=usage_type)
        for usage_type in (
            "USE1-Cluster:VolumeUsage.gp2",
            "USE1-ReservedCluster:ml.p4d.24xlarge",
            "USE1-Train:ml.p4d.24xlarge",
            "USE1-Cluster:ml.c5.4xlarge",
        )
    ]
    lines = read(tmp_path, form, [node, replace(node, quantity=Decimal("0.5")), named, *others])
    assert [(line.resource_id, line.instance_type, line.region, line.capacity_type) for line in lines] == [
        ("i-0f190b8fa232cef49", "ml.g5.8xlarge", "us-east-1", "on-demand"),
        ("sagemaker", "ml.p4d.24xlarge", "us-east-1", "on-demand"),
    ]
    assert [(line.amount, line.instance_hours) for line in lines] == [
        (Decimal("3.06"), 1),
        (Decimal("50.5"), Fraction("1.5")),
    ]


@pytest.mark.parametrize("unfilled", [None, Decimal(0)])
def test_empty_net_columns_do_not_make_nodes_free(tmp_path: Path, unfilled: Decimal | None) -> None:
    sp, _ = savings_plan_covered("i-0b", "p5.48xlarge", HOUR, "30", listed="55", plan=PLAN)
    items = [
        on_demand("i-0a", "p5.48xlarge", HOUR, "55"),
        sp,
        reserved_instance("i-0c", "p4d.24xlarge", HOUR, "14", ri=RI),
        savings_plan_fee(PLAN, HOUR, "100", "80"),
        reserved_instance_fee(RI, "p4d.24xlarge", NOVEMBER, unused="140", unused_hours="10"),
    ]
    lines = read(tmp_path, EVERY[1], [replace(item, net_amortized_cost=unfilled) for item in items])
    assert {line.resource_id: line.amount for line in lines} == {"i-0a": 55, "i-0b": 30, "i-0c": 14, PLAN: 20, RI: 140}


@each_statement
def test_instances_of_a_capacity_block_are_not_free(tmp_path: Path, form: dict[str, Any]) -> None:
    lines = read(
        tmp_path,
        form,
        [capacity_block("i-0a", "p5.48xlarge", HOUR, BLOCK), on_demand("i-0b", "p5.48xlarge", HOUR, "55.04")],
    )
    assert instances(lines) == {"i-0b": ("55.040000000000", "1.000000")}


@each_statement
def test_license_fee_of_a_capacity_block_names_its_reservation(tmp_path: Path, form: dict[str, Any]) -> None:
    licence = replace(
        capacity_block("i-0a", "p5.48xlarge", HOUR, BLOCK),
        unblended_cost=Decimal("0.13"),
        on_demand_cost=Decimal("0.13"),
        amortized_cost=Decimal("0.13"),
    )
    (line,) = read(tmp_path, form, [licence])
    assert line.amount == Decimal("0.13")
    assert (line.capacity_type, line.reservation_id) == {
        "cur2": ("capacity-block", "cr-0bbb"),
        "focus-1.0": ("on-demand", ""),
        "focus-1.2": ("reserved", "cr-0bbb"),
    }[form["format"]]


def test_capacity_block_without_type_column_is_recognized_by_its_price(tmp_path: Path) -> None:
    unnamed = replace(
        capacity_block("i-0a", "p5.48xlarge", HOUR, BLOCK),
        capacity_reservation="",
        capacity_status="",
        capacity_type="",
    )
    for form in EVERY[:2]:
        assert read(tmp_path, form, [unnamed, spot("i-0b", "g5.xlarge", HOUR, "0")])[0].resource_id == "i-0b"
        assert len(read(tmp_path, form, [unnamed])) == 0


@each_statement
def test_usage_without_instance_is_left_out(tmp_path: Path, form: dict[str, Any]) -> None:
    """AWS leaves the resource empty on some lines."""
    without_instance = replace(on_demand("", "p5.48xlarge", HOUR, "55"), resource="")
    assert read(tmp_path, form, [without_instance]) == []


@pytest.mark.parametrize("form", EVERY[2:], ids=str)
def test_correction_of_an_earlier_bill_is_left_out(tmp_path: Path, form: dict[str, Any]) -> None:
    charge = on_demand("i-0a", "p5.48xlarge", HOUR, "55")
    lines = read(tmp_path, form, [charge, replace(charge, amortized_cost=Decimal(-5), is_correction=True)])
    assert [line.amount for line in lines] == [55]


@each_statement
def test_lines_of_an_instance_hour_are_added_up(tmp_path: Path, form: dict[str, Any]) -> None:
    """25 minutes and 20 seconds on demand, the rest of the hour covered by a plan."""
    lines = read(
        tmp_path,
        form,
        [
            on_demand("i-0a", "p5.48xlarge", HOUR, "23.2391111111", hours="0.4222222222"),
            *savings_plan_covered(
                "i-0a", "p5.48xlarge", HOUR, "17.4043333333", listed="31.80088889", plan=PLAN, hours="0.5777777778"
            ),
        ],
    )
    (line,) = lines
    assert line.amount == Decimal("40.6434444444")
    assert line.instance_hours == 1


@each_statement
def test_amounts_are_cast_before_they_are_added(tmp_path: Path, form: dict[str, Any]) -> None:
    """0.1 ten times is 1 and not 0.9999999999999999."""
    lines = read(tmp_path, form, [on_demand("i-0a", "g5.xlarge", HOUR, "0.1", hours="0.1")] * 10)
    assert [(line.amount, line.instance_hours) for line in lines] == [(Decimal(1), Fraction(1))]


@settings(max_examples=5, deadline=None)
@given(
    amounts=st.lists(st.decimals("0.0000000001", 900, places=10), min_size=20, max_size=40),
    statement_=st.sampled_from(EVERY),
)
def test_amounts_with_ten_decimals_are_exact(
    tmp_path_factory: pytest.TempPathFactory, amounts: list[Decimal], statement_: dict[str, Any]
) -> None:
    items = [on_demand(f"i-{number:04x}", "p5.48xlarge", HOUR, str(amount)) for number, amount in enumerate(amounts)]
    lines = read(tmp_path_factory.mktemp("export"), statement_, items)
    assert [line.amount for line in lines] == amounts


@each_statement
def test_other_currencies_are_returned(tmp_path: Path, form: dict[str, Any]) -> None:
    lines = read(tmp_path, form, [on_demand("i-0a", "p5.48xlarge", HOUR, "51.2")], currency="EUR")
    assert [(line.amount, line.currency) for line in lines] == [(Decimal("51.2"), "EUR")]


@each_statement
def test_closed_bill_is_final(tmp_path: Path, form: dict[str, Any]) -> None:
    items = [on_demand("i-0a", "p5.48xlarge", HOUR, "55")]
    write_export(tmp_path, items, form=form["format"], invoice="EUINDE26-1")
    soon = DuckDbBill(tmp_path, cur_settings(**form), DECEMBER + timedelta(days=13))
    late = DuckDbBill(tmp_path, cur_settings(**form), DECEMBER + timedelta(days=14))
    without = form["format"] == "focus-1.0"
    assert [line.is_final for line in soon.lines(NOVEMBER, DECEMBER)] == [not without]
    assert [line.is_final for line in late.lines(NOVEMBER, DECEMBER)] == [True]


@each_statement
def test_only_the_requested_months_and_hours_are_read(tmp_path: Path, form: dict[str, Any]) -> None:
    hour = timedelta(hours=1)
    times = [NOVEMBER - hour, NOVEMBER, NOVEMBER + hour, DECEMBER - hour, DECEMBER]
    items = [on_demand(f"i-0{number}", "p5.48xlarge", at, "55") for number, at in enumerate(times)]
    write_export(tmp_path, items, form=form["format"])
    bill = DuckDbBill(tmp_path, cur_settings(**form))
    assert [line.resource_id for line in bill.lines(NOVEMBER, DECEMBER)] == ["i-01", "i-02", "i-03"]
    assert [line.resource_id for line in bill.lines(NOVEMBER, NOVEMBER + timedelta(hours=1))] == ["i-01"]
    sql = sql_statement(cur_settings(**form), NOVEMBER, DECEMBER, now=NOW)
    assert "billing_period BETWEEN '2026-11' AND '2026-11'" in sql, "Athena scans one month's files"


@each_statement
def test_lines_are_sorted_by_time(tmp_path: Path, form: dict[str, Any]) -> None:
    times = [HOUR + timedelta(hours=at) for at in (5, -30, 2, 0)]
    lines = read(tmp_path, form, [on_demand(f"i-0{at.hour}", "p5.48xlarge", at, "55") for at in times])
    assert [line.start for line in lines] == sorted(times)


@pytest.mark.parametrize(
    ("instance_type", "is_read"),
    [
        ("p4de.24xlarge", True),
        ("p6-b200.48xlarge", True),
        ("g6e.xlarge", True),
        ("gr6.4xlarge", True),
        ("g6f.large", True),
        ("gr6f.4xlarge", True),
        ("g5g.xlarge", True),
        ("trn2.48xlarge", True),
        ("inf2.xlarge", True),
        ("dl1.24xlarge", True),
        ("m5.large", False),
        ("r7g.xlarge", False),
        ("c5n.18xlarge", False),
        ("i4g.large", False),
        ("hpc7g.16xlarge", False),
        ("mac2.metal", False),
        ("d3.xlarge", False),
        ("t4g.small", False),
    ],
)
def test_only_accelerated_families_are_read(tmp_path: Path, instance_type: str, is_read: bool) -> None:
    lines = read(tmp_path, EVERY[0], [on_demand("i-0a", instance_type, HOUR, "1")])
    assert [line.instance_type for line in lines] == ([instance_type] if is_read else [])


@pytest.mark.parametrize("form", EVERY, ids=str)
def test_statements_are_valid_for_athena(form: dict[str, Any]) -> None:
    sql = sql_statement(cur_settings(**form), NOVEMBER, DECEMBER, now=NOW)
    (parsed,) = sqlglot.parse(sql, read="trino")
    assert parsed is not None
    assert "$table" not in sql
    assert '"bill"' in sql


def test_daily_export_is_refused(tmp_path: Path) -> None:
    daily = replace(on_demand("i-0a", "p5.48xlarge", HOUR.replace(hour=0), "1321"), end=HOUR.replace(hour=0, day=20))
    with pytest.raises(SourceError, match="not hourly"):
        read(tmp_path, EVERY[0], [daily])


@pytest.mark.parametrize(
    ("column", "cell"),
    [
        (0, "surprise"),
        (1, "yesterday"),
        (5, None),
        (9, "much"),
        (10, None),
        (10, "$5"),
        (11, ""),
        (10, "NaN"),
        (10, "1e308"),
        (9, "Infinity"),
        (9, "1e308"),
        (9, "1e-999999999"),
        (10, "1e-999999999"),
    ],
)
def test_invalid_row_is_refused(tmp_path: Path, column: int, cell: str | None) -> None:
    form: ExportFormat = "cur2"
    write_export(tmp_path, [on_demand("i-0a", "p5.48xlarge", HOUR, "55")], form=form)
    (row,) = run(sql_statement(cur_settings(), NOVEMBER, DECEMBER, now=NOW), tmp_path)
    parse_bill_line(row)
    with pytest.raises(SourceError, match="cannot be read"):
        parse_bill_line([*row[:column], cell, *row[column + 1 :]])
