"""Reads and writes items of the ledger's table: consistent reads, all pages, without expired items."""

import os
import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpucost.core.errors import ConflictError, IntegrityError, SourceError
from gpucost.storage.conditions import (
    AllOf,
    Before,
    Between,
    Comparison,
    Condition,
    Missing,
    MissingOr,
    Present,
    SortKeys,
    StartsWith,
)
from gpucost.storage.errors import TransactionConflictError, map_aws_errors

SCHEMA_VERSION = 1
"""Schema version of an item, in its attribute `v`. Kinds of items that have a newer one define it themselves."""
MAX_BATCH_ITEMS = 25
"""Limit of BatchWriteItem."""
MAX_ATTEMPTS = 8
WRITER_ATTRIBUTE = "w"
"""The attribute that identifies the call that wrote an item."""
_DECODING_ERRORS = (zlib.error, ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
"""What decoding raises if bytes or texts are not what was written."""
Item = Mapping[str, Mapping[str, Any]]
ConditionalPut = tuple[Item, Condition | None]
"""An item to write, and the condition on the stored one."""
ConditionalDelete = tuple[Item, Condition | None]
"""A key, and the condition on the stored item."""


class Table:
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
        return item if item and _has_not_expired(item, time.time()) else None

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
            yield from [item for item in answer["Items"] if _has_not_expired(item, now)]
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


def key(pk: str, sk: str) -> dict[str, dict[str, str]]:
    """Build a primary key."""
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def key_of(item: Item) -> Item:
    """Return an item's primary key."""
    return {"pk": item["pk"], "sk": item["sk"]}


def text(item: Item, name: str) -> str:
    """Return a string attribute, "" if it is missing."""
    return str(item[name].get("S", "")) if name in item else ""


def integer(item: Item, name: str) -> int:
    """Return an integer attribute, 0 if it is missing."""
    return int(item[name].get("N", 0)) if name in item else 0


def check_schema_version(item: Item, newest: int = SCHEMA_VERSION) -> None:
    """Refuse an item whose schema version is newer than this code.

    Args:
        item: the item as it was read.
        newest: the newest schema version of its kind; earlier ones can be read.

    Raises:
        SourceError: a newer version wrote it.
    """
    if not 1 <= integer(item, "v") <= newest:
        raise SourceError(
            f"item {text(item, 'pk')!r} of the ledger has schema version {integer(item, 'v')}; "
            f"this release reads up to {newest}. Deploy the release that wrote it, or a newer one"
        )


def verify_integrity(item: Item) -> "_IntegrityCheck":
    """Turn errors of decoding an item, in a `with` block, into an error that names the item.

    Args:
        item: the item as it was read; the first one of several chunks.

    Raises:
        IntegrityError: the item is damaged.
    """
    return _IntegrityCheck(item)


class _IntegrityCheck:
    """See `verify_integrity`. A context manager from a generator takes a fifth of the time of reading a manifest."""

    def __init__(self, stored: Item) -> None:
        self._stored = stored

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, _DECODING_ERRORS):
            where = f"{text(self._stored, 'pk')} {text(self._stored, 'sk')}"
            raise IntegrityError(f"the ledger's item {where} is damaged: {type(error).__name__}: {error}") from error


def _has_not_expired(item: Item, now: float) -> bool:
    """DynamoDB deletes expired items only within days, so they are skipped here."""
    return "expires_at" not in item or integer(item, "expires_at") > now
