"""EC2's spot price history; fulfils `price_ports.SpotHistory`.

Zone names are mapped per account (`us-east-1a` is another zone in each), so prices are kept by zone id.
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
from gpucost.sources.aws_prices.pagination import batches, map_aws_errors
from gpucost.sources.aws_prices.partitions import currency_of

DESCRIPTIONS: dict[OperatingSystem, str] = {"linux": "Linux/UNIX", "windows": "Windows"}
IN_VPC = " (Amazon VPC)"
"""How accounts of EC2-Classic's time name what others name without it."""
_Point = tuple[datetime, Decimal]


class Ec2SpotHistory:
    """Fulfils `price_ports.SpotHistory`.

    Args:
        clients: a boto3 client of a service in a region.
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
        """All prices in force at some time since; AWS tells the one in force at `since` with its own beginning.

        Raises:
            SourceError: AWS did not answer, or refused.
        """
        pools: dict[tuple[str, str, str], dict[datetime, Decimal]] = {}
        unusable: set[tuple[str, str, str]] = set()
        named = [DESCRIPTIONS[one] for one in operating_systems]
        with map_aws_errors("ec2:DescribeSpotPriceHistory"):
            currency = currency_of(region)
            pages = self._clients("ec2", region).get_paginator("describe_spot_price_history")
            for types in batches(instance_types):
                filters = [
                    {"Name": "instance-type", "Values": types},
                    {"Name": "product-description", "Values": [*named, *(f"{name}{IN_VPC}" for name in named)]},
                ]
                for page in pages.paginate(Filters=filters, StartTime=since):
                    for point in page["SpotPriceHistory"]:
                        zone_id = point.get("AvailabilityZoneId") or self._zone_id(region, point["AvailabilityZone"])
                        pool = (point["InstanceType"], zone_id, point["ProductDescription"])
                        moment = point["Timestamp"].astimezone(UTC).replace(microsecond=0)
                        price = Decimal(point["SpotPrice"])
                        pools.setdefault(pool, {})[moment] = price
                        if not is_price(price):
                            unusable.add(pool)
        for pool in unusable:  # what it cost before and after is no better known; the next source is asked
            logger.warning("a price is beyond reason", pool=pool)
            del pools[pool]
        return [
            found
            for system in operating_systems
            for (instance_type, zone_id), points in _of(DESCRIPTIONS[system], pools).items()
            for found in _prices(
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
                answer = self._clients("ec2", region).describe_availability_zones(AllAvailabilityZones=True)
                self._zone_ids[region] = {one["ZoneName"]: one["ZoneId"] for one in answer["AvailabilityZones"]}
        return self._zone_ids[region][zone]


def _of(
    description: str, pools: dict[tuple[str, str, str], dict[datetime, Decimal]]
) -> dict[tuple[str, str], dict[datetime, Decimal]]:
    """The pools of one operating system; the plain name is preferred."""
    found = {}
    for suffix in (IN_VPC, ""):
        for (instance_type, zone_id, product), points in pools.items():
            if product == description + suffix:
                found[instance_type, zone_id] = points
    return found


def _prices(applies_to: dict[str, str], points: list[_Point], currency: str, now: datetime) -> list[Price]:
    """Each point valid until the next one."""
    ends = floor_day(now) + SPOT_VALID_FOR
    return [
        Price("spot", "node-hour", amount, applies_to, currency, start, end, now)
        for (start, amount), (end, _) in pairwise([*points, (ends, Decimal(0))])
    ]
