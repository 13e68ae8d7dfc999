"""Nodes of a Capacity Block cost the block's price and the operating system fee that the bill has for the instance.

AWS's page of Capacity Block prices has both: the reservation of a p5.48xlarge at $39.33 an hour, paid in advance, and
the fee of Red Hat Enterprise Linux, $2.77 an hour, billed while the instance runs.
"""

import json
from collections.abc import Callable
from dataclasses import replace as replace_item
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gpucost.core.amounts import to_decimal
from gpucost.core.hour_record import Coverage, HourRecord
from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode
from gpucost.core.metering.usage import NodeUsage, Usage
from gpucost.core.pricing.rating import rate_usage
from gpucost.pipeline.pricing import pricing_of
from gpucost.pipeline.refresh_bill import BillRefreshService
from gpucost.settings_document import parse_settings
from gpucost.storage.bill_store import BillStore
from gpucost.storage.sqlite_table import SqliteTable
from gpucost_devstack.bill.export import write_export
from gpucost_devstack.bill.items import LineItem, capacity_block, on_demand
from tests.bill_export import DuckDbBill

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
BLOCK = "arn:aws:ec2:us-east-1:1:capacity-reservation/cr-0bbb"
TYPE = "p5.48xlarge"
RHEL = "RunInstances:0010"
EVERY: list[dict[str, Any]] = [
    {"format": "cur2", "amount": "amortized"},
    {"format": "cur2", "amount": "net_amortized"},
    {"format": "focus-1.0"},
    {"format": "focus-1.2"},
]
each_format = pytest.mark.parametrize("form", EVERY, ids=lambda form: "-".join(form.values()))
BLOCK_SETTINGS = {
    "reservation_id": "cr-0bbb",
    "instance_type": TYPE,
    "instances": 2,
    "fee_usd": "1887.84",
    "from": "2026-11-19",
    "until": "2026-11-20",
}
Rate = Callable[..., HourRecord]


def fee(instance: str, usd: str) -> LineItem:
    """The line of an instance of the block: the fee alone."""
    amount = Decimal(usd)
    return replace_item(
        capacity_block(instance, TYPE, HOUR, BLOCK),
        operation=RHEL,
        on_demand_cost=amount,
        unblended_cost=amount,
        amortized_cost=amount,
    )


def p5(name: str, reservation: str = "") -> NodeUsage:
    """An idle node that exists all hour."""
    present = IntervalMs(to_epoch_ms(HOUR), to_epoch_ms(HOUR) + HOUR_MS)
    gpu_ms, zero = Fraction(8 * HOUR_MS), Fraction(0)
    labels = {"label_karpenter_k8s_aws_capacity_reservation_id": reservation} if reservation else {}
    node = GpuNode(name, f"aws:///us-east-1a/i-{name}", TYPE, physical_gpus=8, labels=labels)
    return NodeUsage(node, present, gpu_ms, gpu_ms, zero, zero, zero, zero, zero)


@pytest.fixture
def rate(sqlite_table: SqliteTable, tmp_path: Path) -> Rate:
    """Read the export, store the bill, and rate an hour with it."""

    def rate(form: dict[str, Any], items: list[LineItem], nodes: list[NodeUsage], **pricing: Any) -> HourRecord:
        write_export(tmp_path, items, form=form["format"])
        store = BillStore(sqlite_table, clock=lambda: NOW)
        section = {"cur": {"database": "billing", "table": "bill", **form}, "capacity_blocks": [BLOCK_SETTINGS]}
        clusters = [{"name": "demo", "prometheus": {"url": "http://p"}}]
        settings = parse_settings(json.dumps({"clusters": clusters, "pricing": section | pricing}))
        BillRefreshService(lambda cur: DuckDbBill(tmp_path, cur, NOW), store, clock=lambda: NOW).refresh(settings)
        usage = Usage("demo", HOUR, Coverage(Decimal(1), Decimal(1)), (), tuple(nodes), ())
        return rate_usage(usage, replace(pricing_of(settings), bill=store.bill(HOUR)))

    return rate


def costs(record: HourRecord) -> dict[str, tuple[str | None, Decimal]]:
    return {node.node: (node.price_source, to_decimal(node.capacity.node_cost_usd)) for node in record.nodes}


