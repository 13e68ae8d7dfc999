"""The report service: one method per route, over the part of the ledger that the caller may see."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from gpucost.core.access import Scope
from gpucost.core.amounts import CapacityCosts, Costs, Totals
from gpucost.core.costs_by_model import ModelSum
from gpucost.core.errors import InvalidInputError, NotFoundError
from gpucost.core.hour_record import Line
from gpucost.core.hours import HOUR, floor_hour, format_timestamp, hours_between, month_of
from gpucost.core.ledger import ClosedMonth, Manifest, Restatement
from gpucost.core.query.cost_query import MAX_PAGE_SIZE, CostQuery, check_cursor, etag_of_query, read_cursor
from gpucost.core.query.grouping import GroupRow, group_rows
from gpucost.core.query.periods import Period, check_period_length, parse_period, previous_period
from gpucost.reports.cost_reader import MAX_PART_WORK, CostReader
from gpucost.reports.model_costs import InferenceReport, parse_inference_query, read_models
from gpucost.reports.pages import LineReports, NodeReports, NodeRow, ReportPage, batch_of, positions_of_page, row_of
from gpucost.reports.parameters import PublishedUntil, QueryParameters, parse_cost_query, select_clusters
from gpucost.reports.records import CostReport, HourRow, PeriodComparison, PeriodCosts, PeriodCoverage
from gpucost.reports.scoped import scoped_hours
from gpucost.reports.waste import TopWaster, WasteReports
from gpucost.storage.ports import Clock, PublishedHours, RollupReader, SettingsStore

MAX_ROWS = 10_000
"""Most rows of reports without pages: `business_units`."""


class ReportService:
    """Makes reports from the ledger.

    Args:
        settings_store: source of the names of clusters and business units.
        ledger: hour summaries, lines and manifests. They are read through the caller's scope.
        rollups: days and day facts. They are read through the caller's scope.
        clock: returns the current time. Hours that have not ended are not expected in the coverage.
        closed_months: returns the months that are closed.
        max_part_work: day facts and lines after which a part of a report ends.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: PublishedHours,
        rollups: RollupReader,
        clock: Clock,
        closed_months: Callable[[], Iterable[ClosedMonth]],
        *,
        max_part_work: int = MAX_PART_WORK,
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._rollups = rollups
        self._clock = clock
        self._closed_months = closed_months
        self._max_part_work = max_part_work
        self._published_until = PublishedUntil(settings_store, ledger, clock)

    def costs(self, parameters: QueryParameters, *, scope: Scope) -> CostReport:
        """Return costs by period and group.

        Raises:
            AccessDeniedError: the scope does not cover what the parameters select.
            ParameterError: a parameter is wrong. The message says what is allowed.
            InvalidInputError: the report would be too large. The message says how to narrow it.
            SettingsMissingError: no settings yet.
        """
        query, clusters = self._query(parameters, scope)
        first_batch = batch_of(check_cursor(parameters.cursor))
        reader = CostReader(self._ledger, self._rollups, scope, max_part_work=self._max_part_work)
        costs = reader.read(query, clusters, first_batch=first_batch)
        return self._report(query, clusters, scope, costs, parameters.cursor)

    def business_units(self, parameters: QueryParameters, *, scope: Scope) -> CostReport:
        """Return every business unit's sum over the period, in order of name.

        Business units of the settings that held no GPUs have zeros.

        Raises:
            As `costs`.
        """
        report = self.costs(
            replace(parameters, granularity="total", group_by="business_unit", limit=MAX_PAGE_SIZE), scope=scope
        )
        _check_row_count(report.row_count)
        names_with_rows = {row.group["business_unit"] for row in report.rows}
        period = report.period
        units = self._settings_store.current().settings.business_units
        missing = {unit.name for unit in units if scope.covers(unit.name)} - names_with_rows
        zero_rows = [
            GroupRow(period.start, period.end, {"business_unit": unit}, Costs()) for unit in missing if report.totals
        ]
        rows = sorted([*report.rows, *zero_rows], key=lambda row: row.group["business_unit"])
        return replace(report, rows=rows, row_count=len(rows))

    def business_unit(self, name: str, parameters: QueryParameters, *, scope: Scope) -> CostReport:
        """Return one business unit's costs by period. The totals are those of the business unit.

        Raises:
            NotFoundError: neither the settings nor the period's hours have a business unit of this name.
            As `costs`.
        """
        query, clusters = self._query(replace(parameters, group_by="", filters={}), scope)
        costs = CostReader(self._ledger, self._rollups, scope).read_unit(name, query, clusters)
        self._check_unit_exists(name, costs)
        return self._report(query, clusters, scope, costs, None)

    def workloads(self, name: str, parameters: QueryParameters, *, scope: Scope) -> CostReport:
        """Return the costs of each workload of a business unit over the period, most expensive first.

        Raises:
            As `business_unit`.
        """
        group_by = "cluster,namespace,workload_kind,workload"
        parameters = replace(
            parameters, granularity="total", group_by=group_by, sort=parameters.sort or "-allocated_usd"
        )
        query, clusters = self._query(parameters, scope)
        check_cursor(parameters.cursor)
        costs = CostReader(self._ledger, self._rollups, scope).read_unit(name, query, clusters)
        self._check_unit_exists(name, costs)
        return self._report(query, clusters, scope, costs, parameters.cursor, f"workloads of {name}")

    def trend(self, name: str, parameters: QueryParameters, *, scope: Scope) -> PeriodComparison:
        """Return a business unit's costs in a period and in the previous one.

        The previous period has the same length; for a calendar month it is the previous month.

        Raises:
            InvalidInputError: the two periods are in different currencies.
            As `business_unit`.
        """
        parameters = replace(parameters, granularity="total")
        period = self._period(parameters)
        check_period_length(period, "total")
        reader = CostReader(self._ledger, self._rollups, scope)
        reports, cell_count = [], 0
        for compared_period in (period, previous_period(period)):
            clusters = self._clusters(parameters, compared_period, scope)
            query = CostQuery(compared_period, "total")
            costs = reader.read_unit(name, query, clusters)
            cell_count += len(costs.cells)
            reports.append(self._report(query, clusters, scope, costs, None))
        if not cell_count:
            self._check_unit_exists(name, PeriodCosts())
        currencies = sorted({report.currency for report in reports if report.totals is not None})
        if len(currencies) > 1:
            raise InvalidInputError(
                f"the period and the previous one have amounts in {' and '.join(currencies)}, which cannot be "
                "compared. Shorten the period, or select one cluster."
            )
        current, previous = (replace(report, currency=(currencies or [report.currency])[0]) for report in reports)
        return PeriodComparison(current, previous)

    def waste(self, parameters: QueryParameters, *, scope: Scope) -> tuple[CostReport, list[TopWaster]]:
        """Return the workloads that waste most, since when they do, and their pods with waste.

        Raises:
            As `costs`.
        """
        group_by = ",".join(WasteReports.GROUP_BY)
        query, clusters = self._query(
            replace(parameters, granularity="total", group_by=group_by, sort="-waste_usd"), scope
        )
        waste_reports = WasteReports(self._ledger, self._rollups, scope, max_part_work=self._max_part_work)
        costs = waste_reports.read(query, clusters, batch_of(check_cursor(parameters.cursor)))
        report = self._report(
            query, clusters, scope, costs, parameters.cursor, "waste", include_row=lambda row: row.costs.waste_usd > 0
        )
        return report, waste_reports.top_wasters(report)

    def inference(self, parameters: QueryParameters, *, scope: Scope) -> InferenceReport:
        """Return the costs and tokens of models by period and group, of hours in which inference servers were seen.

        Raises:
            As `costs`.
        """
        settings = self._settings_store.current().settings
        query = parse_inference_query(parameters, self._clock(), self._published_until)
        clusters = self._clusters(parameters, query.period, scope)
        check_cursor(parameters.cursor)
        totals, weights = PeriodCosts(), settings.inference.rules().weights
        by_consumer = any(query_filter.dimension == "consumer" for query_filter in query.filters)
        ledger = scoped_hours(self._ledger, scope, models_by_consumer=by_consumer)
        models = read_models(query, clusters, ledger, totals)
        rows, everything, excluded = models.rows(query, weights)
        etag = etag_of_query(
            f"{query.canonical_text()} {list(clusters)} {scope.sorted_units()} inference {weights}",
            totals.hour_versions,
        )
        offset = read_cursor(parameters.cursor, etag)
        return InferenceReport(
            query=query,
            rows=rows[offset : offset + query.limit],
            row_count=len(rows),
            totals=ModelSum.of(everything).figures(weights) if everything else None,
            filtered_out=ModelSum.of(excluded).figures(weights) if query.filters and everything else None,
            coverage=self._coverage(totals, clusters, query.period),
            hours_with_servers=models.hours_with_servers,
            currency=totals.currency(settings.pricing.currency),
            offset=offset,
            etag=etag,
        )

    def fleet(self, parameters: QueryParameters, *, scope: Scope) -> tuple[CostReport, list[tuple[Period, Totals]]]:
        """Return the parts of the fleet's node cost by period.

        A period in which no hour has figures has no row. Callers who may see some business units get only the costs of
        these, without capacity.

        Raises:
            As `costs`.
        """
        query, clusters = self._query(replace(parameters, group_by="", filters={}, idle="hidden"), scope)
        costs = CostReader(self._ledger, self._rollups, scope).read(query, clusters)
        report = self._report(query, clusters, scope, costs, None, "fleet")
        rows_by_start, capacities = {row.start: row for row in report.rows}, _capacities_by_period(costs)
        return report, [
            (
                Period(begin, query.row_end(begin)),
                Totals(rows_by_start[begin].costs if begin in rows_by_start else Costs(), capacities.get(begin)),
            )
            for begin in sorted(rows_by_start.keys() | capacities.keys())
        ]

    def lines(self, parameters: QueryParameters, *, scope: Scope) -> tuple[Period, ReportPage[tuple[Manifest, Line]]]:
        """Return lines with their hours: one pod and one resource in one hour, with the sources of the figures.

        Raises:
            As `costs`.
        """
        query, clusters = self._query(replace(parameters, granularity="hour", group_by=""), scope)
        check_cursor(parameters.cursor)
        line_reports = LineReports(scoped_hours(self._ledger, scope))
        return query.period, line_reports.page(query, clusters, scope.sorted_units(), parameters.cursor)

    def hours(self, parameters: QueryParameters, *, scope: Scope) -> tuple[Period, ReportPage[HourRow], PeriodCoverage]:
        """Return the state of every ended cluster-hour, including missing ones, in order of time and cluster.

        Notes are read only of the hours of the page.

        Raises:
            As `costs`.
        """
        period, clusters = self._period_and_clusters(parameters, scope)
        check_cursor(parameters.cursor)
        ended_hours, ledger = self._ended_hours(period), scoped_hours(self._ledger, scope)
        totals, newest = PeriodCosts(), self._newest_ended_hour()
        current_clusters = {cluster.name for cluster in self._settings_store.current().settings.clusters}
        closed_months = {month.month for month in self._closed_months()}
        manifests: dict[tuple[datetime, str], Manifest] = {}
        cluster_hours: list[tuple[datetime, str]] = []
        for name in clusters:
            of_cluster = ledger.manifests(name, period.start, period.end)
            totals.add_manifests(of_cluster)
            manifests |= {(manifest.hour, name): manifest for manifest in of_cluster}
            # Hours of clusters that were removed from the settings are not computed anymore.
            hours = ended_hours if name in current_clusters else [manifest.hour for manifest in of_cluster]
            cluster_hours += [(hour, name) for hour in hours]
        cluster_hours.sort()
        listed = f"hours {format_timestamp(period.start)} {len(cluster_hours)} {clusters} {scope.is_fleet}"
        etag = etag_of_query(listed, totals.hour_versions)
        offset = read_cursor(parameters.cursor, etag)
        shown = cluster_hours[offset : offset + parameters.limit]
        notes: dict[tuple[datetime, str], tuple[str, ...]] = {}
        for name in clusters:
            of_page = [manifests[key] for key in shown if key[1] == name and key in manifests]
            notes |= {(hour, name): of_hour for hour, of_hour in ledger.notes_of(of_page).items()}
        rows = [
            HourRow(
                name,
                hour,
                manifests.get((hour, name)),
                notes.get((hour, name), ()),
                is_newest=hour == newest,
                is_closed=month_of(hour) in closed_months,
            )
            for hour, name in shown
        ]
        page = ReportPage(rows, positions_of_page(offset, len(rows), len(cluster_hours)), etag)
        return period, page, self._coverage(totals, clusters, period)

    def nodes(self, parameters: QueryParameters, *, scope: Scope) -> tuple[Period, ReportPage[NodeRow]]:
        """Return the cost of every GPU node in every published hour, its lines, and what was not allocated.

        Raises:
            As `costs`.
        """
        period, clusters = self._period_and_clusters(parameters, scope)
        node_reports = NodeReports(scoped_hours(self._ledger, scope))
        return period, node_reports.page(period, clusters, limit=parameters.limit, cursor=parameters.cursor)

    def restatements(self, parameters: QueryParameters, *, scope: Scope) -> tuple[Period, ReportPage[Restatement]]:
        """Return the restatements of the period's hours, in order of hour, cluster and version.

        Raises:
            As `costs`.
        """
        period, clusters = self._period_and_clusters(parameters, scope)
        check_cursor(parameters.cursor)
        ledger = scoped_hours(self._ledger, scope)
        restatements = sorted(
            (restatement for name in clusters for restatement in ledger.restatements(name, period.start, period.end)),
            key=lambda restatement: (restatement.hour, restatement.cluster, restatement.version),
        )
        versions = (f"{row.cluster} {format_timestamp(row.hour)} {row.version}" for row in restatements)
        etag = etag_of_query(f"restatements {format_timestamp(period.start)} {clusters}", versions)
        offset = read_cursor(parameters.cursor, etag)
        rows = restatements[offset : offset + parameters.limit]
        return period, ReportPage(rows, positions_of_page(offset, len(rows), len(restatements)), etag)

    def _report(
        self,
        query: CostQuery,
        clusters: Sequence[str],
        scope: Scope,
        costs: PeriodCosts,
        cursor: str | None,
        report_name: str = "",
        include_row: Callable[[GroupRow], bool] | None = None,
    ) -> CostReport:
        etag = etag_of_query(
            f"{query.canonical_text()} {list(clusters)} {scope.sorted_units()} {report_name}", costs.hour_versions
        )
        offset = read_cursor(cursor, etag)
        currency = costs.currency(self._settings_store.current().settings.pricing.currency)
        rows, filtered_out = group_rows(query, costs.cells, costs.capacities, costs.filtered_out)
        if include_row is not None:
            rows = [row for row in rows if include_row(row)]
        first = row_of(offset)
        return CostReport(
            query=query,
            rows=rows[first : first + query.limit],
            row_count=len(rows),
            totals=costs.totals(),
            filtered_out=filtered_out if costs.summed_totals else None,
            coverage=self._coverage(costs, clusters, query.period),
            currency=currency,
            offset=offset,
            etag=etag,
            next_batch=costs.next_batch,
        )

    def _check_unit_exists(self, name: str, costs: PeriodCosts) -> None:
        units = self._settings_store.current().settings.business_units
        if not costs.cells and name not in {unit.name for unit in units}:
            raise NotFoundError(f"no such business unit in the settings or in the hours of the period: {name!r}")

    def _query(self, parameters: QueryParameters, scope: Scope) -> tuple[CostQuery, list[str]]:
        """Parse the parameters, and select the clusters that the report covers."""
        settings = self._settings_store.current().settings
        query = parse_cost_query(parameters, settings, self._clock(), self._published_until)
        return query, self._clusters(parameters, query.period, scope)

    def _period(self, parameters: QueryParameters) -> Period:
        return parse_period(
            parameters.start, parameters.end, parameters.window, self._clock(), published_until=self._published_until
        )

    def _period_and_clusters(self, parameters: QueryParameters, scope: Scope) -> tuple[Period, list[str]]:
        period = self._period(parameters)
        check_period_length(period, "day")
        return period, self._clusters(parameters, period, scope)

    def _clusters(self, parameters: QueryParameters, period: Period, scope: Scope) -> list[str]:
        return select_clusters(parameters.cluster, self._settings_store.current(), scope, period.start)

    def _coverage(self, costs: PeriodCosts, clusters: Sequence[str], period: Period) -> PeriodCoverage:
        """Return the coverage. For clusters removed from the settings, only recorded hours are expected.

        An hour that is still computed is not expected.
        """
        current_clusters = {cluster.name for cluster in self._settings_store.current().settings.clusters}
        ended_hours = self._ended_hours(period)
        newest = self._newest_ended_hour()
        expected = 0
        for name in clusters:
            if name in current_clusters:
                is_pending = newest in ended_hours[-1:] and costs.newest_hours.get(name) != newest
                expected += len(ended_hours) - is_pending
            else:
                expected += costs.hour_counts[name]
        return costs.coverage(expected)

    def _newest_ended_hour(self) -> datetime:
        return floor_hour(self._clock()) - HOUR

    def _ended_hours(self, period: Period) -> list[datetime]:
        return hours_between(period.start, min(period.end, floor_hour(self._clock())))


def _check_row_count(rows: int) -> None:
    if rows > MAX_ROWS:
        raise InvalidInputError(
            f"the report would have more than {MAX_ROWS:,} rows. Shorten the period, or select one cluster."
        )


def _capacities_by_period(costs: PeriodCosts) -> dict[datetime, CapacityCosts | None]:
    """Return capacities summed over all clusters; None if one cluster's capacity is not known."""
    parts_by_period: dict[datetime, list[CapacityCosts | None]] = {}
    for (begin, _), capacity in costs.capacities.items():
        parts_by_period.setdefault(begin, []).append(capacity)
    return {begin: CapacityCosts.total_if_complete(parts) for begin, parts in parts_by_period.items()}
