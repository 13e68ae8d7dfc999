"""What people were told, and who wants to hear nothing; fulfils `ports.AlertHistory` and `ports.Silences`.

| item | pk | sk |
| --- | --- | --- |
| news | `C#<scope>#alert-history` | `<hour>#<hash of its id>` |
| silence | `alerts#silences` | `<id>` |
"""

import hashlib
import zlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import TypeAdapter

from gpucost.core.errors import ConflictError
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.muting import Silence
from gpucost.storage import keys
from gpucost.storage.table import FORMAT, Item, Table, check_format, key, verify_integrity

HISTORY_RETENTION = timedelta(days=400)
SILENCE_RETENTION = timedelta(days=90)
_NEWS = TypeAdapter(Notification)
_SILENCE = TypeAdapter(Silence)
_SILENCES = "alerts#silences"


class AlertHistory:
    """One item per notification.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._table = Table(client, table)

    def add(self, scope: str, notifications: Sequence[Notification]) -> None:
        """Keep notifications; the same one again is the one that is there."""
        for news in notifications:
            item: Item = {
                **key(_partition(scope), f"{keys.hour(news.hour)}#{hashlib.sha256(news.id.encode()).hexdigest()[:16]}"),
                "v": {"N": str(FORMAT)},
                "b": {"B": zlib.compress(_NEWS.dump_json(news))},
                "expires_at": {"N": str(keys.seconds(news.hour + HISTORY_RETENTION))},
            }
            try:
                self._table.put(item, "attribute_not_exists(pk)")
            except ConflictError:
                continue

    def between(self, scope: str, start: datetime, end: datetime) -> list[Notification]:
        """Those decided by hours in `[start, end)`, oldest first."""
        if start >= end:
            return []
        # `~` sorts after every character of a key, so that all items of the last hour are in.
        last = f"{keys.hour(end - timedelta(microseconds=1))}~"
        items = self._table.query(_partition(scope), "sk BETWEEN :first AND :last", first=keys.hour(start), last=last)
        found = []
        for item in items:
            check_format(item)
            with verify_integrity(item):
                found.append(_NEWS.validate_json(zlib.decompress(item["b"]["B"])))
        return [news for news in found if start <= news.hour < end]


class SilenceStore:
    """One item per silence.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._table = Table(client, table)

    def all(self) -> list[Silence]:
        """Those that are or were in force lately, and those to come; the one that ends last first."""
        found = []
        for item in self._table.query(_SILENCES):
            check_format(item)
            found.append(_SILENCE.validate_json(item["s"]["S"]))
        return sorted(found, key=lambda one: (one.ends_at, one.id), reverse=True)

    def put(self, silence: Silence) -> None:
        """Keep one, in place of the one with its id."""
        kept = replace(silence, starts_at=silence.starts_at.astimezone(UTC), ends_at=silence.ends_at.astimezone(UTC))
        item: Item = {
            **key(_SILENCES, silence.id),
            "v": {"N": str(FORMAT)},
            "s": {"S": _SILENCE.dump_json(kept).decode()},
            "expires_at": {"N": str(keys.seconds(kept.ends_at + SILENCE_RETENTION))},
        }
        self._table.put_all([item])


def _partition(scope: str) -> str:
    return f"C#{scope}#alert-history"
