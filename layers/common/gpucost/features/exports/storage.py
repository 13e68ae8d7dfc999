"""Records exported days in DynamoDB: one item per cluster and day, `C#<cluster>#exports` / `<day>`."""

from datetime import UTC, datetime, timedelta
from typing import get_args

from gpucost.core.errors import ConflictError
from gpucost.features.exports.exported_days import DayStatus, ExportedDay
from gpucost.storage import keys
from gpucost.storage.conditions import Between, Comparison, MissingOr
from gpucost.storage.ports import Table
from gpucost.storage.table import SCHEMA_VERSION, Item, check_schema_version, integer, key, text

_STATUS: dict[str, DayStatus] = {status[0]: status for status in get_args(DayStatus)}


class DynamoExports:
    """Records exported days.

    Args:
        table: the ledger's table.
        retention: how long the bucket keeps an export. Its item expires with it.
    """

    def __init__(self, table: Table, retention: timedelta) -> None:
        self._table = table
        self._retention = retention

    def days(self, cluster: str, start: datetime, end: datetime) -> list[ExportedDay]:
        """Return the exported days of `[start, end)`, oldest first."""
        if start >= end:
            return []
        last = _sort_key(end - timedelta(microseconds=1))
        partition = keys.partition(cluster, "exports")
        items = self._table.query(partition, Between(_sort_key(start), last))
        return [day for day in (_read_day(cluster, item) for item in items) if day.day >= start]

    def put(self, exported: ExportedDay) -> None:
        """Record an exported day, unless the recorded export has newer versions of the hours."""
        item = {
            **key(keys.partition(exported.cluster, "exports"), _sort_key(exported.day)),
            "v": {"N": str(SCHEMA_VERSION)},
            "s": {"S": exported.status[0]},
            "c": {"N": str(exported.export_version)},
            "r": {"N": str(exported.row_count)},
            "bp": {"N": str(exported.parquet_bytes)},
            "bc": {"N": str(exported.csv_bytes)},
            "cu": {"S": exported.currency},
            "at": {"N": str(keys.to_epoch_seconds(exported.exported_at))},
            **{
                name: {"N": str(number)}
                for name, number in (("ri", exported.inference_row_count), ("bi", exported.inference_bytes))
                if number is not None
            },
            "f": {"S": exported.fingerprint},
            "n": {"N": str(exported.hour_version_sum)},
            "expires_at": {"N": str(keys.to_epoch_seconds(exported.exported_at + self._retention))},
        }
        try:
            self._table.put(item, MissingOr(Comparison("n", "<=", integer(item, "n"))))
        except ConflictError:
            return


def _read_day(cluster: str, item: Item) -> ExportedDay:
    check_schema_version(item)
    return ExportedDay(
        cluster=cluster,
        day=datetime.strptime(text(item, "sk"), "%Y-%m-%d").replace(tzinfo=UTC),
        export_version=integer(item, "c"),
        status=_STATUS[text(item, "s")],
        row_count=integer(item, "r"),
        parquet_bytes=integer(item, "bp"),
        csv_bytes=integer(item, "bc"),
        currency=text(item, "cu"),
        exported_at=keys.from_epoch_seconds(integer(item, "at")),
        fingerprint=text(item, "f"),
        hour_version_sum=integer(item, "n"),
        inference_row_count=integer(item, "ri") if "ri" in item else None,
        inference_bytes=integer(item, "bi") if "bi" in item else None,
    )


def _sort_key(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d")
