"""The ledger's table in a folder of this machine: one SQLite database, one process that uses it at a time.

It holds the same items as DynamoDB, so that they carry over unchanged (`partitions`, `items`). Every write is one
transaction that is on the disk when its method returns.
"""

import fcntl
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Self

import msgspec

from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import ConflictError, InvalidInputError, SourceError
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
    integer,
    text,
)

FILE = "ledger.sqlite"
FORMAT_VERSION = 1
"""Version of the database's schema, in SQLite's `user_version`."""
APPLICATION_ID = 0x67707563
"""Marks the database as ours, in SQLite's `application_id`."""
MAX_TRANSACTION_ITEMS = 100
"""DynamoDB's limit, so that what is written here could be written there."""
_GREATEST_CHARACTER = "\U0010ffff"
_PAGE_ITEMS = 100


class SqliteTable(AbstractContextManager["SqliteTable"]):
    """The ledger's table in a folder. Threads of this process may share it.

    Args:
        folder: where the database is; it is created if it is missing.

    Raises:
        InvalidInputError: another process uses the folder, a newer version wrote it, or it is no ledger.
        SourceError: the database is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock = threading.RLock()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._claim = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InvalidInputError(f"the folder {folder} cannot be used for the ledger: {error.strerror}") from error
        try:
            _claim(self._claim, folder)
            self._connection = self._opened()
        except BaseException:
            os.close(self._claim)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, and let other processes use the folder."""
        self._connection.close()
        os.close(self._claim)

    def _opened(self) -> sqlite3.Connection:
        with self._map_errors("open"):
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            with self._map_errors("open"):
                self._check(connection)
                connection.executescript(
                    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; BEGIN IMMEDIATE;"
                    "CREATE TABLE IF NOT EXISTS items"
                    " (pk TEXT NOT NULL, sk TEXT NOT NULL, item BLOB NOT NULL, expires_at INTEGER,"
                    " PRIMARY KEY (pk, sk)) WITHOUT ROWID;"
                    f"PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {FORMAT_VERSION}; COMMIT;"
                )
        except BaseException:
            connection.close()
            raise
        return connection

    def _check(self, connection: sqlite3.Connection) -> None:
        (application_id,) = connection.execute("PRAGMA application_id").fetchone()
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables and application_id != APPLICATION_ID:
            raise InvalidInputError(f"{self._path} is not a ledger of gpucost. Choose another folder")
        if version > FORMAT_VERSION:
            raise InvalidInputError(
                f"{self._path} has format {version}, which a newer release wrote; this release reads up to "
                f"{FORMAT_VERSION}. Use that release or a newer one"
            )
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            raise sqlite3.DatabaseError(str(result))

    def get(self, pk: str, sk: str) -> Item | None:
        """Return an item, or None if there is none or it has expired."""
        with self._reading("read an item"):
            item = self._stored(pk, sk)
        return item if item is not None and has_not_expired(item, time.time()) else None

    def query(
        self, pk: str, sort_keys: SortKeys | None = None, *, limit: int = 0, newest_first: bool = False
    ) -> Iterator[Item]:
        """Yield the items of a partition in order of `sk`, without expired ones. See `Table.query`."""
        condition, bounds = _bounds(sort_keys)
        statement = f"SELECT item FROM items WHERE pk = ?{condition} ORDER BY sk"  # noqa: S608 - fixed texts
        statement += (" DESC" if newest_first else "") + (" LIMIT ?" if limit else "")
        with self._reading("query items"):
            rows = self._connection.execute(statement, (pk, *bounds, *([limit] if limit else []))).fetchall()
        now = time.time()
        for (packed,) in rows:
            item = _unpack(packed)
            if has_not_expired(item, now):
                yield item

    def put(self, item: Item, condition: Condition) -> None:
        """Write an item if a condition on the stored one holds.

        Raises:
            ConflictError: the condition does not hold.
        """
        self.transact([(item, condition)])

    def transact(
        self,
        puts: Sequence[ConditionalPut],
        deletes: Sequence[ConditionalDelete] = (),
        checks: Sequence[ConditionalPut] = (),
    ) -> None:
        """Write and delete items in one transaction. See `Table.transact`.

        Raises:
            ConflictError: a condition does not hold.
        """
        if len(puts) + len(deletes) + len(checks) > MAX_TRANSACTION_ITEMS:
            raise SourceError(f"a transaction takes at most {MAX_TRANSACTION_ITEMS} items")
        with self._writing("write items together"):
            for item, condition in (*puts, *deletes, *checks):
                pk, sk = text(item, "pk"), text(item, "sk")
                if condition is not None and not _holds(condition, self._stored(pk, sk)):
                    raise ConflictError(f"another writer wrote first: {pk} {sk}")
            self._write(item for item, _ in puts)
            self._delete(item_key for item_key, _ in deletes)

    def put_all(self, items: Sequence[Item]) -> None:
        """Write items without conditions."""
        with self._writing("write items"):
            self._write(items)

    def delete_all(self, keys: Iterable[Item]) -> None:
        """Delete items by their keys."""
        with self._writing("delete items"):
            self._delete(keys)

    def expire(self, items: Iterable[Item], at: int) -> None:
        """Let items, as they were read, expire at a time (seconds since the epoch)."""
        self.put_all([{**item, "expires_at": {"N": str(at)}} for item in items])

    def partitions(self) -> list[str]:
        """Return the keys of all partitions, in order."""
        partitions: list[str] = []
        with self._reading("read items"):
            while row := self._connection.execute(
                "SELECT pk FROM items WHERE pk > ? ORDER BY pk LIMIT 1", (partitions[-1] if partitions else "",)
            ).fetchone():
                partitions.append(row[0])
        return partitions

    def items(self, partition: str) -> Iterator[Item]:
        """Yield the items of a partition that have not expired, in order of `sk`, with few of them in memory."""
        sk = ""
        while True:
            with self._reading("read items"):
                rows = self._connection.execute(
                    "SELECT sk, item FROM items WHERE pk = ? AND sk > ? ORDER BY sk LIMIT ?",
                    (partition, sk, _PAGE_ITEMS),
                ).fetchall()
            now = time.time()
            yield from (item for item in (_unpack(row[1]) for row in rows) if has_not_expired(item, now))
            if len(rows) < _PAGE_ITEMS:
                return
            sk = rows[-1][0]

    def delete_expired(self) -> int:
        """Delete expired items, as DynamoDB does by itself, and return their number."""
        with self._writing("delete expired items"):
            return self._connection.execute("DELETE FROM items WHERE expires_at <= ?", (time.time(),)).rowcount

    def _stored(self, pk: str, sk: str) -> Item | None:
        row = self._connection.execute("SELECT item FROM items WHERE pk = ? AND sk = ?", (pk, sk)).fetchone()
        return None if row is None else _unpack(row[0])

    def _write(self, items: Iterable[Item]) -> None:
        rows = [
            (
                text(item, "pk"),
                text(item, "sk"),
                msgspec.msgpack.encode(item),
                integer(item, "expires_at") if "expires_at" in item else None,
            )
            for item in items
        ]
        self._connection.executemany("INSERT OR REPLACE INTO items VALUES (?, ?, ?, ?)", rows)

    def _delete(self, keys: Iterable[Item]) -> None:
        rows = [(text(item_key, "pk"), text(item_key, "sk")) for item_key in keys]
        self._connection.executemany("DELETE FROM items WHERE pk = ? AND sk = ?", rows)

    @contextmanager
    def _reading(self, action: str) -> Iterator[None]:
        with self._lock, self._map_errors(action):
            yield

    @contextmanager
    def _writing(self, action: str) -> Iterator[None]:
        with self._lock, self._map_errors(action):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._connection.in_transaction:  # SQLite ends it itself after some errors
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")

    @contextmanager
    def _map_errors(self, action: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.OperationalError):
                raise SourceError(f"the ledger {self._path} failed: {action}: {error}") from error
            reason = " ".join(str(error).split())
            raise SourceError(
                f"the ledger {self._path} is damaged ({reason}). Restore the folder from a backup, or choose another"
            ) from error


