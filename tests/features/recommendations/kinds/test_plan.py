"""The plan of a cluster: changes that can all be made, whose savings add up to the total that is shown."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

import pytest

from gpucost.core.hour_record import HourRecord
from gpucost.features.recommendations.history import LookBack, PodWait
from gpucost.features.recommendations.lifecycle import offered
from gpucost.features.recommendations.model import Recommendation, RecommendationContent, RecommendationSubject
from gpucost.features.recommendations.review import review_cluster
from gpucost.features.recommendations.routes import recommendation_totals
from gpucost_devstack.fleet.demo import fleet as demo
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.demo_fleet import hours_of_demo, waits_of_demo
from tests.features.recommendations.plan_replay import Replay
from tests.features.recommendations.sample_recommendations import PROPOSED
from tests.records import compact_line_of

HOURS = 720
END = sim.START + timedelta(hours=HOURS)
H100 = "NVIDIA H100 80GB HBM3"


SPREAD = sim.Pool("spread", "p4d.24xlarge", 8, Decimal(24), packs_pods=False, min_nodes=3)
WASTEFUL = [
    sim.Load("wasteful-idle", lambda _: 0.0, lambda _: 2, pool=SPREAD),
    sim.Load("wasteful-busy", lambda _: 5.0, lambda hour: 6 if 8 <= hour % 24 < 20 else 3, pool=SPREAD),
]
"""A pool in every random fleet, with a workload to stop and nodes to remove."""
Waits = list[tuple[int, PodWait]]
"""Pods that waited, each with the number of the day."""


def steady(gpus: float) -> sim.Work:
    return lambda _: gpus


def random_pool(number: int, rng: random.Random) -> tuple[list[sim.Load], Waits]:
    """The loads of a pool, and short jobs that wait for its GPUs on some days: one for hours, or many all day."""
    gpus = rng.choice((1, 8, 8))
    unit = f"unit{number}"
    pool = sim.Pool(
        f"pool{number}",
        "p5.48xlarge" if gpus == 8 else "p5.4xlarge",
        gpus,
        Decimal(rng.randint(3, 9) * gpus),
        model=H100,
        packs_pods=rng.random() < 0.4,
        min_nodes=rng.randint(0, 4),
        repacks_hourly=rng.random() < 0.2,
    )
    loads = []
    for index, kind in enumerate(rng.sample(("idle", "low", "day", "busy", "job", "small", "night", "slack"), 4)):
        count = rng.randint(1, 4)
        days = rng.uniform(0.5, 0.9) * count
        by_day = sim.daily(0.0 if kind == "slack" else days * 0.4, days, rng)
        by_night = sim.daily(days * 0.6, 0.05 * count, rng)
        works = {"day": by_day, "slack": by_day, "night": by_night}
        work = works.get(kind) or steady(
            count * {"idle": 0.0, "low": 0.2, "busy": 1.0, "job": 0.8, "small": 0.05}[kind]
        )
        per_pod = rng.choice((1, 2, 4, 8)) if gpus == 8 and kind == "job" else 1

        def pods(hour: int, kind: str = kind, count: int = count) -> int:
            return count if kind != "day" or 8 <= hour % 24 < 20 else 1

        loads.append(
            sim.Load(
                f"{unit}-{kind}{index}",
                work,
                pods,
                kind="Job" if kind in {"job", "small"} else "Deployment",
                gpus=per_pod,
                pool=pool,
                unit=unit,
                memory_gib=rng.choice((3.0, 8.0, 60.0, None)),
            )
        )
    waits = []
    late_pods, waited = rng.choice(((1, 3), (30, 22)))
    for day in rng.sample(range(29), rng.choice((0, 2, 24))):
        late = sim.Load(
            f"{unit}-late{day}",
            lambda _: 30.0,
            lambda _, count=late_pods: count,  # type: ignore[misc]
            kind="Job",
            pool=pool,
            unit=unit,
            lifetime=(24 * day + waited, 24 * day + waited + 1),
        )
        loads.append(late)
        hours = tuple((hour, 1.0) for hour in range(waited))
        names = [f"{late.name}-{pod}" for pod in range(late_pods)]
        waits += [(day, PodWait(f"{unit}-ns", name, name, "nvidia.com/gpu", 1, hours)) for name in names]
    return loads, waits


def reviewed(
    loads: Sequence[sim.Load], waits: Sequence[tuple[int, PodWait]], *, seed: int = 1
) -> tuple[list[HourRecord], list[Recommendation]]:
    """The hours of a fleet, and what a review recommends, as it is offered."""
    records = list(sim.simulate(loads, HOURS, seed=seed))
    days: dict[datetime, list[PodWait]] = {sim.START + timedelta(days=day): [] for day in range(30)}
    for day, wait in waits:
        days[sim.START + timedelta(days=day)].append(wait)
    return records, offered_of(records, days, sim.memory(loads, HOURS))


def offered_of(
    records: Sequence[HourRecord | None],
    waits: Mapping[datetime, Sequence[PodWait]],
    memory: Mapping[datetime, Mapping[tuple[str, str], float]],
) -> list[Recommendation]:
    """What a review of a cluster's hours recommends, as it is offered."""
    look_back = LookBack("demo", sim.START, HOURS)
    look_back.memory_peaks.update(memory)
    look_back.add_waits(waits)
    for record in records:
        if record is not None:
            look_back.add_hour(record.hour, map(compact_line_of, record.lines), record.nodes, record.currency)
    contents = review_cluster(look_back, END, {}).recommendations
    return offered(Recommendation(content, "open", END, END, END) for content in contents)


