"""Commitments: the steady floor, against a fleet of which so many nodes are reserved."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gpucost.domain.advice.model import Advice
from gpucost.domain.advice.review import review
from gpucost.services.advice.node_prices import reserved_prices
from gpucost.settings import parse_settings
from tests import advice_fleet as sim
from tests.domain.advice.test_rightsizing import look_at

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


def advised(own: list[sim.Load], hours: int = HOURS, **prices: float) -> list[Advice]:
    look = look_at(list(sim.simulate(own, hours)))
    look.reserved_prices.update({name.replace("_", "."): price for name, price in prices.items()})
    return [one for one in review(look, sim.START, {}).advice if one.kind == "commitment"]


def test_the_floor_is_committed_to_and_saves_what_the_fleet_would_cost_less() -> None:
    (one,) = advised([load()], g5_xlarge=0.9)
    assert one.about.instance_type == "g5.xlarge"
    assert "Commit to 2 g5.xlarge nodes" in one.summary
    # By hand: two nodes are paid at $0.90 in every hour, whatever is there; only what is above costs $1.50.
    before = sum(1.5 * nodes(hour) for hour in range(HOURS))
    after = sum(2 * 0.9 + 1.5 * max(0, nodes(hour) - 2) for hour in range(HOURS))
    assert float(one.saving.usd) == pytest.approx((before - after) / HOURS * 730, rel=1e-4)
    assert one.evidence.facts["floor in use"] == "99.7% of its hours"
    assert one.gpus_then == one.gpus_now - 2


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
    assert not advised([own], hours, g5_xlarge=price)


def test_no_commitment_without_a_reserved_price() -> None:
    assert not advised([load()])


def test_reserved_prices_are_the_settings_rates_for_whole_types() -> None:
    loads = [load(), replace(load(), name="h", pool=sim.Pool("h", "p5.4xlarge", 2))]
    look = look_at(list(sim.simulate(loads, 24)))
    at = datetime(2026, 11, 16, tzinfo=UTC)
    settings = parse_settings(RATES)
    assert reserved_prices(settings, look, at) == {"p5.4xlarge": 4.0}, "nobody knows what 60% are of"
    look.list_prices["g5.xlarge"] = 1.5
    assert reserved_prices(settings, look, at) == {"p5.4xlarge": 4.0, "g5.xlarge": pytest.approx(0.9)}
    assert reserved_prices(settings, look, at - timedelta(days=30))["g5.xlarge"] == 0.2


@pytest.mark.parametrize(("lower", "floor"), [(36, 3), (37, 2)], ids=["95.0% of the hours", "94.9%"])
def test_the_floor_is_there_in_95_of_100_hours_to_the_hour(lower: int, floor: int) -> None:
    """By counting: of 720 hours, 684 are 95%; the hours with two nodes lie apart, and none in the newest day."""
    short = {7 + 18 * number for number in range(lower)}
    own = sim.Load("serve", lambda _: 1.0, lambda hour: 2 if hour in short else 3)
    (one,) = advised([own], g5_xlarge=0.9)
    assert one.summary.startswith(f"Commit to {floor} g5.xlarge nodes: in 95% of the hours")
