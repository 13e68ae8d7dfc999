"""Alert states, sums over long periods, the notification history and silences in the ledger's table."""

import hashlib
import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, TypeVar

from pydantic import TypeAdapter

from gpucost.core.amounts import Costs
from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import ConflictError
from gpucost.features.alerting.model import AlertGroup, EvaluationCursor, Notification
from gpucost.features.alerting.muting import Silence
from gpucost.features.alerting.ports import DayToDateSpend, PartialMonthSpend, ScopeStates
from gpucost.storage import chunked_documents as chunks
from gpucost.storage import compressed_documents as blobs
from gpucost.storage.chunked_documents import retry_conflicts
from gpucost.storage.ports import Table
from gpucost.storage.table import (
    MISSING,
    SCHEMA_VERSION,
    Between,
    Comparison,
    Condition,
    Item,
    MissingOr,
    StartsWith,
    check_schema_version,
    equals,
    format_hour,
    integer,
    key,
    text,
    to_epoch_seconds,
    verify_integrity,
)

T = TypeVar("T")


@cache
def _adapter(record: type[T]) -> TypeAdapter[T]:
    """Return the adapter of a record. It is made at first use: the API reads some of them only."""
    return TypeAdapter(record)


# Alert states in the ledger's table; implements `ports.AlertStateStore` (docs/contributing/ledger.md).
#
# | item | pk | sk |
# | --- | --- | --- |
# | group | `C#<scope>#alerts` | `group#<hash of owner>`, further chunks `group#<hash of owner>#<number>` |
# | cursor | `C#<scope>#alerts` | `cursor` |
#
# Only pending and firing alerts and undelivered messages are stored. An empty group expires after a week. Until then, a
# process that read the group before it became empty cannot write the same evaluation a second time.

EMPTY_GROUP_RETENTION_SECONDS = 7 * 86_400
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
        for item in self._table.query(_states_partition_key(scope)):
            check_schema_version(item)
            sk = text(item, "sk")
            if sk == _CURSOR_KEY:
                with verify_integrity(item):
                    cursor = _adapter(EvaluationCursor).validate_json(zlib.decompress(item["b"]["B"]))
            elif sk.startswith(_GROUP_PREFIX):
                (further_chunks if sk.count("#") > 1 else heads).append(item)
        groups: dict[str, AlertGroup] = {}
        for head in heads:
            document = chunks.join_chunks(head, further_chunks, "n")
            with verify_integrity(head):
                group = _adapter(AlertGroup).validate_json(zlib.decompress(document))
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
            _adapter(AlertGroup).dump_json(saved),
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
        self._put(cursor.scope, _CURSOR_KEY, saved.version, _adapter(EvaluationCursor).dump_json(saved), {})
        return saved

    def _put(
        self, scope: str, sk: str, version: int, document: bytes, attributes: Item, previous_chunks: int = 1
    ) -> int:
        """Write a document in as many chunks as needed, and return their number."""
        head: Item = {**key(_states_partition_key(scope), sk), "v": {"N": str(SCHEMA_VERSION)}, **attributes}
        items = chunks.document_items(head, zlib.compress(document), {"n": {"N": str(version)}})
        if version > 1:
            condition: Condition = equals("n", version - 1)
        else:
            # DynamoDB deletes expired items only after some days.
            condition = MissingOr(Comparison("expires_at", "<", int(time.time())))
        chunks.put_document(self._table, items, condition, previous_chunks=previous_chunks)
        return len(items)


def _states_partition_key(scope: str) -> str:
    return f"C#{scope}#alerts"


# Sums that rules over long periods continue from, in the ledger's table; implements `ports.SpendStore`.
#
# | item | pk | sk |
# | --- | --- | --- |
# | part of a month | `C#<cluster>#spent` | `month#<month>#<part>`, further chunks `…#<number>` |
# | day to date | `C#<cluster>#spent` | `day#<hour>`, further chunks `…#<number>` |

SPEND_RETENTION = timedelta(days=130)
"""Rules look back eight weeks at most. The rest is a reserve for a restored table or a long pause."""


