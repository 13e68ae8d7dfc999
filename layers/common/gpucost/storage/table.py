"""Reading and writing items: always consistent, always whole, expired ones never seen."""

import os
import random
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gpucost.core.errors import ConflictError, IntegrityError, SourceError
from gpucost.storage.errors import BusyError, map_aws_errors

FORMAT = 1
"""Version of an item's form, in attribute `v` of each; kinds that have had another one say so themselves."""
BATCH = 25
"""BatchWriteItem's own limit."""
ROUNDS = 8
WRITER = "w"
"""The attribute that names the call by which an item was put."""
_DAMAGE = (zlib.error, ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, ValueError)
"""What is raised by reading bytes and texts that are not what was written."""
Item = Mapping[str, Mapping[str, Any]]
ConditionalPut = tuple[Item, str, Mapping[str, Mapping[str, Any]] | None]
"""An item, its condition ("" for none) and the condition's values."""
ConditionalDelete = tuple[Item, str]
"""A key and its condition."""


class Table:
    """One DynamoDB table with the keys `pk` and `sk`.

    Args:
        client: a boto3 DynamoDB client.
        name: the table's name.
        sleep: waits between rounds of unprocessed writes.
    """

    def __init__(self, client: Any, name: str, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._name = name
        self._sleep = sleep

    def get(self, pk: str, sk: str) -> Item | None:
        """One item."""
        with map_aws_errors("read an item"):
            answer = self._client.get_item(TableName=self._name, Key=key(pk, sk), ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item if item and _is_alive(item) else None

    def query(
        self, pk: str, condition: str = "", *, limit: int = 0, newest_first: bool = False, **values: str
    ) -> Iterator[Item]:
        """Items of one partition in order of `sk`, all pages of them.

        Args:
            pk: the partition.
            condition: on `sk`, with placeholders: `sk BETWEEN :first AND :last`.
            limit: at most so many; 0 for all.
            newest_first: in descending order.
            values: the placeholders' values.
        """
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
            yield from (item for item in answer["Items"] if _is_alive(item))
            if limit or "LastEvaluatedKey" not in answer:
                return
            arguments["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    def put(self, item: Item, condition: str, values: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        """Write an item on a condition.

        botocore sends a call again whose answer was lost, and the second one meets what the first one wrote: the item
        carries a token by which a call knows its own.

        Raises:
            ConflictError: the condition does not hold.
        """
        more = {"ExpressionAttributeValues": values} if values else {}
        own = {**item, WRITER: {"S": os.urandom(8).hex()}}
        try:
            with map_aws_errors("write an item"):
                self._client.put_item(TableName=self._name, Item=own, ConditionExpression=condition, **more)
        except ConflictError:
            there = self.get(text(item, "pk"), text(item, "sk"))
            if there is None or there.get(WRITER) != own[WRITER]:
                raise

    def transact(
        self,
        puts: Sequence[ConditionalPut],
        deletes: Sequence[ConditionalDelete] = (),
        checks: Sequence[ConditionalPut] = (),
    ) -> None:
        """Write and delete items together, all or none; at most 100 of them and 4 MB.

        Args:
            puts: to write.
            deletes: to delete.
            checks: keys that are not written, with what must hold of them.

        Raises:
            ConflictError: a condition does not hold, or others keep writing one of them.
        """
        steps: list[dict[str, Any]] = [
            {"Put": {"TableName": self._name, "Item": item, **_conditional(condition, values)}}
            for item, condition, values in puts
        ]
        steps += [
            {"Delete": {"TableName": self._name, "Key": one, **_conditional(condition, None)}}
            for one, condition in deletes
        ]
        steps += [
            {"ConditionCheck": {"TableName": self._name, "Key": one, **_conditional(condition, values)}}
            for one, condition, values in checks
        ]
        for round_ in range(ROUNDS):
            try:
                with map_aws_errors("write items together"):
                    self._client.transact_write_items(TransactItems=steps)
            except BusyError:  # another transaction holds one of them at this moment; conditions still decide
                if round_ == ROUNDS - 1:
                    raise
                self._sleep(random.uniform(0.5, 1.0) * 0.02 * 2.0**round_)  # noqa: S311 - not for secrets
            else:
                return

    def put_all(self, items: Sequence[Item]) -> None:
        """Write items, in no order and with no condition."""
        self._write([{"PutRequest": {"Item": item}} for item in items])

    def delete_all(self, keys: Iterable[Item]) -> None:
        """Delete items by their keys."""
        self._write([{"DeleteRequest": {"Key": one}} for one in keys])

    def expire(self, items: Iterable[Item], at: int) -> None:
        """Let items, as they were read, expire at a time (seconds since the epoch).

        They are written again, 25 a call: the units of an update, and not its call for each. One that expired since it
        was read comes back until then; nobody reads these items any more.
        """
        self.put_all([{**item, "expires_at": {"N": str(at)}} for item in items])

    def _write(self, requests: Sequence[Mapping[str, Any]]) -> None:
        for at in range(0, len(requests), BATCH):
            left = list(requests[at : at + BATCH])
            for round_ in range(ROUNDS):
                if round_:
                    self._sleep(0.05 * 2.0**round_)
                with map_aws_errors("write items"):
                    answer = self._client.batch_write_item(RequestItems={self._name: left})
                left = answer.get("UnprocessedItems", {}).get(self._name, [])
                if not left:
                    break
            else:
                raise SourceError(f"the ledger's table is throttled: {len(left)} items were not taken")


def _conditional(condition: str, values: Mapping[str, Mapping[str, Any]] | None) -> dict[str, Any]:
    more = {"ExpressionAttributeValues": values} if values else {}
    return {"ConditionExpression": condition, **more} if condition else {}


def key(pk: str, sk: str) -> dict[str, dict[str, str]]:
    """A primary key."""
    return {"pk": {"S": pk}, "sk": {"S": sk}}


def key_of(item: Item) -> Item:
    """An item's primary key."""
    return {"pk": item["pk"], "sk": item["sk"]}


def text(item: Item, name: str) -> str:
    """A string attribute, "" where it is missing."""
    return str(item.get(name, {}).get("S", ""))


def whole(item: Item, name: str) -> int:
    """A whole-number attribute, 0 where it is missing."""
    return int(item.get(name, {}).get("N", 0))


def check_format(item: Item, newest: int = FORMAT) -> None:
    """Refuse an item of a form that this code does not know.

    Args:
        item: as it was read.
        newest: its kind's newest form; the ones before are understood.

    Raises:
        SourceError: written by a newer version.
    """
    if not 1 <= whole(item, "v") <= newest:
        raise SourceError(
            f"item {text(item, 'pk')!r} of the ledger has format {whole(item, 'v')}; this version reads up to {newest}"
        )


@contextmanager
def verify_integrity(item: Item) -> Iterator[None]:
    """Turn whatever reading a damaged item raises into one sentence.

    Args:
        item: as it was read; the first one of several pieces.

    Raises:
        IntegrityError: names the item.
    """
    try:
        yield
    except _DAMAGE as error:
        where = f"{text(item, 'pk')} {text(item, 'sk')}"
        raise IntegrityError(f"the ledger's item {where} is damaged: {type(error).__name__}: {error}") from error


def _is_alive(item: Item) -> bool:
    """DynamoDB deletes expired items within days; until then they are left out here."""
    return "expires_at" not in item or whole(item, "expires_at") > time.time()
