"""Differences between AWS partitions: the Price List's region and the currency of prices."""

from functools import cache
from typing import TYPE_CHECKING

from gpucost.core.errors import SourceError

if TYPE_CHECKING:
    from botocore.session import Session

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
