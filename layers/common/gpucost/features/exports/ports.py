"""What exporting needs from the outside, as Protocols."""

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
    """The ledger, version by version: an hour restated meanwhile is read as it was. Every read is consistent."""

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """The hours in force in `[start, end)`, oldest first."""
        ...

    def summaries_of(self, manifests: Sequence[Manifest]) -> list[HourSummary]:
        """The summaries of these very versions."""
        ...

    def lines_of(self, manifest: Manifest) -> list[Line]:
        """The lines of this very version."""
        ...

    def nodes_of(self, manifest: Manifest) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """The nodes of this very version, and what was paid for without one."""
        ...


class ExportCatalogue(Protocol):
    """Which days are exported."""

    def days(self, cluster: str, start: datetime, end: datetime) -> list[ExportedDay]:
        """Those of `[start, end)`, oldest first."""
        ...

    def put(self, exported: ExportedDay) -> None:
        """Write one, unless one of newer hours is there."""
        ...


class ExportBucket(Protocol):
    """Where exports lie."""

    def etag(self, key: str) -> str | None:
        """Names the content of an object; None where there is none."""
        ...

    def put(self, key: str, path: Path, *, if_match: str | None) -> None:
        """Write a file in place of the content named, at once and whole.

        Raises:
            ConflictError: somebody else wrote since; nothing was written.
            SourceError: the bucket failed.
        """
        ...

    def url(self, key: str, *, name: str, seconds: int) -> str:
        """An address at which anybody can download an object under a name, for a short time."""
        ...


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Files of one day on this machine's disk."""

    parquet: Path
    csv: Path
    rows: int


class ExportWriter(Protocol):
    """Writes files."""

    def __call__(self, hours: Iterable[Iterable[Row]], folder: Path) -> WrittenFiles:
        """Write the rows of a day, hour by hour, as Parquet and CSV.

        Args:
            hours: each hour's rows; one hour is held in memory at a time.
            folder: an empty one, for the files.

        Raises:
            SourceError: they could not be written.
        """
        ...
