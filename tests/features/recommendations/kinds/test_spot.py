"""Spot recommendations on simulated fleets: which workloads may be interrupted, and the saving."""

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
import yaml
from msgspec import structs

from gpucost.features.recommendations.history import SpotPrice
from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of

HOURS = 192
PRICES = {"g5.xlarge": SpotPrice(0.6, 0.6, 0.6)}
MOVING = SpotPrice(0.6, 0.45, 1.2)
YES, NO = {"gpucost/interruptible": "true", "team": "x"}, {"gpucost/interruptible": "false"}
SORTS: Mapping[str, tuple[str, int, Mapping[str, str], bool]] = {
    "service": ("Deployment", 3, {}, True),
    "set": ("StatefulSet", 4, {}, True),
    "pair": ("Deployment", 2, {}, False),
    "single-labelled": ("Deployment", 1, YES, True),
    "must-not": ("Deployment", 4, NO, False),
    "job": ("Job", 3, {}, False),
    "checkpoints": ("PyTorchJob", 2, YES, True),
    "cron": ("CronJob", 1, YES, True),
    "says-no": ("Job", 2, NO, False),
    "elsewhere": ("Job", 2, {"team": "true"}, False),
    "bare": ("Pod", 1, YES, False),
    "spot": ("Deployment", 3, YES, False),
    "reserved": ("Job", 3, YES, False),
    "unlisted": ("Deployment", 3, YES, False),
}
"""Kind, pods, labels, and whether spot is the right recommendation."""


def fleet(seed: int) -> list[sim.Load]:
    """A workload of each sort, on nodes with random prices."""
    rng = random.Random(seed)
    workloads = []
    for sort, (kind, pods, labels, is_expected) in SORTS.items():
        price = Decimal(rng.randint(12, 30)) / 10
        pool = {
            "spot": sim.Pool("spot", capacity_type="spot", price_source="spot"),
            "reserved": sim.Pool("reserved", capacity_type="reserved"),
            "unlisted": sim.Pool("unlisted", instance_type="g6.xlarge"),
        }.get(sort, sim.Pool(f"{sort}-0", price=price))
        level = pods * rng.uniform(0.45, 0.65)
        workloads.append(
            sim.Load(
                f"{sort}-0",
                lambda _, level=level: level,  # type: ignore[misc]
                lambda _, pods=pods: pods,  # type: ignore[misc]
                pool=pool,
                kind=kind,
                labels=labels,
                expected_kind="spot" if is_expected else "",
            )
        )
    return workloads


def recommended(loads: list[sim.Load], prices: Mapping[str, SpotPrice] = PRICES) -> dict[str, RecommendationContent]:
    look_back = look_back_of(list(sim.simulate(loads, HOURS)))
    look_back.spot_prices.update(prices)
    recommendations = review_cluster(look_back, sim.START + timedelta(hours=HOURS), {}).recommendations
    return {
        recommendation.subject.workload: recommendation
        for recommendation in recommendations
        if recommendation.kind == "spot"
    }


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(3, 13))])
def test_interruptible_workload_is_recommended_spot_at_its_mean_price(seed: int) -> None:
    loads = fleet(seed)
    by_workload = recommended(loads)
    assert by_workload.keys() == {load.name for load in loads if load.expected_kind}, "recall and precision of 1"
    for load in loads:
        if load.expected_kind:
            recommendation = by_workload[load.name]
            moved = replace(load, pool=replace(load.pool, price=Decimal("0.6")))
            before, after = (sim.costs(list(sim.simulate([each], HOURS)))[0] for each in (load, moved))
            assert float(recommendation.saving.usd) == pytest.approx(before - after, rel=0.1)
            assert recommendation.recommended_gpus == 0, "on demand"


def test_risk_and_manifest_depend_on_the_workload_kind() -> None:
    by_workload = recommended(fleet(2))
    service, cron, batch = (by_workload[f"{name}-0"] for name in ("service", "cron", "checkpoints"))
    assert {recommendation.risk for recommendation in by_workload.values()} == {"high"}
    assert "PodDisruptionBudget" in service.risk_note
    assert "it always has 3 replicas or more" in service.summary
    assert "its pods have the label gpucost/interruptible" in batch.summary
    assert "since the last checkpoint" in batch.risk_note
    assert yaml.safe_load(service.patch)["spec"]["template"]["spec"]["affinity"]
    template = yaml.safe_load(cron.patch)["spec"]["jobTemplate"]["spec"]["template"]
    assert template == yaml.safe_load(service.patch)["spec"]["template"]
    assert batch.patch == "", "the schema of its operator is unknown"


def test_job_needs_the_label_on_all_pods() -> None:
    job = sim.Load("half", lambda _: 2.0, lambda _: 4, kind="Job", labels=YES)
    records = list(sim.simulate([job], HOURS))
    assert recommended([job])
    for hour in range(0, HOURS, 10):
        records[hour] = structs.replace(
            records[hour], lines=tuple(line._replace(labels={}) for line in records[hour].lines)
        )
    look_back = look_back_of(records)
    look_back.spot_prices.update(PRICES)
    assert not review_cluster(look_back, sim.START, {}).recommendations, "a tenth of the held GPU-hours has no label"


def test_no_spot_without_a_lower_spot_price() -> None:
    service = [sim.Load("service", lambda _: 1.5, lambda _: 3)]
    assert recommended(service)
    assert not recommended(service, {})
    assert not recommended(service, {"g5.xlarge": SpotPrice(1.6, 0.6, 1.7)}), "more expensive on average"


def test_saving_range_follows_the_price_range() -> None:
    """The work is steady, so only the price varies."""
    service = [sim.Load("service", lambda _: 1.5, lambda _: 3)]
    steady, moving = (
        recommended(service, {"g5.xlarge": spot_price})["service"] for spot_price in (SpotPrice(0.6, 0.6, 0.6), MOVING)
    )
    assert moving.saving.usd == steady.saving.usd
    for saving_usd, price in ((moving.saving.low_usd, MOVING.high), (moving.saving.high_usd, MOVING.low)):
        moved = replace(service[0], pool=replace(service[0].pool, price=Decimal(str(price))))
        before, after = (sim.costs(list(sim.simulate([each], HOURS)))[0] for each in (service[0], moved))
        assert float(saving_usd) == pytest.approx(before - after, rel=0.01)
    assert moving.evidence.facts["spot"] == "g5.xlarge $0.600 an hour (0.450 to 1.200): mean of the most expensive zone"
