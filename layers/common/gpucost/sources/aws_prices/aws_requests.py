"""Maps errors of AWS requests to `SourceError`, and divides lists into batches that fit into one request."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING

from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import SourceError

if TYPE_CHECKING:
    from botocore.session import Session

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
