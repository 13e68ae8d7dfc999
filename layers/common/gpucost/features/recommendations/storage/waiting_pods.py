"""Stores the pods that waited for GPUs by day in the ledger's table.

| item | pk | sk |
| --- | --- | --- |
| waiting pods of a day | `C#<cluster>#waiting` | `<day>#<piece>` |
"""

from collections.abc import Sequence
from datetime import datetime

from gpucost.features.recommendations.history import PodWait
from gpucost.features.recommendations.storage.daily_items import DailyItems
from gpucost.storage.ports import Table

_DIGITS = 4
"""Digits of a part of an hour: a third of a second."""


class DynamoWaitingPods:
    """A packed document per cluster and UTC day."""

    def __init__(self, table: Table) -> None:
        self._days = DailyItems(table, "waiting")

    def put_waits(self, cluster: str, day: datetime, waits: Sequence[PodWait], expires_at: datetime) -> None:
        """Store a day until a time."""
        rows = [[*wait[:-1], [[hour, round(part, _DIGITS)] for hour, part in wait.hours]] for wait in waits]
        self._days.put(cluster, day, rows, expires_at)

    def waits(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, list[PodWait]]:
        """The stored days in `[start, end)`."""
        return {
            day: [
                PodWait._make((*row, tuple((int(hour), float(part)) for hour, part in hours))) for *row, hours in rows
            ]
            for day, rows in self._days.read(cluster, start, end).items()
        }
