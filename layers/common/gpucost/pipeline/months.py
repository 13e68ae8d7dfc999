"""Closes months for chargeback, reopens them, and compares closed months with their pending adjustments."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal

from msgspec import Struct

from gpucost.core.amounts import Costs, to_decimal
from gpucost.core.costs_by_key import CostsByKey, sum_by_key
from gpucost.core.errors import ConflictError, InvalidInputError, NotFoundError
from gpucost.core.hours import HOUR, floor_hour, hours_between, parse_month
from gpucost.core.ledger import ClosedMonth, HourSummary
from gpucost.pipeline.attribute import roll_up
from gpucost.pipeline.dispatch import MAX_PUBLICATION_GAP
from gpucost.storage.hour_versions import HourVersions
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Clock, Rollups, SettingsStore


class MonthCoverage(Struct, frozen=True):
    """Which hours of a month have figures, over all clusters, and what they cost."""

    hours_with_figures: int
    missing: int
    """Never published, though the cluster existed."""
    awaiting_retry: int
    """Incomplete, and will be tried again."""
    abandoned: int
    """Incomplete, and not tried again."""
    provisional: int
    """A price is missing or not final."""
    unrecorded: int
    """Hours of the calendar in which no cluster existed, because gpucost was not installed yet, or any more."""
    allocated_by_currency: Mapping[str, Decimal]

    @property
    def is_full(self) -> bool:
        """Whether all hours have final figures."""
        hours = (self.missing, self.awaiting_retry, self.abandoned, self.provisional, self.unrecorded)
        return self.hours_with_figures > 0 and not any(hours)

    @property
    def amounts(self) -> str:
        """The allocated cost in each currency."""
        amounts = sorted(self.allocated_by_currency.items())
        return " and ".join(f"{amount:,.2f} {currency}" for currency, amount in amounts) or "no amount"

    def __str__(self) -> str:
        """A clause for messages."""
        counts = {
            "are missing": self.missing,
            "are incomplete and will be tried again": self.awaiting_retry,
            "are incomplete for good": self.abandoned,
            "are provisional": self.provisional,
            "were before or after all clusters": self.unrecorded,
        }
        return ", ".join(
            [f"{self.hours_with_figures or 'no'} hours have figures ({self.amounts} allocated)"]
            + [f"{count} {text}" for text, count in counts.items() if count]
        )


class Adjustment(Struct, frozen=True):
    """One business unit of one cluster: its costs in a closed month, and what they would be now."""

    cluster: str
    business_unit: str
    currency: str
    closed_costs: Costs
    """Published costs of those hours of the month that have a pending adjustment."""
    current_costs: Costs
    """Costs of the same hours with the adjustments."""


class Adjustments(Struct, frozen=True):
    """The pending adjustments of a closed month."""

    month: ClosedMonth
    hour_count: int
    """How many hours have a pending adjustment."""
    rows: tuple[Adjustment, ...]
    """By cluster and business unit; only those whose costs differ."""


class MonthService:
    """Closes months, reopens them, and compares them with their adjustments."""

    def __init__(
        self, settings_store: SettingsStore, ledger: Ledger, versions: HourVersions, rollups: Rollups, clock: Clock
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._versions = versions
        self._rollups = rollups
        self._clock = clock

    def close(self, month: str, *, author: str, reason: str, force: bool = False) -> tuple[ClosedMonth, MonthCoverage]:
        """Close a month. Its figures no longer change; later changes become pending adjustments.

        Args:
            month: the month, such as `2026-10`.
            author: who closes it.
            reason: why, shown with the closed month.
            force: close it although some hours have no figures, or figures that may still change.

        Raises:
            InvalidInputError: not a month, not over yet, or some hours have no final figures.
            ConflictError: the month is closed already.
        """
        start, end = _month_period(month)
        now = self._clock()
        if end > now:
            raise InvalidInputError(f"{month} is not over yet. It can be closed from {end:%Y-%m-%d} (UTC)")
        is_closed_already = ConflictError(
            f"{month} is closed already. To close it again, reopen it first: gpucost months reopen --month {month}"
        )
        if self._versions.closed_month(month) is not None:
            raise is_closed_already
        coverage = self.coverage(start, end)
        if not coverage.is_full and not force:
            raise InvalidInputError(
                f"{month} is not complete: {coverage}. In a closed month, figures that arrive later are adjustments, "
                "in no report until it is reopened. Complete it first (`gpucost backfill` tries missing and incomplete "
                "hours), or close it as it is with --force"
            )
        closed = ClosedMonth(month, now.replace(microsecond=0), author, reason)
        try:
            self._versions.close_month(closed)
        except ConflictError:
            raise is_closed_already from None
        return closed, coverage

    def reopen(self, month: str, report_progress: Callable[[int], None] = lambda _: None) -> int:
        """Reopen a month and apply its pending adjustments. After an interruption, call it again.

        Args:
            month: the month, such as `2026-10`.
            report_progress: called with the number of adjustments applied so far.

        Returns:
            How many hours changed.

        Raises:
            InvalidInputError: not a month.
            SourceError: the table failed; calling it again continues.
        """
        start, end = _month_period(month)
        self._versions.reopen_month(month)
        now, total = self._clock(), 0
        stored = self._settings_store.current()
        retention = stored.settings.retention.periods()
        for cluster in stored.clusters(start):
            applied = 0
            for manifest in self._ledger.adjustments(cluster, start, end):
                try:
                    self._ledger.apply_adjustment(manifest, now, retention)
                except ConflictError:  # another version came first, or the month was closed again
                    if self._versions.closed_month(month) is not None:
                        raise
                    continue
                applied += 1
                report_progress(total + applied)
            # All days, because an interrupted call may have applied some. Days that are up to date stay unchanged.
            roll_up(self._rollups, cluster, hours_between(start, end), now, retention)
            total += applied
        return total

    def coverage(self, start: datetime, end: datetime) -> MonthCoverage:
        """Count the hours of a period with and without figures, for a departed cluster up to the hour when it left.

        Hours before a cluster's first hour are not missing.
        """
        missing = waiting = abandoned = provisional = with_figures = 0
        allocated: dict[str, Decimal] = {}
        existed: set[datetime] = set()
        stored = self._settings_store.current()
        for cluster in stored.clusters(start):
            departure = stored.departed_clusters.get(cluster)
            until = end if departure is None else min(end, floor_hour(departure.left_at) + HOUR)
            manifests = self._ledger.manifests(cluster, start, until)
            if departure is not None and all(manifest.status == "incomplete" for manifest in manifests):
                continue  # for example, a misspelled name never has metrics
            was_there = self._ledger.manifests(cluster, start - MAX_PUBLICATION_GAP, start)
            first = start if was_there else min((manifest.hour for manifest in manifests), default=end)
            existed.update(hours_between(first, until))
            incomplete = [manifest for manifest in manifests if manifest.status == "incomplete"]
            missing += len(hours_between(first, until)) - len(manifests)
            abandoned += sum(manifest.is_abandoned() for manifest in incomplete)
            waiting += sum(not manifest.is_abandoned() for manifest in incomplete)
            provisional += sum(manifest.status == "provisional" for manifest in manifests)
            with_figures += len(manifests) - len(incomplete)
            for summary in self._ledger.summaries(cluster, start, until):
                if summary.totals is not None:
                    usd = to_decimal(summary.totals.costs.allocated_usd)
                    currency = summary.manifest.currency
                    allocated[currency] = allocated.get(currency, Decimal(0)) + usd
        unrecorded = (end - start) // HOUR - len(existed)
        return MonthCoverage(with_figures, missing, waiting, abandoned, provisional, unrecorded, allocated)

    def adjustments(self, month: str) -> Adjustments:
        """Compare a closed month's figures with what they would be now, by cluster and business unit.

        Raises:
            InvalidInputError: not a month.
            NotFoundError: the month is not closed.
        """
        start, end = _month_period(month)
        closed = self._versions.closed_month(month)
        if closed is None:
            raise NotFoundError(f"{month} is not closed. Only closed months have adjustments")
        rows: list[Adjustment] = []
        hours = 0
        for cluster in self._settings_store.current().clusters(start):
            pending = self._ledger.adjustments(cluster, start, end)
            adjusted = {manifest.hour for manifest in pending}
            current = self._ledger.manifests(cluster, start, end) if pending else []
            replaced = [manifest for manifest in current if manifest.hour in adjusted]
            hours += len(pending)
            before, after = (
                _sum_by_unit(self._ledger.summaries_of(replaced)),
                _sum_by_unit(self._ledger.summaries_of(pending)),
            )
            rows += [
                Adjustment(cluster, unit, currency, before.get((unit, currency), Costs()), now)
                for (unit, currency) in sorted(before.keys() | after.keys())
                if (now := after.get((unit, currency), Costs())) != before.get((unit, currency), Costs())
            ]
        return Adjustments(closed, hours, tuple(rows))


def _month_period(month: str) -> tuple[datetime, datetime]:
    try:
        return parse_month(month)
    except ValueError as error:
        raise InvalidInputError(str(error)) from None


def _sum_by_unit(summaries: Sequence[HourSummary]) -> CostsByKey[tuple[str, str]]:
    """Sum costs by business unit and currency; different currencies are never added."""
    return sum_by_key(
        ((unit, summary.manifest.currency), costs)
        for summary in summaries
        for (unit, _), costs in summary.costs.items()
    )
