"""Attribute hours: ask the metrics, meter, rate, and publish each hour in the ledger.

*Incomplete* is a result, not an error: an hour whose metrics could not be had is published as such, with its reason
and its next attempt, and the message counts as handled.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gpucost.core.attribution import AttributionRules, BusinessUnit, attribute
from gpucost.core.errors import (
    ConflictError,
    HoursTooLargeError,
    InvalidInputError,
    MetricsTooLargeError,
    MetricsUnavailableError,
    ExpiredError,
    SourceError,
)
from gpucost.core.hours import HOUR, floor_hour, format_timestamp, format_epoch_ms, to_epoch_ms
from gpucost.core.ledger import Manifest, Retention
from gpucost.core.metering.kubernetes_labels import exported_name
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.outages import silent_since
from gpucost.core.metering.usage import Usage
from gpucost.core.model import HourRecord
from gpucost.core.pricing.node_prices import Pricing
from gpucost.core.rollups import DAY, days_with_hours
from gpucost.pipeline.limits import LimitsRecorder
from gpucost.pipeline.pricing import Pricer, pricing_of
from gpucost.runtime.deadline import Deadline
from gpucost.runtime.gc_control import gc_paused
from gpucost.runtime.messages import HourClosed, HoursDue, Origin
from gpucost.runtime.observability import logger, tally
from gpucost.settings import ClusterSettings, Settings
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import Bus, Clock, MetricsReader, MetricsReaders, Rollups, SettingsStore

AMP_RETENTION = timedelta(days=150)
"""AMP's default; it has no API that tells a workspace's own to a reader of metrics."""

SHORTEST_LOOKBACK = 2 * HOUR
"""Whatever settings say: an hour at whose end nobody looked is told by the hour after it."""


@dataclass(frozen=True, slots=True)
class HourResult:
    """What became of one hour of a message."""

    manifest: Manifest
    was_published: bool
    """False where the hour had been published before and was only announced again."""
    lines: int = 0


@dataclass(frozen=True, slots=True)
class RatedHour:
    """An hour's record, and the usage that it was rated from; None where the metrics could not be had."""

    record: HourRecord
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class _Attempt:
    """What the hours of a message have in common."""

    reader: MetricsReader
    cluster: ClusterSettings
    settings: Settings
    now: datetime
    message: HoursDue


