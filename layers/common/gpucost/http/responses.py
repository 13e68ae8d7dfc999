"""All responses: JSON with exact numbers, pages, problem documents, and their descriptions in the OpenAPI document."""

from collections.abc import Callable, Iterable, Sequence
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
from gpucost.core.query.periods import DEFAULT_WINDOW, Period
from gpucost.http import schemas
from gpucost.runtime.json_text import csv_text, dumps
from gpucost.runtime.observability import logger

# Maps all errors to RFC 9457 problem documents without internal details.

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


# JSON responses with exact numbers, and the descriptions of responses in the OpenAPI document.

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


# Splits responses into pages that fit Lambda's response limit, with a cursor for the next page.

MAX_PAGE_BYTES = 4_500_000
"""Most bytes of rows. Lambda returns at most 6 MB, including everything around the rows."""
DEFAULT_WINDOW_HEADER = "X-Default-Window"
NEXT_CURSOR_HEADER = "X-Next-Cursor"


def json_page(
    fields_before: dict[str, Any],
    rows: Iterable[str],
    cursor_after: Callable[[int], str | None],
    fields_after: dict[str, Any],
) -> Response[str]:
    """Return one JSON object: the fields before the rows, as many rows as fit, and the fields after them.

    Args:
        rows: JSON texts of the rows.
        cursor_after: returns the cursor of the next page if this page has that many rows; None after the last row.
    """
    page_rows = _rows_that_fit(rows)
    end = dumps({**fields_after, "cursor": cursor_after(len(page_rows))})
    body = f'{dumps(fields_before)[:-1]}, "rows": [{", ".join(page_rows)}], {end[1:]}'
    return Response(HTTPStatus.OK, JSON_CONTENT_TYPE, body, headers=dict(SECURITY_HEADERS))


def json_lines_page(
    fields_before: dict[str, Any],
    rows: Iterable[str],
    cursor_after: Callable[[int], str | None],
    fields_after: dict[str, Any],
    filename: str = "costs.jsonl",
) -> Response[str]:
    """Return JSON Lines: first the response of `json_page` without rows, then one line per row."""
    page_rows = _rows_that_fit(rows)
    cursor = cursor_after(len(page_rows))
    first = dumps({**fields_before, **fields_after, "cursor": cursor})
    body = "\n".join([first, *page_rows]) + "\n"
    return Response(HTTPStatus.OK, "application/jsonl", body, headers=_download_headers(cursor, filename))


def _rows_that_fit(rows: Iterable[str]) -> list[str]:
    """Take as many rows as fit into one response, at least one."""
    page_rows: list[str] = []
    size = 0
    for text in rows:
        size += len(text) + 2  # dumps writes ASCII
        if page_rows and size > MAX_PAGE_BYTES:
            break
        page_rows.append(text)
    return page_rows


def csv_page(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    cursor_after: Callable[[int], str | None],
    filename: str,
    period: Period,
) -> Response[str]:
    """Return a CSV download with as many rows as fit."""
    count, size = 0, 0
    for row in rows:
        size += sum(len(str(value).encode()) + 4 for value in row)
        if count and size > MAX_PAGE_BYTES:
            break
        count += 1
    text = csv_text(header, rows[:count])
    default_window: dict[str, str | list[str]] = (
        {DEFAULT_WINDOW_HEADER: DEFAULT_WINDOW} if period.parameter == "default" else {}
    )
    return Response(
        HTTPStatus.OK,
        "text/csv; charset=utf-8",
        text,
        headers=_download_headers(cursor_after(count), filename) | default_window,
    )


def _download_headers(cursor: str | None, filename: str) -> dict[str, str | list[str]]:
    next_cursor: dict[str, str | list[str]] = {} if cursor is None else {NEXT_CURSOR_HEADER: cursor}
    return {**SECURITY_HEADERS, "Content-Disposition": f'attachment; filename="{filename}"', **next_cursor}
