"""Stores the request latency of inference servers by day in the ledger's table.

| item | pk | sk |
| --- | --- | --- |
| request latency of a day | `C#<cluster>#latency` | `<day>#<piece>` |
"""

from collections.abc import Sequence
from datetime import datetime

from gpucost.features.recommendations.history import PodLatency
from gpucost.features.recommendations.storage.daily_items import DailyItems
from gpucost.storage.ports import Table


class DynamoRequestLatency:
    """A packed document per cluster and UTC day."""

    def __init__(self, table: Table) -> None:
        self._days = DailyItems(table, "latency")

    def put_latencies(self, cluster: str, day: datetime, latencies: Sequence[PodLatency], expires_at: datetime) -> None:
        """Store a day until a time."""
        rows = [
            [pod.namespace, pod.pod, [[hour, round(requests), round(p95, 4)] for hour, requests, p95 in pod.hours]]
            for pod in latencies
        ]
        self._days.put(cluster, day, rows, expires_at)

    def latencies(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, list[PodLatency]]:
        """The stored days in `[start, end)`."""
        return {
            day: [
                PodLatency(
                    namespace, pod, tuple((int(hour), float(requests), float(p95)) for hour, requests, p95 in hours)
                )
                for namespace, pod, hours in rows
            ]
            for day, rows in self._days.read(cluster, start, end).items()
        }
