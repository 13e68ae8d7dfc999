"""Sends requests to the api function's real handler as different callers."""

import json
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver

from functions.api import app as function
from gpucost.api.app import Services, build_app
from gpucost.container import Container

_containers: list[Container] = []


def _service(name: str) -> Any:
    """A service of the container that answers at the moment."""
    container = _containers[-1] if _containers else function.CONTAINER
    return getattr(container.api_services, name)()


APP = build_app(
    Services(**{name: partial(_service, name) for name in Services.__struct_fields__}), function.PAGE_FOLDER
)


@contextmanager
def serving(container: Container) -> Iterator[Container]:
    """Answer requests with the parts of a container."""
    _containers.append(container)
    try:
        yield container
    finally:
        _containers.remove(container)


class Context:
    function_name = "api"
    memory_limit_in_mb = 512
    invoked_function_arn = "arn:aws:lambda:eu-west-1:123456789012:function:api"
    aws_request_id = "1"


@dataclass(frozen=True)
class Caller:
    """The authorizer context of API Gateway, and the Authorization header."""

    authorizer: dict[str, Any]
    authorization: str = ""


def iam_caller(arn: str) -> Caller:
    return Caller({"iam": {"userArn": arn, "accountId": "123456789012", "cognitoIdentity": None}})


def role_caller(name: str) -> Caller:
    return iam_caller(f"arn:aws:sts::123456789012:assumed-role/{name}/some-session")


def token_caller(claims: Mapping[str, Any], *, written: Mapping[str, str] | None = None) -> Caller:
    """A caller with a token. Its claims are formatted as an HTTP API does, unless `written` has them as text."""
    text = {
        name: f"[{' '.join(map(str, value))}]" if isinstance(value, list) else str(value)
        for name, value in claims.items()
    }
    payload = urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return Caller({"jwt": {"claims": dict(written or text), "scopes": None}}, f"Bearer e30.{payload}.c2ln")


@dataclass(frozen=True)
class ApiResponse:
    status: int
    headers: dict[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body, parse_float=Decimal, parse_int=Decimal)


def event_of(
    caller: Caller | None, path: str, query: Mapping[str, str] | str | None = None, method: str = "GET"
) -> dict[str, Any]:
    """The event that API Gateway sends for a request."""
    raw = query if isinstance(query, str) else urlencode(query or {})
    joined: dict[str, str] = {}
    for name, value in parse_qsl(raw, keep_blank_values=True):
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return {
        "version": "2.0",
        "routeKey": f"{method} {path}",
        "rawPath": path,
        "rawQueryString": raw,
        "headers": {"host": "costs.example.com", **({"authorization": caller.authorization} if caller else {})},
        **({"queryStringParameters": joined} if joined else {}),
        "requestContext": {
            **({"authorizer": caller.authorizer} if caller else {}),
            "http": {"method": method, "path": path, "protocol": "HTTP/1.1"},
            "requestId": "request-1",
            "stage": "$default",
        },
        "isBase64Encoded": False,
    }


def send(event: Any, app: APIGatewayHttpResolver = APP) -> ApiResponse:
    """Invoke the function with an event."""
    answer = function.handler(event, Context(), app=app)  # type: ignore[arg-type]  # a reduced Lambda context
    return ApiResponse(answer["statusCode"], answer["headers"], answer["body"])


def request_as(
    caller: Caller | None,
    path: str,
    query: Mapping[str, str] | str | None = None,
    method: str = "GET",
    app: APIGatewayHttpResolver = APP,
) -> ApiResponse:
    """Send a request as a caller; None for a request without a caller."""
    return send(event_of(caller, path, query, method), app)
