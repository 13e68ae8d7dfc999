"""Amounts and durations as text, for rules and notifications, and the rounding of figures."""

from decimal import ROUND_HALF_EVEN, Context, Decimal

from gpucost.core.amounts import quantize

_DECIMAL_CONTEXT = Context(prec=60, rounding=ROUND_HALF_EVEN)


def format_money(amount: Decimal, currency: str, digits: int = 2) -> str:
    """Format a rounded amount: `$1,234.50`, or `1,234.50 EUR`."""
    text = f"{amount.quantize(Decimal(1).scaleb(-digits), context=_DECIMAL_CONTEXT):,}"
    return _with_dollar_sign(text) if currency == "USD" else f"{text} {currency}"


def format_threshold(amount: Decimal, currency: str) -> str:
    """Format an amount as the settings have it: `$10`, `0.5 EUR`."""
    return f"${amount:f}" if currency == "USD" else f"{amount:f} {currency}"


def rounded_percent(part: Decimal | int, whole: Decimal | int) -> Decimal | None:
    """Return a part of a whole in percent, rounded to a tenth; None if the whole is not positive."""
    return (
        _DECIMAL_CONTEXT.divide(part * 100, whole).quantize(Decimal("0.1"), context=_DECIMAL_CONTEXT)
        if whole > 0
        else None
    )


def quantized_ratio(part: Decimal, whole: Decimal) -> Decimal:
    """Divide at the ledger's resolution; `whole` must not be zero."""
    return quantize(_DECIMAL_CONTEXT.divide(part, whole))


def format_gpus(count: str) -> str:
    """Append the unit to a number of GPUs: `1 GPU`, `0.5 GPUs`."""
    return f"{count} GPU" if count in {"1", "1.0"} else f"{count} GPUs"


def format_for_hours(hours: int) -> str:
    """Format a rule's duration: `for 3 consecutive hours`."""
    return "for 1 hour" if hours == 1 else f"for {hours} consecutive hours"


def _with_dollar_sign(text: str) -> str:
    return f"-${text[1:]}" if text.startswith("-") else f"${text}"
