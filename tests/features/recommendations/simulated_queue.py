"""A simulated pool with a queue: jobs come, wait until some node has room, run, and go.

It shares no code with the advice. The scheduler is Kubernetes' in short: whenever something comes or ends, all that
wait are tried in order of arrival, each on the fullest node that has room. What more nodes change is what the same
jobs wait when they are simulated with more nodes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from gpucost.features.recommendations.history import Wait
from tests.features.recommendations.simulated_fleet import START, Load, Pool


@dataclass(frozen=True)
class Job:
    """Work that comes at a time (hours from the start) and runs for some whole hours."""

    name: str
    comes: float
    runs: int
    gpus: int = 1
    namespace: str = "research-ns"


def starts(jobs: Sequence[Job], pool: Pool, nodes: int) -> dict[str, float]:
    """When each job gets its node; jobs begin on the full hour, as the simulated ledger has nothing finer."""
    free = [pool.gpus] * nodes
    ends: list[tuple[int, int, int]] = []
    found: dict[str, float] = {}
    queue = sorted(jobs, key=lambda job: (job.comes, job.name))
    hour = 0
    while queue:
        for end, node, gpus in [one for one in ends if one[0] <= hour]:
            free[node] += gpus
            ends.remove((end, node, gpus))
        for job in [job for job in queue if job.comes <= hour]:
            room = [node for node, left in enumerate(free) if left >= job.gpus]
            if room:
                node = min(room, key=lambda one: (free[one], one))
                free[node] -= job.gpus
                ends.append((hour + job.runs, node, job.gpus))
                found[job.name] = float(hour)
                queue.remove(job)
        hour += 1
    return found


def waited(jobs: Sequence[Job], pool: Pool, nodes: int) -> float:
    """GPU-hours that jobs wait, those under a quarter of an hour left out: that is what a node takes to come."""
    begun = starts(jobs, pool, nodes)
    waits = [(begun[job.name] - job.comes, job.gpus) for job in jobs]
    return sum(hours * gpus for hours, gpus in waits if hours >= 0.25)


def fewest_more(jobs: Sequence[Job], pool: Pool, nodes: int) -> int:
    """The fewest nodes more with which nine tenths of the waiting are gone, found by trying one by one."""
    before, more = waited(jobs, pool, nodes), 0
    while waited(jobs, pool, nodes + more) > 0.1 * before + 1e-9:
        more += 1
    return more


def loads(jobs: Sequence[Job], pool: Pool, nodes: int, hours: int) -> list[Load]:
    """The jobs as workloads that hold GPUs while they run, on a pool of as many nodes."""
    begun = starts(jobs, pool, nodes)
    return [
        Load(job.name, lambda _, gpus=job.gpus: 0.6 * gpus, lambda _: 1, kind="Job", gpus=job.gpus, pool=pool,  # type: ignore[misc]
             unit=job.namespace.removesuffix("-ns"), life=(int(begun[job.name]), int(begun[job.name]) + job.runs))
        for job in jobs if begun[job.name] < hours
    ]  # fmt: skip


def waits(jobs: Sequence[Job], pool: Pool, nodes: int, hours: int) -> dict[datetime, list[Wait]]:
    """Who waited, by day, as metrics would have told."""
    begun = starts(jobs, pool, nodes)
    found: dict[datetime, list[Wait]] = {START + timedelta(days=day): [] for day in range(hours // 24)}
    for job in jobs:
        parts: dict[int, list[tuple[int, float]]] = {}
        for hour in range(int(job.comes), min(hours, int(begun[job.name]))):
            part = min(begun[job.name], hour + 1) - max(job.comes, hour)
            parts.setdefault(hour // 24, []).append((hour % 24, part))
        for day, own in parts.items():
            pod = f"{job.name}-0"
            wait = Wait(job.namespace, pod, pod, "nvidia.com/gpu", job.gpus, tuple(own))
            found[START + timedelta(days=day)].append(wait)
    return found


@dataclass(frozen=True)
class Queue:
    """A pool, its nodes and its jobs."""

    pool: Pool
    nodes: int
    jobs: tuple[Job, ...]
    truth: bool
    """Whether more nodes ought to be advised."""


def queues(seed: int, count: int, days: int) -> list[Queue]:
    """Pools of all sorts: bursts at a time of day, backlogs that grow by day, one incident, short waits, none."""
    chance = random.Random(seed)
    sorts = (_bursts, _backlog, _incident, _starting, _roomy)
    return [sorts[number % len(sorts)](f"p{seed}-{number}", chance, days) for number in range(count)]


def _pool(name: str, chance: random.Random, keeps: int) -> Pool:
    gpus = chance.choice((1, 4, 8))
    types = {1: "g5.xlarge", 4: "g5.12xlarge", 8: "p4d.24xlarge"}
    return Pool(name, types[gpus], gpus, Decimal(3 * gpus), keeps=keeps)


def _bursts(name: str, chance: random.Random, days: int) -> Queue:
    """Every other day more jobs at once than there are GPUs; half of them in pairs of GPUs where nodes have several."""
    pool = _pool(name, chance, nodes := chance.randint(1, 3))
    gpus = chance.choice((1, 2)) if pool.gpus > 1 else 1
    runs, hour = chance.randint(2, 5), chance.randint(6, 15)
    room = nodes * pool.gpus // gpus
    extra = chance.randint(1, 3) * pool.gpus // gpus
    jobs = [
        Job(f"{name}-{day}-{number}", 24 * day + hour, runs, gpus, chance.choice(("research-ns", "vision-ns")))
        for day in range(0, days, 2)
        for number in range(room + extra)
    ]
    return Queue(pool, nodes, tuple(jobs), truth=True)


def _backlog(name: str, chance: random.Random, days: int) -> Queue:
    """By day one node's worth of work more comes each hour than the nodes can do: the queue grows to many times it."""
    pool = _pool(name, chance, nodes := chance.randint(1, 2))
    jobs = [
        Job(f"{name}-{day}-{hour}-{number}", 24 * day + hour, 2)
        for day in range(days)
        for hour in range(8, 14, 2)
        for number in range((nodes + 1) * pool.gpus)
    ]
    return Queue(pool, nodes, tuple(jobs), truth=True)


def _incident(name: str, chance: random.Random, days: int) -> Queue:
    pool = _pool(name, chance, nodes := 1)
    day = chance.randint(0, days - 1)
    jobs = [Job(f"{name}-{number}", 24 * day + 9, 3) for number in range(3 * pool.gpus)]
    return Queue(pool, nodes, (*jobs, *_steady(name, days, day)), truth=False)


def _starting(name: str, chance: random.Random, days: int) -> Queue:
    """Each job comes ten minutes before it runs: a node has to start."""
    pool = _pool(name, chance, nodes := 2)
    jobs = [Job(f"{name}-{day}-{hour}", 24 * day + hour - 1 / 6, 3) for day in range(days) for hour in (7, 15)]
    return Queue(pool, nodes, tuple(jobs), truth=False)


def _roomy(name: str, chance: random.Random, days: int) -> Queue:
    pool = _pool(name, chance, nodes := 3)
    return Queue(pool, nodes, _steady(name, days, -1), truth=False)


def _steady(name: str, days: int, but: int) -> tuple[Job, ...]:
    return tuple(Job(f"{name}-s{day}", 24 * day + 20, 2) for day in range(days) if day != but)
