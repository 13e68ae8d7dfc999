"""Computes OpenCost allocations from the ledger: one set per step, optionally with idle costs.

Idle is the node cost minus the allocated cost of a cluster in a step. As in OpenCost, it can be shared among the
cluster's allocations in proportion to their cost.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from gpucost.core.access import Scope
from gpucost.core.errors import AccessDeniedError, InvalidInputError, ParameterError
from gpucost.core.hours import HOUR, floor_day
from gpucost.core.ledger import Manifest
from gpucost.core.model import Costs, Totals
from gpucost.core.money import ZERO, split
from gpucost.core.rollups import DAY
from gpucost.features.opencost.filters import Filter
from gpucost.features.opencost.properties import (
    IDLE,
    Properties,
    allocation_name,
    common_properties,
    properties_needed,
    properties_of,
)
from gpucost.reports.parameters import select_clusters
from gpucost.reports.scoped import scoped_hours, scoped_rollups
from gpucost.storage.ports import Clock, PublishedHours, RollupReader, SettingsStore

MAX_WINDOW = 35 * DAY
MAX_LINE_HOURS = 48
"""Most hours whose lines are read: all hours for nodes and pods, otherwise only hours outside whole UTC days."""
MAX_ALLOCATIONS = 10_000
_SUMMARY_PROPERTIES = {"cluster", "namespace"}
_LINE_PROPERTIES = {"node", "pod"}
_BATCH_HOURS = 7 * 24
"""Hours held in memory at once."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One allocation of one set."""

    name: str
    properties: Properties
    start: datetime
    end: datetime
    costs: Costs
    idle_usd: Decimal | None = ZERO
    """Its idle cost: the shared part, or all of `__idle__`; None if not known."""
    idle_gpu_hours: Decimal | None = ZERO
    """Idle GPU-hours of `__idle__`. GPU-hours are not shared."""

    @property
    def is_idle(self) -> bool:
        """Whether this allocation is `__idle__`."""
        return self.name == IDLE


@dataclass(frozen=True, slots=True)
class AllocationQuery:
    """A parsed query. `aggregate` is the result of `parse_aggregate`."""

    start: datetime
    end: datetime
    step: timedelta
    aggregate: tuple[str, ...]
    filter: Filter
    include_idle: bool = False
    share_idle: bool = False


