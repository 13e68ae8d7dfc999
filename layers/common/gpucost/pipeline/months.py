"""Months closed for chargeback: frozen, opened again, and what came after they were frozen."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

from gpucost.core.errors import ConflictError, InvalidInputError, NotFoundError
from gpucost.core.hours import HOUR, floor_hour, hours_between, parse_month
from gpucost.core.ledger import ClosedMonth, HourSummary
from gpucost.core.model import Costs
from gpucost.core.rollups import costs_by_unit
from gpucost.pipeline.attribute import roll_up
from gpucost.pipeline.dispatch import MAX_SILENCE
from gpucost.storage.hour_versions import HourVersions
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Clock, Rollups, SettingsStore


@dataclass(frozen=True, slots=True)
class OpenHours:
    """Hours of a month whose figures may still move, of all clusters."""

    missing: int
    """Never published."""
    waiting: int
    """Incomplete, and to be tried again."""
    provisional: int
    """A price is missing or not final."""

    def __str__(self) -> str:
        """As people read it."""
        return f"{self.missing} are missing, {self.waiting} are to be tried again, {self.provisional} are provisional"


@dataclass(frozen=True, slots=True)
class Adjustment:
    """One business unit of one cluster: what a frozen month says, and what would be said now."""

    cluster: str
    business_unit: str
    currency: str
    closed: Costs
    """In those hours of the month that have a later version."""
    now: Costs
    """In the same hours."""


@dataclass(frozen=True, slots=True)
class Adjustments:
    """What came after a month was frozen."""

    month: ClosedMonth
    hours: int
    """That have a later version."""
    rows: tuple[Adjustment, ...]
    """In order of cluster and unit; only those whose costs differ."""


class MonthService:
    """Closes months and opens them again."""

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: Ledger,
        months: HourVersions,
        rollups: Rollups,
        clock: Clock,
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._months = months
        self._rollups = rollups
        self._clock = clock

    def close(self, month: str, *, author: str, reason: str, force: bool = False) -> ClosedMonth:
        """Close a month: from then on its figures stay as they are, whatever is found out later.

        Args:
            month: as `2026-10`.
            author: who closes it.
            reason: why; people read it beside.
            as_it_is: although some hours may still move.

        Raises:
            InvalidInputError: not a month, not over, or some of its hours may still move.
            ConflictError: it is frozen.
        """
        start, end = _span(month)
        now = self._clock()
        if end > now:
            raise InvalidInputError(f"{month} is not over yet")
        still_open = self.open_hours(start, end)
        if still_open != OpenHours(0, 0, 0) and not force:
            raise InvalidInputError(
                f"of the hours of {month}, {still_open}; settle them (`gpucost backfill` tries missing and waiting "
                "ones now), or freeze it with --as-it-is"
            )
        frozen = ClosedMonth(month, now.replace(microsecond=0), author, reason)
        try:
            self._months.close_month(frozen)
        except ConflictError:
            raise ConflictError(f"{month} is frozen already") from None
        return frozen

    def reopen(self, month: str, report_progress: Callable[[int], None] = lambda _: None) -> int:
        """Open a month, and put what was recorded beside it in force; run again where it was interrupted.

        Args:
            month: as `2026-10`.
            tell: of the hours put in force so far.

        Returns:
            How many hours changed.

        Raises:
            InvalidInputError: not a month.
            SourceError: the table failed; running it again goes on where it stood.
        """
        start, end = _span(month)
        self._months.reopen_month(month)
        now, done = self._clock(), 0
        stored = self._settings_store.current()
        retention = stored.settings.retention.periods()
        for cluster in stored.clusters(start):
            adopted = 0
            for manifest in self._ledger.adjustments(cluster, start, end):
                try:
                    self._ledger.apply_adjustment(manifest, now, retention)
                except ConflictError:  # another version came between, or somebody froze the month again
                    if self._months.closed_month(month) is not None:
                        raise
                    continue
                adopted += 1
                report_progress(done + adopted)
            # All days: some may have been adopted by a run that was interrupted. What is current is left as it is.
            roll_up(self._rollups, cluster, hours_between(start, end), now, retention)
            done += adopted
        return done

    def open_hours(self, start: datetime, end: datetime) -> OpenHours:
        """Hours of a period whose figures may still move; of a cluster that left the settings, up to the hour of that.

        Hours before a cluster's first one are not missing: it was not there. Nor are those after a silence so long that
        nobody owes them.
        """
        missing = waiting = provisional = 0
        stored = self._settings_store.current()
        for cluster in stored.clusters(start):
            departure = stored.departed.get(cluster)
            until = end if departure is None else min(end, floor_hour(departure.left_at) + HOUR)
            known = self._ledger.manifests(cluster, start, until)
            if departure is not None and all(one.status == "incomplete" for one in known):
                continue  # a name that was misspelt, say: nothing will come
            was_there = self._ledger.manifests(cluster, start - MAX_SILENCE, start)
            first = start if was_there else min((manifest.hour for manifest in known), default=end)
            missing += len(hours_between(first, until)) - len(known)
            waiting += sum(one.status == "incomplete" and not one.is_abandoned() for one in known)
            provisional += sum(one.status == "provisional" for one in known)
        return OpenHours(missing, waiting, provisional)

    def adjustments(self, month: str) -> Adjustments:
        """What a frozen month would say now, beside what it says: by cluster and business unit.

        Raises:
            InvalidInputError: not a month.
            NotFoundError: it is not frozen.
        """
        start, end = _span(month)
        frozen = self._months.closed_month(month)
        if frozen is None:
            raise NotFoundError(f"{month} is not frozen")
        rows: list[Adjustment] = []
        hours = 0
        for cluster in self._settings_store.current().clusters(start):
            late = self._ledger.adjustments(cluster, start, end)
            named = {manifest.hour for manifest in late}
            own = [one for one in self._ledger.manifests(cluster, start, end) if one.hour in named] if late else []
            hours += len(late)
            before, after = _sums(self._ledger.summaries_of(own)), _sums(self._ledger.summaries_of(late))
            rows += [
                Adjustment(cluster, unit, currency, before.get((unit, currency), Costs()), now)
                for (unit, currency) in sorted(before.keys() | after.keys())
                if (now := after.get((unit, currency), Costs())) != before.get((unit, currency), Costs())
            ]
        return Adjustments(frozen, hours, tuple(rows))


def _span(month: str) -> tuple[datetime, datetime]:
    try:
        return parse_month(month)
    except ValueError as error:
        raise InvalidInputError(str(error)) from None


def _sums(summaries: Sequence[HourSummary]) -> dict[tuple[str, str], Costs]:
    """By business unit and currency, which are never added."""
    found: dict[tuple[str, str], list[Costs]] = {}
    for summary in summaries:
        for unit, costs in costs_by_unit(summary).items():
            found.setdefault((unit, summary.currency), []).append(costs)
    return {key: Costs.total(parts) for key, parts in found.items()}
