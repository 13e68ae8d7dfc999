"""Rollups: stored sums of a day's hours, by business unit and by all dimensions of a line.

A rollup names the versions of the hours that it sums. A reader compares them with the current manifests, hour by hour,
and sums again where they differ. No reader relies on a rollup being up to date.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from operator import attrgetter, itemgetter
from typing import NamedTuple

from gpucost.core.amounts import Costs, Totals
from gpucost.core.costs_by_key import CostsByKey, sum_by_key
from gpucost.core.hour_record import Line
from gpucost.core.hours import floor_day
from gpucost.core.ledger import DaySummary, HourSummary

DAY = timedelta(days=1)


class FactKey(NamedTuple):
    """The dimensions by which a day's lines are summed."""

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
    """The pods' labels that the settings list in `cost_labels`, in order of name."""


_fields_but_labels: Callable[[Line], tuple[str, ...]] = attrgetter(*FactKey._fields[:-1])


def days_with_hours(hours: Iterable[datetime]) -> list[datetime]:
    """Return the UTC days of some hours, in order."""
    return sorted({floor_day(hour) for hour in hours})


def costs_by_unit(summary: HourSummary) -> CostsByKey[str]:
    """Sum an hour's costs by business unit."""
    return summary.costs.group_by(itemgetter(0))


def sum_day(cluster: str, day: datetime, summaries: Sequence[HourSummary]) -> DaySummary:
    """Sum a day from the summaries of its hours."""
    manifests = tuple(summary.manifest for summary in summaries)
    totals = Totals.total(summary.totals for summary in summaries if summary.totals is not None)
    units = sum_by_key((unit, costs) for summary in summaries for (unit, _), costs in summary.costs.items())
    return DaySummary(cluster, day, manifests, totals, units.select(sorted(units)))


def sum_lines(lines: Iterable[Line]) -> CostsByKey[FactKey]:
    """Sum lines by all their dimensions."""
    return sum_by_key((_fact_key(line), line.costs()) for line in lines)


def merge_facts(parts: Iterable[Mapping[FactKey, Costs]]) -> CostsByKey[FactKey]:
    """Add up the facts of several hours, in order of their keys."""
    facts = sum_by_key(fact for part in parts for fact in part.items())
    return facts.select(sorted(facts))


def _fact_key(line: Line) -> FactKey:
    return FactKey._make((*_fields_but_labels(line), tuple(sorted(line.labels.items()))))
