"""Checks where a secret may be sent: over https or to this machine, and only to the origin that the secret names.

Redirects are never followed (see `bounded_http`).
"""

from ipaddress import ip_address
from typing import NamedTuple

import requests
from requests.models import PreparedRequest
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from gpucost.core.errors import SourceError

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
