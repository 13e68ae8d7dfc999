"""Reports that are read page by page: single lines, GPU nodes, and the prices in force."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from msgspec import Struct

from gpucost.core.errors import ParameterError
from gpucost.core.hour_record import ClusterCharge, Line, NodeHour
from gpucost.core.hours import format_timestamp
from gpucost.core.ledger import Manifest
from gpucost.core.pricing.prices import PRICE_SOURCES, Price, PriceSource
from gpucost.core.query.cost_query import MAX_LINE_HOURS, CostQuery, etag_of_query, read_cursor, write_cursor
from gpucost.core.query.dimensions import Filter, matches_all
from gpucost.core.query.periods import Period
from gpucost.storage.ports import PublishedHours
from gpucost.storage.price_book import PriceStore

# Pages of reports that are read hour by hour, so that a page reads only the hours it shows.

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


def _manifests(ledger: PublishedHours, clusters: Iterable[str], period: Period, rows: str) -> list[Manifest]:
    """Return the hours of a report in order; a period longer than 48 hours is a `ParameterError`."""
    if period.hours() > MAX_LINE_HOURS:
        raise ParameterError(
            period.parameter,
            f"the period has more than {MAX_LINE_HOURS} hours, the maximum for {rows}. Shorten the period.",
        )
    manifests = (manifest for name in clusters for manifest in ledger.manifests(name, period.start, period.end))
    return sorted(manifests, key=lambda manifest: (manifest.hour, manifest.cluster))


# Reports single lines of the ledger, page by page: one pod and one resource in one hour.

DEFAULT_LINES, MAX_LINES_PER_PAGE = 500, 2_000
"""Rows per page."""
LINE_FILTERS = ("business_unit", "namespace", "workload", "pod", "node", "node_pool", "resource_claim", "dra_driver")


class LineReports:
    """Reads lines hour by hour, so that a page reads only the hours it shows.

    Args:
        ledger: the hours that the caller may see.
    """

    def __init__(self, ledger: PublishedHours) -> None:
        self._ledger = ledger

    def page(
        self, query: CostQuery, clusters: Sequence[str], visible_units: object, cursor: str | None
    ) -> ReportPage[tuple[Manifest, Line]]:
        """Return lines, each with its hour, in order of hour and cluster, and within an hour in the ledger's order.

        Args:
            query: period, filters of `LINE_FILTERS`, and limit.
            clusters: cluster names, sorted.
            visible_units: part of the ETag, so that a cursor works only for callers with the same scope.
            cursor: cursor from the previous page.

        Raises:
            AccessDeniedError: the query filters by a business unit outside the caller's scope.
            ParameterError: a period longer than 48 hours, or the cursor of another query.
        """
        manifests = [
            manifest
            for manifest in _manifests(self._ledger, clusters, query.period, "lines")
            if manifest.status != "incomplete"
        ]
        versions = (f"{manifest.cluster} {manifest.hour:%FT%H} {manifest.version}" for manifest in manifests)
        etag = etag_of_query(f"lines {query.canonical_text()} {list(clusters)} {visible_units}", versions)
        return read_page(
            manifests,
            lambda manifest: [(manifest, line) for line in self._lines(manifest, query)],
            lambda row: _matches(query.filters, row[1]),
            limit=query.limit,
            cursor=cursor,
            etag=etag,
        )

    def _lines(self, manifest: Manifest, query: CostQuery) -> list[Line]:
        units = query.units_in_filter()
        if units is None:
            return self._ledger.lines_of(manifest)
        return [line for unit in sorted(units) for line in self._ledger.lines_of(manifest, unit)]


def _matches(filters: Sequence[Filter], line: Line) -> bool:
    return matches_all(filters, LINE_FILTERS, [getattr(line, name) for name in LINE_FILTERS])


# Reports GPU nodes by hour, page by page: each node's cost, its lines, and what was not allocated.

DEFAULT_NODES, MAX_NODES_PER_PAGE = 500, 2_000
"""Rows per page."""


class NodeRow(Struct, frozen=True):
    """One hour of a node, or a charge that belongs to no node, such as unused reserved capacity."""

    manifest: Manifest
    """Its hour."""
    node_or_charge: NodeHour | ClusterCharge
    holders: Sequence[Line] | None = ()
    """Lines on the node; None if another node had the same name in that hour, because lines name only the node."""


class NodeReports:
    """Reads nodes hour by hour, so that a page reads only the hours it shows.

    Args:
        ledger: the hours that the caller may see.
    """

    def __init__(self, ledger: PublishedHours) -> None:
        self._ledger = ledger

    def page(self, period: Period, clusters: Sequence[str], *, limit: int, cursor: str | None) -> ReportPage[NodeRow]:
        """Return rows in order of hour, cluster and node.

        Raises:
            ParameterError: a period longer than 48 hours, or the cursor of another query.
        """
        manifests = _manifests(self._ledger, clusters, period, "nodes")
        query = f"nodes {format_timestamp(period.start)} {format_timestamp(period.end)} {list(clusters)} {limit}"
        etag = etag_of_query(
            query, (f"{hour.cluster} {format_timestamp(hour.hour)} {hour.version}" for hour in manifests)
        )
        return read_page(manifests, self._rows, lambda _: True, limit=limit, cursor=cursor, etag=etag)

    def _rows(self, manifest: Manifest) -> list[NodeRow]:
        nodes, charges = self._ledger.nodes_and_charges_of(manifest)
        if not nodes and not charges:
            return []
        holders: dict[str, list[Line]] = {}
        for line in self._ledger.lines_of(manifest):
            holders.setdefault(line.node, []).append(line)
        name_counts = Counter(node.node for node in nodes)
        rows: list[NodeRow] = []
        for node in nodes:
            is_ambiguous = name_counts[node.node] > 1 and node.node in holders
            rows.append(NodeRow(manifest, node, None if is_ambiguous else holders.get(node.node, ())))
        return rows + [NodeRow(manifest, charge) for charge in charges]


# Lists the prices of the price book that are in force in a period, page by page.

PRICES_PER_PAGE = 1000
"""Prices per page of the API."""
MAX_PRICE_DAYS = 35
"""Longest period of a listing, in days."""


class ListedPrice(Struct, frozen=True):
    """A price of the price book. Prices set by hand have an id, with which they can be removed."""

    price: Price
    id: str | None = None

    @property
    def position(self) -> str:
        """Sort key in a listing: source, what the price applies to, and time."""
        price = self.price
        valid_from = "" if price.valid_from is None else format_timestamp(price.valid_from)
        applies_to = sorted(price.applies_to.items())
        return json.dumps([PRICE_SOURCES.index(price.source), applies_to, valid_from, price.unit, self.id or ""])


class PricePage(Struct, frozen=True):
    """A page of a listing. `next_position` starts the next page; None on the last page."""

    rows: Sequence[ListedPrice]
    next_position: str | None


class PriceBookListing:
    """Reads the price book.

    Args:
        book: prices fetched from AWS and prices set by hand. Prices in the settings are not part of it.
    """

    def __init__(self, book: PriceStore) -> None:
        self._book = book

    def page(
        self,
        start: datetime,
        end: datetime,
        *,
        source: PriceSource | None = None,
        instance_type: str | None = None,
        after: str = "",
        limit: int = PRICES_PER_PAGE,
    ) -> PricePage:
        """Return prices in force at some time of `[start, end)`.

        Args:
            start: start of the period.
            end: end of the period, exclusive.
            source: only prices of this source; None for all.
            instance_type: only prices that can apply to this instance type; None for all.
            after: position of the last price of the previous page.
            limit: maximum number of prices; 0 for all.

        Raises:
            ParameterError: the period is empty or longer than 35 days.
            SourceError: the price book could not be read.
        """
        if not start < end:
            raise ParameterError(
                "end",
                f"must be after start ({format_timestamp(start)}), but is {format_timestamp(end)}; pass a later end",
            )
        if (end - start).total_seconds() > MAX_PRICE_DAYS * 86_400:
            raise ParameterError("end", f"must be at most {MAX_PRICE_DAYS} days after start; shorten the period")
        sources = None if source is None else (source,)
        prices = self._book.in_force(start, end, sources=sources).prices
        overrides = self._book.overrides() if any(price.source == "override" for price in prices) else []
        rows = sorted(
            (
                ListedPrice(price, next((override.id for override in overrides if override.price == price), None))
                for price in prices
                if source in (None, price.source) and _can_apply(price, instance_type)
            ),
            key=lambda row: row.position,
        )
        remaining_rows = [row for row in rows if row.position > after]
        page_rows = remaining_rows[:limit] if limit else remaining_rows
        return PricePage(page_rows, page_rows[-1].position if len(page_rows) < len(remaining_rows) else None)


def _can_apply(price: Price, instance_type: str | None) -> bool:
    pattern = price.applies_to.get("instance_type")
    return instance_type is None or pattern is None or fnmatchcase(instance_type, pattern)
