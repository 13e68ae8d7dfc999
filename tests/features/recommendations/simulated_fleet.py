"""Simulates a fleet whose best plan can be computed: work arrives, pods do it, and nodes run the pods.

It shares no code with the recommendations. Work is counted in GPUs per hour, and pods go to the first node with room.
A node is added when no other has room, and removed when it is empty. To learn what the fleet would cost with a plan,
simulate it with the plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from gpucost.core.amounts import SCALE, CapacityCosts, Costs, Totals
from gpucost.core.hour_record import Coverage, HourRecord, Line, NodeHour
from tests.records import amount

START = datetime(2026, 11, 2, tzinfo=UTC)
"""A Monday."""
Work = Callable[[int], float]
"""GPUs' worth of work by hour from the start."""


@dataclass(frozen=True)
class Pool:
    """A node pool whose nodes are all of one instance type."""

    name: str = "solo"
    instance_type: str = "g5.xlarge"
    gpus: int = 1
    price: Decimal = Decimal("1.5")
    capacity_type: str = "on-demand"
    model: str = "NVIDIA-A10G"
    price_source: str = "constant"
    packs_pods: bool = True
    """Whether pods go to the fullest node that has room. Otherwise they go to the emptiest, so that no node empties."""
    min_nodes: int = 0
    """Number of nodes that are kept even when nothing runs on them."""
    repacks_hourly: bool = False
    """Whether all pods are placed again every hour, largest first."""


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
    lifetime: tuple[int, int] = (0, 10**6)
    observed_share: float = 1.0
    """Part of the time in which its utilization is observed."""
    source: str = "pod"
    expected_kind: str = ""
    """The kind of recommendation that is right for it, or "" for none."""
    gpu_share: Decimal = Decimal(1)
    """Physical GPUs per unit that it requests."""
    resource: str = "nvidia.com/gpu"
    labels: Mapping[str, str] = field(default_factory=dict)
    """The settings' `cost_labels`."""
    memory_gib: float | None = None
    """The most that any of its pods uses; None if no exporter reports it."""

    def running_pods(self, hour: int) -> int:
        return self.pods(hour) if self.lifetime[0] <= hour < self.lifetime[1] else 0

    def utilization(self, hour: int) -> float:
        """Utilization of its GPUs in an hour, 0 to 1."""
        held_gpus = self.running_pods(hour) * self.gpus * float(self.gpu_share)
        return min(1.0, self.work(hour) / held_gpus) if held_gpus else 0.0


@dataclass
class _Node:
    name: str
    pool: Pool
    pods: dict[tuple[str, int], Decimal] = field(default_factory=dict)
    lines: dict[tuple[str, int, Decimal, Decimal], Line] = field(default_factory=dict)
    """Lines by pod, GPUs and utilization. Most hours repeat them."""
    rows: dict[Decimal, NodeHour] = field(default_factory=dict)
    """The node by the GPUs that its pods hold."""

    @property
    def free(self) -> Decimal:
        return self.pool.gpus - sum(self.pods.values(), Decimal(0))


def simulate(
    loads: Sequence[Load], hours: int, *, cluster: str = "demo", noise: float = 0.0, seed: int = 1, sums: bool = False
) -> Iterator[HourRecord]:
    """Yield every hour of a fleet, with totals only if `sums` is set: they double the run time."""
    rng = random.Random(seed)
    nodes: list[_Node] = []
    node_count = 0
    pools = list(dict.fromkeys(load.pool for load in loads))
    by_name = {load.name: load for load in loads}
    nodes += [_Node(f"{pool.name}-{number}", pool) for pool in pools for number in range(pool.min_nodes)]
    for hour in range(hours):
        for node in nodes:
            for name, number in list(node.pods):
                if number >= by_name[name].running_pods(hour):
                    del node.pods[name, number]
        for node in nodes:
            if node.pool.repacks_hourly:
                node.pods.clear()
        placed_pods = {key for node in nodes for key in node.pods}
        for load in sorted(loads, key=lambda load: -load.gpus * load.gpu_share):
            for number in range(load.running_pods(hour)):
                if (load.name, number) in placed_pods:
                    continue
                need = load.gpus * load.gpu_share
                room = [node for node in nodes if node.pool == load.pool and node.free >= need]
                if room:
                    target = (min if load.pool.packs_pods else max)(room, key=lambda node: (node.free, node.name))
                else:
                    node_count += 1
                    target = _Node(f"{load.pool.name}-{node_count:05d}", load.pool)
                    nodes.append(target)
                target.pods[load.name, number] = need
        for pool in pools:
            pool_nodes = [node for node in nodes if node.pool == pool]
            empty = [node for node in pool_nodes if not node.pods]
            for node in empty[: max(0, len(pool_nodes) - pool.min_nodes)]:
                nodes.remove(node)
        yield _record(cluster, hour, by_name, nodes, lambda: 1 + noise * rng.gauss(0, 1), sums=sums)


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
            utilization = Decimal(f"{min(1.0, loads[name].utilization(hour) * error()):.9f}")
            key = name, number, held, utilization
            if key not in node.lines:
                node.lines[key] = _line(loads[name], number, held, node, rate, utilization)
            lines.append(node.lines[key])
        held = sum(node.pods.values(), Decimal(0))
        if held not in node.rows:
            node.rows[held] = _row(node, held, rate)
        rows.append(node.rows[held])
    totals = None
    if sums:
        totals = Totals(Costs.total(line.costs() for line in lines), CapacityCosts.total(row.capacity for row in rows))
    return HourRecord(
        cluster,
        START + timedelta(hours=hour),
        "complete",
        Coverage(Decimal(1), Decimal(1)),
        totals,
        tuple(lines),
        nodes=tuple(rows),
    )


