"""GPU sharing on pools whose best grouping is known: every grouping is tried and simulated."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import cache

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucost.core.metering.gpu_models import memory_gb
from gpucost.features.recommendations.history import SpotPrice
from gpucost.features.recommendations.kinds.sharing import MAX_EXACT_PODS, MAX_PODS_PER_GPU, SharingPod, group_pods
from gpucost.features.recommendations.model import RecommendationContent, Review
from gpucost.features.recommendations.review import review_cluster
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.look_backs import look_back_of

HOURS = 192
GIB = 24 * 0.9 / 1.1
"""Usable memory of an A10G, by hand: 24 GB, less a tenth for the driver and a tenth as headroom."""
Pod = tuple[sim.Load, int]


def pool_of(name: str, gpus: int) -> sim.Pool:
    types = {1: "g5.xlarge", 4: "g5.12xlarge"}
    return sim.Pool(name, types[gpus], gpus, Decimal(gpus) * Decimal("1.5"), repacks_hourly=True)


def reviewed(loads: Sequence[sim.Load]) -> Review:
    records = list(sim.simulate(loads, HOURS))
    return review_cluster(look_back_of(records, sim.memory(loads, HOURS)), sim.START + timedelta(hours=HOURS), {})


def partitions(pods: Sequence[Pod]) -> Iterator[list[list[Pod]]]:
    """Every way to group pods."""
    if not pods:
        yield []
        return
    for rest in partitions(pods[1:]):
        yield [[pods[0]], *rest]
        for index in range(len(rest)):
            yield [*rest[:index], [pods[0], *rest[index]], *rest[index + 1 :]]


def may_share(group: Sequence[Pod]) -> bool:
    if len(group) == 1:
        return True
    names = [load.name for load, _ in group]
    fits = sum(load.memory_gib or 99 for load, _ in group) <= GIB and len(set(names)) == len(names)
    return fits and all(
        sum(load.utilization(hour) for load, number in group if load.running_pods(hour) > number) <= 0.7
        for hour in range(HOURS)
    )


def best(loads: Sequence[sim.Load]) -> tuple[float, float]:
    """Monthly cost of the pool as it is, and with the grouping that needs the fewest GPUs."""
    pods = [(load, number) for load in loads if load.kind == "Deployment" for number in range(load.running_pods(12))]
    others = [load for load in loads if load.kind != "Deployment"]
    fits = cache(lambda key: may_share([pods[index] for index in key]))
    before = sim.costs(list(sim.simulate(loads, HOURS)))[0]
    fewest = min(
        (
            partition
            for partition in partitions(pods)
            if all(fits(tuple(sorted(map(pods.index, group)))) for group in partition)
        ),
        key=len,
    )
    shared = [
        sim.Load(
            f"group-{number}",
            lambda _: 0.1,
            lambda hour, group=group: int(any(load.running_pods(hour) > pod_number for load, pod_number in group)),  # type: ignore[misc]
            pool=loads[0].pool,
        )
        for number, group in enumerate(fewest)
    ]
    return before, sim.costs(list(sim.simulate([*shared, *others], HOURS)))[0]


def service(
    name: str, pool: sim.Pool, day: float, night: float, gib: float | None = 8.0, pods: int = 1, **more: object
) -> sim.Load:
    return sim.Load(
        name,
        lambda hour: pods * (day if 8 <= hour % 24 < 20 else night),
        lambda _: pods,
        pool=pool,
        memory_gib=gib,
        **more,  # type: ignore[arg-type]
    )


PATTERNS = ("interleave", "small", "busy", "full", "unobserved", "replicas", "node-average")


def pools(seed: int, count: int) -> list[tuple[str, list[sim.Load]]]:
    """Pools with workloads of a single pattern, and a job that needs whole GPUs."""
    rng = random.Random(seed)
    pools_by_pattern = []
    for number in range(count):
        pattern = PATTERNS[number % len(PATTERNS)]
        gpus = rng.choice((1, 4)) if pattern != "small" else 1
        pool = pool_of(f"{pattern}-{seed}-{number}", gpus)
        workload_count = rng.randint(3, 4) * (1 if gpus == 1 else 2) if pattern == "interleave" else rng.randint(2, 4)
        loads = []
        for index in range(workload_count):
            low, high = rng.uniform(0.03, 0.1), rng.uniform(0.35, 0.55)
            day, night = {
                "interleave": (high, low) if index % 2 else (low, high),
                "small": (0.35, 0.32),
                "full": (0.35, 0.32),
                "unobserved": (0.35, 0.32),
                "node-average": (0.35, 0.32),
                "busy": (0.6, 0.5),
                "replicas": (0.35, 0.32),
            }[pattern]
            gib = {"full": rng.uniform(11, 19), "unobserved": None}.get(pattern, rng.uniform(3, 9))
            source = "node" if pattern == "node-average" else "pod"
            if pattern != "replicas" or not index:
                loads.append(
                    service(
                        f"{pool.name}-{index}", pool, day, night, gib, 3 if pattern == "replicas" else 1, source=source
                    )
                )
        job = sim.Load(f"{pool.name}-job", lambda _: 0.9, lambda _: 1, kind="Job", pool=pool, memory_gib=20.0)
        pools_by_pattern.append((pattern, [*loads, job]))
    return pools_by_pattern


@pytest.mark.tools  # seconds
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 12))])
def test_recommended_sharing_matches_the_best_grouping(seed: int) -> None:
    expected, reported = set(), set()
    for pattern, loads in pools(seed, 14):
        name = loads[0].pool.name
        recommendations = [
            recommendation for recommendation in reviewed(loads).recommendations if recommendation.kind == "sharing"
        ]
        if recommendations:
            reported.add(name)
        if pattern in {"unobserved", "node-average"}:
            continue
        before, after = best(loads)
        if before - after > 1:
            expected.add(name)
            if recommendations:
                assert float(recommendations[0].saving.usd) == pytest.approx(before - after, rel=0.1), name
    assert len(expected) >= 4
    assert len(expected & reported) / len(expected) >= 0.95, expected - reported
    assert len(expected & reported) / len(reported) >= 0.95, reported - expected


def alternating_loads() -> list[sim.Load]:
    pool = pool_of("a10g", 1)
    return [service("day", pool, 0.6, 0.05), service("night", pool, 0.05, 0.6), service("both", pool, 0.4, 0.4)]


def test_day_and_night_workloads_share_a_gpu() -> None:
    (recommendation,) = [
        recommendation
        for recommendation in reviewed(alternating_loads()).recommendations
        if recommendation.kind == "sharing"
    ]
    assert recommendation.summary == (
        "Let 2 pods share 1 GPU of node pool a10g: with time-slicing or MPS of 2 replicas, it runs with 2 nodes "
        "instead of 3"
    )
    assert float(recommendation.saving.usd) == pytest.approx(1.5 * 730, rel=1e-4)
    assert recommendation.evidence.facts["groups"] in {"day + night", "night + day"}
    assert recommendation.evidence.facts["replay"] == "192 hours: no GPU above 65% in any"
    assert recommendation.evidence.facts["GPU memory"] == "16.0 GiB at most of 24 GB"
    assert recommendation.evidence.facts["grouping"] == "exact"
    assert recommendation.confidence == "low", "eight days"
    assert recommendation.risk == "high"
    assert "Memory is not isolated" in recommendation.risk_note
    assert "do not show minutes" in recommendation.risk_note
    resources = yaml.safe_load(recommendation.patch)["sharing"]["timeSlicing"]["resources"]
    assert resources == [{"name": "nvidia.com/gpu", "replicas": 2}]


def test_sharing_workloads_get_no_spot_recommendation() -> None:
    loads = [
        replace(load, pods=lambda _: 3, work=lambda hour, load=load: 3 * load.work(hour))  # type: ignore[misc]
        for load in alternating_loads()
    ]
    records = list(sim.simulate(loads, HOURS))
    look_back = look_back_of(records, sim.memory(loads, HOURS))
    look_back.spot_prices["g5.xlarge"] = SpotPrice(0.5, 0.5, 0.5)
    recommendations = review_cluster(look_back, sim.START, {}).recommendations
    assert [(recommendation.kind, recommendation.subject.workload) for recommendation in recommendations] == [
        ("sharing", ""),
        ("spot", "both"),
    ]


@pytest.mark.parametrize(
    ("low", "high", "kind", "saved_nodes"),
    [(0.05, 0.05, "mig-geometry", 3), (0.05, 0.6, "sharing", 2), (0.02, 0.29, "sharing", 3)],
    ids=["as much", "no slice is large enough", "two slices a GPU"],
)
def test_slices_are_preferred_unless_sharing_saves_more(low: float, high: float, kind: str, saved_nodes: int) -> None:
    """By hand, for four pods. At 5%, all fit slices of a single GPU, or share it. At 60% by day or night, none fits a
    slice, and pairs share a GPU. At 29%, two fit the halves of a GPU, and all four share one (62% at most).
    """
    pool = sim.Pool("h100", "p5.4xlarge", 1, Decimal(7), model="NVIDIA H100 80GB HBM3", repacks_hourly=True)
    loads = [
        service(f"s{number}", pool, *((low, high) if number % 2 else (high, low)), 6.0, kind="Job")
        for number in range(4)
    ]
    by_kind = {str(recommendation.kind): recommendation for recommendation in reviewed(loads).recommendations}
    assert by_kind.keys() - {"mig-slice"} == {kind}
    assert float(by_kind[kind].saving.usd) == pytest.approx(saved_nodes * 7 * 730, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "gb"),
    [
        ("NVIDIA-A10G", 24),
        ("Tesla-V100-SXM2-16GB", 16),
        ("NVIDIA L4", 24),
        ("NVIDIA-L40S", 48),
        ("Tesla T4", 16),
        ("NVIDIA A100-SXM4-40GB", 40),
        ("NVIDIA H100 80GB HBM3", 80),
        ("NVIDIA A30", 24),
        ("AWS Neuron", None),
    ],
)
def test_gpu_memory_matches_the_data_sheet(model: str, gb: int | None) -> None:
    assert memory_gb(model) == gb


SHARING_PODS = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7]), min_size=4, max_size=4),
        st.integers(1, 8),
    ),
    max_size=6,
)


@settings(max_examples=80)
@given(SHARING_PODS)
def test_few_pods_are_grouped_optimally_and_many_within_the_limits(rows: list[tuple[int, list[float], int]]) -> None:
    pods = [SharingPod(workload, use, memory) for workload, use, memory in rows]

    def is_possible(groups: Sequence[Sequence[int]]) -> bool:
        return all(
            sum(pods[index].memory_bytes for index in group) <= 10
            and max(sum(pods[index].utilization[hour] for index in group) for hour in range(4)) <= 0.7 + 1e-9
            and len({pods[index].workload_index for index in group}) == len(group) <= MAX_PODS_PER_GPU
            for group in groups
        )

    numbered = [(sim.Load(str(index), lambda _: 0, lambda _: 1), index) for index in range(len(pods))]
    tried = ([[index for _, index in group] for group in groups] for groups in partitions(numbered))
    fewest = min(len(groups) for groups in tried if is_possible(groups))
    grouping = group_pods(pods, 0.7 + 1e-9, 10)
    assert is_possible(grouping)
    assert sorted(index for group in grouping for index in group) == list(range(len(pods)))
    assert len(grouping) == fewest
    busy = [SharingPod(100 + number, [0.7] * 4, 1) for number in range(MAX_EXACT_PODS + 1)]
    many = group_pods([*pods, *busy], 0.7 + 1e-9, 10)
    without_busy = [[index for index in group if index < len(pods)] for group in many]
    assert is_possible([group for group in without_busy if group])


def sharing_in(review: Review) -> list[RecommendationContent]:
    return [recommendation for recommendation in review.recommendations if recommendation.kind == "sharing"]


def test_unobserved_hours_do_not_count_as_free() -> None:
    """One busy hour of the day pod is not observed, so the night pod must not rely on it."""
    records = list(sim.simulate(alternating_loads()[:2], HOURS))
    look_back = look_back_of(records, sim.memory(alternating_loads(), HOURS))
    recommendations = review_cluster(look_back, sim.START, {}).recommendations
    assert [recommendation.kind for recommendation in recommendations] == ["sharing"]
    day = next(history for key, history in look_back.workloads.items() if key.name == "day")
    day.busiest_pod_utilization[100] = -1.0
    assert not sharing_in(review_cluster(look_back, sim.START, {}))


@pytest.mark.parametrize(
    ("night", "gib", "is_recommended"), [(0.09, 8.0, True), (0.11, 8.0, False), (0.05, 9.8, True), (0.05, 9.9, False)]
)
def test_use_and_memory_are_held_to_their_limits(night: float, gib: float, is_recommended: bool) -> None:
    """60% and 9% are under 70%, 60% and 11% are not; twice 9.8 GiB are under 24 × 0.9 ÷ 1.1, twice 9.9 are not."""
    pool = pool_of("a10g", 1)
    loads = [service("day", pool, 0.6, night, gib), service("night", pool, night, 0.6, gib)]
    assert bool(sharing_in(reviewed(loads))) == is_recommended
