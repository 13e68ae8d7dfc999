"""The ledger's table in DynamoDB: consistent reads, all pages, without expired items."""

import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gpucost.core.errors import ConflictError, SourceError
from gpucost.storage.table import (
    AllOf,
    Before,
    Between,
    Comparison,
    Condition,
    ConditionalDelete,
    ConditionalPut,
    Item,
    Missing,
    MissingOr,
    Present,
    SortKeys,
    StartsWith,
    has_not_expired,
    key,
    text,
)

MAX_BATCH_ITEMS = 25
"""Limit of BatchWriteItem."""
MAX_ATTEMPTS = 8
WRITER_ATTRIBUTE = "w"
"""The attribute that identifies the call that wrote an item."""


class DynamoDBTable:
    """One DynamoDB table with the keys `pk` and `sk`.

    Args:
        client: a client of DynamoDB.
        name: the table's name.
        sleep: waits between attempts.
    """

    def __init__(self, client: Any, name: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._name = name
        self._sleep = sleep

    def get(self, pk: str, sk: str) -> Item | None:
        """Return an item, or None if there is none or it has expired."""
        with map_aws_errors("read an item"):
            answer = self._client.get_item(TableName=self._name, Key=key(pk, sk), ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item if item and has_not_expired(item, time.time()) else None

    def query(
        self, pk: str, sort_keys: SortKeys | None = None, *, limit: int = 0, newest_first: bool = False
    ) -> Iterator[Item]:
        """Yield the items of a partition in order of `sk`, from all pages.

        Args:
            pk: the partition.
            sort_keys: which of its items; None for all.
            limit: how many items at most; 0 for all.
            newest_first: in descending order.
        """
        condition, values = _sort_key_expression(sort_keys)
        arguments: dict[str, Any] = {
            "TableName": self._name,
            "ConsistentRead": True,
            "ScanIndexForward": not newest_first,
            "KeyConditionExpression": "pk = :pk" + (f" AND {condition}" if condition else ""),
            "ExpressionAttributeValues": {f":{name}": {"S": value} for name, value in {"pk": pk, **values}.items()},
        }
        if limit:
            arguments["Limit"] = limit
        while True:
            with map_aws_errors("query items"):
                answer = self._client.query(**arguments)
            now = time.time()
            yield from [item for item in answer["Items"] if has_not_expired(item, now)]
            if limit or "LastEvaluatedKey" not in answer:
                return
            arguments["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def put(self, item: Item, condition: Condition) -> None:
        """Write an item if a condition holds.

        botocore repeats a call whose answer was lost, and the repeated call finds what the first one wrote. So each
        item carries a random token by which a call recognizes its own item.

        Raises:
            ConflictError: the condition does not hold.
        """
        marked = {**item, WRITER_ATTRIBUTE: {"S": os.urandom(8).hex()}}
        try:
            with map_aws_errors("write an item"):
                self._client.put_item(TableName=self._name, Item=marked, **_conditional(condition))
        except ConflictError:
            stored = self.get(text(item, "pk"), text(item, "sk"))
            if stored is None or stored.get(WRITER_ATTRIBUTE) != marked[WRITER_ATTRIBUTE]:
                raise

    def transact(
        self,
        puts: Sequence[ConditionalPut],
        deletes: Sequence[ConditionalDelete] = (),
        checks: Sequence[ConditionalPut] = (),
    ) -> None:
        """Write and delete items in one transaction, at most 100 items and 4 MB.

        Args:
            puts: items to write.
            deletes: keys of items to delete.
            checks: keys of items that are not written, with the conditions that must hold for them.

        Raises:
            ConflictError: a condition does not hold, or other writers keep writing one of the items.
        """
        steps: list[dict[str, Any]] = [
            {"Put": {"TableName": self._name, "Item": item, **_conditional(condition)}} for item, condition in puts
        ]
        steps += [
            {"Delete": {"TableName": self._name, "Key": item_key, **_conditional(condition)}}
            for item_key, condition in deletes
        ]
        steps += [
            {"ConditionCheck": {"TableName": self._name, "Key": item_key, **_conditional(condition)}}
            for item_key, condition in checks
        ]
        for attempt in range(MAX_ATTEMPTS):
            try:
                with map_aws_errors("write items together"):
                    self._client.transact_write_items(TransactItems=steps)
            except (
                TransactionConflictError
            ):  # another transaction holds one of the items; the conditions may still hold
                if attempt == MAX_ATTEMPTS - 1:
                    raise
                self._sleep(random.uniform(0.5, 1.0) * 0.02 * 2.0**attempt)  # noqa: S311 - not for secrets
            else:
                return

    def put_all(self, items: Sequence[Item]) -> None:
        """Write items without conditions, in any order."""
        self._write([{"PutRequest": {"Item": item}} for item in items])

    def delete_all(self, keys: Iterable[Item]) -> None:
        """Delete items by their keys."""
        self._write([{"DeleteRequest": {"Key": item_key}} for item_key in keys])

    def expire(self, items: Iterable[Item], at: int) -> None:
        """Let items expire at a time (seconds since the epoch).

        The items, as they were read, are written again, 25 per call: this costs the same write units as updates, with
        fewer calls. An item that expired since it was read comes back until then, which is harmless, because no reader
        follows a manifest to it any more.
        """
        self.put_all([{**item, "expires_at": {"N": str(at)}} for item in items])

    def _write(self, requests: Sequence[Mapping[str, Any]]) -> None:
        for start in range(0, len(requests), MAX_BATCH_ITEMS):
            unprocessed = list(requests[start : start + MAX_BATCH_ITEMS])
            for attempt in range(MAX_ATTEMPTS):
                if attempt:
                    self._sleep(0.05 * 2.0**attempt)
                with map_aws_errors("write items"):
                    answer = self._client.batch_write_item(RequestItems={self._name: unprocessed})
                unprocessed = answer.get("UnprocessedItems", {}).get(self._name, [])
                if not unprocessed:
                    break
            else:
                raise SourceError(f"the ledger's table is throttled: {len(unprocessed)} items were not written")


def _conditional(condition: Condition | None) -> dict[str, Any]:
    """Return the arguments of a write under a condition."""
    comparisons: tuple[Comparison, ...] = ()
    match condition:
        case None:
            return {}
        case Missing():
            expression = "attribute_not_exists(pk)"
        case Present():
            expression = "attribute_exists(pk)"
        case Comparison():
            comparisons = (condition,)
            expression = _comparison(condition)
        case AllOf():
            comparisons = condition.comparisons
            expression = " AND ".join(map(_comparison, comparisons))
        case MissingOr():
            comparisons = (condition.comparison,)
            expression = f"attribute_not_exists(pk) OR {_comparison(condition.comparison)}"
    values = {f":{comparison.attribute}": comparison.attribute_value for comparison in comparisons}
    return {"ConditionExpression": expression, **({"ExpressionAttributeValues": values} if values else {})}


def _comparison(comparison: Comparison) -> str:
    return f"{comparison.attribute} {comparison.operator} :{comparison.attribute}"


def _sort_key_expression(sort_keys: SortKeys | None) -> tuple[str, dict[str, str]]:
    match sort_keys:
        case None:
            return "", {}
        case Between():
            return "sk BETWEEN :first AND :last", {"first": sort_keys.first, "last": sort_keys.last}
        case StartsWith():
            return "begins_with(sk, :prefix)", {"prefix": sort_keys.prefix}
        case Before():
            return "sk < :before", {"before": sort_keys.sort_key}


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
