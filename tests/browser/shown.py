"""Figures as the page writes them: browsers round halves away from zero, Python's format rounds them to even."""

from decimal import ROUND_HALF_UP, Decimal

AMOUNTS = {"effective_usd": "effective cost", "waste_usd": "waste", "unallocated_usd": "unallocated cost"}
"""The names of amounts in charts."""


def rounded(number: Decimal, digits: int) -> str:
    """For example "1,234.50"."""
    return f"{number.quantize(Decimal(1).scaleb(-digits), ROUND_HALF_UP):,}"


def usd(amount: Decimal) -> str:
    """An amount as tables show it; one that is less than half a cent is not zero."""
    if amount and abs(amount) < Decimal("0.005"):
        return "<$0.01" if amount > 0 else ">-$0.01"
    return f"{'-' if amount < 0 else ''}${rounded(abs(amount), 2)}"


def signed_usd(amount: Decimal) -> str:
    return f"{'+' if amount > 0 else ''}{usd(amount)}"


def exact_usd(amount: Decimal) -> str:
    """An amount as explanations show it: to a millionth, without trailing zeros."""
    cents, _, more = rounded(amount, 6).partition(".")
    return f"${cents}.{more.rstrip('0').ljust(2, '0')}"


def round_usd(amount: Decimal, *neighbors: Decimal) -> str:
    """An amount as headlines and estimates show it: without cents from 1,000 on, and next to such an amount."""
    if max(abs(entry) for entry in (amount, *neighbors)) < Decimal("999.995"):
        return usd(amount)
    if amount and abs(amount) < Decimal("0.5"):
        return "<$1" if amount > 0 else ">-$1"
    return f"{'-' if amount < 0 else ''}${rounded(abs(amount), 0)}"


def percent(part: Decimal, whole: Decimal = Decimal(1)) -> str:
    """A share: with one decimal below 10% and above 99%."""
    share = part / whole
    if 0 < share < Decimal("0.0005"):
        return "<0.1%"
    if Decimal("0.9995") < share < 1:
        return ">99.9%"
    has_decimal = share % 1 and (abs(share) < Decimal("0.0995") or Decimal("0.99") < abs(share) < 1)
    return f"{rounded(100 * share, 1 if has_decimal else 0)}%"


def change(relative: Decimal) -> str:
    """A relative change: with its sign, and with a decimal below 1%."""
    size = abs(relative)
    if 0 < size < Decimal("0.0005"):
        return f"{'-' if relative < 0 else '+'}<0.1%"
    text = rounded(100 * relative, 1 if size < Decimal("0.00995") else 0).removesuffix(".0")
    return f"{'+' if relative > 0 else ''}{text}%"
