"""The one place where the API decides who may ask what: before a route runs, its caller becomes a `Scope`.

Every route says with `open_to` what it asks of its caller. One that says nothing is open to nobody.
"""

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from json import loads
from typing import Any, TypeVar

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.middlewares import NextMiddleware

from gpucost.core.access import Caller, IamCaller, RequiredRole, Scope, TokenCaller, principal_of
from gpucost.core.errors import AccessDeniedError, InvalidInputError
from gpucost.reports.access import AccessPolicy

Route = TypeVar("Route", bound=Callable[..., Any])
_ROLE_ATTRIBUTE = "_open_to"
_DENIALS = {
    "viewer": "is not divided by business unit: it needs the role viewer or admin",
    "admin": "needs the role admin",
}


def open_to(role: RequiredRole) -> Callable[[Route], Route]:
    """Declare what a route asks of its caller; stands under the route's own decorator.

    `bu` routes answer every role and must pass `scope_of_caller` to the service that they call.
    """

    def declare(route: Route) -> Route:
        setattr(route, _ROLE_ATTRIBUTE, role)
        return route

    return declare


def required_role(route: Callable[..., Any]) -> RequiredRole | None:
    """What a route asks of its caller; None: it says nothing, and is refused."""
    role: RequiredRole | None = getattr(route, _ROLE_ATTRIBUTE, None)
    return role


def authorize(policy: Callable[[], AccessPolicy]) -> Callable[[APIGatewayHttpResolver, NextMiddleware], Response[Any]]:
    """The middleware that lets a request through, or not."""

    def check_access(app: APIGatewayHttpResolver, next_middleware: NextMiddleware) -> Response[Any]:
        route = app.context["_route"]
        if route not in (*app._static_routes, *app._dynamic_routes):
            return next_middleware(app)  # the answer is that there is nothing
        role = required_role(route.func)
        if role is None:
            raise AccessDeniedError("nobody may ask this: the route does not say which role it needs")
        if role != "public":
            scope = policy().scope_of(caller_of(app.current_event.raw_event))
            if not scope.satisfies(role):
                raise AccessDeniedError(f"{app.current_event.path} {_DENIALS[role]}")
            app.context["scope"] = scope
        return next_middleware(app)

    return check_access


def scope_of_caller(app: APIGatewayHttpResolver) -> Scope:
    """What the caller of the request that is being answered may see; for routes that are not public."""
    scope: Scope = app.context["scope"]
    return scope


def caller_of(event: Mapping[str, Any]) -> Caller | None:
    """Whom API Gateway let in (HTTP API, payload 2.0); None where it says nobody.

    Raises:
        InvalidInputError: the request has two identities or two tokens, of which API Gateway verified one at most.
    """
    authorizer = (event.get("requestContext") or {}).get("authorizer") or {}
    arn = (authorizer.get("iam") or {}).get("userArn")
    claims = (authorizer.get("jwt") or {}).get("claims")
    if arn and claims:
        raise InvalidInputError(
            "the request has an IAM identity and a JWT; sign it (SigV4), or send one bearer token, not both"
        )
    if arn:
        return IamCaller(principal_of(str(arn)))
    if claims:
        token = _token_claims((event.get("headers") or {}).get("authorization", ""))
        return TokenCaller({name: _claim_values(str(text), token.get(name)) for name, text in claims.items()})
    return None


def _claim_values(gateway_text: str, token_claim: object) -> tuple[str, ...]:
    """A claim's values, given what API Gateway writes of it and what the token itself says.

    API Gateway writes the list `["a b", "c"]` as `[a b c]`: whether that is two groups or three cannot be seen in it.
    The token can tell, and is believed only where it writes the same; else the claim has no values.
    """
    if not gateway_text.startswith("["):
        return (gateway_text,)
    if isinstance(token_claim, list) and all(isinstance(one, str) for one in token_claim) and f"[{' '.join(token_claim)}]" == gateway_text:
        return tuple(token_claim)
    return (gateway_text,) if token_claim == gateway_text else ()


def _token_claims(authorization: str) -> dict[str, Any]:
    """The claims of the bearer token, which API Gateway has verified; empty where it cannot be read.

    Raises:
        InvalidInputError: the header holds more than one value. API Gateway joins repeated headers with commas, and
            does not say which of them it verified; no token has a comma or a space in it.
    """
    token = re.sub(r"^bearer +", "", authorization.strip(), flags=re.IGNORECASE)
    if re.search(r"[,\s]", token):
        raise InvalidInputError(
            "Authorization: the request has more than one value; send the header once, as Authorization: Bearer <token>"
        )
    try:
        _, payload, _ = token.split(".")
        claims = loads(urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}
