"""Budgets: what a business unit spent since the month began, and the run rate to the end of the month.

The amount spent is a lower bound, so that it reaches a threshold for certain even if hours are missing.
"""

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from gpucost.features.alerting.formatting import format_threshold, rounded_percent

BudgetBasis = Literal["spent", "projected"]


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


def notification_figures(spent: Decimal, projected: Decimal | None, budget: Budget) -> dict[str, Decimal | None]:
    """Return the figures of a notification."""
    return {
        "spent_usd": spent,
        "spent_percent": rounded_percent(spent, budget.monthly_usd),
        "projected_usd": projected,
        "projected_percent": None if projected is None else rounded_percent(projected, budget.monthly_usd),
        "budget_usd": budget.monthly_usd,
    }
