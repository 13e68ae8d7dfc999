"""What can be asked, with every parameter described; each route calls the report service once."""

from collections.abc import Callable
from datetime import datetime
from http import HTTPStatus
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query

from gpucost.api import price_schemas, schemas
from gpucost.api.access import open_to, scope_of_caller
from gpucost.api.problems import PROBLEM_JSON, SECURITY_HEADERS
from gpucost.domain.hours import parse_instant
from gpucost.encoding import csv_text, dumps
from gpucost.errors import InvalidInputError, ParameterError
from gpucost.services.reports import Granularity, ReportService, parse_group_by

JSON = "application/json"
LARGEST_BODY = 5_500_000
"""Lambda answers 6 MB at most, envelope included."""

Start = Annotated[
    str,
    Query(description="First moment of the period, a full UTC hour (or day)", examples=["2026-11-18T00:00:00Z"]),
]
End = Annotated[
    str,
    Query(
        description="End of the period, a full UTC hour (or day), itself not in it; after start",
        examples=["2026-11-19T00:00:00Z"],
    ),
]
Cluster = Annotated[
    str | None, Query(description="Only this cluster; all of the settings where not given", examples=["demo"])
]
GroupBy = Annotated[
    str,
    Query(
        description="Comma-separated dimensions: business_unit, namespace. Without: one row per period",
        examples=["business_unit", "business_unit,namespace"],
    ),
]
Grain = Annotated[
    Granularity, Query(description="Length of a row's period: hour (up to 35 days) or UTC day (up to 100 days)")
]
Format = Annotated[Literal["json", "csv"], Query(description="csv is a download of the rows alone")]


def add_routes(app: APIGatewayHttpResolver, service: Callable[[], ReportService]) -> None:
    """Put the routes on an app; the service is made when it is first asked."""

    @app.get(
        "/v1/costs",
        summary="Costs by period and group",
        tags=["reports"],
        responses=answers(schemas.CostsAnswer, extra={"text/csv": {"schema": {"type": "string"}}}),
    )
    @open_to("bu")
    def costs(
        start: Start,
        end: End,
        granularity: Grain = "hour",
        group_by: GroupBy = "",
        cluster: Cluster = None,
        format: Format = "json",  # noqa: A002 - the parameter's public name
    ) -> Response[str]:
        """What GPUs cost, per period and group.

        Hours that are missing or incomplete add nothing and are seen in `coverage`; a period in which no hour has
        figures has no row. Amounts are exact decimals written as JSON numbers.
        """
        dimensions = parse_group_by(group_by)
        first, last = instant_of("start", start), instant_of("end", end)
        report = service().costs(first, last, granularity, dimensions, cluster, scope=scope_of_caller(app))
        if format == "csv":
            return _csv(csv_text(*schemas.costs_table(report, dimensions)), "costs.csv")
        return json_answer(schemas.costs_answer(report, granularity, dimensions))

    @app.get(
        "/v1/business-units",
        summary="Business units with their sums",
        tags=["reports"],
        responses=answers(schemas.BusinessUnitsAnswer),
    )
    @open_to("bu")
    def business_units(start: Start, end: End, cluster: Cluster = None) -> Response[str]:
        """Every business unit with its sum over the whole period; units of the settings that held nothing have 0."""
        first, last = instant_of("start", start), instant_of("end", end)
        report = service().business_units(first, last, cluster, scope=scope_of_caller(app))
        return json_answer(schemas.business_units_answer(report))

    @app.get("/v1/hours", summary="Where every hour stands", tags=["reports"], responses=answers(schemas.HoursAnswer))
    @open_to("viewer")
    def hours(start: Start, end: End, cluster: Cluster = None) -> Response[str]:
        """Status, coverage, version and notes of every cluster-hour that has ended; `missing` was never published."""
        first, last = instant_of("start", start), instant_of("end", end)
        found = service().hours(first, last, cluster, scope=scope_of_caller(app))
        return json_answer(schemas.hours_answer(first, last, *found))

    @app.get(
        "/v1/nodes",
        summary="What every node cost, and from which source",
        tags=["reports"],
        responses=answers(price_schemas.NodesAnswer),
    )
    @open_to("viewer")
    def nodes(start: Start, end: End, cluster: Cluster = None) -> Response[str]:
        """Every GPU node in every hour of at most 48: its price, the source and the split of it, what nobody held.

        Beside the nodes stands what was paid for without one.
        """
        first, last = instant_of("start", start), instant_of("end", end)
        found = service().nodes(first, last, cluster, scope=scope_of_caller(app))
        return json_answer(price_schemas.nodes_answer(first, last, found))

    @app.get(
        "/v1/restatements",
        summary="Which hours were restated, and why",
        tags=["reports"],
        responses=answers(price_schemas.RestatementsAnswer),
    )
    @open_to("viewer")
    def restatements(start: Start, end: End, cluster: Cluster = None) -> Response[str]:
        """Versions that replaced figures of hours in the period: before, after, and why.

        `/v1/costs` answers the version in force; here stands what it replaced.
        """
        first, last = instant_of("start", start), instant_of("end", end)
        found = service().restatements(first, last, cluster, scope=scope_of_caller(app))
        return json_answer(price_schemas.restatements_answer(first, last, found))

    @app.get("/health", summary="Whether the function runs", tags=["service"], responses=_healthy())
    @open_to("public")
    def health() -> Response[str]:
        """Says that the function runs; public, and asks nothing of the database."""
        return json_answer({"status": "ok"})


def answers(model: type[Any], extra: dict[str, Any] | None = None) -> dict[int, Any]:
    """What a route may answer, for the OpenAPI document."""
    found = {
        int(status): {"description": text, "content": {PROBLEM_JSON: {"model": schemas.Problem}}}
        for status, text in (
            (HTTPStatus.BAD_REQUEST, "A parameter is wrong: the answer names it and says what is allowed"),
            (HTTPStatus.FORBIDDEN, "The caller's roles do not suffice: the answer says which does"),
            (HTTPStatus.BAD_GATEWAY, "The database did not answer; try again"),
            (HTTPStatus.SERVICE_UNAVAILABLE, "No settings have been pushed to this deployment yet"),
        )
    }
    return {int(HTTPStatus.OK): _ok(model, extra), **found}


def _healthy() -> dict[int, Any]:
    return {int(HTTPStatus.OK): _ok(schemas.Health)}


def _ok(model: type[Any], extra: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"description": "The answer", "content": {JSON: {"model": model}, **(extra or {})}}


def instant_of(parameter: str, text: str) -> datetime:
    """A parameter that is a UTC time.

    Raises:
        ParameterError: it is not; says what is allowed.
    """
    try:
        return parse_instant(text)
    except (ValueError, OverflowError) as error:
        raise ParameterError(parameter, str(error)) from None


def json_answer(document: dict[str, Any]) -> Response[str]:
    """An answer, numbers exact.

    Raises:
        InvalidInputError: too large for Lambda to send.
    """
    return Response(HTTPStatus.OK, JSON, _bounded(dumps(document)), headers=dict(SECURITY_HEADERS))


def _csv(text: str, name: str) -> Response[str]:
    headers = {**SECURITY_HEADERS, "Content-Disposition": f'attachment; filename="{name}"'}
    return Response(HTTPStatus.OK, "text/csv; charset=utf-8", _bounded(text), headers=headers)


def _bounded(text: str) -> str:
    if len(text.encode()) > LARGEST_BODY:
        raise InvalidInputError(
            "the answer would be too large to send; shorten the period, ask for granularity=day, group by less, "
            "or name one cluster"
        )
    return text
