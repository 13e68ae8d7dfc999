"""The files of an exported day, and what writes them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from gpucost.features.exports.focus import Row


@dataclass(frozen=True, slots=True)
class WrittenFiles:
    """Local files of one day."""

    parquet_path: Path
    csv_path: Path
    row_count: int


ExportWriter = Callable[[Iterable[Iterable[Row]], Path], WrittenFiles]
"""Writes a day's rows as Parquet and CSV into an empty folder, hour by hour, with one hour in memory at a time.

Raises `SourceError` if the files could not be written.
"""
