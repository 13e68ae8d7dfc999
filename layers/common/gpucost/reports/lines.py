"""Reports single lines of the ledger, page by page: one pod and one resource in one hour."""

from collections.abc import Sequence

from gpucost.core.errors import ParameterError
from gpucost.core.hour_record import Line
from gpucost.core.ledger import Manifest
from gpucost.core.query.cost_query import MAX_LINE_HOURS, CostQuery
from gpucost.core.query.filters import Filter, matches_all
from gpucost.core.query.paging import etag_of_query
from gpucost.reports.pages import ReportPage, read_page
from gpucost.storage.ports import PublishedHours

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
