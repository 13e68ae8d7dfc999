"""The files of an exported day, and what writes them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gpucost.features.exports.focus_columns import Row


class HourRows(NamedTuple):
    """The rows of one hour."""

    costs: Iterable[Row]
    """FOCUS rows."""
    models: Iterable[Row] = ()
    """Of the table `inference`."""


@dataclass(frozen=True, slots=True)
class WrittenFiles:
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
