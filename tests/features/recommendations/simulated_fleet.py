"""A simulated fleet of which the best plan is known: work that arrives, pods that do it, nodes that carry the pods.

It shares no code with the advice: work is GPUs' worth of work per hour, pods are placed first fit on nodes, nodes come
when no other has room and go when they are empty. What the fleet would cost with a plan is what it costs when it is
simulated with the plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpucost.core.amounts import Capacity, Costs, Totals
from gpucost.core.model import Coverage, HourRecord, Line, NodeHour

START = datetime(2026, 11, 2, tzinfo=UTC)
"""A Monday."""
Work = Callable[[int], float]
"""GPUs' worth of work by hour from the start."""


@dataclass(frozen=True)
class Pool:
    """Nodes that are alike."""

    name: str = "solo"
    instance_type: str = "g5.xlarge"
    gpus: int = 1
    price: Decimal = Decimal("1.5")
    capacity_type: str = "on-demand"
    model: str = "NVIDIA-A10G"
    price_source: str = "constant"
    packs: bool = True
    """Whether pods go to the fullest node that has room; else to the emptiest, and no node is ever left."""
    keeps: int = 0
    """Nodes that stay even when nothing runs on them."""
    moves: bool = False
    """Whether pods are moved together every hour, largest first."""


@dataclass(frozen=True)
class Load:
    """A workload."""

    name: str
    work: Work
    pods: Callable[[int], int]
    kind: str = "Deployment"
    gpus: int = 1
    """Per pod."""
    pool: Pool = Pool()
    unit: str = "research"
    life: tuple[int, int] = (0, 10**6)
    seen: float = 1.0
    """Part of the time in which its use is observed."""
    source: str = "pod"
    truth: str = ""
    """What ought to be advised: a kind, or "" for nothing."""
    slice: Decimal = Decimal(1)
    """Physical GPUs per unit that it requests."""
    resource: str = "nvidia.com/gpu"
    labels: Mapping[str, str] = field(default_factory=dict)
    """The settings' `cost_labels`."""
    memory_gib: float | None = None
    """The most that any pod of it uses; None where nobody sees it."""

    def there(self, hour: int) -> int:
        return self.pods(hour) if self.life[0] <= hour < self.life[1] else 0

    def busy(self, hour: int) -> float:
        """Use of what it holds, 0 to 1."""
        held = self.there(hour) * self.gpus * float(self.slice)
        return min(1.0, self.work(hour) / held) if held else 0.0


@dataclass
class _Node:
    name: str
    pool: Pool
    pods: dict[tuple[str, int], Decimal] = field(default_factory=dict)

    @property
    def free(self) -> Decimal:
        return self.pool.gpus - sum(self.pods.values(), Decimal(0))


def simulate(
    loads: Sequence[Load], hours: int, *, cluster: str = "demo", noise: float = 0.0, seed: int = 1, sums: bool = False
) -> Iterator[HourRecord]:
    """Every hour of a fleet; with its totals where `sums` asks for them, which takes half of the time."""
    chance = random.Random(seed)
    nodes: list[_Node] = []
    made = 0
    pools = list(dict.fromkeys(load.pool for load in loads))
    by_name = {load.name: load for load in loads}
    nodes += [_Node(f"{pool.name}-{number}", pool) for pool in pools for number in range(pool.keeps)]
    for hour in range(hours):
        for node in nodes:
            for name, number in list(node.pods):
                if number >= by_name[name].there(hour):
                    del node.pods[name, number]
        for node in nodes:
            if node.pool.moves:
                node.pods.clear()
        placed = {key for node in nodes for key in node.pods}
        for load in sorted(loads, key=lambda one: -one.gpus * one.slice):
            for number in range(load.there(hour)):
                if (load.name, number) in placed:
                    continue
                need = load.gpus * load.slice
                room = [node for node in nodes if node.pool == load.pool and node.free >= need]
                if room:
                    pick = (min if load.pool.packs else max)(room, key=lambda one: (one.free, one.name))
                else:
                    made += 1
                    pick = _Node(f"{load.pool.name}-{made:05d}", load.pool)
                    nodes.append(pick)
                pick.pods[load.name, number] = need
        for pool in pools:
            own = [node for node in nodes if node.pool == pool]
            empty = [node for node in own if not node.pods]
            for node in empty[: max(0, len(own) - pool.keeps)]:
                nodes.remove(node)
        yield _record(cluster, hour, by_name, nodes, lambda: 1 + noise * chance.gauss(0, 1), sums=sums)


