"""Stores the GPU memory peaks of pods by day in the ledger's table.

| item | pk | sk |
| --- | --- | --- |
| memory of a day | `C#<cluster>#memory` | `<day>#<piece>` |
"""

from collections.abc import Mapping
from datetime import datetime

from gpucost.features.recommendations.storage.daily_items import DailyItems
from gpucost.storage.ports import Table


class DynamoGpuMemory:
    """A packed document per cluster and UTC day."""

    def __init__(self, table: Table) -> None:
        self._days = DailyItems(table, "memory")

    def put_memory(
        self, cluster: str, day: datetime, peaks: Mapping[tuple[str, str], float], expires_at: datetime
    ) -> None:
        """Store a day until a time."""
        rows = [[namespace, pod, round(peak)] for (namespace, pod), peak in sorted(peaks.items())]
        self._days.put(cluster, day, rows, expires_at)

    def memory(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, dict[tuple[str, str], float]]:
        """The stored days in `[start, end)`."""
        rows_by_day = self._days.read(cluster, start, end)
        return {
            day: {(namespace, pod): float(peak) for namespace, pod, peak in rows} for day, rows in rows_by_day.items()
        }
