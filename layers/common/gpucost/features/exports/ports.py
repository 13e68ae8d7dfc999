"""Protocols of the stores that exports need."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Protocol

from gpucost.core.ledger import HourSummary, Manifest
from gpucost.core.model import ClusterCharge, Line, NodeHour
from gpucost.features.exports.exported_days import ExportedDay
from gpucost.features.exports.focus import Row


class ExportedHours(Protocol):
    """Reads versions of hours. A version stays readable after a restatement. All reads are consistent."""

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """Return the current versions of the hours in `[start, end)`, oldest first."""
        ...

    def summaries_of(self, manifests: Sequence[Manifest]) -> list[HourSummary]:
        """Return the summaries of these versions."""
        ...

    def lines_of(self, manifest: Manifest) -> list[Line]:
        """Return the lines of this version."""
        ...

    def nodes_of(self, manifest: Manifest) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """Return the nodes of this version, and charges without a node."""
        ...


class ExportCatalogue(Protocol):
    """Records which days are exported."""

    def days(self, cluster: str, start: datetime, end: datetime) -> list[ExportedDay]:
        """Return the exported days of `[start, end)`, oldest first."""
        ...

    def put(self, exported: ExportedDay) -> None:
        """Record an exported day, unless an export of newer versions is recorded."""
        ...


class ExportBucket(Protocol):
    """Stores exported files."""

    def etag(self, key: str) -> str | None:
        """Return an object's ETag; None if there is no object."""
        ...

    def put(self, key: str, path: Path, *, if_match: str | None) -> None:
        """Upload a file atomically if the object still has the ETag `if_match`; None means that there is no object.

        Raises:
            ConflictError: the object was changed in the meantime. Nothing was written.
            SourceError: the bucket failed.
        """
        ...

    def url(self, key: str, *, name: str, seconds: int) -> str:
        """Return a URL that allows anyone to download an object for a short time."""
        ...


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Local files of one day."""

    parquet: Path
    csv: Path
    rows: int


class ExportWriter(Protocol):
    """Writes files."""

    def __call__(self, hours: Iterable[Iterable[Row]], folder: Path) -> WrittenFiles:
        """Write a day's rows as Parquet and CSV, hour by hour.

        Args:
            hours: the rows of each hour. One hour is held in memory at a time.
            folder: an empty folder for the files.

        Raises:
            SourceError: the files could not be written.
        """
        ...
