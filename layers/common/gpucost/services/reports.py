"""The api function's job: what hours cost, by period, business unit and namespace; exact, and honest about gaps.

An hour that is missing or incomplete adds nothing to any figure and is seen in the coverage instead; a period without
a single hour of figures has no row, for a row of zeros would say that nothing was spent.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Literal, get_args

from gpucost.domain.access import Scope
from gpucost.domain.hours import HOUR, floor_day, floor_hour, format_instant, hours_between
from gpucost.domain.ledger import HourSummary, Manifest, Restatement
from gpucost.domain.model import Capacity, ClusterCharge, Costs, Coverage, NodeHour, Totals
from gpucost.domain.money import quantize
from gpucost.domain.rollups import DAY, DaySummary
from gpucost.errors import InvalidInputError, ParameterError
from gpucost.ports import Clock, ReportedHours, Rollups, SettingsStore
from gpucost.services.scoped import scoped_hours, scoped_rollups
from gpucost.settings import Settings

Granularity = Literal["hour", "day"]
Dimension = Literal["business_unit", "namespace"]
LONGEST: dict[str, timedelta] = {"hour": 35 * DAY, "day": 100 * DAY}
"""The longest period of one answer, by granularity."""
LONGEST_OF_NODES = 48 * HOUR
MOST_ROWS = 10_000
_CHUNK = 7 * DAY
"""How much is held in memory at once."""


@dataclass(frozen=True, slots=True)
class Row:
    """One group's figures in one period."""

    start: datetime
    end: datetime
    group: dict[str, str]
    costs: Costs


@dataclass(frozen=True, slots=True)
class PeriodCoverage:
    """How much of a period is known: hours of all clusters that have ended, and how many of them are complete.

    `allocation` and `utilization` are means over the hours that were published; None where there are none.
    """

    hours_expected: int
    hours_complete: int
    allocation: Decimal | None
    utilization: Decimal | None


@dataclass(frozen=True, slots=True)
class CostReport:
    """What `costs` and `business_units` answer. `totals` is None where no hour has figures."""

    start: datetime
    end: datetime
    rows: list[Row]
    totals: Totals | None
    coverage: PeriodCoverage
    currency: str = "USD"
    """Of every amount, whatever the names of their fields say."""


@dataclass(frozen=True, slots=True)
class HourRow:
    """Where one cluster-hour stands; `manifest` is None for an hour that was never published."""

    cluster: str
    hour: datetime
    manifest: Manifest | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node's hour, or what was paid for without a node."""

    cluster: str
    hour: datetime
    currency: str
    item: NodeHour | ClusterCharge


@dataclass(slots=True)
class _Sums:
    """What is added up while hours are read."""

    groups: dict[tuple[datetime, tuple[str, ...]], list[Costs]] = field(default_factory=dict)
    costs: list[Costs] = field(default_factory=list)
    capacities: list[Capacity | None] = field(default_factory=list)
    coverages: list[Coverage] = field(default_factory=list)
    currencies: set[str] = field(default_factory=set)
    complete: int = 0

    def currency(self) -> str:
        """The one of all amounts.

        Raises:
            InvalidInputError: there are several, which are never added up.
        """
        if len(self.currencies) > 1:
            raise InvalidInputError(
                f"the period has hours in {' and '.join(sorted(self.currencies))}, which are never added up; "
                "ask for one cluster, or for the time before or after the change"
            )
        return next(iter(self.currencies), "USD")

    def totals(self) -> Totals | None:
        """Exact sums; the capacity is unknown as soon as one hour's is."""
        if not self.costs:
            return None
        known = [capacity for capacity in self.capacities if capacity is not None]
        complete = len(known) == len(self.capacities)
        return Totals(Costs.total(self.costs), Capacity.total(known) if complete else None)

    def fold(self) -> None:
        """Replace parts by their sums, so that memory follows the answer's size and not the hours'."""
        self.groups = {key: [Costs.total(parts)] for key, parts in self.groups.items()}


