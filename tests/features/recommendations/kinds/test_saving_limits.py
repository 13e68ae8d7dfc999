"""Savings are limited to what can be saved: workloads may have shrunk, ended, or have pods of two GPU models."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from msgspec import structs

from gpucost.core.hour_record import HourRecord
from gpucost.features.recommendations.history import ReservedPrice
from gpucost.features.recommendations.model import RecommendationContent, format_count
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of, review_of
from tests.records import amount

WEEKS = 24 * 30
A100 = sim.Pool("a100", "p4d.24xlarge", 8, Decimal(32), model="NVIDIA A100-SXM4-40GB")
L4 = sim.Pool("l4", "g6.xlarge", 1, Decimal(1), model="NVIDIA-L4")


def merged(*fleets: list[HourRecord]) -> list[HourRecord]:
    return [
        structs.replace(
            hours[0],
            lines=tuple(line for record in hours for line in record.lines),
            nodes=tuple(node for record in hours for node in record.nodes),
        )
        for hours in zip(*fleets, strict=True)
    ]


def load(pods: Callable[[int], int], work: float = 0.0) -> sim.Load:
    return sim.Load("old", lambda _: work, pods)


@pytest.mark.parametrize("days", [2, 22])
def test_shrunk_workload_saves_its_current_cost_at_most(days: int) -> None:
    """Eight GPUs until some days ago, one since: at $1.50 one GPU is $1,095 a month, eight are $8,760."""
    records = list(sim.simulate([load(lambda hour: 1 if hour >= WEEKS - 24 * days else 8)], WEEKS))
    (recommendation,) = review_of(records).recommendations
    assert recommendation.current_gpus == 1
    assert 1095 * 0.75 <= recommendation.saving.usd <= 1095 * 1.25
    assert recommendation.saving.usd <= recommendation.saving.high_usd <= 2 * 1095
    (fewer,) = review_of(
        list(sim.simulate([load(lambda hour: 4 if hour >= WEEKS - 24 * days else 8, 0.8)], WEEKS))
    ).recommendations
    assert fewer.kind == "fewer-gpus"
    assert fewer.saving.usd <= 2 * 1095 * 1.25, "four GPUs become two"


@pytest.mark.parametrize("hours", [6, 40])
def test_ended_workload_gets_no_recommendation_to_stop(hours: int) -> None:
    records = list(sim.simulate([replace(load(lambda _: 8), lifetime=(0, WEEKS - hours))], WEEKS))
    review = review_of(records)
    assert not review.recommendations
    assert not review.assessments


@pytest.mark.parametrize("end", [WEEKS - 90, WEEKS - 48, WEEKS - 42])
def test_workload_stopped_for_a_night_or_weekend_has_not_ended(end: int) -> None:
    """It runs idle on working days from 8 to 20 only, and is recommended at every hour of the review."""

    def pods(hour: int) -> int:
        return 2 if hour // 24 % 7 < 5 and 8 <= hour % 24 < 20 else 0

    (recommendation,) = review_of(list(sim.simulate([load(pods)], end))).recommendations
    assert recommendation.kind == "idle"
    assert float(recommendation.saving.usd) == pytest.approx(2 * 1.5 * 60 / 168 * 730, rel=0.2)


def test_every_pod_of_a_job_keeps_some_gpus() -> None:
    """Four pods of eight GPUs, each 10% used: two each are enough, so eight of 32 stay."""
    jobs = [sim.Load("train", lambda _: 3.2, lambda _: 4, kind="Job", gpus=8, pool=A100)]
    (recommendation,) = review_of(list(sim.simulate(jobs, 192))).recommendations
    assert recommendation.current_gpus == 32
    assert recommendation.recommended_gpus == 8
    assert recommendation.saving.usd == 24 * 4 * 730
    assert recommendation.evidence.facts["busiest hour after the change"] == "40%"


@pytest.mark.parametrize(("gib", "units"), [(None, 2), (4.0, 2), (12.0, 3), (20.0, 5), (35.5, None)])
def test_gpus_are_not_taken_from_a_model_that_fills_their_memory(gib: float | None, units: int | None) -> None:
    """An A100-40GB has 36 GiB to use; eight with 12 GiB each, and a tenth more, are 105.6 GiB: three GPUs."""
    load = sim.Load("llm", lambda _: 0.8, lambda _: 1, gpus=8, pool=A100, memory_gib=gib)
    records = list(sim.simulate([load], 192))
    look_back = look_back_of(records, sim.memory([load], 192))
    recommendations = list(review_cluster(look_back, records[-1].hour + timedelta(hours=2), {}).recommendations)
    assert [int(recommendation.recommended_gpus) for recommendation in recommendations] == (
        [] if units is None else [units]
    )
    if gib is None:
        assert recommendations[0].risk == "high"
        assert "Its GPU memory was not observed" in recommendations[0].risk_note


def recommended_for_two_models(work: float) -> list[RecommendationContent]:
    old = list(sim.simulate([sim.Load("chat", lambda _: 0.0, lambda _: 1)], 192))
    new = list(sim.simulate([sim.Load("chat", lambda _: work, lambda _: 3, pool=L4)], 192))
    return list(review_of(merged(old, new)).recommendations)


def test_workload_is_not_scaled_to_zero_for_pods_of_a_single_gpu_model() -> None:
    assert not recommended_for_two_models(1.8)
    assert not recommended_for_two_models(0.3), "replicas of both models are set by a single number"
    idle = recommended_for_two_models(0.0)
    assert [recommendation.kind for recommendation in idle] == ["idle", "idle"]
    assert sum(recommendation.saving.usd for recommendation in idle) == Decimal("4.5") * 730


def test_consecutive_short_pods_get_no_slices() -> None:
    """Twelve pods of five minutes each run one after the other on a single GPU, so no node can be removed."""
    small = sim.Load("tick", lambda _: 0.05, lambda _: 1, kind="CronJob", pool=A100, memory_gib=3.0)
    records = [
        structs.replace(
            record,
            lines=tuple(
                line._replace(
                    uid=f"{line.uid}-{number}",
                    allocated_gpu_hours=line.allocated_gpu_hours // 12,
                    effective_gpu_hours=amount("0.05") // 12,
                    allocated_usd=amount(4) // 12,
                )
                for line in record.lines
                for number in range(12)
            ),
        )
        for record in sim.simulate([small], 192)
    ]
    look_back = look_back_of(records, sim.memory([small], 192))
    assert not [
        recommendation
        for recommendation in review_cluster(look_back, records[-1].hour + timedelta(hours=2), {}).recommendations
        if "mig" in recommendation.kind
    ]


def test_cash_cost_of_more_gpus_on_committed_capacity_is_unknown() -> None:
    for kind, cash in (("on-demand", Decimal("-1095.00")), ("reserved", None), ("capacity-block", None)):
        busy = sim.Load("chat", lambda _: 1.0, lambda _: 1, pool=sim.Pool(capacity_type=kind))
        (recommendation,) = [
            recommendation
            for recommendation in review_of(list(sim.simulate([busy], 192))).recommendations
            if recommendation.kind == "add-gpus"
        ]
        assert recommendation.saving.usd == -1095
        assert recommendation.saving.cash_usd == cash


def test_cash_cost_of_fewer_gpus_than_a_node_has_is_unknown() -> None:
    """One more GPU may be free on the node of eight, or need another such node."""
    busy = sim.Load("chat", lambda _: 1.0, lambda _: 1, pool=A100)
    (recommendation,) = [
        recommendation
        for recommendation in review_of(list(sim.simulate([busy], 192))).recommendations
        if recommendation.kind == "add-gpus"
    ]
    assert recommendation.saving.usd < 0
    assert recommendation.saving.cash_usd is None
    assert recommendation.evidence.facts["cash"].startswith("none while nodes have")
    assert recommendation.evidence.facts["cash"].endswith("free GPUs; otherwise a node with 8 GPUs")


def test_gpus_of_a_shared_node_save_no_cash() -> None:
    busy = sim.Load("busy", lambda _: 4.2, lambda _: 7, pool=A100)
    idle = sim.Load("notebook", lambda _: 0.0, lambda _: 1, kind="StatefulSet", pool=A100)
    (recommendation,) = review_of(list(sim.simulate([busy, idle], 192))).recommendations
    assert (
        recommendation.evidence.facts["cash"] == "when a node is removed: 1 of 8 GPUs become free, others may be held"
    )
    assert recommendation.saving.cash_usd is None
    (alone,) = review_of(list(sim.simulate([replace(idle, pool=L4)], 192))).recommendations
    assert "cash" not in alone.evidence.facts
    assert alone.saving.cash_usd == alone.saving.usd


def test_gpu_counts_are_formatted_without_exponents() -> None:
    texts = {
        0.00001: "0.00001",
        0.123456: "0.123",
        1: "1",
        2.5: "2.5",
        31.96: "32",
        99.96: "100",
        130: "130",
        999.6: "1,000",
        1000: "1,000",
        12345.6: "12,346",
    }
    assert {number: format_count(number) for number in texts} == texts


def test_large_fleets_are_formatted_in_whole_numbers() -> None:
    """A fleet of a few nodes, with every figure of its pools multiplied by a thousand."""
    spread = sim.Pool("spread", "g5.48xlarge", 8, Decimal(16), packs_pods=False, min_nodes=6)
    look_back = look_back_of(
        list(sim.simulate([sim.Load("job", lambda _: 9.0, lambda _: 9, kind="Job", pool=spread)], WEEKS))
    )
    look_back.reserved_prices["g5.48xlarge"] = ReservedPrice(10.0, "g5.*")
    (pool,) = look_back.pools.values()
    for index in range(WEEKS):
        for amounts in (pool.capacity_gpu_hours, pool.unallocated_gpu_hours, pool.cost_usd):
            amounts[index] *= 1000
        for counts in (pool.node_counts, pool.busy_nodes):
            counts[index] *= 1000
    pool.pod_sizes = [tuple((size, count * 1000) for size, count in hour) for hour in pool.pod_sizes]
    text_by_kind = {
        recommendation.kind: str((recommendation.summary, dict(recommendation.evidence.facts)))
        for recommendation in review_cluster(look_back, sim.START, {}).recommendations
    }
    assert text_by_kind.keys() == {"consolidate", "commitment"}
    assert "Run spread with 1,125 nodes instead of 6,000: its pods fit" in text_by_kind["consolidate"]
    assert "39,000 of 48,000 GPUs" in text_by_kind["consolidate"]
    assert "48,000 GPUs" in text_by_kind["commitment"]
    assert "48,000 to 48,000" in text_by_kind["commitment"]
    assert not any("e+" in text for text in text_by_kind.values())
