"""A published table of GPU prices through fetchers, price book and rating, compared with manual results."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction

import boto3
import pytest
from moto import mock_aws

from gpucost.core.hours import to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE
from gpucost.core.pricing.node_costs import NodeCost, Pricing, Unpriced
from gpucost.core.pricing.prices import Price, PriceBook, PriceSource
from gpucost.sources.aws_prices import AwsPriceList, Ec2InstanceTypes, Ec2SpotHistory
from gpucost.storage.ports import Table
from gpucost.storage.price_book import PriceStore
from tests.sources.aws_prices import Aws, Offer, Point

NOON = datetime(2026, 11, 18, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
COUNTS = {
    "g4dn.xlarge": 1,
    "g4dn.12xlarge": 4,
    "g5.xlarge": 1,
    "g5.12xlarge": 4,
    "g5.48xlarge": 8,
    "g6.xlarge": 1,
    "g6.12xlarge": 4,
    "p3.2xlarge": 1,
    "p3.8xlarge": 4,
    "p4d.24xlarge": 8,
    "p5.48xlarge": 8,
}
"""GPUs per instance, from the article's instance table."""
TABLE = {
    "g4dn.xlarge": ("0.526", "0.158", "0.526", "0.158"),
    "g5.xlarge": ("1.006", "0.302", "1.006", "0.302"),
    "g5.2xlarge": ("1.212", "0.364", "1.212", "0.364"),
    "g5.12xlarge": ("5.672", "1.702", "1.418", "0.4255"),
    "p3.2xlarge": ("3.060", "0.918", "3.06", "0.918"),
}
"""On-demand and spot prices per instance-hour from the article's spot table, and per GPU-hour."""


def priced(book: PriceStore, kind: str, capacity: str, order: tuple[PriceSource, ...], gpus: int) -> Fraction:
    """Cost of one of a node's GPUs for an hour."""
    held = book.in_force(NOON - HOUR, NOON)
    node = GpuNode("n", instance_type=kind, zone="us-east-1a", zone_id="use1-az6", capacity_type=capacity)
    hour = IntervalMs(to_epoch_ms(NOON - HOUR), to_epoch_ms(NOON))
    price = Pricing(PriceBook(held.prices), order, instance_shapes=held.shapes).node_cost(
        node, "demo", hour, Fraction(gpus)
    )
    assert isinstance(price, NodeCost), price
    assert price.source == ("spot" if capacity == "spot" else "on-demand")
    return price.cost / gpus


@pytest.fixture
def book(ledger_table: Table) -> PriceStore:
    """The article's prices as AWS would return them."""
    aws = Aws()
    aws.offers = [Offer(kind, "us-east-1", listed) for kind, (listed, *_) in TABLE.items()]
    aws.points = [Point(kind, "us-east-1a", NOON - 40 * HOUR, spot) for kind, (_, spot, *_) in TABLE.items()]
    price_store = PriceStore(ledger_table)
    listed = AwsPriceList(aws.client).fetch("us-east-1", [*TABLE], ["linux"], tenancy="Shared", now=NOON)
    price_store.merge_prices("on-demand", listed, rated_until=NOON, now=NOON)
    spot = Ec2SpotHistory(aws.client).fetch("us-east-1", [*TABLE], ["linux"], since=NOON - 9 * HOUR, now=NOON)
    price_store.merge_prices("spot", spot, since=NOON - 9 * HOUR, rated_until=NOON, now=NOON)
    return price_store


@pytest.mark.parametrize("kind", [*TABLE])
def test_gpu_of_each_instance_type_costs_the_documented_price(book: PriceStore, kind: str) -> None:
    _, _, listed, spot = TABLE[kind]
    gpus = int(GPUS_OF_INSTANCE[kind])
    order: tuple[PriceSource, ...] = ("spot", "on-demand")
    assert priced(book, kind, "on-demand", order, gpus) == Fraction(listed)
    assert priced(book, kind, "spot", order, gpus) == Fraction(spot)
    assert Fraction("0.695") < 1 - Fraction(spot) / Fraction(listed) < Fraction("0.705"), "the article's about 70%"


def test_spot_node_in_another_zone_uses_the_next_source(book: PriceStore) -> None:
    held = book.in_force(NOON - HOUR, NOON)
    hour = IntervalMs(to_epoch_ms(NOON - HOUR), to_epoch_ms(NOON))
    node = GpuNode("n", instance_type="g5.xlarge", zone="us-east-1b", zone_id="use1-az1", capacity_type="spot")
    price = Pricing(PriceBook(held.prices), ("spot", "on-demand")).node_cost(node, "demo", hour, Fraction(1))
    assert isinstance(price, NodeCost)
    assert (price.source, price.cost) == ("on-demand", Fraction("1.006"))
    alone = Pricing(PriceBook(held.prices), ("spot",)).node_cost(node, "demo", hour, Fraction(1))
    assert isinstance(alone, Unpriced)


def test_built_in_shapes_match_the_article_and_ec2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    with mock_aws():
        catalogue = Ec2InstanceTypes(lambda service, region: boto3.client(service, region_name=region))  # type: ignore[call-overload]
        gpus_by_type = {shape.instance_type: shape.gpus for shape in catalogue.fetch("us-east-1", [*COUNTS])}
    # EC2 does not list retired instance types.
    assert gpus_by_type.keys() >= COUNTS.keys() - {"p3.2xlarge", "p3.8xlarge"}
    assert gpus_by_type == {kind: count for kind, count in COUNTS.items() if kind in gpus_by_type}
    assert {kind: GPUS_OF_INSTANCE[kind] for kind in COUNTS} == COUNTS


def test_eight_gpus_for_96_hours_at_three_dollars_cost_2304(ledger_table: Table) -> None:
    """An article on scheduling says $2,880 for 8 A100 × $3 × 96 h; it is $2,304."""
    book = PriceStore(ledger_table)
    rate = Price("override", "gpu-hour", Decimal(3), {"gpu_model": "*A100*"}, "USD", NOON, None, NOON, "ann", "case")
    book.set_override(rate, now=NOON)
    node = GpuNode("n", instance_type="p4d.24xlarge", gpu_model="NVIDIA-A100-SXM4-40GB")
    total = Fraction(0)
    for hours in range(0, 96, 24):
        start = NOON + hours * HOUR
        held = book.in_force(start, start + 24 * HOUR)
        pricing = Pricing(PriceBook(held.prices), ("override",))
        for hour in range(24):
            time = IntervalMs(to_epoch_ms(start + hour * HOUR), to_epoch_ms(start + (hour + 1) * HOUR))
            price = pricing.node_cost(node, "demo", time, Fraction(8))
            assert isinstance(price, NodeCost)
            total += price.cost
    assert total == 2304
