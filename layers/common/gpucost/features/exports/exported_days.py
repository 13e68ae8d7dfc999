"""Exported days: their record, object keys and files, and which days are due to be exported."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple, Protocol
from urllib.parse import quote

from msgspec import Struct

from gpucost.core.hours import DAY, floor_day, hours_between
from gpucost.core.ledger import Manifest
from gpucost.features.exports.focus import Row

EXPORT_FORMAT = 3
"""Increased with every change of the columns of a table or their meaning. Days of older formats are exported again."""
FileFormat = Literal["parquet", "csv", "inference"]
"""`inference` is the Parquet file of costs by model."""
DayStatus = Literal["complete", "provisional", "incomplete"]
_FOLDERS: dict[FileFormat, tuple[str, str]] = {
    "parquet": ("focus", "rows.parquet"),
    "csv": ("csv", "rows.csv.gz"),
    "inference": ("inference", "rows.parquet"),
}


@dataclass(frozen=True, slots=True)
class ExportedDay:
    """The last export of one cluster's UTC day."""

    cluster: str
    day: datetime
    export_version: int
    """Number of exports of this day so far."""
    status: DayStatus
    """Status at the time of the export: *incomplete* if an hour was missing, incomplete or not over."""
    row_count: int
    parquet_bytes: int
    csv_bytes: int
    currency: str
    exported_at: datetime
    fingerprint: str
    """Digest of the exported versions of the hours. A restatement changes it."""
    hour_version_sum: int
    """Sum of the hours' version numbers. Every new version of an hour increases it."""
    inference_row_count: int | None = None
    """None if the day was exported by a version without the table `inference`, and has no such file."""
    inference_bytes: int | None = None


def object_key(cluster: str, day: datetime, file_format: FileFormat = "parquet") -> str:
    """Return the object key of a day's file. Every export of the day writes the same object.

    The cluster name is percent-encoded, so that it is always one part of the path.
    """
    folder, name = _FOLDERS[file_format]
    return f"{folder}/billing_period={day:%Y-%m}/cluster={quote(cluster, safe='')}/date={day:%Y-%m-%d}/{name}"


def fingerprint(manifests: Iterable[Manifest]) -> str:
    """Return a digest of the versions of these hours and of the export format."""
    content = [
        EXPORT_FORMAT,
        *((hour.hour, hour.run_id) for hour in sorted(manifests, key=lambda manifest: manifest.hour)),
    ]
    return hashlib.sha256(repr(content).encode()).hexdigest()[:24]


def day_status(day: datetime, manifests: Iterable[Manifest]) -> DayStatus:
    """Return the status of a day from the status of its hours."""
    statuses_by_hour = {manifest.hour: manifest.status for manifest in manifests}
    statuses = {statuses_by_hour.get(hour, "incomplete") for hour in hours_between(day, day + DAY)}
    if "incomplete" in statuses:
        return "incomplete"
    return "provisional" if "provisional" in statuses else "complete"


def manifests_by_day(manifests: Iterable[Manifest]) -> dict[datetime, list[Manifest]]:
    """Group hours by UTC day."""
    days: dict[datetime, list[Manifest]] = {}
    for manifest in manifests:
        days.setdefault(floor_day(manifest.hour), []).append(manifest)
    return days


def due_days(exported: Mapping[datetime, ExportedDay], manifests: Sequence[Manifest], now: datetime) -> list[datetime]:
    """Return ended days whose export does not have the current versions of the hours, newest first.

    Args:
        exported: existing exports by day.
        manifests: current versions of the hours.
        now: the scheduled time.
    """
    days = manifests_by_day(manifests)
    return [
        day
        for day in sorted(days, reverse=True)
        if day < floor_day(now) and (day not in exported or exported[day].fingerprint != fingerprint(days[day]))
    ]


# The files of an exported day, and what writes them.


class HourRows(NamedTuple):
    """The rows of one hour."""

    costs: Iterable[Row]
    """FOCUS rows."""
    models: Iterable[Row] = ()
    """Of the table `inference`."""


class WrittenFiles(Struct, frozen=True):
    """Local files of one day."""

    parquet_path: Path
    csv_path: Path
    inference_path: Path
    row_count: int
    inference_row_count: int


ExportWriter = Callable[[Iterable[HourRows], Path], WrittenFiles]
"""Writes a day's FOCUS rows as Parquet and CSV, and its costs by model as Parquet, into an empty folder.

It reads hour by hour, with one hour in memory at a time.

Raises `SourceError` if the files could not be written.
"""


class ExportBucket(Protocol):
    """Stores the files. `S3Bucket`, and `ExportFolder` of `gpucost serve`, implement it."""

    def etag(self, key: str) -> str | None:
        """Return what identifies a file's content; None if there is no file."""
        ...

    def put(self, key: str, path: Path, *, if_match: str | None) -> None:
        """Store a file if the stored one still has the ETag `if_match`; None means that there is none.

        Raises:
            ConflictError: the stored file was changed in the meantime.
            SourceError: it could not be stored.
        """
        ...

    def url(self, key: str, *, name: str, seconds: int) -> str:
        """Return an address from which the file can be read for some seconds."""
        ...
