"""Pages of reports that are read hour by hour, so that a page reads only the hours it shows."""

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

from gpucost.core.ledger import Manifest
from gpucost.core.query.paging import read_cursor, write_cursor

T = TypeVar("T")
_POSITIONS_PER_HOUR = 1_000_000
"""More lines or nodes than an hour can have. A position is hour index × this + row index."""
POSITIONS_PER_BATCH = 1_000_000
"""More rows than a part of a report can have. A position is the part's first batch × this + row index."""


def batch_of(position: int) -> int:
    """Return the first batch of the part that a position is in."""
    return position // POSITIONS_PER_BATCH


def row_of(position: int) -> int:
    """Return the index of a position's row in its part."""
    return position % POSITIONS_PER_BATCH


def positions_of_page(offset: int, rows: int, row_count: int) -> list[int]:
    """Return the positions of a page's rows, and that of the next page's first row if there is one."""
    return [*range(offset, min(offset + rows + 1, row_count))]


class ReportPage(Struct, Generic[T], frozen=True):
    """Rows of single lines or nodes, in order of hour and cluster."""

    rows: list[T]
    positions: list[int]
    """The position of each row among all rows of the hours, and that of the next page's first row if there is one."""
    etag: str

    def cursor_after(self, count: int) -> str | None:
        """Return the cursor of the page that begins after this many of the rows; None after the last row."""
        return write_cursor(self.positions[count], self.etag) if count < len(self.positions) else None


def read_page(
    manifests: Sequence[Manifest],
    rows_of: Callable[[Manifest], Iterable[T]],
    matches: Callable[[T], bool],
    *,
    limit: int,
    cursor: str | None,
    etag: str,
) -> ReportPage[T]:
    """Read the rows of a page.

    Args:
        manifests: the hours of the whole report, in order.
        rows_of: reads the rows of an hour, always in the same order.
        matches: whether a row is in the report. Positions count all rows.
        limit: most rows of the page.
        cursor: cursor from the previous page; None for the first page.
        etag: digest of the query and of the versions of its hours.

    Raises:
        ParameterError: the cursor is of another query, or figures have changed since.
    """
    start = read_cursor(cursor, etag)
    first_hour = start // _POSITIONS_PER_HOUR
    rows: list[T] = []
    positions: list[int] = []
    for hour_index, manifest in enumerate(manifests[first_hour:], first_hour):
        if len(rows) > limit:
            break
        for position, row in enumerate(rows_of(manifest), hour_index * _POSITIONS_PER_HOUR):
            if position >= start and matches(row):
                rows.append(row)
                positions.append(position)
    return ReportPage(rows[:limit], positions[: limit + 1], etag)
