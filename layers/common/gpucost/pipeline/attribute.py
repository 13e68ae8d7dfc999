"""Attributes hours: read metrics, meter usage, rate it, publish each hour in the ledger, and record limits.

*Incomplete* is a result, not an error: an hour whose metrics are unavailable is published as incomplete, with the
reason and the time of the next attempt, and its message counts as handled.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from gpucost.core.attribution import AttributionRules, BusinessUnit, build_record
from gpucost.core.errors import (
    ConflictError,
    DataExpiredError,
    HoursTooLargeError,
    InvalidInputError,
    MetricsTooLargeError,
    MetricsUnavailableError,
    SourceError,
)
from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import (
    DAY,
    HOUR,
    HOUR_MS,
    consecutive_runs,
    floor_hour,
    format_epoch_ms,
    format_timestamp,
    to_epoch_ms,
)
from gpucost.core.intervals import IntervalMs
from gpucost.core.ledger import Manifest, Retention, days_with_hours
from gpucost.core.metering.kubernetes_labels import exported_name
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.spans import last_scrape_before_outage
from gpucost.core.metering.usage import Usage
from gpucost.core.pricing.node_costs import Pricing
from gpucost.core.pricing.prices import Price
from gpucost.pipeline.pricing import Pricer, pricing_of
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.messages import AttributionOrigin, HourPublished, HoursDue, MessageBus
from gpucost.runtime.observability import logger, tally
from gpucost.runtime.process import gc_paused
from gpucost.settings import ClusterSettings, CoreSettings
from gpucost.storage.ledger import Ledger
from gpucost.storage.limits_store import LimitsStore
from gpucost.storage.ports import Clock, Rollups, SettingsStore

if TYPE_CHECKING:
    from gpucost.core.metering.observations import Observation
    from gpucost.sources.prometheus.node_pool_limits import NodePoolLimitsReader
    from gpucost.sources.prometheus.reader import PrometheusReader

MetricsReaderFactory = Callable[[ClusterSettings, CoreSettings, Deadline | None], "PrometheusReader"]
"""Creates the reader of a cluster's metrics; the deadline applies to all of its queries together."""

AMP_RETENTION = timedelta(days=150)
"""AMP's default. Readers of metrics cannot read the retention of a workspace."""

SHORTEST_LOOKBACK = 2 * HOUR
"""Minimum, whatever the settings say: if the end of an hour was not scraped, the next hour's samples explain it."""
_WHOLE_MS = 57 * 60_000
"""Samples of a shorter time are no whole hour."""


class HourResult(Struct, frozen=True):
    """The result for one hour of a message."""

    manifest: Manifest
    is_new_version: bool
    """False if the hour had been published before and only its event was sent again."""
    line_count: int = 0


