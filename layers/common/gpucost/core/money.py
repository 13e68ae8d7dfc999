"""Exact amounts: Decimal, quantized once to 1e-12, and splits whose parts sum to the whole."""

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
"""Below it, a product has no more digits than decimals keep by default; a product takes a third of a shift's time."""
ZERO = Decimal(0).quantize(QUANTUM)
"""Nothing, at the ledger's resolution."""
MAX_AMOUNT = Decimal(10**12)
"""USD or GPU-hours of one cluster-hour; sums of ten thousand such hours still fit the default precision."""


def is_amount(value: Decimal, most: Decimal = MAX_AMOUNT) -> bool:
    """Whether a value is a number from `-most` to `most`."""
    return value.is_finite() and -most <= value <= most


def quantize(value: Fraction | Decimal | int) -> Decimal:
    """Round an exact amount (USD or GPU-hours) half-even to 1e-12, the ledger's resolution."""
    if isinstance(value, Decimal):
        return value.quantize(QUANTUM, context=_WIDE)
    whole, rest = divmod(value.numerator * _SCALE, value.denominator)
    twice = 2 * rest
    up = twice > value.denominator or (twice == value.denominator and whole % 2 == 1)
    return _from_fixed_point(whole + up)


def split(total: Decimal, weights: Sequence[Fraction | int]) -> list[Decimal]:
    """Split an amount by weights into parts of 1e-12 that sum to it exactly (largest remainder).

    Args:
        total: an amount already quantized to 1e-12; may be negative.
        weights: non-negative, at least one positive unless `total` is zero.

    Returns:
        One part per weight, in order; a zero weight gets zero. Ties go to the earlier part.

    Raises:
        ValueError: a negative weight, or a total to be split over weights that are all zero.
    """
    return split_each([total], weights)[0]


def split_each(totals: Sequence[Decimal], weights: Sequence[Fraction | int]) -> list[list[Decimal]]:
    """Split several amounts by the same weights, each as `split` does."""
    # Whole numbers from here on: the same proportions, and far faster than fractions on a fleet's many lines.
    ratios = [weight.as_integer_ratio() for weight in weights]
    common = lcm(*[denominator for _, denominator in ratios])
    shares = [numerator * (common // denominator) for numerator, denominator in ratios]
    if min(shares, default=0) < 0:
        raise ValueError("weights of a split must not be negative")
    return [_split(total, shares, sum(shares)) for total in totals]


def _split(total: Decimal, shares: Sequence[int], whole: int) -> list[Decimal]:
    quanta = int(total.scaleb(12, context=_WIDE))
    if whole == 0:
        if quanta:
            raise ValueError(f"cannot split {total} over weights that are all zero")
        return [ZERO for _ in shares]
    parts = [quanta * share // whole for share in shares]
    left = quanta - sum(parts)
    if left:
        rests = [quanta * share % whole for share in shares]
        for i in sorted(range(len(parts)), key=rests.__getitem__, reverse=True)[:left]:
            parts[i] += 1
    if abs(quanta) < _EXACT:  # and so is every part
        return [*map(mul, map(Decimal, parts), repeat(QUANTUM))]
    return [_from_fixed_point(part) for part in parts]


def _from_fixed_point(quanta: int) -> Decimal:
    if -_EXACT < quanta < _EXACT:
        return Decimal(quanta) * QUANTUM if quanta else ZERO
    return Decimal(quanta).scaleb(-12, context=_WIDE)


def to_fixed_point(amount: Decimal) -> int:
    """An amount as a whole number of 1e-12, exact.

    Raises:
        ValueError: it has more digits than the ledger keeps.
    """
    quanta = amount.scaleb(12, context=_WIDE)
    whole = int(quanta)
    if whole != quanta:
        raise ValueError(f"{amount} is not a whole number of {QUANTUM}")
    return whole


def from_fixed_point(quanta: int) -> Decimal:
    """Back from `to_fixed_point`."""
    return _from_fixed_point(quanta)
