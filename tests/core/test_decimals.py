"""Text becomes a number within the bounds of a 64-bit float, however few characters it has."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.decimals import is_bounded, parse_decimal, parse_fraction


@given(st.floats())
def test_every_float_is_parsed_exactly(number: float) -> None:
    parsed = parse_decimal(repr(number))
    assert parsed.compare_total(Decimal(repr(number))) == 0


@pytest.mark.parametrize(
    "text",
    [
        "1e-999999999",
        "1E+999999999",
        "0e-999999999",
        "-1e400",
        "9" * 401,
        "0." + "0" * 400 + "1",
        "",
        "x",
        "sNaN",
        "0x1p3",
        "1,5",
    ],
)
def test_number_without_bounds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a number"):
        parse_decimal(text)


@given(st.fractions())
def test_every_fraction_is_parsed_exactly(fraction: Fraction) -> None:
    assert parse_fraction(str(fraction)) == fraction
    assert parse_fraction(fraction.numerator) == fraction.numerator


@pytest.mark.parametrize("text", ["1e999999999", "1e-999999999/3", "9" * 5000, "1/" + "9" * 5000, "", "1/x"])
def test_fraction_without_bounds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|Exceeds the limit"):
        parse_fraction(text)


@pytest.mark.parametrize("text", ["1E-999999999", "NaN", "Infinity", "1." + "0" * 400 + "1"])
def test_decimal_without_bounds_is_detected(text: str) -> None:
    assert not is_bounded(Decimal(text))
