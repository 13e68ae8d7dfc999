"""FOCUS rows as Parquet and CSV, written by DuckDB."""

from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from gpucost.core.errors import SourceError
from gpucost.features.exports.focus import Row, ColumnValue, column_values
from gpucost.features.exports.focus_columns import COLUMNS, ColumnType
from gpucost.features.exports.ports import WrittenFiles
from gpucost.runtime.json_text import FORMULA_STARTS

MEMORY_LIMIT = "1GB"
"""Of DuckDB, in a function of 2 GB; what is more goes to disk."""
PARQUET = "FORMAT parquet, PARQUET_VERSION v1, COMPRESSION zstd, ROW_GROUP_SIZE 100000"
"""Version 1 has the encodings that every engine reads."""
_TYPES: dict[ColumnType, str] = {
    "text": "VARCHAR",
    "amount": "DECIMAL(38,12)",
    "whole": "BIGINT",
    "time": "TIMESTAMP",
}
_FORMULA_PATTERN = "".join(rf"\x{{{ord(start):x}}}" for start in FORMULA_STARTS)
"""As a class of a regular expression: comparing with each start would take DuckDB a third of a second to plan."""


class DuckDbFiles:
    """Fulfils `export_ports.ExportWriter`."""

    def __call__(self, hours: Iterable[Iterable[Row]], folder: Path) -> WrittenFiles:
        """Write a day: columns in the order of `COLUMNS`, amounts exact, nulls as nulls.

        Raises:
            SourceError: DuckDB refuses: the disk is full, or an amount has more digits than fit.
        """
        import duckdb

        try:
            return self._write(hours, folder)
        except duckdb.Error as error:
            raise SourceError(f"the files could not be written: {type(error).__name__}: {error}") from error

    def _write(self, hours: Iterable[Iterable[Row]], folder: Path) -> WrittenFiles:
        import duckdb

        files = folder / "rows.parquet", folder / "rows.csv.gz"
        config: dict[str, Any] = {
            "memory_limit": MEMORY_LIMIT,
            "temp_directory": str(folder / "spill"),
            "home_directory": str(folder),
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
        }
        with duckdb.connect(config=config) as connection:
            column_definitions = ", ".join(f'"{name}" {_TYPES[kind]}' for name, kind in COLUMNS.items())
            connection.execute(f"CREATE TABLE rows ({column_definitions})")
            for rows in hours:
                _insert(connection, column_values(rows))
            connection.execute(f"COPY rows TO '{files[0]}' ({PARQUET})")
            csv_columns = ", ".join(f'{_csv_expression(name, kind)} AS "{name}"' for name, kind in COLUMNS.items())
            csv_query = f"SELECT {csv_columns} FROM rows"  # noqa: S608 - nothing in it is from outside
            connection.execute(f"COPY ({csv_query}) TO '{files[1]}' (FORMAT csv, HEADER, COMPRESSION gzip)")
            (count,) = connection.execute("SELECT count(*) FROM rows").fetchall()[0]
        return WrittenFiles(parquet=files[0], csv=files[1], rows=int(count))


def _insert(connection: Any, columns: list[list[ColumnValue]]) -> None:
    """Append rows, given as columns: as text, which is exact; one value where a column has but one."""
    if not columns[0]:
        return
    expressions, parameters = [], []
    for (name, kind), column in zip(COLUMNS.items(), columns, strict=True):
        texts = [_text(value) for value in column]
        if len(set(texts)) > 1:
            expressions.append(f'unnest(?::VARCHAR[])::{_TYPES[kind]} AS "{name}"')
            parameters.append(texts)
        else:
            expressions.append(f'?::VARCHAR::{_TYPES[kind]} AS "{name}"')
            parameters.append(texts[0])  # type: ignore[arg-type]
    # One column always is a list, so that there are as many rows as there are.
    expressions.append("unnest(range(?)) AS place")
    parameters.append(len(columns[0]))  # type: ignore[arg-type]
    rows = f"SELECT * EXCLUDE (place) FROM (SELECT {', '.join(expressions)})"  # noqa: S608 - the same
    connection.execute(f"INSERT INTO rows {rows}", parameters)


def _text(value: ColumnValue) -> str | None:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")
    return None if value is None else str(value)


def _csv_expression(name: str, kind: ColumnType) -> str:
    """A column as CSV has it: times with their zone, and no text that a spreadsheet would take for a formula."""
    if kind == "time":
        return f"strftime(\"{name}\", '%Y-%m-%dT%H:%M:%SZ')"
    if kind == "text":
        return rf"""regexp_replace("{name}", '^([{_FORMULA_PATTERN}])', '''\1')"""
    return f'"{name}"'