def _row(node: _Node, held: Decimal, rate: Decimal) -> NodeHour:
    pool = node.pool
    capacity = CapacityCosts(
        capacity_gpu_hours=amount(pool.gpus),
        unallocated_gpu_hours=amount(pool.gpus - held),
        node_cost_usd=amount(pool.price),
        unallocated_usd=amount((pool.gpus - held) * rate),
    )
    return NodeHour(
        node.name,
        f"aws:///a/i-{node.name}",
        pool.name,
        pool.instance_type,
        pool.capacity_type,
        "a",
        pool.model,
        pool.price_source,
        "gpu-bears-all",
        None,
        amount(held * rate),
        capacity,
    )


def _line(load: Load, number: int, held: Decimal, node: _Node, rate: Decimal, utilization: Decimal) -> Line:
    observed_share = Decimal(str(load.observed_share))
    is_observed = load.source != "none" and observed_share > 0
    effective_gpu_hours = held * observed_share * utilization if is_observed else None
    unmeasured_gpu_hours = held * (1 - observed_share) if is_observed else held
    allocated_usd = held * rate
    effective_usd = None if effective_gpu_hours is None else effective_gpu_hours * rate
    return Line(
        business_unit=load.unit,
        namespace=f"{load.unit}-ns",
        workload_kind=load.kind,
        workload=load.name,
        pod=f"{load.name}-{number}",
        uid=f"{load.name}-{number}",
        node=node.name,
        node_pool=node.pool.name,
        instance_type=node.pool.instance_type,
        capacity_type=node.pool.capacity_type,
        zone="a",
        gpu_model=node.pool.model,
        resource=load.resource,
        units=load.gpus,
        gpu_share=load.gpu_share,
        gpu_share_source="whole",
        labels=dict(load.labels),
        split_policy="gpu-bears-all",
        allocated_gpu_hours=amount(held),
        effective_gpu_hours=None if effective_gpu_hours is None else amount(effective_gpu_hours),
        utilization=utilization if is_observed else None,
        utilization_source=load.source if is_observed else "none",  # type: ignore[arg-type]
        unmeasured_gpu_hours=amount(unmeasured_gpu_hours),
        gpu_hourly_usd=rate,
        price_source=node.pool.price_source,
        allocated_usd=amount(allocated_usd),
        effective_usd=None if effective_usd is None else amount(effective_usd),
        unmeasured_usd=amount(unmeasured_gpu_hours * rate),
        waste_usd=amount(allocated_usd - (effective_usd or 0) - unmeasured_gpu_hours * rate),
    )


