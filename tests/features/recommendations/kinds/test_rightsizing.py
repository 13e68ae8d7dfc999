"""Idle and rightsizing recommendations on simulated fleets whose best plan is known: recall, precision, savings."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from msgspec import structs

from gpucost.core.hour_record import HourRecord, Line
from gpucost.features.recommendations.model import RecommendationContent, Review
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of, review_of
from tests.features.recommendations.simulated_fleet import HOURS

KINDS = ("idle", "fewer-gpus", "add-gpus")


Fleets = list[tuple[list[sim.Load], list[HourRecord], Review]]


def reviewed_fleets(seeds: Iterable[int]) -> Fleets:
    reviewed = []
    for seed in seeds:
        loads = sim.fleet(seed, 48, HOURS)
        records = list(sim.simulate(loads, HOURS, noise=0.01, seed=seed))
        reviewed.append((loads, records, review_of(records)))
    return reviewed


@pytest.fixture(scope="module")
def fleets() -> Fleets:
    return reviewed_fleets((1, 2))


@pytest.mark.nightly
def test_recall_precision_and_savings_on_many_fleets() -> None:
    many = reviewed_fleets(range(3, 23))
    for kind in KINDS:
        test_recall_and_precision_are_095_at_least(many, kind)
    test_insufficient_data_gives_no_recommendation(many)
    test_estimated_savings_match_a_fleet_simulated_with_the_change(many)
    test_busiest_hour_after_the_change_is_70_percent_at_most(many)


@pytest.mark.tools  # seconds
@pytest.mark.parametrize("kind", KINDS)
def test_recall_and_precision_are_095_at_least(fleets: Fleets, kind: str) -> None:
    expected, reported = set(), set()
    for number, (loads, _, review) in enumerate(fleets):
        expected |= {(number, load.name) for load in loads if load.expected_kind == kind}
        reported |= {
            (number, recommendation.subject.workload)
            for recommendation in review.recommendations
            if recommendation.kind == kind
        }
    assert len(expected) >= 8
    hits = len(expected & reported)
    assert hits / len(expected) >= 0.95, expected - reported
    assert hits / len(reported) >= 0.95, reported - expected


@pytest.mark.tools  # seconds
def test_insufficient_data_gives_no_recommendation(fleets: Fleets) -> None:
    for loads, _, review in fleets:
        recommended = {recommendation.subject.workload for recommendation in review.recommendations}
        without_data = {
            load.name for load in loads if load.name.startswith(("unobserved", "node-average", "young", "ended"))
        }
        assert len(without_data) >= 12
        assert not recommended & without_data
        assessments = {assessment.subject.workload: assessment for assessment in review.assessments}
        for name in without_data - {name for name in without_data if name.startswith("ended")}:
            assert assessments[name].finding == "unknown"
            assert "a recommendation needs" in assessments[name].reason


@pytest.mark.tools  # seconds
def test_healthy_workloads_are_assessed_as_healthy(fleets: Fleets) -> None:
    for loads, _, review in fleets:
        healthy = {assessment.subject.workload for assessment in review.assessments if assessment.finding == "healthy"}
        assert {load.name for load in loads if load.name.startswith("healthy")} <= healthy


def applied(load: sim.Load, content: RecommendationContent) -> sim.Load:
    """The workload with a recommendation applied."""
    if content.kind == "idle":
        return replace(load, pods=lambda _: 0)
    gpus_after = int(content.recommended_gpus)
    if content.kind == "add-gpus" or (load.running_pods(0) > 1 and gpus_after >= load.gpus):
        return replace(load, pods=lambda _: gpus_after // load.gpus)
    pool = sim.Pool(
        f"{load.pool.name}-{gpus_after}", "fitting", gpus_after, load.pool.price * gpus_after / load.pool.gpus
    )
    return replace(load, gpus=gpus_after, pool=pool)


@pytest.mark.tools  # seconds
def test_estimated_savings_match_a_fleet_simulated_with_the_change(fleets: Fleets) -> None:
    for loads, _, review in fleets:
        by_workload = {recommendation.subject.workload: recommendation for recommendation in review.recommendations}
        for kind in KINDS:
            recommendations = {
                name: recommendation for name, recommendation in by_workload.items() if recommendation.kind == kind
            }
            before = [
                load for load in loads if load.name in recommendations
            ]  # the nodes of other workloads cost the same
            after = [applied(load, recommendations[load.name]) for load in before]
            nodes, held = sim.costs(list(sim.simulate(before, HOURS)))
            nodes_after, held_after = sim.costs(list(sim.simulate(after, HOURS)))
            claimed = float(sum(recommendation.saving.usd for recommendation in recommendations.values()))
            assert claimed == pytest.approx(held - held_after, rel=0.1)
            assert claimed == pytest.approx(nodes - nodes_after, rel=0.1), "nodes are removed with their pods"
            gpus = {load.name: load.pool.gpus for load in before}
            for name, recommendation in recommendations.items():
                frees_nodes = abs(recommendation.current_gpus - recommendation.recommended_gpus) >= gpus[name]
                assert recommendation.saving.low_usd <= recommendation.saving.usd <= recommendation.saving.high_usd
                assert recommendation.saving.list_usd == recommendation.saving.usd, "a constant list price"
                assert recommendation.saving.cash_usd == (recommendation.saving.usd if frees_nodes else None), (
                    "other pods may hold the rest of a node"
                )


@pytest.mark.tools  # seconds
def test_busiest_hour_after_the_change_is_70_percent_at_most(fleets: Fleets) -> None:
    for loads, _, review in fleets:
        by_name = {load.name: load for load in loads}
        for recommendation in review.recommendations:
            if recommendation.kind == "fewer-gpus":
                load = by_name[recommendation.subject.workload]
                more = replace(load, work=lambda hour, load=load: load.work(hour) * 1.04)  # type: ignore[misc]
                assert sim.best(load, HOURS) <= int(recommendation.recommended_gpus) <= sim.best(more, HOURS), (
                    "figures are 1% off"
                )
                assert max(applied(load, recommendation).utilization(hour) for hour in range(HOURS)) <= 0.7 * 1.02


def test_committed_capacity_saves_no_cash_and_a_bill_leaves_it_unknown() -> None:
    pools = {
        "reserved": sim.Pool("reserved", capacity_type="reserved"),
        "billed": sim.Pool("billed", price_source="cur"),
        "spot": sim.Pool("spot", capacity_type="spot", price_source="spot"),
        "listed": sim.Pool("listed", price_source="list-price"),
    }
    loads = [sim.Load(name, lambda _: 0.0, lambda _: 2, pool=pool) for name, pool in pools.items()]
    by_workload = {
        recommendation.subject.workload: recommendation
        for recommendation in review_of(list(sim.simulate(loads, HOURS))).recommendations
    }
    assert by_workload["reserved"].saving.cash_usd == 0 < by_workload["reserved"].saving.usd
    assert by_workload["billed"].saving.cash_usd is None
    assert by_workload["billed"].saving.list_usd is None, "the list price is unknown"
    assert by_workload["spot"].saving.cash_usd == by_workload["spot"].saving.usd
    assert by_workload["spot"].saving.list_usd is None
    listed = by_workload["listed"].saving
    assert listed.cash_usd == listed.list_usd == listed.usd


def test_list_price_saving_uses_list_prices_where_the_bill_charged_less() -> None:
    records = list(sim.simulate([sim.Load("a", lambda _: 0.0, lambda _: 2, pool=sim.Pool(price_source="cur"))], HOURS))
    look_back = look_back_of(records)
    look_back.list_prices["g5.xlarge"] = 2.0
    (recommendation,) = review_cluster(look_back, records[-1].hour, {}).recommendations
    assert recommendation.saving.usd == 2190, "2 GPUs × 730 hours at $1.50"
    assert recommendation.saving.list_usd == 2920, "at $2.00"


def test_hours_without_figures_do_not_count_as_idle() -> None:
    loads = [sim.Load("a", lambda hour: 0.6 if hour % 24 == 12 else 0.0, lambda _: 1)]
    records = list(sim.simulate(loads, HOURS))
    holes = [
        structs.replace(record, status="incomplete", lines=(), nodes=(), totals=None)
        if record.hour.hour == 12
        else record
        for record in records
    ]
    assert not review_of(records).recommendations
    (recommendation,) = review_of(holes).recommendations
    assert recommendation.evidence.hours_unknown == 8
    most = [
        structs.replace(record, status="incomplete", lines=(), nodes=(), totals=None) if index % 5 == 0 else record
        for index, record in enumerate(records)
    ]
    assert not review_of(most).recommendations, "a fifth of the hours is missing"


def test_several_currencies_give_no_recommendation() -> None:
    records = list(sim.simulate([sim.Load("a", lambda _: 0.0, lambda _: 1)], HOURS))
    records[3] = structs.replace(records[3], currency="EUR")
    assert not review_of(records).recommendations


@pytest.mark.parametrize(
    ("busy", "finding"),
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
def test_findings_use_the_documented_utilization_bands(busy: list[float], finding: str) -> None:
    load = sim.Load("a", lambda hour: busy[hour % 2], lambda _: 1)
    (assessment,) = review_of(list(sim.simulate([load], HOURS))).assessments
    assert assessment.finding == finding, assessment.reason


def test_shared_cost_is_recommended_to_the_unit_that_holds_the_gpus() -> None:
    """`distribute` splits each line into a line per business unit that pays for it."""
    records = list(sim.simulate([sim.Load("exporter", lambda _: 0.0, lambda _: 2, unit="platform")], HOURS))

    def parts(line: Line) -> list[Line]:
        assert line.allocated_usd is not None
        assert line.effective_gpu_hours is not None
        return [
            line._replace(
                business_unit=unit,
                shared_from="platform",
                allocated_gpu_hours=line.allocated_gpu_hours // 2,
                effective_gpu_hours=line.effective_gpu_hours // 2,
                allocated_usd=line.allocated_usd // 2,
            )
            for unit in ("research", "vision")
        ]

    shared = [
        structs.replace(record, lines=tuple(part for line in record.lines for part in parts(line)))
        for record in records
    ]
    (recommendation,) = review_of(shared).recommendations
    assert (recommendation.kind, recommendation.subject.business_unit) == ("idle", "platform")
    assert recommendation.current_gpus == 2
    assert recommendation.saving == review_of(records).recommendations[0].saving
