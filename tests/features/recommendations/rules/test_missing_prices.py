"""Hours without a price: left out of money and said to be, and no reason for silence while they are few."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from gpucost.core.model import HourRecord
from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.node_prices import ReservedPrice, SpotPrice
from gpucost.features.recommendations.pools import has_enough_prices
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.rules.test_rightsizing import look_at

HOURS = 720
DAYS_OFF = frozenset(range(240, 288))
"""Two days, 1/15 of the look-back."""
SPREAD = sim.Pool("spread", "g5.48xlarge", 8, Decimal(16), packs=False, keeps=4)


def fleet() -> list[sim.Load]:
    return [
        sim.Load("old", lambda _: 0.0, lambda _: 2),
        sim.Load("large", lambda _: 1.0, lambda _: 6),
        sim.Load("day", lambda hour: 1.0 if 7 <= hour % 24 < 19 else 0.0, lambda _: 2),
        sim.Load("steady", lambda _: 2.0, lambda _: 4),
        sim.Load("job", lambda _: 4.0, lambda _: 6, kind="Job", pool=SPREAD),
    ]


def without_price(records: Sequence[HourRecord], hours: Collection[int], *, half: bool = False) -> list[HourRecord]:
    """The same fleet, of which nobody knows in some hours what (every other pod and node of) it cost."""
    found = []
    for index, recommendation in enumerate(records):
        if index not in hours:
            found.append(recommendation)
            continue
        lines = tuple(
            line if half and number % 2 else line._replace(allocated_usd=None, gpu_hourly_usd=None, price_source="")
            for number, line in enumerate(recommendation.lines)
        )
        nodes = tuple(
            node if half and number % 2
            else replace(node, price_source="", capacity=replace(node.capacity, node_cost_usd=Decimal(0)))
            for number, node in enumerate(recommendation.nodes)
        )  # fmt: skip
        found.append(replace(recommendation, lines=lines, nodes=nodes))
    return found


def recommended(records: Sequence[HourRecord]) -> dict[str, RecommendationContent]:
    look: LookBack = look_at(records)
    look.spot_prices["g5.xlarge"] = SpotPrice(0.5, 0.5, 0.5)
    look.reserved_prices["g5.xlarge"] = ReservedPrice(0.9, "g5.xlarge")
    found = review_cluster(look, sim.START + timedelta(hours=len(records)), {}).recommendations
    by_name = {}
    for recommendation in found:
        name = recommendation.subject.workload or recommendation.subject.node_pool
        by_name[f"{recommendation.kind} {name}".strip()] = recommendation
    return by_name


@pytest.fixture(scope="module")
def records() -> list[HourRecord]:
    return list(sim.simulate(fleet(), HOURS))


@pytest.mark.parametrize("half", [False, True], ids=["nothing has a price", "half has none"])
def test_two_days_without_a_price_keep_the_saving_and_are_reported(records: list[HourRecord], *, half: bool) -> None:
    """Every price is the same in every hour, so what is known of 28 days is what is known of 30."""
    whole, partly = recommended(records), recommended(without_price(records, DAYS_OFF, half=half))
    assert {"idle old", "fewer-gpus large", "off-hours day", "spot steady", "consolidate spread", "commitment"} <= (
        whole.keys()
    )
    assert partly.keys() == whole.keys()
    for name, recommendation in whole.items():
        own = partly[name]
        assert float(own.saving.usd) == pytest.approx(float(recommendation.saving.usd), rel=1e-3), name
        assert (own.usd_hourly, own.saving.cash_usd is None) == (
            recommendation.usd_hourly,
            recommendation.saving.cash_usd is None,
        ), name
        assert "without a price" not in recommendation.evidence.facts
        missing = own.evidence.facts.get("without a price")
        if not half or missing is not None:  # half of a fleet touches some things and not others
            assert missing == "48 of 720 hours, left out of the saving", name


def test_more_than_a_tenth_unpriced_gives_no_recommendation(records: list[HourRecord]) -> None:
    few, many = frozenset(range(300, 372)), frozenset(range(300, 373))
    assert len(many) > HOURS / 10 >= len(few)
    assert "idle old" in recommended(without_price(records, few))
    look = look_at(without_price(records, many))
    found = review_cluster(look, sim.START + timedelta(hours=HOURS), {})
    assert not found.recommendations
    (old,) = [assessment for assessment in found.assessments if assessment.subject.workload == "old"]
    assert (old.finding, old.reason) == (
        "unknown", "89.9% of its hours are completely priced; a recommendation needs 90%"
    )  # fmt: skip


def test_a_pool_that_was_there_for_an_hour_in_twenty_and_never_had_a_price_has_none() -> None:
    late = sim.Load("late", lambda _: 1.0, lambda _: 3, kind="Job", pool=replace(SPREAD, keeps=0), life=(684, 10**6))
    records = list(sim.simulate([late], HOURS))
    for own, expected in ((records, True), (without_price(records, range(HOURS)), False)):
        look = look_at(own)
        (pool,) = look.pools.values()
        assert has_enough_prices(look, pool) is expected