def memory(loads: Sequence[Load], hours: int) -> dict[datetime, dict[tuple[str, str], float]]:
    """GPU memory peaks in bytes, as an exporter would have reported them, by day and pod."""
    return {
        START + timedelta(days=day): {
            (f"{load.unit}-ns", f"{load.name}-{number}"): load.memory_gib * 2**30
            for load in loads
            if load.memory_gib is not None
            for number in range(max(load.running_pods(hour) for hour in range(24 * day, 24 * day + 24)))
        }
        for day in range(-(-hours // 24))
    }


def costs(records: Sequence[HourRecord]) -> tuple[float, float]:
    """Monthly cost of the nodes, and of what is allocated, if every month is like these hours."""
    nodes = sum(node.capacity.node_cost_usd / SCALE for record in records for node in record.nodes)
    held = sum((line.allocated_usd or 0) / SCALE for record in records for line in record.lines)
    return nodes / len(records) * 730, held / len(records) * 730


def daily(low: float, high: float, rng: random.Random, *, jitter: float = 0.05) -> Work:
    """Work that is high by day and low by night, with some jitter."""
    values = [(high if 8 <= hour % 24 < 20 else low) * (1 + jitter * rng.uniform(-1, 1)) for hour in range(24 * 31)]
    return lambda hour: values[hour % len(values)]


def fleet(seed: int, count: int, hours: int) -> list[Load]:
    """A mixed fleet; each workload has the kind of recommendation that the simulation's own rules expect."""
    rng = random.Random(seed)
    loads = []
    for number in range(count):
        build = _BUILDERS[number % len(_BUILDERS)]
        load = build(f"{build.__name__.strip('_').replace('_', '-')}-{number}", rng)
        load = replace(load, unit=rng.choice(("research", "vision", "speech")))
        loads.append(replace(load, expected_kind=_expected_kind(load, hours)) if load.expected_kind == "?" else load)
    return loads


def _expected_kind(load: Load, hours: int) -> str:
    """From the work itself: the fewest GPUs that do it with the busiest hour at 70%, found by trying every count."""
    span = [hour for hour in range(hours) if load.running_pods(hour)]
    held = max(load.running_pods(hour) for hour in span)
    busiest = max(load.utilization(hour) for hour in span)
    mean = sum(load.work(hour) for hour in span) / sum(load.running_pods(hour) * load.gpus for hour in span)
    if busiest < 0.02:
        return "idle"
    if mean > 0.9 and load.kind == "Deployment":
        return "add-gpus"
    if mean < 0.3 and busiest < 0.3:
        return "fewer-gpus" if best(load, hours) < held * load.gpus else ""
    return ""


def best(load: Load, hours: int) -> int:
    """The fewest GPUs that do the work with the busiest hour at 70%: whole replicas, or GPUs of a single pod."""
    needed = max(load.work(hour) for hour in range(hours) if load.running_pods(hour))
    step = load.gpus if max(load.running_pods(hour) for hour in range(hours)) > 1 and needed > 0.7 * load.gpus else 1
    gpus = step
    while gpus * 0.7 < needed:
        gpus += step
    return gpus


def _idle_notebook(name: str, rng: random.Random) -> Load:
    level = rng.uniform(0, 0.012)
    return Load(name, lambda _: level, lambda _: 1, kind="StatefulSet", expected_kind="?")


def _idle_replicas(name: str, rng: random.Random) -> Load:
    count = rng.randint(2, 4)
    return Load(name, lambda _: 0.0, lambda _: count, expected_kind="?")


def _too_many_replicas(name: str, rng: random.Random) -> Load:
    count = rng.randint(4, 8)
    high = count * rng.uniform(0.08, 0.25)
    return Load(name, daily(high / 4, high, rng), lambda _: count, expected_kind="?")


def _too_large_pod(name: str, rng: random.Random) -> Load:
    gpus = rng.choice((2, 4, 8))
    high = gpus * rng.uniform(0.05, 0.25)
    pool = Pool(f"large{gpus}", {2: "g7.12xlarge", 4: "g5.12xlarge", 8: "p4d.24xlarge"}[gpus], gpus, Decimal(2 * gpus))
    return Load(name, daily(high / 2, high, rng), lambda _: 1, kind="Job", gpus=gpus, pool=pool, expected_kind="?")


def _healthy(name: str, rng: random.Random) -> Load:
    count = rng.randint(1, 5)
    high = count * rng.uniform(0.5, 0.75)
    return Load(name, daily(high * 0.6, high, rng), lambda _: count, expected_kind="?")


def _bursty(name: str, rng: random.Random) -> Load:
    count = rng.randint(2, 5)
    high = count * rng.uniform(0.6, 0.95)

    def work(hour: int) -> float:
        return high if hour % 24 in {9, 10} else 0.05 * count

    return Load(name, work, lambda _: count, expected_kind="?")


def _saturated(name: str, rng: random.Random) -> Load:
    count = rng.randint(1, 4)
    work = daily(count * 0.95, count * 1.2, rng, jitter=0.01)
    return Load(name, work, lambda _: count, expected_kind="?")


def _full_job(name: str, rng: random.Random) -> Load:
    return Load(name, lambda _: 0.97 + rng.uniform(0, 0.01), lambda _: 1, kind="Job")


def _unobserved(name: str, rng: random.Random) -> Load:
    return Load(name, lambda _: 0.0, lambda _: 2, observed_share=rng.choice((0.0, 0.5)))


def _node_average(name: str, _: random.Random) -> Load:
    return Load(name, lambda _: 0.0, lambda _: 2, source="node")


def _young(name: str, rng: random.Random) -> Load:
    return Load(name, lambda _: 0.0, lambda _: 1, lifetime=(192 - rng.randint(30, 150), 10**6))


def _ended(name: str, rng: random.Random) -> Load:
    return Load(name, lambda _: 0.0, lambda _: 1, lifetime=(0, 192 - rng.randint(30, 72)))


_BUILDERS = (
    _idle_notebook,
    _idle_replicas,
    _too_many_replicas,
    _too_large_pod,
    _healthy,
    _bursty,
    _saturated,
    _full_job,
    _unobserved,
    _node_average,
    _young,
    _ended,
)


SPREAD = Pool("spread", "g5.48xlarge", 8, Decimal(16), packs_pods=False, min_nodes=6)


def loads_on(pool: Pool) -> list[Load]:
    """A service that shrinks at night and jobs of two sizes, spread over nodes that are never removed."""

    def by_day(hour: int) -> int:
        return 9 if 8 <= hour % 24 < 20 else 3

    return [
        Load("day", lambda hour: 0.6 * by_day(hour), by_day, pool=pool),
        Load("two", lambda _: 2.0, lambda _: 3, gpus=2, kind="Job", pool=pool),
        Load("four", lambda _: 6.0, lambda _: 3, gpus=4, kind="Job", pool=pool),
    ]


HOURS = 192