def check_plan(records: Sequence[HourRecord | None], start: datetime, rows: Sequence[Recommendation]) -> None:
    """No loss, no contradiction, and the replayed plan saves the total."""
    plan = [row.content for row in rows if row.offer == "plan" and not row.content.part_of]
    assert all(content.saving.usd > 0 for content in plan)
    shown = recommendation_totals(rows)["savings"]["usd"]
    assert shown == sum(content.saving.usd for content in plan)
    # Each saving is rounded to cents.
    assert float(shown) == pytest.approx(Replay(records, start).monthly_usd(plan), abs=0.005 * len(plan) + 1e-6)
    for row in rows:
        if row.offer == "cost" and row.content.worth_usd is not None:
            assert row.content.worth_usd + row.content.saving.usd >= 0, "it loses money"
    directions: dict[tuple[str, str], set[bool]] = {}
    for row in rows:
        content, subject = row.content, row.content.subject
        if row.offer not in {"plan", "cost"}:
            continue
        grows = content.recommended_gpus > content.current_gpus
        if not subject.is_workload:
            directions.setdefault((subject.node_pool, subject.instance_type), set()).add(grows)
        elif grows:
            lines = [line for record in records if record for line in record.lines]
            for pool in {(line.node_pool, line.instance_type) for line in lines if line.workload == subject.workload}:
                directions.setdefault(pool, set()).add(grows)
    assert all(len(seen) == 1 for seen in directions.values()), directions


@pytest.mark.tools  # seconds
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 12))])
def test_replayed_plan_of_random_pools_saves_the_total(seed: int) -> None:
    rng = random.Random(seed)
    pools = [random_pool(number, rng) for number in range(5)]
    pools.append((WASTEFUL, []))
    loads, waits = [load for loads, _ in pools for load in loads], [wait for _, waits in pools for wait in waits]
    records, rows = reviewed(loads, waits)
    check_plan(records, sim.START, rows)
    assert {"plan", "alternative"} <= {row.offer for row in rows}, "some changes contradict others, or lose money"
    assert {"idle", "consolidate"} <= {row.content.kind for row in rows if row.offer == "plan"}


@pytest.mark.tools  # seconds
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 7))])
def test_replayed_plan_of_a_random_fleet_saves_the_total(seed: int) -> None:
    """Workloads of every kind, some of which began or ended lately."""
    records, rows = reviewed(sim.fleet(seed, 12, HOURS), [])
    check_plan(records, sim.START, rows)
    assert {"idle", "fewer-gpus"} <= {row.content.kind for row in rows if row.offer == "plan"}


