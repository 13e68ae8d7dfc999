"""Records that reports consist of."""

from datetime import datetime
from decimal import Decimal

from msgspec import Struct

from gpucost.core.amounts import Totals
from gpucost.core.ledger import Manifest
from gpucost.core.query.cost_query import CostQuery
from gpucost.core.query.grouping import GroupRow
from gpucost.core.query.paging import write_cursor
from gpucost.core.query.periods import Period
from gpucost.reports.pages import POSITIONS_PER_BATCH, batch_of, row_of


class PeriodCoverage(Struct, frozen=True):
    """How much of a period has been measured: ended hours of all clusters, and how many of them are complete.

    `allocation` and `utilization` are means over the published hours; None if there are none.
    """

    hours_expected: int
    hours_complete: int
    allocation: Decimal | None
    utilization: Decimal | None


class CostReport(Struct, frozen=True):
    """A page of a cost report. Totals and coverage are those of the whole report on every page.

    A report that is read in parts has the rows and filtered-out costs of one part.
    """

    query: CostQuery
    rows: list[GroupRow]
    row_count: int
    """Rows on all pages, of the part."""
    totals: Totals | None
    """None if no hour has figures. Grouping, filters and pages do not change it."""
    filtered_out: GroupRow | None
    """What the filters exclude. The rows of all pages and this add up to the totals. None without filters."""
    coverage: PeriodCoverage
    currency: str
    """Currency of every amount, also of those in fields named `_usd`."""
    offset: int
    """Number of rows on previous pages."""
    etag: str
    """Digest of the query and of the versions of the hours it reads. Cursors contain it."""
    next_batch: int | None = None
    """First batch of the next part; None after the last part."""

    def has_parts(self) -> bool:
        """Whether the report is read in parts, so that groups can have a row in each."""
        return self.next_batch is not None or batch_of(self.offset) > 0

    def cursor_after(self, count: int) -> str | None:
        """Return the cursor of what follows this many rows of the page; None after the last row of the report."""
        position = self.offset + count
        if row_of(position) < self.row_count:
            return write_cursor(position, self.etag)
        return None if self.next_batch is None else write_cursor(self.next_batch * POSITIONS_PER_BATCH, self.etag)

    @property
    def period(self) -> Period:
        """The query's period."""
        return self.query.period


class HourRow(Struct, frozen=True):
    """The state of one cluster-hour. `manifest` is None if the hour was never published."""

    cluster: str
    hour: datetime
    manifest: Manifest | None
    notes: tuple[str, ...] = ()
    is_newest: bool = False
    """Whether it is the newest hour that has ended. If it is not published, it is still computed."""
    is_closed: bool = False
    """Whether its month is closed, so that an hour without figures never gets any."""


class PeriodComparison(Struct, frozen=True):
    """The costs of a period and of the previous one."""

    current: CostReport
    previous: CostReport
