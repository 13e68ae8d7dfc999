"""A fleet in which no two business units share a name or an amount, so that a leak can be detected in a response."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal

from msgspec.structs import replace

from gpucost.core.amounts import CapacityCosts, Costs, Totals, to_decimal
from gpucost.core.costs_by_model import InferenceRules, costs_by_model
from gpucost.core.hour_record import ClusterCharge, HourRecord, Line, NodeHour
from gpucost.core.metering.inference_servers import ServedTokens
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.rule_kinds.base import Subject
from gpucost.runtime.json_text import fixed_point_text
from tests.records import line, record

HOUR = timedelta(hours=1)


@dataclass
class DistinctFleet:
    """Two clusters, three hours; units `a` (first cluster only), `b` and `c`; every name ends in a unique tag."""

    first: datetime
    random: random.Random
    clusters: tuple[str, str] = ("", "")
    units: dict[str, str] = field(default_factory=dict)
    records: list[HourRecord] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clusters = (f"cluster{self._tag()}", f"cluster{self._tag()}")
        self.units = {letter: f"unit{self._tag()}" for letter in "abc"}
        for cluster in self.clusters:
            for number in range(3):
                hour = self.first + HOUR * number
                present = [letter for letter in self.units if letter != "a" or cluster == self.clusters[0]]
                lines = [pod_line for letter in present for pod_line in self._lines(letter)]
                self.records.append(self._record(cluster, hour, lines))

    def secrets(self, *visible_letters: str) -> set[str]:
        """Names and amounts that a caller who sees some units must not read: of other units, of the fleet, and sums."""
        visible_units = {self.units[letter] for letter in visible_letters}
        names: set[str] = set()
        visible: set[str] = set()
        for hour_record in self.records:
            for held in hour_record.lines:
                (visible if held.business_unit in visible_units else names).update({*_names(held), hour_record.cluster})
            names.update(hour_record.notes)
            names.update(node.node for node in hour_record.nodes)
            names.update(charge.reference for charge in hour_record.charges)
        return (names - visible) | (set(self._amounts(visible_units)) - set(self._visible_amounts(visible_units)))

    def notifications(self) -> Iterator[Notification]:
        """An alert on every unit's waste in every hour, and one on every cluster, which names the last unit's pod."""
        for hour_record in self.records:
            for unit in {held.business_unit: None for held in hour_record.lines}:
                costs = Costs.total(held.costs() for held in hour_record.lines if held.business_unit == unit)
                figures: dict[str, Decimal | None] = {
                    "waste_usd": to_decimal(costs.waste_usd),
                    "allocated_usd": to_decimal(costs.allocated_usd),
                }
                yield self._notification(hour_record, Subject(hour_record.cluster, unit), figures, "")
            assert hour_record.totals is not None
            assert hour_record.totals.capacity is not None
            figures = {"unallocated_usd": to_decimal(hour_record.totals.capacity.unallocated_usd)}
            yield self._notification(
                hour_record,
                Subject(hour_record.cluster, node_pool=hour_record.lines[-1].node_pool),
                figures,
                hour_record.notes[0],
            )

    def _notification(
        self, hour_record: HourRecord, subject: Subject, figures: dict[str, Decimal | None], note: str
    ) -> Notification:
        return Notification(
            id=self._tag(),
            event="firing",
            rule_kind="waste",
            rule="waste",
            severity="warning",
            subject=subject,
            since=hour_record.hour,
            hour=hour_record.hour,
            threshold="more than 1 an hour",
            figures=figures,
            note=note if not subject.business_unit else "",
        )

    def _visible_amounts(self, visible_units: set[str]) -> Iterator[str]:
        for records in self._slices():
            for units in _subsets(sorted(visible_units)):
                yield from _texts(
                    held.costs() for hour_record in records for held in hour_record.lines if held.business_unit in units
                )

    def _amounts(self, visible_units: set[str]) -> Iterator[str]:
        all_units = set(self.units.values())
        for records in self._slices():
            for units in ({other} for other in all_units - visible_units):
                yield from _texts(
                    held.costs() for hour_record in records for held in hour_record.lines if held.business_unit in units
                )
            yield from _texts(held.costs() for hour_record in records for held in hour_record.lines)
            others = all_units - visible_units
            yield from _texts(
                held.costs() for hour_record in records for held in hour_record.lines if held.business_unit in others
            )
            yield from _texts(
                hour_record.totals.capacity
                for hour_record in records
                if hour_record.totals and hour_record.totals.capacity
            )

    def _slices(self) -> Iterator[list[HourRecord]]:
        """Hours that follow one another, of one cluster or of both."""
        for clusters in ({self.clusters[0]}, {self.clusters[1]}, set(self.clusters)):
            for begin in range(3):
                for end in range(begin, 3):
                    hours = {self.first + HOUR * number for number in range(begin, end + 1)}
                    yield [
                        hour_record
                        for hour_record in self.records
                        if hour_record.cluster in clusters and hour_record.hour in hours
                    ]

    def _tag(self) -> str:
        return f"{self.random.getrandbits(48):012x}"

    def _usd(self) -> int:
        return self.random.randrange(10**14, 10**17) * 10 + self.random.randrange(1, 10)

    def _lines(self, letter: str) -> Iterator[Line]:
        for _ in range(2):
            tag = self._tag()
            effective, waste, unmeasured, hours = (self._usd() for _ in range(4))
            yield line(self.units[letter])._replace(
                namespace=f"ns{tag}",
                workload=f"app{tag}",
                pod=f"pod{tag}",
                uid=f"uid{tag}",
                node=f"node{tag}",
                node_pool=f"pool{tag}",
                labels={"team": f"team{tag}"},
                allocated_gpu_hours=hours + self._usd(),
                effective_gpu_hours=hours,
                unmeasured_gpu_hours=self._usd(),
                effective_usd=effective,
                waste_usd=waste,
                unmeasured_usd=unmeasured,
                allocated_usd=effective + waste + unmeasured,
            )

    def _record(self, cluster: str, hour: datetime, lines: list[Line]) -> HourRecord:
        hour_record = record(lines, hour=hour, cluster=cluster, notes=(f"note{self._tag()} names {lines[-1].pod}",))
        costs = Costs.total(pod_line.costs() for pod_line in lines)
        capacity = CapacityCosts(*(self._usd() for _ in CapacityCosts.names()))
        nodes = tuple(
            NodeHour(
                pod_line.node,
                f"aws:///a/i-{self._tag()}",
                pod_line.node_pool,
                pod_line.instance_type,
                "spot",
                "a",
                "A100",
                "spot",
                "scad",
                None,
                pod_line.allocated_usd or 0,
                capacity,
            )
            for pod_line in lines
        )
        charge = ClusterCharge("unused-savings-plan", f"sp{self._tag()}", self._usd())
        served = [
            ServedTokens(
                held.namespace, held.pod, "vllm", f"model-{held.pod}", self._usd(), self._usd(), 0, self._usd()
            )
            for held in lines
        ]
        models = tuple(costs_by_model(lines, served, InferenceRules()))
        return replace(hour_record, totals=Totals(costs, capacity), nodes=nodes, charges=(charge,), models=models)


def _names(held: Line) -> set[str]:
    return {
        held.business_unit,
        held.namespace,
        held.workload,
        held.pod,
        held.uid,
        held.node,
        held.node_pool,
        *held.labels.values(),
    }


def _texts(parts: Iterable[Costs | CapacityCosts]) -> Iterator[str]:
    amounts = list(parts)
    if amounts:
        total = type(amounts[0]).total(amounts)  # type: ignore[arg-type]  # all parts are of one kind
        yield from (fixed_point_text(value) for name in total.names() if (value := getattr(total, name)))


def _subsets(units: list[str]) -> Iterator[set[str]]:
    for mask in range(1, 2 ** len(units)):
        yield {unit for bit, unit in enumerate(units) if mask >> bit & 1}
