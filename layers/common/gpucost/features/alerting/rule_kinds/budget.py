"""Budgets: what a business unit spent since the month began, and the projection to the end of the month.

    projection = spent + spent ÷ hours with data × hours of the month without data

Hours without data are assumed to cost as much as those with data. The amount spent is a lower bound, so that it reaches
a threshold for certain even if hours are missing. There is no projection before a day of hours has data, or if fewer
than half of the hours so far have data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal

from gpucost.core.hours import HOUR
from gpucost.features.alerting.formatting import format_threshold, quantized_ratio, rounded_percent

BudgetBasis = Literal["spent", "projected"]
MIN_PROJECTION_HOURS = 24


@dataclass(frozen=True, slots=True)
class Budget:
    """A monthly budget and its alert thresholds in percent."""

    monthly_usd: Decimal
    percents: tuple[Decimal, ...]

    def describe(self, percent: Decimal, basis: BudgetBasis, currency: str) -> str:
        """Describe the condition in plain text."""
        amount = "spent" if basis == "spent" else "projected for the month"
        return f"{amount} ≥ {percent:f}% of a monthly budget of {format_threshold(self.monthly_usd, currency)}"

    def is_reached(self, amount: Decimal, percent: Decimal) -> bool:
        """Whether an amount reaches a percentage of the budget."""
        return amount * 100 >= percent * self.monthly_usd

    def highest_reached(self, amount: Decimal) -> Decimal | None:
        """Return the highest threshold that an amount reaches; None if it reaches none."""
        return max((percent for percent in self.percents if self.is_reached(amount, percent)), default=None)


def project_month_spend(
    clusters: Sequence[tuple[Decimal, int]], start: datetime, now: datetime, end: datetime
) -> Decimal | None:
    """Project a month's spend over all clusters; None if too few hours have data.

    Args:
        clusters: the amount spent and the hours of the month with data, for each cluster.
        start: start of the month.
        now: end of the newest hour that should have data.
        end: end of the month.
    """
    hours_of_month, hours_so_far = (end - start) // HOUR, (now - start) // HOUR
    total = Decimal(0)
    for spent, hours_with_data in clusters:
        if hours_with_data < MIN_PROJECTION_HOURS or 2 * hours_with_data < hours_so_far:
            return None
        total += quantized_ratio(spent * hours_of_month, Decimal(hours_with_data))
    return total if clusters else None


def notification_figures(spent: Decimal, projected: Decimal | None, budget: Budget) -> dict[str, Decimal | None]:
    """Return the figures of a notification."""
    return {
        "spent_usd": spent,
        "spent_percent": rounded_percent(spent, budget.monthly_usd),
        "projected_usd": projected,
        "projected_percent": None if projected is None else rounded_percent(projected, budget.monthly_usd),
        "budget_usd": budget.monthly_usd,
    }
