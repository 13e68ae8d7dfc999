"""MIG geometries compared with NVIDIA's counts, and plans with brute force and a simulated pool."""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import combinations_with_replacement

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucost.core.metering.gpu_models import memory_gb, profile_share
from gpucost.features.recommendations.kinds.mig_slice import (
    MigPlan,
    fitting_profile,
    geometries,
    plan_geometries,
    replay_plan,
)
from gpucost.features.recommendations.model import RecommendationContent, Review
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of

A100, H100, A30 = "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3", "NVIDIA A30"
GB200 = "NVIDIA GB200"
HOURS = 192


def test_gb200_geometry_uses_the_slice_names_of_a_single_driver() -> None:
    """It divides as the B200 does. 93 and 186 GB are in the MIG user guide; some drivers say 95 and 189."""
    names = {
        "1g.45gb": "1g.47gb",
        "2g.45gb": "2g.47gb",
        "3g.90gb": "3g.93gb",
        "4g.90gb": "4g.93gb",
        "7g.180gb": "7g.186gb",
    }
    as_b200 = {
        tuple(sorted(names.get(profile, profile) for profile in geometry)) for geometry in geometries("NVIDIA B200")
    }
    assert set(geometries(GB200)) == as_b200
    assert len(as_b200) == 38
    assert [profile_share(profile, GB200) for profile in ("3g.93gb", "3g.95gb", "7g.186gb", "7g.189gb")] == [
        Fraction(1, 2),
        Fraction(1, 2),
        1,
        1,
    ]
    assert memory_gb(GB200) == 186
    pool = sim.Pool("gb", "p6e-gb200.36xlarge", 4, Decimal(64), model=GB200)
    jobs = [
        sim.Load(f"j{number}", lambda _: 0.2, lambda _: 2, kind="Job", pool=pool, memory_gib=60.0)
        for number in range(8)
    ]
    records = list(sim.simulate(jobs, HOURS))
    recommendations = review_cluster(look_back_of(records, sim.memory(jobs, HOURS)), sim.START, {}).recommendations
    (recommendation,) = [recommendation for recommendation in recommendations if recommendation.kind == "mig-geometry"]
    assert "3g.93gb" in recommendation.patch
    assert "95gb" not in recommendation.patch
    assert recommendation.evidence.facts["names"].endswith("3g.95gb, 4g.95gb, 7g.189gb instead (nvidia-smi mig -lgip)")


def test_a100_has_the_38_geometries_that_nvidia_lists() -> None:
    """18 of them have dominant shares above one GPU. The named ones are drawn in the MIG user guide."""
    a100_geometries = geometries(A100)
    assert len(a100_geometries) == len(geometries(H100)) == 38
    assert sum(sum(profile_share(profile, A100) or 0 for profile in geometry) > 1 for geometry in a100_geometries) == 18
    for geometry_in_guide in (
        ("7g.40gb",),
        ("3g.20gb", "4g.20gb"),
        ("1g.5gb", "2g.10gb", "4g.20gb"),
        ("3g.20gb", "3g.20gb"),
        ("1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"),
        ("1g.5gb", "2g.10gb", "2g.10gb", "2g.10gb"),
        ("1g.5gb",) * 7,
    ):
        assert geometry_in_guide in a100_geometries
    assert geometries(A30) == (("1g.6gb",) * 4, ("1g.6gb", "1g.6gb", "2g.12gb"), ("2g.12gb", "2g.12gb"), ("4g.24gb",))
    assert geometries("NVIDIA A10G") == ()


