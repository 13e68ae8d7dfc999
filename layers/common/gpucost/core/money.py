"""Exact amounts: decimals quantized once to 1e-12, and splits whose parts sum to the total."""

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from itertools import repeat
from math import lcm
from operator import mul

QUANTUM = Decimal("1e-12")
_SCALE = 10**12
_WIDE = Context(prec=60, rounding=ROUND_HALF_EVEN)
_EXACT = 10**28
"""Below this bound a product fits the default precision; multiplying takes a third of the time of `scaleb`."""
ZERO = Decimal(0).quantize(QUANTUM)
"""Zero, at the ledger's resolution."""
MAX_AMOUNT = Decimal(10**12)
"""The largest USD or GPU-hours of one cluster-hour; sums of ten thousand such hours fit the default precision."""


def is_amount(value: Decimal, limit: Decimal = MAX_AMOUNT) -> bool:
    """Whether a value is a number from `-limit` to `limit`."""
    return value.is_finite() and -limit <= value <= limit


def quantize(value: Fraction | Decimal | int) -> Decimal:
    """Round an exact amount (USD or GPU-hours) half-even to 1e-12, the ledger's resolution."""
    if isinstance(value, Decimal):
        return value.quantize(QUANTUM, context=_WIDE)
    units, remainder = divmod(value.numerator * _SCALE, value.denominator)
    twice = 2 * remainder
    is_rounded_up = twice > value.denominator or (twice == value.denominator and units % 2 == 1)
    return from_fixed_point(units + is_rounded_up)


def split(total: Decimal, weights: Sequence[Fraction | int]) -> list[Decimal]:
    """Split an amount by weights into parts of 1e-12 that sum to it exactly (largest remainder method).

    Args:
        total: an amount quantized to 1e-12; may be negative.
        weights: non-negative, at least one positive unless `total` is zero.

    Returns:
        One part per weight, in order; a zero weight gets zero. Ties go to the earlier part.

    Raises:
        ValueError: a negative weight, or weights that are all zero for a total that is not zero.
    """
    return split_each([total], weights)[0]


def split_each(totals: Sequence[Decimal], weights: Sequence[Fraction | int]) -> list[list[Decimal]]:
    """Split several amounts by the same weights, each as `split` does."""
    # Integers keep the proportions and are far faster than fractions for the many lines of a fleet.
    ratios = [weight.as_integer_ratio() for weight in weights]
    common_denominator = lcm(*[denominator for _, denominator in ratios])
    shares = [numerator * (common_denominator // denominator) for numerator, denominator in ratios]
    if min(shares, default=0) < 0:
        raise ValueError("weights of a split must not be negative")
    return [_split(total, shares, sum(shares)) for total in totals]


def _split(total: Decimal, shares: Sequence[int], total_shares: int) -> list[Decimal]:
    units = int(total.scaleb(12, context=_WIDE))
    if total_shares == 0:
        if units:
            raise ValueError(f"cannot split {total} over weights that are all zero")
        return [ZERO for _ in shares]
    parts = [units * share // total_shares for share in shares]
    remainder_units = units - sum(parts)
    if remainder_units:
        remainders = [units * share % total_shares for share in shares]
        for index in sorted(range(len(parts)), key=remainders.__getitem__, reverse=True)[:remainder_units]:
            parts[index] += 1
    if abs(units) < _EXACT:  # then so is every part
        return [*map(mul, map(Decimal, parts), repeat(QUANTUM))]
    return [from_fixed_point(part) for part in parts]


def from_fixed_point(units: int) -> Decimal:
    """Convert a fixed-point amount to a decimal; the inverse of `to_fixed_point`."""
    if -_EXACT < units < _EXACT:
        return Decimal(units) * QUANTUM if units else ZERO
    return Decimal(units).scaleb(-12, context=_WIDE)


def to_fixed_point(amount: Decimal) -> int:
    """Convert an amount to fixed point, the integer number of units of 1e-12, exactly.

    Raises:
        ValueError: the amount has more digits than the ledger keeps.
    """
    units = amount.scaleb(12, context=_WIDE)
    whole = int(units)
    if whole != units:
        raise ValueError(f"{amount} is not a whole number of {QUANTUM}")
    return whole
