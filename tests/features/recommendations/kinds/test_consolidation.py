"""Consolidation of pools whose pods fit on fewer nodes, compared with a fleet that packs its pods every hour."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucost.features.recommendations.kinds.consolidate import pack_nodes
from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.pools import fewer_nodes_phrase
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of
from tests.features.recommendations.simulated_fleet import SPREAD, loads_on

HOURS = 192


def recommended(loads: list[sim.Load]) -> tuple[list[RecommendationContent], float]:
    records = list(sim.simulate(loads, HOURS))
    review = review_cluster(look_back_of(records), sim.START + timedelta(hours=HOURS), {})
    return [
        recommendation for recommendation in review.recommendations if recommendation.kind == "consolidate"
    ], sim.costs(records)[0]


def test_consolidation_saving_matches_the_packed_fleet() -> None:
    ((recommendation,), before) = recommended(loads_on(SPREAD))
    moved = replace(SPREAD, packs_pods=True, min_nodes=0, repacks_hourly=True)
    after = sim.costs(list(sim.simulate(loads_on(moved), HOURS)))[0]
    assert float(recommendation.saving.usd) == pytest.approx(before - after, rel=0.1)
    assert recommendation.subject.node_pool == "spread"
    assert not recommendation.subject.is_workload
    assert "WhenEmptyOrUnderutilized" in recommendation.patch
    assert "GPUs only" in recommendation.evidence.facts["packing"]


@pytest.mark.parametrize("pool", [replace(SPREAD, packs_pods=True, min_nodes=0, repacks_hourly=True), sim.Pool("solo")])
def test_packed_pool_gets_no_recommendation(pool: sim.Pool) -> None:
    loads = loads_on(pool) if pool.gpus > 1 else [sim.Load("a", lambda _: 2.0, lambda _: 4, pool=pool)]
    assert recommended(loads)[0] == []


@pytest.mark.parametrize("change", [{"price_source": ""}, {"min_nodes": 0, "packs_pods": True}])
def test_pools_without_prices_or_spare_nodes_get_no_recommendation(change: dict[str, object]) -> None:
    pool = replace(SPREAD, **change)  # type: ignore[arg-type]
    loads = [replace(load, pods=lambda _: 4) for load in loads_on(pool)[:1]]
    assert recommended(loads)[0] == []


def test_pools_of_slices_are_not_packed_by_their_shares() -> None:
    pool = replace(SPREAD, min_nodes=4)
    loads = [sim.Load("s", lambda _: 0.4, lambda _: 5, pool=pool, gpu_share=Decimal(1) / 7)]
    assert recommended(loads)[0] == []


def fewest(sizes: list[int], node: int) -> int:
    """The fewest nodes, found by trying every node for every pod."""
    best = len(sizes)

    def try_nodes(position: int, free: list[int]) -> None:
        nonlocal best
        if len(free) >= best:
            return
        if position == len(sizes):
            best = len(free)
            return
        for number, left in enumerate(free):
            if left >= sizes[position]:
                try_nodes(position + 1, [*free[:number], left - sizes[position], *free[number + 1 :]])
        try_nodes(position + 1, [*free, node - sizes[position]])

    try_nodes(0, [])
    return best


@settings(max_examples=60)
@given(st.lists(st.sampled_from([1, 2, 4, 8]), max_size=9))
def test_packing_is_exact_for_the_usual_sizes(sizes: list[int]) -> None:
    pods = [(float(size), sizes.count(size)) for size in sorted(set(sizes), reverse=True)]
    assert pack_nodes(pods, 8) == fewest(sizes, 8)


@settings(max_examples=60)
@given(st.lists(st.integers(1, 8), max_size=8))
def test_packing_of_odd_sizes_is_within_the_bound_of_first_fit_decreasing(sizes: list[int]) -> None:
    node_count = pack_nodes([(float(size), sizes.count(size)) for size in sorted(set(sizes), reverse=True)], 8)
    best = fewest(sizes, 8)
    assert node_count is not None
    assert best <= node_count <= Fraction(11, 9) * best + Fraction(6, 9)


def test_a_pod_larger_than_a_node_cannot_be_packed() -> None:
    assert pack_nodes([(9.0, 1)], 8) is None


def test_nodes_empty_every_other_hour_are_not_spare() -> None:
    """A new node takes minutes to start, so a node that the next hour needs stays."""
    pool = replace(SPREAD, min_nodes=4)
    loads = [sim.Load("pulse", lambda _: 8.0, lambda hour: 4 if hour % 2 else 1, gpus=8, kind="Job", pool=pool)]
    assert recommended(loads)[0] == []


def test_nodes_needed_in_a_neighboring_hour_are_not_spare() -> None:
    """By hand: every fourth hour needs four nodes, the others one. Three nodes are spare in one hour of four, and in
    the last hour, which has no successor.
    """
    pool = replace(SPREAD, min_nodes=4)
    loads = [sim.Load("pulse", lambda _: 8.0, lambda hour: 1 if hour % 4 else 4, gpus=8, kind="Job", pool=pool)]
    ((recommendation,), _) = recommended(loads)
    spare = 3 * (48 + 1) / HOURS
    assert float(recommendation.saving.usd) == pytest.approx(spare * 16 * 730)
    assert recommendation.title == "Run spread with 1 node in 26% of hours", "(48 + 1) / 192"
    assert recommendation.evidence.facts["nodes"] == "1 is enough in 49 of 192 hours"
    assert recommendation.evidence.facts["spare nodes"].startswith("a node that is needed in the hour before or after")


@pytest.mark.parametrize(("quiet_hours", "is_reported"), [(8, True), (7, False)])
def test_pool_that_a_service_leaves_at_night_is_reported(quiet_hours: int, *, is_reported: bool) -> None:
    """By hand: a service leaves one of two nodes for some hours. The first and the last of them do not count."""
    pool = replace(SPREAD, min_nodes=2, packs_pods=True)
    loads = [
        sim.Load(
            "serve",
            lambda _: 8.0,
            lambda hour: 1 if hour % 24 < quiet_hours else 2,
            gpus=8,
            kind="Deployment",
            pool=pool,
        )
    ]
    recommendations, _ = recommended(loads)
    assert bool(recommendations) == is_reported
    for recommendation in recommendations:
        assert float(recommendation.saving.usd) == pytest.approx((8 - 2) / 24 * 16 * 730, rel=0.03)
        assert recommendation.summary == (
            "Run spread with 1 node in 26% of hours: its pods fit on fewer g5.48xlarge nodes then, "
            "mostly Mon 00:00 to 07:00, Tue to Sun 01:00 to 07:00 (UTC)"
        ), "the look-back begins on a Monday, and its first hour has no predecessor"


def test_the_newest_hours_say_when_consolidation_is_reached() -> None:
    """By hand: half of the time three of four nodes are spare, then one. The saving is for the mean, of which a third
    is left, because the newest day has one spare node, and the same hours of the week before had three. The target is
    today's: three nodes. With fewer, the pods would not fit.
    """
    pool = replace(SPREAD, min_nodes=4)

    def pods(hour: int) -> int:
        return 1 if hour < HOURS // 2 else 3

    ((recommendation,), _) = recommended([sim.Load("grows", lambda _: 8.0, pods, gpus=8, kind="Job", pool=pool)])
    spare = (3 * (HOURS // 2 - 1) + HOURS // 2 + 1) / HOURS  # the third node is needed from the hour before
    assert float(recommendation.saving.usd) == pytest.approx(spare / 3 * 16 * 730)
    assert recommendation.summary == (
        "Run spread with 3 nodes instead of 4: its pods fit on fewer g5.48xlarge nodes then, as in the newest day"
    )
    assert recommendation.evidence.facts["nodes"] == "3 are enough in 24 of 24 hours of the newest day", (
        "the same period as the summary"
    )
    assert (recommendation.current_gpus, recommendation.recommended_gpus) == (Decimal(4), Decimal(3))


@pytest.mark.parametrize(
    ("before", "after", "phrase"),
    [
        ([4] * 100, [3] * 93 + [2] * 7, "with 3 nodes instead of 4, and 2 in 7% of hours"),
        ([2] * 100, [0] * 73 + [1] * 4 + [2] * 23, "with no nodes in 73% of hours, and 1 in 4%"),
        ([2] * 1000, [1] * 995 + [0] * 5, "with 1 node instead of 2"),
        ([2] * 100, [1] * 28 + [2] * 72, "with 1 node in 28% of hours"),
    ],
)
def test_title_names_all_numbers_of_nodes_that_the_saving_is_of(
    before: list[int], after: list[int], phrase: str
) -> None:
    """Else a saving exceeds the cost of the nodes that its title removes."""
    assert fewer_nodes_phrase(before, after) == phrase


def test_evidence_says_how_many_nodes_were_spare_in_which_part_of_the_hours() -> None:
    """By hand, with the neighbors of each hour: three nodes are spare at 1 and 2, two from 3 to 14, and one always.

    The first hour has no predecessor.
    """
    pool = replace(SPREAD, min_nodes=4)

    def pods(hour: int) -> int:
        return 1 if hour % 24 < 4 else 2 if hour % 24 < 16 else 3

    ((recommendation,), _) = recommended([sim.Load("serve", lambda _: 8.0, pods, gpus=8, pool=pool)])
    two, three = 14 * 8 + 1, 2 * 8 + 1
    assert recommendation.title == "Run spread with 1 to 3 nodes instead of 4"
    assert recommendation.evidence.facts["nodes"] == (
        f"1 is enough in {three} of {HOURS} hours; 2 are enough in {two - three} of {HOURS} hours; "
        f"3 are enough in {HOURS - two} of {HOURS} hours"
    )


@pytest.mark.parametrize(
    ("last_day_with_spare", "hours_of_last_day", "is_reported"),
    [(7, 0, True), (6, 0, False), (6, 4, False)],
    ids=["still spare", "scaled down", "scaled down except for three hours"],
)
def test_pool_that_was_scaled_down_is_not_reported(
    last_day_with_spare: int, hours_of_last_day: int, *, is_reported: bool
) -> None:
    """Of two nodes, one is spare until a day. The newest of the eight days has a few such hours."""
    pool = replace(SPREAD, min_nodes=2)

    def pods(hour: int) -> int:
        return 1 if hour // 24 <= last_day_with_spare or hour % 24 >= 24 - hours_of_last_day else 2

    reported, _ = recommended([sim.Load("serve", lambda _: 8.0, pods, gpus=8, pool=pool)])
    assert bool(reported) == is_reported


def test_pool_with_spare_nodes_on_most_days_is_reported_on_the_other_days() -> None:
    """The newest day has no spare node, as on the same day of the week before."""
    pool = replace(SPREAD, min_nodes=2)
    loads = [sim.Load("serve", lambda _: 8.0, lambda hour: 2 if hour // 24 % 7 == 0 else 1, gpus=8, pool=pool)]
    ((recommendation,), _) = recommended(loads)
    assert recommendation.current_gpus == 2, "the newest day needs both"
    assert float(recommendation.recommended_gpus) == pytest.approx(2 - (6 * 24 - 3) / HOURS, abs=0.01), "the mean"


def test_empty_nodes_of_a_pool_of_slices_are_spare() -> None:
    """By hand: pods hold five sevenths of a GPU on one of four nodes. The layout of the other GPUs does not matter."""
    pool = replace(SPREAD, min_nodes=4, packs_pods=True)
    tight = replace(pool, name="tight", instance_type="g5.12xlarge", gpus=4, min_nodes=1)
    loads = [
        sim.Load(name, lambda _: 0.4, lambda _: 5, pool=node_pool, gpu_share=Decimal(1) / 7)
        for name, node_pool in (("s", pool), ("t", tight))
    ]
    ((recommendation,), before) = recommended(loads)
    shrunk = [replace(load, pool=replace(load.pool, min_nodes=0)) for load in loads]
    after = sim.costs(list(sim.simulate(shrunk, HOURS)))[0]
    assert recommendation.subject.node_pool == "spread"
    assert float(recommendation.saving.usd) == pytest.approx(3 * 16 * 730)
    assert float(recommendation.saving.usd) == pytest.approx(before - after)
    assert recommendation.summary == (
        "Run spread with 1 node instead of 4: its other g5.48xlarge nodes held no pod then"
    )
    assert recommendation.evidence.facts["packing"].startswith("none")
    assert recommendation.evidence.facts["unallocated"] == "31.3 of 32 GPUs, on average"
