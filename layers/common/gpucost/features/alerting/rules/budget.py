"""Budgets: what a business unit spent since the month began, and where that leads by its end.

    projection = spent + spent ÷ hours known × hours of the month not known

Hours that nobody knows are taken to cost what the known ones did. Spent is a sum of known hours: it passes a threshold
for certain, however many hours are missing. The projection is unknown before a day is known, or where fewer than half
of the hours that passed are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple

from gpucost.core.hours import HOUR
from gpucost.features.alerting.formatting import percent_of, ratio, threshold_money

Basis = Literal["spent", "projected"]
MIN_HOURS = 24


class ClusterSpend(NamedTuple):
    """One cluster's part of a month: what a unit spent in the hours that are known."""

    spent: Decimal
    hours_with_data: int


@dataclass(frozen=True, slots=True)
class Budget:
    """A month's money, and the parts of it that are told."""

    monthly_usd: Decimal
    percents: tuple[Decimal, ...]

    def describe(self, percent: Decimal, basis: Basis, currency: str) -> str:
        """The rule as people read it."""
        what = "spent" if basis == "spent" else "projected for the month"
        return f"{what} ≥ {percent:f}% of a monthly budget of {threshold_money(self.monthly_usd, currency)}"

    def is_reached(self, amount: Decimal, percent: Decimal) -> bool:
        """Whether an amount reaches a part of the budget."""
        return amount * 100 >= percent * self.monthly_usd

    def highest_reached(self, amount: Decimal) -> Decimal | None:
        """The highest part that an amount reaches."""
        return max((one for one in self.percents if self.is_reached(amount, one)), default=None)


def project(parts: Sequence[ClusterSpend], start: datetime, now: datetime, end: datetime) -> Decimal | None:
    """What a month comes to, over all clusters; None where too little is known.

    Args:
        parts: one of each cluster.
        start: the month's first moment.
        now: the end of the newest hour that should be known.
        end: the month's end.
    """
    whole, passed = (end - start) // HOUR, (now - start) // HOUR
    total = Decimal(0)
    for part in parts:
        if part.hours_with_data < MIN_HOURS or 2 * part.hours_with_data < passed:
            return None
        total += ratio(part.spent * whole, Decimal(part.hours_with_data))
    return total if parts else None


def figures(spent: Decimal, projected: Decimal | None, budget: Budget) -> dict[str, Decimal | None]:
    """What a notification says of a month."""
    return {
        "spent_usd": spent,
        "spent_percent": percent_of(spent, budget.monthly_usd),
        "projected_usd": projected,
        "projected_percent": None if projected is None else percent_of(projected, budget.monthly_usd),
        "budget_usd": budget.monthly_usd,
    }
