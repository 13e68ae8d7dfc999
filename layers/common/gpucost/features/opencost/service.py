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
from gpucost.features.opencost.properties import IDLE, Properties, key_of, needs_of, properties_of, shared_by
from gpucost.reports.parameters import select_clusters
from gpucost.reports.scoped import scoped_hours, scoped_rollups
from gpucost.storage.ports import Clock, PublishedHours, SettingsStore, RollupReader

LONGEST = 35 * DAY
MOST_HOURS_OF_LINES = 48
"""Hours of one cluster whose pods are read one by one: all of them where nodes or pods are asked for, else those
outside whole UTC days."""
MOST_ALLOCATIONS = 10_000
_OF_SUMMARIES = {"cluster", "namespace"}
_OF_LINES = {"node", "pod"}
_CHUNK = 7 * 24
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
        if query.end - query.start > LONGEST:
            raise ParameterError("window", f"covers more than {LONGEST.days} days; shorten it")
        if query.include_idle and not scope.is_fleet:
            raise AccessDeniedError("includeIdle is answered to those who may see all business units")
        needs = needs_of(query.aggregate) | query.filter.needs
        clusters = select_clusters(None, self._settings_store.current(), scope, query.start)
        reader = _Reader(query, needs, scoped_hours(self._ledger, scope), scoped_rollups(self._rollups, scope))
        for cluster in clusters:
            reader.read(cluster)
        sets, count = [], 0
        for index, (start, end) in enumerate(reader.steps):
            found = _allocations(reader, clusters, index, start, end)
            count += len(found)
            if count > MOST_ALLOCATIONS:
                raise InvalidInputError(
                    f"the answer would have more than {MOST_ALLOCATIONS:,} allocations; shorten the window, lengthen "
                    "step, aggregate by less, or filter"
                )
            sets.append(found)
        return sets


