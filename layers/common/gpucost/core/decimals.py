"""Parses text as numbers within the bounds of a 64-bit float.

Text from outside has no bounds: `1e-999999999` is a Decimal of a few bytes, and a Fraction of a billion digits. The
type check refuses `Decimal(text)` and `Fraction(text)` in other modules (lint/decimals.py).
"""

from decimal import Decimal, InvalidOperation
from fractions import Fraction

MAX_LENGTH = 400
"""Characters of the longest 64-bit float without an exponent."""
MAX_EXPONENT = 330
"""The largest decimal exponent of a 64-bit float, including subnormal ones."""


def parse_decimal(text: str) -> Decimal:
    """Parse a number exactly. It may be NaN or infinite.

    Raises:
        ValueError: the text is not a number, or no 64-bit float is as long, as large or as close to 0.
    """
    try:
        number = Decimal(text) if len(text) <= MAX_LENGTH else None
    except InvalidOperation:
        number = None
    if number is None or number.is_snan() or (number.is_finite() and abs(number.adjusted()) > MAX_EXPONENT):
        raise ValueError(f"{text[:50]!r} is not a number")
    return number


def is_bounded(number: Decimal) -> bool:
    """Whether a number is finite, and has few enough digits to compute with."""
    return number.is_finite() and abs(number.adjusted()) <= MAX_EXPONENT and len(number.as_tuple().digits) <= MAX_LENGTH


def parse_fraction(text: str | int) -> Fraction:
    """Parse a whole number, or a fraction such as `1/3`.

    Raises:
        ValueError: the text is neither, or has thousands of digits.
    """
    if isinstance(text, int):
        return Fraction(text)
    numerator, _, denominator = text.partition("/")
    return Fraction(int(numerator), int(denominator or 1))
