"""Maps errors of AWS requests to `SourceError`, and divides lists into batches that fit into one request."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from decimal import Decimal

from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import SourceError

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
