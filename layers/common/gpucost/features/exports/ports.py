"""The files of an exported day, and what writes them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import Struct

from gpucost.features.exports.focus_columns import Row


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