def _record(
    cluster: str,
    hour: int,
    loads: Mapping[str, Load],
    nodes: Sequence[_Node],
    error: Callable[[], float],
    *,
    sums: bool,
) -> HourRecord:
    lines, rows = [], []
    for node in nodes:
        pool = node.pool
        rate = pool.price / pool.gpus
        for (name, number), held in node.pods.items():
            lines.append(_line(loads[name], number, held, node, rate, min(1.0, loads[name].busy(hour) * error())))
        held = sum(node.pods.values(), Decimal(0))
        capacity = Capacity(
            capacity_gpu_hours=Decimal(pool.gpus), unallocated_gpu_hours=pool.gpus - held, node_cost_usd=pool.price,
            unallocated_usd=(pool.gpus - held) * rate,
        )  # fmt: skip
        rows.append(
            NodeHour(node.name, f"aws:///a/i-{node.name}", pool.name, pool.instance_type, pool.capacity_type, "a",
                     pool.model, pool.price_source, "gpu-bears-all", None, held * rate, capacity)
        )  # fmt: skip
    totals = None
    if sums:
        totals = Totals(Costs.total(line.costs() for line in lines), Capacity.total(row.capacity for row in rows))
    return HourRecord(
        cluster, START + timedelta(hours=hour), "complete", Coverage(Decimal(1), Decimal(1)), totals, tuple(lines),
        nodes=tuple(rows),
    )  # fmt: skip


def _line(load: Load, number: int, held: Decimal, node: _Node, rate: Decimal, busy: float) -> Line:
    seen = Decimal(str(load.seen))
    use = Decimal(f"{busy:.9f}")
    is_seen = load.source != "none" and seen > 0
    effective = held * seen * use if is_seen else None
    unmeasured = held * (1 - seen) if is_seen else held
    usd = held * rate
    used_usd = None if effective is None else effective * rate
    return Line(
        business_unit=load.unit, namespace=f"{load.unit}-ns", workload_kind=load.kind, workload=load.name,
        pod=f"{load.name}-{number}", uid=f"{load.name}-{number}", node=node.name, node_pool=node.pool.name,
        instance_type=node.pool.instance_type, capacity_type=node.pool.capacity_type, zone="a",
        gpu_model=node.pool.model, resource=load.resource, units=load.gpus, gpu_share=load.slice,
        gpu_share_source="whole", labels=dict(load.labels), split_policy="gpu-bears-all", allocated_gpu_hours=held,
        effective_gpu_hours=effective, utilization=use if is_seen else None,
        utilization_source=load.source if is_seen else "none",  # type: ignore[arg-type]
        unmeasured_gpu_hours=unmeasured, gpu_hourly_usd=rate, price_source=node.pool.price_source, allocated_usd=usd,
        effective_usd=used_usd, waste_usd=usd - (used_usd or 0) - unmeasured * rate, unmeasured_usd=unmeasured * rate,
    )  # fmt: skip


