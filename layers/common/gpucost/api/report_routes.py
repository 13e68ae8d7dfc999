"""What can be asked, with every parameter described; each route calls the report service once."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response

from gpucost.api import price_schemas
from gpucost.core.query.paging import write_cursor
from gpucost.http import report_parameters as given
from gpucost.http import schemas
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.pagination import fill_page, json_page
from gpucost.http.responses import json_response, ok_response, responses
from gpucost.reports import QueryParameters, ReportService
from gpucost.reports.nodes import DEFAULT_NODES
from gpucost.runtime.json_text import dumps_row


def add_report_routes(app: APIGatewayHttpResolver, service: Callable[[], ReportService]) -> None:
    """Put the routes on an app; the service is made when it is first asked."""

    @app.get("/v1/hours", summary="Where every hour stands", tags=["reports"], responses=responses(schemas.HoursResponse))
    @open_to("viewer")
    def hours(
        start: given.Start = None, end: given.End = None, window: given.Window = None, cluster: given.Cluster = None
    ) -> Response[str]:
        """Status, coverage, version and notes of every cluster-hour that has ended; `missing` was never published."""
        found = service().hours(QueryParameters(start, end, window, cluster=cluster), scope=scope_of_caller(app))
        return json_response(schemas.hours_response(*found))

    @app.get(
        "/v1/nodes",
        summary="What every node cost, and from which source",
        tags=["reports"],
        responses=responses(price_schemas.NodesResponse),
    )
    @open_to("viewer")
    def nodes(
        start: given.Start = None,
        end: given.End = None,
        window: given.Window = None,
        cluster: given.Cluster = None,
        limit: given.NodeLimit = DEFAULT_NODES,
        cursor: given.Cursor = None,
    ) -> Response[str]:
        """Every GPU node in every hour of at most 48: its price, its source and split, who held what, what nobody held.

        Beside the nodes stands what was paid for without one.
        """
        found = service().nodes(
            QueryParameters(start, end, window, cluster=cluster, limit=limit, cursor=cursor), scope=scope_of_caller(app)
        )

        def cursor_after(count: int) -> str | None:
            if count < len(found.rows):
                return write_cursor(found.rows[count].position, found.etag)
            return None if found.is_last else write_cursor(found.next_position, found.etag)

        page = fill_page(map(dumps_row, map(price_schemas.node_row, found.rows)), cursor_after)
        return json_page(schemas.period_fields(found.period), page, {})

    @app.get(
        "/v1/restatements",
        summary="Which hours were restated, and why",
        tags=["reports"],
        responses=responses(price_schemas.RestatementsResponse),
    )
    @open_to("viewer")
    def restatements(
        start: given.Start = None, end: given.End = None, window: given.Window = None, cluster: given.Cluster = None
    ) -> Response[str]:
        """Versions that replaced figures of hours in the period: figures before and after, and the reason.

        `/v1/costs` answers with the current version of each hour; this route lists the versions that it replaced. The
        figures of a closed month do not change: later versions are pending adjustments (`adjustment`).
        """
        found = service().restatements(QueryParameters(start, end, window, cluster=cluster), scope=scope_of_caller(app))
        return json_response(price_schemas.restatements_response(*found))

    @app.get("/health", summary="Whether the function runs", tags=["service"], responses=_healthy())
    @open_to("public")
    def health() -> Response[str]:
        """Says that the function runs; public, and asks nothing of the database."""
        return json_response({"status": "ok"})


def _healthy() -> dict[int, Any]:
    return {int(HTTPStatus.OK): ok_response(schemas.Health)}