@pytest.mark.parametrize(
    ("model", "compute", "gib", "profile"),
    [
        (A100, 0.05, 3.0, "1g.5gb"),
        (A100, 0.05, 4.4, "1g.10gb"),  # 4.4 × 1.1 > 4.75
        (A100, 0.11, 3.0, "2g.10gb"),  # 0.11 > 0.7 / 7
        (A100, 0.25, 3.0, "3g.20gb"),
        (A100, 0.05, 12.0, "3g.20gb"),
        (A100, 0.45, 3.0, None),  # 4g is 4/7, but 0.45 > 0.7 × 4/7
        (A100, 0.05, 20.0, None),
        (H100, 0.05, 8.0, "1g.10gb"),
        (A30, 0.16, 5.0, "1g.6gb"),
        ("NVIDIA B300", 0.05, 20.0, "1g.34gb"),
        ("NVIDIA GB300", 0.05, 20.0, "1g.35gb"),
        ("NVIDIA GB300", 0.25, 20.0, "3g.139gb"),
        ("NVIDIA A10G", 0.01, 1.0, None),
    ],
)
def test_fitting_profile_is_the_smallest_with_enough_compute_and_memory(
    model: str, compute: float, gib: float, profile: str | None
) -> None:
    assert fitting_profile(model, compute, gib * 2**30) == profile


def fewest(model: str, demand: Mapping[str, int]) -> int:
    """The fewest GPUs, found by trying every choice of geometries for 1, 2, 3 … GPUs."""
    count = 0
    while True:
        for chosen in combinations_with_replacement(geometries(model), count):
            supply = Counter(profile for geometry in chosen for profile in geometry)
            if all(supply[profile] >= pods for profile, pods in demand.items()):
                return count
        count += 1


@settings(max_examples=40)
@given(st.fixed_dictionaries({profile: st.integers(0, 4) for profile in ("1g.5gb", "2g.10gb", "3g.20gb")}))
def test_plans_use_as_few_gpus_as_brute_force(demand: dict[str, int]) -> None:
    if sum(int(profile[0]) * count for profile, count in demand.items()) > 20 or not any(demand.values()):
        return  # brute force takes minutes from four GPUs on
    plan = plan_geometries(A100, demand)
    assert plan is not None
    supply = plan.slices_by_profile()
    assert all(supply.get(profile, 0) >= count for profile, count in demand.items())
    assert set(plan.gpus_by_geometry) <= set(geometries(A100))
    assert plan.gpu_count == fewest(A100, demand)
    assert 0 <= plan.unused_gpus < plan.gpu_count


def test_no_plan_if_the_search_is_too_large_or_the_model_has_no_mig() -> None:
    assert plan_geometries(A100, {"1g.5gb": 400, "2g.10gb": 400}) is None
    assert plan_geometries("NVIDIA A10G", {"1g.5gb": 1}) is None
    assert plan_geometries(A100, {"1g.10gb": 0}) is None
    many = plan_geometries(A100, {"1g.5gb": 700})
    assert many is not None
    assert many.gpu_count == 100


def test_replay_counts_pods_that_would_have_waited() -> None:
    small = MigPlan(A100, {("3g.20gb", "3g.20gb"): 1}, {"3g.20gb": 2}, Fraction(1, 7))
    replay = replay_plan(small, [{"3g.20gb": 2}, {}, {"3g.20gb": 3}, {"1g.5gb": 1}])
    assert (replay.replayed_hours, replay.pod_hours_waited, replay.peak_usage) == (4, 2, Fraction(1))


# Pools

POOL = sim.Pool("a100", "p4d.24xlarge", 8, Decimal(32), model=A100)
SOLO = sim.Pool("h100", "p5.4xlarge", 1, Decimal(7), model=H100)


def small_loads(seed: int, pool: sim.Pool, count: int) -> list[sim.Load]:
    """Jobs that use a small part of each GPU, some by day only, and a workload that needs whole GPUs."""
    rng = random.Random(seed)
    loads = []
    for number in range(count):
        level, gib = rng.choice(((0.05, 3.0), (0.15, 7.0), (0.28, 14.0)))
        pods = rng.randint(1, 3)
        by_day = rng.random() < 0.3
        loads.append(
            sim.Load(
                f"small-{number}",
                lambda _, work=level * pods: work,  # type: ignore[misc]
                (lambda hour, pods=pods: pods if 8 <= hour % 24 < 20 else 1) if by_day else lambda _, pods=pods: pods,  # type: ignore[misc]
                kind="Job",
                pool=pool,
                memory_gib=gib,
            )
        )
    return [*loads, sim.Load("whole", lambda _: 1.2, lambda _: 2, pool=pool, memory_gib=30.0)]


