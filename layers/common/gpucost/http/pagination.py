"""Splits responses into pages that fit Lambda's response limit, with a cursor for the next page."""

from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response

from gpucost.core.query.periods import DEFAULT_WINDOW, Period
from gpucost.http.problems import SECURITY_HEADERS
from gpucost.runtime.json_text import csv_text, dumps

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
    return Response(HTTPStatus.OK, "application/json", body, headers=dict(SECURITY_HEADERS))


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
