"""Spot on simulated fleets: what may be interrupted, what may not, and what it saves."""

import random
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
import yaml

from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.node_prices import SpotPrice
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.rules.test_rightsizing import look_at

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
"""Kind, pods, labels, and whether spot ought to be advised."""


def fleet(seed: int) -> list[sim.Load]:
    """Each sort, on nodes whose price varies."""
    chance = random.Random(seed)
    found = []
    for sort, (kind, pods, labels, is_wanted) in SORTS.items():
        price = Decimal(chance.randint(12, 30)) / 10
        pool = {
            "spot": sim.Pool("spot", capacity_type="spot", price_source="spot"),
            "reserved": sim.Pool("reserved", capacity_type="reserved"),
            "unlisted": sim.Pool("unlisted", instance_type="g6.xlarge"),
        }.get(sort, sim.Pool(f"{sort}-0", price=price))
        level = pods * chance.uniform(0.45, 0.65)
        found.append(
            sim.Load(
                f"{sort}-0", lambda _, level=level: level, lambda _, pods=pods: pods, pool=pool,  # type: ignore[misc]
                kind=kind, labels=labels, truth="spot" if is_wanted else "",
            )
        )  # fmt: skip
    return found


def recommended(own: list[sim.Load], prices: Mapping[str, SpotPrice] = PRICES) -> dict[str, RecommendationContent]:
    look = look_at(list(sim.simulate(own, HOURS)))
    look.spot_prices.update(prices)
    found = review_cluster(look, sim.START + timedelta(hours=HOURS), {}).recommendations
    return {
        recommendation.subject.workload: recommendation for recommendation in found if recommendation.kind == "spot"
    }


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(3, 13))])
def test_interruptible_workload_is_recommended_spot_at_its_mean_price(seed: int) -> None:
    own = fleet(seed)
    given = recommended(own)
    assert given.keys() == {load.name for load in own if load.truth}, "recall and precision of 1"
    for load in own:
        if load.truth:
            recommendation = given[load.name]
            moved = replace(load, pool=replace(load.pool, price=Decimal("0.6")))
            before, after = (sim.costs(list(sim.simulate([each], HOURS)))[0] for each in (load, moved))
            assert float(recommendation.saving.usd) == pytest.approx(before - after, rel=0.1)
            assert recommendation.recommended_gpus == 0, "on demand"


def test_risk_and_manifest_are_of_the_kind() -> None:
    given = recommended(fleet(2))
    service, cron, batch = (given[f"{name}-0"] for name in ("service", "cron", "checkpoints"))
    assert {recommendation.risk for recommendation in given.values()} == {"high"}
    assert "PodDisruptionBudget" in service.risk_note
    assert "it always has 3 replicas or more" in service.summary
    assert "its pods have the label gpucost/interruptible" in batch.summary
    assert "since the last checkpoint" in batch.risk_note
    assert yaml.safe_load(service.patch)["spec"]["template"]["spec"]["affinity"]
    template = yaml.safe_load(cron.patch)["spec"]["jobTemplate"]["spec"]["template"]
    assert template == yaml.safe_load(service.patch)["spec"]["template"]
    assert batch.patch == "", "its operator's own form is not known here"


def test_all_pods_must_say_so() -> None:
    job = sim.Load("half", lambda _: 2.0, lambda _: 4, kind="Job", labels=YES)
    records = list(sim.simulate([job], HOURS))
    assert recommended([job])
    for hour in range(0, HOURS, 10):
        records[hour] = replace(
            records[hour], lines=tuple(record._replace(labels={}) for record in records[hour].lines)
        )
    look = look_at(records)
    look.spot_prices.update(PRICES)
    assert not review_cluster(look, sim.START, {}).recommendations, "a tenth of what was held did not"


def test_no_spot_where_no_price_is_known_or_it_is_dearer() -> None:
    service = [sim.Load("service", lambda _: 1.5, lambda _: 3)]
    assert recommended(service)
    assert not recommended(service, {})
    assert not recommended(service, {"g5.xlarge": SpotPrice(1.6, 0.6, 1.7)}), "dearer on average"


def test_the_range_is_that_of_the_prices() -> None:
    """Steady work on one node of $1.50: its range is nothing but the price's."""
    service = [sim.Load("service", lambda _: 1.5, lambda _: 3)]
    steady, moving = (
        recommended(service, {"g5.xlarge": recommendation})["service"]
        for recommendation in (SpotPrice(0.6, 0.6, 0.6), MOVING)
    )
    assert moving.saving.usd == steady.saving.usd
    for found, price in ((moving.saving.low_usd, MOVING.high), (moving.saving.high_usd, MOVING.low)):
        moved = replace(service[0], pool=replace(service[0].pool, price=Decimal(str(price))))
        before, after = (sim.costs(list(sim.simulate([each], HOURS)))[0] for each in (service[0], moved))
        assert float(found) == pytest.approx(before - after, rel=0.01)
    assert moving.evidence.facts["spot"] == "g5.xlarge $0.600 an hour (0.450 to 1.200): mean of the most expensive zone"
