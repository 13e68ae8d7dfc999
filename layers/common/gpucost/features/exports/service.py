"""The export function's job: each cluster's days as FOCUS rows in S3, again whenever their hours were restated.

A day's file is one object at one place, so that writing it is all or nothing, and writing it again changes nothing. It
is written on the condition that it still is what it was before the hours were read: of two exports at once the one that
saw older hours loses. The catalogue is written last: after a crash it does not know the new file, so the day is due.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from gpucost.core.errors import ConflictError, InvalidInputError, NotFoundError, SettingsMissingError, SourceError
from gpucost.core.hours import floor_day, format_timestamp
from gpucost.core.ledger import HourSummary, Manifest
from gpucost.core.model import Costs
from gpucost.core.rollups import DAY
from gpucost.features.exports.exported_days import ExportedDay, due_days, fingerprint, object_key, status_of
from gpucost.features.exports.focus import ExportedHour, Row, focus_rows
from gpucost.features.exports.ports import ExportBucket, ExportCatalogue, ExportedHours, ExportWriter
from gpucost.runtime.messages import ExportDue
from gpucost.runtime.observability import logger
from gpucost.storage.ports import Clock, SettingsStore

EXPIRY_MARGIN = 2 * DAY
"""Days are left alone so long before the ledger drops their lines: they stay as they were exported."""
MAX_ATTEMPTS = 3
"""Of a day that somebody else exports at the same time."""
MIN_SECONDS_PER_DAY = 180.0
"""No further day is begun with less time left: one of 10,000 pods takes about two minutes."""


@dataclass(slots=True)
class ExportResult:
    """What a run did."""

    exported: list[ExportedDay] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    days_left: int = 0
    """Due, and left to the next run."""
    expired: list[str] = field(default_factory=list)
    """Due, and no longer kept by the ledger: what was exported of them, if anything, stays."""


class ExportService:
    """Exports days.

    Args:
        settings_store: names the clusters.
        ledger: the hours.
        catalogue: what is exported.
        bucket: where to.
        writer: makes the files.
        account: id of the billing account, as FOCUS wants it on every row.
        kept: how long exports are kept: a day older than that is not exported again.
        clock: the time now.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: ExportedHours,
        catalogue: ExportCatalogue,
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

    def export(self, message: ExportDue, seconds_left: Callable[[], float]) -> ExportResult | None:
        """Export the days asked for, or those that are due; newest first, as long as there is time.

        A day that fails does not hold up the others.

        Returns:
            None where no settings have been pushed yet.

        Raises:
            InvalidInputError: a cluster that the settings do not know.
        """
        try:
            stored = self._settings_store.current()
        except SettingsMissingError:
            return None
        look_back = min(stored.settings.retention.periods().lines - EXPIRY_MARGIN, self._retention)
        names = stored.clusters(message.first_day or message.scheduled_time - look_back)
        if message.cluster is not None and message.cluster not in names:
            raise InvalidInputError(f"cluster {message.cluster!r} is not in the settings; there are: {', '.join(names)}")
        result = ExportResult()
        days_to_export: list[tuple[datetime, str]] = []
        for name in names if message.cluster is None else [message.cluster]:
            try:
                days_to_export += [(day, name) for day in self._days(name, message, look_back)]
            except SourceError as error:
                result.failures.append(f"{name}: {error}")
        for index, (day, name) in enumerate(sorted(days_to_export, key=lambda one: (-one[0].timestamp(), one[1]))):
            if seconds_left() < MIN_SECONDS_PER_DAY:
                result.days_left = len(days_to_export) - index
                break
            try:
                exported = self._export_day(name, day)
            except NotFoundError as error:
                (result.expired if message.first_day is None else result.failures).append(f"{name} {day:%Y-%m-%d}: {error}")
            except (ConflictError, SourceError) as error:
                result.failures.append(f"{name} {day:%Y-%m-%d}: {error}")
            except Exception as error:  # whatever one day's figures do, other days and clusters are exported
                logger.exception("a day could not be exported", cluster=name, day=f"{day:%Y-%m-%d}")
                result.failures.append(f"{name} {day:%Y-%m-%d}: {type(error).__name__}: {error}")
            else:
                result.exported += [exported] if exported else []
        return result

    def _days(self, cluster: str, message: ExportDue, look_back: timedelta) -> Sequence[datetime]:
        if message.first_day is not None:
            return [message.first_day + DAY * place for place in range(message.days)]
        start = floor_day(message.scheduled_time - look_back)
        exported = {one.day: one for one in self._catalogue.days(cluster, start, message.scheduled_time)}
        return due_days(exported, self._ledger.manifests(cluster, start, message.scheduled_time), message.scheduled_time)

    def _export_day(self, cluster: str, day: datetime) -> ExportedDay | None:
        for attempt in range(MAX_ATTEMPTS):
            try:
                return self._try_day(cluster, day)
            except ConflictError:
                if attempt == MAX_ATTEMPTS - 1:
                    raise
        return None

    def _try_day(self, cluster: str, day: datetime) -> ExportedDay | None:
        """Export a day; None where it has no hours."""
        keys = object_key(cluster, day, "csv"), object_key(cluster, day)
        etags = [self._bucket.etag(key) for key in keys]
        current_manifests = self._ledger.manifests(cluster, day, day + DAY)
        if not current_manifests:
            return None
        summaries = self._ledger.summaries_of(current_manifests)
        manifests = [_apply_summary_status(one, summary) for one, summary in zip(current_manifests, summaries, strict=True)]
        catalogued = {one.day: one for one in self._catalogue.days(cluster, day, day + DAY)}
        with TemporaryDirectory(prefix="gpucost-export-") as folder:
            files = self._writer(self._rows(manifests, summaries), Path(folder))
            for key, path, replacing in zip(keys, (files.csv, files.parquet), etags, strict=True):
                self._bucket.put(key, path, if_match=replacing)
            exported = ExportedDay(
                cluster=cluster,
                day=day,
                version=catalogued[day].version + 1 if day in catalogued else 1,
                status=status_of(day, manifests),
                rows=files.rows,
                parquet_bytes=files.parquet.stat().st_size,
                csv_bytes=files.csv.stat().st_size,
                currency=" ".join(sorted({one.currency for one in manifests if one.status != "incomplete"})) or "USD",
                exported_at=self._clock().replace(microsecond=0),
                fingerprint=fingerprint(current_manifests),
                publications=sum(one.version for one in manifests),
            )
        self._catalogue.put(exported)
        return exported

    def _rows(self, manifests: Sequence[Manifest], summaries: Sequence[HourSummary]) -> Iterator[Iterator[Row]]:
        """Each hour's rows, read when they are asked for."""
        for manifest, summary in zip(manifests, summaries, strict=True):
            if manifest.status != "incomplete":
                yield focus_rows(self._hour(manifest, summary), self._account)

    def _hour(self, manifest: Manifest, summary: HourSummary) -> ExportedHour:
        """An hour, whole.

        Raises:
            NotFoundError: the ledger no longer keeps its lines.
            SourceError: its lines are not what its sums were made of.
        """
        lines = self._ledger.lines_of(manifest)
        nodes, charges = self._ledger.nodes_of(manifest)
        hour = format_timestamp(manifest.hour)
        if summary.totals is None or (not lines and summary.totals.costs != Costs()):
            raise NotFoundError(f"the lines of {hour} are no longer kept; nothing was exported")
        if Costs.total(line.costs() for line in lines) != summary.totals.costs:
            raise SourceError(f"the lines of {hour} are not what the hour's sums were made of; nothing was exported")
        return ExportedHour(manifest, summary.totals, lines, nodes, charges)


def _apply_summary_status(manifest: Manifest, summary: HourSummary) -> Manifest:
    """An hour whose figures are beyond reason is exported as incomplete."""
    return replace(manifest, status="incomplete") if summary.status == "incomplete" else manifest