def _claim(descriptor: int, folder: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise InvalidInputError(
            f"another process uses the ledger in {folder}. Stop it, or choose another folder"
        ) from error


def _unpack(packed: bytes) -> Item:
    item: Item = msgspec.msgpack.decode(packed)
    return item


def _bounds(sort_keys: SortKeys | None) -> tuple[str, tuple[str, ...]]:
    """Return the condition on `sk`, and its values. SQLite compares texts by their UTF-8 bytes, like DynamoDB."""
    match sort_keys:
        case None:
            return "", ()
        case Between():
            return " AND sk BETWEEN ? AND ?", (sort_keys.first, sort_keys.last)
        case StartsWith():
            return " AND sk >= ? AND sk < ?", (sort_keys.prefix, sort_keys.prefix + _GREATEST_CHARACTER)
        case Before():
            return " AND sk < ?", (sort_keys.sort_key,)


def _holds(condition: Condition, item: Item | None) -> bool:
    match condition:
        case Missing():
            return item is None
        case Present():
            return item is not None
        case Comparison():
            return _compares(condition, item or {})
        case AllOf():
            return all(_compares(comparison, item or {}) for comparison in condition.comparisons)
        case MissingOr():
            return item is None or _compares(condition.comparison, item)


def _compares(comparison: Comparison, item: Item) -> bool:
    ((kind, _),) = comparison.attribute_value.items()
    attribute = item.get(comparison.attribute, {})
    if kind not in attribute:
        return comparison.operator == "<>"
    stored, operand = attribute[kind], comparison.operand
    if isinstance(operand, int):
        stored = parse_decimal(stored)
    match comparison.operator:
        case "=":
            return bool(stored == operand)
        case "<>":
            return bool(stored != operand)
        case "<":
            return bool(stored < operand)
        case "<=":
            return bool(stored <= operand)
