"""JSON responses with exact numbers, and the descriptions of responses in the OpenAPI document."""

from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response

from gpucost.core.errors import InvalidInputError
from gpucost.http import schemas
from gpucost.http.problems import PROBLEM_JSON, SECURITY_HEADERS
from gpucost.runtime.json_text import dumps

JSON_CONTENT_TYPE = "application/json"
MAX_BODY_BYTES = 5_500_000
"""Lambda returns at most 6 MB, including the envelope."""


def describe_responses(
    model: type[Any], extra_content: dict[str, Any] | None = None, *, can_be_missing: bool = False
) -> dict[int, Any]:
    """Return the OpenAPI description of a route's responses."""
    errors = {
        int(status): {"description": text, "content": {PROBLEM_JSON: {"model": schemas.Problem}}}
        for status, text in (
            (HTTPStatus.BAD_REQUEST, "A parameter is wrong. The problem document names it and says what is allowed"),
            (HTTPStatus.FORBIDDEN, "The caller's roles do not allow this. The problem document names the role"),
            *([(HTTPStatus.NOT_FOUND, "The resource does not exist")] if can_be_missing else []),
            (HTTPStatus.BAD_GATEWAY, "The database did not respond. Try again"),
            (HTTPStatus.SERVICE_UNAVAILABLE, "There are no settings yet. Run gpucost settings push"),
        )
    }
    return {int(HTTPStatus.OK): describe_ok_response(model, extra_content), **errors}


def describe_ok_response(model: type[Any], extra_content: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the OpenAPI description of a 200 response with a model."""
    return {"description": "OK", "content": {JSON_CONTENT_TYPE: {"model": model}, **(extra_content or {})}}


def json_response(
    document: dict[str, Any], *, remedy: str = "Shorten the period, or select one cluster."
) -> Response[str]:
    """Return a JSON response with exact numbers.

    Args:
        document: the body.
        remedy: what makes a response smaller that is too large, in a sentence.

    Raises:
        InvalidInputError: the response is too large for Lambda.
    """
    return Response(
        HTTPStatus.OK, JSON_CONTENT_TYPE, _check_size(dumps(document), remedy), headers=dict(SECURITY_HEADERS)
    )


def _check_size(text: str, remedy: str) -> str:
    if len(text.encode()) > MAX_BODY_BYTES:
        raise InvalidInputError(f"the response would exceed Lambda's 6 MB. {remedy}")
    return text
