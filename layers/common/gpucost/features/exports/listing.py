"""What is exported, for people: each cluster's days, with addresses to download them from."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from gpucost.core.errors import InvalidInputError, ParameterError
from gpucost.core.hours import floor_day, format_timestamp
from gpucost.core.rollups import DAY
from gpucost.features.exports.exported_days import ExportedDay, by_day, fingerprint, object_key
from gpucost.features.exports.ports import ExportBucket, ExportCatalogue, ExportedHours
from gpucost.storage.ports import Clock, SettingsStore

URL_SECONDS = 300
"""How long a download's address is good for."""
MAX_PERIOD = 100 * DAY
MAX_ROWS = 400
"""Two addresses of a kilobyte or two each stand in every row."""


@dataclass(frozen=True, slots=True)
class ListedExport:
    """An exported day, and where to download it."""

    exported: ExportedDay
    is_current: bool
    """Whether it holds the versions of the hours that are in force; it is exported again otherwise."""
    parquet_url: str
    csv_url: str
    urls_expire_at: datetime


class ExportListing:
    """Lists exports.

    Args:
        settings_store: names the clusters.
        ledger: the hours in force.
        catalogue: what is exported.
        bucket: where it lies.
        clock: the time now.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        ledger: ExportedHours,
        catalogue: ExportCatalogue,
        bucket: ExportBucket,
        *,
        clock: Clock,
    ) -> None:
        self._settings_store = settings_store
        self._ledger = ledger
        self._catalogue = catalogue
        self._bucket = bucket
        self._clock = clock

    def exports(self, start: datetime, end: datetime, cluster: str | None = None) -> list[ListedExport]:
        """The exported days of a period, in order of day and cluster.

        Raises:
            ParameterError: a period that is not made of UTC days, or a cluster that the settings do not know.
            InvalidInputError: the answer would be too long.
            SettingsMissingError: no settings yet.
        """
        _check_period(start, end)
        exported_days: list[tuple[ExportedDay, bool]] = []
        for name in self._clusters(cluster, start):
            exported = self._catalogue.days(name, start, end)
            hours = by_day(self._ledger.manifests(name, start, end)) if exported else {}
            # A day whose hours the ledger no longer knows cannot be restated.
            exported_days += [(one, one.day not in hours or one.fingerprint == fingerprint(hours[one.day])) for one in exported]
            if len(exported_days) > MAX_ROWS:
                raise InvalidInputError(
                    f"the answer would have more than {MAX_ROWS} days of clusters; shorten the period, or name one "
                    "cluster"
                )
        return [
            self._list_day(one, is_current=is_current)
            for one, is_current in sorted(exported_days, key=lambda row: (row[0].day, row[0].cluster))
        ]

    def _clusters(self, cluster: str | None, start: datetime) -> list[str]:
        names = self._settings_store.current().clusters(start)
        if cluster is None:
            return names
        if cluster not in names:
            raise ParameterError("cluster", f"{cluster!r} is not in the settings; allowed: {', '.join(names)}")
        return [cluster]

    def _list_day(self, exported: ExportedDay, *, is_current: bool) -> ListedExport:
        # A second less than signed: an address that is shown is good until then.
        expires = self._clock().replace(microsecond=0) + timedelta(seconds=URL_SECONDS - 1)
        safe_cluster = "".join(one if one.isascii() and one.isalnum() else "-" for one in exported.cluster)
        name = f"{safe_cluster}-{exported.day:%Y-%m-%d}"
        parquet_key, csv_key = object_key(exported.cluster, exported.day), object_key(exported.cluster, exported.day, "csv")
        return ListedExport(
            exported,
            is_current,
            self._bucket.url(parquet_key, name=f"{name}.parquet", seconds=URL_SECONDS),
            self._bucket.url(csv_key, name=f"{name}.csv.gz", seconds=URL_SECONDS),
            expires,
        )


def _check_period(start: datetime, end: datetime) -> None:
    for name, moment in (("start", start), ("end", end)):
        if floor_day(moment) != moment:
            raise ParameterError(name, f"{format_timestamp(moment)} is not the start of a UTC day")
    if end <= start:
        raise ParameterError("end", "must be after start")
    if end - start > MAX_PERIOD:
        raise ParameterError("end", f"exports are listed for {MAX_PERIOD.days} days at most")
