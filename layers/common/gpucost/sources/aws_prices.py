"""Prices and instance types from AWS's APIs."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import SourceError
from gpucost.core.hours import floor_day
from gpucost.core.metering.implausible_samples import is_price
from gpucost.core.metering.instance_types import SAGEMAKER_PREFIX
from gpucost.core.pricing.prices import SPOT_VALID_FOR, InstanceShape, OperatingSystem, Price
from gpucost.runtime.observability import logger

if TYPE_CHECKING:
    from botocore.session import Session

# Maps errors of AWS requests to `SourceError`, and divides lists into batches that fit into one request.

MAX_FILTER_VALUES = 200
"""Values in one filter of an EC2 request."""


@contextmanager
def map_aws_errors(action: str) -> Iterator[None]:
    """Raise `SourceError` for errors of botocore and for responses with an unexpected format."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        hint = f"; the role needs the permission for {action}" if code in _ACCESS_DENIED_CODES else ""
        raise SourceError(f"{action} failed: {code}{hint}") from error
    except BotoCoreError as error:
        raise SourceError(f"{action} failed: {type(error).__name__}") from error
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise SourceError(f"{action} returned an unexpected format: {type(error).__name__} {error}") from error


def parse_price(text: str) -> Decimal:
    """Parse a price; NaN, which is no plausible price, if the text is not a number."""
    try:
        return parse_decimal(text)
    except ValueError:
        return Decimal("NaN")


def batches(values: Collection[str], size: int = MAX_FILTER_VALUES) -> Iterator[list[str]]:
    """Divide sorted values into batches."""
    ordered = sorted(values)
    for first in range(0, len(ordered), size):
        yield ordered[first : first + size]


_ACCESS_DENIED_CODES = {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}


CURRENCIES_BY_PARTITION = {"aws-cn": "CNY", "aws-eusc": "EUR"}
"""Currencies of partitions whose prices are not in USD."""


def price_list_region(region: str) -> str:
    """The region of the Price List API that has a region's prices: the region itself, or another of its partition.

    Raises:
        SourceError: the partition has no Price List, such as AWS GovCloud (US).
        botocore.exceptions.UnknownRegionError: the region does not exist.
    """
    partition = partition_of(region)
    regions = sorted(_session().get_available_regions("pricing", partition_name=partition))
    if not regions:
        raise SourceError(
            f"AWS Price List has no endpoint in the partition {partition} of {region}; "
            "set prices there with pricing.rates or `gpucost prices set`"
        )
    return region if region in regions else regions[-1]


def currency_of(region: str) -> str:
    """The currency in which AWS charges for a region.

    Raises:
        botocore.exceptions.UnknownRegionError: the region does not exist.
    """
    return CURRENCIES_BY_PARTITION.get(partition_of(region), "USD")


def partition_of(region: str) -> str:
    """The partition of a region, such as `aws-us-gov`.

    Raises:
        botocore.exceptions.UnknownRegionError: the region does not exist.
    """
    partition: str = _session().get_partition_for_region(region)
    return partition


@cache
def _session() -> "Session":
    """Each session reads the file of all endpoints again."""
    import botocore.session

    return botocore.session.get_session()


# GPUs, vCPUs and memory of EC2 instance types.


class Ec2InstanceTypes:
    """Reads instance types with EC2's DescribeInstanceTypes.

    Args:
        clients: returns a client of a service in a region.
    """

    def __init__(self, clients: Callable[[str, str], Any]) -> None:
        self._clients = clients

    def fetch(self, region: str, instance_types: Collection[str]) -> list[InstanceShape]:
        """The shapes of instance types, as far as the region has them.

        Raises:
            SourceError: the request failed or was refused.
        """
        shapes = []
        with map_aws_errors("ec2:DescribeInstanceTypes"):
            pages = self._clients("ec2", region).get_paginator("describe_instance_types")
            for types in batches(instance_types):
                # A filter ignores types that the region does not have. As a parameter, they would fail the request.
                for page in pages.paginate(Filters=[{"Name": "instance-type", "Values": types}]):
                    shapes += [_shape(instance_type) for instance_type in page["InstanceTypes"]]
        return sorted(shapes, key=lambda shape: shape.instance_type)


def _gpu_count(device: Mapping[str, Any]) -> Fraction:
    """The number of physical GPUs. For an instance with a fraction of a GPU, `Count` is 0."""
    if "LogicalGpuCount" in device:
        return int(device["LogicalGpuCount"]) * Fraction(parse_decimal(str(device.get("GpuPartitionSize", 1))))
    return Fraction(int(device["Count"]))


def _shape(instance_type: Mapping[str, Any]) -> InstanceShape:
    """Parse an instance type. Count Inferentia once: AWS lists it as an inference accelerator and a Neuron device."""
    lists = (
        instance_type.get("GpuInfo", {}).get("Gpus", ()),
        instance_type.get("NeuronInfo", {}).get("NeuronDevices", ()),
        instance_type.get("InferenceAcceleratorInfo", {}).get("Accelerators", ()),
    )
    counts = [sum((_gpu_count(device) for device in devices), Fraction(0)) for devices in lists]
    return InstanceShape(
        instance_type=instance_type["InstanceType"],
        gpus=next((int(count) if count.denominator == 1 else count for count in counts if count), 0),
        vcpus=int(instance_type["VCpuInfo"]["DefaultVCpus"]),
        memory_mib=int(instance_type["MemoryInfo"]["SizeInMiB"]),
    )


