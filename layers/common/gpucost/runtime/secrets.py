"""Secrets: read from Secrets Manager, and sent only to the address that each of them names."""

import json
import time
from base64 import b64encode
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, NamedTuple

import requests
from requests.auth import AuthBase
from requests.models import PreparedRequest
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from gpucost.core.errors import CredentialsError, SourceError

# Reads secrets from Secrets Manager and caches them for some minutes. Values are never logged.

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


# Checks where a secret may be sent: over https or to this machine, and only to the origin that the secret names.
#
# Redirects are never followed (see `bounded_http`).

_DEFAULT_PORTS = {"https": 443, "http": 80}


class WebOrigin(NamedTuple):
    """Scheme, host and port of an address, as `requests` connects to it."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _DEFAULT_PORTS[self.scheme] else f":{self.port}")

    @property
    def protects_secrets(self) -> bool:
        """Whether secrets sent there cannot be intercepted: with TLS, or on this machine."""
        return self.scheme == "https" or _is_loopback(self.host)


def origin_of(address: str) -> WebOrigin | None:
    """The origin of an http or https address; None for other texts.

    `bounded_http` connects to the same origin, because another parser could read another host from the same text.
    """
    try:
        prepared = requests.Request("GET", address).prepare().url or ""
        parts = parse_url(prepared)
    except (requests.RequestException, LocationParseError, UnicodeError):
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.host:
        return None
    return WebOrigin(parts.scheme, parts.host.strip("[]"), parts.port or _DEFAULT_PORTS[parts.scheme])


def check_destination(request: PreparedRequest) -> WebOrigin:
    """Check and return the origin of a request that carries a secret.

    Raises:
        SourceError: the request goes to another machine over plain http.
    """
    origin = origin_of(request.url or "")
    if origin is None or not origin.protects_secrets:
        raise SourceError(f"{origin} has no TLS, and credentials are sent over https only: use an https:// address")
    return origin


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


# Bearer tokens and headers from secrets that name the address to which they may be sent.
#
# A secret's value is `{"url": "https://host.example.com", "token": "…"}`, or has `user` and `password` for basic
# authentication in place of `token`. Settings name the secret and an address.
# Anyone who may change the settings could combine a secret with an address of their own. Therefore the secret's `url`
# decides, which only those who may write the secret can change (docs/how-to/access.md).

BEARER, BASIC = "Bearer ", "Basic "
_CONTENT_FORMAT = '{"url": "https://host.example.com", "token": "…"}'


class SecretHeaderAuth(AuthBase):
    """Sends a secret's token in a header, to the origin that the secret names.

    The secret is read for each request, so that it can rotate.

    Args:
        header: the header's name.
        secret: the secret's name.
        secret_value: returns a secret's value.
        prefix: text before the token.
    """

    def __init__(self, header: str, secret: str, secret_value: Callable[[str], str], prefix: str = "") -> None:
        self._header = header
        self._secret = secret
        self._secret_value = secret_value
        self._prefix = prefix

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        """Add the token to a request.

        Raises:
            SourceError: the secret is not for this address, or cannot be read. The message never has the token.
        """
        origin = check_destination(request)
        allowed, text = self._origin_and_text()
        if origin != allowed:
            raise SourceError(
                f"secret {self._secret!r} may be sent to {allowed} only, and the settings use it for {origin}: "
                "name the secret for that address, or change the url in the secret"
            )
        request.headers[self._header] = text
        return request

    def _origin_and_text(self) -> tuple[WebOrigin, str]:
        """Return where the secret may be sent, and the text of the header."""
        scheme = self._prefix
        try:
            document = json.loads(self._secret_value(self._secret))
            url = document["url"]
            if scheme == BEARER and "user" in document:
                scheme, token = BASIC, _basic_token(document["user"], document["password"])
            else:
                token = document["token"].strip()
        except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
            raise SourceError(
                f"secret {self._secret!r} does not say where its token may be sent: "
                f"store {_CONTENT_FORMAT} as its value"
            ) from error.with_traceback(None)
        origin = origin_of(url) if isinstance(url, str) else None
        if origin is None or not token.isascii() or not token.isprintable() or not token:
            raise SourceError(
                f"secret {self._secret!r} has no https address and token: store {_CONTENT_FORMAT} as its value"
            )
        return origin, f"{scheme}{token}"


def _basic_token(user: str, password: str) -> str:
    return b64encode(f"{user}:{password}".encode()).decode()


class BearerAuth(SecretHeaderAuth):
    """Sends a secret's token as a bearer token, or its user and password by basic authentication.

    Args:
        secret, secret_value: as for `SecretHeaderAuth`.
    """

    def __init__(self, secret: str, secret_value: Callable[[str], str]) -> None:
        super().__init__("Authorization", secret, secret_value, prefix=BEARER)
