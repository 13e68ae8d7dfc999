"""Bearer tokens and headers from secrets that name the address to which they may be sent.

A secret's value is `{"url": "https://host.example.com", "token": "…"}`, or has `user` and `password` for basic
authentication in place of `token`. Settings name the secret and an address.
Anyone who may change the settings could combine a secret with an address of their own. Therefore the secret's `url`
decides, which only those who may write the secret can change (docs/how-to/access.md).
"""

import json
from base64 import b64encode
from collections.abc import Callable

from requests.auth import AuthBase
from requests.models import PreparedRequest

from gpucost.core.errors import SourceError
from gpucost.runtime.secret_destinations import WebOrigin, check_destination, origin_of

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
