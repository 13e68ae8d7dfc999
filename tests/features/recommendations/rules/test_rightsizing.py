"""Advice on simulated fleets whose best plan is known: what is found, what is not said, and what it saves."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from gpucost.core.model import HourRecord, Line
from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.model import RecommendationContent, Review
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.records import use_of

HOURS = 192
KINDS = ("idle", "fewer-gpus", "add-gpus")


def look_at(
    records: Sequence[HourRecord], memory: Mapping[datetime, Mapping[tuple[str, str], float]] | None = None
) -> LookBack:
    look = LookBack("demo", records[0].hour, len(records))
    look.memory_peaks.update(memory or {})
    for one in records:
        if one.status != "incomplete":
            look.add(one.hour, map(use_of, one.lines), one.nodes, one.currency)
    return look


def review_of(records: Sequence[HourRecord]) -> Review:
    return review_cluster(look_at(records), records[-1].hour + timedelta(hours=2), {})


Fleets = list[tuple[list[sim.Load], list[HourRecord], Review]]


def made(seeds: Iterable[int]) -> Fleets:
    found = []
    for seed in seeds:
        loads = sim.fleet(seed, 48, HOURS)
        records = list(sim.simulate(loads, HOURS, noise=0.01, seed=seed))
        found.append((loads, records, review_of(records)))
    return found


@pytest.fixture(scope="module")
def fleets() -> Fleets:
    return made((1, 2))


@pytest.mark.heavy
def test_recall_precision_and_savings_on_many_fleets() -> None:
    many = made(range(3, 23))
    for kind in KINDS:
        test_recall_and_precision_are_095_at_least(many, kind)
    test_nothing_is_advised_where_data_does_not_support_it(many)
    test_claimed_savings_are_those_of_the_fleet_simulated_with_the_advice(many)
    test_with_the_advice_applied_the_busiest_hour_is_at_70_percent_at_most(many)


@pytest.mark.parametrize("kind", KINDS)
def test_recall_and_precision_are_095_at_least(fleets: Fleets, kind: str) -> None:
    wanted, given = set(), set()
    for number, (loads, _, found) in enumerate(fleets):
        wanted |= {(number, load.name) for load in loads if load.truth == kind}
        given |= {(number, one.subject.workload) for one in found.recommendations if one.kind == kind}
    assert len(wanted) >= 8
    hits = len(wanted & given)
    assert hits / len(wanted) >= 0.95, wanted - given
    assert hits / len(given) >= 0.95, given - wanted


def test_nothing_is_advised_where_data_does_not_support_it(fleets: Fleets) -> None:
    for loads, _, found in fleets:
        advised = {one.subject.workload for one in found.recommendations}
        silent = {load.name for load in loads if load.name.startswith(("unseen", "guessed", "young", "gone"))}
        assert len(silent) >= 12
        assert not advised & silent
        why = {one.subject.workload: one for one in found.assessments}
        for name in silent - {one for one in silent if one.startswith("gone")}:
            assert why[name].finding == "unknown"
            assert "a recommendation needs" in why[name].reason


def test_what_is_healthy_is_said_to_be(fleets: Fleets) -> None:
    for loads, _, found in fleets:
        healthy = {one.subject.workload for one in found.assessments if one.finding == "healthy"}
        assert {load.name for load in loads if load.name.startswith("healthy")} <= healthy


def applied(load: sim.Load, advice: RecommendationContent) -> sim.Load:
    """The workload as the advice wants it."""
    if advice.kind == "idle":
        return replace(load, pods=lambda _: 0)
    then = int(advice.recommended_gpus)
    if advice.kind == "add-gpus" or (load.there(0) > 1 and then >= load.gpus):
        return replace(load, pods=lambda _: then // load.gpus)
    pool = sim.Pool(f"{load.pool.name}-{then}", "fitting", then, load.pool.price * then / load.pool.gpus)
    return replace(load, gpus=then, pool=pool)


def test_claimed_savings_are_those_of_the_fleet_simulated_with_the_advice(fleets: Fleets) -> None:
    for loads, _, found in fleets:
        advice = {one.subject.workload: one for one in found.recommendations}
        for kind in KINDS:
            own = {name: one for name, one in advice.items() if one.kind == kind}
            before = [load for load in loads if load.name in own]  # each has nodes of its own: others cost the same
            after = [applied(load, own[load.name]) for load in before]
            nodes, held = sim.costs(list(sim.simulate(before, HOURS)))
            nodes_then, held_then = sim.costs(list(sim.simulate(after, HOURS)))
            claimed = float(sum(one.saving.usd for one in own.values()))
            assert claimed == pytest.approx(held - held_then, rel=0.1)
            assert claimed == pytest.approx(nodes - nodes_then, rel=0.1), "nodes went with what they carried"
            gpus = {load.name: load.pool.gpus for load in before}
            for name, one in own.items():
                goes = abs(one.current_gpus - one.recommended_gpus) >= gpus[name]
                assert one.saving.low_usd <= one.saving.usd <= one.saving.high_usd
                assert one.saving.list_usd == one.saving.usd, "a constant list price"
                assert one.saving.cash_usd == (one.saving.usd if goes else None), "others may hold the rest of a node"


def test_with_the_advice_applied_the_busiest_hour_is_at_70_percent_at_most(fleets: Fleets) -> None:
    for loads, _, found in fleets:
        by_name = {load.name: load for load in loads}
        for one in found.recommendations:
            if one.kind == "fewer-gpus":
                load = by_name[one.subject.workload]
                more = replace(load, work=lambda hour, load=load: load.work(hour) * 1.04)  # type: ignore[misc]
                assert sim.best(load, HOURS) <= int(one.recommended_gpus) <= sim.best(more, HOURS), "figures are 1% off"
                assert max(applied(load, one).busy(hour) for hour in range(HOURS)) <= 0.7 * 1.02


def test_committed_capacity_saves_no_cash_and_a_bill_leaves_it_unknown() -> None:
    pools = {
        "reserved": sim.Pool("reserved", capacity_type="reserved"),
        "billed": sim.Pool("billed", price_source="cur"),
        "spot": sim.Pool("spot", capacity_type="spot", price_source="spot"),
    }
    loads = [sim.Load(name, lambda _: 0.0, lambda _: 2, pool=pool) for name, pool in pools.items()]
    found = {one.subject.workload: one for one in review_of(list(sim.simulate(loads, HOURS))).recommendations}
    assert found["reserved"].saving.cash_usd == 0 < found["reserved"].saving.usd
    assert found["billed"].saving.cash_usd is None
    assert found["billed"].saving.list_usd is None, "nobody knows the list price"
    assert found["spot"].saving.cash_usd == found["spot"].saving.usd
    assert found["spot"].saving.list_usd is None


def test_list_prices_value_what_the_bill_charged_less_for() -> None:
    records = list(sim.simulate([sim.Load("a", lambda _: 0.0, lambda _: 2, pool=sim.Pool(price_source="cur"))], HOURS))
    look = look_at(records)
    look.list_prices["g5.xlarge"] = 2.0
    (one,) = review_cluster(look, records[-1].hour, {}).recommendations
    assert one.saving.usd == 2190, "2 GPUs × 730 hours at $1.50"
    assert one.saving.list_usd == 2920, "at $2.00"


def test_hours_without_figures_are_not_taken_for_idle_ones() -> None:
    loads = [sim.Load("a", lambda hour: 0.6 if hour % 24 == 12 else 0.0, lambda _: 1)]
    records = list(sim.simulate(loads, HOURS))
    holes = [
        replace(one, status="incomplete", lines=(), nodes=(), totals=None) if one.hour.hour == 12 else one
        for one in records
    ]
    assert not review_of(records).recommendations
    (one,) = review_of(holes).recommendations
    assert one.evidence.hours_unknown == 8
    most = [replace(one, status="incomplete", lines=(), nodes=(), totals=None) if i % 5 == 0 else one
            for i, one in enumerate(records)]  # fmt: skip
    assert not review_of(most).recommendations, "a fifth of the hours is missing"


def test_figures_of_several_currencies_are_no_ground_for_advice() -> None:
    records = list(sim.simulate([sim.Load("a", lambda _: 0.0, lambda _: 1)], HOURS))
    records[3] = replace(records[3], currency="EUR")
    assert not review_of(records).recommendations


@pytest.mark.parametrize(
    ("busy", "standing"),
    [
        ([0.0, 0.019], "idle"),
        ([0.0, 0.021], "low"),
        ([0.1, 0.299], "low"),
        ([0.1, 0.31], "bursty"),
        ([0.29, 0.33], "healthy"),
        ([0.69, 0.70], "healthy"),
        ([0.71, 0.72], "busy"),
        ([0.89, 0.95], "busy"),
        ([0.91, 0.95], "saturated"),
    ],
)
def test_the_bands_are_the_documented_ones(busy: list[float], standing: str) -> None:
    load = sim.Load("a", lambda hour: busy[hour % 2], lambda _: 1)
    (judged,) = review_of(list(sim.simulate([load], HOURS))).assessments
    assert judged.finding == standing, judged.reason


def test_a_unit_s_cost_that_others_bear_is_advised_to_the_unit_that_holds_the_gpus() -> None:
    """`distribute` makes of each line one per unit that pays for it."""
    records = list(sim.simulate([sim.Load("exporter", lambda _: 0.0, lambda _: 2, unit="platform")], HOURS))

    def parts(line: Line) -> list[Line]:
        assert line.allocated_usd is not None
        assert line.effective_gpu_hours is not None
        return [
            line._replace(business_unit=unit, shared_from="platform", allocated_gpu_hours=line.allocated_gpu_hours / 2,
                effective_gpu_hours=line.effective_gpu_hours / 2, allocated_usd=line.allocated_usd / 2,
            )
            for unit in ("research", "vision")
        ]  # fmt: skip

    shared = [replace(one, lines=tuple(part for line in one.lines for part in parts(line))) for one in records]
    (one,) = review_of(shared).recommendations
    assert (one.kind, one.subject.business_unit) == ("idle", "platform")
    assert one.current_gpus == 2
    assert one.saving == review_of(records).recommendations[0].saving