class AllocationService:
    """Computes allocations from the ledger.

    Args:
        settings_store: source of the cluster names.
        ledger: hours, for time outside whole days.
        rollups: whole days.
        clock: returns the current time, to which windows are relative.
    """

    def __init__(
        self, settings_store: SettingsStore, ledger: PublishedHours, rollups: RollupReader, clock: Clock
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._rollups = rollups
        self.now = clock

    def cost_labels(self) -> tuple[str, ...]:
        """Return the labels that queries can use.

        Raises:
            SettingsMissingError: no settings yet.
        """
        return self._settings_store.current().settings.cost_labels

    def compute(self, query: AllocationQuery, *, scope: Scope) -> list[list[Allocation]]:
        """Return one list of allocations per step, in order of time and name. Lists of steps without costs are empty.

        Raises:
            AccessDeniedError: the query includes idle, and the caller may not see the whole fleet.
            ParameterError: the window is too long for the query.
            InvalidInputError: too many allocations, several currencies, or idle costs to share that are not known.
            SettingsMissingError: no settings yet.
        """
        if query.end - query.start > MAX_WINDOW:
            raise ParameterError("window", f"is longer than {MAX_WINDOW.days} days. Shorten it.")
        if query.include_idle and not scope.is_fleet:
            raise AccessDeniedError("includeIdle covers all business units. It needs the role viewer or admin.")
        needed = properties_needed(query.aggregate) | query.filter.fields
        clusters = select_clusters(None, self._settings_store.current(), scope, query.start)
        reader = _AllocationReader(
            query, needed, scoped_hours(self._ledger, scope), scoped_rollups(self._rollups, scope)
        )
        for cluster in clusters:
            reader.read(cluster)
        sets, count = [], 0
        for index, (start, end) in enumerate(reader.steps):
            allocations = _step_allocations(reader, clusters, index, start, end)
            count += len(allocations)
            if count > MAX_ALLOCATIONS:
                raise InvalidInputError(
                    f"the response would have more than {MAX_ALLOCATIONS:,} allocations. Shorten the window, lengthen "
                    "step, aggregate by fewer properties, or filter."
                )
            sets.append(allocations)
        return sets


class _AllocationReader:
    """Adds up costs by step and cluster, from the smallest records that have the needed properties.

    A cluster's manifests are read first, and all other reads are of these versions of its hours.

    Raises:
        ParameterError: the window is too long for the needed properties.
    """

    def __init__(self, query: AllocationQuery, needed: set[str], ledger: PublishedHours, rollups: RollupReader) -> None:
        self.query = query
        self.steps = [*_steps(query)]
        self._needed = needed
        self._ledger = ledger
        self._rollups = rollups
        self._whole_days = (
            set() if needed & _LINE_PROPERTIES else {day for start, end in self.steps for day in _days(start, end)}
        )
        self._costs: dict[tuple[int, str], dict[Properties, list[Costs]]] = {}
        self._totals: dict[tuple[int, str], list[Totals]] = {}
        self._currencies: set[str] = set()
        self._check_length()

    def costs_by_properties(self, index: int, cluster: str) -> list[tuple[Properties, Costs]]:
        """Return the costs of a step, summed by properties and sorted by them."""
        costs = self._costs.get((index, cluster), {})
        return [(properties, Costs.total(costs[properties])) for properties in sorted(costs)]

    def idle(self, index: int, cluster: str) -> tuple[Decimal | None, Decimal | None] | None:
        """Return idle USD and GPU-hours of a step, each None if not known; None if no hour has figures.

        Only for queries that include idle.
        """
        totals = self._totals.get((index, cluster))
        return _total_idle(totals) if totals else None

    def read(self, cluster: str) -> None:
        """Read what the query needs of one cluster.

        Raises:
            InvalidInputError: the window has amounts in several currencies.
        """
        manifests = self._ledger.manifests(cluster, self.query.start, self.query.end)
        hours = [manifest for manifest in manifests if manifest.status != "incomplete"]
        self._currencies |= {hour.currency for hour in hours}
        if len(self._currencies) > 1:
            currencies = " and ".join(sorted(self._currencies))
            raise InvalidInputError(
                f"the window has amounts in {currencies}, which cannot be added up. Shorten the window."
            )
        day_manifests = [manifest for manifest in manifests if floor_day(manifest.hour) in self._whole_days]
        from_summaries = self._needed <= _SUMMARY_PROPERTIES
        if from_summaries or (self.query.include_idle and self._edge_hours()):
            self._read_summaries(cluster, hours, with_costs=from_summaries)
        elif self.query.include_idle:
            for day in self._rollups.days_of(day_manifests):
                if day.totals is not None:
                    self._totals.setdefault((self._step_index(day.day), cluster), []).append(day.totals)
        if from_summaries:
            return
        for manifest in hours:
            if floor_day(manifest.hour) not in self._whole_days:
                for line in self._ledger.lines_of(manifest):
                    self._add(manifest.hour, properties_of(cluster, line), line.costs())
        for moment, facts in self._rollups.facts_of(day_manifests):
            for key, costs in facts.items():
                self._add(moment, properties_of(cluster, key), costs)

    def _read_summaries(self, cluster: str, hours: Sequence[Manifest], *, with_costs: bool) -> None:
        for first in range(0, len(hours), _BATCH_HOURS):
            for summary in self._ledger.summaries_of(hours[first : first + _BATCH_HOURS]):
                for (_, namespace), costs in summary.groups.items() if with_costs else ():
                    self._add(summary.hour, Properties(cluster, namespace), costs)
                if self.query.include_idle and summary.totals is not None:
                    self._totals.setdefault((self._step_index(summary.hour), cluster), []).append(summary.totals)
            for costs_by_properties in self._costs.values():
                for properties, parts in costs_by_properties.items():
                    costs_by_properties[properties] = [Costs.total(parts)]

    def _add(self, moment: datetime, properties: Properties, costs: Costs) -> None:
        step_and_cluster = (self._step_index(moment), properties.cluster)
        self._costs.setdefault(step_and_cluster, {}).setdefault(properties, []).append(costs)

    def _step_index(self, moment: datetime) -> int:
        return (moment - self.query.start) // self.query.step

    def _edge_hours(self) -> int:
        """Return the number of hours outside whole days of a step."""
        return (self.query.end - self.query.start - len(self._whole_days) * DAY) // HOUR

    def _check_length(self) -> None:
        hours = 0 if self._needed <= _SUMMARY_PROPERTIES else self._edge_hours()
        if hours > MAX_LINE_HOURS:
            which_hours = "by node or pod" if self._needed & _LINE_PROPERTIES else "outside whole UTC days"
            raise ParameterError(
                "window",
                f"has {hours} hours {which_hours}, and {MAX_LINE_HOURS} is the maximum. Shorten it, use whole UTC days "
                "as window and step, or aggregate by namespace or cluster.",
            )


def _steps(query: AllocationQuery) -> Iterator[tuple[datetime, datetime]]:
    start = query.start
    while start < query.end:
        end = min(start + query.step, query.end)
        yield start, end
        start = end


def _days(start: datetime, end: datetime) -> Iterator[datetime]:
    """Yield the whole UTC days of a step."""
    day = floor_day(start + DAY - HOUR)
    while day + DAY <= end:
        yield day
        day += DAY


def _step_allocations(
    reader: _AllocationReader, clusters: Sequence[str], index: int, start: datetime, end: datetime
) -> list[Allocation]:
    query = reader.query
    groups: dict[str, list[tuple[Properties, Costs, Decimal | None]]] = {}
    idle: list[tuple[Decimal | None, Decimal | None]] = []
    for cluster in clusters:
        costs_by_properties = reader.costs_by_properties(index, cluster)
        cluster_idle = reader.idle(index, cluster)
        idle_shares = _idle_shares(cluster_idle[0] if cluster_idle else ZERO, costs_by_properties)
        for (properties, costs), part in zip(costs_by_properties, idle_shares, strict=True):
            if query.filter.matches(properties):
                groups.setdefault(allocation_name(properties, query.aggregate), []).append((properties, costs, part))
        if cluster_idle is not None:
            idle += _unshared_idle(cluster_idle, costs_by_properties, idle_shares, query)
    allocations = [
        Allocation(
            name,
            common_properties([properties for properties, _, _ in rows]),
            start,
            end,
            Costs.total(costs for _, costs, _ in rows),
            _sum([part for _, _, part in rows]) if query.share_idle else ZERO,
        )
        for name, rows in sorted(groups.items())
    ]
    if idle:
        usd, hours = _sum([idle_usd for idle_usd, _ in idle]), _sum([idle_hours for _, idle_hours in idle])
        allocations.append(Allocation(IDLE, Properties(""), start, end, Costs(), usd, hours))
    return allocations


def _total_idle(totals: Sequence[Totals]) -> tuple[Decimal | None, Decimal | None]:
    capacities = [hour.capacity for hour in totals]
    available = [capacity for capacity in capacities if capacity is not None]
    if len(available) < len(capacities):
        return None, None
    usd = sum((capacity.node_cost_usd for capacity in available), ZERO)
    usd -= sum((hour.costs.allocated_usd for hour in totals), ZERO)
    hours = sum(
        (
            capacity.unallocated_gpu_hours + capacity.stranded_gpu_hours + capacity.unobserved_gpu_hours
            for capacity in available
        ),
        ZERO,
    )
    return usd, hours


def _idle_shares(
    idle_usd: Decimal | None, costs_by_properties: Sequence[tuple[Properties, Costs]]
) -> list[Decimal | None]:
    """Return each cost's share of a cluster's idle cost, in proportion to cost."""
    weights = [Fraction(costs.allocated_usd) for _, costs in costs_by_properties]
    if idle_usd is None or not any(weights):
        return [None if idle_usd is None else ZERO for _ in costs_by_properties]
    return [*split(idle_usd, weights)]


def _unshared_idle(
    cluster_idle: tuple[Decimal | None, Decimal | None],
    costs_by_properties: Sequence[tuple[Properties, Costs]],
    idle_shares: Sequence[Decimal | None],
    query: AllocationQuery,
) -> list[tuple[Decimal | None, Decimal | None]]:
    """Return the part of a cluster's idle cost that stays in `__idle__`."""
    usd, hours = cluster_idle
    if usd is None:
        if query.share_idle and costs_by_properties:
            raise InvalidInputError(
                "shareIdle: idle costs are not known for all hours of the window. Use shareIdle=false, or another "
                "window."
            )
        return [(None, None)]
    has_costs = any(costs.allocated_usd for _, costs in costs_by_properties)
    if not has_costs:  # there are no allocations to share it with; any filter excludes it
        return [(usd, hours)] if not query.filter.fields else []
    if query.share_idle:
        return []
    if not query.filter.fields:
        return [(usd, hours)]
    return [
        (
            _sum(
                [
                    part
                    for (properties, _), part in zip(costs_by_properties, idle_shares, strict=True)
                    if query.filter.matches(properties)
                ]
            ),
            None,
        )
    ]


def _sum(amounts: Sequence[Decimal | None]) -> Decimal | None:
    available = [part for part in amounts if part is not None]
    return sum(available, ZERO) if len(available) == len(amounts) else None
