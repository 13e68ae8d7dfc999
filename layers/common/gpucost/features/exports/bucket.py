"""The bucket of the exports."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpucost.core.errors import ConflictError, SourceError

_CONFLICT_CODES = {"PreconditionFailed", "ConditionalRequestConflict"}
_DELETED_CODES = {"NoSuchKey", "404"}
"""Deleted since it was seen: S3 answers so where a content is to be replaced that is no longer there."""


class S3Bucket:
    """Fulfils `export_ports.ExportBucket`.

    Args:
        client: a boto3 S3 client.
        bucket: the bucket's name.
    """

    def __init__(self, client: Any, bucket: str) -> None:
        self._client = client
        self._bucket = bucket

    def etag(self, key: str) -> str | None:
        """Names the content of an object; None where there is none. Listed, for which a narrow permission does."""
        with _map_aws_errors("look at an export"):
            response = self._client.list_objects_v2(Bucket=self._bucket, Prefix=key, MaxKeys=1)
        return next((str(one["ETag"]) for one in response.get("Contents", []) if one["Key"] == key), None)

    def put(self, key: str, path: Path, *, if_match: str | None) -> None:
        """Write a file in place of the content named: S3 shows the old object or the new one, whole.

        Raises:
            ConflictError: somebody else wrote since.
            SourceError: S3 failed.
        """
        condition = {"IfNoneMatch": "*"} if if_match is None else {"IfMatch": if_match}
        with path.open("rb") as body, _map_aws_errors("write an export"):
            self._client.put_object(Bucket=self._bucket, Key=key, Body=body, **condition)

    def url(self, key: str, *, name: str, seconds: int) -> str:
        """A presigned address; made here, without asking S3."""
        parameters = {
            "Bucket": self._bucket,
            "Key": key,
            "ResponseContentDisposition": f'attachment; filename="{name}"',
        }
        with _map_aws_errors("sign an address"):
            return str(self._client.generate_presigned_url("get_object", Params=parameters, ExpiresIn=seconds))


@contextmanager
def _map_aws_errors(operation: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        if code in _CONFLICT_CODES or code in _DELETED_CODES:
            raise ConflictError(f"somebody else wrote first: {operation}") from error
        raise SourceError(f"the bucket of the exports failed: {operation}: {code}") from error
    except BotoCoreError as error:
        raise SourceError(f"the bucket of the exports failed: {operation}: {type(error).__name__}") from error
