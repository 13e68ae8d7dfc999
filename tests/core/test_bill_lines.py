"""Building an hour's bill from lines: examples computed by hand, and properties of any bill."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.core.amounts import to_decimal
from gpucost.core.hours import HOUR as HOUR_LENGTH
from gpucost.core.hours import HOUR_MS
from gpucost.core.pricing.bill import (
    Bill,
    BillLine,
    BillSharing,
    Blend,
    build_bill,
    instances_with_mixed_currencies,
    split_by_hour,
)
from tests.records import amount

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
NONE = BillSharing("none")


def line(instance: str, usd: str, *, minutes: Fraction | int = 60, **changes: Any) -> BillLine:
    """A bill line of an instance-hour."""
    bill_line = BillLine(
        kind="instance",
        start=HOUR,
        end=HOUR + HOUR_LENGTH,
        account="1",
        region="eu-central-1",
        resource_id=instance,
        instance_type="p5.48xlarge",
        capacity_type="on-demand",
        operation="RunInstances",
        instance_hours=Fraction(minutes) / 60,
        amount=Decimal(usd),
        currency="USD",
        is_final=False,
    )
    return replace(bill_line, **changes)


def unused(kind: Any, reference: str, usd: str, **changes: Any) -> BillLine:
    """A bill line of an unused commitment."""
    return replace(line(reference, usd), **{"kind": kind, "instance_hours": None, **changes})


def paid(bill: Bill) -> dict[str, tuple[str, str | None]]:
    """Return what each instance pays, and its unblended amount if that differs."""
    return {
        instance_id: (
            f"{to_decimal(billed_hour.amount):f}",
            None if billed_hour.unblended_amount is None else f"{to_decimal(billed_hour.unblended_amount):f}",
        )
        for instance_id, billed_hour in bill.instances.items()
    }


def test_without_blend_each_instance_pays_its_line() -> None:
    bill = build_bill([line("i-a", "55.04"), line("i-b", "30")], NONE)
    assert paid(bill) == {"i-a": ("55.040000000000", None), "i-b": ("30.000000000000", None)}


def test_identical_instances_pay_same_rate() -> None:
    """Three p5, of which a plan covers one, and one that ran 15 minutes: 153 ÷ 3.25 h = 47.076923076923 per hour."""
    bill = build_bill(
        [line("i-a", "55"), line("i-b", "30"), line("i-c", "55"), line("i-d", "13", minutes=15)], BillSharing()
    )
    assert paid(bill) == {
        "i-a": ("47.076923076923", "55.000000000000"),
        "i-b": ("47.076923076923", "30.000000000000"),
        "i-c": ("47.076923076923", "55.000000000000"),
        "i-d": ("11.769230769231", "13.000000000000"),
    }
    assert bill.instances["i-d"].billed_ms == 15 * 60_000


@pytest.mark.parametrize(
    "other",
    [
        {"account": "2"},
        {"region": "us-east-1"},
        {"instance_type": "p5e.48xlarge"},
        {"capacity_type": "spot"},
        {"capacity_type": "reserved"},
        {"operation": "RunInstances:0002"},
        {"currency": "EUR"},
    ],
)
@pytest.mark.parametrize("blend", ["instance_type", "node_pool"])
def test_instances_of_another_kind_are_not_blended(blend: Blend, other: dict[str, Any]) -> None:
    bill = build_bill([line("i-a", "55"), line("i-b", "30", **other)], BillSharing(blend))
    assert paid(bill) == {"i-a": ("55.000000000000", None), "i-b": ("30.000000000000", None)}


def test_node_pool_blend_stays_within_pool_and_type() -> None:
    pools = {"i-a": "train", "i-b": "train", "i-c": "serve", "i-d": "train"}
    lines = [
        line("i-a", "50"),
        line("i-b", "30"),
        line("i-c", "20"),
        line("i-d", "1", instance_type="g5.xlarge"),
        line("i-outside", "8"),
        line("i-outside-2", "10"),
    ]
    bill = build_bill(lines, BillSharing("node_pool", pools))
    assert {name: to_decimal(billed_hour.amount) for name, billed_hour in bill.instances.items()} == {
        "i-a": 40,
        "i-b": 40,
        "i-c": 20,
        "i-d": 1,
        "i-outside": 9,
        "i-outside-2": 9,
    }


def test_spot_instance_interrupted_in_first_hour_is_free_and_final() -> None:
    """It neither lowers the price of the others nor bears a part of it."""
    spot: dict[str, Any] = {"capacity_type": "spot", "operation": ""}
    bill = build_bill(
        [line("i-a", "9", **spot), line("i-b", "0", minutes=20, **spot), line("i-c", "7", **spot)], BillSharing()
    )
    assert paid(bill) == {
        "i-a": ("8.000000000000", "9.000000000000"),
        "i-b": ("0.000000000000", None),
        "i-c": ("8.000000000000", "7.000000000000"),
    }
    assert [bill.instances[name].is_final for name in ("i-a", "i-b", "i-c")] == [False, True, False]
    assert bill.instances["i-b"].billed_ms == 20 * 60_000


def test_lines_of_same_instance_add_up() -> None:
    """20 minutes on demand, 40 under a plan; another instance changed its type while it was stopped."""
    lines = [
        line("i-a", "18.346666666667", minutes=20),
        line("i-a", "20", minutes=40),
        line("i-b", "1", minutes=10, instance_type="g5.xlarge"),
        line("i-b", "2", minutes=30, instance_type="g5.2xlarge"),
        line("i-c", "5", instance_type="g5.2xlarge"),
    ]
    bill = build_bill(lines, NONE)
    assert {name: (billed_hour.amount, billed_hour.billed_ms) for name, billed_hour in bill.instances.items()} == {
        "i-a": (amount("38.346666666667"), HOUR_MS),
        "i-b": (amount(3), 40 * 60_000),
        "i-c": (amount(5), HOUR_MS),
    }
    blended = build_bill(lines, BillSharing())
    assert blended.instances["i-b"].amount == amount("3.2"), "i-b counts as a g5.2xlarge: 8 ÷ 100 min × 40 min"


def test_billed_seconds_are_exact_to_milliseconds() -> None:
    """AWS writes 25 min 20 s as 0.4222222222 hours."""
    bill = build_bill([line("i-a", "1", instance_hours=Fraction(Decimal("0.4222222222")))], NONE)
    assert bill.instances["i-a"].billed_ms == 1_520_000


def test_bill_is_final_if_all_lines_are() -> None:
    open_line, closed = line("i-a", "1"), line("i-b", "1", is_final=True)
    assert build_bill([closed], NONE).is_final
    assert not build_bill([closed, open_line], NONE).is_final
    assert not build_bill([], NONE).is_final
    mixed = build_bill([closed, open_line], NONE)
    assert (mixed.instances["i-a"].is_final, mixed.instances["i-b"].is_final) == (False, True)


def test_instance_with_two_currencies_has_no_price() -> None:
    lines = [line("i-a", "1", minutes=30), line("i-a", "1", minutes=30, currency="EUR"), line("i-b", "4")]
    bill = build_bill(lines, BillSharing())
    assert list(bill.instances) == ["i-b"]
    assert instances_with_mixed_currencies(lines) == ["i-a"]


def test_euro_bill_stays_in_euro() -> None:
    bill = build_bill(
        [line("i-a", "51", currency="EUR"), unused("unused-savings-plan", "arn:sp", "3", currency="EUR")],
        BillSharing(unused_charged_to="demo"),
    )
    assert bill.instances["i-a"].currency == "EUR"
    assert [charge.currency for charge in bill.charges_to("demo")] == ["EUR"]


def test_unused_commitments_are_charged_to_cluster() -> None:
    lines = [
        unused("unused-savings-plan", "arn:sp", "19.5"),
        unused("unused-savings-plan", "arn:sp", "0.5", account="2"),
        unused("unused-reservation", "arn:ri", "2", instance_hours=Fraction(1)),
        unused("unused-capacity-reservation", "arn:cr", "110.08", instance_hours=Fraction(2)),
        unused("unused-capacity-reservation", "arn:cr-x", "1", instance_type="p99.large", instance_hours=Fraction(1)),
    ]
    bill = build_bill(lines, BillSharing(unused_charged_to="demo"))
    assert [(charge.kind, charge.reference, charge.amount, charge.gpu_hours) for charge in bill.charges_to("demo")] == [
        ("unused-capacity-reservation", "arn:cr", amount("110.08"), amount(16)),
        ("unused-capacity-reservation", "arn:cr-x", amount(1), None),
        ("unused-reservation", "arn:ri", amount(2), None),
        ("unused-savings-plan", "arn:sp", amount(20), None),
    ]
    assert bill.charges_to("another") == ()
    assert build_bill(lines, BillSharing()).charges == {}
    reservations_only = build_bill(lines, BillSharing(unused_charged_to="demo", unused_kinds=("reservation",)))
    assert [charge.reference for charge in reservations_only.charges_to("demo")] == ["arn:ri"]


def test_reservation_fee_is_spread_over_month_once_bill_is_closed() -> None:
    """100 over the 720 hours of November; the bill of the current month has what is unused so far."""
    start, end = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC)
    fee = unused("unused-reservation", "arn:ri", "100", start=start, end=end)
    assert split_by_hour(fee) == []
    spread = split_by_hour(replace(fee, is_final=True, instance_hours=Fraction(10)))
    assert [hour for hour, _ in spread] == [start + number * HOUR_LENGTH for number in range(720)]
    assert sum(part.amount for _, part in spread) == 100
    assert {part.amount for _, part in spread} == {Decimal("0.138888888889"), Decimal("0.138888888888")}
    assert sum(part.instance_hours or 0 for _, part in spread) == 10
    same_end = split_by_hour(replace(fee, is_final=True, end=end - timedelta(seconds=1)))
    assert len(same_end) == 720


def test_line_within_single_hour_is_not_split() -> None:
    hour_line = line("i-a", "5")
    assert split_by_hour(hour_line) == [(HOUR, hour_line)]
    late = replace(hour_line, start=HOUR + timedelta(minutes=20))
    assert split_by_hour(late) == [(HOUR, late)]


AMOUNTS = st.decimals("0", 100, places=10)
LINES = st.builds(
    line,
    st.sampled_from([f"i-{number}" for number in range(9)]),
    AMOUNTS.map(str),
    minutes=st.integers(0, 3600).map(lambda seconds: Fraction(seconds, 60)),
    instance_type=st.sampled_from(["p5.48xlarge", "g5.xlarge"]),
    capacity_type=st.sampled_from(["spot", "on-demand", "reserved"]),
    account=st.sampled_from(["1", "2"]),
)
POOLS = st.dictionaries(st.sampled_from([f"i-{number}" for number in range(9)]), st.sampled_from(["x", "y"]))


@given(st.lists(LINES, max_size=25), st.sampled_from(["none", "instance_type", "node_pool"]), POOLS)
def test_blend_preserves_total_amount(lines: list[BillLine], blend: Blend, pools: dict[str, str]) -> None:
    bill = build_bill(lines, BillSharing(blend, pools))
    billed_total = sum(billed_hour.amount for billed_hour in bill.instances.values())
    assert to_decimal(billed_total) == sum(bill_line.amount for bill_line in lines)
    amounts: dict[str, Decimal] = defaultdict(Decimal)
    for bill_line in lines:
        amounts[bill_line.resource_id] += bill_line.amount
    for instance_id, billed in bill.instances.items():
        unblended = billed.amount if billed.unblended_amount is None else billed.unblended_amount
        assert to_decimal(unblended) == amounts[instance_id]


@given(st.lists(LINES, max_size=25), st.sampled_from(["instance_type", "node_pool"]), POOLS)
def test_instances_of_pool_pay_mean_rate(lines: list[BillLine], blend: Blend, pools: dict[str, str]) -> None:
    """Compares with the mean rate computed for each pool."""
    lines = list({bill_line.resource_id: bill_line for bill_line in reversed(lines)}.values())
    bill = build_bill(lines, BillSharing(blend, pools))
    for bill_line in lines:
        pool = [
            other
            for other in lines
            if (other.account, other.instance_type, other.capacity_type)
            == (bill_line.account, bill_line.instance_type, bill_line.capacity_type)
            and not (other.capacity_type == "spot" and other.amount == 0)
            and (blend == "instance_type" or pools.get(other.resource_id, "") == pools.get(bill_line.resource_id, ""))
        ]
        expected = _mean_rate(pool) * (bill_line.instance_hours or 0) if bill_line in pool else Fraction(0)
        if any(other.instance_hours for other in pool):
            assert abs(bill.instances[bill_line.resource_id].amount - expected * 10**12) < 1


def _mean_rate(lines: Sequence[BillLine]) -> Fraction:
    hours = sum((bill_line.instance_hours or Fraction(0) for bill_line in lines), Fraction(0))
    return sum((Fraction(bill_line.amount) for bill_line in lines), Fraction(0)) / hours if hours else Fraction(0)
