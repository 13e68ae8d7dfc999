"""The route of forecasts."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Literal

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import Field

from gpucost.features.recommendations.forecast import Backtest
from gpucost.features.recommendations.forecasts import ForecastService, PeriodForecast
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.responses import describe_responses, json_response
from gpucost.http.schemas import ResponseModel

BusinessUnitParameter = Annotated[
    str, Query(description="The business unit", examples=["research"], min_length=1, max_length=200)
]
PeriodParameter = Annotated[Literal["month", "quarter"], Query(description="The current UTC month or quarter")]


_BACKTEST_DESCRIPTIONS = {
    "hours": "Length of each forecast, in hours",
    "evaluated": "Number of past forecasts",
    "covered": "Number of past forecasts whose interval contains the actual cost",
}


class BacktestFigures(ResponseModel, record=Backtest, descriptions=_BACKTEST_DESCRIPTIONS):
    """Past forecasts, each made from earlier hours only, and how many of them covered the actual cost."""


_DESCRIPTIONS = {
    "spent_usd": "Allocated cost so far of GPU-hours with a price; exact",
    "hours_known": "Hours so far that are completely priced",
    "hours_unknown": "Hours so far without figures or with a missing price. The projection uses the mean of the others",
    "projected_usd": "Cost at the period's end by the pattern of past weeks; null with less than two weeks of history",
    "interval_percent": "How often the actual cost should be between low and high",
    "run_rate_usd": "Cost at the period's end if hours without figures cost as much as the others, as budget alerts "
    "and /v1/budgets project it; null with less than a day of hours, or without half of them",
    "budget_usd": "From the settings' budget rules; three months' for a quarter",
}
_EXAMPLES = {"interval_percent": [80], "currency": ["USD"]}


class ForecastResponse(ResponseModel, record=PeriodForecast, descriptions=_DESCRIPTIONS, examples=_EXAMPLES):
    """GET /v1/forecasts."""

    backtest: BacktestFigures | None = Field(
        description="How often the actual cost was between low and high; null if the history is too short"
    )


def add_forecast_routes(app: APIGatewayHttpResolver, service: Callable[[], ForecastService]) -> None:
    """Add the route to an app; `service` is called at the first request."""

    @app.get(
        "/v1/forecasts",
        summary="The expected cost of a month or quarter",
        tags=["forecasts"],
        responses=describe_responses(ForecastResponse, can_be_missing=True),
    )
    @open_to("bu")
    def forecast(business_unit: BusinessUnitParameter, period: PeriodParameter = "month") -> Response[str]:
        """The expected cost of a business unit's period with an interval, and its budget.

        The forecast repeats the last eight weeks' pattern at the newest weeks' level, without trend and holidays.
        """
        scope = scope_of_caller(app)
        return json_response(
            asdict(service().forecast(business_unit, period, scope=scope)), remedy="Select period=month."
        )
