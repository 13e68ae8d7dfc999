"""Sums that rules over long periods continue from, in the ledger's table; implements `ports.SpendStore`.

| item | pk | sk |
| --- | --- | --- |
| part of a month | `C#<cluster>#spent` | `month#<month>#<part>`, further chunks `…#<number>` |
| day to date | `C#<cluster>#spent` | `day#<hour>`, further chunks `…#<number>` |
"""

import hashlib
import json
import zlib
from datetime import datetime, timedelta
from typing import Any

from gpucost.core.amounts import Costs
from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import ConflictError
from gpucost.features.alerting.ports import DayToDateSpend, PartialMonthSpend
from gpucost.storage import chunked_documents as chunks
from gpucost.storage import compressed_documents as blobs
from gpucost.storage import keys
from gpucost.storage.conditions import MISSING, StartsWith
from gpucost.storage.packed_items import retry_conflicts
from gpucost.storage.ports import Table
from gpucost.storage.table import SCHEMA_VERSION, Item, check_schema_version, key

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
        return retry_conflicts(lambda: self._read_chunks(_partition_key(cluster), sk))

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
        **key(_partition_key(cluster), sk),
        "v": {"N": str(SCHEMA_VERSION)},
        "expires_at": {"N": str(keys.to_epoch_seconds(since + SPEND_RETENTION))},
    }
    return chunks.document_items(head, blob, {"h": {"B": hashlib.sha256(blob).digest()[:16]}})


def _partition_key(cluster: str) -> str:
    return f"C#{cluster}#spent"


def _month_part_sort_key(month: datetime, part: int) -> str:
    return f"month#{month:%Y-%m}#{part}"


def _day_to_date_sort_key(hour: datetime) -> str:
    return f"day#{keys.format_hour(hour)}"
