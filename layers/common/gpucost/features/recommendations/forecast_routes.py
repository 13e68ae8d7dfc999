"""The route of forecasts."""

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query
from msgspec.structs import asdict as to_dict
from pydantic import Field

from gpucost.core.errors import ParameterError
from gpucost.features.recommendations.fleet_forecasts import FleetForecastService, GroupBy, GroupForecast
from gpucost.features.recommendations.forecast import Backtest
from gpucost.features.recommendations.forecasts import ForecastService, PeriodForecast
from gpucost.http.access import open_to, scope_of_caller
from gpucost.http.responses import describe_responses, json_response
from gpucost.http.schemas import Amount, ResponseModel

BusinessUnitParameter = Annotated[
    str | None,
    Query(
        description="The business unit; the whole fleet without one",
        examples=["research"],
        min_length=1,
        max_length=200,
    ),
]
GroupByParameter = Annotated[
    GroupBy | None,
    Query(description="What the rows of the whole fleet are. Default: `business_unit`", examples=["cluster"]),
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
    "business_unit": "Null for the whole fleet",
    "spent_usd": "Cost so far with a price, exact: the allocated cost of a business unit, the node cost of the fleet",
    "hours_known": "Hours so far that are completely priced",
    "hours_unknown": "Hours so far without figures or with a missing price. The projection uses the mean of the others",
    "projected_usd": "Cost at the period's end by the pattern of past weeks; null with less than two weeks of history",
    "interval_percent": "How often the actual cost should be between low and high",
    "run_rate_usd": "Cost at the period's end if hours without figures cost as much as the others; null with less "
    "than a day of hours, or without half of them",
    "budget_usd": "From the settings' budget rules; three months' for a quarter. Of the fleet, the sum of all business "
    "units' budgets; null if any has none",
    "estimated_usd": "The part of run_rate_usd that is of hours so far without figures; null without a run rate",
}
_EXAMPLES = {"interval_percent": [80], "currency": ["USD"]}


class GroupForecastRow(ResponseModel):
    """A business unit's or node pool's allocated cost, or a cluster's node cost."""

    name: str
    spent_usd: Amount
    hours_known: int
    hours_unknown: int
    projected_usd: Amount | None
    low_usd: Amount | None
    high_usd: Amount | None
    run_rate_usd: Amount | None


class ForecastResponse(ResponseModel, record=PeriodForecast, descriptions=_DESCRIPTIONS, examples=_EXAMPLES):
    """GET /v1/forecasts."""

    backtest: BacktestFigures | None = Field(
        description="How often the actual cost was between low and high; null if the history is too short"
    )
    rows: list[GroupForecastRow] = Field(
        description="What the fleet's cost consists of: at most 10 groups, the largest first; empty for a business unit"
    )


def add_forecast_routes(
    app: APIGatewayHttpResolver,
    service: Callable[[], ForecastService],
    fleet_service: Callable[[], FleetForecastService],
) -> None:
    """Add the route to an app; the services are made at the first request."""

    @app.get(
        "/v1/forecasts",
        summary="The expected cost of a month or quarter",
        tags=["forecasts"],
        responses=describe_responses(ForecastResponse, can_be_missing=True),
    )
    @open_to("bu")
    def forecast(
        business_unit: BusinessUnitParameter = None,
        period: PeriodParameter = "month",
        group_by: GroupByParameter = None,
    ) -> Response[str]:
        """The expected cost of a business unit's period, or of the fleet's, with an interval, and the budget.

        The forecast repeats the last eight weeks' pattern at the newest weeks' level, without trend and holidays.
        """
        scope = scope_of_caller(app)
        if business_unit is not None:
            if group_by is not None:
                raise ParameterError("group_by", "is not allowed with business_unit; it groups the whole fleet")
            unit_forecast = service().forecast(business_unit, period, scope=scope)
            return json_response({**asdict(unit_forecast), "rows": []}, remedy="Select period=month.")
        forecast = fleet_service().forecast(period, group_by or "business_unit", scope=scope)
        rows = [_group_fields(row) for row in forecast.rows]
        return json_response({**asdict(forecast.fleet), "rows": rows}, remedy="Select period=month.")


def _group_fields(row: GroupForecast) -> dict[str, Any]:
    """Return the fields of `GroupForecastRow`."""
    projection = {name: figure for name, figure in to_dict(row.projection).items() if name != "backtest"}
    return {"name": row.name, "spent_usd": row.spent_usd, **projection, "run_rate_usd": row.run_rate_usd}
