"""The S3 bucket of the exports."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gpucost.core.errors import ConflictError, SourceError

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
