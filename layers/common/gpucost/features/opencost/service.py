"""What OpenCost's `/allocation/compute` answers, from the ledger: allocations by set (step), and idle.

Idle is all that no pod's line holds: the nodes' cost less what is allocated. It belongs to a cluster in a step and is
shared, exactly, in proportion to cost among that cluster's allocations in the step, as OpenCost does.
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
from gpucost.features.opencost.properties import IDLE, Properties, allocation_name, properties_needed, properties_of, common_properties
from gpucost.reports.parameters import select_clusters
from gpucost.reports.scoped import scoped_hours, scoped_rollups
from gpucost.storage.ports import Clock, PublishedHours, SettingsStore, RollupReader

MAX_WINDOW = 35 * DAY
MAX_LINE_HOURS = 48
"""Hours of one cluster whose pods are read one by one: all of them where nodes or pods are asked for, else those
outside whole UTC days."""
MAX_ALLOCATIONS = 10_000
_SUMMARY_PROPERTIES = {"cluster", "namespace"}
_LINE_PROPERTIES = {"node", "pod"}
_BATCH_HOURS = 7 * 24
"""Hours that are held in memory at once."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One name in one set."""

    name: str
    properties: Properties
    start: datetime
    end: datetime
    costs: Costs
    idle_usd: Decimal | None = ZERO
    """What of it is idle: shared with it, or all of `__idle__`; None where nothing tells."""
    idle_gpu_hours: Decimal | None = ZERO
    """The same in GPU-hours; not shared."""

    @property
    def is_idle(self) -> bool:
        """Whether this is what nobody held."""
        return self.name == IDLE


@dataclass(frozen=True, slots=True)
class AllocationQuery:
    """What is asked for. `aggregate` as `parse_aggregate` reads it."""

    start: datetime
    end: datetime
    step: timedelta
    aggregate: tuple[str, ...]
    filter: Filter
    include_idle: bool = False
    share_idle: bool = False


