"""Reads secrets from Secrets Manager and caches them for some minutes. Values are never logged."""

import time

from gpucost.core.errors import CredentialsError, SourceError
from gpucost.runtime import aws

MAX_AGE_SECONDS = 300.0
"""A rotated secret is picked up within this time, without a deploy."""

_cache: dict[str, tuple[float, str]] = {}


def secret_value(name: str) -> str:
    """Read the text of a secret.

    Raises:
        SourceError: the secret does not exist, is empty, or may not be read. The message never has its value.
    """
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ProfileNotFound

    cached_at, value = _cache.get(name, (0.0, ""))
    if value and time.monotonic() - cached_at < MAX_AGE_SECONDS:
        return value
    try:
        value = str(aws.client("secretsmanager").get_secret_value(SecretId=name).get("SecretString", ""))
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        raise SourceError(f"secret {name!r} could not be read ({code})") from error
    except (NoCredentialsError, ProfileNotFound) as error:
        raise CredentialsError(f"there are no AWS credentials to read secret {name!r} with: {error}") from error
    except BotoCoreError as error:
        raise SourceError(f"secret {name!r} could not be read ({type(error).__name__})") from error
    if not value:
        raise SourceError(f"secret {name!r} has no text value")
    _cache[name] = (time.monotonic(), value)
    return value


def clear_cache() -> None:
    """Forget all cached secrets, so that they are read again."""
    _cache.clear()
