"""Malformed API Gateway events get a problem document."""

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from gpucost.core.access import TokenCaller
from gpucost.core.errors import InvalidInputError
from gpucost.http.routes import caller_of
from gpucost_devstack.http import serving_api
from gpucost_devstack.prometheus import free_port
from tests.functions.api_requests import ApiResponse, Caller, event_of, request_as, send, token_caller
from tests.functions.in_memory_hours import DAY, FINANCE, InMemoryHours

MISSING = object()
VALUES: list[Any] = [
    None,
    "",
    0,
    -1,
    1.5,
    True,
    [],
    {},
    "\ud800",
    "x\udfffy",
    "x" * 10_000,
    ["a", "b"],
    {"a": None},
    {"a": ["b"]},
    {"\ud800": "\ud800"},
    [None],
    "%",
    "%ED%A0%80",
    "[a b",
    "//",
    "\x00",
    "1.0",
    MISSING,
]
V1 = {
    "resource": "/v1/costs",
    "path": "/v1/costs",
    "httpMethod": "GET",
    "headers": {"host": "costs.example.com"},
    "multiValueHeaders": {"host": ["costs.example.com"]},
    "queryStringParameters": None,
    "multiValueQueryStringParameters": None,
    "requestContext": {"httpMethod": "GET", "path": "/v1/costs", "stage": "$default", "requestId": "request-1"},
    "body": None,
    "isBase64Encoded": False,
}


