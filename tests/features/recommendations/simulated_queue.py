"""Simulates a node pool with a queue: jobs arrive, wait until a node has room, run, and end.

It shares no code with the recommendations. The scheduler is a small version of Kubernetes': in every hour it tries all
waiting jobs in order of arrival and places each on the fullest node that has room. To learn what more nodes change,
simulate the same jobs with more nodes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from gpucost.features.recommendations.history import PodWait
from tests.features.recommendations.simulated_fleet import START, Load, Pool


@dataclass(frozen=True)
class Job:
    """Work that arrives at a time (hours from the start) and runs for a whole number of hours."""

    name: str
    arrives: float
    runs: int
    gpus: int = 1
    namespace: str = "research-ns"


def start_hours(jobs: Sequence[Job], pool: Pool, nodes: int) -> dict[str, float]:
    """When each job gets its node. Jobs start on the full hour because the simulated ledger has no finer times."""
    free = [pool.gpus] * nodes
    ends: list[tuple[int, int, int]] = []
    hours_by_job: dict[str, float] = {}
    queue = sorted(jobs, key=lambda job: (job.arrives, job.name))
    hour = 0
    while queue:
        for end, node, gpus in [run for run in ends if run[0] <= hour]:
            free[node] += gpus
            ends.remove((end, node, gpus))
        for job in [job for job in queue if job.arrives <= hour]:
            room = [node for node, left in enumerate(free) if left >= job.gpus]
            if room:
                node = min(room, key=lambda number: (free[number], number))
                free[node] -= job.gpus
                ends.append((hour + job.runs, node, job.gpus))
                hours_by_job[job.name] = float(hour)
                queue.remove(job)
        hour += 1
    return hours_by_job


def waiting_gpu_hours(jobs: Sequence[Job], pool: Pool, nodes: int) -> float:
    """GPU-hours that jobs wait. Waits under a quarter of an hour do not count: a node takes as long to start."""
    started = start_hours(jobs, pool, nodes)
    waits = [(started[job.name] - job.arrives, job.gpus) for job in jobs]
    return sum(hours * gpus for hours, gpus in waits if hours >= 0.25)


def fewest_extra_nodes(jobs: Sequence[Job], pool: Pool, nodes: int) -> int:
    """The fewest extra nodes that remove nine tenths of the waiting, found by trying every count."""
    before, more = waiting_gpu_hours(jobs, pool, nodes), 0
    while waiting_gpu_hours(jobs, pool, nodes + more) > 0.1 * before + 1e-9:
        more += 1
    return more


def loads(jobs: Sequence[Job], pool: Pool, nodes: int, hours: int) -> list[Load]:
    """The jobs as workloads that hold GPUs while they run, on a pool with so many nodes."""
    started = start_hours(jobs, pool, nodes)
    return [
        Load(
            job.name,
            lambda _, gpus=job.gpus: 0.6 * gpus,  # type: ignore[misc]
            lambda _: 1,
            kind="Job",
            gpus=job.gpus,
            pool=pool,
            unit=job.namespace.removesuffix("-ns"),
            lifetime=(int(started[job.name]), int(started[job.name]) + job.runs),
        )
        for job in jobs
        if started[job.name] < hours
    ]


def waits(jobs: Sequence[Job], pool: Pool, nodes: int, hours: int) -> dict[datetime, list[PodWait]]:
    """Waiting pods by day, as metrics would have shown them."""
    started = start_hours(jobs, pool, nodes)
    waits_by_day: dict[datetime, list[PodWait]] = {START + timedelta(days=day): [] for day in range(hours // 24)}
    for job in jobs:
        parts: dict[int, list[tuple[int, float]]] = {}
        for hour in range(int(job.arrives), min(hours, int(started[job.name]))):
            part = min(started[job.name], hour + 1) - max(job.arrives, hour)
            parts.setdefault(hour // 24, []).append((hour % 24, part))
        for day, day_parts in parts.items():
            pod = f"{job.name}-0"
            wait = PodWait(job.namespace, pod, pod, "nvidia.com/gpu", job.gpus, tuple(day_parts))
            waits_by_day[START + timedelta(days=day)].append(wait)
    return waits_by_day


@dataclass(frozen=True)
class Queue:
    """A pool, its nodes and its jobs."""

    pool: Pool
    nodes: int
    jobs: tuple[Job, ...]
    needs_nodes: bool
    """Whether a recommendation for more nodes is right."""


def queues(seed: int, count: int, days: int) -> list[Queue]:
    """Pools with bursts, growing backlogs, a single incident, short waits, and no waits."""
    rng = random.Random(seed)
    builders = (_bursts, _backlog, _incident, _starting, _roomy)
    return [builders[number % len(builders)](f"p{seed}-{number}", rng, days) for number in range(count)]


def _pool(name: str, rng: random.Random, keeps: int) -> Pool:
    gpus = rng.choice((1, 4, 8))
    types = {1: "g5.xlarge", 4: "g5.12xlarge", 8: "p4d.24xlarge"}
    return Pool(name, types[gpus], gpus, Decimal(3 * gpus), min_nodes=keeps)


def _bursts(name: str, rng: random.Random, days: int) -> Queue:
    """Every other day more jobs arrive at once than there are GPUs. Jobs may need two GPUs if nodes have several."""
    pool = _pool(name, rng, nodes := rng.randint(1, 3))
    gpus = rng.choice((1, 2)) if pool.gpus > 1 else 1
    runs, hour = rng.randint(2, 5), rng.randint(6, 15)
    room = nodes * pool.gpus // gpus
    extra = rng.randint(1, 3) * pool.gpus // gpus
    jobs = [
        Job(f"{name}-{day}-{number}", 24 * day + hour, runs, gpus, rng.choice(("research-ns", "vision-ns")))
        for day in range(0, days, 2)
        for number in range(room + extra)
    ]
    return Queue(pool, nodes, tuple(jobs), needs_nodes=True)


def _backlog(name: str, rng: random.Random, days: int) -> Queue:
    """By day, more work arrives each hour than the nodes can do, by one node's worth, so the queue keeps growing."""
    pool = _pool(name, rng, nodes := rng.randint(1, 2))
    jobs = [
        Job(f"{name}-{day}-{hour}-{number}", 24 * day + hour, 2)
        for day in range(days)
        for hour in range(8, 14, 2)
        for number in range((nodes + 1) * pool.gpus)
    ]
    return Queue(pool, nodes, tuple(jobs), needs_nodes=True)


def _incident(name: str, rng: random.Random, days: int) -> Queue:
    pool = _pool(name, rng, nodes := 1)
    day = rng.randint(0, days - 1)
    jobs = [Job(f"{name}-{number}", 24 * day + 9, 3) for number in range(3 * pool.gpus)]
    return Queue(pool, nodes, (*jobs, *_steady(name, days, day)), needs_nodes=False)


def _starting(name: str, rng: random.Random, days: int) -> Queue:
    """Each job arrives ten minutes before it runs, because a node has to start."""
    pool = _pool(name, rng, nodes := 2)
    jobs = [Job(f"{name}-{day}-{hour}", 24 * day + hour - 1 / 6, 3) for day in range(days) for hour in (7, 15)]
    return Queue(pool, nodes, tuple(jobs), needs_nodes=False)


def _roomy(name: str, rng: random.Random, days: int) -> Queue:
    pool = _pool(name, rng, nodes := 3)
    return Queue(pool, nodes, _steady(name, days, -1), needs_nodes=False)


def _steady(name: str, days: int, skipped_day: int) -> tuple[Job, ...]:
    return tuple(Job(f"{name}-s{day}", 24 * day + 20, 2) for day in range(days) if day != skipped_day)
