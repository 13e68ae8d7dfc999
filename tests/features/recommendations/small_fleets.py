"""Small fleets with awkward names in the real ledger, and what a report of them must contain, from their raw lines."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from gpucost.core.amounts import SCALE, CapacityCosts, Costs, Totals
from gpucost.core.hour_record import Coverage, HourRecord, Line, Status
from gpucost.core.hours import DAY, HOUR, floor_day
from gpucost.settings_document import parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings
from gpucost.storage.rollups import RollupStore

FIRST = datetime(2026, 11, 28, tzinfo=UTC)
"""A Saturday: three days on begins a week, and a month two days on."""
DAYS = 5
NOW = FIRST + DAYS * DAY + timedelta(minutes=5)
CLUSTERS = ("east", "west")
NAMES = {
    "business_unit": ("research", "a,b", "!x", "*", "back\\slash", "__idle__", "caf\u00e9", "=1+1"),
    "namespace": ("bu-a", "bu-b", "kube-system"),
    "workload_kind": ("Deployment", "Job"),
    "workload": ("train", "train-2", "serve"),
    "node_pool": ("", "gpu", "gpu-spot"),
    "instance_type": ("p5.48xlarge", "p4d.24xlarge"),
    "capacity_type": ("spot", "on-demand"),
    "gpu_model": ("H100", "A100"),
    "resource": ("nvidia.com/gpu", "nvidia.com/mig-1g.5gb"),
    "zone": ("a", "b"),
    "pod": ("p-0", "p-1", "p-2"),
    "node": ("n-0", "n-1"),
}
TEAMS = ("", "search", "vision")
DOCUMENT = """
clusters:
  - {name: east, prometheus: {url: "http://127.0.0.1:9090"}}
  - {name: west, prometheus: {url: "http://127.0.0.1:9090"}}
pricing: {source: constant, gpu_hourly_usd: 12}
cost_labels: [team]
business_units: [{name: research, namespaces: ["bu-a"]}, {name: unused, namespaces: ["none"]}]
"""
PARTS = ("unallocated_usd", "stranded_usd", "unobserved_usd", "host_usd", "residual_usd")
GPU_HOURS = ("unallocated_gpu_hours", "stranded_gpu_hours", "unobserved_gpu_hours")


class CachedReader:
    """Caches the answers of a real reader, because nothing is written after a fleet is published."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._answers: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)

        def call(*arguments: Any) -> Any:
            key = (name, *(tuple(argument) if isinstance(argument, list) else argument for argument in arguments))
            if key not in self._answers:
                self._answers[key] = getattr(self._reader, name)(*arguments)
            return self._answers[key]

        return call


@dataclass
class SmallFleet:
    """The records of a fleet, and readers of the table that holds them."""

    records: list[HourRecord]
    ledger: Any = None
    rollups: Any = None
    stored: StoredSettings = field(
        default_factory=lambda: StoredSettings(1, DOCUMENT, parse_settings(DOCUMENT), "test", NOW)
    )

    def current(self) -> StoredSettings:
        """A settings store of one document."""
        return self.stored

    def hours(self, start: datetime, end: datetime, clusters: Sequence[str] = CLUSTERS) -> list[HourRecord]:
        """Records of a period that have figures."""
        return [
            record
            for record in self.records
            if start <= record.hour < end and record.cluster in clusters and record.totals is not None
        ]


def make(seed: int) -> SmallFleet:
    """Some hours of each day and every hour of the second, in all states that hours can have."""
    rng = random.Random(seed)
    records = []
    for cluster in CLUSTERS:
        for number in range(DAYS * 24):
            hour = FIRST + number * HOUR
            if number // 24 != 1 and rng.random() < 0.8:
                continue
            if rng.random() < 0.05:
                records.append(HourRecord(cluster, hour, "incomplete", None, None, notes=("nothing was seen",)))
            else:
                records.append(_record(cluster, hour, rng))
    return SmallFleet(records)


