"""Hours without a price are left out of savings and reported; recommendations continue while they are few."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from msgspec import structs

from gpucost.core.amounts import CapacityCosts
from gpucost.core.hour_record import HourRecord
from gpucost.features.recommendations.history import LookBack, ReservedPrice, SpotPrice
from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.pools import has_enough_prices
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of

HOURS = 720
DAYS_OFF = frozenset(range(240, 288))
"""Two days, 1/15 of the look-back."""
SPREAD = sim.Pool("spread", "g5.48xlarge", 8, Decimal(16), packs_pods=False, min_nodes=4)


def fleet() -> list[sim.Load]:
    return [
        sim.Load("old", lambda _: 0.0, lambda _: 2),
        sim.Load("large", lambda _: 1.0, lambda _: 6),
        sim.Load("day", lambda hour: 1.0 if 7 <= hour % 24 < 19 else 0.0, lambda _: 2),
        sim.Load("steady", lambda _: 2.0, lambda _: 4),
        sim.Load("job", lambda _: 4.0, lambda _: 6, kind="Job", pool=SPREAD),
    ]


def without_price(
    records: Sequence[HourRecord], hours: Collection[int], *, only_every_other: bool = False
) -> list[HourRecord]:
    """The same fleet, in which all pods and nodes, or every other one, have no price in some hours."""
    changed = []
    for index, record in enumerate(records):
        if index not in hours:
            changed.append(record)
            continue
        lines = tuple(
            line
            if only_every_other and number % 2
            else line._replace(allocated_usd=None, gpu_hourly_usd=None, price_source="")
            for number, line in enumerate(record.lines)
        )
        nodes = tuple(
            node
            if only_every_other and number % 2
            else structs.replace(
                node, price_source="", capacity=node.capacity - CapacityCosts(node_cost_usd=node.capacity.node_cost_usd)
            )
            for number, node in enumerate(record.nodes)
        )
        changed.append(structs.replace(record, lines=lines, nodes=nodes))
    return changed


def recommended(records: Sequence[HourRecord]) -> dict[str, RecommendationContent]:
    look_back: LookBack = look_back_of(records)
    look_back.spot_prices["g5.xlarge"] = SpotPrice(0.5, 0.5, 0.5)
    look_back.reserved_prices["g5.xlarge"] = ReservedPrice(0.9, "g5.xlarge")
    recommendations = review_cluster(look_back, sim.START + timedelta(hours=len(records)), {}).recommendations
    by_name = {}
    for recommendation in recommendations:
        name = recommendation.subject.workload or recommendation.subject.node_pool
        by_name[f"{recommendation.kind} {name}".strip()] = recommendation
    return by_name


@pytest.fixture(scope="module")
def records() -> list[HourRecord]:
    return list(sim.simulate(fleet(), HOURS))


@pytest.mark.parametrize("only_every_other", [False, True], ids=["no prices", "half of the prices"])
def test_two_days_without_a_price_keep_the_saving_and_are_reported(
    records: list[HourRecord], *, only_every_other: bool
) -> None:
    """Prices are the same in every hour, so 28 priced days give the same monthly saving as 30."""
    all_priced, partly_priced = (
        recommended(records),
        recommended(without_price(records, DAYS_OFF, only_every_other=only_every_other)),
    )
    assert {"idle old", "fewer-gpus large", "off-hours day", "spot steady", "consolidate spread", "commitment"} <= (
        all_priced.keys()
    )
    assert partly_priced.keys() == all_priced.keys()
    for name, recommendation in all_priced.items():
        partial = partly_priced[name]
        assert float(partial.saving.usd) == pytest.approx(float(recommendation.saving.usd), rel=1e-3), name
        assert (partial.usd_hourly, partial.saving.cash_usd is None) == (
            recommendation.usd_hourly,
            recommendation.saving.cash_usd is None,
        ), name
        assert "without a price" not in recommendation.evidence.facts
        missing = partial.evidence.facts.get("without a price")
        if not only_every_other or missing is not None:  # some recommendations may have no unpriced pod or node
            assert missing == "48 of 720 hours, left out of the saving", name


def test_more_than_a_tenth_unpriced_gives_no_recommendation(records: list[HourRecord]) -> None:
    few, many = frozenset(range(300, 372)), frozenset(range(300, 373))
    assert len(many) > HOURS / 10 >= len(few)
    assert "idle old" in recommended(without_price(records, few))
    look_back = look_back_of(without_price(records, many))
    review = review_cluster(look_back, sim.START + timedelta(hours=HOURS), {})
    assert not review.recommendations
    (old,) = [assessment for assessment in review.assessments if assessment.subject.workload == "old"]
    assert (old.finding, old.reason) == (
        "unknown",
        "89.9% of its hours are completely priced; a recommendation needs 90%",
    )


def test_short_lived_pool_without_any_price_lacks_prices() -> None:
    load = sim.Load(
        "late", lambda _: 1.0, lambda _: 3, kind="Job", pool=replace(SPREAD, min_nodes=0), lifetime=(684, 10**6)
    )
    records = list(sim.simulate([load], HOURS))
    for hours, expected in ((records, True), (without_price(records, range(HOURS)), False)):
        look_back = look_back_of(hours)
        (pool,) = look_back.pools.values()
        assert has_enough_prices(look_back, pool) is expected
