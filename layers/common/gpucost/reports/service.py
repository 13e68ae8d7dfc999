"""The report service: one method for each route, over the ledger as the caller may see it."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from gpucost.core.access import Scope
from gpucost.core.errors import InvalidInputError, NotFoundError
from gpucost.core.fixed_point import NOTHING
from gpucost.core.hours import floor_hour, hours_between
from gpucost.core.ledger import Restatement
from gpucost.core.model import Capacity, Costs, Totals
from gpucost.core.query.cost_query import LARGEST_PAGE, CostQuery
from gpucost.core.query.grouping import QueryResult, Row, group
from gpucost.core.query.paging import check_cursor, fingerprint, read_cursor
from gpucost.core.query.periods import Period, check_length, end_of, parse_period, period_before
from gpucost.reports.lines import LinePage, LineReports
from gpucost.reports.nodes import NodePage, NodeReports
from gpucost.reports.parameters import QueryParameters, select_clusters, parse_cost_query
from gpucost.reports.period_totals import PeriodTotals
from gpucost.reports.reading import CostReader
from gpucost.reports.records import CostReport, FleetRow, HourRow, PeriodCoverage, Trend
from gpucost.reports.scoped import scoped_hours
from gpucost.reports.waste import WastePage, WasteReports
from gpucost.storage.ports import Clock, ReportedHours, SettingsStore, SummedVersions

MAX_ROWS = 10_000
"""Rows of answers that are always whole: of `hours`, `restatements` and `business_units`."""


class ReportService:
    """Reads the ledger for people.

    Args:
        settings_store: names the clusters and business units.
        ledger: hour summaries, lines and manifests; read through the caller's scope.
        rollups: days and day facts; likewise.
        clock: the time now: hours that have not ended are not expected yet.
    """

    def __init__(
        self, settings_store: SettingsStore, ledger: ReportedHours, rollups: SummedVersions, clock: Clock
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._rollups = rollups
        self._clock = clock

    def costs(self, asked: QueryParameters, *, scope: Scope) -> CostReport:
        """Costs per period and group.

        Raises:
            AccessDeniedError: the scope does not cover what is asked for.
            ParameterError: a parameter that cannot be asked for: which, and what is allowed.
            InvalidInputError: the answer would be too much; says what to narrow.
            SettingsMissingError: no settings yet.
        """
        settings = self._settings_store.current().settings
        question = parse_cost_query(asked, settings, self._clock())
        clusters = self._clusters(asked, question.period, scope)
        if asked.cursor is not None:
            check_cursor(asked.cursor)
        read, known = CostReader(self._ledger, self._rollups, scope).read(question, clusters)
        return self._report(question, clusters, scope, read, known, asked.cursor)

    def business_units(self, asked: QueryParameters, *, scope: Scope) -> CostReport:
        """Every unit's sum over the whole period, in order of name; a unit of the settings that held nothing has zeros.

        Raises:
            As `costs`.
        """
        report = self.costs(
            replace(asked, granularity="total", group_by="business_unit", limit=LARGEST_PAGE), scope=scope
        )
        _refuse_too_many(report.row_count)
        named = {row.group["business_unit"] for row in report.rows}
        period = report.period
        units = self._settings_store.current().settings.business_units
        missing = {unit.name for unit in units if scope.covers(unit.name)} - named
        none = [Row(period.start, period.end, {"business_unit": unit}, NOTHING) for unit in missing if report.totals]
        rows = sorted([*report.rows, *none], key=lambda row: row.group["business_unit"])
        return replace(report, rows=rows, row_count=len(rows))

    def business_unit(self, name: str, asked: QueryParameters, *, scope: Scope) -> CostReport:
        """One unit per period; its totals are its own, with nothing of the fleet.

        Raises:
            NotFoundError: neither the settings nor the period's hours know it.
            As `costs`.
        """
        settings = self._settings_store.current().settings
        question = parse_cost_query(replace(asked, group_by="", filters={}), settings, self._clock())
        clusters = self._clusters(asked, question.period, scope)
        read, known = CostReader(self._ledger, self._rollups, scope).read_unit(name, question, clusters)
        self._check_known(name, read)
        return self._report(question, clusters, scope, read, known, None)

    def workloads(self, name: str, asked: QueryParameters, *, scope: Scope) -> CostReport:
        """What each of a unit's workloads costs over the whole period, the dearest first.

        Raises:
            As `business_unit`.
        """
        settings = self._settings_store.current().settings
        group_by = "cluster,namespace,workload_kind,workload"
        asked = replace(asked, granularity="total", group_by=group_by, sort=asked.sort or "-allocated_usd")
        question = parse_cost_query(asked, settings, self._clock())
        clusters = self._clusters(asked, question.period, scope)
        if asked.cursor is not None:
            check_cursor(asked.cursor)
        read, known = CostReader(self._ledger, self._rollups, scope).read_unit(name, question, clusters)
        self._check_known(name, read)
        return self._report(question, clusters, scope, read, known, asked.cursor, f"workloads of {name}")

    def trend(self, name: str, asked: QueryParameters, *, scope: Scope) -> Trend:
        """A unit's period beside the one of the same length before it (of a calendar month, the month before).

        Raises:
            InvalidInputError: the two are in different currencies.
            As `business_unit`.
        """
        asked = replace(asked, granularity="total")
        period = self._period(asked)
        check_length(period, "total")
        reader = CostReader(self._ledger, self._rollups, scope)
        reports, cells = [], 0
        for one in (period, period_before(period)):
            clusters = self._clusters(asked, one, scope)
            question = CostQuery(one, "total")
            read, known = reader.read_unit(name, question, clusters)
            cells += len(read.cells)
            reports.append(self._report(question, clusters, scope, read, known, None))
        if not cells:
            self._check_known(name, QueryResult())
        currencies = sorted({report.currency for report in reports if report.totals is not None})
        if len(currencies) > 1:
            raise InvalidInputError(
                f"the period and the one before have hours in {' and '.join(currencies)}, which are never compared; "
                "shorten the period, or ask for one cluster"
            )
        current, before = (replace(report, currency=(currencies or [report.currency])[0]) for report in reports)
        return Trend(current, before)

    def waste(self, asked: QueryParameters, *, scope: Scope) -> WastePage:
        """Which workloads waste most, since when, and which pods.

        Raises:
            As `costs`.
        """
        settings = self._settings_store.current().settings
        question = parse_cost_query(
            replace(asked, granularity="total", group_by=",".join(WasteReports.GROUP_BY), sort="-waste_usd"),
            settings,
            self._clock(),
        )
        clusters = self._clusters(asked, question.period, scope)
        if asked.cursor is not None:
            check_cursor(asked.cursor)
        offenders = WasteReports(self._ledger, self._rollups, scope)
        read, known = offenders.read(question, clusters)
        report = self._report(
            question, clusters, scope, read, known, asked.cursor, "waste", shown=lambda row: row.costs.waste_usd > 0
        )
        return offenders.page(report)

    def fleet(self, asked: QueryParameters, *, scope: Scope) -> tuple[CostReport, list[FleetRow]]:
        """The identity, period by period: what the fleet cost, and what became of it.

        A period in which no hour has figures has no row. Whoever may see some business units only is told their costs,
        and no capacity.

        Raises:
            As `costs`.
        """
        settings = self._settings_store.current().settings
        question = parse_cost_query(replace(asked, group_by="", filters={}, idle="hidden"), settings, self._clock())
        clusters = self._clusters(asked, question.period, scope)
        read, known = CostReader(self._ledger, self._rollups, scope).read(question, clusters)
        report = self._report(question, clusters, scope, read, known, None, "fleet")
        held, capacities = {row.start: row for row in report.rows}, _by_period(read)
        period = question.period
        return report, [
            FleetRow(
                begin,
                end_of(begin, question.granularity, period),
                Totals(held[begin].costs if begin in held else Costs(), capacities.get(begin)),
            )
            for begin in sorted(held.keys() | capacities.keys())
        ]

    def lines(self, asked: QueryParameters, *, scope: Scope) -> LinePage:
        """Single pods in single hours, with how each figure was found.

        Raises:
            As `costs`.
        """
        settings = self._settings_store.current().settings
        question = parse_cost_query(replace(asked, granularity="hour", group_by=""), settings, self._clock())
        clusters = self._clusters(asked, question.period, scope)
        if asked.cursor is not None:
            check_cursor(asked.cursor)
        whose = None if scope.units is None else sorted(scope.units)
        return LineReports(scoped_hours(self._ledger, scope)).page(question, clusters, whose, asked.cursor)

    def hours(self, asked: QueryParameters, *, scope: Scope) -> tuple[Period, list[HourRow], PeriodCoverage]:
        """Where every cluster-hour that has ended stands, missing ones included, in order of time and cluster.

        Raises:
            As `costs`.
        """
        period, clusters = self._period_and_clusters(asked, scope)
        ended, ledger = self._ended(period), scoped_hours(self._ledger, scope)
        _refuse_too_many(len(ended) * len(clusters))
        rows, known = [], PeriodTotals()
        current = {one.name for one in self._settings_store.current().settings.clusters}
        for name in clusters:
            found = ledger.manifests(name, period.start, period.end)
            manifests, notes = {one.hour: one for one in found}, ledger.notes_of(found)
            hours = ended if name in current else sorted(manifests)  # of one that left, none will come
            rows += [HourRow(name, hour, manifests.get(hour), notes.get(hour, ())) for hour in hours]
            known.add_manifests(found)
        rows.sort(key=lambda row: (row.hour, row.cluster))
        return period, rows, self._coverage(known, clusters, period)

    def nodes(self, asked: QueryParameters, *, scope: Scope) -> NodePage:
        """What every GPU node cost in every published hour, who held what of it, and what nobody held.

        Raises:
            As `costs`.
        """
        period, clusters = self._period_and_clusters(asked, scope)
        return NodeReports(scoped_hours(self._ledger, scope)).page(
            period, clusters, limit=asked.limit, cursor=asked.cursor
        )

    def restatements(self, asked: QueryParameters, *, scope: Scope) -> tuple[Period, list[Restatement]]:
        """What replaced figures in hours of the period, and why: in order of hour, cluster and version.

        Raises:
            As `costs`.
        """
        period, clusters = self._period_and_clusters(asked, scope)
        ledger = scoped_hours(self._ledger, scope)
        found = [one for name in clusters for one in ledger.restatements(name, period.start, period.end)]
        _refuse_too_many(len(found))
        return period, sorted(found, key=lambda one: (one.hour, one.cluster, one.version))

    def _report(
        self,
        question: CostQuery,
        clusters: Sequence[str],
        scope: Scope,
        read: QueryResult,
        known: PeriodTotals,
        cursor: str | None,
        more: str = "",
        shown: Callable[[Row], bool] | None = None,
    ) -> CostReport:
        whose = None if scope.units is None else sorted(scope.units)
        seal = fingerprint(f"{question.text()} {list(clusters)} {whose} {more}", known.versions)
        place = read_cursor(cursor, seal)
        currency = known.currency(self._settings_store.current().settings.pricing.currency)
        grouped = group(question, read)
        rows = grouped.rows if shown is None else [row for row in grouped.rows if shown(row)]
        return CostReport(
            query=question,
            rows=rows[place : place + question.limit],
            row_count=len(rows),
            totals=known.totals(),
            filtered_out=grouped.filtered_out if known.costs else None,
            coverage=self._coverage(known, clusters, question.period),
            currency=currency,
            offset=place,
            etag=seal,
        )

    def _check_known(self, name: str, read: QueryResult) -> None:
        units = self._settings_store.current().settings.business_units
        if not read.cells and name not in {unit.name for unit in units}:
            raise NotFoundError("no such business unit: neither the settings nor hours of the period name it")

    def _period(self, asked: QueryParameters) -> Period:
        return parse_period(asked.start, asked.end, asked.window, self._clock())

    def _period_and_clusters(self, asked: QueryParameters, scope: Scope) -> tuple[Period, list[str]]:
        period = self._period(asked)
        check_length(period, "hour")
        return period, self._clusters(asked, period, scope)

    def _clusters(self, asked: QueryParameters, period: Period, scope: Scope) -> list[str]:
        return select_clusters(asked.cluster, self._settings_store.current(), scope, period.start)

    def _coverage(self, known: PeriodTotals, clusters: Sequence[str], period: Period) -> PeriodCoverage:
        """Of clusters that left the settings only hours that have a record are expected: no others will come."""
        current = {one.name for one in self._settings_store.current().settings.clusters}
        ended = len(self._ended(period))
        return known.coverage(sum(ended if name in current else known.hour_counts[name] for name in clusters))

    def _ended(self, period: Period) -> list[datetime]:
        return hours_between(period.start, min(period.end, floor_hour(self._clock())))


def _refuse_too_many(rows: int) -> None:
    if rows > MAX_ROWS:
        raise InvalidInputError(
            f"the answer would have more than {MAX_ROWS:,} rows; shorten the period, or name one cluster"
        )


def _by_period(read: QueryResult) -> dict[datetime, Capacity | None]:
    """Capacities over all clusters; None where one cluster's is not known."""
    found: dict[datetime, list[Capacity | None]] = {}
    for (begin, _), capacity in read.capacities.items():
        found.setdefault(begin, []).append(capacity)
    return {
        begin: None if None in parts else Capacity.total(part for part in parts if part is not None)
        for begin, parts in found.items()
    }
