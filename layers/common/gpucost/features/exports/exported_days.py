"""What is exported of a cluster's day, where it lies, and which days are due to be exported (again)."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from urllib.parse import quote

from gpucost.core.hours import floor_day, hours_between
from gpucost.core.ledger import Manifest
from gpucost.core.rollups import DAY
from gpucost.features.exports.focus import EXPORT_FORMAT

FileFormat = Literal["parquet", "csv"]
DayStatus = Literal["complete", "provisional", "incomplete"]
_FOLDERS: dict[FileFormat, tuple[str, str]] = {"parquet": ("focus", "rows.parquet"), "csv": ("csv", "rows.csv.gz")}


@dataclass(frozen=True, slots=True)
class ExportedDay:
    """One cluster's UTC day as it was exported last."""

    cluster: str
    day: datetime
    version: int
    """Counts the exports of this day, from 1."""
    status: DayStatus
    """Of the day's hours at that time: *incomplete* where one is missing, incomplete or still to come."""
    rows: int
    parquet_bytes: int
    csv_bytes: int
    currency: str
    exported_at: datetime
    fingerprint: str
    """Of the versions of the hours in it: it differs as soon as one of them is restated."""
    publications: int
    """Of these hours, in all: grows with every version of any of them."""


def object_key(cluster: str, day: datetime, file_format: FileFormat = "parquet") -> str:
    """Where a day's file lies: one object, at the same place whatever was exported before.

    A name of a cluster may hold anything and still is one part of the path.
    """
    folder, name = _FOLDERS[file_format]
    return f"{folder}/billing_period={day:%Y-%m}/cluster={quote(cluster, safe='')}/date={day:%Y-%m-%d}/{name}"


def fingerprint(manifests: Iterable[Manifest]) -> str:
    """Names what an export of these hours holds, and the form in which it is written."""
    content = [EXPORT_FORMAT, *((one.hour, one.run_id) for one in sorted(manifests, key=lambda one: one.hour))]
    return hashlib.sha256(repr(content).encode()).hexdigest()[:24]


def status_of(day: datetime, manifests: Iterable[Manifest]) -> DayStatus:
    """How much of a day is known."""
    statuses_by_hour = {manifest.hour: manifest.status for manifest in manifests}
    statuses = {statuses_by_hour.get(hour, "incomplete") for hour in hours_between(day, day + DAY)}
    if "incomplete" in statuses:
        return "incomplete"
    return "provisional" if "provisional" in statuses else "complete"


def by_day(manifests: Iterable[Manifest]) -> dict[datetime, list[Manifest]]:
    """Hours by their UTC day."""
    days: dict[datetime, list[Manifest]] = {}
    for manifest in manifests:
        days.setdefault(floor_day(manifest.hour), []).append(manifest)
    return days


def due_days(exported: Mapping[datetime, ExportedDay], manifests: Sequence[Manifest], now: datetime) -> list[datetime]:
    """Days that are over and whose export does not hold the versions in force, newest first.

    Args:
        exported: the exports there are, by day.
        manifests: the hours in force.
        now: the schedule's time.
    """
    days = by_day(manifests)
    return [
        day
        for day in sorted(days, reverse=True)
        if day < floor_day(now) and (day not in exported or exported[day].fingerprint != fingerprint(days[day]))
    ]
