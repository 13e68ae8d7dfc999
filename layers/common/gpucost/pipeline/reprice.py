"""Repricing: which hours stand on prices or bills that have changed since, as work for the backfill queue."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from gpucost.core.errors import SettingsMissingError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.core.ledger import DEFAULT_RETENTION
from gpucost.core.pricing.price_changes import PriceChange
from gpucost.runtime.messages import MAX_HOURS_PER_MESSAGE, HoursToRestate
from gpucost.storage.bill_store import BillStore
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Bus, SettingsStore
from gpucost.storage.price_book import PriceStore

SETTLE_DELAY = timedelta(minutes=20)
"""An attribution under way when a change was made may have read the book before it, and publish after: its hours are
sent once more when it must have ended (Lambda ends it after 15 minutes at the latest)."""
USAGE_KEPT = DEFAULT_RETENTION.lines
"""Older hours have no stored usage to be rated from, unless the settings keep it longer; where they keep it for less
time, it may be there still from before they did."""


class RepricingService:
    """Sends hours to be rated again; sent twice, they come out the same."""

    def __init__(
        self, settings_store: SettingsStore, ledger: Ledger, prices: PriceStore, bills: BillStore, bus: Bus
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._prices = prices
        self._bills = bills
        self._bus = bus

    def reprice(self, now: datetime, correlation_id: str) -> int:
        """Send the hours of every change that is not settled; returns how many cluster-hours.

        Raises:
            SourceError: the ledger or the queue failed; what is not settled is sent again next time.
        """
        changes, arrivals = self._prices.pending_changes(), self._bills.changes()
        if not changes and not arrivals:
            return 0
        try:
            stored = self._settings_store.current()
        except SettingsMissingError:
            return 0
        sent = 0
        oldest = now - max(USAGE_KEPT, stored.settings.retention.periods().lines)
        clusters = stored.clusters(oldest)
        for change in changes:
            start = floor_hour(max(change.start, oldest) if change.start else oldest)
            for cluster in _matching_clusters(change, clusters):
                hours = self._published(cluster, start, change.end, only_provisional=change.source == "shapes")
                sent += self._send(cluster, hours, change.reason, correlation_id)
            if change.at + SETTLE_DELAY <= now:
                self._prices.settle(change.id, now=now)
        for arrival in arrivals:
            why = f"the bill of {min(arrival.hours):%Y-%m-%d} is new or changed"
            for cluster in clusters:
                published = self._published(cluster, min(arrival.hours), max(arrival.hours) + HOUR)
                hours = [hour for hour in published if hour in arrival.hours]
                sent += self._send(cluster, hours, why, correlation_id)
            if arrival.at + SETTLE_DELAY <= now:
                self._bills.settle(arrival)
        return sent

    def _published(self, cluster: str, start: datetime, end: datetime, *, only_provisional: bool = False) -> list[datetime]:
        """The hours of `[start, end)` that have figures; or only those that wait for a price.

        A type's shape does not change: only hours in which it was not known have anything to gain.
        """
        statuses = {"provisional"} if only_provisional else {"provisional", "complete"}
        manifests = [*self._ledger.manifests(cluster, start, end), *self._ledger.adjustments(cluster, start, end)]
        return sorted({one.hour for one in manifests if one.status in statuses})

    def _send(self, cluster: str, hours: Sequence[datetime], reason: str, correlation_id: str) -> int:
        self._bus.send_due(restate_messages(cluster, hours, settings_version=None, reason=reason, correlation_id=correlation_id))
        return len(hours)


def restate_messages(
    cluster: str, hours: Sequence[datetime], *, settings_version: int | None, reason: str, correlation_id: str
) -> list[HoursToRestate]:
    """Hours of one cluster as messages, each of at most 24 consecutive ones.

    Args:
        cluster: its name.
        hours: in order.
        settings_version: under which they are to be rated; None: each under its own.
        why: what people read beside the changed figures.
        correlation_id: follows them.
    """
    runs: list[tuple[datetime, int]] = []
    for hour in hours:
        if runs and runs[-1][0] + HOUR * runs[-1][1] == hour and runs[-1][1] < MAX_HOURS_PER_MESSAGE:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((hour, 1))
    return [
        HoursToRestate(
            cluster=cluster,
            first_hour=first,
            hours=count,
            settings_version=settings_version,
            reason=reason[:500],
            correlation_id=correlation_id,
        )
        for first, count in runs
    ]


def _matching_clusters(change: PriceChange, clusters: Iterable[str]) -> list[str]:
    named = change.applies_to.get("cluster")
    return [one for one in clusters if named is None or any(fnmatchcase(one, pattern) for pattern in named)]
