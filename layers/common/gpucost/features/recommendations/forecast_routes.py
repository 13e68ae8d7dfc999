"""The route of forecasts."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import Field

from gpucost.features.recommendations.forecasts import ForecastService, PeriodForecast
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.responses import json_response, responses
from gpucost.http.schemas import Amount, Instant, ResponseModel

BusinessUnitParameter = Annotated[
    str, Query(description="The business unit", examples=["research"], min_length=1, max_length=200)
]
PeriodParameter = Annotated[Literal["month", "quarter"], Query(description="The current UTC month or quarter")]


class BacktestFigures(ResponseModel):
    """Past forecasts, each made from earlier hours only, and how many of them covered the actual cost."""

    hours: int = Field(description="Length of each forecast, in hours")
    evaluated: int = Field(description="Number of past forecasts")
    covered: int = Field(description="Number of past forecasts whose interval contains the actual cost")


class ForecastResponse(ResponseModel):
    """GET /v1/forecasts."""

    business_unit: str
    period: Literal["month", "quarter"]
    start: Instant
    end: Instant
    known_until: Instant
    spent_usd: Amount = Field(description="Allocated cost so far, as far as it has a price; exact")
    hours_known: int = Field(description="Hours so far that are completely priced")
    hours_unknown: int = Field(
        description="Hours so far without figures or with a missing price. The projection uses the mean of the others"
    )
    projected_usd: Amount | None = Field(
        description="Cost at the period's end; null with less than two weeks of history"
    )
    low_usd: Amount | None
    high_usd: Amount | None
    interval_percent: int = Field(description="How often the actual cost should be between low and high", examples=[80])
    backtest: BacktestFigures | None = Field(description="How often it was; null if the history is too short")
    budget_usd: Amount | None = Field(description="From the settings' budget rules; three months' for a quarter")
    currency: str = Field(examples=["USD"])


def add_forecast_routes(app: APIGatewayHttpResolver, service: Callable[[], ForecastService]) -> None:
    """Add the route to an app; `service` is called at the first request."""

    @app.get(
        "/v1/forecasts",
        summary="The expected cost of a month or quarter",
        tags=["forecasts"],
        responses=responses(ForecastResponse, can_be_missing=True),
    )
    @open_to("bu")
    def forecast(business_unit: BusinessUnitParameter, period: PeriodParameter = "month") -> Response[str]:
        """The expected cost of a business unit's period with an interval, and its budget.

        The forecast repeats the last eight weeks' pattern at the newest weeks' level, without trend and holidays.
        """
        scope = scope_of_caller(app)
        return json_response(build_response(period, service().forecast(business_unit, period, scope=scope)))


def build_response(period: str, forecast: PeriodForecast) -> dict[str, Any]:
    """Build the `ForecastResponse`."""
    backtest = forecast.backtest
    return {
        "business_unit": forecast.business_unit,
        "period": period,
        "start": forecast.start,
        "end": forecast.end,
        "known_until": forecast.figures_until,
        "spent_usd": forecast.spent_usd,
        "hours_known": forecast.hours_known,
        "hours_unknown": forecast.hours_unknown,
        "projected_usd": forecast.projected_usd,
        "low_usd": forecast.low_usd,
        "high_usd": forecast.high_usd,
        "interval_percent": forecast.confidence_percent,
        "backtest": None
        if backtest is None
        else {"hours": backtest.hours, "evaluated": backtest.evaluated, "covered": backtest.covered},
        "budget_usd": forecast.budget_usd,
        "currency": forecast.currency,
    }
