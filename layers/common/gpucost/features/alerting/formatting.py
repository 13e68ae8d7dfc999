"""Money and hours in words, where rules say what they ask for; the only place where alerting rounds."""

from decimal import ROUND_HALF_EVEN, Context, Decimal

from gpucost.core.money import quantize

_WIDE = Context(prec=60, rounding=ROUND_HALF_EVEN)


def money(amount: Decimal, currency: str) -> str:
    """`$1,234.50`, or `1,234.50 EUR`."""
    text = f"{amount.quantize(Decimal('0.01'), context=_WIDE):,}"
    return _signed(text) if currency == "USD" else f"{text} {currency}"


def threshold_money(amount: Decimal, currency: str) -> str:
    """As the settings have it: `$10`, `0.5 EUR`."""
    return f"${amount:f}" if currency == "USD" else f"{amount:f} {currency}"


def percent_of(part: Decimal, whole: Decimal) -> Decimal | None:
    """A part of a whole, to a tenth of a percent; None of nothing."""
    return _WIDE.divide(part * 100, whole).quantize(Decimal("0.1"), context=_WIDE) if whole > 0 else None


def ratio(part: Decimal, whole: Decimal) -> Decimal:
    """Division, to the ledger's resolution; `whole` must not be zero."""
    return quantize(_WIDE.divide(part, whole))


def for_hours(hours: int) -> str:
    """`for 3 hours on end`."""
    return "for 1 hour" if hours == 1 else f"for {hours} hours on end"


def _signed(text: str) -> str:
    return f"-${text[1:]}" if text.startswith("-") else f"${text}"