class ReportService:
    """Reads the ledger for people.

    Args:
        settings_store: names the clusters and business units.
        ledger: hour summaries and manifests.
        rollups: days; whole ones are read as such where no hour and no namespace is asked for.
        clock: the time now: hours that have not ended are not expected yet.
    """

    def __init__(self, settings_store: SettingsStore, ledger: ReportedHours, rollups: Rollups, clock: Clock) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._rollups = rollups
        self._clock = clock

    def costs(
        self,
        start: datetime,
        end: datetime,
        granularity: Granularity,
        group_by: Sequence[Dimension],
        cluster: str | None = None,
        *,
        scope: Scope,
    ) -> CostReport:
        """Costs per period and group, in order of time and name.

        Raises:
            AccessDeniedError: the scope does not cover what is asked for.
            ParameterError: a period, dimension or cluster that cannot be asked for.
            InvalidInputError: the answer would be too long.
            SettingsMissingError: no settings yet.
        """
        check_period(start, end, granularity)
        clusters = _clusters(self._settings_store.current().settings, cluster, scope)
        sums = self._sum(clusters, start, end, granularity, group_by, scope)
        rows = [
            Row(begin, begin + step_of(granularity), dict(zip(group_by, key, strict=True)), Costs.total(parts))
            for (begin, key), parts in sorted(sums.groups.items(), key=lambda item: item[0])
        ]
        return CostReport(start, end, rows, sums.totals(), self._coverage(clusters, start, end, sums), sums.currency())

    def business_units(self, start: datetime, end: datetime, cluster: str | None = None, *, scope: Scope) -> CostReport:
        """Every unit's sum over the whole period, in order of name; a unit of the settings that held nothing has zeros.

        Raises:
            As `costs`.
        """
        check_period(start, end, "hour")
        settings = self._settings_store.current().settings
        clusters = _clusters(settings, cluster, scope)
        sums = self._sum(clusters, start, end, None, ("business_unit",), scope)
        found = {key[0]: Costs.total(parts) for (_, key), parts in sums.groups.items()}
        if sums.costs:
            found = {unit.name: Costs() for unit in settings.business_units if scope.covers(unit.name)} | found
        rows = [Row(start, end, {"business_unit": unit}, costs) for unit, costs in sorted(found.items())]
        return CostReport(start, end, rows, sums.totals(), self._coverage(clusters, start, end, sums), sums.currency())

    def hours(
        self, start: datetime, end: datetime, cluster: str | None = None, *, scope: Scope
    ) -> tuple[list[HourRow], PeriodCoverage]:
        """Where every cluster-hour that has ended stands, missing ones included, in order of time and cluster.

        Raises:
            As `costs`.
        """
        check_period(start, end, "hour")
        clusters = _clusters(self._settings_store.current().settings, cluster, scope)
        ended = self._ended(start, end)
        _refuse_too_many(len(ended) * len(clusters))
        ledger, rows, sums = scoped_hours(self._ledger, scope), [], _Sums()
        for name in clusters:
            known = {manifest.hour: manifest for manifest in ledger.manifests(name, start, end)}
            notes = ledger.notes(name, start, end)
            rows += [HourRow(name, hour, known.get(hour), notes.get(hour, ())) for hour in ended]
            sums.complete += sum(manifest.status == "complete" for manifest in known.values())
            sums.coverages += [manifest.coverage for manifest in known.values() if manifest.coverage is not None]
        rows.sort(key=lambda row: (row.hour, row.cluster))
        return rows, self._coverage(clusters, start, end, sums)

    def nodes(self, start: datetime, end: datetime, cluster: str | None = None, *, scope: Scope) -> list[NodeRow]:
        """What every GPU node cost in every published hour, and from which source; in order of hour, cluster and node.

        Raises:
            ParameterError: a period longer than 48 hours, or as `costs`.
            InvalidInputError: the answer would be too long.
        """
        check_period(start, end, "hour")
        if end - start > LONGEST_OF_NODES:
            raise ParameterError("end", f"nodes are answered for at most {LONGEST_OF_NODES // HOUR} hours at once")
        ledger = scoped_hours(self._ledger, scope)
        found: list[NodeRow] = []
        for name in _clusters(self._settings_store.current().settings, cluster, scope):
            for manifest in ledger.manifests(name, start, end):
                nodes, charges = ledger.nodes(name, manifest.hour)
                items: list[NodeHour | ClusterCharge] = [*nodes, *charges]
                found += [NodeRow(name, manifest.hour, manifest.currency, one) for one in items]
                _refuse_too_many(len(found))
        return sorted(found, key=lambda row: (row.hour, row.cluster))

    def restatements(
        self, start: datetime, end: datetime, cluster: str | None = None, *, scope: Scope
    ) -> list[Restatement]:
        """What replaced figures in hours of the period, and why: in order of hour, cluster and version.

        Raises:
            As `costs`.
        """
        check_period(start, end, "hour")
        clusters = _clusters(self._settings_store.current().settings, cluster, scope)
        ledger = scoped_hours(self._ledger, scope)
        found = [one for name in clusters for one in ledger.restatements(name, start, end)]
        _refuse_too_many(len(found))
        return sorted(found, key=lambda one: (one.hour, one.cluster, one.version))

    def _sum(
        self,
        clusters: Sequence[str],
        start: datetime,
        end: datetime,
        granularity: Granularity | None,
        group_by: Sequence[Dimension],
        scope: Scope,
    ) -> _Sums:
        ledger, rollups, sums = scoped_hours(self._ledger, scope), scoped_rollups(self._rollups, scope), _Sums()
        from_days = granularity != "hour" and set(group_by) <= {"business_unit"}
        first, last = _whole_days(start, end) if from_days else (end, end)
        for name in clusters:
            for chunk_start, chunk_end in (*_chunks(start, first), *_chunks(last, end)):
                for summary in ledger.summaries(name, chunk_start, chunk_end):
                    begin = start if granularity is None else period_of(summary.hour, granularity)
                    _add(sums, summary, begin, group_by)
                _refuse_too_many(len(sums.groups))
                sums.fold()
            for day in rollups.days(name, first, last) if first < last else ():
                _add_day(sums, day, start if granularity is None else day.day, group_by)
            _refuse_too_many(len(sums.groups))
        return sums

    def _ended(self, start: datetime, end: datetime) -> list[datetime]:
        return hours_between(start, min(end, floor_hour(self._clock())))

    def _coverage(self, clusters: Sequence[str], start: datetime, end: datetime, sums: _Sums) -> PeriodCoverage:
        return PeriodCoverage(
            hours_expected=len(clusters) * len(self._ended(start, end)),
            hours_complete=sums.complete,
            allocation=_mean([coverage.allocation for coverage in sums.coverages]),
            utilization=_mean([seen.utilization for seen in sums.coverages if seen.utilization is not None]),
        )


