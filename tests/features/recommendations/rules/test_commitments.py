"""Commitments: the steady floor, against a fleet of which so many nodes are reserved."""

import random
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from gpucost.core.model import HourRecord
from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.node_prices import ReservedPrice
from gpucost.features.recommendations.price_lists import reserved_prices
from gpucost.features.recommendations.review import review_cluster
from gpucost.settings_document import parse_settings
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.rules.test_rightsizing import look_at

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
    """Two by night, four by day, and one for an evening: 4 of 720 hours are below the floor."""
    if 400 <= hour < 404:
        return 1
    return 4 if 8 <= hour % 24 < 20 else 2


def load(**pool: object) -> sim.Load:
    return sim.Load("serve", lambda hour: 0.5 * nodes(hour), nodes, pool=replace(sim.Pool(), **pool))  # type: ignore[arg-type]


def recommended(own: list[sim.Load], hours: int = HOURS, **prices: float) -> list[RecommendationContent]:
    look = look_at(list(sim.simulate(own, hours)))
    look.reserved_prices.update(
        {(full := name.replace("_", ".")): ReservedPrice(price, full) for name, price in prices.items()}
    )
    return [
        recommendation
        for recommendation in review_cluster(look, sim.START, {}).recommendations
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
    assert recommendation.recommended_gpus == recommendation.current_gpus - 2


@pytest.mark.parametrize(
    ("own", "hours", "price"),
    [
        (load(), 600, 0.9),
        (load(), HOURS, 1.6),
        (load(capacity_type="spot"), HOURS, 0.9),
        (load(capacity_type="reserved"), HOURS, 0.9),
        (load(price_source=""), HOURS, 0.9),
        (replace(load(), pods=lambda hour: 3 if hour % 24 < 20 else 0), HOURS, 0.9),
        (replace(load(), life=(0, 700)), HOURS, 0.9),
    ],
    ids=["25 days", "dearer", "spot", "reserved", "no price", "gone at night", "gone now"],
)
def test_nothing_is_committed_to_where_there_is_no_floor(own: sim.Load, hours: int, price: float) -> None:
    assert not recommended([own], hours, g5_xlarge=price)


def test_no_commitment_without_a_reserved_price() -> None:
    assert not recommended([load()])


def test_reserved_prices_are_the_settings_rates_for_whole_types() -> None:
    loads = [load(), replace(load(), name="h", pool=sim.Pool("h", "p5.4xlarge", 2))]
    look = look_at(list(sim.simulate(loads, 24)))
    at = datetime(2026, 11, 16, tzinfo=UTC)
    settings = parse_settings(RATES)
    assert reserved_prices(settings, look, at) == {"p5.4xlarge": (4.0, "p5.4xlarge")}, "nobody knows what 60% are of"
    look.list_prices["g5.xlarge"] = 1.5
    found = reserved_prices(settings, look, at)
    assert found == {"p5.4xlarge": (4.0, "p5.4xlarge"), "g5.xlarge": (pytest.approx(0.9), "g5.*")}
    assert reserved_prices(settings, look, at - timedelta(days=30))["g5.xlarge"] == (0.2, "g5.xlarge")


@pytest.mark.parametrize(("lower", "floor"), [(36, 3), (37, 2)], ids=["95.0% of the hours", "94.9%"])
def test_the_floor_is_there_in_95_of_100_hours_to_the_hour(lower: int, floor: int) -> None:
    """By counting: of 720 hours, 684 are 95%; the hours with two nodes lie apart, and none in the newest day."""
    short = {7 + 18 * number for number in range(lower)}
    own = sim.Load("serve", lambda _: 1.0, lambda hour: 2 if hour in short else 3)
    (recommendation,) = recommended([own], g5_xlarge=0.9)
    assert recommendation.summary.startswith(f"Commit to {floor} g5.xlarge nodes: in 95% of the hours")


# Families: what a Savings Plan commits to is an amount an hour


def fleet(seed: int, count: int) -> list[tuple[str, list[sim.Load]]]:
    """Families of all sorts, each with its on-demand nodes of one to three sizes."""
    chance = random.Random(seed)
    sorts = ("steady", "mixed", "nights", "mixed", "steady", "spot", "gone", "rare")
    found = []
    for number in range(count):
        sort = sorts[number % len(sorts)]
        low, high = chance.randint(1, 3), chance.randint(4, 7)

        def there(hour: int, size: int, sort: str = sort, low: int = low, high: int = high) -> int:
            by_day = 8 <= hour % 24 < 20
            return {
                "steady": (high if by_day else low) if size == 0 else 1,
                "mixed": low * 4 if hour // 24 % 3 == size else 0,  # now these sizes, now those
                "nights": 0 if by_day else high,
                "spot": high,
                "gone": high if hour < HOURS - 30 else 0,
                "rare": high if hour % 10 else 0,
            }[sort]

        loads = []
        for size, (name, gpus) in enumerate((("xlarge", 1), ("12xlarge", 4), ("48xlarge", 8))):
            price = Decimal(gpus) * (1 + Decimal(size) / 10)
            capacity = "spot" if sort == "spot" else "on-demand"
            pool = sim.Pool(f"f{number}-{name}", f"f{number}.{name}", gpus, price, capacity)
            pods = lambda hour, size=size, there=there: there(hour, size)  # noqa: E731 - as a load
            loads.append(sim.Load(f"f{number}-{size}", lambda _: 0.5, pods, gpus=gpus, kind="Job", pool=pool))
        found.append((sort, loads))
    return found


def bill(records: list[HourRecord], hourly: float, percent: float) -> float:
    """What a month costs with a plan: the commitment, and on demand what its part of the hour's list price leaves."""
    costs = [sum(float(node.capacity.node_cost_usd) for node in record.nodes) for record in records]
    return sum(hourly + max(0.0, cost - hourly / percent) for cost in costs) / len(costs) * 730


@pytest.mark.parametrize(
    ("seed", "count"), [(1, 6), *(pytest.param(seed, 16, marks=pytest.mark.heavy) for seed in range(2, 7))]
)
def test_recall_precision_and_savings_of_families_against_the_bill_with_the_plan(seed: int, count: int) -> None:
    percent = 0.6
    wanted, given = set(), set()
    for number, (_, loads) in enumerate(fleet(seed, count)):
        records = list(sim.simulate(loads, HOURS))
        look = look_at(records)
        for load in loads:
            usd = float(load.pool.price) * percent
            look.reserved_prices[load.pool.instance_type] = ReservedPrice(usd, f"f{number}.*")
        own = [
            recommendation
            for recommendation in review_cluster(look, sim.START, {}).recommendations
            if recommendation.kind == "commitment"
        ]
        given |= {number for _ in own}
        steady = [sum(float(n.capacity.node_cost_usd) * percent for n in record.nodes if n.capacity_type == "on-demand")
                  for record in records]  # fmt: skip
        # By counting: the largest amount, in steps of two cents, that 95 of 100 hours use up.
        floor = 0.0
        while sum(recommendation >= floor + 0.02 - 1e-9 for recommendation in steady) >= 0.95 * HOURS:
            floor += 0.02
        if floor and min(steady[-24:]) > 0:
            wanted.add(number)
            if own:
                assert own[0].subject.instance_type == f"f{number}.*"
                saved = bill(records, 0, percent) - bill(records, floor, percent)
                assert float(own[0].saving.usd) == pytest.approx(saved, rel=0.1)
    assert len(wanted) >= 4
    assert len(wanted & given) / len(wanted) >= 0.95, wanted - given
    assert len(wanted & given) / len(given) >= 0.95, given - wanted


def test_sizes_that_take_turns_are_no_floor_of_a_type_and_one_of_the_family() -> None:
    """By hand: four g5.xlarge at $1 or one g5.12xlarge at $4.40; at 60% the smaller is $2.40 an hour, always used."""
    small = sim.Pool("small", "g5.xlarge", 1, Decimal(1))
    large = sim.Pool("large", "g5.12xlarge", 4, Decimal("4.4"))
    loads = [
        sim.Load("s", lambda _: 2.0, lambda hour: 4 * (hour // 24 % 2), kind="Job", pool=small),
        sim.Load("l", lambda _: 2.0, lambda hour: 1 - hour // 24 % 2, gpus=4, kind="Job", pool=large),
    ]
    look = look_at(list(sim.simulate(loads, HOURS)))
    prices = {"g5.xlarge": 0.6, "g5.12xlarge": 2.64}
    for scopes, kinds in (((name, name) for name in prices), 0), (((name, "g5.*") for name in prices), 1):
        look.reserved_prices.update({name: ReservedPrice(prices[name], scope) for name, scope in scopes})
        found = [
            recommendation
            for recommendation in review_cluster(look, sim.START, {}).recommendations
            if recommendation.kind == "commitment"
        ]
        assert len(found) == kinds
    (recommendation,) = found
    assert recommendation.summary.startswith("Commit to $2.400 an hour of g5.* (a Savings Plan of the family)")
    assert float(recommendation.saving.usd) == pytest.approx((2.4 / 0.6 - 2.4) * 730, rel=1e-6), (
        "$4 of list price an hour"
    )
    assert recommendation.evidence.facts["steady"] == "4 GPUs"
    assert recommendation.evidence.facts["utilization of the commitment"] == "100.0%"
    assert recommendation.current_gpus == 4
    assert recommendation.recommended_gpus == 0


def test_savings_plan_covers_the_largest_discount_first() -> None:
    """By hand: $0.60 an hour, all of a small node (40% off) whether or not a large one (10% off) is there, too."""
    small = sim.Pool("small", "g5.xlarge", 1, Decimal(1))
    large = sim.Pool("large", "g5.12xlarge", 4, Decimal(4))
    loads = [
        sim.Load("s", lambda _: 0.5, lambda _: 1, kind="Job", pool=small),
        sim.Load("l", lambda _: 2.0, lambda hour: hour % 2, gpus=4, kind="Job", pool=large),
    ]
    look = look_at(list(sim.simulate(loads, HOURS)))
    look.reserved_prices.update({"g5.xlarge": ReservedPrice(0.6, "g5.*"), "g5.12xlarge": ReservedPrice(3.6, "g5.*")})
    (recommendation,) = [
        recommendation
        for recommendation in review_cluster(look, sim.START, {}).recommendations
        if recommendation.kind == "commitment"
    ]
    assert float(recommendation.saving.usd) == pytest.approx(0.4 * 730, rel=1e-6)
