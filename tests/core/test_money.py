"""Exact amounts: rounding, and splits that sum to the total."""

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.amounts import QUANTUM, ZERO, quantize, split

amounts = st.decimals(min_value=Decimal("-1e9"), max_value=Decimal("1e9"), places=12)
weights = st.lists(st.fractions(min_value=0, max_value=10**6), min_size=1, max_size=30).filter(any)


@given(amounts, weights)
def test_parts_of_split_sum_to_total(total: Decimal, parts: list[Fraction]) -> None:
    assert sum(split(total, parts), ZERO) == total


@given(amounts, weights)
def test_parts_are_exact_within_a_quantum(total: Decimal, parts: list[Fraction]) -> None:
    for amount, weight in zip(split(total, parts), parts, strict=True):
        assert abs(Fraction(amount) - Fraction(total) * weight / sum(parts)) < Fraction(QUANTUM)
        assert weight or not amount


def test_uneven_split_gives_rest_to_largest_remainders() -> None:
    assert split(Decimal(12), [Fraction(1, 7)] * 7).count(Decimal("1.714285714286")) == 5
    assert split(Decimal("0.000000000001"), [1, 2]) == [ZERO, QUANTUM]


def test_invalid_weights_are_rejected() -> None:
    with pytest.raises(ValueError, match="negative"):
        split(Decimal(1), [1, -1])
    with pytest.raises(ValueError, match="all zero"):
        split(Decimal(1), [0, 0])
    assert split(ZERO, [0, 0]) == [ZERO, ZERO]


@pytest.mark.parametrize(
    ("exact", "rounded"),
    [(Fraction(1, 3), "0.333333333333"), (Fraction(1, 7), "0.142857142857"), (Decimal("2.5e-12"), "2e-12")],
)
def test_rounding_to_twelve_digits_is_to_even(exact: Fraction | Decimal, rounded: str) -> None:
    assert quantize(exact) == Decimal(rounded)


def test_large_amounts_keep_every_digit() -> None:
    assert quantize(Decimal("123456789012345.123456789012")) == Decimal("123456789012345.123456789012")


def test_split_of_large_amount_keeps_every_digit() -> None:
    total = Decimal("123456789012345678901.123456789012")
    parts = split(total, [Fraction(1), Fraction(0), Fraction(2)])
    assert parts == [Decimal("41152263004115226300.374485596337"), ZERO, Decimal("82304526008230452600.748971192675")]
    assert str(sum(map(Fraction, parts), Fraction(0))) == str(Fraction(total))
