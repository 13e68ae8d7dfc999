"""Nodes without a price of AWS: list prices that name their day and region, and provisional spot nodes."""

from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest

from gpucost.core.hours import HOUR_MS
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GpuNode
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE, SAGEMAKER_PREFIX
from gpucost.core.pricing.list_price_table import DAYS, HOURLY_PRICES
from gpucost.core.pricing.node_costs import NodeCost, Unpriced
from gpucost.core.pricing.prices import Price
from gpucost.pipeline.pricing import pricing_of
from gpucost.settings_document import parse_settings

START = int(datetime(2026, 11, 19, 10, tzinfo=UTC).timestamp() * 1000)
WHOLE_HOUR = IntervalMs(START, START + HOUR_MS)


def node(instance_type: str, zone: str = "us-east-1a", capacity_type: str = "on-demand", zone_id: str = "") -> GpuNode:
    return GpuNode(
        name="n", instance_type=instance_type, zone=zone, capacity_type=capacity_type, zone_id=zone_id, physical_gpus=1
    )


def cost(node: GpuNode, pricing: str = "{}", fetched: tuple[Price, ...] = ()) -> NodeCost | Unpriced:
    settings = parse_settings(f'clusters: [{{name: c, prometheus: {{url: "http://x"}}}}]\npricing: {pricing}')
    return pricing_of(settings, fetched).node_cost(node, "c", WHOLE_HOUR, Fraction(1))


def priced(node: GpuNode, pricing: str = "{}", fetched: tuple[Price, ...] = ()) -> NodeCost:
    result = cost(node, pricing, fetched)
    assert isinstance(result, NodeCost), result
    return result


def fetched(source: str, usd: str) -> Price:
    facts = {"instance_type": "g5.xlarge", "region": "us-east-1", "operating_system": "linux"}
    if source == "spot":
        facts = {"instance_type": "g5.xlarge", "zone_id": "use1-az1", "capacity_type": "spot"}
    return Price("spot" if source == "spot" else "on-demand", "node-hour", Decimal(usd), facts)


@pytest.mark.parametrize(
    ("instance_type", "usd"),
    # docs/how-to/pricing.md quotes the same prices from the AWS Price List.
    [("p5.48xlarge", "55.04"), ("p4d.24xlarge", "21.957642"), ("g5.xlarge", "1.006")],
)
def test_list_price_names_its_day_and_region(instance_type: str, usd: str) -> None:
    price = priced(node(instance_type))
    assert (price.source, price.cost, price.is_final) == ("list-price", Fraction(usd), True)
    assert price.note == f"{instance_type} is priced at the list price of {DAYS['us-east-1']}, us-east-1"


def test_region_without_list_prices_has_no_price() -> None:
    result = cost(node("g5.xlarge", zone="eu-central-1a"))
    assert isinstance(result, Unpriced)
    assert "the built-in list prices do not have this type in eu-central-1" in result.reason


def test_windows_nodes_have_no_list_price() -> None:
    windows = GpuNode(
        name="n",
        instance_type="g5.xlarge",
        zone="us-east-1a",
        physical_gpus=1,
        labels={"label_kubernetes_io_os": "windows"},
    )
    assert isinstance(cost(windows), Unpriced)


def test_fetched_price_comes_before_list_price() -> None:
    price = priced(node("g5.xlarge"), fetched=(fetched("on-demand", "0.9"),))
    assert (price.source, price.cost, price.note) == ("on-demand", Fraction("0.9"), "")


def test_spot_node_without_spot_price_is_provisional_and_says_so() -> None:
    for fetched_prices, source in (((), "list-price"), ((fetched("on-demand", "1.006"),), "on-demand")):
        price = priced(node("g5.xlarge", capacity_type="spot", zone_id="use1-az1"), fetched=fetched_prices)
        assert (price.source, price.cost, price.is_final) == (source, Fraction("1.006"), False)
        assert f"spot nodes of g5.xlarge have no spot price and are provisionally priced by {source}" in price.note


def test_spot_node_with_spot_price_is_final() -> None:
    price = priced(
        node("g5.xlarge", capacity_type="spot", zone_id="use1-az1"),
        fetched=(fetched("on-demand", "1.006"), fetched("spot", "0.3")),
    )
    assert (price.source, price.cost, price.is_final, price.note) == ("spot", Fraction("0.3"), True, "")


def test_configured_order_of_sources_takes_fallbacks_as_final() -> None:
    price = priced(
        node("g5.xlarge", capacity_type="spot", zone_id="use1-az1"),
        "{sources: [spot, on-demand]}",
        (fetched("on-demand", "1.006"),),
    )
    assert (price.source, price.is_final) == ("on-demand", True)


def test_discounts_and_percentages_of_on_demand_prices_apply_to_list_prices() -> None:
    assert priced(node("p4d.24xlarge"), "{discounts: [{percent: 10}]}").cost == Fraction("21.957642") * 9 / 10
    reserved = priced(
        node("p4d.24xlarge", capacity_type="reserved"), "{rates: [{capacity_type: reserved, percent_of_on_demand: 65}]}"
    )
    assert (reserved.source, reserved.cost) == ("rates", Fraction("21.957642") * 65 / 100)


def test_prices_in_china_are_in_yuan() -> None:
    assert isinstance(cost(node("g4dn.xlarge", zone="cn-north-1a")), Unpriced)
    yuan = priced(node("g4dn.xlarge", zone="cn-north-1a"), "{currency: CNY}")
    assert yuan.cost == Fraction(HOURLY_PRICES["cn-north-1"]["g4dn.xlarge"])


def test_list_prices_lack_only_types_that_aws_does_not_sell_on_demand_in_the_region() -> None:
    types = {name for name in (*GPUS_OF_INSTANCE, *NEURON_OF_INSTANCE) if not name.startswith(SAGEMAKER_PREFIX)}
    missing = types - {*HOURLY_PRICES["us-east-1"]}
    # Sold in other regions, or as UltraServers and in Capacity Blocks only.
    assert {name.partition(".")[0] for name in missing} == {"p5e", "p6e-gb200", "trn2", "trn2u"}


def test_sizes_with_the_same_gpus_per_dollar_have_proportional_prices() -> None:
    """AWS sells these families in proportion: a misread line of the table would break a ratio."""
    table = {name: Decimal(usd) for name, usd in HOURLY_PRICES["us-east-1"].items()}
    for small, large, ratio in (
        ("p5.4xlarge", "p5.48xlarge", 8),
        ("trn1.2xlarge", "trn1.32xlarge", 16),
        ("p3.2xlarge", "p3.16xlarge", 8),
        ("g6.12xlarge", "g6.48xlarge", None),
        ("g6e.12xlarge", "g6e.48xlarge", None),
    ):
        actual = table[large] / table[small]
        assert actual == ratio if ratio else 2 < actual < 4, (small, large, actual)
