"""Where a secret may be sent: to https or the machine itself, to the origin that the secret names, and no further."""

from ipaddress import ip_address
from typing import Any, NamedTuple

import requests
from requests.models import PreparedRequest
from urllib3.exceptions import LocationParseError
from urllib3.util import parse_url

from gpucost.errors import SourceError

_PORTS = {"https": 443, "http": 80}
_LONGEST = 200


class Origin(NamedTuple):
    """Scheme, host and port of an address, as `requests` connects to it."""

    scheme: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.port == _PORTS[self.scheme] else f":{self.port}")

    @property
    def protects_secrets(self) -> bool:
        """Whether what is sent there can be read on the way: not with TLS, and not on the machine itself."""
        return self.scheme == "https" or _is_loopback(self.host)


def origin_of(address: str) -> Origin | None:
    """The origin of an http or https address; None where it is none.

    The parser is urllib3's, which opens the connection: another one could read another host from the same text.
    """
    try:
        prepared = requests.Request("GET", address).prepare().url or ""
        parts = parse_url(prepared)
    except (requests.RequestException, LocationParseError, UnicodeError):
        return None
    if parts.scheme not in _PORTS or not parts.host:
        return None
    return Origin(parts.scheme, parts.host.strip("[]"), parts.port or _PORTS[parts.scheme])


def check_destination(request: PreparedRequest) -> Origin:
    """The origin of a request that is to carry a secret; a redirect of it will not be followed.

    Raises:
        SourceError: it goes over plain http to another machine.
    """
    origin = origin_of(request.url or "")
    if origin is None or not origin.protects_secrets:
        raise SourceError(f"{origin} has no TLS, and credentials are sent to https only: use an https:// address")
    request.register_hook("response", _refuse_redirect)
    return origin


def _refuse_redirect(response: requests.Response, **_: Any) -> None:
    """`requests` calls this before it follows a redirect, which may lead to another host.

    Raises:
        SourceError: the answer is a redirect.
    """
    if response.is_redirect:
        target = "".join(filter(str.isprintable, response.headers.get("Location", "")))[:_LONGEST]
        raise SourceError(
            f"{origin_of(response.url)} redirects to {target!r} (HTTP {response.status_code}), and credentials are not "
            "sent after a redirect: put the final address into the settings"
        )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
