"""Exact amounts: Decimal, quantized once to 1e-12, and splits whose parts sum to the whole."""

from collections.abc import Sequence
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

QUANTUM = Decimal("1e-12")
_SCALE = 10**12
_WIDE = Context(prec=60, rounding=ROUND_HALF_EVEN)
ZERO = Decimal(0).quantize(QUANTUM)


def quantize(value: Fraction | Decimal | int) -> Decimal:
    """Round an exact amount (USD or GPU-hours) half-even to 1e-12, the ledger's resolution."""
    if isinstance(value, Decimal):
        return value.quantize(QUANTUM, context=_WIDE)
    return _from_quanta(round(Fraction(value) * _SCALE))


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
    if any(weight < 0 for weight in weights):
        raise ValueError("weights of a split must not be negative")
    whole = sum(weights, Fraction(0))
    quanta = int(total.scaleb(12, context=_WIDE))
    if whole == 0:
        if quanta:
            raise ValueError(f"cannot split {total} over weights that are all zero")
        return [ZERO for _ in weights]
    exact = [Fraction(quanta * weight) / whole for weight in weights]
    parts = [share.numerator // share.denominator for share in exact]
    left = quanta - sum(parts)
    order = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    for i in order[:left]:
        parts[i] += 1
    return [_from_quanta(part) for part in parts]


def _from_quanta(quanta: int) -> Decimal:
    return Decimal(quanta).scaleb(-12, context=_WIDE)
