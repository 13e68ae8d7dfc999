"""What routes declare (who may call them, whether they ignore unknown parameters), and their list.

Powertools has no public way to list routes, or to find the one of a request.
"""

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from json import loads
from typing import Any, TypeVar

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.api_gateway import Route
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware

from gpucost.core.access import Caller, IamCaller, RequiredRole, Scope, TokenCaller, principal_of
from gpucost.core.errors import AccessDeniedError, InvalidInputError
from gpucost.reports.scoped import AccessPolicy

# The routes of an app.


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


# Access checks of the API: before a route runs, its caller is mapped to a `Scope` and compared with the route's role.
#
# Every route declares its role with `open_to`. Requests to a route without a declaration are denied.

_ROLE_ATTRIBUTE = "_open_to"
ROLE_HEADER = "X-Role"
"""The caller's widest role, so that the page requests nothing that another role may read only."""
_DENIALS = {"viewer": "covers all business units and needs the role viewer or admin", "admin": "needs the role admin"}


def open_to(role: RequiredRole) -> Callable[[AnyRoute], AnyRoute]:
    """Declare the role that a route requires. Put it under the decorator that registers the route.

    `bu` routes are open to every role and must pass `scope_of_caller` to the service that they call.
    """

    def declare(route: AnyRoute) -> AnyRoute:
        setattr(route, _ROLE_ATTRIBUTE, role)
        return route

    return declare


def required_role(route: Callable[..., Any]) -> RequiredRole | None:
    """Return the role that a route declares; None if it declares none, so that requests are denied."""
    role: RequiredRole | None = getattr(route, _ROLE_ATTRIBUTE, None)
    return role


def authorize(policy: Callable[[], AccessPolicy]) -> Callable[[APIGatewayHttpResolver, NextMiddleware], Response[Any]]:
    """Make the middleware that checks each caller's role and stores the caller's scope in the app's context."""

    def check_access(app: APIGatewayHttpResolver, next_middleware: NextMiddleware) -> Response[Any]:
        route = current_route(app)
        if route is None:
            return next_middleware(app)
        role = required_role(route.func)
        if role is None:
            raise AccessDeniedError("access denied: this route declares no role")
        if role != "public":
            scope = policy().scope_of(caller_of(app.current_event.raw_event))
            if not scope.satisfies(role):
                raise AccessDeniedError(f"{app.current_event.path} {_DENIALS[role]}")
            app.context["scope"] = scope
            response = next_middleware(app)
            response.headers[ROLE_HEADER] = scope.widest_role
            return response
        return next_middleware(app)

    return check_access


def scope_of_caller(app: APIGatewayHttpResolver) -> Scope:
    """Return the scope of the current request's caller. Only for routes that are not public."""
    scope: Scope = app.context["scope"]
    return scope


def caller_of(event: Mapping[str, Any]) -> Caller | None:
    """Return the caller that API Gateway authenticated (HTTP API, payload 2.0); None if there is none.

    Raises:
        InvalidInputError: the request has two identities or two tokens. API Gateway verifies only one of them.
    """
    authorizer = (event.get("requestContext") or {}).get("authorizer") or {}
    arn = (authorizer.get("iam") or {}).get("userArn")
    claims = (authorizer.get("jwt") or {}).get("claims")
    if arn and claims:
        raise InvalidInputError(
            "the request has both an IAM identity and a JWT. Sign it with SigV4, or send one bearer token."
        )
    if arn:
        return IamCaller(principal_of(str(arn)))
    if claims:
        token = _token_claims((event.get("headers") or {}).get("authorization", ""))
        return TokenCaller({name: _claim_values(str(text), token.get(name)) for name, text in claims.items()})
    return None


def _claim_values(gateway_text: str, token_claim: object) -> tuple[str, ...]:
    """Return the values of a claim that is a text or a list of texts.

    API Gateway passes the list `["a b", "c"]` as `[a b c]`, which does not show whether there are two groups or three,
    and it passes the number 7 and `true` as texts. The values are therefore taken from the token, if API Gateway's text
    matches them. Otherwise there are none.
    """
    if isinstance(token_claim, str):
        return (token_claim,) if token_claim == gateway_text else ()
    if not isinstance(token_claim, list) or not all(isinstance(group, str) for group in token_claim):
        return ()
    return tuple(token_claim) if f"[{' '.join(token_claim)}]" == gateway_text else ()


def _token_claims(authorization: str) -> dict[str, Any]:
    """Return the claims of the bearer token, which API Gateway has verified; empty if the token is not readable.

    Raises:
        InvalidInputError: the header has more than one value. API Gateway joins repeated headers with commas and does
            not say which one it verified. Tokens contain no commas or spaces.
    """
    token = re.sub(r"^bearer +", "", authorization.strip(), flags=re.IGNORECASE)
    if re.search(r"[,\s]", token):
        raise InvalidInputError(
            "the Authorization header has more than one value. Send it once, as Authorization: Bearer <token>."
        )
    try:
        _, payload, _ = token.split(".")
        claims = loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}
