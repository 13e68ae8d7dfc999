"""Documents that outgrow an item: the first piece in the document's own item, the others beside it, written together.

| item | sk |
| --- | --- |
| head, with the first piece and how many there are (`k`) | `<sk>` |
| further piece | `<sk>#<place>` |

Every piece carries the head's mark (a version, a digest), so that a reader who catches pieces of two writings knows it.
A document of one piece is one item without `k`. Pieces beyond `k` are left over from a longer writing and mean nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpucost.core.errors import ConflictError, SourceError
from gpucost.storage.compressed_documents import CHUNK_BYTES
from gpucost.storage.table import ConditionalPut, Item, Table, integer, key, text

MAX_CHUNKS = 12
"""3.6 MB compressed, of the 4 MB that a transaction takes."""


def document_items(head: Item, data: bytes, mark: Item) -> list[Item]:
    """A document's items.

    Args:
        head: its item, without the document.
        data: the document, compressed.
        mark: attributes that tell this writing from others.

    Raises:
        SourceError: a transaction does not hold it.
    """
    pieces = [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)] or [b""]
    pk, sk = text(head, "pk"), text(head, "sk")
    if len(pieces) > MAX_CHUNKS:
        raise SourceError(
            f"the ledger's item {pk} {sk} is too large: {len(data):,} bytes compressed, and {MAX_CHUNKS * CHUNK_BYTES:,} fit"
        )
    count: Item = {"k": {"N": str(len(pieces))}} if len(pieces) > 1 else {}
    end = {name: head[name] for name in ("v", "expires_at") if name in head}
    return [
        {**head, **mark, **count, "b": {"B": pieces[0]}},
        *(
            {**key(pk, chunk_sort_key(sk, place)), **end, **mark, "b": {"B": piece}}
            for place, piece in enumerate(pieces[1:], start=1)
        ),
    ]


def chunk_sort_key(sk: str, place: int) -> str:
    """The sort key of a further piece."""
    return f"{sk}#{place:02d}"


def put(
    table: Table,
    items: Sequence[Item],
    condition: str,
    values: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    previous_chunks: int = 1,
) -> None:
    """Write a document's items on a condition on its head, all or none.

    Args:
        table: the ledger's.
        items: of `items_of`.
        condition: on the head.
        values: the condition's values.
        pieces_before: of the writing that the condition stands for; those that are left over expire at once.

    Raises:
        ConflictError: the condition does not hold.
    """
    head, *others = items
    pk, sk = text(head, "pk"), text(head, "sk")
    surplus: list[Item] = [
        {**key(pk, chunk_sort_key(sk, place)), "v": head["v"], "expires_at": {"N": "1"}}
        for place in range(len(items), previous_chunks)
    ]
    if not others and not surplus:
        table.put(head, condition, values) if condition else table.put_all([head])
        return
    puts: list[ConditionalPut] = [(head, condition, values), *((item, "", None) for item in (*others, *surplus))]
    table.transact(puts)


def joined_chunks(head: Item, others: Iterable[Item], mark: str) -> bytes:
    """The document of a head and its further pieces, in order.

    Args:
        head: as it was read.
        others: as they were read; those that are left over may be among them.
        mark: the attribute that tells writings apart.

    Raises:
        ConflictError: they are not of one writing; reading again helps.
    """
    count = integer(head, "k") or 1
    by_sk = {text(piece, "sk"): piece for piece in others}
    pieces = [head, *(by_sk.get(chunk_sort_key(text(head, "sk"), place), {}) for place in range(1, count))]
    if any(piece.get(mark) != head.get(mark) for piece in pieces):
        raise ConflictError(f"{text(head, 'pk')} {text(head, 'sk')} is being written")
    return b"".join([piece["b"]["B"] for piece in pieces])
