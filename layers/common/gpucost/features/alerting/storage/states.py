"""Alert states in the ledger's table; implements `ports.AlertStateStore` (docs/contributing/ledger.md).

| item | pk | sk |
| --- | --- | --- |
| group | `C#<scope>#alerts` | `group#<hash of owner>`, further chunks `group#<hash of owner>#<number>` |
| cursor | `C#<scope>#alerts` | `cursor` |

Only pending and firing alerts and undelivered messages are stored. An empty group expires after a week. Until then, a
process that read the group before it became empty cannot write the same evaluation a second time.
"""

import hashlib
import time
import zlib
from dataclasses import replace

from pydantic import TypeAdapter

from gpucost.features.alerting.model import AlertGroup, EvaluationCursor
from gpucost.features.alerting.ports import ScopeStates
from gpucost.storage import chunked_documents as chunks
from gpucost.storage.conditions import Comparison, Condition, MissingOr, equals
from gpucost.storage.packed_items import retry_conflicts
from gpucost.storage.ports import Table
from gpucost.storage.table import SCHEMA_VERSION, Item, check_schema_version, integer, key, text, verify_integrity

EMPTY_GROUP_RETENTION_SECONDS = 7 * 86_400
_GROUP_ADAPTER = TypeAdapter(AlertGroup)
_CURSOR_ADAPTER = TypeAdapter(EvaluationCursor)
_CURSOR_KEY = "cursor"
_GROUP_PREFIX = "group#"


class DynamoAlertStateStore:
    """Stores one item per owner and scope, or several for a business unit with thousands of alerts."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._chunk_counts: dict[tuple[str, str], int] = {}
        """Chunks of each group by scope and owner, when it was last read or written."""

    def load(self, scope: str) -> ScopeStates:
        """Read the states of a scope.

        Raises:
            ConflictError: another process kept writing a group of several chunks.
        """
        return retry_conflicts(lambda: self._load(scope))

    def _load(self, scope: str) -> ScopeStates:
        cursor: EvaluationCursor | None = None
        heads: list[Item] = []
        further_chunks: list[Item] = []
        for item in self._table.query(_partition_key(scope)):
            check_schema_version(item)
            sk = text(item, "sk")
            if sk == _CURSOR_KEY:
                with verify_integrity(item):
                    cursor = _CURSOR_ADAPTER.validate_json(zlib.decompress(item["b"]["B"]))
            elif sk.startswith(_GROUP_PREFIX):
                (further_chunks if sk.count("#") > 1 else heads).append(item)
        groups: dict[str, AlertGroup] = {}
        for head in heads:
            document = chunks.join_chunks(head, further_chunks, "n")
            with verify_integrity(head):
                group = _GROUP_ADAPTER.validate_json(zlib.decompress(document))
            groups[group.owner] = group
            self._chunk_counts[scope, group.owner] = integer(head, "k") or 1
        return ScopeStates(cursor or EvaluationCursor(scope), tuple(groups[owner] for owner in sorted(groups)))

    def save_group(self, group: AlertGroup) -> AlertGroup:
        """Write a group if its version is still the stored one, and return it with the next version.

        Raises:
            ConflictError: another writer was first.
            SourceError: more alerts than a transaction holds (some 20,000).
        """
        saved = replace(group, version=group.version + 1)
        attributes: Item = {}
        if group.is_empty:
            attributes = {"expires_at": {"N": str(int(time.time() + EMPTY_GROUP_RETENTION_SECONDS))}}
        owner_hash = hashlib.sha256(group.owner.encode()).hexdigest()[:24]
        previous_chunks = self._chunk_counts.get((group.scope, group.owner), 1)
        self._chunk_counts[group.scope, group.owner] = self._put(
            group.scope,
            f"{_GROUP_PREFIX}{owner_hash}",
            saved.version,
            _GROUP_ADAPTER.dump_json(saved),
            attributes,
            previous_chunks,
        )
        return saved

    def save_cursor(self, cursor: EvaluationCursor) -> EvaluationCursor:
        """Write a cursor if its version is still the stored one, and return it with the next version.

        Raises:
            ConflictError: another writer was first.
        """
        saved = replace(cursor, version=cursor.version + 1)
        self._put(cursor.scope, _CURSOR_KEY, saved.version, _CURSOR_ADAPTER.dump_json(saved), {})
        return saved

    def _put(
        self, scope: str, sk: str, version: int, document: bytes, attributes: Item, previous_chunks: int = 1
    ) -> int:
        """Write a document in as many chunks as needed, and return their number."""
        head: Item = {**key(_partition_key(scope), sk), "v": {"N": str(SCHEMA_VERSION)}, **attributes}
        items = chunks.document_items(head, zlib.compress(document), {"n": {"N": str(version)}})
        if version > 1:
            condition: Condition = equals("n", version - 1)
        else:
            # DynamoDB deletes expired items only after some days.
            condition = MissingOr(Comparison("expires_at", "<", int(time.time())))
        chunks.put_document(self._table, items, condition, previous_chunks=previous_chunks)
        return len(items)


def _partition_key(scope: str) -> str:
    return f"C#{scope}#alerts"