class SoFar(Struct, frozen=True):
    """Figures of a Prometheus that has no whole hour yet. They are in no ledger."""

    record: HourRecord
    time: IntervalMs
    """The time of the figures."""
    first_sample: int
    """Milliseconds since the epoch."""

    @property
    def first_whole_hour_end(self) -> int:
        """When the first hour with enough samples ends, in milliseconds since the epoch."""
        latest = self.first_sample - (HOUR_MS - _WHOLE_MS)  # an hour that begins later has samples of a whole hour
        return -(-latest // HOUR_MS) * HOUR_MS + HOUR_MS


class AttributedHour(Struct, frozen=True):
    """An hour's record, and the usage that it was rated from; None if metrics were unavailable."""

    record: HourRecord
    usage: Usage | None = None


class _MessageContext(Struct, frozen=True):
    """What the attribution of all hours of a message needs."""

    reader: "PrometheusReader"
    cluster: ClusterSettings
    settings: CoreSettings
    now: datetime
    message: HoursDue


class AttributeService:
    """Handles `HoursDue`. Delivered twice, late or after a crash, a message leads to the same figures."""

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: Ledger,
        rollups: Rollups,
        create_reader: MetricsReaderFactory,
        bus: MessageBus,
        *,
        pricer: Pricer,
        clock: Clock,
        limits: "LimitsRecorder | None" = None,
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._rollups = rollups
        self._create_reader = create_reader
        self._bus = bus
        self._pricer = pricer
        self._clock = clock
        self._limits = limits

    def attribute(self, message: HoursDue, deadline: Deadline | None = None) -> list[HourResult]:
        """Attribute the hours of a message, and publish an event for each.

        Args:
            message: names the hours.
            deadline: limit for all queries together. Hours whose metrics have not arrived by then are incomplete.

        Raises:
            InvalidInputError: the cluster is not in the message's version of the settings.
            SourceError: the ledger or the bus failed; the message must be delivered again.
        """
        # A retry reads the version of the settings that the message names, whatever was pushed in the meantime.
        settings = self._settings_store.version(message.settings_version).settings
        cluster = settings.cluster(message.cluster)
        if cluster is None:
            raise InvalidInputError(
                f"cluster {message.cluster!r} is not in version {message.settings_version} of the settings"
            )

        # An hour that an earlier delivery published needs only its event; queries of consecutive hours are shared.
        now = self._clock()
        versions = {hour: self._ledger.newest_version_of_hour(cluster.name, hour) for hour in message.hour_starts()}
        hours_to_attribute = [hour for hour, manifest in versions.items() if _needs_attempt(manifest, message, now)]
        reader = self._create_reader(cluster, settings, deadline)
        context = _MessageContext(reader, cluster, settings, now, message)
        runs = consecutive_runs(hours_to_attribute)
        rated = {
            rated_hour.record.hour: rated_hour for run in runs for rated_hour in self._isolate_failures(context, run)
        }

        # Each hour is published by itself, with its event: readers see it before the message is done.
        results = []
        lookback = max(timedelta(hours=settings.lookback_hours), SHORTEST_LOOKBACK)
        for hour, manifest in versions.items():
            with tally.timed("PublishSeconds"), gc_paused():
                result = self._publish(
                    rated.get(hour), manifest, message, now, hour + lookback, settings.retention.periods()
                )
            publish_hour_published(self._bus, result.manifest, message.origin, message.correlation_id)
            results.append(result)

        # The quotas and limits of the same hours, which reports show next to what was held; then the days' sums.
        if self._limits is not None:
            with_figures = [result.manifest.hour for result in results if result.manifest.status != "incomplete"]
            self._limits.record(cluster, settings, with_figures, now, deadline)
        roll_up(self._rollups, cluster.name, message.hour_starts(), now, settings.retention.periods())
        return results

    def _isolate_failures(self, context: _MessageContext, hours: Sequence[datetime]) -> list[AttributedHour]:
        """Compute consecutive hours, in parts if they fail together; hours that fail alone are incomplete.

        Raises:
            SourceError: the price book or the bill could not be read.
        """
        prices = self._pricer.pricing_of_hours(context.settings, hours)
        try:
            with tally.timed("AttributeSeconds"):
                return compute_hours(
                    context.reader, context.cluster, context.settings, hours, now=context.now, prices=prices
                )
        except InvalidInputError:
            raise
        except Exception as error:
            if len(hours) == 1 or isinstance(error, MetricsUnavailableError):
                if not isinstance(error, SourceError):
                    self._send_to_dead_letter_queue(context.message, hours, error)
                return _incomplete_hours(context.cluster, hours, error)
            is_too_large = isinstance(error, MetricsTooLargeError | HoursTooLargeError)
        # A bad response for one hour, or a bug that it triggers, must not affect other hours. This is not in the
        # handler above, because there the error would keep the responses in memory.
        size = -(-len(hours) // 2) if is_too_large else 1
        parts = [hours[start : start + size] for start in range(0, len(hours), size)]
        return [rated for part in parts for rated in self._isolate_failures(context, part)]

    def _send_to_dead_letter_queue(self, message: HoursDue, hours: Sequence[datetime], error: Exception) -> None:
        """Keep an hour that fails because of a bug, so that `gpucost hours redrive` can send it again after the fix."""
        logger.exception("an hour was sent to the dead-letter queue", hour=hours[0])
        for single in message.split_by_hour():
            if single.first_hour in hours:
                letter = single.model_copy(update={"force": True})
                self._bus.send_to_dead_letter_queue(letter.model_dump_json(), f"{type(error).__name__}: {error}")

    def _publish(
        self,
        rated: AttributedHour | None,
        manifest: Manifest | None,
        message: HoursDue,
        now: datetime,
        last_attempt: datetime,
        retention: Retention,
    ) -> HourResult:
        if rated is None:
            # An earlier delivery of this message published the hour, and ended before it could send the event.
            if manifest is None:
                raise AssertionError("an hour without a manifest is always attributed")
            return HourResult(manifest, is_new_version=False)
        try:
            published = self._ledger.publish(
                rated.record,
                replacing=manifest,
                settings_version=message.settings_version,
                now=now,
                usage=rated.usage if rated.record.totals is not None else None,
                last_attempt=last_attempt,
                retention=retention,
                backfilled=message.origin == "backfill",
            )
        except ConflictError:
            winner = self._ledger.newest_version_of_hour(rated.record.cluster, rated.record.hour)
            if winner is None or winner == manifest:  # no other version won; the message will be delivered again
                raise
            if winner.status == "incomplete" and rated.record.status != "incomplete":
                return self._publish(rated, winner, message, now, last_attempt, retention)
            return HourResult(winner, is_new_version=False)
        return HourResult(published, is_new_version=True, line_count=len(rated.record.lines))


def roll_up(rollups: Rollups, cluster: str, hours: Sequence[datetime], now: datetime, retention: Retention) -> None:
    """Update the rollups of the days of published hours, and of the day before, whose last update may have failed.

    A day with expired hours is left unchanged, because its sums would become too small.

    Raises:
        SourceError: the table failed; until the next update, readers sum the hours themselves.
    """
    days = days_with_hours(hours)
    with tally.timed("PublishSeconds"), gc_paused():
        for day in [days[0] - DAY, *days]:
            try:
                rollups.roll_up(cluster, day, now, retention)
            except DataExpiredError as error:
                logger.warning("a day's rollups were not updated", cluster=cluster, day=day, reason=str(error))


# From a cluster's metrics to attributed hours, also without a ledger.


def attribute_hours(
    reader: "PrometheusReader",
    cluster: ClusterSettings,
    settings: CoreSettings,
    hours: Sequence[datetime],
    *,
    now: datetime,
    fetch_prices: Callable[[Sequence[Usage]], Sequence[Price]] | None = None,
) -> list[HourRecord]:
    """Attribute consecutive hours of one cluster, without a ledger and a price book.

    Args:
        reader: reads the cluster's metrics.
        cluster: the cluster.
        settings: the settings in force.
        hours: consecutive hours, in order.
        now: the current time.
        fetch_prices: returns prices for the nodes of the hours' usage; None: only prices of the settings are used.

    Raises:
        As `compute_hours`.
    """
    rated = compute_hours(reader, cluster, settings, hours, now=now)
    metered = [rated_hour.usage for rated_hour in rated if rated_hour.usage is not None]
    prices = fetch_prices(metered) if fetch_prices is not None else ()
    if not prices:
        return [rated_hour.record for rated_hour in rated]
    rules = attribution_rules(settings, pricing_of(settings, prices))
    return [
        rated_hour.record
        if rated_hour.usage is None or rated_hour.record.status == "incomplete"
        else build_record(rated_hour.usage, rules)
        for rated_hour in rated
    ]


def compute_hours(
    reader: "PrometheusReader",
    cluster: ClusterSettings,
    settings: CoreSettings,
    hours: Sequence[datetime],
    *,
    now: datetime,
    prices: Mapping[datetime, Pricing] | None = None,
) -> list[AttributedHour]:
    """Read the metrics of consecutive hours of one cluster, and compute their records.

    Args:
        reader: reads the cluster's metrics.
        cluster: the cluster.
        settings: the settings in force.
        hours: consecutive hours, in order.
        now: the current time.
        prices: prices in force in each hour; None: only those in the settings.

    Raises:
        InvalidInputError: an hour has not ended.
        SourceError: the metrics are unavailable.
    """
    for hour in hours:
        check_hour(hour, now)
    metering = metering_rules(cluster, settings)
    settings_pricing = pricing_of(settings)
    with gc_paused():
        rated = []
        for observation in reader.observe(hours):
            usage = meter(observation, metering)
            record = build_record(usage, attribution_rules(settings, (prices or {}).get(usage.hour, settings_pricing)))
            rated.append(
                AttributedHour(
                    _incomplete_during_outage(record, last_scrape_before_outage(observation, to_epoch_ms(now))), usage
                )
            )
        return rated


def attribute_so_far(
    reader: "PrometheusReader",
    cluster: ClusterSettings,
    settings: CoreSettings,
    *,
    now: datetime,
    fetch_prices: Callable[[Sequence[Usage]], Sequence[Price]] | None = None,
) -> SoFar | None:
    """Attribute the time until now of a Prometheus that has no whole hour yet.

    It begins with the first sample, or with the running hour if the first sample is older than about an hour.

    Args:
        reader: reads the cluster's metrics.
        cluster: the cluster.
        settings: the settings in force.
        now: the current time.
        fetch_prices: as in `attribute_hours`.

    Returns:
        The figures; None without any, and if the samples have a whole hour: then its figures lack for another reason.

    Raises:
        SourceError: the metrics are unavailable.
    """
    end = now.replace(microsecond=0)
    (observation,) = reader.observe([end - HOUR])
    first = first_sample = _first_scrape(observation)
    if first is None or first_sample is None:
        return None
    if to_epoch_ms(end) - first >= _WHOLE_MS:
        running = floor_hour(now)
        (before,) = reader.observe([running - HOUR])
        first_sample = _first_scrape(before)
        if first_sample is None or to_epoch_ms(running) - first_sample >= _WHOLE_MS:
            return None
        first = to_epoch_ms(running)
    window = IntervalMs(first, to_epoch_ms(end))
    usage = meter(observation, metering_rules(cluster, settings), window)
    prices = fetch_prices([usage]) if fetch_prices is not None else ()
    record = build_record(usage, attribution_rules(settings, pricing_of(settings, prices)))
    return SoFar(record, window, first_sample) if record.totals is not None else None


def _first_scrape(observation: "Observation") -> int | None:
    """The first scrape of the allocation source in an hour."""
    start = to_epoch_ms(observation.hour)
    hour = IntervalMs(start, start + HOUR_MS)
    return min(
        (time for scrapes in observation.allocation_scrapes.values() for time in scrapes.within(hour)), default=None
    )


def metering_rules(cluster: ClusterSettings, settings: CoreSettings) -> MeteringRules:
    """Return the settings that metering needs."""
    return MeteringRules(
        utilization_sources=settings.utilization.sources,
        slices_per_gpu=cluster.slices_per_gpu,
        gpus_by_instance_type=settings.gpus_by_instance_type(),
        minimum_jobs=settings.minimum_jobs(cluster.name),
        gpus_per_unit=cluster.gpus_per_unit(),
    )


def _incomplete_during_outage(record: HourRecord, silent_since: int | None) -> HourRecord:
    """Return a record without figures if there are no samples since a time before the hour's end."""
    if silent_since is None or record.status == "incomplete":
        return record
    reason = f"no samples since {format_epoch_ms(silent_since)}; the next samples will show which pods held GPUs"
    notes = (reason, *record.notes)
    return HourRecord(record.cluster, record.hour, "incomplete", record.coverage, None, notes=notes)


# Checks of requests, and rules from the settings.


def check_hour(hour: datetime, now: datetime) -> None:
    """Check that an hour can be metered.

    Raises:
        InvalidInputError: the time is not on the full hour, or the hour has not ended.
    """
    if floor_hour(hour) != hour:
        raise InvalidInputError(
            f"hour {format_timestamp(hour)} is not on the full hour. Pass for example "
            f"{format_timestamp(floor_hour(hour))}"
        )
    if hour > now - HOUR:
        newest = format_timestamp(floor_hour(now) - HOUR)
        raise InvalidInputError(
            f"hour {format_timestamp(hour)} has not ended. The newest hour that has ended is {newest}"
        )


def check_retention(hour: datetime, cluster: ClusterSettings, reader: "PrometheusReader", now: datetime) -> None:
    """Check that the metrics of an hour are still stored.

    Raises:
        InvalidInputError: the hour began before the oldest stored sample.
    """
    prometheus = cluster.prometheus
    kept = timedelta(days=prometheus.retention_days) if prometheus.retention_days else None
    kept = kept or (AMP_RETENTION if prometheus.auth == "sigv4" else reader.retention())
    if kept is not None and hour < now - kept:
        raise InvalidInputError(
            f"hour {format_timestamp(hour)} is older than the metrics of cluster {cluster.name}, which are kept "
            f"for {kept.total_seconds() / 86400:g} days"
        )


def attribution_rules(settings: CoreSettings, pricing: Pricing) -> AttributionRules:
    """Build the rules of attribution from the settings and the prices."""
    return AttributionRules(
        pricing=pricing,
        business_units=business_units(settings),
        cost_labels={name: exported_name(name) for name in settings.cost_labels},
        min_allocation_coverage=settings.coverage.allocation,
        min_utilization_coverage=settings.coverage.utilization,
        emissions=settings.energy.emissions(),
        inference=settings.inference.rules(),
    )


def business_units(settings: CoreSettings) -> tuple[BusinessUnit, ...]:
    """Return the business units of the settings, in order, with labels as metrics name them; future ones included."""
    return tuple(
        BusinessUnit(
            unit.name,
            unit.namespaces,
            {exported_name(name): label for name, label in unit.namespace_labels.items()},
            {exported_name(name): label for name, label in unit.pod_labels.items()},
            consumers=unit.consumers,
            since=unit.since,
            distribute=unit.distribute,
        )
        for unit in settings.business_units
    )


def _needs_attempt(manifest: Manifest | None, message: HoursDue, now: datetime) -> bool:
    """Whether an hour must be attributed, rather than having been published by an earlier delivery of the message."""
    if manifest is None:
        return True
    if manifest.status != "incomplete":
        return False
    if message.origin == "backfill" or message.force:
        return True
    return manifest.next_attempt_at is not None and manifest.next_attempt_at <= now


def _incomplete_hours(cluster: ClusterSettings, hours: Sequence[datetime], error: Exception) -> list[AttributedHour]:
    reason = str(error)
    if not isinstance(error, SourceError):
        reason = f"could not be attributed: {type(error).__name__}: {error}"
    return [AttributedHour(HourRecord(cluster.name, hour, "incomplete", None, None, notes=(reason,))) for hour in hours]


def publish_hour_published(bus: MessageBus, manifest: Manifest, origin: AttributionOrigin, correlation_id: str) -> None:
    """Publish the event that a new version of an hour is current. Pending adjustments change no figure and have none.

    Raises:
        SourceError: the topic failed.
    """
    if manifest.is_adjustment:
        return
    bus.publish(
        HourPublished(
            cluster=manifest.cluster,
            hour=manifest.hour,
            status=manifest.status,
            record_version=manifest.version,
            settings_version=manifest.settings_version,
            origin=origin,
            correlation_id=correlation_id,
        )
    )


# Records the limits of node pools and the quotas of namespaces, hour by hour.

LimitsReaderFactory = Callable[[ClusterSettings, Deadline | None], "NodePoolLimitsReader"]
"""Creates the reader of a cluster's limits; the deadline applies to all of its queries together."""


class LimitsRecorder:
    """Reads the limits of published hours from a cluster's metrics, and stores them.

    Args:
        create_reader: creates a reader of a cluster's limits.
        store: where limits are stored.
    """

    def __init__(self, create_reader: LimitsReaderFactory, store: LimitsStore) -> None:
        self._create_reader = create_reader
        self._store = store

    def record(
        self,
        cluster: ClusterSettings,
        settings: CoreSettings,
        hours: Sequence[datetime],
        now: datetime,
        deadline: Deadline | None = None,
    ) -> None:
        """Record the limits of hours that have none yet.

        An hour's figures do not depend on limits: if they are unavailable, this is logged.

        Args:
            cluster: the cluster.
            settings: the settings, which say how long limits are kept.
            hours: the hours, in order.
            now: the current time.
            deadline: limit for the queries.
        """
        if not hours:
            return
        expires_at = now + settings.retention.periods().lines
        try:
            stored = {limits.hour for limits in self._store.limits_between(cluster.name, hours[0], hours[-1] + HOUR)}
            for run in consecutive_runs([hour for hour in hours if hour not in stored]):
                for limits in self._create_reader(cluster, deadline).read(run):
                    if limits.pools or limits.quotas:
                        self._store.put(limits, expires_at)
        except SourceError as error:
            logger.warning("limits were not recorded", cluster=cluster.name, reason=str(error))
        except Exception:  # the hours are published already, and their rollups must still be updated
            logger.exception("limits were not recorded", cluster=cluster.name)
