"""The files of an exported day, and what writes them."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

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
