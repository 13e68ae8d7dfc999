"""The notification history and silences in the ledger's table.

| item | pk | sk |
| --- | --- | --- |
| notification | `C#<scope>#alert-history` | `<hour>#<hash of its id>` |
| silence | `alerts#silences` | `<id>` |
"""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from pydantic import TypeAdapter

from gpucost.core.errors import ConflictError
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.muting import Silence
from gpucost.storage import keys
from gpucost.storage.conditions import MISSING, Between
from gpucost.storage.ports import Table
from gpucost.storage.table import SCHEMA_VERSION, Item, check_schema_version, key, verify_integrity

HISTORY_RETENTION = timedelta(days=400)
SILENCE_RETENTION = timedelta(days=90)
_NOTIFICATION_ADAPTER = TypeAdapter(Notification)
_SILENCE_ADAPTER = TypeAdapter(Silence)
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
                **key(_partition_key(scope), f"{keys.format_hour(notification.hour)}#{id_hash}"),
                "v": {"N": str(SCHEMA_VERSION)},
                "b": {"B": zlib.compress(_NOTIFICATION_ADAPTER.dump_json(notification))},
                "expires_at": {"N": str(keys.to_epoch_seconds(notification.hour + HISTORY_RETENTION))},
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
        last = f"{keys.format_hour(end - timedelta(microseconds=1))}~"
        items = self._table.query(_partition_key(scope), Between(keys.format_hour(start), last))
        notifications = []
        for item in items:
            check_schema_version(item)
            with verify_integrity(item):
                notifications.append(_NOTIFICATION_ADAPTER.validate_json(zlib.decompress(item["b"]["B"])))
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
            silences.append(_SILENCE_ADAPTER.validate_json(item["s"]["S"]))
        return sorted(silences, key=lambda silence: (silence.ends_at, silence.id), reverse=True)

    def put(self, silence: Silence) -> None:
        """Write a silence over a previous one with the same id."""
        starts_at, ends_at = silence.starts_at.astimezone(UTC), silence.ends_at.astimezone(UTC)
        item: Item = {
            **key(_SILENCES_PARTITION_KEY, silence.id),
            "v": {"N": str(SCHEMA_VERSION)},
            "s": {"S": _SILENCE_ADAPTER.dump_json(replace(silence, starts_at=starts_at, ends_at=ends_at)).decode()},
            "expires_at": {"N": str(keys.to_epoch_seconds(ends_at + SILENCE_RETENTION))},
        }
        self._table.put_all([item])


def _partition_key(scope: str) -> str:
    return f"C#{scope}#alert-history"
