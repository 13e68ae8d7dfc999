"""Stores limits of node pools and quotas of namespaces, as they were at the end of each hour.

| item | pk | sk |
| --- | --- | --- |
| limits | `C#<cluster>#limits` | `<hour>` |

Reading an hour's limits again gives the same result, so the item is overwritten without a condition.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR
from gpucost.core.ledger import Limits, PoolLimit, Quota
from gpucost.storage import compressed_documents
from gpucost.storage.ports import Table
from gpucost.storage.table import (
    SCHEMA_VERSION,
    Between,
    Item,
    check_schema_version,
    format_hour,
    key,
    parse_hour,
    partition_key,
    text,
    to_epoch_seconds,
)


class LimitsStore:
    """Stores node pools' limits and GPU quotas (ResourceQuota) by hour."""

    def __init__(self, table: Table) -> None:
        self._table = table

    def put(self, limits: Limits, expires_at: datetime) -> None:
        """Store the limits and quotas at the end of an hour.

        Raises:
            SourceError: the table failed, or the limits are too large for an item.
        """
        chunk, *others = compressed_documents.pack(
            {
                "pools": [[pool.node_pool, pool.resource, pool.used, pool.limit] for pool in limits.pools],
                "quotas": [
                    [quota.namespace, quota.name, quota.resource, quota.hard, quota.used] for quota in limits.quotas
                ],
            }
        )
        if others:
            counts = f"{len(limits.pools)} pools and {len(limits.quotas)} quotas"
            raise SourceError(f"limits of {limits.cluster} {limits.hour} do not fit an item: {counts}")
        item: Item = {
            **key(partition_key(limits.cluster, "limits"), format_hour(limits.hour)),
            "v": {"N": str(SCHEMA_VERSION)},
            "b": {"B": chunk},
            "expires_at": {"N": str(to_epoch_seconds(expires_at))},
        }
        self._table.put_all([item])

    def limits_between(self, cluster: str, start: datetime, end: datetime) -> list[Limits]:
        """Return the limits and quotas of hours in `[start, end)`, oldest first; hours without any are left out."""
        pk = partition_key(cluster, "limits")
        first, last = format_hour(start), format_hour(end - HOUR)
        items = self._table.query(pk, Between(first, last))
        return [_read(cluster, item) for item in items]


def _read(cluster: str, item: Item) -> Limits:
    check_schema_version(item)
    return compressed_documents.unpack([item], lambda document: _limits(cluster, item, document))


def _limits(cluster: str, item: Item, document: Mapping[str, Any]) -> Limits:
    return Limits(
        cluster,
        parse_hour(text(item, "sk")),
        tuple(PoolLimit(pool, resource, *map(_amount, amounts)) for pool, resource, *amounts in document["pools"]),
        tuple(
            Quota(namespace, name, kind, *map(_amount, amounts))
            for namespace, name, kind, *amounts in document["quotas"]
        ),
    )


def _amount(text: str | None) -> Decimal | None:
    return None if text is None else parse_decimal(text)
