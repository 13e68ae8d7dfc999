"""The memory of alerting, in the ledger's table; fulfils `ports.AlertMemory` (docs/ledger.md).

| item | pk | sk |
| --- | --- | --- |
| book | `C#<scope>#alerts` | `book#<hash of owner>`, further pieces `book#<hash of owner>#<place>` |
| cursor | `C#<scope>#alerts` | `cursor` |

Only what is pending, firing or still to be told is kept: a book with nothing in it expires. It stays for a week, so
that somebody who has read it before it was emptied cannot write what was decided since a second time.
"""

import hashlib
import time
import zlib
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from gpucost.features.alerting.model import AlertGroup, Cursor
from gpucost.features.alerting.ports import ScopeStates
from gpucost.storage import chunked_documents as pieces
from gpucost.storage.packed_items import retry_conflicts
from gpucost.storage.table import FORMAT, Item, Table, check_format, key, text, verify_integrity, integer

EMPTY_GROUP_RETENTION_SECONDS = 7 * 86_400
"""Seconds."""
_BOOK = TypeAdapter(AlertGroup)
_CURSOR = TypeAdapter(Cursor)
_CURSOR_KEY = "cursor"


class DynamoAlertStates:
    """One item per owner and scope, or several where a business unit has thousands of alerts.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._table = Table(client, table)
        self._pieces: dict[tuple[str, str], int] = {}
        """Of each book, by scope and owner, as it was last read or written."""

    def load(self, scope: str) -> ScopeStates:
        """All of a scope.

        Raises:
            ConflictError: somebody kept writing a book of several pieces.
        """
        return retry_conflicts(lambda: self._load(scope))

    def _load(self, scope: str) -> ScopeStates:
        cursor: Cursor | None = None
        heads: list[Item] = []
        further: list[Item] = []
        for item in self._table.query(_partition(scope)):
            check_format(item)
            sk = text(item, "sk")
            if sk == _CURSOR_KEY:
                with verify_integrity(item):
                    cursor = _CURSOR.validate_json(zlib.decompress(item["b"]["B"]))
            elif sk.startswith("book#"):
                (further if sk.count("#") > 1 else heads).append(item)
        books: dict[str, AlertGroup] = {}
        for head in heads:
            data = pieces.joined_chunks(head, further, "n")
            with verify_integrity(head):
                book = _BOOK.validate_json(zlib.decompress(data))
            books[book.owner] = book
            self._pieces[scope, book.owner] = integer(head, "k") or 1
        return ScopeStates(cursor or Cursor(scope), tuple(books[owner] for owner in sorted(books)))

    def save_group(self, book: AlertGroup) -> AlertGroup:
        """Write a book on condition that its version is still the stored one; returns it with the next version.

        Raises:
            ConflictError: somebody else wrote first.
            SourceError: more alerts than a transaction holds (some 20,000).
        """
        saved = replace(book, version=book.version + 1)
        more: Item = {}
        if book.is_empty:
            more = {"expires_at": {"N": str(int(time.time() + EMPTY_GROUP_RETENTION_SECONDS))}}
        owner = hashlib.sha256(book.owner.encode()).hexdigest()[:24]
        before = self._pieces.get((book.scope, book.owner), 1)
        document = _BOOK.dump_json(saved)
        self._pieces[book.scope, book.owner] = self._put(
            book.scope, f"book#{owner}", saved.version, document, more, before
        )
        return saved

    def save_cursor(self, cursor: Cursor) -> Cursor:
        """The same for a cursor.

        Raises:
            ConflictError: somebody else wrote first.
        """
        saved = replace(cursor, version=cursor.version + 1)
        self._put(cursor.scope, _CURSOR_KEY, saved.version, _CURSOR.dump_json(saved), {})
        return saved

    def _put(self, scope: str, sk: str, version: int, document: bytes, more: Item, pieces_before: int = 1) -> int:
        """Write a document in as many pieces as it takes, and say how many."""
        head: Item = {**key(_partition(scope), sk), "v": {"N": str(FORMAT)}, **more}
        items = pieces.document_items(head, zlib.compress(document), {"n": {"N": str(version)}})
        if version > 1:
            condition, values = "n = :version", {":version": {"N": str(version - 1)}}
        else:
            # What has expired may be there for some days before DynamoDB deletes it.
            condition, values = "attribute_not_exists(pk) OR expires_at < :now", {":now": {"N": str(int(time.time()))}}
        pieces.put(self._table, items, condition, values, previous_chunks=pieces_before)
        return len(items)


def _partition(scope: str) -> str:
    return f"C#{scope}#alerts"
