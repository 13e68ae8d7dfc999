"""Rates published hours again, without Prometheus: which hours, because their prices or bills changed, and how."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from fnmatch import fnmatchcase

from gpucost.core.attribution import build_record
from gpucost.core.errors import ConflictError, InvalidInputError, SettingsMissingError
from gpucost.core.hours import HOUR, floor_hour
from gpucost.core.ledger import DEFAULT_RETENTION, Manifest, Retention, content_digest
from gpucost.core.pricing.price_history import PriceChange
from gpucost.pipeline.attribute import HourResult, attribution_rules, publish_hour_published, roll_up
from gpucost.pipeline.pricing import Pricer
from gpucost.runtime.messages import MAX_HOURS_PER_MESSAGE, HoursToRestate, MessageBus
from gpucost.runtime.process import gc_paused
from gpucost.storage.bill_store import BillStore
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Clock, Rollups, SettingsStore
from gpucost.storage.price_book import PriceStore

# Finds published hours whose prices or bills have changed, and sends them to be rated again.

PENDING_PERIOD = timedelta(minutes=20)
"""A change stays pending for this long. An attribution that was running when the change was made may have read the old
prices, and publishes its hours within 15 minutes, Lambda's longest time-out. So its hours are sent again after that."""
USAGE_RETENTION = DEFAULT_RETENTION.lines
"""Older hours have no stored usage to rate again, unless the settings keep it longer. If the settings were shortened,
usage from before that may still be stored."""


