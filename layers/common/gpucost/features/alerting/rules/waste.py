"""Waste: at least so much money an hour, and at least so much of what a business unit holds."""

from dataclasses import dataclass
from decimal import Decimal

from gpucost.core.model import Costs
from gpucost.features.alerting.formatting import for_hours, percent_of, threshold_money


@dataclass(frozen=True, slots=True)
class WasteThresholds:
    """Both must be reached."""

    usd_per_hour: Decimal
    percent: Decimal

    def breached_by(self, costs: Costs) -> bool | None:
        """Whether an hour reaches both; a unit that holds nothing wastes nothing; None where a price is missing."""
        if costs.unpriced_gpu_hours:
            return None
        return (
            costs.allocated_usd > 0
            and costs.waste_usd >= self.usd_per_hour
            and costs.waste_usd * 100 >= self.percent * costs.allocated_usd
        )

    def describe(self, hours: int, currency: str) -> str:
        """The rule as people read it."""
        least = threshold_money(self.usd_per_hour, currency)
        return f"waste ≥ {least} per hour and ≥ {self.percent:f}% of allocated, {for_hours(hours)}"


def figures(costs: Costs) -> dict[str, Decimal | None]:
    """What a notification says of an hour."""
    return {
        "waste_usd_per_hour": costs.waste_usd,
        "allocated_usd_per_hour": costs.allocated_usd,
        "waste_percent": percent_of(costs.waste_usd, costs.allocated_usd) or Decimal("0.0"),
    }
