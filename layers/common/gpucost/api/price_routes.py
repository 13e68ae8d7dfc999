"""Routes of the price book."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Annotated

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.params import Query

from gpucost.api import price_and_node_schemas
from gpucost.core.errors import ParameterError
from gpucost.core.pricing.prices import PriceSource
from gpucost.core.query.periods import parse_moment_parameter
from gpucost.http.access import open_to
from gpucost.http.responses import describe_responses, json_response
from gpucost.reports.prices import PriceBookListing

Start = Annotated[str, Query(description="Start of the period, UTC", examples=["2026-11-18T00:00:00Z"])]
End = Annotated[
    str,
    Query(description="End of the period, exclusive; at most 35 days after start", examples=["2026-11-19T00:00:00Z"]),
]
Source = Annotated[PriceSource | None, Query(description="Only prices of this source. Default: all", examples=["spot"])]
InstanceType = Annotated[
    str | None, Query(description="Only prices that can apply to this instance type", examples=["p5.48xlarge"])
]
Cursor = Annotated[
    str | None,
    Query(description="Cursor from the previous page. Send it with the same parameters", examples=["WzMsIFtdXQ=="]),
]


def add_price_routes(app: APIGatewayHttpResolver, listing: Callable[[], PriceBookListing]) -> None:
    """Register the routes. The listing is made on its first use."""

    @app.get(
        "/v1/prices",
        summary="The price book",
        tags=["prices"],
        responses=describe_responses(price_and_node_schemas.PricesResponse),
    )
    @open_to("admin")
    def prices(
        start: Start, end: End, source: Source = None, instance_type: InstanceType = None, cursor: Cursor = None
    ) -> Response[str]:
        """Prices in force at some time of the period, fetched from AWS or set by hand.

        Prices in the settings (sources rates, constant, capacity-block) and prices from the bill are not included.
        """
        first, last = parse_moment_parameter("start", start), parse_moment_parameter("end", end)
        page = listing().page(first, last, source=source, instance_type=instance_type, after=_read_cursor(cursor))
        return json_response(
            price_and_node_schemas.prices_response(first, last, page, _write_cursor(page.next_position)),
            remedy="Shorten the period, or select one source or instance_type.",
        )


def _write_cursor(position: str | None) -> str | None:
    return None if position is None else urlsafe_b64encode(position.encode()).decode()


def _read_cursor(cursor: str | None) -> str:
    try:
        position = "[]" if cursor is None else urlsafe_b64decode(cursor.encode()).decode()
        is_valid = isinstance(json.loads(position), list)
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ParameterError("cursor", "is invalid; pass the cursor of a previous response unchanged")
    return position if cursor else ""