class RepricingService:
    """Sends hours to be rated again. Sending an hour twice gives the same figures."""

    def __init__(
        self, settings_store: SettingsStore, ledger: Ledger, prices: PriceStore, bills: BillStore, bus: MessageBus
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._prices = prices
        self._bills = bills
        self._bus = bus

    def send_hours_to_restate(self, now: datetime, correlation_id: str) -> int:
        """Send the hours of every pending change; return how many cluster-hours were sent.

        Raises:
            SourceError: the ledger or the queue failed; pending changes are sent again next time.
        """
        changes, arrivals = self._prices.pending_changes(), self._bills.pending_changes()
        if not changes and not arrivals:
            return 0
        try:
            stored = self._settings_store.current()
        except SettingsMissingError:
            return 0
        sent = 0
        oldest = now - max(USAGE_RETENTION, stored.settings.retention.periods().lines)
        clusters = stored.clusters(oldest)
        for change in changes:
            start = floor_hour(max(change.start, oldest) if change.start else oldest)
            for cluster in _matching_clusters(change, clusters):
                hours = self._hours_with_figures(cluster, start, change.end, only_provisional=change.source == "shapes")
                sent += self._send(cluster, hours, change.reason, correlation_id)
            if change.changed_at + PENDING_PERIOD <= now:
                self._prices.settle(change.id, now=now)
        for arrival in arrivals:
            reason = f"the bill of {min(arrival.hours):%Y-%m-%d} is new or changed"
            for cluster in clusters:
                published = self._hours_with_figures(cluster, min(arrival.hours), max(arrival.hours) + HOUR)
                hours = [hour for hour in published if hour in arrival.hours]
                sent += self._send(cluster, hours, reason, correlation_id)
            if arrival.stored_at + PENDING_PERIOD <= now:
                self._bills.settle(arrival)
        return sent

    def _hours_with_figures(
        self, cluster: str, start: datetime, end: datetime, *, only_provisional: bool = False
    ) -> list[datetime]:
        """Return the hours of `[start, end)` that have figures, or only the provisional ones.

        The shape of an instance type never changes, so a new shape only affects hours in which it was missing.
        """
        statuses = {"provisional"} if only_provisional else {"provisional", "complete"}
        manifests = [*self._ledger.manifests(cluster, start, end), *self._ledger.adjustments(cluster, start, end)]
        return sorted({manifest.hour for manifest in manifests if manifest.status in statuses})

    def _send(self, cluster: str, hours: Sequence[datetime], reason: str, correlation_id: str) -> int:
        messages = restate_messages(cluster, hours, settings_version=None, reason=reason, correlation_id=correlation_id)
        self._bus.send_due(messages)
        return len(hours)


def restate_messages(
    cluster: str, hours: Sequence[datetime], *, settings_version: int | None, reason: str, correlation_id: str
) -> list[HoursToRestate]:
    """Build the messages to restate hours of one cluster, each with at most 24 consecutive hours.

    Args:
        cluster: the cluster's name.
        hours: the hours, in order.
        settings_version: version of the settings to rate with; None: the version that each hour was published with.
        reason: stored with the changed figures; truncated to 500 characters.
        correlation_id: identifies the work in logs.
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
    patterns = change.applies_to.get("cluster")
    return [
        cluster
        for cluster in clusters
        if patterns is None or any(fnmatchcase(cluster, pattern) for pattern in patterns)
    ]


# Restates hours: rates them again from stored usage, without Prometheus, when a price or a business unit changes.

MAX_PUBLISH_ATTEMPTS = 3
"""How often an hour is tried if other writers publish it; each attempt reads the version that won."""


class RestateService:
    """Handles `HoursToRestate`. An hour stays as it is if neither its figures nor its settings change."""

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: Ledger,
        rollups: Rollups,
        bus: MessageBus,
        *,
        pricer: Pricer,
        clock: Clock,
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._rollups = rollups
        self._bus = bus
        self._pricer = pricer
        self._clock = clock

    def restate(self, message: HoursToRestate) -> list[HourResult]:
        """Restate the hours of a message, and publish an event for each that has figures.

        Hours that were never published, or have no figures or no stored usage, are skipped.

        Raises:
            InvalidInputError: the cluster is not in the message's version of the settings.
            SourceError: the ledger or the bus failed; the message must be delivered again.
        """
        settings_version = None
        if message.settings_version is not None:
            stored = self._settings_store.version(message.settings_version)
            if stored.settings.cluster(message.cluster) is None and message.cluster not in stored.departed_clusters:
                raise InvalidInputError(
                    f"cluster {message.cluster!r} is not in version {message.settings_version} of the settings"
                )
            # At least the newest version, so that a late or repeated message does not apply older settings again.
            settings_version = max(stored.version, self._settings_store.newest().version)
        results = []
        for hour in message.hour_starts():
            result = self._restate(message, hour, settings_version)
            if result is not None:
                publish_hour_published(self._bus, result.manifest, message.origin, message.correlation_id)
                results.append(result)
        roll_up(self._rollups, message.cluster, message.hour_starts(), self._clock(), self._retention())
        return results

    def _restate(self, message: HoursToRestate, hour: datetime, settings_version: int | None) -> HourResult | None:
        for attempts_left in reversed(range(MAX_PUBLISH_ATTEMPTS)):
            manifest = self._ledger.newest_version_of_hour(message.cluster, hour)
            if manifest is None or manifest.status == "incomplete":
                return None
            try:
                with gc_paused():
                    version = max(settings_version or 0, manifest.settings_version)
                    return self._attribute_again(manifest, version, message.reason)
            except ConflictError:
                if not attempts_left:
                    raise
        raise AssertionError("the last attempt returns or raises")

    def _attribute_again(self, manifest: Manifest, version: int, reason: str) -> HourResult | None:
        """Rate an hour with a version of the settings, and publish the result.

        It is published even if only the settings version differs, so that later changes of prices are rated with it.
        """
        usage = self._ledger.usage(manifest)
        if usage is None:
            return None
        stored = self._settings_store.version(version)
        pricing_settings = stored.settings
        if pricing_settings.cluster(manifest.cluster) is None and manifest.cluster in stored.departed_clusters:
            # Business units are those of the new settings. Prices are those of the last settings with the cluster.
            pricing_settings = self._settings_store.version(
                stored.departed_clusters[manifest.cluster].last_settings_version
            ).settings
        prices = self._pricer.pricing_of_hours(pricing_settings, [manifest.hour])
        record = build_record(usage, attribution_rules(stored.settings, prices[manifest.hour]))
        is_unchanged = content_digest(record) == manifest.content_digest and version == manifest.settings_version
        if is_unchanged and self._ledger.is_intact(manifest):
            return HourResult(manifest, is_new_version=False)
        published = self._ledger.publish(
            record,
            replacing=manifest,
            settings_version=version,
            now=self._clock(),
            reason=reason,
            retention=self._retention(),
        )
        return HourResult(published, is_new_version=True, line_count=len(record.lines))

    def _retention(self) -> Retention:
        """Return the retention that is in force now, whichever settings an hour is rated with."""
        return self._settings_store.current().settings.retention.periods()
