"""Computes OpenCost allocations: the product's cost reports under OpenCost's names, one set per step.

As in OpenCost, idle costs can be an allocation of their own, or be shared among a cluster's allocations in proportion
to their cost.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from gpucost.core.access import Scope
from gpucost.core.amounts import CapacityCosts, Costs, Idle
from gpucost.core.costs_by_key import CostAccumulator, CostsByKey
from gpucost.core.errors import AccessDeniedError, InvalidInputError, ParameterError, SourceError
from gpucost.core.hour_record import NodeHour
from gpucost.core.hours import DAY, HOUR, floor_day
from gpucost.core.query.cost_query import MAX_LINE_HOURS, CostQuery
from gpucost.core.query.dimensions import LABEL_PREFIX
from gpucost.core.query.grouping import share_idle
from gpucost.core.query.periods import Period
from gpucost.features.opencost.parameters import Filter, start_of_week
from gpucost.features.opencost.properties import (
    IDLE_NAME,
    Properties,
    allocation_name,
    common_properties,
    properties_needed,
    properties_of,
)
from gpucost.reports.cost_reader import CostReader, InconsistentRowsError, QueryTooLargeError
from gpucost.reports.parameters import PublishedUntil, select_clusters
from gpucost.reports.scoped import scoped_hours
from gpucost.storage.ports import Clock, PublishedHours, RollupReader, SettingsStore

MAX_WINDOW = 35 * DAY
MAX_ALLOCATIONS = 10_000
NARROWER_QUERY = "Shorten the window, aggregate by fewer properties, or select clusters with filterClusters."
"""The remedy for queries that read or return too much."""
_SUMMARY_PROPERTIES = {"cluster", "namespace"}
_LINE_PROPERTIES = {"node", "pod"}
CalendarUnit = Literal["day", "week", "month", "quarter"]
"""A UTC day, a week from Sunday, a month or a quarter."""


class Allocation(Struct, frozen=True):
    """One allocation of one set."""

    name: str
    properties: Properties
    start: datetime
    end: datetime
    costs: Costs
    idle_costs: Idle | None = Idle()
    """Its share of idle costs, or all of `__idle__`; None if not known. GPU-hours are not shared."""
    has_idle_gpu_hours: bool = True
    """Whether the GPU-hours of `__idle__` are known; a filter selects a part of its cost only."""

    @property
    def is_idle(self) -> bool:
        """Whether this allocation is `__idle__`."""
        return self.name == IDLE_NAME


class AllocationQuery(Struct, frozen=True):
    """A parsed query. `aggregate` is the result of `parse_aggregate`."""

    start: datetime
    end: datetime
    step: timedelta
    aggregate: tuple[str, ...]
    filter: Filter
    include_idle: bool = False
    share_idle: bool = False
    unit: CalendarUnit | None = None
    """Steps of the calendar, in place of `step`; the first and the last are those parts that the window contains."""

    def steps(self) -> Iterator[Period]:
        """Yield the steps of the window; the last may be shorter. An empty window has one step, which is empty."""
        start = self.start
        if start == self.end:
            yield Period(start, start)
        while start < self.end:
            next_start = start + self.step if self.unit is None else _next_start(start, self.unit)
            end = min(next_start, self.end)
            yield Period(start, end)
            start = end


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
        self.published_until = PublishedUntil(settings_store, ledger, clock)

    def cost_labels(self) -> tuple[str, ...]:
        """Return the labels that queries can use.

        Raises:
            SettingsMissingError: no settings yet.
        """
        return self._settings_store.current().settings.cost_labels

    def currency(self) -> str:
        """Return the currency of the settings.

        Raises:
            SettingsMissingError: no settings yet.
        """
        return self._settings_store.current().settings.pricing.currency

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
        if query.start == query.end:
            return [[]]  # clients read the first set
        clusters = select_clusters(None, self._settings_store.current(), scope, query.start)
        clusters = [name for name in clusters if query.filter.includes_cluster(name)]
        dimensions = self._dimensions(query)
        reader = CostReader(self._ledger, self._rollups, scope, max_part_work=None)
        costs_by_step: dict[tuple[datetime, str], CostAccumulator[Properties]] = {}
        capacities: dict[tuple[datetime, str], CapacityCosts | None] = {}
        currencies: set[str] = set()
        for cost_query in _cost_queries(query, dimensions):
            try:
                period_costs = reader.read(cost_query, clusters)
            except QueryTooLargeError as error:
                raise InvalidInputError(f"{error.problem} {NARROWER_QUERY}") from error
            except InconsistentRowsError as error:
                raise SourceError(
                    f"{error.problem} Aggregate and filter by namespace or cluster only, or select whole UTC days "
                    "without node and pod."
                ) from error
            for (begin, cluster, names), costs in period_costs.cells.items():
                step_costs = costs_by_step.setdefault((begin, cluster), CostAccumulator())
                step_costs.add(properties_of(dimensions, names), costs)
            capacities |= period_costs.capacities
            currencies |= period_costs.currencies
        if len(currencies) > 1:
            raise InvalidInputError(
                f"the window has amounts in {' and '.join(sorted(currencies))}, which cannot be added up. Select the "
                "clusters of one currency with filterClusters, or a window before or after the change of currency."
            )
        sets, count = [], 0
        for period in query.steps():
            step_set = _StepAllocations(query, period)
            for cluster in clusters:
                key = period.start, cluster
                table = costs_by_step[key].table() if key in costs_by_step else CostsByKey[Properties]()
                shares_idle = query.include_idle and key in capacities
                step_set.add_cluster(table, step_set.distribute_idle(table, capacities[key]) if shares_idle else {})
            allocations = step_set.allocations()
            count += len(allocations)
            if count > MAX_ALLOCATIONS:
                raise InvalidInputError(
                    f"the response would have more than {MAX_ALLOCATIONS:,} allocations. {NARROWER_QUERY}"
                )
            sets.append(allocations)
        return sets

    def _dimensions(self, query: AllocationQuery) -> tuple[str, ...]:
        """Return the dimensions of the cost reports: as many properties as the ledger's smallest records have.

        Raises:
            ParameterError: the window is too long for the needed properties.
        """
        needed = properties_needed(query.aggregate) | query.filter.property_names
        if needed <= _SUMMARY_PROPERTIES:
            return "cluster", "namespace"
        whole_days = sum(period.full_days().hours() // 24 for period in query.steps())
        if needed & _LINE_PROPERTIES:
            whole_days = 0
        hours = (query.end - query.start - whole_days * DAY) // HOUR
        if hours > MAX_LINE_HOURS:
            which_hours, remedy = (
                ("by node or pod", "aggregate and filter by controller, namespace or cluster")
                if needed & _LINE_PROPERTIES
                else ("outside whole UTC days", "use whole UTC days as window and step")
            )
            raise ParameterError(
                "window",
                f"has {hours} hours {which_hours}, and {MAX_LINE_HOURS} is the maximum. Shorten it, or {remedy}.",
            )
        labels = (f"{LABEL_PREFIX}{name}" for name in self.cost_labels())
        line_dimensions = () if whole_days else ("node", "pod")
        return ("cluster", "namespace", "workload_kind", "workload", *line_dimensions, *labels)


def _next_start(moment: datetime, unit: CalendarUnit) -> datetime:
    day = floor_day(moment)
    if unit == "day":
        return day + DAY
    if unit == "week":
        return start_of_week(day) + 7 * DAY
    months = 1 if unit == "month" else 3 - (day.month - 1) % 3
    year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return day.replace(year=year, month=month + 1, day=1)


def _cost_queries(query: AllocationQuery, dimensions: tuple[str, ...]) -> list[CostQuery]:
    """Return one query of all steps, or one for each step if a whole day would be in two of them."""
    period = Period(query.start, query.end)
    cost_query = CostQuery(period, "total", dimensions, idle="separate", step=query.step)
    if query.unit is None and (query.step < DAY or cost_query.has_rows_of_whole_days()):
        return [cost_query]
    return [CostQuery(step, "total", dimensions, idle="separate") for step in query.steps()]


class _StepAllocations:
    """Names the costs of one step, cluster by cluster, and shares idle costs."""

    def __init__(self, query: AllocationQuery, period: Period) -> None:
        self._query = query
        self._period = period
        self._costs = CostAccumulator[str]()
        self._idle_shares: dict[str, list[Idle]] = {}
        self._properties: dict[str, list[Properties]] = {}
        self._idle: list[Idle | None] = []

    def add_cluster(self, costs: CostsByKey[Properties], idle_shares: Mapping[Properties, Idle]) -> None:
        """Add a cluster's costs and their shares of its idle costs, as far as the filter selects them."""
        for properties, row in costs.items():
            if self._query.filter.matches(properties):
                name = allocation_name(properties, self._query.aggregate)
                self._costs.add(name, row)
                self._properties.setdefault(name, []).append(properties)
                self._idle_shares.setdefault(name, []).append(idle_shares.get(properties, Idle()))

    def allocations(self) -> list[Allocation]:
        """Return the allocations in order of their names, then `__idle__`."""
        start, end, table = self._period.start, self._period.end, self._costs.table()
        allocations = [
            Allocation(
                name,
                common_properties(self._properties[name]),
                start,
                end,
                table[name],
                Idle.total(self._idle_shares[name]),
            )
            for name in sorted(table)
        ]
        if self._idle:
            idle = Idle.total_if_complete(self._idle)
            has_gpu_hours = not self._query.filter.property_names
            allocations.append(Allocation(IDLE_NAME, Properties(""), start, end, Costs(), idle, has_gpu_hours))
        return allocations

    def distribute_idle(self, costs: CostsByKey[Properties], capacity: CapacityCosts | None) -> dict[Properties, Idle]:
        """Return the shares of a cluster's idle costs if they are shared, and add what stays in `__idle__`.

        Raises:
            InvalidInputError: idle costs are to be shared and are not known.
        """
        query = self._query
        if capacity is None:
            if query.share_idle and costs:
                raise InvalidInputError(
                    "shareIdle: idle costs are not known for all hours of the window. Use shareIdle=false, or another "
                    "window."
                )
            self._idle.append(None)
            return {}
        idle = capacity.idle()
        if not any(row.allocated_usd for row in costs.values()):  # nothing to share it with; any filter excludes it
            self._idle += [] if query.filter.property_names else [idle]
            return {}
        by_properties = CostsByKey.of({properties: costs[properties] for properties in sorted(costs)})
        shares = share_idle(idle, by_properties)
        if query.share_idle:
            return {properties: Idle(0, share.idle_usd) for properties, share in shares.items()}
        if query.filter.property_names:
            idle = Idle.total(share for properties, share in shares.items() if query.filter.matches(properties))
        self._idle.append(idle)
        return {}


