"""Headers that settings may add to the queries of a Prometheus."""

import re
from typing import Annotated

from pydantic import AfterValidator

from gpucost.settings.section import matching_pattern

_SECRET_WORDS = frozenset(("apikey", "auth", "cookie", "credential", "key", "password", "secret", "session", "token"))
_RESERVED_HEADERS = frozenset(
    (
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "user-agent",
    )
)
"""Headers that the client itself sets, or that describe its connection."""


def _is_not_reserved(name: str) -> str:
    lower_name = name.lower()
    if lower_name in {"authorization", "proxy-authorization"}:
        raise ValueError(f"{name} is not allowed; use auth: bearer with a secret, or auth: sigv4")
    if lower_name in _RESERVED_HEADERS or lower_name.startswith("x-amz-"):
        raise ValueError(f"{name} is not allowed, because gpucost sets it itself; remove it")
    return name


HeaderName = Annotated[
    str,
    matching_pattern(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}", "a header's name without spaces or colons: X-Scope-OrgID"),
    AfterValidator(_is_not_reserved),
]
HeaderValue = Annotated[
    str, matching_pattern(r"[!-~]([ -~]{0,998}[!-~])?", "1 to 1000 printable ASCII characters, not spaces at its ends")
]


def carries_secret(name: str) -> bool:
    """Whether a header's name says that its value is a secret, for example `X-Api-Key`."""
    return not _SECRET_WORDS.isdisjoint(re.split(r"[^a-z0-9]+", name.lower()))
