"""Lists exported days with URLs to download them."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct

from gpucost.core.errors import InvalidInputError, ParameterError
from gpucost.core.hours import DAY, floor_day, format_timestamp
from gpucost.features.exports.exported_days import ExportedDay, FileFormat, fingerprint, manifests_by_day, object_key
from gpucost.features.exports.storage import DynamoExports
from gpucost.storage.ports import Clock, PublishedHours, SettingsStore

if TYPE_CHECKING:
    from gpucost.features.exports.exported_days import ExportBucket

URL_SECONDS = 300
"""How long a download URL is valid."""
MAX_LISTED_PERIOD = 100 * DAY
MAX_LISTED_EXPORTS = 400
"""Every row has three URLs of one or two kilobytes."""


class ListedExport(Struct, frozen=True):
    """An exported day with its download URLs."""

    exported_day: ExportedDay
    is_current: bool
    """Whether it has the current versions of the hours. Otherwise it will be exported again."""
    parquet_url: str
    csv_url: str
    inference_url: str | None
    """None if the day has no such file."""
    urls_expire_at: datetime


class ExportListing:
    """Lists exports.

    Args:
        settings_store: source of the cluster names.
        ledger: current versions of the hours.
        catalogue: the exported days.
        bucket: stores the files.
        clock: returns the current time.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: PublishedHours,
        catalogue: DynamoExports,
        bucket: "ExportBucket",
        *,
        clock: Clock,
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._catalogue = catalogue
        self._bucket = bucket
        self._clock = clock

    def exports(self, start: datetime, end: datetime, cluster: str | None = None) -> list[ListedExport]:
        """Return the exported days of a period, in order of day and cluster.

        Raises:
            ParameterError: a period that is not whole UTC days, or an unknown cluster.
            InvalidInputError: the response would have too many rows.
            SettingsMissingError: no settings yet.
        """
        _check_period(start, end)
        exported_days: list[tuple[ExportedDay, bool]] = []
        for name in self._clusters(cluster, start):
            exported = self._catalogue.days(name, start, end)
            hours = manifests_by_day(self._ledger.manifests(name, start, end)) if exported else {}
            # Days whose hours have expired from the ledger cannot be restated.
            exported_days += [
                (day, day.day not in hours or day.fingerprint == fingerprint(hours[day.day])) for day in exported
            ]
            if len(exported_days) > MAX_LISTED_EXPORTS:
                raise InvalidInputError(
                    f"the response would have more than {MAX_LISTED_EXPORTS} days. Shorten the period, or select "
                    "one cluster."
                )
        return [
            self._list_day(exported, is_current=is_current)
            for exported, is_current in sorted(exported_days, key=lambda row: (row[0].day, row[0].cluster))
        ]

    def _clusters(self, cluster: str | None, start: datetime) -> list[str]:
        names = self._settings_store.current().clusters(start)
        if cluster is None:
            return names
        if cluster not in names:
            raise ParameterError("cluster", f"{cluster!r} is not in the settings; allowed: {', '.join(names)}")
        return [cluster]

    def _list_day(self, exported: ExportedDay, *, is_current: bool) -> ListedExport:
        # One second less than the signature, so that the URL still works at the returned time.
        expires = self._clock().replace(microsecond=0) + timedelta(seconds=URL_SECONDS - 1)
        safe_cluster = "".join(
            character if character.isascii() and character.isalnum() else "-" for character in exported.cluster
        )
        name = f"{safe_cluster}-{exported.day:%Y-%m-%d}"

        def url(file_format: FileFormat, file_name: str) -> str:
            key = object_key(exported.cluster, exported.day, file_format)
            return self._bucket.url(key, name=file_name, seconds=URL_SECONDS)

        return ListedExport(
            exported,
            is_current,
            url("parquet", f"{name}.parquet"),
            url("csv", f"{name}.csv.gz"),
            None if exported.inference_bytes is None else url("inference", f"{name}-inference.parquet"),
            expires,
        )


def _check_period(start: datetime, end: datetime) -> None:
    for name, moment in (("start", start), ("end", end)):
        if floor_day(moment) != moment:
            raise ParameterError(
                name, f"{format_timestamp(moment)} is not the start of a UTC day; pass for example 2026-11-01T00:00:00Z"
            )
    if end <= start:
        raise ParameterError(
            "end", f"must be after start ({format_timestamp(start)}), but is {format_timestamp(end)}; pass a later end"
        )
    if end - start > MAX_LISTED_PERIOD:
        raise ParameterError("end", f"must be at most {MAX_LISTED_PERIOD.days} days after start; shorten the period")
