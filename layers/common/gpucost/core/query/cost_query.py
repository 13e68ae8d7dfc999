"""The query of `/v1/costs` as a value, and the cursors of its pages; equal values are the same query."""

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal

from msgspec import Struct

from gpucost.core.amounts import Costs, Idle
from gpucost.core.errors import ParameterError
from gpucost.core.hours import DAY, floor_day, format_timestamp
from gpucost.core.query.dimensions import LINE_DIMENSIONS, Filter, filters_as_lists
from gpucost.core.query.periods import Granularity, Period, row_end, row_start

IdlePolicy = Literal["hidden", "separate", "shared-by-allocation", "shared-evenly"]
"""How a query reports idle cost."""
MAX_LINE_HOURS = 48
"""How many hours of single pods or nodes one response covers."""
MAX_PAGE_SIZE = 10_000
IDLE_FIGURES = (*Idle.names(), "cost_usd")
"""What a row has in addition if idle cost is not hidden; `cost_usd` is allocated + idle."""


class CostQuery(Struct, frozen=True):
    """A query with parsed and checked parameters."""

    period: Period
    granularity: Granularity = "hour"
    group_by: tuple[str, ...] = ()
    filters: tuple[Filter, ...] = ()
    idle: IdlePolicy = "hidden"
    sort: tuple[tuple[str, bool], ...] = ()
    """(Figure, dimension or `start`; whether the largest comes first)."""
    limit: int = MAX_PAGE_SIZE
    step: timedelta | None = None
    """Length of the rows in full hours, counted from the period's start, in place of the granularity."""

    def row_start(self, moment: datetime) -> datetime:
        """Return the start of a time's row; a row never begins before the period."""
        if self.step is None:
            return row_start(moment, self.granularity, self.period)
        return self.period.start + (moment - self.period.start) // self.step * self.step

    def row_end(self, begin: datetime) -> datetime:
        """Return the end of the row that begins at a time; a row never ends after the period."""
        if self.step is None:
            return row_end(begin, self.granularity, self.period)
        return min(begin + self.step, self.period.end)

    def has_rows_of_whole_days(self) -> bool:
        """Whether every whole UTC day of the period is in one row."""
        if self.step is None:
            return self.granularity != "hour"
        return not self.step % DAY and floor_day(self.period.start) == self.period.start

    def dimensions(self) -> tuple[str, ...]:
        """Return the dimensions that the query needs: those grouped by, then those only filtered on."""
        return tuple(dict.fromkeys((*self.group_by, *(name_filter.dimension for name_filter in self.filters))))

    def units_in_filter(self) -> tuple[str, ...] | None:
        """Return the business units to which the filters restrict the rows; None for any."""
        name_lists = [
            unit_filter.exact_names() for unit_filter in self.filters if unit_filter.dimension == "business_unit"
        ]
        return next((names for names in name_lists if names is not None), None)

    def canonical_text(self) -> str:
        """Return the query in canonical form, for ETags."""
        return json.dumps(
            [
                format_timestamp(self.period.start),
                format_timestamp(self.period.end),
                self.granularity,
                self.group_by,
                filters_as_lists(self.filters),
                self.idle,
                self.sort,
                self.limit,
            ]
        )


def check_line_hours(query: CostQuery) -> None:
    """Reject a query of single pods or nodes over too long a period.

    Raises:
        ParameterError: more than 48 hours; says which route has longer periods.
    """
    line_dimension = next((name for name in query.dimensions() if name in LINE_DIMENSIONS), None)
    if line_dimension is not None and query.period.hours() > MAX_LINE_HOURS:
        raise ParameterError(
            line_dimension if line_dimension not in query.group_by else "group_by",
            f"{line_dimension} is available for periods of at most {MAX_LINE_HOURS} hours; shorten the period, or use "
            "the exports (GET /v1/exports)",
        )


def parse_sort(
    text: str, group_by: Sequence[str], idle: IdlePolicy, names: Sequence[str] = Costs.names()
) -> tuple[tuple[str, bool], ...]:
    """Parse `-waste_usd,start`: a minus puts the largest first; equal rows stay in order of time and name.

    Raises:
        ParameterError: a name that is not a figure, a dimension of group_by or `start`, or that is repeated.
    """
    figures = (*names, *(() if idle == "hidden" else IDLE_FIGURES))
    allowed = ("start", *group_by, *figures)
    order: list[tuple[str, bool]] = []
    for part in (part.strip() for part in text.split(",") if part.strip()):
        name = part.removeprefix("-")
        if name not in allowed:
            raise ParameterError(
                "sort",
                f"{part!r} is not sortable; allowed, with a leading - for descending order: {', '.join(allowed)}",
            )
        if name in (sorted_name for sorted_name, _ in order):
            raise ParameterError("sort", f"{name!r} is named twice; name it once")
        order.append((name, part.startswith("-")))
    return tuple(order)


# Cursors for pages of one response; a cursor is valid only for the same query on the same figures.
#
# A cursor has the offset of the next page and a digest of the query, the caller's scope, the versions of the summed
# hours and the offset. It grants no access: the next page is computed again, with the scope of its caller.

_MAX_CURSOR_LENGTH = 200
_DIGEST_LENGTH = 32


def etag_of_query(query: str, versions: Iterable[str]) -> str:
    """Return the digest of a query and of the versions of the hours that it sums."""
    digest = hashlib.sha256(query.encode())
    for version in sorted(versions):
        digest.update(b"\n" + version.encode())
    return digest.hexdigest()


def write_cursor(offset: int, etag: str) -> str:
    """Return the cursor for the page that starts at an offset (in rows) of a response."""
    return _encode(offset, _digest(offset, etag))


def check_cursor(cursor: str | None) -> int:
    """Return the offset that a cursor names, before any data is read that shows whether it is of this query.

    Raises:
        ParameterError: no response returned this cursor.
    """
    return 0 if cursor is None else _decode(cursor)[0]


def read_cursor(cursor: str | None, etag: str) -> int:
    """Return the offset of a cursor; 0 without one.

    Raises:
        ParameterError: the cursor is malformed or of another query, or figures have changed since.
    """
    if cursor is None:
        return 0
    offset, digest = _decode(cursor)
    if digest != _digest(offset, etag):
        raise ParameterError(
            "cursor", "is of another query, or figures of the period have changed since; start again without cursor"
        )
    return offset


def _decode(cursor: str) -> tuple[int, str]:
    decoded: object = None
    if len(cursor) <= _MAX_CURSOR_LENGTH and cursor.isascii():
        with suppress(ValueError, RecursionError):
            decoded = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    match decoded:
        # Several texts decode to the same bytes in Base64; only the one that was returned is valid.
        case [int(offset), str(digest)] if offset > 0 and _encode(offset, digest) == cursor:
            return offset, digest
    raise ParameterError("cursor", "is invalid; pass the cursor of a previous response unchanged")


def _encode(offset: int, digest: str) -> str:
    return urlsafe_b64encode(json.dumps([offset, digest]).encode()).decode().rstrip("=")


def _digest(offset: int, etag: str) -> str:
    return hashlib.sha256(f"{offset}\n{etag}".encode()).hexdigest()[:_DIGEST_LENGTH]