def reviewed(loads: Sequence[sim.Load]) -> tuple[Review, float]:
    records = list(sim.simulate(loads, HOURS))
    look_back = look_back_of(records, sim.memory(loads, HOURS))
    return review_cluster(look_back, sim.START + timedelta(hours=HOURS), {}), sim.costs(records)[0]


def pod_hours_waited(loads: Sequence[sim.Load], patch: str, content: Sequence[RecommendationContent]) -> int:
    """Pod-hours without a slice when the manifest is applied. Pods keep their slice as long as they run."""
    document = yaml.safe_load(patch)
    counts = {
        line.split("mig.config=")[1].split()[0]: int(line.split()[1])
        for line in patch.splitlines()
        if "mig.config=" in line
    }
    free: list[str] = []
    for layout, nodes in counts.items():
        for device in document["mig-configs"][layout]:
            for profile, number in device.get("mig-devices", {}).items():
                free += [profile] * number * nodes * len(device["devices"])
    profile_of = {
        recommendation.subject.workload: recommendation.evidence.facts["profile"].split(",")[0]
        for recommendation in content
    }
    held: dict[tuple[str, int], str] = {}
    waited = 0
    for hour in range(HOURS):
        running = {
            (load.name, number)
            for load in loads
            if load.name in profile_of
            for number in range(load.running_pods(hour))
        }
        for ended in held.keys() - running:
            free.append(held[ended])
        held = {key: profile for key, profile in held.items() if key in running}
        for key in sorted(running - held.keys()):
            if profile_of[key[0]] in free:
                free.remove(profile_of[key[0]])
                held[key] = profile_of[key[0]]
            else:
                waited += 1
    return waited


