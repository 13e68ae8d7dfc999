"""Compressed documents in pieces that fit an item, each piece with the generation that it was written in."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from gpucost.core.errors import ConflictError
from gpucost.storage import compressed_documents
from gpucost.storage.table import FORMAT, ConditionalPut, Item, check_format, integer, key, text

MAX_ATTEMPTS = 5
"""Of what others get in the way of."""
T = TypeVar("T")


class PackedDocument:
    """A document as it was read; `generation` is 0 where it was never written."""

    def __init__(self) -> None:
        self.generation = 0
        self.chunks: list[Item] = []

    def add(self, item: Item) -> None:
        """Take its next piece.

        Raises:
            ConflictError: the pieces are of two generations: it is being written at this moment.
        """
        check_format(item)
        generation = integer(item, "n")
        if self.chunks and generation != self.generation:
            raise ConflictError(f"{text(item, 'pk')} {text(item, 'sk')} is being written")
        self.generation = generation
        self.chunks.append(item)

    def read(self, empty: Any) -> Any:
        """What it holds."""
        return compressed_documents.unpack(self.chunks) if self.chunks else empty


def items(pk: str, name: str, pieces: Sequence[bytes], generation: int, expires_at: int = 0) -> list[Item]:
    """A document's items: `<name>#0000` and so on."""
    end = {"expires_at": {"N": str(expires_at)}} if expires_at else {}
    return [
        {**key(pk, sk(name, place)), "v": {"N": str(FORMAT)}, "n": {"N": str(generation)}, "b": {"B": piece}, **end}
        for place, piece in enumerate(pieces)
    ]


def sk(name: str, place: int) -> str:
    """The sort key of a piece."""
    return f"{name}#{place:04d}"


def unchanged_since(generation: int) -> tuple[str, dict[str, dict[str, str]] | None]:
    """The condition that an item is still of the generation that was read, with its values."""
    if generation:
        return "n = :generation", {":generation": {"N": str(generation)}}
    return "attribute_not_exists(pk)", None


def puts(pk: str, name: str, pieces: Sequence[bytes], replacing: int) -> list[ConditionalPut]:
    """A document in place of the generation that was read."""
    first, *others = items(pk, name, pieces, replacing + 1)
    return [(first, *unchanged_since(replacing)), *((item, "", None) for item in others)]


def retry_conflicts(action: Callable[[], T]) -> T:
    """Begin again where somebody else wrote first.

    Raises:
        ConflictError: others keep writing.
    """
    for _ in range(MAX_ATTEMPTS - 1):
        with suppress(ConflictError):
            return action()
    return action()