def check_period(start: datetime, end: datetime, granularity: Granularity) -> None:
    """Refuse a period that is not made of full hours (days), is empty, or is too long for one answer.

    Raises:
        ParameterError: which parameter, and what is allowed.
    """
    for name, moment in (("start", start), ("end", end)):
        if period_of(moment, granularity) != moment:
            full = "full UTC hour" if granularity == "hour" else "UTC day's start"
            raise ParameterError(
                name, f"{format_instant(moment)} is not on a {full}, as granularity={granularity} asks"
            )
    if end <= start:
        raise ParameterError("end", "must be after start")
    longest = LONGEST[granularity]
    if end - start > longest:
        more = f"; granularity=day takes {LONGEST['day'].days} days" if granularity == "hour" else ""
        raise ParameterError("end", f"one answer covers at most {longest.days} days of this kind{more}; shorten it")


def parse_group_by(text: str) -> tuple[Dimension, ...]:
    """Read `business_unit,namespace`; "" is no grouping.

    Raises:
        ParameterError: a dimension that is not known, or named twice.
    """
    found: list[Dimension] = []
    allowed = get_args(Dimension)
    for part in (part.strip() for part in text.split(",") if part.strip()):
        if part not in allowed:
            raise ParameterError("group_by", f"{part!r} is not a dimension; allowed: {', '.join(allowed)}")
        if part in found:
            raise ParameterError("group_by", f"{part!r} is named twice")
        found.append(next(name for name in allowed if name == part))
    return tuple(found)


