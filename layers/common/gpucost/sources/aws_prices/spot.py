"""EC2's spot price history.

Zone names differ between accounts (`us-east-1a` can be another zone in each), so prices are stored by zone id.
"""

from collections.abc import Callable, Collection
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

from gpucost.core.hours import floor_day
from gpucost.core.metering.implausible_samples import is_price
from gpucost.core.pricing.prices import SPOT_VALID_FOR, OperatingSystem, Price
from gpucost.runtime.observability import logger
from gpucost.sources.aws_prices.aws_requests import batches, currency_of, map_aws_errors, parse_price

PRODUCT_DESCRIPTIONS: dict[OperatingSystem, str] = {"linux": "Linux/UNIX", "windows": "Windows"}
VPC_SUFFIX = " (Amazon VPC)"
"""Suffix of product descriptions in accounts from the time of EC2-Classic."""
_PricePoint = tuple[datetime, Decimal]


class Ec2SpotHistory:
    """Reads spot prices with EC2's DescribeSpotPriceHistory.

    Args:
        clients: returns a client of a service in a region.
    """

    def __init__(self, clients: Callable[[str, str], Any]) -> None:
        self._clients = clients
        self._zone_ids: dict[str, dict[str, str]] = {}

    def fetch(
        self,
        region: str,
        instance_types: Collection[str],
        operating_systems: Collection[OperatingSystem],
        *,
        since: datetime,
        now: datetime,
    ) -> list[Price]:
        """All prices that were valid at any time since `since`. The first price may have started earlier.

        Raises:
            SourceError: the request failed or was refused.
        """
        pools: dict[tuple[str, str, str], dict[datetime, Decimal]] = {}
        implausible: set[tuple[str, str, str]] = set()
        descriptions = [PRODUCT_DESCRIPTIONS[system] for system in operating_systems]
        with map_aws_errors("ec2:DescribeSpotPriceHistory"):
            currency = currency_of(region)
            pages = self._clients("ec2", region).get_paginator("describe_spot_price_history")
            for types in batches(instance_types):
                filters = [
                    {"Name": "instance-type", "Values": types},
                    {
                        "Name": "product-description",
                        "Values": [*descriptions, *(f"{description}{VPC_SUFFIX}" for description in descriptions)],
                    },
                ]
                for page in pages.paginate(Filters=filters, StartTime=since):
                    for point in page["SpotPriceHistory"]:
                        zone_id = point.get("AvailabilityZoneId") or self._zone_id(region, point["AvailabilityZone"])
                        pool = (point["InstanceType"], zone_id, point["ProductDescription"])
                        time = point["Timestamp"].astimezone(UTC).replace(microsecond=0)
                        price = parse_price(point["SpotPrice"])
                        pools.setdefault(pool, {})[time] = price
                        if not is_price(price):
                            implausible.add(pool)
        for pool in implausible:  # its other prices are not trusted either: the next price source is used
            logger.warning("implausible price", pool=pool)
            del pools[pool]
        return [
            price
            for system in operating_systems
            for (instance_type, zone_id), points in _points_by_pool(PRODUCT_DESCRIPTIONS[system], pools).items()
            for price in _prices(
                {
                    "instance_type": instance_type,
                    "zone_id": zone_id,
                    "capacity_type": "spot",
                    "operating_system": system,
                },
                sorted(points.items()),
                currency,
                now,
            )
        ]

    def _zone_id(self, region: str, zone: str) -> str:
        if zone not in self._zone_ids.get(region, {}):
            with map_aws_errors("ec2:DescribeAvailabilityZones"):
                response = self._clients("ec2", region).describe_availability_zones(AllAvailabilityZones=True)
                self._zone_ids[region] = {names["ZoneName"]: names["ZoneId"] for names in response["AvailabilityZones"]}
        return self._zone_ids[region][zone]


def _points_by_pool(
    description: str, pools: dict[tuple[str, str, str], dict[datetime, Decimal]]
) -> dict[tuple[str, str], dict[datetime, Decimal]]:
    """The pools of one operating system. Descriptions without the suffix take precedence."""
    selected = {}
    for suffix in (VPC_SUFFIX, ""):
        for (instance_type, zone_id, product), points in pools.items():
            if product == description + suffix:
                selected[instance_type, zone_id] = points
    return selected


def _prices(applies_to: dict[str, str], points: list[_PricePoint], currency: str, now: datetime) -> list[Price]:
    """Convert points to prices, each valid until the next one."""
    last_end = floor_day(now) + SPOT_VALID_FOR
    return [
        Price("spot", "node-hour", amount, applies_to, currency, start, end, now)
        for (start, amount), (end, _) in pairwise([*points, (last_end, Decimal(0))])
    ]