def unused(record: HourRecord) -> Decimal:
    return to_decimal(sum(charge.amount for charge in record.charges if charge.kind == "unused-capacity-block"))


@each_format
@pytest.mark.parametrize("sources", [(), ("cur", "capacity-block")], ids=["automatic", "bill-first"])
def test_node_of_a_block_costs_the_block_and_the_fee(
    rate: Rate, form: dict[str, Any], sources: tuple[str, ...]
) -> None:
    record = rate(form, [fee("i-0a", "2.77")], [p5("0a", "cr-0bbb")], **({"sources": sources} if sources else {}))
    assert costs(record) == {"0a": ("capacity-block", Decimal("42.10"))}
    assert unused(record) == Decimal("39.33"), "of the other instance only"
    assert record.status == "provisional", "the bill is still open"


@each_format
def test_fee_of_a_block_is_not_blended_with_other_instances(rate: Rate, form: dict[str, Any]) -> None:
    """FOCUS 1.0 has no reservations, so there equal rates would include the fee: the page says so."""
    blend = {"blend": "none"} if form["format"] == "focus-1.0" else {}
    rhel = replace_item(on_demand("i-0b", TYPE, HOUR, "101.09"), operation=RHEL)
    nodes = [p5("0a", "cr-0bbb"), p5("0b")]
    record = rate({**form, **blend}, [fee("i-0a", "2.77"), rhel], nodes)
    assert costs(record) == {"0a": ("capacity-block", Decimal("42.10")), "0b": ("cur", Decimal("101.09"))}


@each_format
def test_block_without_fees_has_its_own_price_alone(rate: Rate, form: dict[str, Any]) -> None:
    record = rate(form, [fee("i-0a", "0"), on_demand("i-0c", TYPE, HOUR, "98.32")], [p5("0a", "cr-0bbb")])
    assert costs(record) == {"0a": ("capacity-block", Decimal("39.33"))}
    assert record.status == "complete"


@pytest.mark.parametrize("form", EVERY[:2], ids=["cur2", "cur2-net"])
def test_fee_of_an_unlisted_block_is_named(rate: Rate, form: dict[str, Any]) -> None:
    """The next source prices the node; the note names the fee that no figure has."""
    other = {**BLOCK_SETTINGS, "reservation_id": "cr-0ccc"}
    record = rate(
        form, [fee("i-0a", "2.77")], [p5("0a", "cr-0bbb")], capacity_blocks=[other], rates=[{"node_hourly_usd": 50}]
    )
    assert costs(record) == {"0a": ("rates", Decimal(50))}
    assert record.notes == (
        "the bill's operating system fee of node 0a (p5.48xlarge), 2.77 USD, is not in any sum: rates prices the node. "
        "Add its Capacity Block to pricing.capacity_blocks",
    )
    alone = {"sources": ["cur"], "capacity_blocks": [], "rates": []}
    (note,) = rate(form, [fee("i-0a", "2.77")], [p5("0a", "cr-0bbb")], **alone).notes
    assert note == (
        "no price for node 0a (p5.48xlarge) from override, cur; the bill has only a fee of its Capacity Block. "
        "Add the block to pricing.capacity_blocks"
    )


@pytest.mark.parametrize("form", EVERY[:1], ids=["cur2"])
def test_listed_block_with_overridden_price_keeps_the_price_set_by_hand(rate: Rate, form: dict[str, Any]) -> None:
    """A rate stands for the whole node, fees included."""
    record = rate(
        form,
        [fee("i-0a", "2.77")],
        [p5("0a", "cr-0bbb")],
        sources=["rates", "capacity-block", "cur"],
        rates=[{"node_hourly_usd": 40}],
    )
    assert costs(record) == {"0a": ("rates", Decimal(40))}
    assert record.notes == ()


@pytest.mark.parametrize("form", EVERY[:1], ids=["cur2"])
def test_fee_in_another_currency_is_named(rate: Rate, form: dict[str, Any]) -> None:
    record = rate(form, [fee("i-0a", "2.77")], [p5("0a", "cr-0bbb")], currency="EUR")
    assert costs(record) == {"0a": ("capacity-block", Decimal("39.33"))}
    assert record.notes == (
        "the bill's operating system fee of node 0a (p5.48xlarge), 2.77 USD, is not in any sum: the hour is in EUR",
    )
