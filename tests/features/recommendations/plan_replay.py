"""Replays a plan of recommendations on the hours of a cluster, all changes at once, from its lines and nodes.

It shares no code with the recommendations. What a change does is read from the recommendation, as a person would read
it: its title, its subject, and the facts of its evidence. In every hour it checks that what is left of a pool's cost
pays for the GPUs that its pods still need, so that no dollar is saved twice.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import ceil
from zoneinfo import ZoneInfo

from gpucost.core.amounts import SCALE
from gpucost.core.hour_record import HourRecord, Line, NodeHour
from gpucost.features.recommendations.model import RecommendationContent

PoolName = tuple[str, str, str, str]
Freed = Callable[["Hour"], Mapping[PoolName, float]]
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
HOUR = timedelta(hours=1)


@dataclass
class Hour:
    """A cluster's hour: its nodes by pool, and the lines of the pods on them."""

    start: datetime
    nodes: dict[PoolName, list[NodeHour]] = field(default_factory=lambda: defaultdict(list))
    lines: dict[PoolName, list[Line]] = field(default_factory=lambda: defaultdict(list))
    unplaced: list[Line] = field(default_factory=list)

    @staticmethod
    def of(record: HourRecord) -> "Hour":
        hour = Hour(record.hour)
        pools = {}
        for node in record.nodes:
            pools[node.node] = node.node_pool, node.instance_type, node.capacity_type, node.gpu_model
            hour.nodes[pools[node.node]].append(node)
        for line in record.lines:
            (hour.lines[pools[line.node]] if line.node in pools else hour.unplaced).append(line)
        return hour

    sizes_by_pool: dict[PoolName, list[float]] = field(default_factory=dict)

    def cost(self, pool: PoolName) -> float:
        return sum(node.capacity.node_cost_usd for node in self.nodes[pool]) / SCALE

    def gpus(self, pool: PoolName) -> float:
        return sum(node.capacity.capacity_gpu_hours for node in self.nodes[pool]) / SCALE

    def sizes(self, pool: PoolName) -> list[float]:
        """The GPUs of each pod; a pod that has several lines counts with its first."""
        if pool not in self.sizes_by_pool:
            pods: dict[str, float] = {}
            for line in self.lines[pool]:
                pods.setdefault(line.uid, round(line.units * float(line.gpu_share), 6))
            self.sizes_by_pool[pool] = list(pods.values())
        return self.sizes_by_pool[pool]


def is_priced(hour: Hour, pools: Sequence[PoolName]) -> bool:
    return all(node.price_source for pool in pools for node in hour.nodes[pool])


