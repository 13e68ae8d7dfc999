"""Reports single lines of the ledger, page by page: one pod and one resource in one hour."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gpucost.core.errors import ParameterError
from gpucost.core.ledger import Manifest
from gpucost.core.model import Line
from gpucost.core.query.cost_query import MAX_LINE_HOURS, CostQuery
from gpucost.core.query.filters import Filter, matches_all
from gpucost.core.query.paging import fingerprint, read_cursor
from gpucost.storage.ports import PublishedHours

DEFAULT_LINES, MAX_LINES_PER_PAGE = 500, 2_000
"""Rows per page."""
LINE_FILTERS = ("business_unit", "namespace", "workload", "pod", "node", "node_pool")
_LINE_POSITIONS_PER_HOUR = 1_000_000
"""More lines than an hour can have. A position is hour index × this + line index."""


@dataclass(frozen=True, slots=True)
class LineRow:
    """A line with its cluster and hour."""

    cluster: str
    hour: datetime
    currency: str
    line: Line
    position: int
    """Position among all lines of the query's hours, before filtering."""


@dataclass(frozen=True, slots=True)
class LinePage:
    """A page of the lines of a query's period."""

    query: CostQuery
    rows: list[LineRow]
    next_position: int | None
    """Position of the first row of the next page; None on the last page."""
    etag: str


class LineReports:
    """Reads lines hour by hour, so that a page reads only the hours it shows.

    Args:
        ledger: the hours that the caller may see.
    """

    def __init__(self, ledger: PublishedHours) -> None:
        self._ledger = ledger

    def page(self, query: CostQuery, clusters: Sequence[str], visible_units: object, cursor: str | None) -> LinePage:
        """Return lines in order of hour and cluster, and within an hour in the ledger's order.

        Args:
            query: period, filters of `LINE_FILTERS`, and limit.
            clusters: cluster names, sorted.
            visible_units: part of the ETag, so that a cursor works only for callers with the same scope.
            cursor: cursor from the previous page.

        Raises:
            AccessDeniedError: the query filters by a business unit outside the caller's scope.
            ParameterError: a period longer than 48 hours, or the cursor of another query.
        """
        period = query.period
        if period.hours() > MAX_LINE_HOURS:
            raise ParameterError(
                period.parameter,
                f"the period has more than {MAX_LINE_HOURS} hours, the maximum for lines. Shorten the period.",
            )
        manifests = sorted(
            (
                manifest
                for name in clusters
                for manifest in self._ledger.manifests(name, period.start, period.end)
                if manifest.status != "incomplete"
            ),
            key=lambda manifest: (manifest.hour, manifest.cluster),
        )
        versions = (f"{manifest.cluster} {manifest.hour:%FT%H} {manifest.version}" for manifest in manifests)
        etag = fingerprint(f"lines {query.canonical_text()} {list(clusters)} {visible_units}", versions)
        first_hour, skip = divmod(read_cursor(cursor, etag), _LINE_POSITIONS_PER_HOUR)
        rows: list[LineRow] = []
        for hour_index, manifest in enumerate(manifests[first_hour:], first_hour):
            if len(rows) > query.limit:
                break
            for line_index, line in enumerate(self._lines(manifest, query)):
                if (hour_index > first_hour or line_index >= skip) and _matches(query.filters, line):
                    position = hour_index * _LINE_POSITIONS_PER_HOUR + line_index
                    rows.append(LineRow(manifest.cluster, manifest.hour, manifest.currency, line, position))
        remaining_rows = rows[query.limit :]
        return LinePage(query, rows[: query.limit], remaining_rows[0].position if remaining_rows else None, etag)

    def _lines(self, manifest: Manifest, query: CostQuery) -> list[Line]:
        units = query.restricted_to_units()
        if units is None:
            return self._ledger.lines_of(manifest)
        return [line for unit in sorted(units) for line in self._ledger.lines_of(manifest, unit)]


def _matches(filters: Sequence[Filter], line: Line) -> bool:
    return matches_all(filters, LINE_FILTERS, [getattr(line, name) for name in LINE_FILTERS])