def memory(loads: Sequence[Load], hours: int) -> dict[datetime, dict[tuple[str, str], float]]:
    """What an exporter would have seen of GPU memory, by day and pod."""
    return {
        START + timedelta(days=day): {
            (f"{load.unit}-ns", f"{load.name}-{number}"): load.memory_gib * 2**30
            for load in loads
            if load.memory_gib is not None
            for number in range(max(load.there(hour) for hour in range(24 * day, 24 * day + 24)))
        }
        for day in range(-(-hours // 24))
    }


def costs(records: Sequence[HourRecord]) -> tuple[float, float]:
    """Of a month of such hours: what nodes cost, and what is allocated."""
    nodes = sum(float(node.capacity.node_cost_usd) for one in records for node in one.nodes)
    held = sum(float(line.allocated_usd or 0) for one in records for line in one.lines)
    return nodes / len(records) * 730, held / len(records) * 730


def daily(low: float, high: float, chance: random.Random, *, jitter: float = 0.05) -> Work:
    """Work that is high by day and low by night, a little different every hour."""
    values = [(high if 8 <= hour % 24 < 20 else low) * (1 + jitter * chance.uniform(-1, 1)) for hour in range(24 * 31)]
    return lambda hour: values[hour % len(values)]


def fleet(seed: int, count: int, hours: int) -> list[Load]:
    """A fleet of all sorts, each with its truth: what the simulation's own rules say ought to be advised."""
    chance = random.Random(seed)
    loads = []
    for number in range(count):
        sort = _SORTS[number % len(_SORTS)]
        load = sort(f"{sort.__name__.strip('_').replace('_', '-')}-{number}", chance)
        load = replace(load, unit=chance.choice(("research", "vision", "speech")))
        loads.append(replace(load, truth=_truth(load, hours)) if load.truth == "?" else load)
    return loads


def _truth(load: Load, hours: int) -> str:
    """From the work itself: the fewest GPUs that do it with the busiest hour at 70%, found by trying one by one."""
    span = [hour for hour in range(hours) if load.there(hour)]
    held = max(load.there(hour) for hour in span)
    busiest = max(load.busy(hour) for hour in span)
    mean = sum(load.work(hour) for hour in span) / sum(load.there(hour) * load.gpus for hour in span)
    if busiest < 0.02:
        return "idle"
    if mean > 0.9 and load.kind == "Deployment":
        return "add-gpus"
    if mean < 0.3 and busiest < 0.3:
        return "fewer-gpus" if best(load, hours) < held * load.gpus else ""
    return ""


def best(load: Load, hours: int) -> int:
    """The fewest GPUs that do the work with the busiest hour at 70%: whole replicas, or GPUs of a single pod."""
    needed = max(load.work(hour) for hour in range(hours) if load.there(hour))
    step = load.gpus if max(load.there(hour) for hour in range(hours)) > 1 and needed > 0.7 * load.gpus else 1
    gpus = step
    while gpus * 0.7 < needed:
        gpus += step
    return gpus


def _idle_notebook(name: str, chance: random.Random) -> Load:
    level = chance.uniform(0, 0.012)
    return Load(name, lambda _: level, lambda _: 1, kind="StatefulSet", truth="?")


def _idle_replicas(name: str, chance: random.Random) -> Load:
    count = chance.randint(2, 4)
    return Load(name, lambda _: 0.0, lambda _: count, truth="?")


def _too_many_replicas(name: str, chance: random.Random) -> Load:
    count = chance.randint(4, 8)
    high = count * chance.uniform(0.08, 0.25)
    return Load(name, daily(high / 4, high, chance), lambda _: count, truth="?")


def _too_large_pod(name: str, chance: random.Random) -> Load:
    gpus = chance.choice((2, 4, 8))
    high = gpus * chance.uniform(0.05, 0.25)
    pool = Pool(f"large{gpus}", {2: "g7.12xlarge", 4: "g5.12xlarge", 8: "p4d.24xlarge"}[gpus], gpus, Decimal(2 * gpus))
    return Load(name, daily(high / 2, high, chance), lambda _: 1, kind="Job", gpus=gpus, pool=pool, truth="?")


def _healthy(name: str, chance: random.Random) -> Load:
    count = chance.randint(1, 5)
    high = count * chance.uniform(0.5, 0.75)
    return Load(name, daily(high * 0.6, high, chance), lambda _: count, truth="?")


def _bursty(name: str, chance: random.Random) -> Load:
    count = chance.randint(2, 5)
    high = count * chance.uniform(0.6, 0.95)

    def work(hour: int) -> float:
        return high if hour % 24 in {9, 10} else 0.05 * count

    return Load(name, work, lambda _: count, truth="?")


def _saturated(name: str, chance: random.Random) -> Load:
    count = chance.randint(1, 4)
    work = daily(count * 0.95, count * 1.2, chance, jitter=0.01)
    return Load(name, work, lambda _: count, truth="?")


def _full_job(name: str, chance: random.Random) -> Load:
    return Load(name, lambda _: 0.97 + chance.uniform(0, 0.01), lambda _: 1, kind="Job")


def _unseen(name: str, chance: random.Random) -> Load:
    return Load(name, lambda _: 0.0, lambda _: 2, seen=chance.choice((0.0, 0.5)))


def _guessed(name: str, _: random.Random) -> Load:
    return Load(name, lambda _: 0.0, lambda _: 2, source="node")


def _young(name: str, chance: random.Random) -> Load:
    return Load(name, lambda _: 0.0, lambda _: 1, life=(192 - chance.randint(30, 150), 10**6))


def _gone(name: str, chance: random.Random) -> Load:
    return Load(name, lambda _: 0.0, lambda _: 1, life=(0, 192 - chance.randint(30, 72)))


_SORTS = (
    _idle_notebook, _idle_replicas, _too_many_replicas, _too_large_pod, _healthy, _bursty, _saturated, _full_job,
    _unseen, _guessed, _young, _gone,
)  # fmt: skip
