"""Amounts, figures and durations as text, for rules and notifications, and the rounding of figures."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

from gpucost.core.amounts import WIDE_CONTEXT, quantize

NOT_AVAILABLE = "not available"


def format_money(amount: Decimal, currency: str, digits: int = 2) -> str:
    """Format a rounded amount: `$1,234.50`, or `1,234.50 EUR`."""
    text = f"{amount.quantize(Decimal(1).scaleb(-digits), context=WIDE_CONTEXT):,}"
    return _with_dollar_sign(text) if currency == "USD" else f"{text} {currency}"


def format_threshold(amount: Decimal, currency: str) -> str:
    """Format an amount as the settings have it: `$10`, `0.5 EUR`."""
    return f"${amount:f}" if currency == "USD" else f"{amount:f} {currency}"


def rounded_percent(part: Decimal | int, whole: Decimal | int) -> Decimal | None:
    """Return a part of a whole in percent, rounded to a tenth; None if the whole is not positive."""
    return WIDE_CONTEXT.divide(part * 100, whole).quantize(Decimal("0.1"), context=WIDE_CONTEXT) if whole > 0 else None


def quantized_ratio(part: Decimal, whole: Decimal) -> Decimal:
    """Divide at the ledger's resolution; `whole` must not be zero."""
    return quantize(WIDE_CONTEXT.divide(part, whole))


def format_gpus(count: str) -> str:
    """Append the unit to a number of GPUs: `1 GPU`, `0.5 GPUs`."""
    return f"{count} GPU" if count in {"1", "1.0"} else f"{count} GPUs"


def format_for_hours(hours: int) -> str:
    """Format a rule's duration: `for 3 consecutive hours`."""
    return "for 1 hour" if hours == 1 else f"for {hours} consecutive hours"


def _with_dollar_sign(text: str) -> str:
    return f"-${text[1:]}" if text.startswith("-") else f"${text}"


def currency_amount_text(amount: Decimal | None, currency: str) -> str:
    """Format an amount in its currency."""
    return NOT_AVAILABLE if amount is None else format_money(amount, currency)


def matching_exactly(name: str) -> str:
    """Return a filter of the page that matches exactly this name, with special characters escaped."""
    return re.sub(r"([\\,!*])", r"\\\1", name)


class FigureFormatter:
    """Formats the figures of a notification.

    Args:
        figures: by name.
        currency: of the amounts.
    """

    def __init__(self, figures: Mapping[str, Decimal | None], currency: str) -> None:
        self._figures = figures
        self._currency = currency

    def amount(self, name: str) -> Decimal | None:
        """Return a figure as it is; None if it is not available."""
        return self._figures.get(name)

    def money(self, name: str) -> str:
        """Format an amount."""
        amount = self._figures.get(name)
        if amount is not None and "per_million" in name:  # may be less than a cent
            return format_money(amount, self._currency, digits=4)
        return currency_amount_text(amount, self._currency)

    def first_of(self, names: Iterable[str]) -> str:
        """Return the first of some names that the notification has."""
        return next(name for name in names if name in self._figures)

    def number(self, name: str, *, signed: bool = False) -> str:
        """Format a number, with a digit after the decimal point if it has any."""
        number = self._figures.get(name)
        if number is None:
            return NOT_AVAILABLE
        has_decimals = number % 1 or name.endswith("percent")
        rounded = number.quantize(Decimal("0.1")) if has_decimals else number.quantize(Decimal(1))
        return f"{rounded:+,f}" if signed else f"{rounded:,f}"

    def text(self, name: str, percent_name: str = "") -> str:
        """Format a figure by its name: a percentage, a number, or money with its percentage."""
        if name.endswith("percent"):
            is_available = self._figures.get(name) is not None
            return self.number(name, signed=name.startswith("change")) + ("%" if is_available else "")
        if "usd" not in name:
            return self.number(name)
        if self._figures.get(percent_name) is None:
            return self.money(name)
        return f"{self.money(name)} ({self.number(percent_name)}%)"
