"""On-demand prices by instance type, region and operating system."""

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gpucost.core.errors import SourceError
from gpucost.core.metering.implausible_samples import is_price
from gpucost.core.metering.instance_types import SAGEMAKER_PREFIX
from gpucost.core.pricing.prices import OperatingSystem, Price
from gpucost.runtime.observability import logger
from gpucost.sources.aws_prices.aws_requests import batches, currency_of, map_aws_errors, parse_price, price_list_region

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
