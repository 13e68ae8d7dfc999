"""Pages of one answer, and cursors that fit no other: not another question's, nor the same one's on other figures.

A cursor is the place to go on from and a fingerprint of the question, the caller's scope, the versions of the hours
that were summed and that place. It grants nothing: the next page is worked out anew, for whoever asks for it then.
"""

import hashlib
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from contextlib import suppress

from gpucost.core.errors import ParameterError

_MAX_CURSOR_LENGTH = 200
_DIGEST_LENGTH = 32


def fingerprint(question: str, versions: Iterable[str]) -> str:
    """Of a question and the figures that answer it."""
    digest = hashlib.sha256(question.encode())
    for version in sorted(versions):
        digest.update(b"\n" + version.encode())
    return digest.hexdigest()


def write_cursor(offset: int, etag: str) -> str:
    """The cursor to go on from a place (rows from the start) of an answer."""
    return _encode(offset, _digest(offset, etag))


def check_cursor(cursor: str) -> None:
    """Refuse what cannot be a cursor, before anything is read.

    Raises:
        ParameterError: it is not one that an answer gave.
    """
    _decode(cursor)


def read_cursor(cursor: str | None, etag: str) -> int:
    """The place to go on from; 0 without a cursor.

    Raises:
        ParameterError: it is not one that an answer to this question gave, or figures have changed since.
    """
    if cursor is None:
        return 0
    offset, digest = _decode(cursor)
    if digest != _digest(offset, etag):
        raise ParameterError(
            "cursor",
            "is of another question, or figures of the period have changed since; ask again without it, from the start",
        )
    return offset


def _decode(cursor: str) -> tuple[int, str]:
    decoded: object = None
    if len(cursor) <= _MAX_CURSOR_LENGTH and cursor.isascii():
        with suppress(ValueError, RecursionError):
            decoded = json.loads(urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    match decoded:
        # Base64 reads one thing from many texts: only the very one that was given counts.
        case [int(offset), str(digest)] if offset > 0 and _encode(offset, digest) == cursor:
            return offset, digest
    raise ParameterError("cursor", "is not one that an answer gave")


def _encode(offset: int, digest: str) -> str:
    return urlsafe_b64encode(json.dumps([offset, digest]).encode()).decode().rstrip("=")


def _digest(offset: int, etag: str) -> str:
    return hashlib.sha256(f"{offset}\n{etag}".encode()).hexdigest()[:_DIGEST_LENGTH]
