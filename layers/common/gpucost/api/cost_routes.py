"""Routes of cost reports: costs, business units, workloads, trends and waste."""

from collections.abc import Callable, Iterator
from datetime import datetime

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response

from gpucost.api import cost_schemas as schemas
from gpucost.core.amounts import Costs
from gpucost.core.query.cost_query import MAX_PAGE_SIZE
from gpucost.core.query.dimensions import DIMENSIONS, LINE_DIMENSIONS
from gpucost.http import report_parameters as parameters
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.pagination import csv_page, json_lines_page, json_page
from gpucost.http.responses import describe_responses, json_response
from gpucost.reports.parameters import QueryParameters
from gpucost.reports.records import CostReport
from gpucost.reports.report_service import ReportService
from gpucost.reports.waste import DEFAULT_TOP_WASTERS
from gpucost.runtime.json_text import dumps_row, figures_template, fixed_point_text

_COST_FILTERS = (
    *(name for name in DIMENSIONS if name not in {"cluster", *LINE_DIMENSIONS}),
    "label",
    *(name for name in DIMENSIONS if name in LINE_DIMENSIONS),
)


def add_cost_routes(app: APIGatewayHttpResolver, service: Callable[[], ReportService]) -> None:
    """Register the routes. The service is made on its first use."""

    @app.get(
        "/v1/costs",
        summary="Costs by period and group",
        tags=["reports"],
        responses=describe_responses(
            schemas.CostsResponse,
            extra_content={name: {"schema": {"type": "string"}} for name in ("text/csv", "application/jsonl")},
        ),
    )
    @open_to("bu")
    @parameters.with_filters(*_COST_FILTERS)
    def costs(
        *,
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        granularity: parameters.RowGranularity = "hour",
        group_by: parameters.GroupBy = "",
        cluster: parameters.Cluster = None,
        filters: parameters.Filters,
        idle: parameters.Idle = "hidden",
        sort: parameters.Sort = "",
        limit: parameters.Limit = MAX_PAGE_SIZE,
        cursor: parameters.Cursor = None,
        format: parameters.Format = "json",  # noqa: A002 - the parameter's public name
    ) -> Response[str]:
        """GPU costs by period and group.

        Missing and incomplete hours add nothing to any figure; `coverage` counts them. A period in which no hour has
        figures has no row. Amounts are exact decimals, written as JSON numbers. Totals are those of the fleet:
        grouping, filters and pages do not change them. The rows of all pages and `filtered_out` add up to the totals.
        """
        query_parameters = QueryParameters(
            start=start,
            end=end,
            window=window,
            granularity=granularity,
            group_by=group_by,
            filters=filters,
            cluster=cluster,
            idle=idle,
            sort=sort,
            limit=limit,
            cursor=cursor,
        )
        report = service().costs(query_parameters, scope=scope_of_caller(app))
        if format == "csv":
            return csv_page(*schemas.costs_table(report), report.cursor_after, "costs.csv", report.period)
        shape = json_page if format == "json" else json_lines_page
        query = report.query
        before = schemas.fields_before_rows(
            report, granularity=query.granularity, group_by=query.group_by, idle=query.idle
        )
        after = schemas.page_fields_after_rows(report, filtered_out=schemas.filtered_out_figures(report))
        return shape(before, cost_rows_json(report), report.cursor_after, after)

    @app.get(
        "/v1/business-units",
        summary="Costs of all business units",
        tags=["reports"],
        responses=describe_responses(schemas.BusinessUnitsResponse),
    )
    @open_to("bu")
    def business_units(
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
    ) -> Response[str]:
        """Costs of every business unit over the period. Business units of the settings without GPUs have zeros."""
        report = service().business_units(
            QueryParameters(start=start, end=end, window=window, cluster=cluster), scope=scope_of_caller(app)
        )
        rows = [{**row.group, **row.costs.figures()} for row in report.rows]
        after = {**schemas.fields_after_rows(report), "cursor": None}
        return json_response({**schemas.fields_before_rows(report), "rows": rows, **after})

    @app.get(
        "/v1/business-units/<name>",
        summary="Costs of one business unit by period",
        tags=["reports"],
        responses=describe_responses(schemas.BusinessUnitResponse, can_be_missing=True),
    )
    @open_to("bu")
    def business_unit(
        name: parameters.UnitName,
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        granularity: parameters.RowGranularity = "day",
        cluster: parameters.Cluster = None,
    ) -> Response[str]:
        """Costs of one business unit by period. The totals are those of the business unit."""
        query_parameters = QueryParameters(
            start=start, end=end, window=window, granularity=granularity, cluster=cluster
        )
        report = service().business_unit(name, query_parameters, scope=scope_of_caller(app))
        rows = [{"start": row.start, "end": row.end, **row.costs.figures()} for row in report.rows]
        before = {"business_unit": name, **schemas.fields_before_rows(report), "granularity": report.query.granularity}
        after = schemas.fields_after_rows(report, totals=schemas.cost_totals(report))
        return json_response({**before, "rows": rows, **after})

    @app.get(
        "/v1/business-units/<name>/workloads",
        summary="Costs of one business unit's workloads",
        tags=["reports"],
        responses=describe_responses(schemas.WorkloadsResponse, can_be_missing=True),
    )
    @open_to("bu")
    def workloads(
        name: parameters.UnitName,
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
        sort: parameters.WorkloadSort = "-allocated_usd",
        limit: parameters.Limit = 1_000,
        cursor: parameters.Cursor = None,
    ) -> Response[str]:
        """Costs of each workload of a business unit over the period, most expensive first."""
        query_parameters = QueryParameters(
            start=start, end=end, window=window, cluster=cluster, sort=sort, limit=limit, cursor=cursor
        )
        report = service().workloads(name, query_parameters, scope=scope_of_caller(app))
        rows = (dumps_row({**row.group, **row.costs.figures()}) for row in report.rows)
        before = {"business_unit": name, **schemas.fields_before_rows(report)}
        after = schemas.page_fields_after_rows(report, totals=schemas.cost_totals(report))
        return json_page(before, rows, report.cursor_after, after)

    @app.get(
        "/v1/business-units/<name>/trend",
        summary="Costs of one business unit vs the previous period",
        tags=["reports"],
        responses=describe_responses(schemas.TrendResponse, can_be_missing=True),
    )
    @open_to("bu")
    def trend(
        name: parameters.UnitName,
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
    ) -> Response[str]:
        """Costs of a business unit in a period and in the previous one, with the change in amounts and percent.

        The previous period has the same length; for a calendar month it is the previous month. Percent is null if the
        previous amount is 0 or one of the two is not known.
        """
        unit_trend = service().trend(
            name, QueryParameters(start=start, end=end, window=window, cluster=cluster), scope=scope_of_caller(app)
        )
        return json_response(schemas.trend_response(name, unit_trend))

    @app.get("/v1/waste", summary="Top wasters", tags=["reports"], responses=describe_responses(schemas.WasteResponse))
    @open_to("bu")
    @parameters.with_filters("business_unit", "namespace")
    def waste(
        *,
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
        filters: parameters.Filters,
        limit: parameters.TopWasterLimit = DEFAULT_TOP_WASTERS,
        cursor: parameters.Cursor = None,
    ) -> Response[str]:
        """Workloads with the most waste, the day since which they have had waste every day, and their pods with waste.

        The pods are those of the newest hour with figures.
        """
        query_parameters = QueryParameters(
            start=start, end=end, window=window, cluster=cluster, filters=filters, limit=limit, cursor=cursor
        )
        report, top_wasters = service().waste(query_parameters, scope=scope_of_caller(app))
        rows = map(dumps_row, map(schemas.top_waster_row, top_wasters))
        after = schemas.page_fields_after_rows(report)
        return json_page(schemas.fields_before_rows(report), rows, report.cursor_after, after)


_FIGURES_TEMPLATE = figures_template(Costs.names())


def cost_rows_json(report: CostReport) -> Iterator[str]:
    """Yield each row as `cost_schemas.CostRow`. All rows of a report have the same dimensions, in the same order."""
    periods: dict[datetime, str] = {}
    groups: dict[tuple[str, ...], str] = {}
    has_idle = report.query.idle != "hidden"
    for row in report.rows:
        period = periods.get(row.start)
        if period is None:
            period = periods[row.start] = dumps_row({"start": row.start, "end": row.end})[:-1]
        names = tuple(row.group.values())
        group = groups.get(names)
        if group is None:
            group = groups[names] = dumps_row(row.group)
        figures = _FIGURES_TEMPLATE % tuple(map(fixed_point_text, row.costs.published_amounts()))
        if has_idle:
            yield f'{period}, "group": {group}, "kind": "{row.kind}"{figures}, {dumps_row(row.idle_figures())[1:]}'
        else:
            yield f'{period}, "group": {group}{figures}}}'