class DynamoSpendStore:
    """Stores packed documents, each written as a whole."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def month_part(self, cluster: str, month: datetime, part: int) -> PartialMonthSpend | None:
        """Read a part of a month as it was last summed."""
        document = self._read_document(cluster, _month_part_sort_key(month, part))
        if document is None:
            return None
        units = {unit: parse_decimal(amount) for unit, amount in document["units"].items()}
        first_hour = datetime.fromisoformat(document["first"]) if document.get("first") else None
        return PartialMonthSpend(units, document["hours"], document["currency"], first_hour)

    def put_month_part(self, cluster: str, month: datetime, part: int, sums: PartialMonthSpend) -> None:
        """Write a part of a month over the previous sums."""
        units = {unit: str(amount) for unit, amount in sums.spend_by_unit.items()}
        first_hour = sums.first_hour.isoformat() if sums.first_hour else ""
        document = {"units": units, "hours": sums.hours_with_data, "currency": sums.currency, "first": first_hour}
        chunks.put_document(
            self._table, _document_items(cluster, _month_part_sort_key(month, part), document, month), None
        )

    def day_to_date(self, cluster: str, hour: datetime) -> DayToDateSpend | None:
        """Read the day of an hour, up to the end of that hour."""
        document = self._read_document(cluster, _day_to_date_sort_key(hour))
        if document is None:
            return None
        units = {
            unit: Costs(allocated_gpu_hours=gpu_hours, allocated_usd=usd)
            for unit, (usd, gpu_hours) in document["units"].items()
        }
        return DayToDateSpend(units, document["sources"])

    def put_day_to_date(self, cluster: str, hour: datetime, sums: DayToDateSpend) -> None:
        """Write a day to date; sums that are already stored are kept."""
        units = {unit: (costs.allocated_usd, costs.allocated_gpu_hours) for unit, costs in sums.costs_by_unit.items()}
        items = _document_items(
            cluster, _day_to_date_sort_key(hour), {"units": units, "sources": sums.pricing_fingerprint}, hour
        )
        try:
            chunks.put_document(self._table, items, MISSING)
        except ConflictError:
            return

    def _read_document(self, cluster: str, sk: str) -> Any:
        return retry_conflicts(lambda: self._read_chunks(_spend_partition_key(cluster), sk))

    def _read_chunks(self, pk: str, sk: str) -> Any:
        head = self._table.get(pk, sk)
        if head is None:
            return None
        check_schema_version(head)
        others = self._table.query(pk, StartsWith(f"{sk}#")) if "k" in head else ()
        return blobs.unpack([{**head, "b": {"B": chunks.join_chunks(head, others, "h")}}])


def _document_items(cluster: str, sk: str, document: Any, since: datetime) -> list[Item]:
    blob = zlib.compress(json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode(), 9)
    head: Item = {
        **key(_spend_partition_key(cluster), sk),
        "v": {"N": str(SCHEMA_VERSION)},
        "expires_at": {"N": str(to_epoch_seconds(since + SPEND_RETENTION))},
    }
    return chunks.document_items(head, blob, {"h": {"B": hashlib.sha256(blob).digest()[:16]}})


def _spend_partition_key(cluster: str) -> str:
    return f"C#{cluster}#spent"


def _month_part_sort_key(month: datetime, part: int) -> str:
    return f"month#{month:%Y-%m}#{part}"


def _day_to_date_sort_key(hour: datetime) -> str:
    return f"day#{format_hour(hour)}"


# The notification history and silences in the ledger's table.
#
# | item | pk | sk |
# | --- | --- | --- |
# | notification | `C#<scope>#alert-history` | `<hour>#<hash of its id>` |
# | silence | `alerts#silences` | `<id>` |

HISTORY_RETENTION = timedelta(days=400)
SILENCE_RETENTION = timedelta(days=90)
_SILENCES_PARTITION_KEY = "alerts#silences"


class AlertHistory:
    """Stores one item per notification, sent or muted, for a year and a month."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def add(self, scope: str, notifications: Sequence[Notification]) -> None:
        """Record notifications; one that is already recorded is kept as it is."""
        for notification in notifications:
            id_hash = hashlib.sha256(notification.id.encode()).hexdigest()[:16]
            item: Item = {
                **key(_history_partition_key(scope), f"{format_hour(notification.hour)}#{id_hash}"),
                "v": {"N": str(SCHEMA_VERSION)},
                "b": {"B": zlib.compress(_adapter(Notification).dump_json(notification))},
                "expires_at": {"N": str(to_epoch_seconds(notification.hour + HISTORY_RETENTION))},
            }
            try:
                self._table.put(item, MISSING)
            except ConflictError:
                continue

    def between(self, scope: str, start: datetime, end: datetime) -> list[Notification]:
        """Read the notifications of the hours in `[start, end)`, oldest first."""
        if start >= end:
            return []
        # `~` sorts after every character of a key, so that all items of the last hour are included.
        last = f"{format_hour(end - timedelta(microseconds=1))}~"
        items = self._table.query(_history_partition_key(scope), Between(format_hour(start), last))
        notifications = []
        for item in items:
            check_schema_version(item)
            with verify_integrity(item):
                notifications.append(_adapter(Notification).validate_json(zlib.decompress(item["b"]["B"])))
        return [notification for notification in notifications if start <= notification.hour < end]


class SilenceStore:
    """Stores one item per silence."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def all(self) -> list[Silence]:
        """Read active and future silences and those that ended recently; the latest end first."""
        silences = []
        for item in self._table.query(_SILENCES_PARTITION_KEY):
            check_schema_version(item)
            silences.append(_adapter(Silence).validate_json(item["s"]["S"]))
        return sorted(silences, key=lambda silence: (silence.ends_at, silence.id), reverse=True)

    def put(self, silence: Silence) -> None:
        """Write a silence over a previous one with the same id."""
        starts_at, ends_at = silence.starts_at.astimezone(UTC), silence.ends_at.astimezone(UTC)
        item: Item = {
            **key(_SILENCES_PARTITION_KEY, silence.id),
            "v": {"N": str(SCHEMA_VERSION)},
            "s": {"S": _adapter(Silence).dump_json(replace(silence, starts_at=starts_at, ends_at=ends_at)).decode()},
            "expires_at": {"N": str(to_epoch_seconds(ends_at + SILENCE_RETENTION))},
        }
        self._table.put_all([item])


def _history_partition_key(scope: str) -> str:
    return f"C#{scope}#alert-history"
