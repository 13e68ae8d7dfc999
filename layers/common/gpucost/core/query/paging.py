"""Cursors for pages of one response; a cursor is valid only for the same query on the same figures.

A cursor has the offset of the next page and a digest of the query, the caller's scope, the versions of the summed
hours and the offset. It grants no access: the next page is computed again, with the scope of its caller.
"""

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from contextlib import suppress

from gpucost.core.errors import ParameterError

_MAX_CURSOR_LENGTH = 200
_DIGEST_LENGTH = 32


def etag_of_query(query: str, versions: Iterable[str]) -> str:
    """Return the digest of a query and of the versions of the hours that it sums."""
    digest = hashlib.sha256(query.encode())
    for version in sorted(versions):
        digest.update(b"\n" + version.encode())
    return digest.hexdigest()


def write_cursor(offset: int, etag: str) -> str:
    """Return the cursor for the page that starts at an offset (in rows) of a response."""
    return _encode(offset, _digest(offset, etag))


def check_cursor(cursor: str | None) -> int:
    """Return the offset that a cursor names, before any data is read that shows whether it is of this query.

    Raises:
        ParameterError: no response returned this cursor.
    """
    return 0 if cursor is None else _decode(cursor)[0]


def read_cursor(cursor: str | None, etag: str) -> int:
    """Return the offset of a cursor; 0 without one.

    Raises:
        ParameterError: the cursor is malformed or of another query, or figures have changed since.
    """
    if cursor is None:
        return 0
    offset, digest = _decode(cursor)
    if digest != _digest(offset, etag):
        raise ParameterError(
            "cursor", "is of another query, or figures of the period have changed since; start again without cursor"
        )
    return offset


def _decode(cursor: str) -> tuple[int, str]:
    decoded: object = None
    if len(cursor) <= _MAX_CURSOR_LENGTH and cursor.isascii():
        with suppress(ValueError, RecursionError):
            decoded = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    match decoded:
        # Several texts decode to the same bytes in Base64; only the one that was returned is valid.
        case [int(offset), str(digest)] if offset > 0 and _encode(offset, digest) == cursor:
            return offset, digest
    raise ParameterError("cursor", "is invalid; pass the cursor of a previous response unchanged")


def _encode(offset: int, digest: str) -> str:
    return urlsafe_b64encode(json.dumps([offset, digest]).encode()).decode().rstrip("=")


def _digest(offset: int, etag: str) -> str:
    return hashlib.sha256(f"{offset}\n{etag}".encode()).hexdigest()[:_DIGEST_LENGTH]