@dataclass
class Replay:
    """The hours of a cluster by index, None without figures, and what a plan does to them."""

    records: Sequence[HourRecord | None]
    start: datetime

    def __post_init__(self) -> None:
        self.hours = [None if record is None else Hour.of(record) for record in self.records]
        self.is_whole = {
            pool: all(abs(size - round(size)) < 1e-6 for hour in self.hours if hour for size in hour.sizes(pool))
            for pool in {pool for hour in self.hours if hour for pool in hour.nodes}
        }
        self.node_gpus = {
            pool: round(
                max(hour.gpus(pool) / len(hour.nodes[pool]) for hour in self.hours if hour and hour.nodes[pool])
            )
            for pool in {pool for hour in self.hours if hour for pool in hour.nodes}
        }

    def monthly_usd(self, plan: Sequence[RecommendationContent]) -> float:
        """What the changes of a plan save together in a month like these hours."""
        freed_by_hour: list[dict[PoolName, float]] = [defaultdict(float) for _ in self.hours]
        total = 0.0
        for content in plan:
            by_hour = self._freed(content)
            for index, by_pool in enumerate(by_hour):
                for pool, usd in (by_pool or {}).items():
                    freed_by_hour[index][pool] += usd
            total += self._monthly(content, [None if freed is None else sum(freed.values()) for freed in by_hour])
        for hour, freed in zip(self.hours, freed_by_hour, strict=True):
            for pool, usd in freed.items():
                assert hour is not None
                assert usd <= hour.cost(pool) + 1e-6, (hour.start, pool, "more is saved than was spent")
                needed = self._needed_usd(hour, pool, plan)
                assert hour.cost(pool) - usd >= needed - 1e-6, (hour.start, pool, "the pods no longer fit")
        return total

    def _monthly(self, content: RecommendationContent, hours: Sequence[float | None]) -> float:
        """The mean hour since the subject was seen × 730, and less if the newest day has less to save than usual."""
        first = (content.evidence.first_hour - self.start) // HOUR
        usd = {index: saved for index, saved in enumerate(hours) if saved is not None and index >= first}
        newest = usual = 0.0
        for index in range(len(hours) - 24, len(hours)):
            before = [usd[earlier] for earlier in range(index - 168, -1, -168) if earlier in usd]
            if index in usd and before:
                newest += usd[index]
                usual += sum(before) / len(before)
        remaining = newest / usual if usual and newest < 0.8 * usual else 1.0
        return sum(usd.values()) / len(usd) * 730 * remaining

    def _freed(self, content: RecommendationContent) -> list[dict[PoolName, float] | None]:
        """USD that a change frees in each hour, by pool; None where it has no price."""
        pool_change = not content.subject.is_workload
        subject = content.subject
        pool = subject.node_pool, subject.instance_type, subject.capacity_type, subject.gpu_model
        freed: list[dict[PoolName, float] | None] = []
        for index, hour in enumerate(self.hours):
            if hour is None or (pool_change and not is_priced(hour, [pool])):
                freed.append(None)
            elif pool_change:
                nodes = hour.gpus(pool) / self.node_gpus[pool]
                share = self._removed_nodes(content, pool, index) / nodes if nodes else 0.0
                freed.append({pool: hour.cost(pool) * share})
            else:
                freed.append(self._freed_by_workload(content, hour))
        return freed

    def _freed_by_workload(self, content: RecommendationContent, hour: Hour) -> dict[PoolName, float] | None:
        by_pool: dict[PoolName, float] = {}
        lines = {name: [line for line in hour.lines[name] if is_about(line, content)] for name in hour.lines}
        held = sum(line.allocated_gpu_hours for name in lines for line in lines[name]) / SCALE
        for name, own_lines in lines.items():
            if any(line.allocated_usd is None for line in own_lines):
                return None
            usd = sum(line.allocated_usd or 0 for line in own_lines) / SCALE
            by_pool[name] = usd * (1 - kept_share(content, held, hour.start)) if held else 0.0
        return by_pool

    def _removed_nodes(self, content: RecommendationContent, pool: PoolName, index: int) -> float:
        gpus, hour = self.node_gpus[pool], self.hours[index]
        assert hour is not None
        if content.kind == "consolidate":
            neighbors = [near for near in self.hours[max(0, index - 1) : index + 2] if near is not None]
            sizes = [near.sizes(pool) for near in neighbors]
            if self.is_whole[pool]:
                needed = max(ceil(sum(near) / gpus - 1e-6) for near in sizes)  # exact for 1, 2, 4 and 8 GPUs
            else:
                needed = max(len({line.node for line in near.lines[pool]}) for near in neighbors)
            return max(0.0, hour.gpus(pool) / gpus - needed)
        before = min(ceil(sum(hour.sizes(pool)) / gpus - 1e-6), len(hour.nodes[pool]))
        return before - min(before, ceil(self._gpus_after_packing(content, hour, pool) / gpus - 1e-6))

    def _gpus_after_packing(self, content: RecommendationContent, hour: Hour, pool: PoolName) -> float:
        """GPUs that a pool's pods hold when they share GPUs, or are on slices."""
        by_workload = Counter(name for name, _ in {(line.workload, line.uid) for line in hour.lines[pool]})
        total = sum(hour.sizes(pool))
        if content.kind == "mig-geometry":
            slices = content.evidence.facts["workloads"].split(", ")
            sliced = int(content.evidence.facts["GPUs"].split(",")[0])
            return total - sum(by_workload[name] for name in slices) + sliced
        assert content.kind == "sharing", content.kind
        assert "more" not in content.evidence.facts["groups"], "the replay needs all groups"
        seen: Counter[str] = Counter()
        for group in content.evidence.facts["groups"].split("; "):
            running = 0
            for name in group.split(" + "):
                seen[name] += 1
                running += by_workload[name] >= seen[name]
            total -= max(0, running - 1)
        return total

    def _needed_usd(self, hour: Hour, pool: PoolName, plan: Sequence[RecommendationContent]) -> float:
        """The cost of the GPUs that a pool's pods still hold after all changes, at the pool's rate."""
        rate = hour.cost(pool) / hour.gpus(pool) if hour.gpus(pool) else 0.0
        # Pods that follow each other in an hour hold the same GPUs, so they never need more than there were.
        total = min(sum(hour.sizes(pool)), hour.gpus(pool))
        held = {
            content.id: sum(line.allocated_gpu_hours for line in hour.lines[pool] if is_about(line, content)) / SCALE
            for content in plan
            if content.subject.is_workload
        }
        for content in plan:
            if content.subject.is_workload:
                total_held = sum(
                    line.allocated_gpu_hours
                    for name in hour.lines
                    for line in hour.lines[name]
                    if is_about(line, content)
                )
                total -= held[content.id] * (1 - kept_share(content, total_held / SCALE, hour.start))
            elif content.kind in {"sharing", "mig-geometry"} and content.subject.node_pool == pool[0]:
                total -= sum(hour.sizes(pool)) - self._gpus_after_packing(content, hour, pool)
        return rate * total


def is_about(line: Line, content: RecommendationContent) -> bool:
    """Whether a line is of a workload's pods."""
    subject = content.subject
    return (line.business_unit, line.namespace, line.workload_kind, line.workload, line.resource, line.gpu_model) == (
        subject.business_unit,
        subject.namespace,
        subject.workload_kind,
        subject.workload,
        subject.resource,
        subject.gpu_model,
    )


def kept_share(content: RecommendationContent, held: float, start: datetime) -> float:
    """The part of the GPUs held in an hour that a workload keeps."""
    if not held:
        return 1.0
    if content.kind == "idle":
        return 0.0
    if content.kind == "off-hours":
        return float(is_needed(content, start))
    assert content.kind == "fewer-gpus", f"the replay does not know {content.kind}"
    per_pod = re.search(r"(\d+) × \S+ per pod$", content.title)
    if per_pod:
        return float(content.recommended_gpus / content.current_gpus)
    assert re.search(r"\d+ replicas?( of \d+ × \S+)?$", content.title), content.title
    return min(1.0, float(content.recommended_gpus) / held)


def is_needed(content: RecommendationContent, start: datetime) -> bool:
    """Whether a schedule runs a workload in an hour."""
    ((name, schedule),) = [(name, fact) for name, fact in content.evidence.facts.items() if name.startswith("needed (")]
    local = start.astimezone(UTC if "(UTC)" in name else ZoneInfo(name[len("needed (") : -1]))
    now = 24 * local.weekday() + local.hour
    for first, begin, last, end in re.findall(r"(\w+) (\d+):\d+ to (\w+) (\d+):\d+", schedule):
        since, until = 24 * DAYS.index(first) + int(begin), 24 * DAYS.index(last) + int(end)
        if (now - since) % 168 < ((until - since) % 168 or 168):
            return True
    return False