class _Reader:
    """Collects pieces of the fleet by step and cluster, each from the coarsest source that tells what is needed.

    All of a cluster is of the versions whose manifests are read first, whatever is put in force meanwhile.

    Raises:
        ParameterError: the window is too long for what is needed of it.
    """

    def __init__(self, query: AllocationQuery, needs: set[str], ledger: PublishedHours, rollups: RollupReader) -> None:
        self.query = query
        self.steps = [*_steps(query)]
        self._needs = needs
        self._ledger = ledger
        self._rollups = rollups
        self._days = set() if needs & _OF_LINES else {day for start, end in self.steps for day in _days(start, end)}
        self._pieces: dict[tuple[int, str], dict[Properties, list[Costs]]] = {}
        self._totals: dict[tuple[int, str], list[Totals]] = {}
        self._currencies: set[str] = set()
        self._check_length()

    def pieces(self, index: int, cluster: str) -> list[tuple[Properties, Costs]]:
        """What was held in a step, summed by properties, in their order."""
        found = self._pieces.get((index, cluster), {})
        return [(held, Costs.total(found[held])) for held in sorted(found)]

    def idle(self, index: int, cluster: str) -> tuple[Decimal | None, Decimal | None] | None:
        """USD and GPU-hours that nobody held in a step, each None where nothing tells; None where no hour has figures.

        Only where the query includes idle.
        """
        totals = self._totals.get((index, cluster))
        return _idle(totals) if totals else None

    def read(self, cluster: str) -> None:
        """Collect what the query needs of one cluster.

        Raises:
            InvalidInputError: the window has amounts in several currencies.
        """
        manifests = self._ledger.manifests(cluster, self.query.start, self.query.end)
        hours = [one for one in manifests if one.status != "incomplete"]
        self._currencies |= {one.currency for one in hours}
        if len(self._currencies) > 1:
            found = " and ".join(sorted(self._currencies))
            raise InvalidInputError(f"the window has hours in {found}, which are never added up")
        of_days = [one for one in manifests if floor_day(one.hour) in self._days]
        by_summaries = self._needs <= _OF_SUMMARIES
        if by_summaries or (self.query.include_idle and self._edges()):
            self._read_summaries(cluster, hours, pieces=by_summaries)
        elif self.query.include_idle:
            for day in self._rollups.days_of(of_days):
                if day.totals is not None:
                    self._totals.setdefault((self._index(day.day), cluster), []).append(day.totals)
        if by_summaries:
            return
        for one in hours:
            if floor_day(one.hour) not in self._days:
                for line in self._ledger.lines_of(one):
                    self._add(one.hour, properties_of(cluster, line), line.costs())
        for moment, facts in self._rollups.facts_of(of_days):
            for key, costs in facts.items():
                self._add(moment, properties_of(cluster, key), costs)

    def _read_summaries(self, cluster: str, hours: Sequence[Manifest], *, pieces: bool) -> None:
        for at in range(0, len(hours), _CHUNK):
            for one in self._ledger.summaries_of(hours[at : at + _CHUNK]):
                for (_, namespace), costs in one.groups.items() if pieces else ():
                    self._add(one.hour, Properties(cluster, namespace), costs)
                if self.query.include_idle and one.totals is not None:
                    self._totals.setdefault((self._index(one.hour), cluster), []).append(one.totals)
            for found in self._pieces.values():
                for held, parts in found.items():
                    found[held] = [Costs.total(parts)]

    def _add(self, moment: datetime, held: Properties, costs: Costs) -> None:
        place = (self._index(moment), held.cluster)
        self._pieces.setdefault(place, {}).setdefault(held, []).append(costs)

    def _index(self, moment: datetime) -> int:
        return (moment - self.query.start) // self.query.step

    def _edges(self) -> int:
        """Hours that lie in no whole day of a step."""
        return (self.query.end - self.query.start - len(self._days) * DAY) // HOUR

    def _check_length(self) -> None:
        hours = 0 if self._needs <= _OF_SUMMARIES else self._edges()
        if hours > MOST_HOURS_OF_LINES:
            what = "by node or pod" if self._needs & _OF_LINES else "outside whole UTC days"
            raise ParameterError(
                "window",
                f"at most {MOST_HOURS_OF_LINES} hours are answered {what}, and this asks for {hours}; "
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


def _allocations(
    reader: _Reader, clusters: Sequence[str], index: int, start: datetime, end: datetime
) -> list[Allocation]:
    query = reader.query
    groups: dict[str, list[tuple[Properties, Costs, Decimal | None]]] = {}
    idle: list[tuple[Decimal | None, Decimal | None]] = []
    for cluster in clusters:
        pieces = reader.pieces(index, cluster)
        left = reader.idle(index, cluster)
        parts = _parts(left[0] if left else ZERO, pieces)
        for (held, costs), part in zip(pieces, parts, strict=True):
            if query.filter.matches(held):
                groups.setdefault(key_of(held, query.aggregate), []).append((held, costs, part))
        if left is not None:
            idle += _kept(left, pieces, parts, query)
    found = [
        Allocation(
            name,
            shared_by([held for held, _, _ in rows]),
            start,
            end,
            Costs.total(costs for _, costs, _ in rows),
            _sum([part for _, _, part in rows]) if query.share_idle else ZERO,
        )
        for name, rows in sorted(groups.items())
    ]
    if idle:
        usd, hours = _sum([one for one, _ in idle]), _sum([one for _, one in idle])
        found.append(Allocation(IDLE, Properties(""), start, end, Costs(), usd, hours))
    return found


def _idle(totals: Sequence[Totals]) -> tuple[Decimal | None, Decimal | None]:
    capacities = [one.capacity for one in totals]
    known = [one for one in capacities if one is not None]
    if len(known) < len(capacities):
        return None, None
    usd = sum((one.node_cost_usd for one in known), ZERO) - sum((one.costs.allocated_usd for one in totals), ZERO)
    hours = sum((one.unallocated_gpu_hours + one.stranded_gpu_hours + one.unobserved_gpu_hours for one in known), ZERO)
    return usd, hours


def _parts(left: Decimal | None, pieces: Sequence[tuple[Properties, Costs]]) -> list[Decimal | None]:
    """What of a cluster's idle each piece bears, by cost."""
    weights = [Fraction(costs.allocated_usd) for _, costs in pieces]
    if left is None or not any(weights):
        return [None if left is None else ZERO for _ in pieces]
    return [*split(left, weights)]


def _kept(
    left: tuple[Decimal | None, Decimal | None],
    pieces: Sequence[tuple[Properties, Costs]],
    parts: Sequence[Decimal | None],
    query: AllocationQuery,
) -> list[tuple[Decimal | None, Decimal | None]]:
    """What of a cluster's idle stays in `__idle__`: what is not shared, of the pieces that the filter lets through."""
    usd, hours = left
    if usd is None:
        if query.share_idle and pieces:
            raise InvalidInputError("shareIdle: what is idle is not known in all hours of the window")
        return [(None, None)]
    weighs = any(costs.allocated_usd for _, costs in pieces)
    if not weighs:  # nobody to share it with; a filter that names no such cluster leaves it out
        return [(usd, hours)] if not query.filter.needs else []
    if query.share_idle:
        return []
    if not query.filter.needs:
        return [(usd, hours)]
    return [(_sum([part for (held, _), part in zip(pieces, parts, strict=True) if query.filter.matches(held)]), None)]


def _sum(parts: Sequence[Decimal | None]) -> Decimal | None:
    known = [part for part in parts if part is not None]
    return sum(known, ZERO) if len(known) == len(parts) else None
