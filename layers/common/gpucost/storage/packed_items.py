"""Compressed documents in chunks that fit an item. Each chunk has the number of the generation that wrote it."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from gpucost.core.errors import ConflictError
from gpucost.storage import compressed_documents
from gpucost.storage.conditions import MISSING, Condition, equals
from gpucost.storage.table import SCHEMA_VERSION, ConditionalPut, Item, check_schema_version, integer, key, text

MAX_ATTEMPTS = 5
"""How often an action is tried if other writers interfere."""
T = TypeVar("T")


class PackedDocument:
    """A document as it was read. `generation` is 0 if it was never written."""

    def __init__(self) -> None:
        self.generation = 0
        self.chunks: list[Item] = []

    def add_chunk(self, item: Item) -> None:
        """Add the next chunk.

        Raises:
            ConflictError: the chunks are of two generations, because the document is being written.
        """
        check_schema_version(item)
        generation = integer(item, "n")
        if self.chunks and generation != self.generation:
            raise ConflictError(f"{text(item, 'pk')} {text(item, 'sk')} is being written")
        self.generation = generation
        self.chunks.append(item)

    def read(self, empty: Any) -> Any:
        """Return the decompressed document, or `empty` if it was never written."""
        return compressed_documents.unpack(self.chunks) if self.chunks else empty


def chunk_items(pk: str, name: str, chunks: Sequence[bytes], generation: int, expires_at: int = 0) -> list[Item]:
    """Return a document's items, with the sort keys `<name>#0000` and so on."""
    expiry = {"expires_at": {"N": str(expires_at)}} if expires_at else {}
    return [
        {
            **key(pk, chunk_sort_key(name, number)),
            "v": {"N": str(SCHEMA_VERSION)},
            "n": {"N": str(generation)},
            "b": {"B": chunk},
            **expiry,
        }
        for number, chunk in enumerate(chunks)
    ]


def chunk_sort_key(name: str, number: int) -> str:
    """Return the sort key of a chunk."""
    return f"{name}#{number:04d}"


def generation_condition(generation: int) -> Condition:
    """Return the condition that an item still has the generation that was read."""
    return equals("n", generation) if generation else MISSING


def replacing_puts(pk: str, name: str, chunks: Sequence[bytes], replacing: int) -> list[ConditionalPut]:
    """Return the writes that replace the generation that was read."""
    first, *others = chunk_items(pk, name, chunks, replacing + 1)
    return [(first, generation_condition(replacing)), *((item, None) for item in others)]


def retry_conflicts(action: Callable[[], T]) -> T:
    """Repeat an action that fails because another writer wrote first.

    Raises:
        ConflictError: other writers keep interfering.
    """
    for _ in range(MAX_ATTEMPTS - 1):
        with suppress(ConflictError):
            return action()
    return action()
