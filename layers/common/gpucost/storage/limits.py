"""Limits of node pools and quotas of namespaces, as they stood at the end of each hour.

| item | pk | sk |
| --- | --- | --- |
| limits | `C#<cluster>#limits` | `<hour>` |

What is observed of an hour is the same whenever it is asked, so the item is simply put again.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR
from gpucost.core.limits import Limits, PoolLimit, Quota
from gpucost.storage import compressed_documents, keys
from gpucost.storage.table import FORMAT, Item, Table, check_format, key, text


class LimitsStore:
    """Fulfils `ports.LimitsStore`.

    Args:
        client: a boto3 DynamoDB client.
        table: the table's name.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._table = Table(client, table)

    def put(self, limits: Limits, expires_at: datetime) -> None:
        """Keep what was in force at the end of an hour.

        Raises:
            SourceError: the table failed, or it is more than an item holds.
        """
        piece, *others = compressed_documents.pack({
            "pools": [[one.node_pool, one.resource, one.used, one.limit] for one in limits.pools],
            "quotas": [[one.namespace, one.name, one.resource, one.hard, one.used] for one in limits.quotas],
        })  # fmt: skip
        if others:
            what = f"{len(limits.pools)} pools and {len(limits.quotas)} quotas"
            raise SourceError(f"limits of {limits.cluster} {limits.hour} do not fit an item: {what}")
        item: Item = {
            **key(keys.partition(limits.cluster, "limits"), keys.hour(limits.hour)),
            "v": {"N": str(FORMAT)},
            "b": {"B": piece},
            "expires_at": {"N": str(keys.seconds(expires_at))},
        }
        self._table.put_all([item])

    def limits(self, cluster: str, start: datetime, end: datetime) -> list[Limits]:
        """Those of hours in `[start, end)`, oldest first; hours of which nothing was seen are not among them."""
        partition = keys.partition(cluster, "limits")
        first, last = keys.hour(start), keys.hour(end - HOUR)
        items = self._table.query(partition, "sk BETWEEN :first AND :last", first=first, last=last)
        return [_read(cluster, item) for item in items]


def _read(cluster: str, item: Item) -> Limits:
    check_format(item)
    return compressed_documents.unpack([item], lambda document: _limits(cluster, item, document))


def _limits(cluster: str, item: Item, document: Mapping[str, Any]) -> Limits:
    return Limits(
        cluster,
        keys.parse_hour(text(item, "sk")),
        tuple(PoolLimit(pool, resource, *map(_amount, own)) for pool, resource, *own in document["pools"]),
        tuple(Quota(space, name, kind, *map(_amount, own)) for space, name, kind, *own in document["quotas"]),
    )


def _amount(written: str | None) -> Decimal | None:
    return None if written is None else Decimal(written)
