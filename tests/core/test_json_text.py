"""JSON and CSV keep figures exact, and CSV cells never contain formulas."""

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.amounts import CapacityCosts, Costs, Idle, to_decimal
from gpucost.core.hour_record import ClusterCharge, Coverage
from gpucost.runtime.json_text import csv_cell, csv_text, decimal_text, dumps, dumps_row, fixed_point_text
from tests.records import line

AMOUNTS = st.decimals(allow_nan=False, allow_infinity=False, places=12, min_value=-(10**20), max_value=10**20)


class NamedPrice(NamedTuple):
    """A record that JSON shows as an object."""

    name: str
    usd: Decimal


@given(st.lists(AMOUNTS))
def test_numbers_keep_every_digit_and_have_no_exponent(amounts: list[Decimal]) -> None:
    text = dumps(amounts)

    assert json.loads(text, parse_float=Decimal, parse_int=Decimal) == amounts
    assert "e" not in text.lower()


@pytest.mark.parametrize(
    ("value", "text"),
    [("0E-12", "0"), ("-0.000", "0"), ("1E+3", "1000"), ("1.500000000000", "1.5"), ("1E-12", "0.000000000001")],
)
def test_equal_numbers_have_same_format(value: str, text: str) -> None:
    assert dumps(Decimal(value)) == csv_cell(Decimal(value)) == text


@given(st.integers(-(10**32), 10**32) | st.integers(-(10**13), 10**13) | st.integers(-99, 99).map((10**11).__mul__))
def test_fixed_point_amounts_are_written_like_decimals(units: int) -> None:
    text = fixed_point_text(units)

    assert Fraction(text) == Fraction(units, 10**12)
    assert text == decimal_text(to_decimal(units))


@pytest.mark.parametrize(
    ("units", "text"),
    [
        (None, "null"),
        (0, "0"),
        (1, "0.000000000001"),
        (-1, "-0.000000000001"),
        (10**11, "0.1"),
        (10**12, "1"),
        (-(10**12), "-1"),
        (999_999_999_999, "0.999999999999"),
        (15 * 10**14, "1500"),
        (1_500_000_000_001, "1.500000000001"),
    ],
)
def test_equal_fixed_point_amounts_have_same_format(units: int | None, text: str) -> None:
    assert fixed_point_text(units) == text


def test_floats_are_rejected_because_they_lost_digits() -> None:
    with pytest.raises(TypeError, match="float"):
        dumps({"usd": 0.1})


@pytest.mark.parametrize("value", ["NaN", "Infinity"])
def test_values_that_are_not_numbers_are_rejected(value: str) -> None:
    with pytest.raises(ValueError, match="not a number"):
        dumps(Decimal(value))


def test_records_and_timestamps() -> None:
    document = json.loads(
        dumps({"at": datetime(2026, 11, 19, 10, tzinfo=UTC), "costs": Costs().figures(), "none": None})
    )

    assert document["at"] == "2026-11-19T10:00:00Z"
    assert document["costs"] == {
        name: 0 if name.endswith(("_usd", "gpu_hours")) else None for name in Costs.names()
    } | {"energy_gpu_hours": None}, "without measured energy, it is unknown"
    assert document["none"] is None


@given(st.lists(st.lists(st.text(st.characters(codec="utf-8")), min_size=2, max_size=2)))
def test_text_cells_never_start_formula_and_keep_content(rows: list[list[str]]) -> None:
    read = list(csv.reader(io.StringIO(csv_text(["a", "b"], rows), newline="")))[1:]

    for row, cells in zip(rows, read, strict=True):
        for value, cell in zip(row, cells, strict=True):
            assert not cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))
            assert cell in {value, "'" + value}


def test_negative_number_is_not_escaped_but_equal_text_is() -> None:
    assert csv_cell(Decimal("-1.50")) == "-1.5"
    assert csv_cell("-1.50") == "'-1.50"
    assert csv_cell(None) == ""


VALUES = st.one_of(
    st.none(),
    st.text(),
    st.decimals(allow_nan=False, allow_infinity=False, places=12),
    st.decimals(allow_nan=False, allow_infinity=False),
    st.datetimes(timezones=st.just(UTC)),
    st.booleans(),
    st.integers(),
    st.lists(st.text()),
    st.dictionaries(st.text(), st.text()),
)


@given(st.dictionaries(st.text(), VALUES))
def test_rows_are_written_like_documents(row: dict[str, Any]) -> None:
    assert dumps_row(row) == dumps(row)


def test_dataclasses_and_named_tuples_are_written_as_objects() -> None:
    assert json.loads(dumps([NamedPrice("p5", Decimal("55.04"))]), parse_float=Decimal) == [
        {"name": "p5", "usd": Decimal("55.04")}
    ]
    assert json.loads(dumps(Coverage(Decimal(1), None))) == {"allocation": 1, "utilization": None}
    (published_line,) = json.loads(dumps([line(pod="p", usd="12.50").figures()]), parse_float=Decimal)
    assert (published_line["pod"], published_line["allocated_usd"]) == ("p", Decimal("12.5"))
    assert list(json.loads(dumps(Costs().figures()))) == list(Costs.names())


def test_fixed_point_records_are_rejected_because_only_figures_are_published() -> None:
    for amounts_record in (Costs(), CapacityCosts(), Idle(), line(), ClusterCharge("unused-savings-plan", "sp-1", 1)):
        with pytest.raises(TypeError, match=r"is published as its figures\(\)"):
            dumps({"costs": amounts_record})
