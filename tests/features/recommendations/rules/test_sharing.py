"""GPUs that pods could take turns on: pools whose best grouping is found by trying every one, and re-simulated."""

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
from gpucost.features.recommendations.model import RecommendationContent, Review
from gpucost.features.recommendations.node_prices import SpotPrice
from gpucost.features.recommendations.review import review_cluster
from gpucost.features.recommendations.rules.sharing_groups import (
    MAX_EXACT_PODS,
    MAX_PODS_PER_GPU,
    SharingPod,
    group_pods,
)
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.rules.test_rightsizing import look_at

HOURS = 192
GIB = 24 * 0.9 / 1.1
"""What may be used of an A10G, by hand: 24 GB, a tenth for the driver, a tenth to spare."""
Pod = tuple[sim.Load, int]


def pool_of(name: str, gpus: int) -> sim.Pool:
    types = {1: "g5.xlarge", 4: "g5.12xlarge"}
    return sim.Pool(name, types[gpus], gpus, Decimal(gpus) * Decimal("1.5"), moves=True)


def reviewed(loads: Sequence[sim.Load]) -> Review:
    records = list(sim.simulate(loads, HOURS))
    return review_cluster(look_at(records, sim.memory(loads, HOURS)), sim.START + timedelta(hours=HOURS), {})


def partitions(pods: Sequence[Pod]) -> Iterator[list[list[Pod]]]:
    """Every way to put pods together."""
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
        sum(load.busy(hour) for load, number in group if load.there(hour) > number) <= 0.7 for hour in range(HOURS)
    )


def best(loads: Sequence[sim.Load]) -> tuple[float, float]:
    """What the pool costs a month, and what it costs with the grouping that costs least: every one is simulated."""
    pods = [(load, number) for load in loads if load.kind == "Deployment" for number in range(load.there(12))]
    others = [load for load in loads if load.kind != "Deployment"]
    fits = cache(lambda key: may_share([pods[index] for index in key]))
    before = sim.costs(list(sim.simulate(loads, HOURS)))[0]
    fewest = min(
        (own for own in partitions(pods) if all(fits(tuple(sorted(map(pods.index, group)))) for group in own)), key=len
    )
    shared = [
        sim.Load(
            f"group-{number}", lambda _: 0.1,
            lambda hour, group=group: int(any(load.there(hour) > which for load, which in group)),  # type: ignore[misc]
            pool=loads[0].pool,
        )
        for number, group in enumerate(fewest)
    ]  # fmt: skip
    return before, sim.costs(list(sim.simulate([*shared, *others], HOURS)))[0]


def service(
    name: str, pool: sim.Pool, day: float, night: float, gib: float | None = 8.0, pods: int = 1, **more: object
) -> sim.Load:
    return sim.Load(
        name, lambda hour: pods * (day if 8 <= hour % 24 < 20 else night), lambda _: pods, pool=pool, memory_gib=gib,
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


SORTS = ("interleave", "small", "busy", "full", "unseen", "replicas", "guessed")


def pools(seed: int, count: int) -> list[tuple[str, list[sim.Load]]]:
    """Each pool with its workloads, all of one sort and a job that needs whole GPUs."""
    chance = random.Random(seed)
    found = []
    for number in range(count):
        sort = SORTS[number % len(SORTS)]
        gpus = chance.choice((1, 4)) if sort != "small" else 1
        pool = pool_of(f"{sort}-{seed}-{number}", gpus)
        several = chance.randint(3, 4) * (1 if gpus == 1 else 2) if sort == "interleave" else chance.randint(2, 4)
        loads = []
        for index in range(several):
            low, high = chance.uniform(0.03, 0.1), chance.uniform(0.35, 0.55)
            day, night = {
                "interleave": (high, low) if index % 2 else (low, high),
                "small": (0.35, 0.32), "full": (0.35, 0.32), "unseen": (0.35, 0.32), "guessed": (0.35, 0.32),
                "busy": (0.6, 0.5), "replicas": (0.35, 0.32),
            }[sort]  # fmt: skip
            gib = {"full": chance.uniform(11, 19), "unseen": None}.get(sort, chance.uniform(3, 9))
            source = "node" if sort == "guessed" else "pod"
            if sort != "replicas" or not index:
                loads.append(
                    service(
                        f"{pool.name}-{index}", pool, day, night, gib, 3 if sort == "replicas" else 1, source=source
                    )
                )
        job = sim.Load(f"{pool.name}-job", lambda _: 0.9, lambda _: 1, kind="Job", pool=pool, memory_gib=20.0)
        found.append((sort, [*loads, job]))
    return found


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.heavy) for seed in range(2, 12))])
def test_recall_precision_and_savings_are_those_of_the_best_grouping(seed: int) -> None:
    wanted, given = set(), set()
    for sort, loads in pools(seed, 14):
        name = loads[0].pool.name
        content = [one for one in reviewed(loads).recommendations if one.kind == "sharing"]
        if content:
            given.add(name)
        if sort in {"unseen", "guessed"}:
            continue
        before, after = best(loads)
        if before - after > 1:
            wanted.add(name)
            if content:
                assert float(content[0].saving.usd) == pytest.approx(before - after, rel=0.1), name
    assert len(wanted) >= 4
    assert len(wanted & given) / len(wanted) >= 0.95, wanted - given
    assert len(wanted & given) / len(given) >= 0.95, given - wanted


