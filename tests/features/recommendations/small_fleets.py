"""Small fleets with awkward names, in the real ledger, and what any report of them must say, from their raw lines."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

from gpucost.core.amounts import Capacity, Costs, Totals, from_fixed_point
from gpucost.core.hours import HOUR, floor_day
from gpucost.core.model import Coverage, HourRecord, Line, Status
from gpucost.core.rollups import DAY
from gpucost.settings_document import parse_settings
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
business_units: [{name: research, namespaces: ["bu-a"]}, {name: nobody, namespaces: ["none"]}]
"""
PARTS = ("unallocated_usd", "stranded_usd", "unobserved_usd", "host_usd", "residual_usd")
GPU_HOURS = ("unallocated_gpu_hours", "stranded_gpu_hours", "unobserved_gpu_hours")


class Cached:
    """A real reader whose answers are kept: nothing is written once a fleet is there."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader
        self._known: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            key = (name, *(tuple(one) if isinstance(one, list) else one for one in arguments))
            if key not in self._known:
                self._known[key] = getattr(self._reader, name)(*arguments)
            return self._known[key]

        return call


@dataclass
class SmallFleet:
    """What was published."""

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
        """Those of a period that have figures."""
        return [
            one
            for one in self.records
            if start <= one.hour < end and one.cluster in clusters and one.totals is not None
        ]


def make(seed: int) -> SmallFleet:
    """Some hours of each day, and all of one, with everything that hours can be."""
    chance = random.Random(seed)
    records = []
    for cluster in CLUSTERS:
        for number in range(DAYS * 24):
            hour = FIRST + number * HOUR
            if number // 24 != 1 and chance.random() < 0.8:
                continue
            if chance.random() < 0.05:
                records.append(HourRecord(cluster, hour, "incomplete", None, None, notes=("nothing was seen",)))
            else:
                records.append(_record(cluster, hour, chance))
    return SmallFleet(records)


def publish(fleet: SmallFleet, client: Any, table: str) -> SmallFleet:
    """Put a fleet into a table: some days rolled up, one of them restated since, the last under way."""
    ledger, rollups = Ledger(client, table), RollupStore(client, table)
    manifests = {}
    for one in fleet.records:
        manifests[one.cluster, one.hour] = ledger.publish(one, replacing=None, settings_version=1, now=NOW)
    for cluster in CLUSTERS:
        for day in (FIRST, FIRST + DAY, FIRST + 3 * DAY):
            rollups.roll_up(cluster, day, NOW)
    chance = random.Random(7)
    for index, one in enumerate(fleet.records):
        if floor_day(one.hour) == FIRST + 3 * DAY and one.totals is not None and chance.random() < 0.3:
            fleet.records[index] = again = _record(one.cluster, one.hour, chance)
            ledger.publish(
                again, replacing=manifests[one.cluster, one.hour], settings_version=1, now=NOW, reason="a price"
            )
    fleet.ledger, fleet.rollups = Cached(ledger), Cached(rollups)
    return fleet


def value(line: Line, cluster: str, dimension: str) -> str:
    """What a line says of a dimension."""
    if dimension == "cluster":
        return cluster
    if dimension == "label:team":
        return line.labels.get("team", "")
    return str(getattr(line, dimension))


def idle(record: HourRecord) -> tuple[Fraction, Fraction] | None:
    """GPU-hours and money of an hour that no line holds; None where nothing tells."""
    capacity = None if record.totals is None else record.totals.capacity
    if capacity is None:
        return None
    return (
        sum((Fraction(getattr(capacity, name)) for name in GPU_HOURS), Fraction(0)),
        sum((Fraction(getattr(capacity, name)) for name in PARTS), Fraction(0)),
    )


def sums(lines: Sequence[Line]) -> Mapping[str, Fraction]:
    """Of lines, in fractions."""
    found = dict.fromkeys(Costs.names(), Fraction(0))
    for line in lines:
        for name in found:
            if name == "unpriced_gpu_hours":
                found[name] += Fraction(line.allocated_gpu_hours) if line.allocated_usd is None else 0
            else:
                found[name] += Fraction(getattr(line, name) or 0)
    return found


def _record(cluster: str, hour: datetime, chance: random.Random) -> HourRecord:
    lines = tuple(_lines(chance))
    costs = Costs.total(line.costs() for line in lines)
    parts = {name: from_fixed_point(chance.randrange(10**13)) for name in (*PARTS, *GPU_HOURS)}
    parts["residual_usd"] = from_fixed_point(chance.randrange(-(10**11), 10**11))
    held = sum((line.allocated_gpu_hours for line in lines), from_fixed_point(0))
    capacity = Capacity(
        capacity_gpu_hours=sum((parts[name] for name in GPU_HOURS), held),
        node_cost_usd=sum((parts[name] for name in PARTS), costs.allocated_usd),
        **parts,
    )
    known = None if chance.random() < 0.04 else capacity
    status: Status = "complete" if chance.random() < 0.9 else "provisional"
    return HourRecord(cluster, hour, status, Coverage(from_fixed_point(10**12), None), Totals(costs, known), lines)


def _lines(chance: random.Random) -> Iterator[Line]:
    for number in range(chance.choice((0, 1, 2, 3, 5))):
        names = {name: chance.choice(known) for name, known in NAMES.items()}
        held = chance.randrange(1, 8 * 10**12)
        unseen = chance.choice((0, 0, held, chance.randrange(held)))
        used = None if unseen == held else chance.randrange(held - unseen + 1)
        usd = None if chance.random() < 0.1 else chance.randrange(1, 10**14)
        used_usd = None if usd is None or used is None else usd * used // held
        unseen_usd = None if usd is None else usd * unseen // held
        waste = None if usd is None or used_usd is None else usd - used_usd - (unseen_usd or 0)
        if usd is not None and used_usd is None:
            unseen_usd = usd
        team = chance.choice(TEAMS)
        money = {"allocated": usd, "effective": used_usd, "waste": waste, "unmeasured": unseen_usd}
        message: dict[str, Any] = names | {f"{name}_usd": _amount(quanta) for name, quanta in money.items()}
        yield Line(
            **message, uid=f"uid-{number}-{chance.random()}", units=1, gpu_share=from_fixed_point(10**12),
            gpu_share_source="whole", labels={"team": team} if team else {}, split_policy="scad",
            allocated_gpu_hours=from_fixed_point(held), effective_gpu_hours=_amount(used),
            utilization=None, utilization_source="pod", unmeasured_gpu_hours=from_fixed_point(unseen),
            gpu_hourly_usd=None, price_source="" if usd is None else "constant",
        )  # fmt: skip


def _amount(quanta: int | None) -> Decimal | None:
    return None if quanta is None else from_fixed_point(quanta)