def paths(document: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every value in a document."""
    yield path
    if isinstance(document, dict):
        for name, value in document.items():
            yield from paths(value, (*path, name))


def changed(event: dict[str, Any], path: tuple[str, ...], value: Any) -> Any:
    """An event with another value at a path."""
    if not path:
        return None if value is MISSING else value
    event = copy.deepcopy(event)
    *parents, last = path
    target = event
    for name in parents:
        target = target[name]
    target.pop(last) if value is MISSING else target.update({last: value})
    return event


def check_no_server_fault(event: Any) -> ApiResponse:
    """Check that an event gets a response below 500."""
    answer = send(event)
    assert answer.status < 500, (event, answer.body)
    answer.body.encode()
    if answer.status >= 400:
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.json["status"] == answer.status
    return answer


def events() -> dict[str, dict[str, Any]]:
    """A value of each JSON type."""
    full = {
        "cookies": ["a=b"],
        "body": "e30=",
        "isBase64Encoded": True,
        "pathParameters": {"name": "x"},
        "stageVariables": {"a": "b"},
    }
    by_jwt = token_caller({"sub": "x", "groups": ["a"]})
    return {
        "costs": {**event_of(FINANCE, "/v1/costs", DAY), **full},
        "token": event_of(by_jwt, "/v1/costs", DAY),
        "page": event_of(None, "/"),
        "health": event_of(None, "/health"),
        "nowhere": event_of(None, "/nowhere"),
        "payload format 1.0": V1,
    }


@pytest.mark.usefixtures("day")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.tools) if kind in {"costs", "token"} else kind  # seconds
        for kind in events()
    ],
)
def test_malformed_event_gets_a_problem_document(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUCOST_TABLE", "unused")
    event = events()[kind]
    for path in paths(event):
        for value in VALUES:
            check_no_server_fault(changed(event, path, value))


@pytest.mark.usefixtures("day")
@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("requestContext",), MISSING, "requestContext: is missing. Events must come from an API Gateway HTTP API"),
        (("requestContext", "http"), {}, "requestContext.http.method: is missing"),
        (("rawPath",), "v1/costs", "rawPath: string should match pattern '^/'"),
        (("headers",), {"host": None}, "headers.host: input should be a valid string"),
        (("queryStringParameters",), "a=b", "queryStringParameters: input should be a valid dictionary"),
        (("rawPath",), "/v1/\ud800", "rawPath: is not valid Unicode: it contains an unpaired surrogate. Send UTF-8"),
        (("rawQueryString",), "a=\ud800", "rawQueryString: is not valid Unicode"),
        (("queryStringParameters", "start"), "\udc00", "queryStringParameters.start: is not valid Unicode"),
        (("headers", "host"), "\ud800", "headers.host: is not valid Unicode"),
        (("version",), "1.0", "the event has payload format '1.0'; only 2.0 of HTTP APIs is supported"),
        (("version",), MISSING, "the event has payload format '1.0'"),
    ],
)
def test_malformed_event_is_rejected_with_its_reason(path: tuple[str, ...], value: Any, says: str) -> None:
    answer = check_no_server_fault(changed(event_of(FINANCE, "/v1/costs", DAY), path, value))
    assert answer.status == 400
    assert says in answer.json["detail"]


@pytest.mark.usefixtures("day")
def test_event_without_headers_or_query_is_handled() -> None:
    event = event_of(FINANCE, "/v1/costs", DAY)
    assert send({**event, "headers": None}).status == 200
    assert send({**event_of(None, "/health"), "queryStringParameters": None}).status == 200


@pytest.mark.usefixtures("day")
@pytest.mark.parametrize("name", ["start", "limit", "granularity", "format", "cluster", "business_unit", "cursor"])
def test_repeated_parameter_is_rejected_by_name(name: str) -> None:
    value = {"limit": "1", "granularity": "day", "format": "json"}.get(name, "a")
    query = {**DAY, name: value}
    repeated = "&".join(f"{key}={text}" for key, text in query.items()) + f"&{name}={value}"
    answer = request_as(FINANCE, "/v1/costs", repeated)
    assert answer.status == 400
    assert {"parameter": name, "detail": "sent more than once. Send it once."} in answer.json["errors"]


@pytest.mark.usefixtures("day")
def test_parameter_only_in_parsed_query_is_rejected() -> None:
    event = event_of(FINANCE, "/v1/costs", DAY)
    event["queryStringParameters"]["granularty"] = "hour"
    answer = send(event)
    assert (answer.status, answer.json["errors"][0]["parameter"]) == (400, "granularty")


VERIFIED = token_caller({"sub": "x", "groups": ["a b", "c"]})
FORGED = token_caller({"sub": "x", "groups": ["a", "b", "c"]})
"""API Gateway writes the groups of both as `[a b c]`."""


@pytest.mark.parametrize(
    "authorization",
    [
        f"{VERIFIED.authorization},{FORGED.authorization}",
        f"{FORGED.authorization},{VERIFIED.authorization}",
        f"{VERIFIED.authorization}, {FORGED.authorization}",
        f"{VERIFIED.authorization} {FORGED.authorization}",
        f"{VERIFIED.authorization}\t{FORGED.authorization}",
        f"{VERIFIED.authorization},",
        f"Basic dTpw,{FORGED.authorization}",
        f"Basic {FORGED.authorization.removeprefix('Bearer ')}",
    ],
)
def test_two_authorization_headers_are_rejected(day: InMemoryHours, authorization: str) -> None:
    answer = request_as(Caller(VERIFIED.authorizer, authorization), "/v1/costs", DAY)
    assert answer.status == 400
    assert answer.json["detail"].startswith("the Authorization header has more than one value. Send it once")
    assert "e30" not in answer.body


def test_authorization_headers_in_two_spellings_are_rejected(day: InMemoryHours) -> None:
    event = event_of(VERIFIED, "/v1/costs", DAY)
    event["headers"]["Authorization"] = FORGED.authorization
    answer = send(event)
    assert (answer.status, "more than one value" in answer.json["detail"]) == (400, True)


@pytest.mark.parametrize("prefix", ["Bearer ", "bearer  ", ""])
def test_token_is_read_with_and_without_its_scheme(prefix: str) -> None:
    header = prefix + VERIFIED.authorization.removeprefix("Bearer ")
    event = {"headers": {"authorization": header}, "requestContext": {"authorizer": VERIFIED.authorizer}}
    assert caller_of(event) == TokenCaller({"sub": ("x",), "groups": ("a b", "c")})


def test_iam_identity_with_a_token_is_rejected(day: InMemoryHours) -> None:
    both = Caller({**FINANCE.authorizer, **VERIFIED.authorizer}, VERIFIED.authorization)
    answer = request_as(both, "/v1/costs", DAY)
    assert (answer.status, "both an IAM identity and a JWT" in answer.json["detail"]) == (400, True)
    with pytest.raises(InvalidInputError):
        caller_of({"requestContext": {"authorizer": both.authorizer}})


def test_signed_request_may_have_commas_in_its_header(day: InMemoryHours) -> None:
    signed = Caller(FINANCE.authorizer, "AWS4-HMAC-SHA256 Credential=a/b, SignedHeaders=host, Signature=c")
    assert request_as(signed, "/v1/costs", DAY).status == 200


def test_local_server_joins_repeated_headers_as_api_gateway_does() -> None:
    import http.client

    received: list[Any] = []

    def invoke(event: Any) -> dict[str, Any]:
        received.append(event)
        return {"statusCode": 200, "body": json.dumps({})}

    port = free_port()
    with serving_api(invoke, ["GET /v1/costs"], port):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.putrequest("GET", "/v1/costs")
        connection.putheader("Authorization", VERIFIED.authorization)
        connection.putheader("authorization", FORGED.authorization)
        connection.endheaders()
        assert connection.getresponse().status == 200
        connection.close()
    assert received[0]["headers"]["authorization"] == f"{VERIFIED.authorization},{FORGED.authorization}"
