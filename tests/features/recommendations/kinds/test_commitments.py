"""Commitments to the steady floor, compared with a simulated fleet that has so many nodes reserved."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from msgspec import structs

from gpucost.core.amounts import SCALE
from gpucost.core.hour_record import HourRecord
from gpucost.core.pricing.list_prices import list_price_label
from gpucost.features.recommendations.history import ReservedPrice
from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.review import review_cluster
from gpucost.features.recommendations.review_service import built_in_list_prices, reserved_prices
from gpucost.settings_document import parse_settings
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of

HOURS = 720
RATES = """
clusters: [{name: demo, prometheus: {url: "http://127.0.0.1:9090"}}]
pricing:
  sources: [on-demand, rates]
  rates:
    - {capacity_type: reserved, instance_type: "p5*", node_hourly_usd: 4}
    - {capacity_type: reserved, instance_type: g5.xlarge, zone: a, gpu_hourly_usd: 0.1}
    - {capacity_type: reserved, instance_type: g5.xlarge, until: 2026-11-01, gpu_hourly_usd: 0.2}
    - {capacity_type: spot, instance_type: "*", gpu_hourly_usd: 0.3}
    - {capacity_type: Reserved, instance_type: "g5.*", percent_of_on_demand: 60}
"""


def nodes(hour: int) -> int:
    """Two nodes by night, four by day, and one for an evening: 4 of 720 hours are below the floor."""
    if 400 <= hour < 404:
        return 1
    return 4 if 8 <= hour % 24 < 20 else 2


def load(**pool: object) -> sim.Load:
    return sim.Load("serve", lambda hour: 0.5 * nodes(hour), nodes, pool=replace(sim.Pool(), **pool))  # type: ignore[arg-type]


def recommended(loads: list[sim.Load], hours: int = HOURS, **prices: float) -> list[RecommendationContent]:
    look_back = look_back_of(list(sim.simulate(loads, hours)))
    look_back.reserved_prices.update(
        {(full := name.replace("_", ".")): ReservedPrice(price, full) for name, price in prices.items()}
    )
    return [
        recommendation
        for recommendation in review_cluster(look_back, sim.START, {}).recommendations
        if recommendation.kind == "commitment"
    ]


def test_commitment_to_the_floor_saves_the_cost_difference_of_the_fleet() -> None:
    (recommendation,) = recommended([load()], g5_xlarge=0.9)
    assert recommendation.subject.instance_type == "g5.xlarge"
    assert "Commit to 2 g5.xlarge nodes" in recommendation.summary
    # By hand: two nodes are paid at $0.90 in every hour, whatever is there; only what is above costs $1.50.
    before = sum(1.5 * nodes(hour) for hour in range(HOURS))
    after = sum(2 * 0.9 + 1.5 * max(0, nodes(hour) - 2) for hour in range(HOURS))
    assert float(recommendation.saving.usd) == pytest.approx((before - after) / HOURS * 730, rel=1e-4)
    assert recommendation.evidence.facts["utilization of the commitment"] == "99.7%"
    assert recommendation.evidence.facts["node pools"] == "solo"
    assert recommendation.recommended_gpus == recommendation.current_gpus - 2
    assert "nodes without pods" not in recommendation.evidence.facts


def test_steady_nodes_without_pods_get_no_commitment() -> None:
    """Of four nodes, 2 are without pods for 12 hours a day, and 3 instead of none for 4 of 720 hours: 1 + 12 / 720.

    By hand: two nodes save $0.60 each, except in the two of these 4 hours that have no neighbor with two busy nodes.
    Then the second one only costs its $0.90.
    """
    (recommendation,) = recommended([load(min_nodes=4)], g5_xlarge=0.9)
    assert "Commit to 2 g5.xlarge nodes" in recommendation.summary
    saved = (718 * 2 * 0.6 + 2 * (0.6 - 0.9)) / HOURS * 730
    assert float(recommendation.saving.usd) == pytest.approx(saved, rel=1e-4)
    assert recommendation.current_gpus == 4
    assert recommendation.recommended_gpus == 2
    assert recommendation.evidence.facts["nodes without pods"] == (
        "1.02 of 4, on average: the commitment counts only nodes with pods, because the others can be removed"
    )


def test_family_counts_only_gpus_of_nodes_with_pods() -> None:
    look_back = look_back_of(list(sim.simulate([load(min_nodes=4)], HOURS)))
    look_back.reserved_prices["g5.xlarge"] = ReservedPrice(0.9, "g5.*")
    contents = review_cluster(look_back, sim.START, {}).recommendations
    (recommendation,) = [content for content in contents if content.kind == "commitment"]
    assert "Commit to $1.800 an hour" in recommendation.summary
    assert recommendation.evidence.facts["steady"] == "2 GPUs"
    assert recommendation.recommended_gpus == 2


@pytest.mark.parametrize(
    ("workload", "hours", "price"),
    [
        (load(), 600, 0.9),
        (load(), HOURS, 1.6),
        (load(capacity_type="spot"), HOURS, 0.9),
        (load(capacity_type="reserved"), HOURS, 0.9),
        (load(price_source=""), HOURS, 0.9),
        (replace(load(), pods=lambda hour: 3 if hour % 24 < 20 else 0), HOURS, 0.9),
        (replace(load(), lifetime=(0, 700)), HOURS, 0.9),
    ],
    ids=["25 days", "more expensive", "spot", "reserved", "no price", "stopped at night", "ended"],
)
def test_no_commitment_without_a_steady_and_cheaper_floor(workload: sim.Load, hours: int, price: float) -> None:
    assert not recommended([workload], hours, g5_xlarge=price)


def test_no_commitment_without_a_reserved_price() -> None:
    assert not recommended([load()])


def test_reserved_prices_are_the_settings_rates_for_whole_types() -> None:
    loads = [load(), replace(load(), name="h", pool=sim.Pool("h", "p5.4xlarge", 2))]
    look_back = look_back_of(list(sim.simulate(loads, 24)))
    time = datetime(2026, 11, 16, tzinfo=UTC)
    settings = parse_settings(RATES)
    assert reserved_prices(settings, look_back, time) == {"p5.4xlarge": (4.0, "p5.4xlarge", "")}, (
        "60% of an unknown price"
    )
    look_back.list_prices["g5.xlarge"] = 1.5
    prices = reserved_prices(settings, look_back, time)
    assert prices == {"p5.4xlarge": (4.0, "p5.4xlarge", ""), "g5.xlarge": (pytest.approx(0.9), "g5.*", "")}
    assert reserved_prices(settings, look_back, time - timedelta(days=30))["g5.xlarge"] == (0.2, "g5.xlarge", "")


def in_zone(records: Iterable[HourRecord], zone: str) -> list[HourRecord]:
    return [
        structs.replace(record, nodes=tuple(structs.replace(node, zone=zone) for node in record.nodes))
        for record in records
    ]


def test_percentage_of_a_built_in_list_price_is_labelled_as_such() -> None:
    """g5.xlarge costs $1.006 an hour in us-east-1; 60% of it are $0.6036, and two nodes save $0.8048 an hour."""
    pool = {"price": Decimal("1.006"), "price_source": "list-price"}
    look_back = look_back_of(in_zone(sim.simulate([load(**pool)], HOURS), "us-east-1b"))
    look_back.list_prices.update(built_in_list_prices(look_back))
    look_back.reserved_prices.update(reserved_prices(parse_settings(RATES), look_back, sim.START))
    assert look_back.reserved_prices["g5.xlarge"].usd == pytest.approx(0.6036)
    (recommendation,) = [
        content for content in review_cluster(look_back, sim.START, {}).recommendations if content.kind == "commitment"
    ]
    label = list_price_label("us-east-1")
    assert f"g5.xlarge $0.604 (60% of the {label})" in recommendation.evidence.facts["reserved price"]
    assert label.startswith("list price of 20")
    assert float(recommendation.saving.usd) == pytest.approx(0.8048 * 730, rel=0.02)


@pytest.mark.parametrize(
    ("zones", "price_source"),
    [(("us-east-1b", "us-gov-west-1a"), "list-price"), (("eu-central-1a",), "list-price"), (("us-east-1b",), "rates")],
    ids=["two regions", "region without built-in prices", "another price source"],
)
def test_percentage_of_an_ambiguous_list_price_is_no_price(zones: Sequence[str], price_source: str) -> None:
    """Both regions have a built-in price of g6.xlarge, and they differ."""
    hours = list(sim.simulate([load(price_source=price_source, instance_type="g6.xlarge")], 48))
    length = len(hours) // len(zones)
    records = [
        record
        for index, zone in enumerate(zones)
        for record in in_zone(hours[index * length : (index + 1) * length], zone)
    ]
    look_back = look_back_of(records)
    assert built_in_list_prices(look_back) == {}
    look_back.list_prices.update(built_in_list_prices(look_back))
    assert reserved_prices(parse_settings(RATES.replace("g5.*", "g6.*")), look_back, sim.START) == {}


@pytest.mark.parametrize(("lower", "floor"), [(36, 3), (37, 2)], ids=["95.0% of the hours", "94.9%"])
def test_floor_is_used_in_95_percent_of_the_hours(lower: int, floor: int) -> None:
    """95% of 720 hours are 684. The hours with two nodes are spread out, and none is in the newest day."""
    short = {7 + 18 * number for number in range(lower)}
    workload = sim.Load("serve", lambda _: 1.0, lambda hour: 2 if hour in short else 3)
    (recommendation,) = recommended([workload], g5_xlarge=0.9)
    assert recommendation.summary.startswith(f"Commit to {floor} g5.xlarge nodes: in 95% of the hours,")


# Families: a Savings Plan commits to an amount per hour


def fleet(seed: int, count: int) -> list[tuple[str, list[sim.Load]]]:
    """Instance families with different patterns of use, each with nodes of one to three sizes."""
    rng = random.Random(seed)
    patterns = ("steady", "mixed", "nights", "mixed", "steady", "spot", "gone", "rare")
    families = []
    for number in range(count):
        pattern = patterns[number % len(patterns)]
        low, high = rng.randint(1, 3), rng.randint(4, 7)

        def node_count(hour: int, size: int, pattern: str = pattern, low: int = low, high: int = high) -> int:
            by_day = 8 <= hour % 24 < 20
            return {
                "steady": (high if by_day else low) if size == 0 else 1,
                "mixed": low * 4 if hour // 24 % 3 == size else 0,  # sizes alternate
                "nights": 0 if by_day else high,
                "spot": high,
                "gone": high if hour < HOURS - 30 else 0,
                "rare": high if hour % 10 else 0,
            }[pattern]

        loads = []
        for size, (name, gpus) in enumerate((("xlarge", 1), ("12xlarge", 4), ("48xlarge", 8))):
            price = Decimal(gpus) * (1 + Decimal(size) / 10)
            capacity = "spot" if pattern == "spot" else "on-demand"
            pool = sim.Pool(f"f{number}-{name}", f"f{number}.{name}", gpus, price, capacity)
            pods = lambda hour, size=size, node_count=node_count: node_count(hour, size)  # noqa: E731 - as a load
            loads.append(sim.Load(f"f{number}-{size}", lambda _: 0.5, pods, gpus=gpus, kind="Job", pool=pool))
        families.append((pattern, loads))
    return families


def bill(records: list[HourRecord], hourly: float, percent: float) -> float:
    """Monthly cost with a Savings Plan: the commitment, plus the on-demand cost that it does not cover."""
    costs = [sum(node.capacity.node_cost_usd / SCALE for node in record.nodes) for record in records]
    return sum(hourly + max(0.0, cost - hourly / percent) for cost in costs) / len(costs) * 730


@pytest.mark.tools  # seconds
@pytest.mark.parametrize(
    ("seed", "count"), [(1, 6), *(pytest.param(seed, 16, marks=pytest.mark.nightly) for seed in range(2, 7))]
)
def test_commitments_match_the_bill_with_the_savings_plan(seed: int, count: int) -> None:
    percent = 0.6
    expected, reported = set(), set()
    for number, (_, loads) in enumerate(fleet(seed, count)):
        records = list(sim.simulate(loads, HOURS))
        look_back = look_back_of(records)
        for load in loads:
            usd = float(load.pool.price) * percent
            look_back.reserved_prices[load.pool.instance_type] = ReservedPrice(usd, f"f{number}.*")
        commitments = [
            recommendation
            for recommendation in review_cluster(look_back, sim.START, {}).recommendations
            if recommendation.kind == "commitment"
        ]
        reported |= {number for _ in commitments}
        steady = [
            sum(node.capacity.node_cost_usd / SCALE for node in record.nodes if node.capacity_type == "on-demand")
            * percent
            for record in records
        ]
        # The largest amount, in steps of two cents, that 95% of the hours use completely.
        floor = 0.0
        while sum(usd >= floor + 0.02 - 1e-9 for usd in steady) >= 0.95 * HOURS:
            floor += 0.02
        if floor and min(steady[-24:]) > 0:
            expected.add(number)
            if commitments:
                assert commitments[0].subject.instance_type == f"f{number}.*"
                saved = bill(records, 0, percent) - bill(records, floor, percent)
                assert float(commitments[0].saving.usd) == pytest.approx(saved, rel=0.1)
    assert len(expected) >= 4
    assert len(expected & reported) / len(expected) >= 0.95, expected - reported
    assert len(expected & reported) / len(reported) >= 0.95, reported - expected


def test_alternating_sizes_give_a_family_commitment_but_no_instance_commitment() -> None:
    """By hand: four g5.xlarge cost $4, one g5.12xlarge $4.40. 60% of the smaller is $2.40 an hour, always used."""
    small = sim.Pool("small", "g5.xlarge", 1, Decimal(1))
    large = sim.Pool("large", "g5.12xlarge", 4, Decimal("4.4"))
    loads = [
        sim.Load("s", lambda _: 2.0, lambda hour: 4 * (hour // 24 % 2), kind="Job", pool=small),
        sim.Load("l", lambda _: 2.0, lambda hour: 1 - hour // 24 % 2, gpus=4, kind="Job", pool=large),
    ]
    look_back = look_back_of(list(sim.simulate(loads, HOURS)))
    prices = {"g5.xlarge": 0.6, "g5.12xlarge": 2.64}
    for scopes, expected_count in (((name, name) for name in prices), 0), (((name, "g5.*") for name in prices), 1):
        look_back.reserved_prices.update({name: ReservedPrice(prices[name], scope) for name, scope in scopes})
        commitments = [
            recommendation
            for recommendation in review_cluster(look_back, sim.START, {}).recommendations
            if recommendation.kind == "commitment"
        ]
        assert len(commitments) == expected_count
    (recommendation,) = commitments
    assert recommendation.summary.startswith("Commit to $2.400 an hour of g5.* (a Savings Plan of the family)")
    assert float(recommendation.saving.usd) == pytest.approx((2.4 / 0.6 - 2.4) * 730, rel=1e-6), (
        "$4 of list price an hour"
    )
    assert recommendation.evidence.facts["steady"] == "4 GPUs"
    assert recommendation.evidence.facts["utilization of the commitment"] == "100.0%"
    assert recommendation.current_gpus == 4
    assert recommendation.recommended_gpus == 0


def test_savings_plan_covers_the_largest_discount_first() -> None:
    """By hand: $0.60 an hour pay for a small node (40% off), whether or not a large one (10% off) runs too."""
    small = sim.Pool("small", "g5.xlarge", 1, Decimal(1))
    large = sim.Pool("large", "g5.12xlarge", 4, Decimal(4))
    loads = [
        sim.Load("s", lambda _: 0.5, lambda _: 1, kind="Job", pool=small),
        sim.Load("l", lambda _: 2.0, lambda hour: hour % 2, gpus=4, kind="Job", pool=large),
    ]
    look_back = look_back_of(list(sim.simulate(loads, HOURS)))
    look_back.reserved_prices.update(
        {"g5.xlarge": ReservedPrice(0.6, "g5.*"), "g5.12xlarge": ReservedPrice(3.6, "g5.*")}
    )
    (recommendation,) = [
        recommendation
        for recommendation in review_cluster(look_back, sim.START, {}).recommendations
        if recommendation.kind == "commitment"
    ]
    assert float(recommendation.saving.usd) == pytest.approx(0.4 * 730, rel=1e-6)
