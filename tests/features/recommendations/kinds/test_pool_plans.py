"""MIG plans and consolidation on random pools: recall, precision, and savings compared with the best plan.

The best plan is computed independently: from NVIDIA's placements as bit patterns, by trying every geometry, with
profiles from a table, and by simulating the pool with the plan.
"""

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import cache

import pytest

from gpucost.features.recommendations.model import RecommendationContent
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of

HOURS = 168
MODEL = "NVIDIA H100 80GB HBM3"
PROFILES = {
    "1g.10gb": (1, [0b1 << at for at in range(7)]),
    "1g.20gb": (1, [0b11 << at for at in (0, 2, 4, 6)]),
    "2g.20gb": (2, [0b11 << at for at in (0, 2, 4)]),
    "3g.40gb": (3, [0b1111 << at for at in (0, 4)]),
    "4g.40gb": (4, [0b1111]),
    "7g.80gb": (7, [0b11111111]),
}
"""Compute slices, and memory slices that each placement takes (NVIDIA MIG user guide, H100 80GB)."""
WORK = {"1g.10gb": (0.07, 6.0), "2g.20gb": (0.17, 14.0), "3g.40gb": (0.28, 30.0)}
"""Use of a whole GPU and GiB that fit a profile and nothing smaller: under 70% of its compute, 1/1.1 of its memory."""
Demand = tuple[int, int, int]


@cache
def layouts() -> frozenset[Demand]:
    """How many of the three profiles a GPU may hold at once."""
    counts: set[Demand] = set()

    def extend(taken: int, compute: int, held: Demand) -> None:
        counts.add(held)
        for index, name in enumerate(WORK):
            slices, spots = PROFILES[name]
            for spot in spots:
                if not taken & spot and compute + slices <= 7:
                    more = tuple(count + (at == index) for at, count in enumerate(held))
                    extend(taken | spot, compute + slices, more)  # type: ignore[arg-type]

    extend(0, 0, (0, 0, 0))
    return frozenset(counts)


@cache
def fewest(demand: Demand) -> int:
    if not any(demand):
        return 0
    left = {tuple(max(0, a - b) for a, b in zip(demand, layout, strict=True)) for layout in layouts()} - {demand}
    return 1 + min(fewest(rest) for rest in left)


def small(name: str, profile: str, pods: int, pool: sim.Pool, *, by_day: bool, **more: object) -> sim.Load:
    level, gib = WORK[profile]

    def pod_count(hour: int) -> int:
        return pods if not by_day or 8 <= hour % 24 < 20 else 1

    return sim.Load(
        name,
        lambda hour: level * pod_count(hour),
        pod_count,
        kind="Job",
        pool=pool,
        memory_gib=gib,
        **more,  # type: ignore[arg-type]
    )


PATTERNS = ("fits", "whole", "fits", "unobserved", "full", "other model", "single")


def mig_pools(seed: int, count: int) -> list[tuple[list[sim.Load], dict[str, str]]]:
    """Pools with their loads, and the profile of each load that fits one."""
    rng = random.Random(seed)
    pools = []
    for number in range(count):
        pattern = PATTERNS[number % len(PATTERNS)]
        gpus = rng.choice((1, 2)) if pattern == "fits" else 1
        model = "NVIDIA A10G" if pattern == "other model" else MODEL
        pool = sim.Pool(f"mig{number}", f"p{gpus}", gpus, Decimal(7 * gpus), model=model, repacks_hourly=True)
        loads, profiles = [], {}
        for index in range(1 if pattern == "single" else rng.randint(3, 5)):
            name, profile = f"{pool.name}-{index}", rng.choice(list(WORK))
            changes: dict[str, dict[str, object]] = {
                "unobserved": {"memory_gib": None},
                "full": {"memory_gib": 75.0},
                "whole": {"work": lambda _: 0.65},
            }
            change = changes.get(pattern, {})
            pods = 1 if pattern in {"single", "whole"} else rng.randint(1, 3)
            # Together, these pods need more than an A10G has; test_sharing.py covers sharing.
            if pattern == "other model":
                change = {"work": lambda _, pods=pods: 0.5 * pods}
            loads.append(replace(small(name, profile, pods, pool, by_day=rng.random() < 0.3), **change))  # type: ignore[arg-type]
            if pattern in {"fits", "single"}:
                profiles[name] = profile
        loads.append(sim.Load(f"{pool.name}-train", lambda _: 0.9, lambda _: 1, kind="Job", pool=pool, memory_gib=70.0))
        pools.append((loads, profiles))
    return pools


def cost(loads: Sequence[sim.Load]) -> float:
    return sim.costs(list(sim.simulate(loads, HOURS)))[0]


def recommended(loads: Sequence[sim.Load]) -> list[RecommendationContent]:
    look_back = look_back_of(list(sim.simulate(loads, HOURS)), sim.memory(loads, HOURS))
    return list(review_cluster(look_back, sim.START + timedelta(hours=HOURS), {}).recommendations)


def recall_and_precision(recommended: set[str], expected: set[str]) -> tuple[float, float]:
    return len(recommended & expected) / len(expected), len(recommended & expected) / len(recommended)


