"""Documents that may outgrow an item: in its own item and further ones, or (below) in items of one generation.

| item | sk |
| --- | --- |
| head: the first chunk, and how many chunks there are (`k`) | `<sk>` |
| further chunk | `<sk>#<number>` |

All items are written in one transaction. Each carries the same mark (a version or a digest), so that a reader notices
if it read chunks of two different writes. A document of one chunk is one item without `k`. Chunks beyond `k` are left
over from a longer document and are ignored.
"""

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from gpucost.core.errors import ConflictError, SourceError
from gpucost.storage import compressed_documents
from gpucost.storage.compressed_documents import CHUNK_BYTES
from gpucost.storage.ports import Table
from gpucost.storage.table import (
    MISSING,
    SCHEMA_VERSION,
    Condition,
    ConditionalPut,
    Item,
    check_schema_version,
    equals,
    integer,
    key,
    text,
)

MAX_CHUNKS = 12
"""3.6 MB compressed; a transaction takes 4 MB."""


def document_items(head: Item, data: bytes, mark: Item) -> list[Item]:
    """Return the items of a document.

    Args:
        head: the document's item, without the document.
        data: the compressed document.
        mark: attributes that identify this write.

    Raises:
        SourceError: the document is too large for a transaction.
    """
    chunks = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)] or [b""]
    pk, sk = text(head, "pk"), text(head, "sk")
    if len(chunks) > MAX_CHUNKS:
        raise SourceError(
            f"the ledger's item {pk} {sk} is too large: {len(data):,} bytes compressed; "
            f"at most {MAX_CHUNKS * CHUNK_BYTES:,} fit"
        )
    count: Item = {"k": {"N": str(len(chunks))}} if len(chunks) > 1 else {}
    shared = {name: head[name] for name in ("v", "expires_at") if name in head}
    return [
        {**head, **mark, **count, "b": {"B": chunks[0]}},
        *(
            {**key(pk, _further_sort_key(sk, number)), **shared, **mark, "b": {"B": chunk}}
            for number, chunk in enumerate(chunks[1:], start=1)
        ),
    ]


def _further_sort_key(sk: str, number: int) -> str:
    """Return the sort key of a further chunk."""
    return f"{sk}#{number:02d}"


def put_document(table: Table, items: Sequence[Item], condition: Condition | None, *, previous_chunks: int = 1) -> None:
    """Write all of a document's items if a condition on its head holds.

    Args:
        table: the ledger's.
        items: of `document_items`.
        condition: on the head; None for none.
        previous_chunks: how many chunks the replaced document has; surplus ones expire at once.

    Raises:
        ConflictError: the condition does not hold.
    """
    head, *others = items
    pk, sk = text(head, "pk"), text(head, "sk")
    surplus: list[Item] = [
        {**key(pk, _further_sort_key(sk, number)), "v": head["v"], "expires_at": {"N": "1"}}
        for number in range(len(items), previous_chunks)
    ]
    if not others and not surplus:
        table.put(head, condition) if condition else table.put_all([head])
        return
    puts: list[ConditionalPut] = [(head, condition), *((item, None) for item in (*others, *surplus))]
    table.transact(puts)


def join_chunks(head: Item, others: Iterable[Item], mark: str) -> bytes:
    """Join the chunks of a document.

    Args:
        head: the document's item, as it was read.
        others: items of further chunks, as they were read; surplus ones are ignored.
        mark: the attribute that identifies a write.

    Raises:
        ConflictError: the chunks are of different writes; reading again helps.
    """
    count = integer(head, "k") or 1
    by_sort_key = {text(item, "sk"): item for item in others}
    chunks = [head, *(by_sort_key.get(_further_sort_key(text(head, "sk"), number), {}) for number in range(1, count))]
    if any(chunk.get(mark) != head.get(mark) for chunk in chunks):
        raise ConflictError(f"{text(head, 'pk')} {text(head, 'sk')} is being written")
    return b"".join([chunk["b"]["B"] for chunk in chunks])


# Compressed documents in chunks that fit an item. Each chunk has the number of the generation that wrote it.

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