@pytest.mark.nightly  # a minute each
@pytest.mark.parametrize(
    ("cluster", "offers"),
    [
        (demo.PRODUCTION, {"consolidate": "plan", "add-gpus": "cost", "idle": "plan"}),
        (demo.RESEARCH, {"pending": "alternative", "off-hours": "plan"}),
        (demo.BATCH, {"consolidate": "plan", "off-hours": "plan"}),
    ],
)
def test_replayed_plan_of_the_demo_saves_the_total(cluster: str, offers: Mapping[str, str]) -> None:
    """Its hours are the true ones of its scenario. They vary by weekday, and some have no figures."""
    records = hours_of_demo(cluster, sim.START, 30)
    rows = offered_of(records, waits_of_demo(cluster, sim.START, 30), {})
    check_plan(records, sim.START, rows)
    assert offers.items() <= {row.content.kind: row.offer for row in rows}.items()


def change(
    kind: str,
    usd: int,
    *,
    worth: int | None = None,
    name: str = "",
    pools: tuple[tuple[str, str], ...] = (),
    part_of: str = "",
    resource: str = "",
) -> RecommendationContent:
    """A change of pool `gpu`, or of a workload."""
    about = (
        RecommendationSubject("demo", "research", "ns", "Deployment", name)
        if name
        else RecommendationSubject("demo", node_pool="gpu", instance_type="p5.48xlarge", resource=resource)
    )
    saving = replace(PROPOSED.saving, usd=Decimal(usd))
    return replace(
        PROPOSED,
        kind=kind,
        subject=about,
        saving=saving,
        pools=pools,
        part_of=part_of,
        worth_usd=None if worth is None else Decimal(worth),
        recommended_gpus=Decimal(3 if usd < 0 else 1),
    )


def offers(*contents: RecommendationContent) -> dict[str, tuple[str | None, str]]:
    rows = offered(Recommendation(content, "open", END, END, END) for content in contents)
    return {row.content.kind: (row.offer, row.alternative_to.rpartition("-")[0]) for row in rows}


def test_pool_gets_either_fewer_or_more_nodes_and_what_is_worth_more() -> None:
    remove, loses = change("consolidate", 500), change("pending", -300, worth=100)
    assert offers(remove, loses) == {"consolidate": ("plan", ""), "pending": ("alternative", "consolidate")}
    assert offers(loses) == {"pending": ("alternative", "")}, "it costs more than it is worth"
    worth_less, worth_more = change("pending", -300, worth=700), change("pending", -300, worth=900)
    assert offers(remove, worth_less) == {"consolidate": ("plan", ""), "pending": ("alternative", "consolidate")}
    assert offers(remove, worth_more) == {"consolidate": ("alternative", "pending"), "pending": ("cost", "")}
    assert offers(worth_more) == {"pending": ("cost", "")}


def test_slices_follow_the_plan_of_their_pool() -> None:
    geometry = change("mig-geometry", 500)
    slices = change("mig-slice", 80, name="mini", part_of=geometry.id)
    more = change("pending", -300, worth=900)
    assert offers(geometry, slices)["mig-slice"] == ("plan", "")
    assert offers(geometry, slices, more)["mig-slice"] == ("alternative", "pending")


def test_replicas_are_not_added_in_a_pool_whose_nodes_are_removed() -> None:
    replicas = change("add-gpus", -300, name="chat", pools=(("gpu", "p5.48xlarge"),))
    assert offers(replicas) == {"add-gpus": ("cost", "")}
    assert offers(replicas, change("consolidate", 100))["add-gpus"] == ("alternative", "consolidate")
    elsewhere = replace(replicas, pools=(("cpu", "p5.48xlarge"),))
    assert offers(elsewhere, change("consolidate", 100))["add-gpus"] == ("cost", "")


def test_dismissed_change_no_longer_displaces_its_alternative() -> None:
    remove, more = change("consolidate", 1000), change("pending", -300, worth=900)
    rows = [Recommendation(remove, "dismissed", END, END, END), Recommendation(more, "open", END, END, END)]
    assert [row.offer for row in offered(rows)] == [None, "cost"]
    commitment = change("commitment", 100)
    assert offers(commitment, remove)["commitment"] == ("after-plan", "")
