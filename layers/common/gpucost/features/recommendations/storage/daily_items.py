"""Stores metrics of whole UTC days in DynamoDB: a packed list of rows per cluster and day.

A day's rows never change, so storing a day again simply replaces its items.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from gpucost.storage import compressed_documents as blobs
from gpucost.storage import keys
from gpucost.storage.conditions import Between
from gpucost.storage.ports import Table
from gpucost.storage.table import SCHEMA_VERSION, Item, check_schema_version, key, text


class DailyItems:
    """Rows by cluster and day.

    Args:
        table: the ledger's table.
        name: the last part of the partition key.
    """

    def __init__(self, table: Table, name: Literal["memory", "waiting", "latency"]) -> None:
        self._table = table
        self._name = name

    def put(self, cluster: str, day: datetime, rows: Sequence[Sequence[Any]], expires_at: datetime) -> None:
        """Store the rows of a day until a time."""
        self._table.put_all(
            [
                {
                    **key(keys.partition(cluster, self._name), f"{day:%Y-%m-%d}#{index:04d}"),
                    "v": {"N": str(SCHEMA_VERSION)},
                    "b": {"B": piece},
                    "expires_at": {"N": str(keys.to_epoch_seconds(expires_at))},
                }
                for index, piece in enumerate(blobs.pack(list(rows)))
            ]
        )

    def read(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, list[Any]]:
        """The stored rows of days in `[start, end)`."""
        partition = keys.partition(cluster, self._name)
        days: dict[str, list[Item]] = {}
        for item in self._table.query(partition, Between(f"{start:%Y-%m-%d}", f"{end:%Y-%m-%d}")):
            check_schema_version(item)
            days.setdefault(text(item, "sk").partition("#")[0], []).append(item)
        return {
            datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC): blobs.unpack(items) for day, items in days.items()
        }