def by_hand() -> list[sim.Load]:
    pool = pool_of("a10g", 1)
    return [service("day", pool, 0.6, 0.05), service("night", pool, 0.05, 0.6), service("both", pool, 0.4, 0.4)]


def test_day_and_night_workloads_share_a_gpu() -> None:
    (one,) = [one for one in reviewed(by_hand()).recommendations if one.kind == "sharing"]
    assert one.summary == (
        "Let 2 pods share 1 GPU of node pool a10g (time-slicing or MPS, 2 replicas): 3 g5.xlarge nodes become 2"
    )
    assert float(one.saving.usd) == pytest.approx(1.5 * 730, rel=1e-4)
    assert one.evidence.facts["groups"] in {"day + night", "night + day"}
    assert one.evidence.facts["replay"] == "192 hours: no GPU above 65% in any"
    assert one.evidence.facts["GPU memory"] == "16.0 GiB at most of 24 GB"
    assert one.evidence.facts["grouping"] == "exact"
    assert one.confidence == "low", "eight days"
    assert one.risk == "high"
    assert "Memory is not isolated" in one.risk_note
    assert "do not show minutes" in one.risk_note
    resources = yaml.safe_load(one.patch)["sharing"]["timeSlicing"]["resources"]
    assert resources == [{"name": "nvidia.com/gpu", "replicas": 2}]


def test_sharing_workloads_get_no_spot_recommendation() -> None:
    loads = [replace(load, pods=lambda _: 3, work=lambda hour, load=load: 3 * load.work(hour)) for load in by_hand()]  # type: ignore[misc]
    records = list(sim.simulate(loads, HOURS))
    look = look_at(records, sim.memory(loads, HOURS))
    look.spot_prices["g5.xlarge"] = SpotPrice(0.5, 0.5, 0.5)
    found = review_cluster(look, sim.START, {}).recommendations
    assert [(one.kind, one.subject.workload) for one in found] == [("sharing", ""), ("spot", "both")]


@pytest.mark.parametrize(
    ("low", "high", "kind", "gone"),
    [(0.05, 0.05, "mig-geometry", 3), (0.05, 0.6, "sharing", 2), (0.02, 0.29, "sharing", 3)],
    ids=["as much", "no slice is large enough", "two slices a GPU"],
)
def test_slices_go_before_sharing_unless_sharing_saves_more(low: float, high: float, kind: str, gone: int) -> None:
    """By hand, four pods: at 5% all fit slices of one GPU or share it; at 60% by day or night none fits a slice, and
    pairs share; at 29% two fit the halves of a GPU, and all four share one (62% at most)."""
    pool = sim.Pool("h100", "p5.4xlarge", 1, Decimal(7), model="NVIDIA H100 80GB HBM3", moves=True)
    loads = [service(f"s{n}", pool, *((low, high) if n % 2 else (high, low)), 6.0, kind="Job") for n in range(4)]
    found = {str(one.kind): one for one in reviewed(loads).recommendations}
    assert found.keys() - {"mig-slice"} == {kind}
    assert float(found[kind].saving.usd) == pytest.approx(gone * 7 * 730, rel=1e-3)


