"""How routes answer: JSON with exact numbers, and what the OpenAPI document says of answers."""

from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response

from gpucost.core.errors import InvalidInputError
from gpucost.http import schemas
from gpucost.http.problems import PROBLEM_JSON, SECURITY_HEADERS
from gpucost.runtime.json_text import dumps

JSON = "application/json"
MAX_BODY_BYTES = 5_500_000
"""Lambda answers 6 MB at most, envelope included."""


def responses(model: type[Any], extra_content: dict[str, Any] | None = None, *, can_be_missing: bool = False) -> dict[int, Any]:
    """What a route may answer, for the OpenAPI document."""
    errors = {
        int(status): {"description": text, "content": {PROBLEM_JSON: {"model": schemas.Problem}}}
        for status, text in (
            (HTTPStatus.BAD_REQUEST, "A parameter is wrong: the answer names it and says what is allowed"),
            (HTTPStatus.FORBIDDEN, "The caller's roles do not suffice: the answer says which does"),
            *([(HTTPStatus.NOT_FOUND, "What the path or the query names does not exist")] if can_be_missing else []),
            (HTTPStatus.BAD_GATEWAY, "The database did not answer; try again"),
            (HTTPStatus.SERVICE_UNAVAILABLE, "No settings have been pushed to this deployment yet"),
        )
    }
    return {int(HTTPStatus.OK): ok_response(model, extra_content), **errors}


def ok_response(model: type[Any], extra_content: dict[str, Any] | None = None) -> dict[str, Any]:
    """A 200 answer of a model, for the OpenAPI document."""
    return {"description": "The answer", "content": {JSON: {"model": model}, **(extra_content or {})}}


def json_response(document: dict[str, Any]) -> Response[str]:
    """An answer, numbers exact.

    Raises:
        InvalidInputError: too large for Lambda to send.
    """
    return Response(HTTPStatus.OK, JSON, _check_size(dumps(document)), headers=dict(SECURITY_HEADERS))


def _check_size(text: str) -> str:
    if len(text.encode()) > MAX_BODY_BYTES:
        raise InvalidInputError("the answer would be too large to send; shorten the period, or name one cluster")
    return text
