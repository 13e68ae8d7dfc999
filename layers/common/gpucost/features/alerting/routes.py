"""Routes of alerts and silences; what changes them is a command under the caller's own IAM."""

from collections.abc import Callable
from typing import Annotated

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query

from gpucost.core.query.periods import parse_moment_parameter, parse_period
from gpucost.features.alerting import schemas as alert_schemas
from gpucost.features.alerting.queries import AlertQueries
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.report_parameters import Window
from gpucost.http.responses import json_response, responses

Start = Annotated[
    str | None,
    Query(
        description="First moment of the history, UTC, or a day for its first. With end; or pass window; without any, "
        "the last 24 hours",
        examples=["2026-11-18T00:00:00Z", "2026-11-18"],
    ),
]
End = Annotated[
    str | None,
    Query(
        description="End of it, itself not in it; at most 100 days later",
        examples=["2026-11-19T00:00:00Z", "2026-11-19"],
    ),
]


def add_alert_routes(app: APIGatewayHttpResolver, desk: Callable[[], AlertQueries]) -> None:
    """Put the routes on an app; the desk is made when it is first asked."""

    @app.get(
        "/v1/alerts",
        summary="Alerts that are active, and their history",
        tags=["alerts"],
        responses=responses(alert_schemas.AlertsAnswer),
    )
    @open_to("bu")
    def alerts(start: Start = None, end: End = None, window: Window = None) -> Response[str]:
        """Pending and firing alerts now, and everything that was decided by the hours of a period.

        Who may see some business units only sees their alerts, and none of clusters and node pools.
        """
        period = parse_period(start, end, window, desk().now(), parse=parse_moment_parameter)
        scope = scope_of_caller(app)
        active = [one for one in desk().active() if scope.covers(one.alert.subject.business_unit)]
        history = [one for one in desk().history(period.start, period.end) if scope.covers(one.subject.business_unit)]
        return json_response(alert_schemas.alerts_answer(period, active, history))

    @app.get(
        "/v1/silences",
        summary="Who wants to hear nothing of what, until when",
        tags=["alerts"],
        responses=responses(alert_schemas.SilencesAnswer),
    )
    @open_to("viewer")
    def silences() -> Response[str]:
        """Silences in force, to come, and of the last three months, each with its author and end."""
        return json_response(alert_schemas.silences_answer(desk().silences(), desk().now()))