def publish(fleet: SmallFleet, client: Any, table: str) -> SmallFleet:
    """Put a fleet into a table: some days are rolled up, one of them is restated later, and the last is not over."""
    ledger, rollups = Ledger(DynamoDBTable(client, table)), RollupStore(DynamoDBTable(client, table))
    manifests = {}
    for record in fleet.records:
        manifests[record.cluster, record.hour] = ledger.publish(record, replacing=None, settings_version=1, now=NOW)
    for cluster in CLUSTERS:
        for day in (FIRST, FIRST + DAY, FIRST + 3 * DAY):
            rollups.roll_up(cluster, day, NOW)
    rng = random.Random(7)
    for index, record in enumerate(fleet.records):
        if floor_day(record.hour) == FIRST + 3 * DAY and record.totals is not None and rng.random() < 0.3:
            fleet.records[index] = restated = _record(record.cluster, record.hour, rng)
            ledger.publish(
                restated,
                replacing=manifests[record.cluster, record.hour],
                settings_version=1,
                now=NOW,
                reason="a price",
            )
    fleet.ledger, fleet.rollups = CachedReader(ledger), CachedReader(rollups)
    return fleet


def value(line: Line, cluster: str, dimension: str) -> str:
    """A line's value of a dimension."""
    if dimension == "cluster":
        return cluster
    if dimension == "label:team":
        return line.labels.get("team", "")
    return str(getattr(line, dimension))


def idle(record: HourRecord) -> tuple[Fraction, Fraction] | None:
    """GPU-hours and cost of an hour that no pod holds; None if the hour has no capacity figures."""
    capacity = None if record.totals is None else record.totals.capacity
    if capacity is None:
        return None
    return (
        sum((Fraction(getattr(capacity, name), SCALE) for name in GPU_HOURS), Fraction(0)),
        sum((Fraction(getattr(capacity, name), SCALE) for name in PARTS), Fraction(0)),
    )


def sums(lines: Sequence[Line]) -> Mapping[str, Fraction]:
    """Sums of the costs of lines, as fractions."""
    total_by_name = dict.fromkeys(Costs.names(), Fraction(0))
    for line in lines:
        for name in total_by_name:
            if name == "unpriced_gpu_hours":
                total_by_name[name] += Fraction(line.allocated_gpu_hours, SCALE) if line.allocated_usd is None else 0
            else:
                total_by_name[name] += Fraction(getattr(line, name, 0) or 0, SCALE)
    return total_by_name


def _record(cluster: str, hour: datetime, rng: random.Random) -> HourRecord:
    lines = tuple(_lines(rng))
    costs = Costs.total(line.costs() for line in lines)
    parts = {name: rng.randrange(10**13) for name in (*PARTS, *GPU_HOURS)}
    parts["residual_usd"] = rng.randrange(-(10**11), 10**11)
    held = sum((line.allocated_gpu_hours for line in lines), 0)
    capacity = CapacityCosts(
        capacity_gpu_hours=sum((parts[name] for name in GPU_HOURS), held),
        node_cost_usd=sum((parts[name] for name in PARTS), costs.allocated_usd),
        **parts,
    )
    reported_capacity = None if rng.random() < 0.04 else capacity
    status: Status = "complete" if rng.random() < 0.9 else "provisional"
    return HourRecord(cluster, hour, status, Coverage(Decimal(1), None), Totals(costs, reported_capacity), lines)


def _lines(rng: random.Random) -> Iterator[Line]:
    for number in range(rng.choice((0, 1, 2, 3, 5))):
        names = {name: rng.choice(choices) for name, choices in NAMES.items()}
        held = rng.randrange(1, 8 * 10**12)
        unseen = rng.choice((0, 0, held, rng.randrange(held)))
        used = None if unseen == held else rng.randrange(held - unseen + 1)
        usd = None if rng.random() < 0.1 else rng.randrange(1, 10**14)
        used_usd = None if usd is None or used is None else usd * used // held
        unseen_usd = None if usd is None else usd * unseen // held
        waste = None if usd is None or used_usd is None else usd - used_usd - (unseen_usd or 0)
        if usd is not None and used_usd is None:
            unseen_usd = usd
        team = rng.choice(TEAMS)
        amounts = {"allocated": usd, "effective": used_usd, "waste": waste, "unmeasured": unseen_usd}
        fields: dict[str, Any] = names | {f"{name}_usd": amount for name, amount in amounts.items()}
        yield Line(
            **fields,
            uid=f"uid-{number}-{rng.random()}",
            units=1,
            gpu_share=Decimal(1),
            gpu_share_source="whole",
            labels={"team": team} if team else {},
            split_policy="scad",
            allocated_gpu_hours=held,
            effective_gpu_hours=used,
            utilization=None,
            utilization_source="pod",
            unmeasured_gpu_hours=unseen,
            gpu_hourly_usd=None,
            price_source="" if usd is None else "constant",
        )
