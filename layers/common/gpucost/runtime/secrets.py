"""Reads secrets from Secrets Manager and caches them for some minutes. Values are never logged."""

import time
from collections.abc import Callable
from typing import Any

from gpucost.core.errors import CredentialsError, SourceError

MAX_AGE_SECONDS = 300.0
"""A rotated secret is picked up within this time, without a deploy."""


class Secrets:
    """Secrets by name, each cached for some minutes.

    Args:
        client: makes the client of a service.
        monotonic: the clock that ages the cache, in seconds.
    """

    def __init__(self, client: Callable[[str], Any], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._client = client
        self._monotonic = monotonic
        self._cache: dict[str, tuple[float, str]] = {}

    def value(self, name: str) -> str:
        """Read the text of a secret.

        Raises:
            SourceError: the secret does not exist, is empty, or may not be read. The message never has its value.
        """
        from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, NoRegionError, ProfileNotFound

        cached_at, value = self._cache.get(name, (0.0, ""))
        if value and self._monotonic() - cached_at < MAX_AGE_SECONDS:
            return value
        try:
            value = str(self._client("secretsmanager").get_secret_value(SecretId=name).get("SecretString", ""))
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "unknown")
            raise SourceError(f"secret {name!r} could not be read ({code})") from error
        except (NoCredentialsError, ProfileNotFound) as error:
            raise CredentialsError(f"there are no AWS credentials to read secret {name!r} with: {error}") from error
        except NoRegionError as error:
            raise CredentialsError(f"there is no AWS region to read secret {name!r} in. Set AWS_REGION") from error
        except BotoCoreError as error:
            raise SourceError(f"secret {name!r} could not be read ({type(error).__name__})") from error
        if not value:
            raise SourceError(f"secret {name!r} has no text value. Store it as SecretString")
        self._cache[name] = (self._monotonic(), value)
        return value
