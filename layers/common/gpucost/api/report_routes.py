"""Routes of reports: costs, business units, workloads, waste, models, lines, hours, nodes, limits and prices.

Each route calls one service once.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Annotated, Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query

from gpucost.api import report_schemas
from gpucost.core.amounts import Costs
from gpucost.core.errors import ParameterError
from gpucost.core.hour_record import ModelKey
from gpucost.core.pricing.prices import PriceSource
from gpucost.core.query.cost_query import MAX_PAGE_SIZE
from gpucost.core.query.dimensions import DIMENSIONS, LINE_DIMENSIONS
from gpucost.core.query.periods import Period, parse_moment_parameter
from gpucost.http import report_parameters as parameters
from gpucost.http import schemas
from gpucost.http.responses import csv_page, describe_responses, json_lines_page, json_page, json_response
from gpucost.http.routes import open_to, scope_of_caller
from gpucost.reports.limit_reports import LimitReports
from gpucost.reports.pages import DEFAULT_LINES, DEFAULT_NODES, LINE_FILTERS, PriceBookListing
from gpucost.reports.parameters import QueryParameters
from gpucost.reports.records import CostReport
from gpucost.reports.report_service import ReportService
from gpucost.reports.waste import DEFAULT_TOP_WASTERS
from gpucost.runtime.json_text import dumps_row, figures_template, fixed_point_text

# Routes of cost reports: costs, business units, workloads, trends and waste.

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
            report_schemas.CostsResponse,
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
            return csv_page(*report_schemas.costs_table(report), report.cursor_after, "costs.csv", report.period)
        shape = json_page if format == "json" else json_lines_page
        query = report.query
        before = report_schemas.fields_before_rows(
            report, granularity=query.granularity, group_by=query.group_by, idle=query.idle
        )
        after = report_schemas.page_fields_after_rows(report, filtered_out=report_schemas.filtered_out_figures(report))
        return shape(before, cost_rows_json(report), report.cursor_after, after)

    @app.get(
        "/v1/business-units",
        summary="Costs of all business units",
        tags=["reports"],
        responses=describe_responses(report_schemas.BusinessUnitsResponse),
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
        after = {**report_schemas.fields_after_rows(report), "cursor": None}
        return json_response({**report_schemas.fields_before_rows(report), "rows": rows, **after})

    @app.get(
        "/v1/business-units/<name>",
        summary="Costs of one business unit by period",
        tags=["reports"],
        responses=describe_responses(report_schemas.BusinessUnitResponse, can_be_missing=True),
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
        before = report_schemas.fields_before_rows(report)
        before = {"business_unit": name, **before, "granularity": report.query.granularity}
        after = report_schemas.fields_after_rows(report, totals=report_schemas.cost_totals(report))
        return json_response({**before, "rows": rows, **after})

    @app.get(
        "/v1/business-units/<name>/workloads",
        summary="Costs of one business unit's workloads",
        tags=["reports"],
        responses=describe_responses(report_schemas.WorkloadsResponse, can_be_missing=True),
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
        before = {"business_unit": name, **report_schemas.fields_before_rows(report)}
        after = report_schemas.page_fields_after_rows(report, totals=report_schemas.cost_totals(report))
        return json_page(before, rows, report.cursor_after, after)

    @app.get(
        "/v1/business-units/<name>/trend",
        summary="Costs of one business unit vs the previous period",
        tags=["reports"],
        responses=describe_responses(report_schemas.TrendResponse, can_be_missing=True),
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
        return json_response(report_schemas.trend_response(name, unit_trend))

    @app.get(
        "/v1/waste", summary="Top wasters", tags=["reports"], responses=describe_responses(report_schemas.WasteResponse)
    )
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
        rows = map(dumps_row, map(report_schemas.top_waster_row, top_wasters))
        after = report_schemas.page_fields_after_rows(report)
        return json_page(report_schemas.fields_before_rows(report), rows, report.cursor_after, after)


_FIGURES_TEMPLATE = figures_template(Costs.names())


def cost_rows_json(report: CostReport) -> Iterator[str]:
    """Yield each row as `report_schemas.CostRow`. All rows of a report have the same dimensions, in the same order."""
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


# Routes that explain costs: the parts of the node cost by period, and single lines.


def add_fleet_and_line_routes(app: APIGatewayHttpResolver, service: Callable[[], ReportService]) -> None:
    """Register the routes. The service is made on its first use."""

    @app.get(
        "/v1/fleet",
        summary="Parts of the fleet's node cost by period",
        tags=["reports"],
        responses=describe_responses(report_schemas.FleetResponse),
    )
    @open_to("bu")
    def fleet(
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        granularity: parameters.RowGranularity = "hour",
        cluster: parameters.Cluster = None,
    ) -> Response[str]:
        """The fleet's node cost in every period and its parts.

        effective + waste + unmeasured + unallocated + stranded + unobserved + host + residual = node cost, exactly.
        Callers who may see some business units get only the costs of these, without capacity.
        """
        query_parameters = QueryParameters(
            start=start, end=end, window=window, granularity=granularity, cluster=cluster
        )
        report, rows = service().fleet(query_parameters, scope=scope_of_caller(app))
        before = report_schemas.fields_before_rows(report, granularity=report.query.granularity)
        return json_response(
            {
                **before,
                "rows": [report_schemas.fleet_period_fields(*row) for row in rows],
                **report_schemas.fields_after_rows(report),
            }
        )

    @app.get(
        "/v1/lines",
        summary="Lines: single pods in single hours",
        tags=["reports"],
        responses=describe_responses(report_schemas.LinesResponse),
    )
    @open_to("bu")
    @parameters.with_filters(*LINE_FILTERS)
    def lines(
        *,
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
        filters: parameters.Filters,
        limit: parameters.LineLimit = DEFAULT_LINES,
        cursor: parameters.Cursor = None,
    ) -> Response[str]:
        """Every pod that held GPUs, in every hour of at most 48.

        Each line has the GPU share of a unit and its source, the price and its source, and the utilization and its
        source. Together they explain the line's cost.
        """
        query_parameters = QueryParameters(
            start=start, end=end, window=window, cluster=cluster, filters=filters, limit=limit, cursor=cursor
        )
        period, lines_page = service().lines(query_parameters, scope=scope_of_caller(app))
        rows = (dumps_row(report_schemas.line_fields(*row)) for row in lines_page.rows)
        return json_page(schemas.period_fields(period), rows, lines_page.cursor_after, {})


# The route of costs and tokens by model.


def add_inference_routes(app: APIGatewayHttpResolver, service: Callable[[], ReportService]) -> None:
    """Register the route. The service is made on its first use."""

    @app.get(
        "/v1/inference",
        summary="Costs and tokens by model",
        tags=["reports"],
        responses=describe_responses(
            report_schemas.InferenceResponse,
            extra_content={name: {"schema": {"type": "string"}} for name in ("text/csv", "application/jsonl")},
        ),
    )
    @open_to("bu")
    @parameters.with_filters(*ModelKey._fields)
    def inference(
        *,
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        granularity: parameters.RowGranularity = "hour",
        group_by: parameters.ModelGroupBy = "",
        cluster: parameters.Cluster = None,
        filters: parameters.Filters,
        sort: parameters.ModelSort = "",
        limit: parameters.Limit = MAX_PAGE_SIZE,
        cursor: parameters.Cursor = None,
        format: parameters.Format = "json",  # noqa: A002 - the parameter's public name
    ) -> Response[str]:
        """What models cost: the cost of the GPUs of inference servers, by model, with tokens and unit costs.

        Each hour's costs add up to those of `/v1/costs` in hours in which inference servers were seen. The period has
        at most 2,520 cluster-hours. The role `bu` sees the pods that its business units own; with the filter
        `consumer`, it sees instead what its business units used, whoever owns the pods.
        """
        query_parameters = QueryParameters(
            start=start,
            end=end,
            window=window,
            granularity=granularity,
            group_by=group_by,
            filters=filters,
            cluster=cluster,
            sort=sort,
            limit=limit,
            cursor=cursor,
        )
        report = service().inference(query_parameters, scope=scope_of_caller(app))
        if format == "csv":
            return csv_page(*report_schemas.models_table(report), report.cursor_after, "inference.csv", report.period)
        rows = (
            dumps_row({"start": row.start, "end": row.end, "group": row.group, **row.figures}) for row in report.rows
        )
        before = {
            **schemas.period_fields(report.period),
            "granularity": report.query.granularity,
            "group_by": report.query.group_by,
            "currency": report.currency,
        }
        after = {
            "row_count": report.row_count,
            "totals": report.totals,
            "filtered_out": report.filtered_out,
            "coverage": schemas.coverage_fields(report.coverage),
            "hours_with_servers": report.hours_with_servers,
        }
        if format == "json":
            return json_page(before, rows, report.cursor_after, after)
        return json_lines_page(before, rows, report.cursor_after, after, "inference.jsonl")


# Routes of reports on hours, nodes and restatements.


def add_hour_and_node_routes(app: APIGatewayHttpResolver, service: Callable[[], ReportService]) -> None:
    """Register the routes. The service is made on its first use."""

    @app.get(
        "/v1/hours",
        summary="Status of every hour",
        tags=["reports"],
        responses=describe_responses(schemas.HoursResponse),
    )
    @open_to("viewer")
    def hours(
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
        limit: parameters.Limit = MAX_PAGE_SIZE,
        cursor: parameters.Cursor = None,
    ) -> Response[str]:
        """Status, coverage, version and notes of every cluster-hour that has ended.

        `pending` is the newest one while it is computed; `missing` means never published. `closed` hours are those of
        closed months.
        """
        query_parameters = QueryParameters(
            start=start, end=end, window=window, cluster=cluster, limit=limit, cursor=cursor
        )
        period, hours_page, coverage = service().hours(query_parameters, scope=scope_of_caller(app))
        rows = (dumps_row(schemas.hour_fields(row)) for row in hours_page.rows)
        after = {"coverage": schemas.coverage_fields(coverage)}
        return json_page(schemas.period_fields(period), rows, hours_page.cursor_after, after)

    @app.get(
        "/v1/nodes",
        summary="Cost and price source of every node",
        tags=["reports"],
        responses=describe_responses(report_schemas.NodesResponse),
    )
    @open_to("viewer")
    def nodes(
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
        limit: parameters.NodeLimit = DEFAULT_NODES,
        cursor: parameters.Cursor = None,
    ) -> Response[str]:
        """Every GPU node in every hour of at most 48: price, price source, split policy, holders and unallocated parts.

        Charges without a node, such as unused commitments, have rows of their own.
        """
        period, node_page = service().nodes(
            QueryParameters(start=start, end=end, window=window, cluster=cluster, limit=limit, cursor=cursor),
            scope=scope_of_caller(app),
        )
        rows = map(report_schemas.node_row_json, node_page.rows)
        return json_page(schemas.period_fields(period), rows, node_page.cursor_after, {})

    @app.get(
        "/v1/restatements",
        summary="Which hours were restated, and why",
        tags=["reports"],
        responses=describe_responses(report_schemas.RestatementsResponse),
    )
    @open_to("viewer")
    def restatements(
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
        limit: parameters.Limit = MAX_PAGE_SIZE,
        cursor: parameters.Cursor = None,
    ) -> Response[str]:
        """Versions that replaced figures of hours in the period: figures before and after, and the reason.

        `/v1/costs` answers with the current version of each hour; this route lists the versions that it replaced. The
        figures of a closed month do not change: later versions are pending adjustments (`adjustment`).
        """
        period, restatements_page = service().restatements(
            QueryParameters(start=start, end=end, window=window, cluster=cluster, limit=limit, cursor=cursor),
            scope=scope_of_caller(app),
        )
        rows = (dumps_row(report_schemas.restatement_fields(row)) for row in restatements_page.rows)
        return json_page(schemas.period_fields(period), rows, restatements_page.cursor_after, {})


# Routes of node pool limits and resource quotas.


def add_pool_and_quota_routes(app: APIGatewayHttpResolver, service: Callable[[], LimitReports]) -> None:
    """Register the routes. The service is made on its first use."""

    @app.get(
        "/v1/nodepools",
        summary="Use and limits of node pools",
        tags=["reports"],
        responses=describe_responses(report_schemas.NodePoolsResponse),
    )
    @open_to("viewer")
    def node_pools(
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
    ) -> Response[str]:
        """GPUs of every Karpenter node pool and the pool's limit, at the end of each hour of at most 48."""
        query_parameters = QueryParameters(start=start, end=end, window=window, cluster=cluster)
        period, rows = service().pools(query_parameters, scope=scope_of_caller(app))
        return _rows_response(period, map(report_schemas.pool_fields, rows))

    @app.get(
        "/v1/quotas",
        summary="Use and limits of GPU quotas",
        tags=["reports"],
        responses=describe_responses(report_schemas.QuotasResponse),
    )
    @open_to("viewer")
    def quotas(
        start: parameters.Start = None,
        end: parameters.End = None,
        window: parameters.Window = None,
        cluster: parameters.Cluster = None,
    ) -> Response[str]:
        """GPU quotas of every namespace, and what it held and used, in each hour of at most 48."""
        query_parameters = QueryParameters(start=start, end=end, window=window, cluster=cluster)
        period, rows = service().quotas(query_parameters, scope=scope_of_caller(app))
        return _rows_response(period, map(report_schemas.quota_fields, rows))


