"""Files that DuckDB writes: exact amounts, nulls, and CSV cells that cannot start a formula."""

import csv
import gzip
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow.parquet
import pytest

from gpucost.core.errors import SourceError
from gpucost.features.exports.exported_days import HourRows
from gpucost.features.exports.files import DuckDbFiles
from gpucost.features.exports.focus import Row
from gpucost.runtime.json_text import csv_cell

TEXTS = [
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\tx",
    "\rx",
    "\nx",
    "＝x",
    "＋x",
    "－x",
    "＠x",
    "a=1",
    "'=1",
    "a\nb",
    'x,"y"',
    "\\N",
    "NULL",
    "",
    " =1",
    "ä ×",
    "'; DROP TABLE rows; --",
    "%s ? $1",
]
AMOUNTS = ["99999999999999999999999999.999999999999", "-0.000000000001", "0.1", "12", "1E-12", "0.333333333333"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[dict[str, object]], list[dict[str, str]], int]:
    """The rows of the Parquet and the CSV file, and their number."""
    hours: list[list[Row]] = [
        [{"x_Pod": text, "x_Namespace": "one"} for text in TEXTS],
        [],
        [{"EffectiveCost": Decimal(amount), "x_Namespace": "two"} for amount in AMOUNTS],
        [{"ChargePeriodStart": datetime(2026, 11, 19, 10, tzinfo=UTC), "x_GpuUnits": 7, "x_Namespace": "three"}],
    ]
    files = DuckDbFiles()(map(HourRows, hours), tmp_path_factory.mktemp("files"))
    with duckdb.connect() as connection:
        cursor = connection.execute(f"SELECT * FROM read_parquet('{files.parquet_path}')")
        names = [column[0] for column in cursor.description]
        parquet = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    with gzip.open(files.csv_path, "rt", newline="") as file:
        return parquet, [*csv.DictReader(file)], files.row_count


Written = tuple[list[dict[str, object]], list[dict[str, str]], int]


def test_texts_are_unchanged_in_parquet_and_escaped_in_csv(written: Written) -> None:
    parquet, table, rows = written
    assert rows == len(parquet) == len(table) == len(TEXTS) + len(AMOUNTS) + 1
    assert [row["x_Pod"] for row in parquet[: len(TEXTS)]] == TEXTS
    assert [row["x_Pod"] for row in table[: len(TEXTS)]] == [csv_cell(text) for text in TEXTS]


def test_amounts_are_exact(written: Written) -> None:
    parquet, table, _ = written
    amounts = [row["EffectiveCost"] for row in parquet if row["x_Namespace"] == "two"]
    assert amounts == [Decimal(amount) for amount in AMOUNTS]
    assert [Decimal(row["EffectiveCost"]) for row in table if row["x_Namespace"] == "two"] == amounts


def test_too_large_amount_is_rejected_not_truncated(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="could not be written: ConversionException"):
        DuckDbFiles()([HourRows([{"EffectiveCost": Decimal(10) ** 26}, {"EffectiveCost": Decimal(1)}])], tmp_path)


def test_another_engine_reads_the_same_rows(tmp_path: Path) -> None:
    texts = TEXTS[: len(AMOUNTS)]
    rows: list[Row] = [
        {"EffectiveCost": Decimal(amount), "x_Pod": text} for amount, text in zip(AMOUNTS, texts, strict=True)
    ]
    files = DuckDbFiles()([HourRows(rows)], tmp_path)
    table = pyarrow.parquet.read_table(files.parquet_path)
    assert table.column("EffectiveCost").to_pylist() == [Decimal(amount) for amount in AMOUNTS]
    assert table.column("x_Pod").to_pylist() == texts
    assert str(table.schema.field("EffectiveCost").type) == "decimal128(38, 12)"
    assert str(table.schema.field("ChargePeriodStart").type) == "timestamp[us]"
    column = pyarrow.parquet.ParquetFile(files.parquet_path).metadata.row_group(0).column(0)
    assert set(column.encodings) <= {"PLAIN", "RLE", "RLE_DICTIONARY", "PLAIN_DICTIONARY", "BIT_PACKED"}


def test_unknown_values_are_null(written: Written) -> None:
    parquet, table, _ = written
    assert {name for name, value in parquet[-1].items() if value is not None} == {
        "ChargePeriodStart",
        "x_GpuUnits",
        "x_Namespace",
    }
    assert {value for name, value in table[-1].items() if parquet[-1][name] is None} == {""}
    assert (table[-1]["ChargePeriodStart"], table[-1]["x_GpuUnits"]) == ("2026-11-19T10:00:00Z", "7")
    assert parquet[-1]["ChargePeriodStart"] == datetime(2026, 11, 19, 10)  # noqa: DTZ001 - Parquet's have no zone


def test_day_without_rows_has_all_columns(tmp_path: Path) -> None:
    files = DuckDbFiles()([], tmp_path)
    with duckdb.connect() as connection:
        assert connection.execute(f"SELECT count(*), sum(EffectiveCost) FROM '{files.parquet_path}'").fetchall() == [
            (0, None)
        ]
        assert connection.execute(f"SELECT count(*), sum(x_Requests) FROM '{files.inference_path}'").fetchall() == [
            (0, None)
        ]
    assert (files.row_count, files.inference_row_count) == (0, 0)