# On-demand prices by instance type, region and operating system.

OPERATING_SYSTEM_NAMES: dict[OperatingSystem, str] = {"linux": "Linux", "windows": "Windows"}
TYPES_PER_FILTER = 40
"""Instance types in one filter, whose value may have 1,024 characters."""


class AwsPriceList:
    """Reads prices from the AWS Price List.

    Args:
        clients: returns a client of a service in a region.
    """

    def __init__(self, clients: Callable[[str, str], Any]) -> None:
        self._clients = clients

    def fetch(
        self,
        region: str,
        instance_types: Collection[str],
        operating_systems: Collection[OperatingSystem],
        *,
        tenancy: str,
        now: datetime,
    ) -> list[Price]:
        """The prices that are valid now, usually with one request per operating system and 40 types.

        Raises:
            SourceError: the request failed, was refused, or returned two prices of one instance type.
        """
        prices: dict[tuple[str, OperatingSystem], Price] = {}
        of_sagemaker = {name for name in instance_types if name.startswith(SAGEMAKER_PREFIX)}
        queries: list[tuple[Collection[str], OperatingSystem, _Offers]] = [
            ({*instance_types} - of_sagemaker, system, _ec2_offers(system, tenancy)) for system in operating_systems
        ]
        queries.append((of_sagemaker, "linux", _SAGEMAKER_OFFERS))
        for names, system, offers in queries:
            for types in batches(names, TYPES_PER_FILTER):
                for price in self._prices(region, types, system, offers, now):
                    key = (price.applies_to["instance_type"], system)
                    if key in prices and (prices[key].amount, prices[key].currency) != (price.amount, price.currency):
                        raise SourceError(
                            f"pricing:GetProducts has two prices of {key[0]} ({system}, {region}): "
                            f"{prices[key].amount} and {price.amount} {price.currency}"
                        )
                    prices[key] = price
        return list(prices.values())

    def _prices(
        self, region: str, types: list[str], system: OperatingSystem, offers: "_Offers", now: datetime
    ) -> list[Price]:
        prices = list(self._query(region, types, system, offers, now))
        if not prices and len(types) > 1:  # some endpoints do not support several types in one filter
            prices = [price for name in types for price in self._query(region, [name], system, offers, now)]
        return prices

    def _query(
        self, region: str, types: list[str], system: OperatingSystem, offers: "_Offers", now: datetime
    ) -> Iterator[Price]:
        exact_matches = {"regionCode": region, **offers.attributes}
        filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in exact_matches.items()]
        kind = "ANY_OF" if len(types) > 1 else "TERM_MATCH"
        names = {f"{name}{offers.type_suffix}": name for name in types}
        filters.append({"Type": kind, "Field": "instanceType", "Value": ",".join(names)})
        with map_aws_errors("pricing:GetProducts"):
            client, currency = self._clients("pricing", price_list_region(region)), currency_of(region)
            for page in client.get_paginator("get_products").paginate(
                ServiceCode=offers.service, FormatVersion="aws_v1", Filters=filters
            ):
                for text in page["PriceList"]:
                    product = json.loads(text)
                    instance_type = names.get(product["product"]["attributes"]["instanceType"])
                    if instance_type is not None:
                        applies_to = {"instance_type": instance_type, "region": region, "operating_system": system}
                        yield from _prices_in_effect(product, applies_to, currency, now)


class _Offers(NamedTuple):
    """The products of the Price List that have the prices of some instance types."""

    service: str
    attributes: Mapping[str, str]
    """Attributes of these products, apart from region and type."""
    type_suffix: str = ""
    """What follows the type in the attribute `instanceType`."""


def _ec2_offers(system: OperatingSystem, tenancy: str) -> _Offers:
    return _Offers(
        "AmazonEC2",
        {
            "operatingSystem": OPERATING_SYSTEM_NAMES[system],
            "tenancy": tenancy,
            "capacitystatus": "Used",
            "preInstalledSw": "NA",
            "licenseModel": "No License required",
            # Capacity Blocks of the same type are listed as well, with a price of 0.
            "marketoption": "OnDemand",
        },
    )


_SAGEMAKER_OFFERS = _Offers("AmazonSageMaker", {"component": "Cluster"}, "-Cluster")
"""SageMaker HyperPod: usage type `USE1-Cluster:ml.p5.48xlarge`. Training plans (`ReservedCluster`) are prepaid."""


def _prices_in_effect(
    product: Mapping[str, Any], applies_to: dict[str, str], currency: str, now: datetime
) -> Iterator[Price]:
    """The hourly prices of a product's on-demand terms that are in effect."""
    for term in product["terms"].get("OnDemand", {}).values():
        since = datetime.fromisoformat(term["effectiveDate"]).astimezone(UTC)
        for dimension in term["priceDimensions"].values():
            amount = parse_price(dimension["pricePerUnit"].get(currency, "0"))
            if not is_price(amount):  # skip this price only: the next price source is used for the type
                logger.warning("implausible price", instance_type=applies_to["instance_type"], price=amount)
            elif dimension["unit"] == "Hrs" and amount > 0 and since <= now:
                yield Price("on-demand", "node-hour", amount, applies_to, currency, since, None, now)


# EC2's spot price history.
#
# Zone names differ between accounts (`us-east-1a` can be another zone in each), so prices are stored by zone id.

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
