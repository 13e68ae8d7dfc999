"""Moving a table on to the newest forms of its items, while functions read it and write to it.

Items of an older form are read as they are; a migration only makes that unnecessary, so that a later version may
forget the older form. It goes through the table once, remembers in it how far it got, and moves what belongs together
in one transaction, on the condition that nobody changed it meanwhile. What is published at the same time has the
newest form anyway.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gpucost.core.errors import ConflictError
from gpucost.storage.errors import translated
from gpucost.storage.line_items import LINES_FORMAT, group_of, line_items, read_line_items
from gpucost.storage.table import (
    FORMAT,
    ConditionalDelete,
    ConditionalPut,
    Item,
    Table,
    check_format,
    key,
    key_of,
    text,
    whole,
)

PARTITION = "MIGRATION"
NAME = f"lines-{LINES_FORMAT}"
"""What this version's migration does; another one's has another memory of how far it got."""
TRIES = 5
"""Of a group that others change at the same time."""


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """How far it got."""

    seen: int
    """Items looked at, in this run and those before."""
    items: int
    """That the table has, as DynamoDB last counted them (every six hours)."""
    moved: int
    """Groups of items moved on, in this run and those before."""


class Migration:
    """Moves lines of form 1 on to form 2.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
        page: items looked at between two notes of how far it got; None for as many as DynamoDB answers.
    """

    def __init__(self, client: Any, table: str, page: int | None = None) -> None:
        self._client = client
        self._name = table
        self._table = Table(client, table)
        self._page = page

    def run(self, tell: Callable[[MigrationProgress], None] = lambda _: None) -> MigrationProgress:
        """Go on where the last run ended, to the end of the table.

        Raises:
            SourceError: the table failed; running it again goes on where it stood.
            ConflictError: others keep changing a group; as above.
        """
        start, seen, moved = self._remembered()
        with translated("describe the table"):
            items = self._client.describe_table(TableName=self._name)["Table"]["ItemCount"]
        for groups, looked_at, reached in self._pages(start):
            moved += sum(self._move(pk, group) for pk, group in groups)
            seen += looked_at
            self._remember(reached, seen, moved)
            tell(MigrationProgress(seen, max(items, seen), moved))
        self._table.delete_all([key(PARTITION, NAME)])
        return MigrationProgress(seen, seen, moved)

    def _pages(self, start: Item | None) -> Iterator[tuple[set[tuple[str, str]], int, Item | None]]:
        """Groups of an older form, page by page; with how many items a page has, and where the next begins."""
        arguments: dict[str, Any] = {
            "TableName": self._name,
            "ProjectionExpression": "pk, sk, v",
            # An item written before the scan reaches it is seen; one written after has the newest form.
            "ConsistentRead": True,
        }
        if self._page:
            arguments["Limit"] = self._page
        while True:
            if start is not None:
                arguments["ExclusiveStartKey"] = start
            with translated("look through the table"):
                answer = self._client.scan(**arguments)
            start = answer.get("LastEvaluatedKey")
            yield {(text(one, "pk"), group_of(one)) for one in answer["Items"] if _is_old(one)}, answer["Count"], start
            if start is None:
                return

    def _move(self, pk: str, group: str) -> bool:
        for tries_left in reversed(range(TRIES)):
            old = list(self._table.query(pk, "begins_with(sk, :group)", group=f"{group}#"))
            if not old or whole(old[0], "v") >= LINES_FORMAT:
                return False  # expired or removed, or somebody else was here
            new = line_items(pk, group, read_line_items(old), whole(old[0], "expires_at"))
            try:
                self._table.transact(*_replacing(old, new))
            except ConflictError:
                if not tries_left:
                    raise
            else:
                return True
        raise AssertionError("the last try returns or raises")

    def _remembered(self) -> tuple[Item | None, int, int]:
        item = self._table.get(PARTITION, NAME)
        if item is None:
            return None, 0, 0
        check_format(item)
        return key(text(item, "at"), text(item, "after")), whole(item, "n"), whole(item, "m")

    def _remember(self, reached: Item | None, seen: int, moved: int) -> None:
        if reached is None:
            return
        self._table.put_all(
            [
                {
                    **key(PARTITION, NAME),
                    "v": {"N": str(FORMAT)},
                    "at": reached["pk"],
                    "after": reached["sk"],
                    "n": {"N": str(seen)},
                    "m": {"N": str(moved)},
                }
            ]
        )


def _is_old(item: Item) -> bool:
    return "#lines#" in text(item, "pk") and whole(item, "v") < LINES_FORMAT


def _replacing(old: Sequence[Item], new: Sequence[Item]) -> tuple[list[ConditionalPut], list[ConditionalDelete]]:
    """New pieces in place of old ones, as long as these are what they were."""
    puts: list[ConditionalPut] = []
    for place, item in enumerate(new):
        if place < len(old):
            values = {":v": old[place]["v"], ":end": old[place]["expires_at"]}
            puts.append((item, "v = :v AND expires_at = :end", values))
        else:
            puts.append((item, "attribute_not_exists(pk)", None))
    return puts, [(key_of(item), "attribute_exists(pk)") for item in old[len(new) :]]
