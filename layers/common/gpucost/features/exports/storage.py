"""Records exported days in DynamoDB, and keeps their files in the S3 bucket of the exports."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

from gpucost.core.errors import ConflictError, SourceError
from gpucost.features.exports.exported_days import DayStatus, ExportedDay
from gpucost.storage.ports import Table
from gpucost.storage.table import (
    SCHEMA_VERSION,
    Between,
    Comparison,
    Item,
    MissingOr,
    check_schema_version,
    from_epoch_seconds,
    integer,
    key,
    partition_key,
    text,
    to_epoch_seconds,
)

# Records exported days in DynamoDB: one item per cluster and day, `C#<cluster>#exports` / `<day>`.

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
        pk = partition_key(cluster, "exports")
        items = self._table.query(pk, Between(_sort_key(start), last))
        return [day for day in (_read_day(cluster, item) for item in items) if day.day >= start]

    def put(self, exported: ExportedDay) -> None:
        """Record an exported day, unless the recorded export has newer versions of the hours."""
        item = {
            **key(partition_key(exported.cluster, "exports"), _sort_key(exported.day)),
            "v": {"N": str(SCHEMA_VERSION)},
            "s": {"S": exported.status[0]},
            "c": {"N": str(exported.export_version)},
            "r": {"N": str(exported.row_count)},
            "bp": {"N": str(exported.parquet_bytes)},
            "bc": {"N": str(exported.csv_bytes)},
            "cu": {"S": exported.currency},
            "at": {"N": str(to_epoch_seconds(exported.exported_at))},
            **{
                name: {"N": str(number)}
                for name, number in (("ri", exported.inference_row_count), ("bi", exported.inference_bytes))
                if number is not None
            },
            "f": {"S": exported.fingerprint},
            "n": {"N": str(exported.hour_version_sum)},
            "expires_at": {"N": str(to_epoch_seconds(exported.exported_at + self._retention))},
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
        exported_at=from_epoch_seconds(integer(item, "at")),
        fingerprint=text(item, "f"),
        hour_version_sum=integer(item, "n"),
        inference_row_count=integer(item, "ri") if "ri" in item else None,
        inference_bytes=integer(item, "bi") if "bi" in item else None,
    )


def _sort_key(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d")


# The S3 bucket of the exports.

_CONFLICT_CODES = {"PreconditionFailed", "ConditionalRequestConflict"}
_MISSING_OBJECT_CODES = {"NoSuchKey", "404"}
"""S3's response to a conditional write if the object was deleted in the meantime."""


class S3Bucket:
    """Stores exports in an S3 bucket.

    Args:
        client: a client of S3.
        bucket: the bucket's name.
    """

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def etag(self, key: str) -> str | None:
        """Return an object's ETag; None if there is no object. Listing needs fewer permissions than HeadObject."""
        with _map_aws_errors("list an export"):
            response = self._client.list_objects_v2(Bucket=self._bucket, Prefix=key, MaxKeys=1)
        return next((str(listed["ETag"]) for listed in response.get("Contents", []) if listed["Key"] == key), None)

    def put(self, key: str, path: Path, *, if_match: str | None) -> None:
        """Upload a file if the object still has the ETag `if_match`; None means that there is no object yet.

        Raises:
            ConflictError: the object was changed in the meantime.
            SourceError: S3 failed.
        """
        condition = {"IfNoneMatch": "*"} if if_match is None else {"IfMatch": if_match}
        with path.open("rb") as body, _map_aws_errors("write an export"):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=body, **condition)

    def url(self, key: str, *, name: str, seconds: int) -> str:
        """Return a presigned URL, made without a request to S3."""
        parameters = {
            "Bucket": self._bucket,
            "Key": key,
            "ResponseContentDisposition": f'attachment; filename="{name}"',
        }
        with _map_aws_errors("sign a URL"):
            return str(self._client.generate_presigned_url("get_object", Params=parameters, ExpiresIn=seconds))


@contextmanager
def _map_aws_errors(operation: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        if code in _CONFLICT_CODES or code in _MISSING_OBJECT_CODES:
            raise ConflictError(f"the export was changed in the meantime: {operation}") from error
        raise SourceError(f"the export bucket failed: {operation}: {code}") from error
    except BotoCoreError as error:
        raise SourceError(f"the export bucket failed: {operation}: {type(error).__name__}") from error
