"""Writes FOCUS rows as Parquet and CSV files and costs by model as Parquet files, with DuckDB."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpucost.core.errors import SourceError
from gpucost.features.exports.exported_days import HourRows, WrittenFiles
from gpucost.features.exports.focus import COLUMNS, INFERENCE_COLUMNS, ColumnType, ColumnTypes, ColumnValue, Row
from gpucost.runtime.json_text import CSV_FORMULA_STARTS

MEMORY_LIMIT = "1GB"
"""DuckDB's memory limit in a function with 2 GB. DuckDB spills to disk beyond it."""
PARQUET_OPTIONS = "FORMAT parquet, PARQUET_VERSION v1, COMPRESSION zstd, ROW_GROUP_SIZE 100000"
"""Version 1 uses encodings that all engines can read."""
_TYPES: dict[ColumnType, str] = {"text": "VARCHAR", "amount": "DECIMAL(38,12)", "whole": "BIGINT", "time": "TIMESTAMP"}
_TABLES: Mapping[str, ColumnTypes] = {"rows": COLUMNS, "models": INFERENCE_COLUMNS}
_FORMULA_PATTERN = "".join(rf"\x{{{ord(start):x}}}" for start in CSV_FORMULA_STARTS)
"""A regular expression's character class. Separate comparisons would take DuckDB a third of a second to plan."""


class DuckDbFiles:
    """Writes the files of a day. Implements `exported_days.ExportWriter`."""

    def __call__(self, hours: Iterable[HourRows], folder: Path) -> WrittenFiles:
        """Write a day's rows with the columns in the order of their types. Amounts are exact.

        Raises:
            SourceError: DuckDB failed, for example because the disk is full or an amount has too many digits.
        """
        import duckdb

        try:
            return self._write(hours, folder)
        except duckdb.Error as error:
            raise SourceError(f"the files could not be written: {type(error).__name__}: {error}") from error

    def _write(self, hours: Iterable[HourRows], folder: Path) -> WrittenFiles:
        import duckdb

        files = folder / "rows.parquet", folder / "rows.csv.gz", folder / "inference.parquet"
        config: dict[str, Any] = {
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": str(folder / "spill"),
            "home_directory": str(folder),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with duckdb.connect(config=config) as connection:
            for table, columns in _TABLES.items():
                definitions = ", ".join(f'"{name}" {_TYPES[kind]}' for name, kind in columns.items())
                connection.execute(f"CREATE TABLE {table} ({definitions})")
            for hour in hours:
                _insert_rows(connection, "rows", hour.costs)
                _insert_rows(connection, "models", hour.models)
            connection.execute(f"COPY rows TO '{files[0]}' ({PARQUET_OPTIONS})")
            connection.execute(f"COPY models TO '{files[2]}' ({PARQUET_OPTIONS})")
            csv_columns = ", ".join(f'{_csv_expression(name, kind)} AS "{name}"' for name, kind in COLUMNS.items())
            csv_query = f"SELECT {csv_columns} FROM rows"  # noqa: S608 - built from constants only
            connection.execute(f"COPY ({csv_query}) TO '{files[1]}' (FORMAT csv, HEADER, COMPRESSION gzip)")
            counts = [
                int(connection.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])  # noqa: S608 - a constant
                for table in _TABLES
            ]
        return WrittenFiles(*files, *counts)


def _insert_rows(connection: Any, table: str, rows: Iterable[Row]) -> None:
    """Append rows. Columns are passed as text, which is exact, and as a single value if all rows have the same."""
    all_rows, types = [*rows], _TABLES[table]
    if not all_rows:
        return
    expressions, parameters = [], []
    for name, kind in types.items():
        texts = [_sql_text(row.get(name)) for row in all_rows]
        if len(set(texts)) > 1:
            expressions.append(f'unnest(?::VARCHAR[])::{_TYPES[kind]} AS "{name}"')
            parameters.append(texts)
        else:
            expressions.append(f'?::VARCHAR::{_TYPES[kind]} AS "{name}"')
            parameters.append(texts[0])  # type: ignore[arg-type]
    # One column is always a list, so that the number of rows is right.
    expressions.append("unnest(range(?)) AS row_number")
    parameters.append(len(all_rows))  # type: ignore[arg-type]
    selected = f"SELECT * EXCLUDE (row_number) FROM (SELECT {', '.join(expressions)})"  # noqa: S608 - built from constants only
    connection.execute(f"INSERT INTO {table} {selected}", parameters)


def _sql_text(value: ColumnValue) -> str | None:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return None if value is None else str(value)


def _csv_expression(name: str, kind: ColumnType) -> str:
    """Return the SQL expression of a CSV column: times in UTC, and text that spreadsheets do not run as formulas."""
    if kind == "time":
        return f"strftime(\"{name}\", '%Y-%m-%dT%H:%M:%SZ')"
    if kind == "text":
        return rf"""regexp_replace("{name}", '^([{_FORMULA_PATTERN}])', '''\1')"""
    return f'"{name}"'
