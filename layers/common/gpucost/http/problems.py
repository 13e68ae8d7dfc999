"""Maps all errors to RFC 9457 problem documents without internal details."""

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

HIDDEN_SOURCE_ERROR = "a record could not be read. Details are in the api function's log, request ID {!r}."
"""Shown to callers who do not see the whole fleet, because the error itself names a cluster or a key."""

_MISSING_PARAMETER_MESSAGES = {
    "start": "required. Pass start and end in RFC 3339, for example 2026-11-18T00:00:00Z.",
    "end": "required. Pass start and end in RFC 3339, for example 2026-11-19T00:00:00Z.",
    "window": "required. Pass a window, for example window=24h.",
}
_STATUS_BY_ERROR: tuple[tuple[type[GpuCostError], HTTPStatus], ...] = (
    (InvalidInputError, HTTPStatus.BAD_REQUEST),
    (AccessDeniedError, HTTPStatus.FORBIDDEN),
    (NotFoundError, HTTPStatus.NOT_FOUND),
    (SettingsMissingError, HTTPStatus.SERVICE_UNAVAILABLE),
    (ConflictError, HTTPStatus.CONFLICT),
    (SourceError, HTTPStatus.BAD_GATEWAY),
)


def problem_response(
    status: HTTPStatus, detail: str, *, instance: str, errors: Sequence[tuple[str, str]] = ()
) -> Response[str]:
    """Return a problem document. `errors` are pairs of a parameter and what is wrong with it."""
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": status.phrase,
        "status": status.value,
        "detail": detail,
        "instance": instance,
    }
    if errors:
        body["errors"] = [{"parameter": parameter, "detail": reason} for parameter, reason in errors]
    return Response(
        status_code=status.value, content_type=PROBLEM_JSON, body=dumps(body), headers=dict(SECURITY_HEADERS)
    )


def add_problem_handlers(app: APIGatewayHttpResolver) -> None:
    """Register handlers that turn every error of an app into a problem document."""

    @app.not_found
    def no_route(_error: Exception) -> Response[str]:
        path = app.current_event.path
        hint = " Paths have no slash at the end." if path.endswith("/") else ""
        detail = f"there is no {app.current_event.http_method} {path}.{hint} /openapi.json lists all routes."
        return problem_response(HTTPStatus.NOT_FOUND, detail, instance=path)

    @app.exception_handler(RequestValidationError)
    def wrong_parameters(error: RequestValidationError) -> Response[str]:
        errors = [_parameter_error(details) for details in error.errors()]
        detail = " ".join(f"{parameter}: {reason}" for parameter, reason in errors)
        return problem_response(HTTPStatus.BAD_REQUEST, detail, instance=app.current_event.path, errors=errors)

    @app.exception_handler(GpuCostError)
    def domain_error(error: GpuCostError) -> Response[str]:
        status = next((status for kind, status in _STATUS_BY_ERROR if isinstance(error, kind)), None)
        if status is None:
            return unexpected()
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            logger.warning("request failed", reason=str(error))
        if isinstance(error, SourceError) and not _sees_the_fleet():
            request = app.current_event.raw_event.get("requestContext", {}).get("requestId", "")
            return problem_response(status, HIDDEN_SOURCE_ERROR.format(request), instance=app.current_event.path)
        errors = [(error.parameter, error.detail)] if isinstance(error, ParameterError) else []
        return problem_response(status, str(error), instance=app.current_event.path, errors=errors)

    def _sees_the_fleet() -> bool:
        scope = app.context.get("scope")
        return isinstance(scope, Scope) and scope.is_fleet

    @app.exception_handler(Exception)
    def unexpected_error(_error: Exception) -> Response[str]:
        return unexpected()

    def unexpected() -> Response[str]:
        logger.exception("unexpected error")
        return problem_response(
            HTTPStatus.INTERNAL_SERVER_ERROR,
            "internal error. Details are in the function's log.",
            instance=app.current_event.path,
        )


def _parameter_error(error: dict[str, Any]) -> tuple[str, str]:
    parameter = str(error["loc"][-1])
    if error["type"] == "missing":
        return parameter, _MISSING_PARAMETER_MESSAGES.get(parameter, "required.")
    if isinstance(error.get("input"), list):
        return parameter, "sent more than once. Send it once."
    if error["type"] == "literal_error":
        return parameter, f"must be {error['ctx']['expected']}."
    return parameter, str(error["msg"])
