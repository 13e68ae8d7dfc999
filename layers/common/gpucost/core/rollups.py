"""Sums of the ledger's hours: a day by business unit, and a day's facts by everything that a line is grouped by.

A rollup names the versions of the hours it sums. Who reads one compares them with the manifests in force, hour by hour,
and sums again whatever differs: no rollup is ever believed because it ought to be fresh.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from gpucost.core.hours import floor_day
from gpucost.core.ledger import HourSummary, Manifest
from gpucost.core.model import Capacity, Costs, Line, Totals

DAY = timedelta(days=1)


class FactKey(NamedTuple):
    """What a day's lines are summed by."""

    business_unit: str
    namespace: str
    workload_kind: str
    workload: str
    node_pool: str
    instance_type: str
    capacity_type: str
    gpu_model: str
    resource: str
    zone: str
    labels: tuple[tuple[str, str], ...]
    """The settings' `cost_labels` that the pods carry, in order of name."""


@dataclass(frozen=True, slots=True)
class DaySummary:
    """One cluster's UTC day, summed by business unit over its hours that have figures."""

    cluster: str
    day: datetime
    hours: tuple[Manifest, ...]
    """Every published hour of the day, incomplete ones too."""
    totals: Totals | None
    """None where no hour has figures; its capacity is None as soon as one hour's is."""
    units: Mapping[str, Costs]


@dataclass(frozen=True, slots=True)
class UnitHour:
    """One business unit in one published hour; `costs` is None for an incomplete one, zeros where it held nothing."""

    manifest: Manifest
    costs: Costs | None


def days_with_hours(hours: Iterable[datetime]) -> list[datetime]:
    """The UTC days in which hours lie, in order."""
    return sorted({floor_day(hour) for hour in hours})


def costs_by_unit(summary: HourSummary) -> dict[str, Costs]:
    """An hour's figures by business unit."""
    groups: dict[str, list[Costs]] = {}
    for (unit, _), costs in summary.groups.items():
        groups.setdefault(unit, []).append(costs)
    return {unit: Costs.total(parts) for unit, parts in groups.items()}


def sum_day(cluster: str, day: datetime, manifests: Sequence[Manifest], summaries: Iterable[HourSummary]) -> DaySummary:
    """A day from its hours' summaries."""
    known = [(summary, summary.totals) for summary in summaries if summary.totals is not None]
    units: dict[str, list[Costs]] = {}
    for summary, _ in known:
        for unit, costs in costs_by_unit(summary).items():
            units.setdefault(unit, []).append(costs)
    capacities = [totals.capacity for _, totals in known]
    seen = [capacity for capacity in capacities if capacity is not None]
    totals = None
    if known:
        capacity = Capacity.total(seen) if len(seen) == len(capacities) else None
        totals = Totals(Costs.total(totals.costs for _, totals in known), capacity)
    return DaySummary(
        cluster, day, tuple(manifests), totals, {unit: Costs.total(parts) for unit, parts in sorted(units.items())}
    )


def sum_facts(lines: Iterable[Line]) -> dict[FactKey, Costs]:
    """Lines summed by everything they are grouped by."""
    groups: dict[FactKey, list[Costs]] = {}
    for line in lines:
        groups.setdefault(fact_key(line), []).append(line.costs())
    return {key: Costs.total(parts) for key, parts in groups.items()}


def merge_facts(parts: Iterable[Mapping[FactKey, Costs]]) -> dict[FactKey, Costs]:
    """The facts of several hours together, in order of their keys."""
    groups: dict[FactKey, list[Costs]] = {}
    for part in parts:
        for key, costs in part.items():
            groups.setdefault(key, []).append(costs)
    return {key: Costs.total(groups[key]) for key in sorted(groups)}


def fact_key(line: Line) -> FactKey:
    """Which fact a line is part of."""
    return FactKey(
        line.business_unit,
        line.namespace,
        line.workload_kind,
        line.workload,
        line.node_pool,
        line.instance_type,
        line.capacity_type,
        line.gpu_model,
        line.resource,
        line.zone,
        tuple(sorted(line.labels.items())),
    )
