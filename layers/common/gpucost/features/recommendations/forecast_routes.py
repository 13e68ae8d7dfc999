"""The route of forecasts."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from pydantic import Field

from gpucost.features.recommendations.forecasts import Forecasts, PeriodForecast
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.responses import json_response, responses
from gpucost.http.schemas import Amount, Instant, ResponseModel

Unit = Annotated[str, Query(description="Whose costs", examples=["research"], min_length=1, max_length=200)]
PeriodKind = Annotated[Literal["month", "quarter"], Query(description="The UTC month or quarter under way")]


class BacktestFigures(ResponseModel):
    """Past forecasts of a length, each made from what was known before it, and what came."""

    hours: int = Field(description="How far ahead")
    evaluated: int
    covered: int = Field(description="How many actual sums fell into their interval")


class ForecastAnswer(ResponseModel):
    """GET /v1/forecasts."""

    business_unit: str
    period: Literal["month", "quarter"]
    start: Instant
    end: Instant
    known_until: Instant
    spent_usd: Amount = Field(description="Allocated so far, as far as it has a price; exact")
    hours_known: int = Field(description="Hours so far of which all has a price")
    hours_unknown: int = Field(
        description="Hours so far without figures, or with a part that has no price: taken to cost what the known did"
    )
    projected_usd: Amount | None = Field(description="At the period's end; null where less than two weeks are known")
    low_usd: Amount | None
    high_usd: Amount | None
    interval_percent: int = Field(description="How often actual sums should fall between low and high", examples=[80])
    backtest: BacktestFigures | None = Field(description="How often they did; null where the history is too short")
    budget_usd: Amount | None = Field(description="From the settings' budget rules; three months' for a quarter")
    currency: str = Field(examples=["USD"])


def add_forecast_routes(app: APIGatewayHttpResolver, forecasts: Callable[[], Forecasts]) -> None:
    """Put the route on an app; the service is made when it is first asked."""

    @app.get(
        "/v1/forecasts",
        summary="Where a month or quarter leads",
        tags=["advice"],
        responses=responses(ForecastAnswer, can_be_missing=True),
    )
    @open_to("bu")
    def forecast(business_unit: Unit, period: PeriodKind = "month") -> Response[str]:
        """What a business unit's period will have cost by its end, with an interval, beside its budget.

        Hours of the week as they were in the last eight weeks, at the level of the newest ones: no trend, no holidays.
        """
        scope = scope_of_caller(app)
        return json_response(forecast_answer(period, forecasts().forecast(business_unit, period, scope=scope)))


def forecast_answer(period: str, found: PeriodForecast) -> dict[str, Any]:
    """As `ForecastAnswer`."""
    backtest = found.backtest
    return {
        "business_unit": found.business_unit,
        "period": period,
        "start": found.start,
        "end": found.end,
        "known_until": found.known_until,
        "spent_usd": found.spent_usd,
        "hours_known": found.hours_known,
        "hours_unknown": found.hours_unknown,
        "projected_usd": found.projected_usd,
        "low_usd": found.low_usd,
        "high_usd": found.high_usd,
        "interval_percent": found.percent,
        "backtest": None
        if backtest is None
        else {"hours": backtest.hours, "tried": backtest.evaluated, "inside": backtest.covered},
        "budget_usd": found.budget_usd,
        "currency": found.currency,
    }
