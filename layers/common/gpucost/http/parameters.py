"""Routes that ignore the parameters that they do not declare, in place of rejecting them."""

from collections.abc import Callable
from typing import Any, TypeVar

Route = TypeVar("Route", bound=Callable[..., Any])
_IGNORES_ATTRIBUTE = "_ignores_unknown_parameters"


def ignores_unknown_parameters(route: Route) -> Route:
    """Declare that a route ignores unknown parameters: those of its clients, or added by an identity provider."""
    setattr(route, _IGNORES_ATTRIBUTE, True)
    return route


def are_unknown_parameters_ignored(route: Callable[..., Any]) -> bool:
    """Return whether a route declares that it ignores unknown parameters."""
    return getattr(route, _IGNORES_ATTRIBUTE, False)