# OpenCost's assets: the GPU nodes of the ledger.

NODE_TYPE, CATEGORY, PROVIDER = "Node", "Compute", "AWS"


class AssetProperties(Struct, frozen=True, order=True):
    """What identifies an asset, and what a filter can match."""

    cluster: str
    name: str
    provider_id: str
    instance_type: str = ""
    node_pool: str = ""
    capacity_type: str = ""
    zone: str = ""
    gpu_model: str = ""
    category: str = CATEGORY
    provider: str = PROVIDER
    type: str = NODE_TYPE.lower()


class Asset(Struct, frozen=True):
    """A GPU node in a window."""

    properties: AssetProperties
    hours: int
    """In how many hours it is recorded."""
    capacity: CapacityCosts

    @property
    def key(self) -> str:
        """Its name in the response."""
        properties = self.properties
        return "/".join((PROVIDER, CATEGORY, properties.cluster, NODE_TYPE, properties.provider_id, properties.name))


class AssetQuery(Struct, frozen=True):
    """A parsed query."""

    start: datetime
    end: datetime
    filter: Filter


class AssetService:
    """Computes assets from the ledger.

    Args:
        settings_store: source of the cluster names.
        ledger: hours with their nodes.
    """

    def __init__(self, settings_store: SettingsStore, ledger: PublishedHours) -> None:
        self._settings_store = settings_store
        self._ledger = ledger

    def compute(self, query: AssetQuery, *, scope: Scope) -> list[Asset]:
        """Return the nodes of a window, in order of cluster and name.

        Raises:
            ParameterError: the window is too long.
            SettingsMissingError: no settings yet.
        """
        if query.end - query.start > MAX_WINDOW:
            raise ParameterError("window", f"is longer than {MAX_WINDOW.days} days. Shorten it.")
        ledger = scoped_hours(self._ledger, scope)
        totals: dict[AssetProperties, tuple[int, CapacityCosts]] = {}
        for cluster in select_clusters(None, self._settings_store.current(), scope, query.start):
            if not query.filter.includes_cluster(cluster):
                continue
            for node in ledger.all_nodes(cluster, query.start, query.end):
                properties = _properties(cluster, node)
                if query.filter.matches(properties):
                    hours, capacity = totals.get(properties, (0, CapacityCosts()))
                    totals[properties] = hours + 1, capacity + node.capacity
        return [Asset(properties, *totals[properties]) for properties in sorted(totals)]


def _properties(cluster: str, node: NodeHour) -> AssetProperties:
    return AssetProperties(
        cluster,
        node.node,
        node.provider_id,
        node.instance_type,
        node.node_pool,
        node.capacity_type,
        node.zone,
        node.gpu_model,
    )


ASSET_FIELDS = {
    "type": "type",
    "assetType": "type",
    "name": "name",
    "cluster": "cluster",
    "category": "category",
    "provider": "provider",
    "providerID": "provider_id",
}
"""The fields of OpenCost's asset filters that the ledger has, with the attributes of `AssetProperties`."""
