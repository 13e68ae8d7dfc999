"""Copies the ledger of a folder into another table, such as that of a deployment.

The copy can be stopped at any time and run again: each item is written unchanged under its key, the settings last. A
deployment without settings attributes nothing, so nothing else writes to its table until the copy is complete.
"""

from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from gpucost.core.errors import InvalidInputError
from gpucost.storage import settings_store
from gpucost.storage.dynamodb_table import WRITER_ATTRIBUTE
from gpucost.storage.hour_versions import MONTHS
from gpucost.storage.ports import Table
from gpucost.storage.sqlite_table import SqliteTable
from gpucost.storage.table import Item, key_of, text

BATCH_ITEMS = 25
"""Items of one write. DynamoDB takes so many at once."""
_HOURS = "#hours"
_PUBLISHING = (_HOURS, "#adjustments")
"""Partitions of manifests. Readers find an hour by its manifest, so that it is written after the hour's other items."""
_EXPORTS = "#exports"
"""Records of exported days, whose files are not copied: the deployment exports these days again."""


class Change(Struct, frozen=True):
    """A key under which the folder and the other table differ."""

    new: Item | None
    """The folder's item; None if it has none."""
    stored: Item | None
    """The other table's item; None if it has none."""


class CopyResult(Struct, frozen=True):
    """What a copy did."""

    hours: int
    """Hours with a manifest in the folder."""
    clusters: tuple[str, ...]
    items: int
    written: int
    """Items of these that the other table did not have before."""
    deleted: int


def copy_ledger(
    source: SqliteTable, target: Table, *, replace: bool = False, progress: Callable[[int], None] = lambda _: None
) -> CopyResult:
    """Copy all items of a folder, without the records of exported days.

    Args:
        source: the folder's table.
        target: the other table.
        replace: make the folder's partitions the same in the target, whatever it has.
        progress: is called with the number of items so far.

    Raises:
        InvalidInputError: the folder is empty, or the target has other settings or, without `replace`, other items.
            Nothing was written.
    """
    partitions = sorted(
        (partition for partition in source.partitions() if not partition.endswith(_EXPORTS)), key=_write_order
    )
    if settings_store.PARTITION not in partitions:
        raise InvalidInputError("the folder's ledger is empty. Pass the folder of another gpucost serve")
    if any(change.stored for change in _changes(source, target, settings_store.PARTITION)):
        raise InvalidInputError(
            "the deployment has settings of its own, and the folder's figures follow the folder's settings. Copy into "
            "a deployment before its first gpucost settings push"
        )
    if not replace:
        _refuse_other_items(source, target, partitions)
    items = written = deleted = hours = 0
    for partition in partitions:
        changes: list[Change] = []
        for new, stored in _pairs(source, target, partition):
            items += new is not None
            hours += new is not None and partition.endswith(_HOURS)
            if new != stored:
                changes.append(Change(new, stored))
            if len(changes) == BATCH_ITEMS:
                written, deleted = written + _put(target, changes), deleted + _delete(target, changes, replace=replace)
                changes.clear()
            progress(items)
        written, deleted = written + _put(target, changes), deleted + _delete(target, changes, replace=replace)
    clusters = tuple(_cluster(partition) for partition in partitions if partition.endswith(_HOURS))
    return CopyResult(hours, clusters, items, written, deleted)


def _refuse_other_items(source: SqliteTable, target: Table, partitions: Sequence[str]) -> None:
    others, hours = 0, []
    for partition in partitions:
        for change in _changes(source, target, partition):
            if change.new and change.stored:
                others += 1
                if partition.endswith(_HOURS):
                    hours.append(f"{text(change.new, 'sk')}:00Z of {_cluster(partition)}")
    if others:
        figures = f"other figures for {len(hours)} hours, the first {min(hours)}" if hours else "other entries"
        raise InvalidInputError(
            f"the deployment has {figures}; {others} items differ from the folder's. Nothing was copied. "
            "--replace makes its ledger of these clusters that of the folder"
        )


def _changes(source: SqliteTable, target: Table, partition: str) -> Iterator[Change]:
    return (Change(new, stored) for new, stored in _pairs(source, target, partition) if new != stored)


def _pairs(source: SqliteTable, target: Table, partition: str) -> Iterator[tuple[Item | None, Item | None]]:
    """Yield the items of both tables by key, None where one has none. Both are in order of `sk`."""
    of_source, of_target = source.items(partition), map(_without_writer, target.query(partition))
    new, stored = next(of_source, None), next(of_target, None)
    while new is not None or stored is not None:
        if stored is None or (new is not None and text(new, "sk") < text(stored, "sk")):
            yield new, None
            new = next(of_source, None)
        elif new is None or text(stored, "sk") < text(new, "sk"):
            yield None, stored
            stored = next(of_target, None)
        else:
            yield new, stored
            new, stored = next(of_source, None), next(of_target, None)


def _put(target: Table, changes: Sequence[Change]) -> int:
    items = [change.new for change in changes if change.new is not None]
    if items:
        target.put_all(items)
    return len(items)


def _delete(target: Table, changes: Sequence[Change], *, replace: bool) -> int:
    surplus = [change.stored for change in changes if change.new is None and change.stored is not None]
    if not surplus or not replace:
        return 0
    target.delete_all([key_of(stored) for stored in surplus])
    return len(surplus)


def _write_order(partition: str) -> tuple[int, str]:
    if partition == settings_store.PARTITION:
        return 2, partition
    return int(partition == MONTHS or partition.endswith(_PUBLISHING)), partition


def _cluster(partition: str) -> str:
    return partition.removeprefix("C#").removesuffix(_HOURS)


def _without_writer(stored: Item) -> Item:
    return {name: attribute for name, attribute in stored.items() if name != WRITER_ATTRIBUTE}
