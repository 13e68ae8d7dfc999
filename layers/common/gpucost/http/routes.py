"""The routes of an app. Powertools has no public way to list them, or to find the one of a request."""

from collections.abc import Sequence

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.event_handler.api_gateway import Route


def all_routes(app: APIGatewayHttpResolver) -> Sequence[Route]:
    """Return the routes that are registered."""
    return [*app._static_routes, *app._dynamic_routes]


def current_route(app: APIGatewayHttpResolver) -> Route | None:
    """Return the route of the current request; None if there is none, so that the response is 404."""
    route: Route = app.context["_route"]
    return route if route in all_routes(app) else None
