"""Exports each cluster's days as FOCUS rows to S3, and again after their hours are restated.

A day's file is one object with a fixed key, so that writing is atomic and idempotent. It is written only if the object
has not changed since before the hours were read: of two concurrent exports, the one that read older hours fails. The
catalog is written last, so that a day stays due if the function crashes.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec import Struct, field

from gpucost.core.amounts import Costs
from gpucost.core.costs_by_model import TokenWeights
from gpucost.core.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    SettingsError,
    SettingsMissingError,
    SourceError,
)
from gpucost.core.hour_record import HourRecord, ModelHour
from gpucost.core.hours import DAY, floor_day, format_timestamp
from gpucost.core.ledger import HourSummary
from gpucost.features.exports.exported_days import (
    ExportBucket,
    ExportedDay,
    ExportWriter,
    HourRows,
    day_status,
    due_days,
    fingerprint,
    object_key,
)
from gpucost.features.exports.focus import focus_rows, inference_rows
from gpucost.features.exports.storage import DynamoExports
from gpucost.runtime.messages import ExportDue
from gpucost.runtime.observability import logger
from gpucost.storage.ports import Clock, PublishedHours, SettingsStore

EXPIRY_MARGIN = 2 * DAY
"""Days are not exported anymore this long before their lines expire from the ledger."""
MAX_ATTEMPTS = 3
"""Attempts to export a day that is exported concurrently."""
MIN_SECONDS_PER_DAY = 180.0
"""No further day is started with less time left. A day with 10,000 pods takes about two minutes."""


class ExportRunResult(Struct):
    """The result of a run."""

    exported_days: list[ExportedDay] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    days_left: int = 0
    """Number of due days left for the next run."""
    expired_days: list[str] = field(default_factory=list)
    """Due days whose lines have expired from the ledger. Their last export, if any, is kept."""


class ExportService:
    """Exports each UTC day of a cluster as FOCUS rows to the bucket.

    Args:
        settings_store: source of the cluster names.
        ledger: the hours.
        catalogue: records which days are exported.
        bucket: stores the files.
        writer: writes the files.
        account: ID of the billing account, which FOCUS requires on every row.
        retention: how long exports are kept. A day older than that is not exported again.
        clock: returns the current time.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: PublishedHours,
        catalogue: DynamoExports,
        bucket: ExportBucket,
        writer: ExportWriter,
        *,
        account: str,
        retention: timedelta,
        clock: Clock,
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._catalogue = catalogue
        self._bucket = bucket
        self._writer = writer
        self._account = account
        self._retention = retention
        self._clock = clock

    def export(self, message: ExportDue, seconds_left: Callable[[], float]) -> ExportRunResult | None:
        """Export the requested days, or all due days, newest first, as long as there is time.

        A failing day does not stop the export of other days.

        Returns:
            None if no settings have been pushed yet.

        Raises:
            InvalidInputError: the cluster is not in the settings.
        """
        try:
            stored = self._settings_store.current()
        except SettingsMissingError:
            return None
        look_back = min(stored.settings.retention.periods().lines - EXPIRY_MARGIN, self._retention)
        names = stored.clusters(message.first_day or message.scheduled_time - look_back)
        if message.cluster is not None and message.cluster not in names:
            raise InvalidInputError(f"cluster {message.cluster!r} is not in the settings; allowed: {', '.join(names)}")
        result = ExportRunResult()
        days_to_export: list[tuple[datetime, str]] = []
        for name in names if message.cluster is None else [message.cluster]:
            try:
                days_to_export += [(day, name) for day in self._days_to_export(name, message, look_back)]
            except SourceError as error:
                result.failures.append(f"{name}: {error}")
            except Exception as error:  # other clusters must still be exported
                logger.exception("a cluster could not be exported", cluster=name)
                result.failures.append(f"{name}: {type(error).__name__}: {error}")
        newest_first = sorted(days_to_export, key=lambda cluster_day: (-cluster_day[0].timestamp(), cluster_day[1]))
        for index, (day, name) in enumerate(newest_first):
            if seconds_left() < MIN_SECONDS_PER_DAY:
                result.days_left = len(days_to_export) - index
                break
            try:
                exported = self._export_day(name, day)
            except NotFoundError as error:
                (result.expired_days if message.first_day is None else result.failures).append(
                    f"{name} {day:%Y-%m-%d}: {error}"
                )
            except (ConflictError, SourceError) as error:
                result.failures.append(f"{name} {day:%Y-%m-%d}: {error}")
            except Exception as error:  # other days and clusters must still be exported
                logger.exception("a day could not be exported", cluster=name, day=f"{day:%Y-%m-%d}")
                result.failures.append(f"{name} {day:%Y-%m-%d}: {type(error).__name__}: {error}")
            else:
                result.exported_days += [exported] if exported else []
        return result

    def _days_to_export(self, cluster: str, message: ExportDue, look_back: timedelta) -> Sequence[datetime]:
        if message.first_day is not None:
            return [message.first_day + DAY * index for index in range(message.days)]
        start = floor_day(message.scheduled_time - look_back)
        exported = {day.day: day for day in self._catalogue.days(cluster, start, message.scheduled_time)}
        return due_days(
            exported, self._ledger.manifests(cluster, start, message.scheduled_time), message.scheduled_time
        )

    def _export_day(self, cluster: str, day: datetime) -> ExportedDay | None:
        for attempt in range(MAX_ATTEMPTS):
            try:
                return self._export_once(cluster, day)
            except ConflictError:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
        return None

    def _export_once(self, cluster: str, day: datetime) -> ExportedDay | None:
        """Export a day and return its record; None if it has no hours."""
        keys = object_key(cluster, day, "csv"), object_key(cluster, day, "inference"), object_key(cluster, day)
        etags = [self._bucket.etag(key) for key in keys]
        current_manifests = self._ledger.manifests(cluster, day, day + DAY)
        if not current_manifests:
            return None
        summaries = self._ledger.summaries_of(current_manifests)
        manifests = [summary.manifest for summary in summaries]
        catalogued = {exported.day: exported for exported in self._catalogue.days(cluster, day, day + DAY)}
        with TemporaryDirectory(prefix="gpucost-export-") as folder:
            files = self._writer(self._rows_by_hour(summaries), Path(folder))
            # A day without models has a file without rows: it replaces one that is not true anymore.
            paths = files.csv_path, files.inference_path, files.parquet_path
            for key, path, replacing in zip(keys, paths, etags, strict=True):
                self._bucket.put(key, path, if_match=replacing)
            exported = ExportedDay(
                cluster=cluster,
                day=day,
                export_version=catalogued[day].export_version + 1 if day in catalogued else 1,
                status=day_status(day, manifests),
                row_count=files.row_count,
                parquet_bytes=files.parquet_path.stat().st_size,
                csv_bytes=files.csv_path.stat().st_size,
                currency=" ".join(sorted({hour.currency for hour in manifests if hour.status != "incomplete"}))
                or "USD",
                exported_at=self._clock().replace(microsecond=0),
                fingerprint=fingerprint(current_manifests),
                hour_version_sum=sum(manifest.version for manifest in manifests),
                inference_row_count=files.inference_row_count,
                inference_bytes=files.inference_path.stat().st_size,
            )
        self._catalogue.put(exported)
        return exported

    def _rows_by_hour(self, summaries: Sequence[HourSummary]) -> Iterator[HourRows]:
        """Yield the rows of each hour, which are read lazily."""
        models = self._ledger.models_of([summary.manifest for summary in summaries])
        for summary in summaries:
            manifest = summary.manifest
            if manifest.status != "incomplete":
                record = self._hour_record(summary, models.get(manifest.hour, ()))
                weights = self._weights(manifest.settings_version) if record.models else None
                yield HourRows(
                    focus_rows(manifest, record, self._account), inference_rows(manifest, record.models, weights)
                )

    def _weights(self, settings_version: int) -> TokenWeights | None:
        """Return the weights of a version of the settings; None if it cannot be read anymore."""
        try:
            return self._settings_store.version(settings_version).settings.inference.rules().weights
        except (NotFoundError, SettingsError) as error:
            logger.warning("an hour's token weights are not known", version=settings_version, reason=str(error))
            return None

    def _hour_record(self, summary: HourSummary, models: tuple[ModelHour, ...]) -> HourRecord:
        """Read all records of an hour.

        Raises:
            NotFoundError: its lines have expired from the ledger.
            SourceError: its lines or models do not add up to its sums.
        """
        manifest = summary.manifest
        lines = self._ledger.lines_of(manifest)
        nodes, charges = self._ledger.nodes_and_charges_of(manifest)
        hour = format_timestamp(manifest.hour)
        if summary.totals is None or (not lines and summary.totals.costs != Costs()):
            raise NotFoundError(f"the lines of {hour} have expired. The day was not exported")
        if Costs.total(line.costs() for line in lines) != summary.totals.costs:
            raise SourceError(f"the lines of {hour} do not add up to the hour's sums. The day was not exported")
        if models and Costs.total(model.costs for model in models) != summary.totals.costs:
            raise SourceError(f"the models of {hour} do not add up to the hour's sums. The day was not exported")
        return HourRecord(
            manifest.cluster,
            manifest.hour,
            manifest.status,
            manifest.coverage,
            summary.totals,
            tuple(lines),
            nodes=nodes,
            charges=charges,
            currency=manifest.currency,
            models=models,
        )
