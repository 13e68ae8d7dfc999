"""The routes of an app, and those that ignore unknown parameters.

Powertools has no public way to list routes, or to find the one of a request.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver
from aws_lambda_powertools.event_handler.api_gateway import Route


def all_routes(app: APIGatewayHttpResolver) -> Sequence[Route]:
    """Return the routes that are registered."""
    return [*app._static_routes, *app._dynamic_routes]


def current_route(app: APIGatewayHttpResolver) -> Route | None:
    """Return the route of the current request; None if there is none, so that the response is 404."""
    route: Route = app.context["_route"]
    return route if route in all_routes(app) else None


# Routes that ignore the parameters that they do not declare, in place of rejecting them.

AnyRoute = TypeVar("AnyRoute", bound=Callable[..., Any])
_IGNORES_ATTRIBUTE = "_ignores_unknown_parameters"


def ignores_unknown_parameters(route: AnyRoute) -> AnyRoute:
    """Declare that a route ignores unknown parameters: those of its clients, or added by an identity provider."""
    setattr(route, _IGNORES_ATTRIBUTE, True)
    return route


def are_unknown_parameters_ignored(route: Callable[..., Any]) -> bool:
    """Return whether a route declares that it ignores unknown parameters."""
    return getattr(route, _IGNORES_ATTRIBUTE, False)
