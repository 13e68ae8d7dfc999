"""Maps the errors of DynamoDB's client to the product's own."""

from collections.abc import Iterator
from contextlib import contextmanager

from gpucost.core.errors import ConflictError, SourceError


class TransactionConflictError(ConflictError):
    """Another transaction on one of the items is under way. The conditions may still hold."""


_CONFLICT_CODES = {"ConditionalCheckFailedException", "TransactionConflictException"}
_CONFLICT_REASONS = {"ConditionalCheckFailed", "TransactionConflict"}
"""Cancellation reasons that mean another writer; others mean throttling, or a transaction that is too large."""


@contextmanager
def map_aws_errors(action: str) -> Iterator[None]:
    """Turn botocore's errors into the product's own.

    Args:
        action: what was tried, for the error message, such as `read an item`.

    Raises:
        ConflictError: another writer wrote first.
        SourceError: any other failure.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        reasons = {str(reason.get("Code")) for reason in error.response.get("CancellationReasons", [])} - {"None"}
        if reasons == {"TransactionConflict"}:
            raise TransactionConflictError(f"another writer is writing: {action}") from error
        if code in _CONFLICT_CODES or reasons & _CONFLICT_REASONS:
            raise ConflictError(f"another writer wrote first: {action}") from error
        raise SourceError(f"the ledger's table failed: {action}: {', '.join([code, *sorted(reasons)])}") from error
    except BotoCoreError as error:
        raise SourceError(f"the ledger's table failed: {action}: {type(error).__name__}") from error