class AttributeService:
    """Handles `HoursDue`: twice, late or after a crash, the ledger ends in the same figures."""

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: Ledger,
        rollups: Rollups,
        readers: MetricsReaders,
        bus: Bus,
        *,
        pricer: Pricer,
        clock: Clock,
        limits: LimitsRecorder | None = None,
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._rollups = rollups
        self._readers = readers
        self._bus = bus
        self._pricer = pricer
        self._clock = clock
        self._limits = limits

    def attribute(self, message: HoursDue, deadline: Deadline | None = None) -> list[HourResult]:
        """Attribute every hour that a message names, and announce each.

        Args:
            message: names the hours.
            deadline: for all queries together. Hours whose metrics have not come by then are incomplete.

        Raises:
            InvalidInputError: the message names a cluster that its settings do not know.
            SourceError: the ledger or the bus failed; the message is to be delivered again.
        """
        settings = self._settings_store.version(message.settings_version).settings
        cluster = settings.cluster(message.cluster)
        if cluster is None:
            raise InvalidInputError(
                f"cluster {message.cluster!r} is not in version {message.settings_version} of the settings"
            )
        now = self._clock()
        versions = {hour: self._ledger.newest_version(cluster.name, hour) for hour in message.starts()}
        hours_to_attribute = [hour for hour, manifest in versions.items() if _needs_attempt(manifest, message, now)]
        reader = self._readers(cluster, settings, deadline)
        attempt = _Attempt(reader, cluster, settings, now, message)
        rated = {one.record.hour: one for run in _runs(hours_to_attribute) for one in self._rated(attempt, run)}
        results = []
        lookback = max(timedelta(hours=settings.lookback_hours), SHORTEST_LOOKBACK)
        for hour, manifest in versions.items():
            with tally.timed("PublishSeconds"), gc_paused():
                result = self._publish(
                    rated.get(hour), manifest, message, now, hour + lookback, settings.retention.periods()
                )
            publish_hour_closed(self._bus, result.manifest, message.origin, message.correlation_id)
            results.append(result)
        if self._limits is not None:
            with_figures = [one.manifest.hour for one in results if one.manifest.status != "incomplete"]
            self._limits.record(cluster, settings, with_figures, now, deadline)
        roll_up(self._rollups, cluster.name, message.starts(), now, settings.retention.periods())
        return results

    def _rated(self, attempt: "_Attempt", hours: Sequence[datetime]) -> list[RatedHour]:
        """A record for each of consecutive hours, incomplete where the metrics failed, or where we did.

        Raises:
            SourceError: the price book or the bill could not be read.
        """
        prices = self._pricer.of_hours(attempt.settings, hours)
        try:
            with tally.timed("MeterSeconds"):
                return rate_hours(
                    attempt.reader, attempt.cluster, attempt.settings, hours, now=attempt.now, prices=prices
                )
        except InvalidInputError:
            raise
        except Exception as error:
            if len(hours) == 1 or isinstance(error, MetricsUnavailableError):
                if not isinstance(error, SourceError):
                    self._send_to_dead_letter_queue(attempt.message, hours, error)
                return _failed(attempt.cluster, hours, error)
            is_too_large = isinstance(error, MetricsTooLargeError | HoursTooLargeError)
        # One hour's bad answer, or our own mistake with it, must not cost its neighbors. Not in the handler above:
        # there the error would keep the answers.
        size = -(-len(hours) // 2) if is_too_large else 1
        parts = [hours[at : at + size] for at in range(0, len(hours), size)]
        return [one for part in parts for one in self._rated(attempt, part)]

    def _send_to_dead_letter_queue(self, message: HoursDue, hours: Sequence[datetime], error: Exception) -> None:
        """A mistake of ours waits among the dead letters for its mending; `gpucost redrive` sends the hour again."""
        logger.exception("an hour was put aside", hour=hours[0])
        for single in message.singles():
            if single.first_hour in hours:
                letter = single.model_copy(update={"force": True})
                self._bus.dead_letter(letter.model_dump_json(), f"{type(error).__name__}: {error}")

    def _publish(
        self,
        rated: RatedHour | None,
        manifest: Manifest | None,
        message: HoursDue,
        now: datetime,
        last_attempt: datetime,
        retention: Retention,
    ) -> HourResult:
        if rated is None:
            # Published before: by an earlier delivery of this message that ended before it could tell.
            if manifest is None:
                raise AssertionError("an hour without a manifest is always attributed")
            return HourResult(manifest, was_published=False)
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
            winner = self._ledger.newest_version(rated.record.cluster, rated.record.hour)
            if winner is None or winner == manifest:  # nobody won: others were at it, and the message comes again
                raise
            if winner.status == "incomplete" and rated.record.status != "incomplete":
                return self._publish(rated, winner, message, now, last_attempt, retention)
            return HourResult(winner, was_published=False)
        return HourResult(published, was_published=True, lines=len(rated.record.lines))


def roll_up(rollups: Rollups, cluster: str, hours: Sequence[datetime], now: datetime, retention: Retention) -> None:
    """Sum the days of published hours anew, and the one before, in case that its last run ended too early.

    A day of which some hours have expired is left as it was: it could only be summed to less, however often tried.

    Raises:
        SourceError: the table failed; readers sum from the hours until it is done again.
    """
    days = days_with_hours(hours)
    with tally.timed("PublishSeconds"), gc_paused():
        for day in [days[0] - DAY, *days]:
            try:
                rollups.roll_up(cluster, day, now, retention)
            except ExpiredError as error:
                logger.warning("a day was not summed anew", cluster=cluster, day=day, reason=str(error))


def attribute_hours(
    reader: MetricsReader,
    cluster: ClusterSettings,
    settings: Settings,
    hours: Sequence[datetime],
    *,
    now: datetime,
) -> list[HourRecord]:
    """The records of consecutive hours of one cluster, without a ledger and its price book.

    Raises:
        As `rate_hours`.
    """
    return [one.record for one in rate_hours(reader, cluster, settings, hours, now=now)]


def rate_hours(
    reader: MetricsReader,
    cluster: ClusterSettings,
    settings: Settings,
    hours: Sequence[datetime],
    *,
    now: datetime,
    prices: Mapping[datetime, Pricing] | None = None,
) -> list[RatedHour]:
    """The records of consecutive hours of one cluster, each with the usage behind it.

    Args:
        reader: of the cluster's metrics.
        cluster: which one.
        settings: the document in force.
        hours: consecutive, in order.
        now: the time now.
        prices: in force in each hour; None: the settings' own alone.

    Raises:
        InvalidInputError: an hour that has not ended.
        SourceError: the metrics could not be had; no figure exists.
    """
    for hour in hours:
        check_hour(hour, now)
    metering = MeteringRules(
        utilization_sources=settings.utilization.sources,
        slices_per_gpu=cluster.slices_per_gpu,
    )
    settings_pricing = pricing_of(settings)
    with gc_paused():
        rated = []
        for observation in reader.observe(hours):
            usage = meter(observation, metering)
            record = attribute(usage, attribution_rules(settings, (prices or {}).get(usage.hour, settings_pricing)))
            rated.append(RatedHour(_without_unseen_figures(record, silent_since(observation, to_epoch_ms(now))), usage))
        return rated


def _without_unseen_figures(record: HourRecord, silent_since: int | None) -> HourRecord:
    """A record; without figures as long as nobody has looked since a moment before the hour's end."""
    if silent_since is None or record.status == "incomplete":
        return record
    why = f"nobody has looked since {format_epoch_ms(silent_since)}: who held GPUs then is told once somebody looks again"
    notes = (why, *record.notes)
    return HourRecord(record.cluster, record.hour, "incomplete", record.coverage, None, notes=notes)


def check_hour(hour: datetime, now: datetime) -> None:
    """Refuse an hour that cannot have been metered yet.

    Raises:
        InvalidInputError: not on the full hour, or not over.
    """
    if floor_hour(hour) != hour:
        raise InvalidInputError(f"hour {format_timestamp(hour)} is not on the full hour")
    if hour > now - HOUR:
        newest = format_timestamp(floor_hour(now) - HOUR)
        raise InvalidInputError(f"hour {format_timestamp(hour)} is not over yet; the newest that is, is {newest}")


def check_retention(hour: datetime, cluster: ClusterSettings, reader: MetricsReader, now: datetime) -> None:
    """Refuse an hour whose metrics are no longer kept.

    Raises:
        InvalidInputError: the hour began before the oldest kept sample.
    """
    prometheus = cluster.prometheus
    kept = timedelta(days=prometheus.retention_days) if prometheus.retention_days else None
    kept = kept or (AMP_RETENTION if prometheus.auth == "sigv4" else reader.retention())
    if kept is not None and hour < now - kept:
        raise InvalidInputError(
            f"hour {format_timestamp(hour)} is past the retention of cluster {cluster.name}'s metrics, which are kept "
            f"for {kept.total_seconds() / 86400:g} days"
        )


def attribution_rules(settings: Settings, pricing: Pricing) -> AttributionRules:
    """What a settings document says about who pays, at what prices."""
    return AttributionRules(
        pricing=pricing,
        business_units=business_units(settings),
        cost_labels={name: exported_name(name) for name in settings.cost_labels},
        min_allocation_coverage=settings.coverage.allocation,
        min_utilization_coverage=settings.coverage.utilization,
    )


def business_units(settings: Settings) -> tuple[BusinessUnit, ...]:
    """The settings' units with labels as metrics name them, in their order; those not yet in force as well."""
    return tuple(
        BusinessUnit(
            unit.name,
            unit.namespaces,
            {exported_name(name): value for name, value in unit.namespace_labels.items()},
            {exported_name(name): value for name, value in unit.pod_labels.items()},
            since=unit.since,
            distribute=unit.distribute,
        )
        for unit in settings.business_units
    )


def _needs_attempt(manifest: Manifest | None, message: HoursDue, now: datetime) -> bool:
    """Whether an hour still needs an attempt; a delivery repeated after it was published does not."""
    if manifest is None:
        return True
    if manifest.status != "incomplete":
        return False
    if message.origin == "backfill" or message.force:
        return True
    return manifest.next_attempt_at is not None and manifest.next_attempt_at <= now


def _runs(hours: Sequence[datetime]) -> list[list[datetime]]:
    """Consecutive hours together."""
    runs: list[list[datetime]] = []
    for hour in sorted(hours):
        if runs and runs[-1][-1] + HOUR == hour:
            runs[-1].append(hour)
        else:
            runs.append([hour])
    return runs


def _failed(cluster: ClusterSettings, hours: Sequence[datetime], error: Exception) -> list[RatedHour]:
    why = str(error) if isinstance(error, SourceError) else f"could not be attributed: {type(error).__name__}: {error}"
    return [RatedHour(HourRecord(cluster.name, hour, "incomplete", None, None, notes=(why,))) for hour in hours]


def publish_hour_closed(bus: Bus, manifest: Manifest, origin: Origin, correlation_id: str) -> None:
    """Tell everybody that a version is in force; one beside a frozen month changes nothing that anybody reads.

    Raises:
        SourceError: the topic failed.
    """
    if manifest.is_adjustment:
        return
    bus.publish(
        HourClosed(
            cluster=manifest.cluster,
            hour=manifest.hour,
            status=manifest.status,
            record_version=manifest.version,
            settings_version=manifest.settings_version,
            origin=origin,
            correlation_id=correlation_id,
        )
    )
