"""The price book: which price of which source applies to a node at a time."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from itertools import product

import pytest

from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode
from gpucost.core.pricing.prices import (
    Discount,
    Price,
    PriceBook,
    PriceSource,
    PriceUnit,
    QuotedPiece,
    attributes_of_node,
)

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
START = to_epoch_ms(HOUR)
TIME = IntervalMs(START, START + HOUR_MS)
FACTS = {"instance_type": "p5.48xlarge", "region": "us-east-1", "zone_id": "use1-az4", "capacity_type": "spot"}


def price(
    usd: str,
    *,
    source: PriceSource = "rates",
    unit: PriceUnit = "node-hour",
    start: datetime | None = None,
    end: datetime | None = None,
    fetched: datetime | None = None,
    currency: str = "USD",
    **applies_to: str,
) -> Price:
    return Price(source, unit, Decimal(usd), applies_to, currency, start, end, fetched)


def at(minute: int) -> datetime:
    return HOUR.replace(minute=minute)


def hourly(*prices: Price, source: PriceSource = "rates", discounts: tuple[Discount, ...] = ()) -> str | None:
    """Return the mean price of the hour; None without a price."""
    quote = PriceBook(prices, discounts).quote(source, FACTS, TIME)
    return None if quote is None else str(mean(quote))


def mean(quote: Sequence[QuotedPiece]) -> Fraction:
    return sum((piece.hourly_price * piece.time.length for piece in quote), Fraction(0)) / HOUR_MS


def test_price_applies_to_nodes_that_match_all_its_facts() -> None:
    assert hourly(price("55")) == "55"
    assert hourly(price("55", instance_type="p5.48xlarge", region="us-east-1")) == "55"
    assert hourly(price("55", instance_type="p5.48xlarge", region="eu-west-1")) is None
    assert hourly(price("55", instance_type="p5*")) == "55"
    assert hourly(price("55", instance_type="p4*")) is None
    assert hourly(price("55", node_pool="a")) is None  # the node's pool is unknown
    assert hourly(price("55", source="spot")) is None


@pytest.mark.parametrize("turned", [False, True])
def test_price_with_most_facts_wins_then_latest_begun_then_latest_fetched(turned: bool) -> None:
    def wins(*prices: Price) -> str | None:
        return hourly(*(reversed(prices) if turned else prices))

    assert wins(price("1"), price("2", instance_type="p5.48xlarge")) == "2"
    assert wins(price("1", start=at(0)), price("2", region="us-*")) == "2"
    assert wins(price("1"), price("2", start=HOUR.replace(year=2025))) == "2"
    assert wins(price("1", start=HOUR.replace(year=2025)), price("2", start=HOUR.replace(year=2026, month=1))) == "2"
    assert wins(price("1", fetched=at(1)), price("2", fetched=at(2))) == "2"


def test_price_change_within_hour_is_weighted_by_time() -> None:
    prices = [price("60", end=at(15)), price("20", start=at(15), end=at(45)), price("100", start=at(45))]
    assert hourly(*prices) == "50"  # (15 × 60 + 30 × 20 + 15 × 100) / 60
    assert hourly(prices[0], prices[2]) is None  # half an hour without a price is not free
    assert hourly(prices[0], prices[2], price("8", end=at(59))) == "44"


def test_empty_time_has_price() -> None:
    quote = PriceBook([price("60")]).quote("rates", FACTS, IntervalMs(START, START))
    assert quote is not None
    assert mean(quote) == 0


def test_factor_on_on_demand_follows_price_list() -> None:
    listed = [
        price("40", source="on-demand", instance_type="p5.48xlarge", end=at(30)),
        price("80", source="on-demand", instance_type="p5.48xlarge", start=at(30)),
    ]
    reserved = price("0.65", unit="of-on-demand", capacity_type="spot")
    assert hourly(reserved, *listed) == "39"
    assert hourly(reserved) is None
    assert hourly(reserved, price("1", source="on-demand", instance_type="p4d.24xlarge")) is None


def test_factor_on_missing_on_demand_price_falls_back_to_next_price() -> None:
    share = price("0.65", unit="of-on-demand", start=at(30))
    assert hourly(share, price("10")) == "10"
    assert hourly(share, price("10"), price("100", source="on-demand")) == "75/2"  # 10 for half an hour, then 65


def test_discount_applies_to_prices_of_its_sources_while_valid() -> None:
    tenth = Discount(Decimal("0.9"), frozenset({"rates"}), {"instance_type": "p5*"}, at(30), None)
    assert hourly(price("100"), discounts=(tenth,)) == "95"
    more = Discount(Decimal("0.5"), frozenset({"rates"}))
    assert hourly(price("100"), discounts=(tenth, more)) == "95/2"
    other = Discount(Decimal("0.5"), frozenset({"on-demand"}))
    assert hourly(price("100"), discounts=(other,)) == "100"
    elsewhere = Discount(Decimal("0.5"), frozenset({"rates"}), {"region": "eu-*"})
    assert hourly(price("100"), discounts=(elsewhere,)) == "100"


def test_each_quote_is_that_of_the_node_time_and_source() -> None:
    """Of one book, whatever was quoted before; each price and discount depends on another fact."""
    prices = [
        price("10", end=at(30)),
        price("20", instance_type="p4*"),
        price("30", region="us-east-1", start=at(30)),
        price("0.5", unit="of-on-demand", capacity_type="spot"),
        price("80", source="on-demand", node="a"),
        price("90", source="on-demand"),
    ]
    discounts = (Discount(Decimal("0.9"), frozenset({"rates"}), {"zone_id": "use1-*"}),)
    nodes = [
        {"node": node, "zone_id": zone_id, "instance_type": kind, "region": region, "capacity_type": capacity}
        for node in "ab"
        for zone_id in ("use1-az4", "usw2-az1")
        for kind in ("p4d.24xlarge", "p5.48xlarge")
        for region in ("us-east-1", "us-west-2")
        for capacity in ("spot", "on-demand")
    ]
    sources: tuple[PriceSource, ...] = ("rates", "on-demand", "spot")
    times = (TIME, IntervalMs(START, to_epoch_ms(at(30))), IntervalMs(to_epoch_ms(at(30)), START + HOUR_MS))
    arguments = list(product(sources, nodes, times))
    book = PriceBook(prices, discounts)
    quotes = [book.quote(*quoted) for quoted in arguments]
    assert quotes == [PriceBook(prices, discounts).quote(*quoted) for quoted in arguments]
    assert len({str(quote) for quote in quotes}) > len(times) * 8


def test_currencies_are_never_mixed() -> None:
    both = [price("60", end=at(30)), price("60", start=at(30), currency="EUR")]
    assert hourly(*both) is None
    quote = PriceBook([price("7", currency="CNY")]).quote("rates", FACTS, TIME)
    assert quote is not None
    assert [piece.currency for piece in quote] == ["CNY"]


def test_prices_per_gpu_and_per_node_are_distinguished() -> None:
    quote = PriceBook([price("3", unit="gpu-hour", end=at(30)), price("30", start=at(30))]).quote("rates", FACTS, TIME)
    assert quote is not None
    assert [(piece.hourly_price, piece.is_per_gpu) for piece in quote] == [(Fraction(3), True), (Fraction(30), False)]


@pytest.mark.parametrize(
    ("labels", "zone", "region"),
    [
        ({"label_topology_kubernetes_io_region": "eu-central-1"}, "x", "eu-central-1"),
        ({"label_failure_domain_beta_kubernetes_io_region": "eu-central-1"}, "", "eu-central-1"),
        ({}, "us-gov-west-1b", "us-gov-west-1"),
        ({}, "us-west-2-lax-1a", "us-west-2"),
        ({}, "", ""),
    ],
)
def test_region_comes_from_label_or_zone(labels: dict[str, str], zone: str, region: str) -> None:
    assert attributes_of_node(GpuNode("n", zone=zone, labels=labels), "c")["region"] == region


def test_facts_of_a_node() -> None:
    labels = {"label_kubernetes_io_os": "windows", "label_karpenter_k8s_aws_capacity_reservation_id": "cr-1"}
    facts = attributes_of_node(GpuNode("n", "aws:///us-west-2a/i-0abc", "g5.xlarge", labels=labels), "c")
    assert (facts["instance_id"], facts["operating_system"], facts["reservation_id"]) == ("i-0abc", "windows", "cr-1")
    plain = attributes_of_node(GpuNode("n", "fargate-10"), "c")
    assert (plain["instance_id"], plain["operating_system"], plain["reservation_id"]) == ("", "linux", "")