def _rows_response(period: Period, rows: Iterable[dict[str, Any]]) -> Response[str]:
    return json_response({**schemas.period_fields(period), "rows": list(rows), "cursor": None})


# Routes of the price book.

PriceStart = Annotated[str, Query(description="Start of the period, UTC", examples=["2026-11-18T00:00:00Z"])]
PriceEnd = Annotated[
    str,
    Query(description="End of the period, exclusive; at most 35 days after start", examples=["2026-11-19T00:00:00Z"]),
]
PriceSourceFilter = Annotated[
    PriceSource | None, Query(description="Only prices of this source. Default: all", examples=["spot"])
]
InstanceTypeFilter = Annotated[
    str | None, Query(description="Only prices that can apply to this instance type", examples=["p5.48xlarge"])
]
PriceCursor = Annotated[
    str | None,
    Query(description="Cursor from the previous page. Send it with the same parameters", examples=["WzMsIFtdXQ=="]),
]


def add_price_routes(app: APIGatewayHttpResolver, listing: Callable[[], PriceBookListing]) -> None:
    """Register the routes. The listing is made on its first use."""

    @app.get(
        "/v1/prices",
        summary="The price book",
        tags=["prices"],
        responses=describe_responses(report_schemas.PricesResponse),
    )
    @open_to("admin")
    def prices(
        start: PriceStart,
        end: PriceEnd,
        source: PriceSourceFilter = None,
        instance_type: InstanceTypeFilter = None,
        cursor: PriceCursor = None,
    ) -> Response[str]:
        """Prices in force at some time of the period, fetched from AWS or set by hand.

        Prices in the settings (sources rates, constant, capacity-block) and prices from the bill are not included.
        """
        first, last = parse_moment_parameter("start", start), parse_moment_parameter("end", end)
        page = listing().page(first, last, source=source, instance_type=instance_type, after=_decode_position(cursor))
        return json_response(
            report_schemas.prices_response(first, last, page, _encode_position(page.next_position)),
            remedy="Shorten the period, or select one source or instance_type.",
        )


def _encode_position(position: str | None) -> str | None:
    return None if position is None else urlsafe_b64encode(position.encode()).decode()


def _decode_position(cursor: str | None) -> str:
    try:
        position = "[]" if cursor is None else urlsafe_b64decode(cursor.encode()).decode()
        is_valid = isinstance(json.loads(position), list)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ParameterError("cursor", "is invalid; pass the cursor of a previous response unchanged")
    return position if cursor else ""
