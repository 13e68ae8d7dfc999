"""The product's own table of AWS's on-demand list prices, for nodes without any other price."""

from functools import cache

from gpucost.core.decimals import parse_decimal
from gpucost.core.pricing.list_price_table import DAYS, HOURLY_PRICES
from gpucost.core.pricing.prices import Price


@cache
def list_prices() -> tuple[Price, ...]:
    """Return the table's prices of Linux nodes, without limits of validity: the table knows the prices of one day."""
    return tuple(
        Price(
            "list-price",
            "node-hour",
            parse_decimal(amount),
            {"instance_type": instance_type, "region": region, "operating_system": "linux"},
            "CNY" if region.startswith("cn-") else "USD",
        )
        for region, prices in HOURLY_PRICES.items()
        for instance_type, amount in prices.items()
    )


def list_price_label(region: str) -> str:
    """Return what a price of the table is, with its day and region."""
    return f"list price of {DAYS[region]}, {region}"
