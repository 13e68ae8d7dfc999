"""Simulated spot prices of the demo: one per day, instance type and zone. Their level changes every three weeks."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from gpucost_devstack.fleet.demo.clock import DAY, EPOCH, Period, draw
from gpucost_devstack.fleet.demo.pools import ZONE_IDS

PRICE_NOTE = "Prices: on-demand, AWS's list prices of 2026-07-20, us-east-1; spot, simulated."
"""Says to a user where the demo's prices come from."""
ON_DEMAND_USD: Mapping[str, Decimal] = {
    "g4dn.12xlarge": Decimal("3.912"),
    "g5.xlarge": Decimal("1.006"),
    "g5.12xlarge": Decimal("5.672"),
    "g6.12xlarge": Decimal("4.6016"),
}
"""On-demand prices in us-east-1, of which a spot price is a part. A test compares them with the built-in list."""


@dataclass(frozen=True)
class SpotPrice:
    """A simulated spot price of an instance type in a zone, from a time on."""

    instance_type: str
    zone_id: str
    since: datetime
    hourly_usd: Decimal


def spot_prices(start: datetime, end: datetime) -> list[SpotPrice]:
    """The spot prices in a range of full hours: one for each day, type and zone, from the day of its start on."""
    period = Period.between(start, end)
    return [
        SpotPrice(instance_type, zone_id, EPOCH + timedelta(minutes=day), _price(instance_type, zone_id, day, usd))
        for instance_type, usd in ON_DEMAND_USD.items()
        for zone_id in ZONE_IDS.values()
        for day in period.cycles(DAY)
    ]


def _price(instance_type: str, zone_id: str, day: int, on_demand: Decimal) -> Decimal:
    """A level that changes every three weeks, and a small daily change."""
    level = 0.35 + 0.2 * draw("spot level", instance_type, zone_id, day // DAY // 21)
    part = level + 0.06 * draw("spot day", instance_type, zone_id, day) - 0.03
    return (on_demand * Decimal(f"{part:.4f}")).quantize(Decimal("0.0001"))
