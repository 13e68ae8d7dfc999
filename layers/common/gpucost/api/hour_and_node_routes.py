"""Routes of reports on hours, nodes and restatements. Each route calls the report service once."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response

from gpucost.api import price_and_node_schemas
from gpucost.core.query.cost_query import MAX_PAGE_SIZE
from gpucost.http import report_parameters as parameters
from gpucost.http import schemas
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.pagination import json_page
from gpucost.http.responses import describe_ok_response, describe_responses, json_response
from gpucost.reports.nodes import DEFAULT_NODES
from gpucost.reports.parameters import QueryParameters
from gpucost.reports.report_service import ReportService
from gpucost.runtime.json_text import dumps_row


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
        responses=describe_responses(price_and_node_schemas.NodesResponse),
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
        rows = map(price_and_node_schemas.node_row_json, node_page.rows)
        return json_page(schemas.period_fields(period), rows, node_page.cursor_after, {})

    @app.get(
        "/v1/restatements",
        summary="Which hours were restated, and why",
        tags=["reports"],
        responses=describe_responses(price_and_node_schemas.RestatementsResponse),
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
        rows = (dumps_row(price_and_node_schemas.restatement_fields(row)) for row in restatements_page.rows)
        return json_page(schemas.period_fields(period), rows, restatements_page.cursor_after, {})

    @app.get("/health", summary="Whether the function runs", tags=["service"], responses=_health_responses())
    @open_to("public")
    def health() -> Response[str]:
        """Returns ok if the function runs. Public; the database is not checked."""
        return json_response({"status": "ok"})


def _health_responses() -> dict[int, Any]:
    return {int(HTTPStatus.OK): describe_ok_response(schemas.Health)}
