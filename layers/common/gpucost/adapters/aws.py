"""The one place where AWS clients are made: lazily, once per service and region, with bounded patience."""

from functools import cache
from typing import Any

CONNECT_SECONDS = 3
READ_SECONDS = 20
ATTEMPTS = 4


@cache
def client(service: str, region: str | None = None) -> Any:
    """A boto3 client of this process's credentials and region, or another; `AWS_ENDPOINT_URL` leads it elsewhere."""
    import boto3
    from botocore.config import Config

    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
    )
    return boto3.client(service, region_name=region, config=config)  # type: ignore[call-overload]  # the stubs know services by name only