class AllocationService:
    """Reads the ledger for OpenCost's tools.

    Args:
        settings_store: names the clusters.
        ledger: hours, for what lies outside whole days.
        rollups: whole days.
        clock: the time now, which windows are counted from.
    """

    def __init__(
        self, settings_store: SettingsStore, ledger: PublishedHours, rollups: RollupReader, clock: Clock
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._rollups = rollups
        self.now = clock

    def cost_labels(self) -> tuple[str, ...]:
        """The labels that can be asked for.

        Raises:
            SettingsMissingError: no settings yet.
        """
        return self._settings_store.current().settings.cost_labels

    def compute(self, query: AllocationQuery, *, scope: Scope) -> list[list[Allocation]]:
        """One list of allocations per step, in order of time and name; none for a step in which nobody held anything.

        Raises:
            AccessDeniedError: idle is asked for by one who may not see the fleet.
            ParameterError: a window too long for what is asked of it.
            InvalidInputError: too many allocations, several currencies, or idle to be shared that nothing tells.
            SettingsMissingError: no settings yet.
        """
        if query.end - query.start > MAX_WINDOW:
            raise ParameterError("window", f"covers more than {MAX_WINDOW.days} days; shorten it")
        if query.include_idle and not scope.is_fleet:
            raise AccessDeniedError("includeIdle is answered to those who may see all business units")
        needed = properties_needed(query.aggregate) | query.filter.fields
        clusters = select_clusters(None, self._settings_store.current(), scope, query.start)
        reader = _AllocationReader(query, needed, scoped_hours(self._ledger, scope), scoped_rollups(self._rollups, scope))
        for cluster in clusters:
            reader.read(cluster)
        sets, count = [], 0
        for index, (start, end) in enumerate(reader.steps):
            allocations = _step_allocations(reader, clusters, index, start, end)
            count += len(allocations)
            if count > MAX_ALLOCATIONS:
                raise InvalidInputError(
                    f"the answer would have more than {MAX_ALLOCATIONS:,} allocations; shorten the window, lengthen "
                    "step, aggregate by less, or filter"
                )
            sets.append(allocations)
        return sets


class _AllocationReader:
    """Collects pieces of the fleet by step and cluster, each from the coarsest source that tells what is needed.

    All of a cluster is of the versions whose manifests are read first, whatever is put in force meanwhile.

    Raises:
        ParameterError: the window is too long for what is needed of it.
    """

    def __init__(self, query: AllocationQuery, needed: set[str], ledger: PublishedHours, rollups: RollupReader) -> None:
        self.query = query
        self.steps = [*_steps(query)]
        self._needed = needed
        self._ledger = ledger
        self._rollups = rollups
        self._whole_days = set() if needed & _LINE_PROPERTIES else {day for start, end in self.steps for day in _days(start, end)}
        self._costs: dict[tuple[int, str], dict[Properties, list[Costs]]] = {}
        self._totals: dict[tuple[int, str], list[Totals]] = {}
        self._currencies: set[str] = set()
        self._check_length()

    def costs_by_properties(self, index: int, cluster: str) -> list[tuple[Properties, Costs]]:
        """What was held in a step, summed by properties, in their order."""
        costs = self._costs.get((index, cluster), {})
        return [(held, Costs.total(costs[held])) for held in sorted(costs)]

    def idle(self, index: int, cluster: str) -> tuple[Decimal | None, Decimal | None] | None:
        """USD and GPU-hours that nobody held in a step, each None where nothing tells; None where no hour has figures.

        Only where the query includes idle.
        """
        totals = self._totals.get((index, cluster))
        return _total_idle(totals) if totals else None

    def read(self, cluster: str) -> None:
        """Collect what the query needs of one cluster.

        Raises:
            InvalidInputError: the window has amounts in several currencies.
        """
        manifests = self._ledger.manifests(cluster, self.query.start, self.query.end)
        hours = [one for one in manifests if one.status != "incomplete"]
        self._currencies |= {one.currency for one in hours}
        if len(self._currencies) > 1:
            currencies = " and ".join(sorted(self._currencies))
            raise InvalidInputError(f"the window has hours in {currencies}, which are never added up")
        day_manifests = [one for one in manifests if floor_day(one.hour) in self._whole_days]
        from_summaries = self._needed <= _SUMMARY_PROPERTIES
        if from_summaries or (self.query.include_idle and self._edge_hours()):
            self._read_summaries(cluster, hours, with_costs=from_summaries)
        elif self.query.include_idle:
            for day in self._rollups.days_of(day_manifests):
                if day.totals is not None:
                    self._totals.setdefault((self._step_index(day.day), cluster), []).append(day.totals)
        if from_summaries:
            return
        for one in hours:
            if floor_day(one.hour) not in self._whole_days:
                for line in self._ledger.lines_of(one):
                    self._add(one.hour, properties_of(cluster, line), line.costs())
        for moment, facts in self._rollups.facts_of(day_manifests):
            for key, costs in facts.items():
                self._add(moment, properties_of(cluster, key), costs)

    def _read_summaries(self, cluster: str, hours: Sequence[Manifest], *, with_costs: bool) -> None:
        for first in range(0, len(hours), _BATCH_HOURS):
            for one in self._ledger.summaries_of(hours[first : first + _BATCH_HOURS]):
                for (_, namespace), costs in one.groups.items() if with_costs else ():
                    self._add(one.hour, Properties(cluster, namespace), costs)
                if self.query.include_idle and one.totals is not None:
                    self._totals.setdefault((self._step_index(one.hour), cluster), []).append(one.totals)
            for costs_by_properties in self._costs.values():
                for properties, parts in costs_by_properties.items():
                    costs_by_properties[properties] = [Costs.total(parts)]

    def _add(self, moment: datetime, properties: Properties, costs: Costs) -> None:
        step_and_cluster = (self._step_index(moment), properties.cluster)
        self._costs.setdefault(step_and_cluster, {}).setdefault(properties, []).append(costs)

    def _step_index(self, moment: datetime) -> int:
        return (moment - self.query.start) // self.query.step

    def _edge_hours(self) -> int:
        """Hours that lie in no whole day of a step."""
        return (self.query.end - self.query.start - len(self._whole_days) * DAY) // HOUR

    def _check_length(self) -> None:
        hours = 0 if self._needed <= _SUMMARY_PROPERTIES else self._edge_hours()
        if hours > MAX_LINE_HOURS:
            which_hours = "by node or pod" if self._needed & _LINE_PROPERTIES else "outside whole UTC days"
            raise ParameterError(
                "window",
                f"at most {MAX_LINE_HOURS} hours are answered {which_hours}, and this asks for {hours}; "
                "shorten it, use whole UTC days as window and step, or aggregate by namespace or cluster",
            )


def _steps(query: AllocationQuery) -> Iterator[tuple[datetime, datetime]]:
    start = query.start
    while start < query.end:
        end = min(start + query.step, query.end)
        yield start, end
        start = end


def _days(start: datetime, end: datetime) -> Iterator[datetime]:
    """The UTC days that lie in a step as a whole."""
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
        for (held, costs), part in zip(costs_by_properties, idle_shares, strict=True):
            if query.filter.matches(held):
                groups.setdefault(allocation_name(held, query.aggregate), []).append((held, costs, part))
        if cluster_idle is not None:
            idle += _unshared_idle(cluster_idle, costs_by_properties, idle_shares, query)
    allocations = [
        Allocation(
            name,
            common_properties([held for held, _, _ in rows]),
            start,
            end,
            Costs.total(costs for _, costs, _ in rows),
            _sum([part for _, _, part in rows]) if query.share_idle else ZERO,
        )
        for name, rows in sorted(groups.items())
    ]
    if idle:
        usd, hours = _sum([one for one, _ in idle]), _sum([one for _, one in idle])
        allocations.append(Allocation(IDLE, Properties(""), start, end, Costs(), usd, hours))
    return allocations


def _total_idle(totals: Sequence[Totals]) -> tuple[Decimal | None, Decimal | None]:
    capacities = [one.capacity for one in totals]
    known_capacities = [one for one in capacities if one is not None]
    if len(known_capacities) < len(capacities):
        return None, None
    usd = sum((one.node_cost_usd for one in known_capacities), ZERO) - sum((one.costs.allocated_usd for one in totals), ZERO)
    hours = sum((one.unallocated_gpu_hours + one.stranded_gpu_hours + one.unobserved_gpu_hours for one in known_capacities), ZERO)
    return usd, hours


def _idle_shares(idle_usd: Decimal | None, costs_by_properties: Sequence[tuple[Properties, Costs]]) -> list[Decimal | None]:
    """What of a cluster's idle each piece bears, by cost."""
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
    """What of a cluster's idle stays in `__idle__`: what is not shared, of the pieces that the filter lets through."""
    usd, hours = cluster_idle
    if usd is None:
        if query.share_idle and costs_by_properties:
            raise InvalidInputError("shareIdle: what is idle is not known in all hours of the window")
        return [(None, None)]
    has_costs = any(costs.allocated_usd for _, costs in costs_by_properties)
    if not has_costs:  # nobody to share it with; a filter that names no such cluster leaves it out
        return [(usd, hours)] if not query.filter.fields else []
    if query.share_idle:
        return []
    if not query.filter.fields:
        return [(usd, hours)]
    return [(_sum([part for (held, _), part in zip(costs_by_properties, idle_shares, strict=True) if query.filter.matches(held)]), None)]


def _sum(amounts: Sequence[Decimal | None]) -> Decimal | None:
    known_amounts = [part for part in amounts if part is not None]
    return sum(known_amounts, ZERO) if len(known_amounts) == len(amounts) else None
