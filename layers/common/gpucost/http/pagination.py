"""Answers cut where Lambda could not send more of them; a cursor goes on."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from aws_lambda_powertools.event_handler import Response

from gpucost.core.query.paging import write_cursor
from gpucost.core.query.periods import DEFAULT_WINDOW, Period
from gpucost.http.problems import SECURITY_HEADERS
from gpucost.reports import CostReport
from gpucost.runtime.json_text import csv_text, dumps

MAX_PAGE_BYTES = 4_500_000
"""Bytes of rows: Lambda answers 6 MB at most, and what is around the rows counts, too."""
DEFAULT_WINDOW_HEADER = "X-Default-Window"
NEXT_CURSOR = "X-Next-Cursor"


@dataclass(frozen=True, slots=True)
class Page:
    """As many rows as fit, as JSON, and how to go on."""

    rows: list[str]
    cursor: str | None


def fill_page(rows: Iterable[str], cursor_after: Callable[[int], str | None]) -> Page:
    """As many rows as one answer can hold, at least one.

    Args:
        rows: as they are published, in JSON.
        cursor_after: the cursor to go on after so many of the rows; None after the last.
    """
    page_rows: list[str] = []
    size = 0
    for text in rows:
        size += len(text) + 2  # dumps writes ASCII
        if page_rows and size > MAX_PAGE_BYTES:
            break
        page_rows.append(text)
    return Page(page_rows, cursor_after(len(page_rows)))


def cursor_writer(report: CostReport) -> Callable[[int], str | None]:
    """The cursor to go on after so many rows of a page."""

    def cursor_after(count: int) -> str | None:
        place = report.offset + count
        return None if place >= report.row_count else write_cursor(place, report.etag)

    return cursor_after


def json_page(fields_before: dict[str, Any], page: Page, fields_after: dict[str, Any]) -> Response[str]:
    """One JSON object: what stands before the rows, the rows, what stands after."""
    end = dumps({**fields_after, "cursor": page.cursor})
    body = f'{dumps(fields_before)[:-1]}, "rows": [{", ".join(page.rows)}], {end[1:]}'
    return Response(HTTPStatus.OK, "application/json", body, headers=dict(SECURITY_HEADERS))


def json_lines_page(fields_before: dict[str, Any], page: Page, fields_after: dict[str, Any]) -> Response[str]:
    """JSON Lines: the answer without its rows, then each row."""
    first = dumps({**fields_before, **fields_after, "cursor": page.cursor})
    body = "\n".join([first, *page.rows]) + "\n"
    return Response(HTTPStatus.OK, "application/jsonl", body, headers=_headers(page.cursor, "costs.jsonl"))


def csv_page(
    header: Sequence[str],
    rows: Sequence[Sequence[object]],
    cursor_after: Callable[[int], str | None],
    filename: str,
    period: Period,
) -> Response[str]:
    """A CSV download of as many rows as fit."""
    count, size = 0, 0
    for row in rows:
        size += sum(len(str(value).encode()) + 4 for value in row)
        if count and size > MAX_PAGE_BYTES:
            break
        count += 1
    text = csv_text(header, rows[:count])
    default_window: dict[str, str | list[str]] = {DEFAULT_WINDOW_HEADER: DEFAULT_WINDOW} if period.parameter == "default" else {}
    return Response(HTTPStatus.OK, "text/csv; charset=utf-8", text, headers=_headers(cursor_after(count), filename) | default_window)


def _headers(cursor: str | None, filename: str) -> dict[str, str | list[str]]:
    next_cursor: dict[str, str | list[str]] = {} if cursor is None else {NEXT_CURSOR: cursor}
    return {**SECURITY_HEADERS, "Content-Disposition": f'attachment; filename="{filename}"', **next_cursor}
