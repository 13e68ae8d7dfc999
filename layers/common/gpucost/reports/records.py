"""What reports are made of."""

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from gpucost.core.ledger import Manifest
from gpucost.core.model import Totals
from gpucost.core.query.cost_query import CostQuery
from gpucost.core.query.grouping import Row
from gpucost.core.query.periods import Period


@dataclass(frozen=True, slots=True)
class PeriodCoverage:
    """How much of a period is known: hours of all clusters that have ended, and how many of them are complete.

    `allocation` and `utilization` are means over the hours that were published; None where there are none.
    """

    hours_expected: int
    hours_complete: int
    allocation: Decimal | None
    utilization: Decimal | None


@dataclass(frozen=True, slots=True)
class CostReport:
    """A page of an answer. Totals, what was filtered out and coverage are the whole answer's on every page."""

    query: CostQuery
    rows: list[Row]
    row_count: int
    """Of all pages."""
    totals: Totals | None
    """None where no hour has figures; never changed by grouping, filters or pages."""
    filtered_out: Row | None
    """What the filters leave out: with the rows of all pages it adds up to the totals. None where nothing filters."""
    coverage: PeriodCoverage
    currency: str
    """Of every amount, whatever the names of their fields say."""
    offset: int
    """Rows on the pages before."""
    etag: str
    """Fingerprint of the question and of what answers it: cursors carry it."""

    @property
    def period(self) -> Period:
        """What was asked about."""
        return self.query.period


@dataclass(frozen=True, slots=True)
class FleetRow:
    """A period's part of the identity."""

    start: datetime
    end: datetime
    totals: Totals


@dataclass(frozen=True, slots=True)
class HourRow:
    """Where one cluster-hour stands; `manifest` is None for an hour that was never published."""

    cluster: str
    hour: datetime
    manifest: Manifest | None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trend:
    """A period beside the one before it."""

    current: CostReport
    previous: CostReport
