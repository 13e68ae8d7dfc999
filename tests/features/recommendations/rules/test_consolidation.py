"""Consolidation: pools whose pods would fit on fewer nodes, against a fleet that moves its pods together."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.review import review_cluster
from gpucost.features.recommendations.rules.consolidation import pack_nodes
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.rules.test_rightsizing import look_at

HOURS = 192
SPREAD = sim.Pool("spread", "g5.48xlarge", 8, Decimal(16), packs=False, keeps=6)


def loads_on(pool: sim.Pool) -> list[sim.Load]:
    """Two services that shrink at night, pods of three sizes, spread over nodes that never go."""

    def by_day(hour: int) -> int:
        return 9 if 8 <= hour % 24 < 20 else 3

    return [
        sim.Load("day", lambda hour: 0.6 * by_day(hour), by_day, pool=pool),
        sim.Load("two", lambda _: 2.0, lambda _: 3, gpus=2, kind="Job", pool=pool),
        sim.Load("four", lambda _: 6.0, lambda _: 3, gpus=4, kind="Job", pool=pool),
    ]


def recommended(loads: list[sim.Load]) -> tuple[list[RecommendationContent], float]:
    records = list(sim.simulate(loads, HOURS))
    found = review_cluster(look_at(records), sim.START + timedelta(hours=HOURS), {})
    return [
        recommendation for recommendation in found.recommendations if recommendation.kind == "consolidate"
    ], sim.costs(records)[0]


def test_consolidation_saving_matches_the_packed_fleet() -> None:
    ((recommendation,), before) = recommended(loads_on(SPREAD))
    moved = replace(SPREAD, packs=True, keeps=0, moves=True)
    after = sim.costs(list(sim.simulate(loads_on(moved), HOURS)))[0]
    assert float(recommendation.saving.usd) == pytest.approx(before - after, rel=0.1)
    assert recommendation.subject.node_pool == "spread"
    assert not recommendation.subject.is_workload
    assert "WhenEmptyOrUnderutilized" in recommendation.patch
    assert "GPUs only" in recommendation.evidence.facts["packing"]


@pytest.mark.parametrize("pool", [replace(SPREAD, packs=True, keeps=0, moves=True), sim.Pool("solo")])
def test_packed_pool_gets_no_recommendation(pool: sim.Pool) -> None:
    loads = loads_on(pool) if pool.gpus > 1 else [sim.Load("a", lambda _: 2.0, lambda _: 4, pool=pool)]
    assert recommended(loads)[0] == []


@pytest.mark.parametrize("change", [{"price_source": ""}, {"keeps": 0, "packs": True}])
def test_pools_without_prices_or_spare_nodes_get_no_recommendation(change: dict[str, object]) -> None:
    pool = replace(SPREAD, **change)  # type: ignore[arg-type]
    loads = [replace(load, pods=lambda _: 4) for load in loads_on(pool)[:1]]
    assert recommended(loads)[0] == []


def test_pools_of_slices_are_not_packed_by_their_shares() -> None:
    pool = replace(SPREAD, keeps=4)
    loads = [sim.Load("s", lambda _: 0.4, lambda _: 5, pool=pool, slice=Decimal(1) / 7)]
    assert recommended(loads)[0] == []


def fewest(sizes: list[int], node: int) -> int:
    """By trying every place for every pod."""
    best = len(sizes)

    def index(at: int, free: list[int]) -> None:
        nonlocal best
        if len(free) >= best:
            return
        if at == len(sizes):
            best = len(free)
            return
        for where, left in enumerate(free):
            if left >= sizes[at]:
                index(at + 1, [*free[:where], left - sizes[at], *free[where + 1 :]])
        index(at + 1, [*free, node - sizes[at]])

    index(0, [])
    return best


@settings(max_examples=60)
@given(st.lists(st.sampled_from([1, 2, 4, 8]), max_size=9))
def test_packing_is_exact_for_the_usual_sizes(sizes: list[int]) -> None:
    pods = [(float(size), sizes.count(size)) for size in sorted(set(sizes), reverse=True)]
    assert pack_nodes(pods, 8) == fewest(sizes, 8)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 8), max_size=8))
def test_packing_of_odd_sizes_is_possible_and_near_the_fewest(sizes: list[int]) -> None:
    found = pack_nodes([(float(size), sizes.count(size)) for size in sorted(set(sizes), reverse=True)], 8)
    best = fewest(sizes, 8)
    assert found is not None
    assert best <= found <= Fraction(11, 9) * best + Fraction(6, 9)


def test_a_pod_larger_than_a_node_cannot_be_packed() -> None:
    assert pack_nodes([(9.0, 1)], 8) is None


def test_nodes_that_the_next_hour_needs_are_not_spare() -> None:
    """They take minutes to come: what is empty every other hour stays."""
    pool = replace(SPREAD, keeps=4)
    loads = [sim.Load("pulse", lambda _: 8.0, lambda hour: 4 if hour % 2 else 1, gpus=8, kind="Job", pool=pool)]
    assert recommended(loads)[0] == []


def test_nodes_needed_in_a_neighboring_hour_are_not_spare() -> None:
    """By hand: four nodes are needed every fourth hour, one in between; three are spare in one hour of four, and in
    the last hour, of which nobody knows what follows."""
    pool = replace(SPREAD, keeps=4)
    loads = [sim.Load("pulse", lambda _: 8.0, lambda hour: 1 if hour % 4 else 4, gpus=8, kind="Job", pool=pool)]
    ((recommendation,), _) = recommended(loads)
    assert float(recommendation.saving.usd) == pytest.approx(3 * 16 * (48 + 1) / HOURS * 730)


def test_of_pools_of_slices_the_nodes_that_hold_nothing_are_spare() -> None:
    """By hand: five sevenths of a GPU on one node of four; how the others' GPUs are cut does not matter."""
    pool = replace(SPREAD, keeps=4, packs=True)
    tight = replace(pool, name="tight", instance_type="g5.12xlarge", gpus=4, keeps=1)
    loads = [sim.Load(name, lambda _: 0.4, lambda _: 5, pool=own, slice=Decimal(1) / 7)
             for name, own in (("s", pool), ("t", tight))]  # fmt: skip
    ((recommendation,), before) = recommended(loads)
    after = sim.costs(list(sim.simulate([replace(load, pool=replace(load.pool, keeps=0)) for load in loads], HOURS)))[0]
    assert recommendation.subject.node_pool == "spread"
    assert float(recommendation.saving.usd) == pytest.approx(3 * 16 * 730)
    assert float(recommendation.saving.usd) == pytest.approx(before - after)
    assert recommendation.summary.endswith("of 4, 3 held no pod")
    assert recommendation.evidence.facts["packing"].startswith("none")
    assert recommendation.evidence.facts["unallocated"] == "31.3 of 32 GPUs, on average"