def period_of(moment: datetime, granularity: Granularity) -> datetime:
    """Start of the hour or UTC day in which a moment lies."""
    return floor_hour(moment) if granularity == "hour" else floor_day(moment)


def step_of(granularity: Granularity) -> timedelta:
    """Length of a period."""
    return HOUR if granularity == "hour" else DAY


def _clusters(settings: Settings, cluster: str | None, scope: Scope) -> list[str]:
    names = sorted(known.name for known in settings.clusters)
    if cluster is None:
        return names
    if cluster not in names:
        allowed = f"; allowed: {', '.join(names)}" if scope.is_fleet else ""
        raise ParameterError("cluster", f"{cluster!r} is not in the settings{allowed}")
    return [cluster]


def _chunks(start: datetime, end: datetime) -> Iterator[tuple[datetime, datetime]]:
    while start < end:
        until = min(start + _CHUNK, end)
        yield start, until
        start = until


def _add(sums: _Sums, summary: HourSummary, begin: datetime, group_by: Sequence[Dimension]) -> None:
    if summary.coverage is not None:
        sums.coverages.append(summary.coverage)
    if summary.totals is None or summary.status == "incomplete":
        return
    sums.complete += summary.status == "complete"
    sums.currencies.add(summary.currency)
    sums.costs.append(summary.totals.costs)
    sums.capacities.append(summary.totals.capacity)
    if not group_by:
        sums.groups.setdefault((begin, ()), []).append(summary.totals.costs)
        return
    for (unit, namespace), costs in summary.groups.items():
        names = {"business_unit": unit, "namespace": namespace}
        key = tuple(names[dimension] for dimension in group_by)
        sums.groups.setdefault((begin, key), []).append(costs)


def _add_day(sums: _Sums, day: DaySummary, begin: datetime, group_by: Sequence[Dimension]) -> None:
    sums.coverages += [manifest.coverage for manifest in day.hours if manifest.coverage is not None]
    sums.complete += sum(manifest.status == "complete" for manifest in day.hours)
    if day.totals is None:
        return
    sums.currencies |= {manifest.currency for manifest in day.hours if manifest.status != "incomplete"}
    sums.costs.append(day.totals.costs)
    sums.capacities.append(day.totals.capacity)
    if not group_by:
        sums.groups.setdefault((begin, ()), []).append(day.totals.costs)
        return
    for unit, costs in day.units.items():
        sums.groups.setdefault((begin, (unit,)), []).append(costs)


def _whole_days(start: datetime, end: datetime) -> tuple[datetime, datetime]:
    """The UTC days that lie in a period as a whole; `(end, end)` where there is none."""
    first, last = floor_day(start + DAY - HOUR), floor_day(end)
    return (first, last) if first < last else (end, end)


def _refuse_too_many(rows: int) -> None:
    if rows > MOST_ROWS:
        raise InvalidInputError(
            f"the answer would have more than {MOST_ROWS:,} rows; shorten the period, ask for granularity=day, "
            "group by less, or name one cluster"
        )


def _mean(values: Sequence[Decimal]) -> Decimal | None:
    return quantize(sum(values, Decimal(0)) / len(values)) if values else None
