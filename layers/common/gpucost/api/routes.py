"""What can be asked, with every parameter described; each route calls the report service once."""

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response

from gpucost.api import price_schemas, schemas
from gpucost.api import report_parameters as given
from gpucost.api.access import open_to, scope_of_caller
from gpucost.api.pages import cut, paged_json
from gpucost.api.problems import PROBLEM_JSON, SECURITY_HEADERS
from gpucost.domain.reporting.paging import write_cursor
from gpucost.encoding import dumps, dumps_row
from gpucost.errors import InvalidInputError
from gpucost.services.reports import Asked, ReportService
from gpucost.services.reports.nodes import DEFAULT_NODES

JSON = "application/json"
LARGEST_BODY = 5_500_000
"""Lambda answers 6 MB at most, envelope included."""


def add_routes(app: APIGatewayHttpResolver, service: Callable[[], ReportService]) -> None:
    """Put the routes on an app; the service is made when it is first asked."""

    @app.get("/v1/hours", summary="Where every hour stands", tags=["reports"], responses=answers(schemas.HoursAnswer))
    @open_to("viewer")
    def hours(
        start: given.Start = None, end: given.End = None, window: given.Window = None, cluster: given.Cluster = None
    ) -> Response[str]:
        """Status, coverage, version and notes of every cluster-hour that has ended; `missing` was never published."""
        found = service().hours(Asked(start, end, window, cluster=cluster), scope=scope_of_caller(app))
        return json_answer(schemas.hours_answer(*found))

    @app.get(
        "/v1/nodes",
        summary="What every node cost, and from which source",
        tags=["reports"],
        responses=answers(price_schemas.NodesAnswer),
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
            Asked(start, end, window, cluster=cluster, limit=limit, cursor=cursor), scope=scope_of_caller(app)
        )

        def cursor_after(count: int) -> str | None:
            if count < len(found.rows):
                return write_cursor(found.rows[count].place, found.seal)
            return None if found.is_last else write_cursor(found.next_place, found.seal)

        page = cut(map(dumps_row, map(price_schemas.node_row, found.rows)), cursor_after)
        return paged_json(schemas.period_answer(found.period), page, {})

    @app.get(
        "/v1/restatements",
        summary="Which hours were restated, and why",
        tags=["reports"],
        responses=answers(price_schemas.RestatementsAnswer),
    )
    @open_to("viewer")
    def restatements(
        start: given.Start = None, end: given.End = None, window: given.Window = None, cluster: given.Cluster = None
    ) -> Response[str]:
        """Versions that replaced figures of hours in the period: before, after, and why.

        `/v1/costs` answers the version in force; here stands what it replaced. Where a month is frozen, its figures
        stay, and later versions are recorded beside them (`beside`).
        """
        found = service().restatements(Asked(start, end, window, cluster=cluster), scope=scope_of_caller(app))
        return json_answer(price_schemas.restatements_answer(*found))

    @app.get("/health", summary="Whether the function runs", tags=["service"], responses=_healthy())
    @open_to("public")
    def health() -> Response[str]:
        """Says that the function runs; public, and asks nothing of the database."""
        return json_answer({"status": "ok"})


def answers(model: type[Any], extra: dict[str, Any] | None = None, *, may_be_missing: bool = False) -> dict[int, Any]:
    """What a route may answer, for the OpenAPI document."""
    found = {
        int(status): {"description": text, "content": {PROBLEM_JSON: {"model": schemas.Problem}}}
        for status, text in (
            (HTTPStatus.BAD_REQUEST, "A parameter is wrong: the answer names it and says what is allowed"),
            (HTTPStatus.FORBIDDEN, "The caller's roles do not suffice: the answer says which does"),
            *([(HTTPStatus.NOT_FOUND, "What the path or the query names does not exist")] if may_be_missing else []),
            (HTTPStatus.BAD_GATEWAY, "The database did not answer; try again"),
            (HTTPStatus.SERVICE_UNAVAILABLE, "No settings have been pushed to this deployment yet"),
        )
    }
    return {int(HTTPStatus.OK): _ok(model, extra), **found}


def _healthy() -> dict[int, Any]:
    return {int(HTTPStatus.OK): _ok(schemas.Health)}


def _ok(model: type[Any], extra: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"description": "The answer", "content": {JSON: {"model": model}, **(extra or {})}}


def json_answer(document: dict[str, Any]) -> Response[str]:
    """An answer, numbers exact.

    Raises:
        InvalidInputError: too large for Lambda to send.
    """
    return Response(HTTPStatus.OK, JSON, _bounded(dumps(document)), headers=dict(SECURITY_HEADERS))


def _bounded(text: str) -> str:
    if len(text.encode()) > LARGEST_BODY:
        raise InvalidInputError("the answer would be too large to send; shorten the period, or name one cluster")
    return text
