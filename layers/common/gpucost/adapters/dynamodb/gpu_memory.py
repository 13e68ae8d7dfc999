"""The most GPU memory that pods used on each day, in the ledger's table; fulfils `advice_ports.MemoryStore`.

| item | pk | sk |
| --- | --- | --- |
| memory of a day | `C#<cluster>#memory` | `<day>#<piece>` |

A day's peaks are the same whenever they are asked, so its items are simply put again.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gpucost.adapters.dynamodb import blobs, keys
from gpucost.adapters.dynamodb.table import FORMAT, Table, check_format, key, text


class DynamoGpuMemory:
    """A packed document per cluster and UTC day.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._table = Table(client, table)

    def put_memory(
        self, cluster: str, day: datetime, peaks: Mapping[tuple[str, str], float], expires_at: datetime
    ) -> None:
        """Keep a day's until a time."""
        pieces = blobs.pack([[namespace, pod, round(peak)] for (namespace, pod), peak in sorted(peaks.items())])
        self._table.put_all([
            {
                **key(keys.partition(cluster, "memory"), f"{day:%Y-%m-%d}#{place:04d}"),
                "v": {"N": str(FORMAT)},
                "b": {"B": piece},
                "expires_at": {"N": str(keys.seconds(expires_at))},
            }
            for place, piece in enumerate(pieces)
        ])  # fmt: skip

    def memory(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, dict[tuple[str, str], float]]:
        """Those of days in `[start, end)` that were kept."""
        partition = keys.partition(cluster, "memory")
        days: dict[str, list[bytes]] = {}
        for item in self._table.query(
            partition, "sk BETWEEN :first AND :last", first=f"{start:%Y-%m-%d}", last=f"{end:%Y-%m-%d}"
        ):
            check_format(item)
            days.setdefault(text(item, "sk").partition("#")[0], []).append(item["b"]["B"])
        return {
            datetime.strptime(day, "%Y-%m-%d").replace(tzinfo=UTC): {
                (namespace, pod): float(peak) for namespace, pod, peak in blobs.unpack(pieces)
            }
            for day, pieces in days.items()
        }
