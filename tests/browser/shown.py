"""Figures as the page writes them: browsers round halves away from zero, Python's format rounds them to even."""

from decimal import ROUND_HALF_UP, Decimal


def rounded(value: Decimal, digits: int) -> str:
    """For example "1,234.50"."""
    return f"{value.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):,}"


def usd(value: Decimal) -> str:
    """An amount as tables show it; one that is less than half a cent is not zero."""
    if value and abs(value) < Decimal("0.005"):
        return "<$0.01" if value > 0 else ">-$0.01"
    return f"{'-' if value < 0 else ''}${rounded(abs(value), 2)}"


def signed_usd(amount: Decimal) -> str:
    return f"{'+' if amount > 0 else ''}{usd(amount)}"


def exact_usd(value: Decimal) -> str:
    """An amount as explanations show it: to a millionth, without trailing zeros."""
    cents, _, more = rounded(value, 6).partition(".")
    return f"${cents}.{more.rstrip('0').ljust(2, '0')}"


def percent(part: Decimal, whole: Decimal = Decimal(1), digits: int = 1) -> str:
    return f"{rounded(100 * part / whole, digits)}%"
