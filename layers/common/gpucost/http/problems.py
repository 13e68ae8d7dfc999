"""Every error answer, from one place: RFC 9457 problem documents that leak nothing of the inside."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import APIGatewayHttpResolver, Response
from aws_lambda_powertools.event_handler.openapi.exceptions import RequestValidationError

from gpucost.core.access import Scope
from gpucost.core.errors import (
    AccessDeniedError,
    ConflictError,
    GpuCostError,
    InvalidInputError,
    NotFoundError,
    ParameterError,
    SettingsMissingError,
    SourceError,
)
from gpucost.runtime.json_text import dumps
from gpucost.runtime.observability import logger

PROBLEM_JSON = "application/problem+json"
SECURITY_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "Strict-Transport-Security": "max-age=31536000",
    "X-Content-Type-Options": "nosniff",
}

HIDDEN_SOURCE_ERROR = "what the answer is made of could not be read; the api function's log says what, under the request id {!r}"
"""To those who do not see the whole fleet: what cannot be read is named with its cluster, or by its key."""

_STATUS: tuple[tuple[type[GpuCostError], HTTPStatus], ...] = (
    (InvalidInputError, HTTPStatus.BAD_REQUEST),
    (AccessDeniedError, HTTPStatus.FORBIDDEN),
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (SettingsMissingError, HTTPStatus.SERVICE_UNAVAILABLE),
    (ConflictError, HTTPStatus.CONFLICT),
    (SourceError, HTTPStatus.BAD_GATEWAY),
)


def problem(status: HTTPStatus, detail: str, *, instance: str, errors: Sequence[tuple[str, str]] = ()) -> Response[str]:
    """A problem document; `errors` are (parameter, what is wrong with it) pairs."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "instance": instance,
    }
    if errors:
        body["errors"] = [{"parameter": parameter, "detail": why} for parameter, why in errors]
    return Response(
        status_code=status.value, content_type=PROBLEM_JSON, body=dumps(body), headers=dict(SECURITY_HEADERS)
    )


def add_problems(app: APIGatewayHttpResolver) -> None:
    """Answer whatever goes wrong in an app with a problem document."""

    @app.not_found
    def no_route(_error: Exception) -> Response[str]:
        path = app.current_event.path
        slash = " (paths here have no slash at the end)" if path.endswith("/") else ""
        detail = f"there is no {app.current_event.http_method} {path}{slash}; /openapi.json lists what there is"
        return problem(HTTPStatus.NOT_FOUND, detail, instance=path)

    @app.exception_handler(RequestValidationError)
    def wrong_parameters(error: RequestValidationError) -> Response[str]:
        found = [_parameter_error(finding) for finding in error.errors()]
        detail = "; ".join(f"{parameter}: {why}" for parameter, why in found)
        return problem(HTTPStatus.BAD_REQUEST, detail, instance=app.current_event.path, errors=found)

    @app.exception_handler(GpuCostError)
    def known(error: GpuCostError) -> Response[str]:
        status = next((status for kind, status in _STATUS if isinstance(error, kind)), None)
        if status is None:
            return unexpected()
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            logger.warning("the answer is an error", reason=str(error))
        if isinstance(error, SourceError) and not _sees_the_fleet():
            request = app.current_event.raw_event.get("requestContext", {}).get("requestId", "")
            return problem(status, HIDDEN_SOURCE_ERROR.format(request), instance=app.current_event.path)
        errors = [(error.parameter, error.detail)] if isinstance(error, ParameterError) else []
        return problem(status, str(error), instance=app.current_event.path, errors=errors)

    def _sees_the_fleet() -> bool:
        scope = app.context.get("scope")
        return isinstance(scope, Scope) and scope.is_fleet

    @app.exception_handler(Exception)
    def unknown(_error: Exception) -> Response[str]:
        return unexpected()

    def unexpected() -> Response[str]:
        logger.exception("unexpected error")
        return problem(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "something went wrong that should not; the function's log says what",
            instance=app.current_event.path,
        )


def _parameter_error(error: dict[str, Any]) -> tuple[str, str]:
    parameter = str(error["loc"][-1])
    if error["type"] == "missing":
        return parameter, "is needed and missing"
    if isinstance(error.get("input"), list):
        return parameter, "is given more than once"
    if error["type"] == "literal_error":
        return parameter, f"must be {error['ctx']['expected']}"
    return parameter, str(error["msg"])