def best(loads: Sequence[sim.Load], profiles: Mapping[str, str]) -> float:
    """The pool's cost with the fewest sliced GPUs that serve the peak demand for each profile."""
    peaks: Counter[str] = Counter()
    for hour in range(HOURS):
        demand: Counter[str] = Counter()
        for load in loads:
            if load.name in profiles:
                demand[profiles[load.name]] += load.running_pods(hour)
        peaks |= demand
    gpus = fewest(tuple(peaks[name] for name in WORK))
    sliced = sim.Load("sliced", lambda _: 0.0, lambda _: gpus, kind="Job", pool=loads[0].pool)
    return cost([sliced, *(load for load in loads if load.name not in profiles)])


@pytest.mark.tools  # seconds
@pytest.mark.parametrize(
    ("seed", "count"), [(1, 7), *(pytest.param(seed, 14, marks=pytest.mark.nightly) for seed in range(2, 12))]
)
def test_recall_precision_and_savings_of_mig_plans(seed: int, count: int) -> None:
    plans: tuple[set[str], set[str]] = set(), set()
    slices: tuple[set[str], set[str]] = set(), set()
    for loads, profiles in mig_pools(seed, count):
        recommendations = recommended(loads)
        geometries = [recommendation for recommendation in recommendations if recommendation.kind == "mig-geometry"]
        assert len(geometries) <= 1
        pooled = geometries[0] if geometries else None
        slice_recommendations = {
            recommendation.subject.workload: recommendation
            for recommendation in recommendations
            if recommendation.kind == "mig-slice"
        }
        name = loads[0].pool.name
        saved = cost(loads) - best(loads, profiles)
        sharing = [recommendation for recommendation in recommendations if recommendation.kind == "sharing"]
        if sharing:  # test_sharing.py checks its saving; here it must only save more than slices
            assert float(sharing[0].saving.usd) > 0.9 * saved
            assert pooled is None
            continue
        if pooled:
            plans[0].add(name)
        slices[0].update(slice_recommendations)
        if saved > 1:
            plans[1].add(name)
            slices[1].update(profiles)
            if pooled:
                assert float(pooled.saving.usd) == pytest.approx(saved, rel=0.1), name
                for workload, profile in profiles.items():
                    assert slice_recommendations[workload].evidence.facts["profile"].startswith(f"{profile},")
    assert len(plans[1]) >= 2
    assert min(*recall_and_precision(*plans), *recall_and_precision(*slices)) >= 0.95, (plans, slices)


def consolidation_pools(seed: int, count: int) -> list[list[sim.Load]]:
    """Pools that are spread, packed every hour, full, without prices, or divided into slices."""
    rng = random.Random(seed)
    pools = []
    for number in range(count):
        pattern = ("spread", "packed", "spread", "full", "unpriced", "slices")[number % 6]
        pool = sim.Pool(f"n{number}", "g5.48xlarge", 8, Decimal(rng.randint(12, 30)), packs_pods=False, min_nodes=6)
        if pattern in {"packed", "full"}:
            pool = replace(pool, packs_pods=True, min_nodes=0, repacks_hourly=True)
        if pattern == "unpriced":
            pool = replace(pool, price_source="")
        day, night = rng.randint(6, 10), rng.randint(3, 5)

        def by_day(hour: int, day: int = day, night: int = night) -> int:
            return day if 8 <= hour % 24 < 20 else night

        if pattern == "full":
            loads = [sim.Load(f"{pool.name}-8", lambda _: 6.0, lambda _: 4, gpus=8, kind="Job", pool=pool)]
        else:
            loads = [sim.Load(f"{pool.name}-s", lambda hour, by_day=by_day: 0.6 * by_day(hour), by_day, pool=pool)]  # type: ignore[misc]
            for gpus in (2, 4):
                pods = rng.randint(1, 3)
                name = f"{pool.name}-{gpus}"
                loads.append(
                    sim.Load(
                        name,
                        lambda _, pods=pods: pods * 1.2,  # type: ignore[misc]
                        lambda _, pods=pods: pods,  # type: ignore[misc]
                        gpus=gpus,
                        kind="Job",
                        pool=pool,
                    )
                )
        if pattern == "slices":  # pods go to the fullest node, so empty nodes can be removed
            pool = replace(pool, packs_pods=True)
            loads = [replace(load, gpu_share=Decimal(1) / 7, gpus=1, pool=pool) for load in loads]
        pools.append(loads)
    return pools


@pytest.mark.tools  # seconds
@pytest.mark.parametrize(
    ("seed", "count"), [(1, 6), *(pytest.param(seed, 12, marks=pytest.mark.nightly) for seed in range(2, 12))]
)
def test_recall_precision_and_savings_of_consolidation(seed: int, count: int) -> None:
    reported, expected = set(), set()
    for loads in consolidation_pools(seed, count):
        pool = loads[0].pool
        consolidations = [
            recommendation for recommendation in recommended(loads) if recommendation.kind == "consolidate"
        ]
        reported |= {recommendation.subject.node_pool for recommendation in consolidations}
        if not pool.price_source:
            continue
        moved = replace(pool, packs_pods=True, min_nodes=0, repacks_hourly=True)
        saved = cost(loads) - cost([replace(load, pool=moved) for load in loads])
        if saved > float(pool.price) * 730 / 2:
            expected.add(pool.name)
            if consolidations:
                assert float(consolidations[0].saving.usd) == pytest.approx(saved, rel=0.1), pool.name
    assert len(expected) >= 2
    assert min(recall_and_precision(reported, expected)) >= 0.95, (reported, expected)