@pytest.mark.parametrize(
    ("model", "gb"),
    [("NVIDIA-A10G", 24), ("Tesla-V100-SXM2-16GB", 16), ("NVIDIA L4", 24), ("NVIDIA-L40S", 48), ("Tesla T4", 16),
     ("NVIDIA A100-SXM4-40GB", 40), ("NVIDIA H100 80GB HBM3", 80), ("NVIDIA A30", 24), ("AWS Neuron", None)],
)  # fmt: skip
def test_memory_of_gpus_is_the_data_sheet_s(model: str, gb: int | None) -> None:
    assert memory_gb(model) == gb


SHARERS = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.7]), min_size=4, max_size=4),
              st.integers(1, 8)),
    max_size=6,
)  # fmt: skip


@settings(max_examples=80)
@given(SHARERS)
def test_few_pods_are_grouped_exactly_and_many_possibly(rows: list[tuple[int, list[float], int]]) -> None:
    pods = [SharingPod(workload, use, memory) for workload, use, memory in rows]

    def possible(own: Sequence[Sequence[int]]) -> bool:
        return all(
            sum(pods[index].memory for index in group) <= 10
            and max(sum(pods[index].use[hour] for index in group) for hour in range(4)) <= 0.7 + 1e-9
            and len({pods[index].workload for index in group}) == len(group) <= MAX_PODS_PER_GPU
            for group in own
        )

    places = [(sim.Load(str(index), lambda _: 0, lambda _: 1), index) for index in range(len(pods))]
    tried = ([[index for _, index in group] for group in own] for own in partitions(places))
    fewest = min(len(own) for own in tried if possible(own))
    found = group_pods(pods, 0.7 + 1e-9, 10)
    assert possible(found)
    assert sorted(index for group in found for index in group) == list(range(len(pods)))
    assert len(found) == fewest
    alone = [SharingPod(100 + number, [0.7] * 4, 1) for number in range(MAX_EXACT_PODS + 1)]
    many = group_pods([*pods, *alone], 0.7 + 1e-9, 10)
    own = [[index for index in group if index < len(pods)] for group in many]
    assert possible([group for group in own if group])


def contents_of(found: Review) -> list[RecommendationContent]:
    return [one for one in found.recommendations if one.kind == "sharing"]


def test_unobserved_hours_are_no_room_for_other_pods() -> None:
    """Half an hour a day is not seen, of the day's pod in its busy hours: the night's pod must not count on them."""
    records = list(sim.simulate(by_hand()[:2], HOURS))
    look = look_at(records, sim.memory(by_hand(), HOURS))
    assert [one.kind for one in review_cluster(look, sim.START, {}).recommendations] == ["sharing"]
    day = next(one for key, one in look.workloads.items() if key.name == "day")
    day.busiest[100] = -1.0
    assert not contents_of(review_cluster(look, sim.START, {}))


@pytest.mark.parametrize(
    ("night", "gib", "is_given"), [(0.09, 8.0, True), (0.11, 8.0, False), (0.05, 9.8, True), (0.05, 9.9, False)],
)  # fmt: skip
def test_use_and_memory_are_held_to_their_limits(night: float, gib: float, is_given: bool) -> None:
    """60% and 9% are under 70%, 60% and 11% are not; twice 9.8 GiB are under 24 × 0.9 ÷ 1.1, twice 9.9 are not."""
    pool = pool_of("a10g", 1)
    loads = [service("day", pool, 0.6, night, gib), service("night", pool, night, 0.6, gib)]
    assert bool(contents_of(reviewed(loads))) == is_given
