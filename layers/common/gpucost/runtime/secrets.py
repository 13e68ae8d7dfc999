"""Secrets by name, from Secrets Manager; kept for some minutes, never logged."""

import time

from gpucost.core.errors import CredentialsError, SourceError
from gpucost.runtime import aws

MAX_AGE_SECONDS = 300.0
"""A rotated secret is picked up within this time, without a deploy."""

_kept: dict[str, tuple[float, str]] = {}


def secret_value(name: str) -> str:
    """The text of a secret.

    Raises:
        SourceError: it is not there, is empty, or may not be read; names the secret, never its value.
    """
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ProfileNotFound

    kept_at, value = _kept.get(name, (0.0, ""))
    if value and time.monotonic() - kept_at < MAX_AGE_SECONDS:
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
        raise SourceError(f"secret {name!r} holds no text")
    _kept[name] = (time.monotonic(), value)
    return value


def clear_cache() -> None:
    """Ask for every secret anew."""
    _kept.clear()