@pytest.mark.parametrize("pool", [POOL, SOLO], ids=["eight", "one"])
def test_pool_plan_is_the_smallest_without_waiting_and_saves_the_estimate(pool: sim.Pool) -> None:
    loads = small_loads(3, pool, 6)
    review, nodes_cost = reviewed(loads)
    by_kind = {
        kind: [recommendation for recommendation in review.recommendations if recommendation.kind == kind]
        for kind in ("mig-geometry", "mig-slice")
    }
    (pooled,) = by_kind["mig-geometry"]
    names = {recommendation.subject.workload for recommendation in by_kind["mig-slice"]}
    assert names == {load.name for load in loads if load.name != "whole"}
    assert {recommendation.part_of for recommendation in by_kind["mig-slice"]} == {pooled.id}
    assert pod_hours_waited(loads, pooled.patch, by_kind["mig-slice"]) == 0
    assert "0 pod-hours waited" in pooled.evidence.facts["replay"]

    # The best plan by hand: each workload's slice from its work, the fewest GPUs by brute force, the nodes they fill.
    profiles = ("1g.5gb", "2g.10gb", "3g.20gb") if pool is POOL else ("1g.10gb", "2g.20gb", "3g.40gb")
    table = dict(zip((3.0, 7.0, 14.0), profiles, strict=True))
    demand: Counter[str] = Counter()
    for load in loads[:-1]:
        assert load.memory_gib is not None
        demand[table[load.memory_gib]] += max(load.running_pods(hour) for hour in range(HOURS))
    gpus = fewest(pool.model, demand)
    nodes = -(-(gpus + 2) // pool.gpus)
    cost_after = nodes * float(pool.price) * 730
    repacked = [replace(load, pool=replace(pool, repacks_hourly=True)) for load in loads]
    before = sim.costs(list(sim.simulate(repacked, HOURS)))[0]
    assert float(pooled.saving.usd) == pytest.approx(before - cost_after, rel=0.1)
    if pool.gpus == 1:
        assert float(pooled.saving.usd) == pytest.approx(nodes_cost - cost_after, rel=0.1)


def test_slice_saving_is_the_cost_difference_of_the_workload() -> None:
    loads = small_loads(3, SOLO, 6)
    review, _ = reviewed(loads)
    recommendation = next(
        recommendation for recommendation in review.recommendations if recommendation.kind == "mig-slice"
    )
    (load,) = [load for load in loads if load.name == recommendation.subject.workload]
    share = profile_share(recommendation.evidence.facts["profile"].split(",")[0], H100)
    assert share is not None
    sliced = replace(load, gpu_share=Decimal(share.numerator) / share.denominator, resource="nvidia.com/mig")
    before, after = (sim.costs(list(sim.simulate([each], HOURS)))[1] for each in (load, sliced))
    assert float(recommendation.saving.usd) == pytest.approx(before - after, rel=0.1)


@pytest.mark.parametrize(
    "change",
    [{"memory_gib": None}, {"source": "node"}, {"observed_share": 0.5}, {"memory_gib": 39.0}],
    ids=["memory unobserved", "node average", "half observed", "memory full"],
)
def test_no_slices_without_fitting_and_observed_memory_and_utilization(change: dict[str, object]) -> None:
    loads = [replace(load, **change) for load in small_loads(3, SOLO, 6)]  # type: ignore[arg-type]
    review, _ = reviewed(loads)
    assert not [recommendation for recommendation in review.recommendations if recommendation.kind.startswith("mig")]


def test_no_plan_for_models_without_mig_or_pools_that_keep_their_nodes() -> None:
    without = [replace(load, pool=replace(load.pool, model="NVIDIA A10G")) for load in small_loads(3, SOLO, 6)]
    assert not [
        recommendation
        for recommendation in reviewed(without)[0].recommendations
        if recommendation.kind.startswith("mig")
    ]
    single = [replace(small_loads(3, POOL, 6)[0], name="alone")]
    assert not [
        recommendation
        for recommendation in reviewed(single)[0].recommendations
        if recommendation.kind.startswith("mig")
    ], "one node before and after"


def test_plan_serves_the_busiest_hour_of_each_profile() -> None:
    """By hand: seven small slices at noon and two large ones at night never run together, but a geometry is fixed.

    Seven slices of 1g.10gb fill one H100 and two of 3g.40gb another: two nodes. The busiest hour as a whole (seven
    pods), the last hour and the mean hour would need one.
    """

    def small(hour: int) -> int:
        return 7 if 12 <= hour % 24 < 14 else 3 if 8 <= hour % 24 < 20 else 0

    def large(hour: int) -> int:
        return 0 if 8 <= hour % 24 < 20 else 2 if hour % 24 < 4 else 1

    loads = [
        sim.Load("day", lambda hour: 0.05 * small(hour), small, kind="Job", pool=SOLO, memory_gib=3.0),
        sim.Load("night", lambda hour: 0.25 * large(hour), large, kind="Job", pool=SOLO, memory_gib=30.0),
    ]
    review, _ = reviewed(loads)
    (pooled,) = (recommendation for recommendation in review.recommendations if recommendation.kind == "mig-geometry")
    assert pooled.evidence.facts["slices"] == "7 × 1g.10gb, 2 × 3g.40gb"
    assert pooled.evidence.facts["GPUs"].startswith("2, ")
    assert (
        pod_hours_waited(
            loads,
            pooled.patch,
            [recommendation for recommendation in review.recommendations if recommendation.kind == "mig-slice"],
        )
        == 0
    )
    pods = [small(hour) + large(hour) for hour in range(24)]  # each on a node with a single GPU
    assert float(pooled.saving.usd) == pytest.approx((sum(pods) / 24 - 2) * 7 * 730, rel=1e-3)
