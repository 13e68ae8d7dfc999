"""Runs the product's SQL on DuckDB over an export's Parquet files, with results in Athena's format."""

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import duckdb
import sqlglot

from gpucost.core.pricing.bill import BillExtract, BillLine
from gpucost.settings.pricing import CurSettings
from gpucost.sources.bill import COLUMNS, AthenaBill, parse_bill_line, sql_statement

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def cur_settings(**overrides: Any) -> CurSettings:
    """A section `pricing.cur`."""
    return CurSettings.model_validate({"database": "billing", "table": "bill", **overrides})


def run(sql: str, export: Path) -> list[tuple[str | None, ...]]:
    """A statement in Athena's dialect, and its rows as text.

    Raises:
        AssertionError: it is not one statement, or its columns are not what it promises.
    """
    with _database().cursor() as connection:
        connection.execute(
            f"CREATE TEMPORARY VIEW bill AS SELECT * FROM read_parquet('{export}/*/*.parquet', "
            "hive_partitioning = true, hive_types_autocast = false)"
        )
        answer = connection.execute(_translated(sql))
        assert tuple(column[0] for column in answer.description) == COLUMNS
        return [tuple(None if cell is None else str(cell) for cell in row) for row in answer.fetchall()]


@cache
def _database() -> duckdb.DuckDBPyConnection:
    """Shared by all statements: starting DuckDB takes longer than most of them. Each has its own temporary view."""
    return duckdb.connect(config={"threads": 1})


@lru_cache(maxsize=256)
def _translated(sql: str) -> str:
    (translated,) = sqlglot.transpile(sql, read="athena", write="duckdb")
    return str(translated)


class DuckDbBill(AthenaBill):
    """Reads an export on this machine."""

    def __init__(self, export: Path, cur: CurSettings, now: datetime = NOW) -> None:
        self.export = export
        self.now = now
        self.reads: list[datetime] = []
        self._cur = cur

    def lines(self, start: datetime, end: datetime) -> list[BillLine]:
        """All rows."""
        return [parse_bill_line(row) for row in run(sql_statement(self._cur, start, end, now=self.now), self.export)]

    def read(self, start: datetime, end: datetime) -> BillExtract:
        """As Athena would."""
        self.reads.append(start)
        return BillExtract(iter(self.lines(start, end)), 1_000)


def athena_rows(rows: Sequence[Sequence[str | None]]) -> list[dict[str, Any]]:
    """Rows as `GetQueryResults` writes them, header first; nothing for NULL."""
    return [{"Data": [{} if cell is None else {"VarCharValue": cell} for cell in row]} for row in [COLUMNS, *rows]]
