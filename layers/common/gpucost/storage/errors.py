"""DynamoDB's errors as the product's own, in one place."""

from collections.abc import Iterator
from contextlib import contextmanager

from gpucost.core.errors import ConflictError, SourceError


class BusyError(ConflictError):
    """Another transaction on one of the items is under way; the conditions may hold all the same."""


_LOST = {"ConditionalCheckFailedException", "TransactionConflictException"}
_LOST_WITHIN = {"ConditionalCheckFailed", "TransactionConflict"}
"""Why a transaction was cancelled, where another writer is why; else it was throttled or is too large."""


@contextmanager
def map_aws_errors(what: str) -> Iterator[None]:
    """Turn what botocore raises into `ConflictError` (somebody else wrote first) or `SourceError`."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        reasons = {str(one.get("Code")) for one in error.response.get("CancellationReasons", [])} - {"None"}
        if reasons == {"TransactionConflict"}:
            raise BusyError(f"somebody else is writing: {what}") from error
        if code in _LOST or reasons & _LOST_WITHIN:
            raise ConflictError(f"somebody else wrote first: {what}") from error
        raise SourceError(f"the ledger's table failed: {what}: {', '.join([code, *sorted(reasons)])}") from error
    except BotoCoreError as error:
        raise SourceError(f"the ledger's table failed: {what}: {type(error).__name__}") from error
