"""Records that reports consist of."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

from msgspec import Struct, field

from gpucost.core.amounts import CapacityCosts, Costs, Totals, quantize
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.errors import InvalidInputError
from gpucost.core.hour_record import Coverage
from gpucost.core.ledger import CostSummary, Manifest
from gpucost.core.query.cost_query import CostQuery, write_cursor
from gpucost.core.query.grouping import CellKey, GroupRow
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


# What was read for a report: the costs of its rows, and sums, coverage, currencies and versions of all its hours.


class PeriodCosts(Struct):
    """Adds up hours and days while they are read."""

    cells: CostsByKey[CellKey] = field(default_factory=CostsByKey)
    """The costs of the rows, before they are grouped."""
    capacities: dict[tuple[datetime, str], CapacityCosts | None] = field(default_factory=dict)
    """By start of the row and cluster; None if the capacity of any hour is unknown."""
    filtered_out: Costs = field(default_factory=Costs)
    """The fleet's figures that the filters certainly exclude, which were therefore not read in detail."""
    next_batch: int | None = None
    """The first batch of records that was not read, because these are a part of the costs; None after the last one."""
    summed_totals: list[Totals] = field(default_factory=list)
    """The totals of hours and days with figures."""
    coverages: list[Coverage] = field(default_factory=list)
    currencies: set[str] = field(default_factory=set)
    hour_versions: set[str] = field(default_factory=set)
    """Versions of all hours read. Any change of a figure changes one of them."""
    hour_counts: Counter[str] = field(default_factory=Counter)
    """Number of recorded hours by cluster."""
    newest_hours: dict[str, datetime] = field(default_factory=dict)
    """The newest recorded hour by cluster."""
    complete_hours: int = 0
    newest_manifests: dict[str, Manifest] = field(default_factory=dict)
    """The newest hour with figures, by cluster."""

    def add(self, summary: CostSummary[Any]) -> None:
        """Add an hour or a day. Hours whose figures have expired count as recorded, and not as complete."""
        self._add_versions(summary.manifests)
        if summary.totals is not None:
            self.complete_hours += _count_complete(summary.manifests)
            self.currencies |= summary.currencies
            self.summed_totals.append(summary.totals)

    def add_manifests(self, manifests: Sequence[Manifest]) -> None:
        """Add the status, version and coverage of one cluster's hours, which are in order, without their figures."""
        self._add_versions(manifests)
        self.complete_hours += _count_complete(manifests)

    def _add_versions(self, manifests: Sequence[Manifest]) -> None:
        if not manifests:
            return
        cluster, newest = manifests[-1].cluster, manifests[-1].hour
        self.hour_versions.update(f"{cluster} {manifest.hour.isoformat()} {manifest.version}" for manifest in manifests)
        self.hour_counts[cluster] += len(manifests)
        self.newest_hours[cluster] = max(newest, self.newest_hours.get(cluster, newest))
        self.coverages += [manifest.coverage for manifest in manifests if manifest.coverage is not None]

    def totals(self) -> Totals | None:
        """Return exact sums, or None if no hour has figures. The capacity is None if any hour's is."""
        return Totals.total(self.summed_totals)

    def currency(self, default: str) -> str:
        """Return the currency of all amounts.

        Args:
            default: returned if no hour has figures.

        Raises:
            InvalidInputError: the hours have several currencies, which cannot be added up.
        """
        if len(self.currencies) > 1:
            raise InvalidInputError(
                f"the period has amounts in {' and '.join(sorted(self.currencies))}, which cannot be added up. "
                "Select one cluster, or a period before or after the change of currency."
            )
        return next(iter(self.currencies), default)

    def coverage(self, hours_expected: int) -> PeriodCoverage:
        """Return how much of the period has been measured."""
        return PeriodCoverage(
            hours_expected=hours_expected,
            hours_complete=self.complete_hours,
            allocation=_mean([coverage.allocation for coverage in self.coverages]),
            utilization=_mean(
                [coverage.utilization for coverage in self.coverages if coverage.utilization is not None]
            ),
        )


def _count_complete(manifests: Sequence[Manifest]) -> int:
    return sum(manifest.status == "complete" for manifest in manifests)


def _mean(shares: Sequence[Decimal]) -> Decimal | None:
    return quantize(sum(shares, Decimal(0)) / len(shares)) if shares else None
