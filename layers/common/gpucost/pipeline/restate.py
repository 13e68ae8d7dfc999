"""Restates hours: rates them again from stored usage, without Prometheus, when a price or a business unit changes."""

from datetime import datetime

from gpucost.core.attribution import build_record
from gpucost.core.errors import ConflictError, InvalidInputError
from gpucost.core.ledger import Manifest, Retention, content_digest
from gpucost.pipeline.attribute import HourResult, attribution_rules, publish_hour_published, roll_up
from gpucost.pipeline.pricing import Pricer
from gpucost.runtime.gc_control import gc_paused
from gpucost.runtime.messages import HoursToRestate
from gpucost.runtime.messaging import MessageBus
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Clock, Rollups, SettingsStore

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
