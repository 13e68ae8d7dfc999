"""Routes of alerts, silences and budgets. They only read: changes are commands under the caller's own permissions."""

from collections.abc import Callable
from typing import Annotated

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query

from gpucost.core.query.periods import parse_moment_parameter, parse_period
from gpucost.features.alerting import schemas
from gpucost.features.alerting.month_budgets import BudgetService
from gpucost.features.alerting.queries import AlertQueries
from gpucost.http.report_parameters import Window
from gpucost.http.responses import describe_responses, json_response
from gpucost.http.routes import open_to, scope_of_caller

HistoryStart = Annotated[
    str | None,
    Query(
        description="Start of the history: a UTC time, or a day for its first moment. Pass start and end, or window. "
        "Default: the last 24 hours",
        examples=["2026-11-18T00:00:00Z", "2026-11-18"],
    ),
]
HistoryEnd = Annotated[
    str | None,
    Query(
        description="End of the history, exclusive; at most 100 days after start",
        examples=["2026-11-19T00:00:00Z", "2026-11-19"],
    ),
]


def add_alert_routes(
    app: APIGatewayHttpResolver, queries: Callable[[], AlertQueries], budget_service: Callable[[], BudgetService]
) -> None:
    """Add the routes to an app; the services are made on the first request."""

    @app.get(
        "/v1/alerts",
        summary="List active alerts and the alert history",
        tags=["alerts"],
        responses=describe_responses(schemas.AlertsResponse),
    )
    @open_to("bu")
    def alerts(start: HistoryStart = None, end: HistoryEnd = None, window: Window = None) -> Response[str]:
        """Pending and firing alerts now, and all events of the hours of a period.

        Callers who may only see some business units get the alerts of these, without those of clusters and node pools.
        """
        period = parse_period(start, end, window, queries().now(), parse=parse_moment_parameter)
        scope = scope_of_caller(app)
        active = [listed for listed in queries().active_alerts() if scope.covers(listed.alert.subject.business_unit)]
        history = [
            notification
            for notification in queries().notifications(period.start, period.end)
            if scope.covers(notification.subject.business_unit)
        ]
        return json_response(schemas.alerts_response(period, active, history), remedy="Shorten the period.")

    @app.get(
        "/v1/silences", summary="List silences", tags=["alerts"], responses=describe_responses(schemas.SilencesResponse)
    )
    @open_to("viewer")
    def silences() -> Response[str]:
        """Active and future silences, and those of the last three months, each with its author and end."""
        response = schemas.silences_response(queries().silences(), queries().now())
        return json_response(response, remedy="List them with `gpucost alerts silence list`.")

    @app.get(
        "/v1/budgets",
        summary="List the current month's spend against the budgets",
        tags=["alerts"],
        responses=describe_responses(schemas.BudgetsResponse),
    )
    @open_to("bu")
    def budgets() -> Response[str]:
        """Every business unit with a budget in the settings: what it spent this UTC month, and the projection.

        The projection assumes that hours without figures cost as much as the others. Forecasts are in /v1/forecasts.
        """
        response = schemas.budgets_response(budget_service().current_month(scope_of_caller(app)))
        return json_response(response, remedy="/v1/forecasts has the budget of a business_unit.")
