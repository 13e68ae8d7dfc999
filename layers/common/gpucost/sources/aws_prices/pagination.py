"""What goes wrong in asking AWS, as the product's own errors; and lists cut so that one request takes them."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from gpucost.core.errors import SourceError

MAX_FILTER_VALUES = 200
"""Of one filter of an EC2 request."""


@contextmanager
def map_aws_errors(what: str) -> Iterator[None]:
    """Turn what botocore raises, and an answer that is not in AWS's form, into `SourceError`."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        hint = f"; the role needs the permission for {what}" if code in _REFUSED else ""
        raise SourceError(f"{what} failed: {code}{hint}") from error
    except BotoCoreError as error:
        raise SourceError(f"{what} failed: {type(error).__name__}") from error
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise SourceError(f"{what} answered in an unknown form: {type(error).__name__} {error}") from error


def batches(values: Collection[str], most: int = MAX_FILTER_VALUES) -> Iterator[list[str]]:
    """Values in order, at most so many at a time."""
    ordered = sorted(values)
    for at in range(0, len(ordered), most):
        yield ordered[at : at + most]


_REFUSED = {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}
