"""Waste: a business unit wastes a minimum amount per hour and a minimum part of what it holds."""

from collections.abc import Callable
from decimal import Decimal

from msgspec import Struct

from gpucost.core.amounts import Costs, to_decimal
from gpucost.core.errors import GpuCostError
from gpucost.features.alerting.formatting import format_for_hours, format_threshold, rounded_percent
from gpucost.features.alerting.rule_kinds.idle_workload import MEASURED_UTILIZATION_SOURCES
from gpucost.features.alerting.settings import SettingsWithAlerts
from gpucost.storage.ports import SettingsStore


class WasteThresholds(Struct, frozen=True):
    """Both thresholds must be reached."""

    usd_per_hour: Decimal
    percent: Decimal

    def breached_by(self, costs: Costs) -> bool | None:
        """Whether an hour reaches both thresholds; None if a price is missing. Holding nothing is no waste."""
        if costs.unpriced_gpu_hours:
            return None
        return (
            costs.allocated_usd > 0
            and to_decimal(costs.waste_usd) >= self.usd_per_hour
            and costs.waste_usd * 100 >= self.percent * costs.allocated_usd
        )

    def describe(self, hours: int, currency: str) -> str:
        """Describe the condition in plain text."""
        min_waste = format_threshold(self.usd_per_hour, currency)
        return f"waste ≥ {min_waste} per hour and ≥ {self.percent:f}% of allocated, {format_for_hours(hours)}"


def notification_figures(costs: Costs) -> dict[str, Decimal | None]:
    """Return the figures of a notification."""
    return {
        "waste_usd_per_hour": to_decimal(costs.waste_usd),
        "allocated_usd_per_hour": to_decimal(costs.allocated_usd),
        "waste_percent": rounded_percent(costs.waste_usd, costs.allocated_usd) or Decimal("0.0"),
    }


def estimates_check(settings_store: SettingsStore[SettingsWithAlerts]) -> Callable[[int], bool]:
    """Return a check whether a version of the settings allows estimated utilization. An unreadable version may."""

    def allows_estimates(version: int) -> bool:
        try:
            sources = settings_store.version(version).settings.utilization.sources
        except GpuCostError:
            return True
        return not set(sources) <= MEASURED_UTILIZATION_SOURCES

    return allows_estimates
