"""Compresses documents as JSON, in chunks that fit an item, and reads them: summaries, nodes, restatements."""

import json
import zlib
from collections.abc import Callable, ItemsView, Iterator, Mapping, Sequence
from dataclasses import fields
from decimal import Decimal
from functools import cached_property
from typing import Any, TypeVar

from gpucost.core.ledger import HourSummary, Restatement
from gpucost.core.model import Amounts, Capacity, ClusterCharge, Costs, HourRecord, NodeHour, Totals
from gpucost.storage.table import Item, verify_integrity

T = TypeVar("T")
CHUNK_BYTES = 300_000
"""An item holds 400 KB at most."""


def pack(document: Any) -> list[bytes]:
    """Compress a document into chunks."""
    data = zlib.compress(json.dumps(document, separators=(",", ":"), ensure_ascii=False, default=str).encode())
    return [data[start : start + CHUNK_BYTES] for start in range(0, len(data), CHUNK_BYTES)]


def unpack(items: Sequence[Item], read: Callable[[Any], T] = lambda document: document) -> T:
    """Decompress the document in some items.

    Args:
        items: the items of its chunks, in order; at least one.
        read: converts the document.

    Raises:
        IntegrityError: a chunk is missing or damaged.
    """
    with verify_integrity(items[0]):
        return read(json.loads(zlib.decompress(b"".join([item["b"]["B"] for item in items]))))


def summary_document(summary: HourSummary) -> dict[str, Any]:
    """Return the groups of a summary as JSON types. The manifest and the totals are stored elsewhere."""
    return {"groups": [[unit, namespace, _row(costs)] for (unit, namespace), costs in summary.groups.items()]}


def totals_document(totals: Totals | None) -> dict[str, Any]:
    """Return totals as rows of amounts."""
    return {
        "costs": _row(totals.costs) if totals else None,
        "capacity": _row(totals.capacity) if totals and totals.capacity else None,
    }


def read_totals(document: dict[str, Any]) -> Totals | None:
    """Read what `totals_document` returned."""
    if document["costs"] is None:
        return None
    capacity = document["capacity"]
    return Totals(
        Costs(*map(Decimal, document["costs"])), None if capacity is None else Capacity(*map(Decimal, capacity))
    )


def totals_text(totals: Totals) -> str:
    """Return totals as text, for an attribute that is not compressed."""
    return json.dumps([_row(totals.costs), _row(totals.capacity) if totals.capacity else None], default=str)


def read_totals_text(text: str) -> Totals:
    """Read what `totals_text` returned."""
    costs, capacity = json.loads(text)
    return Totals(Costs(*map(Decimal, costs)), None if capacity is None else Capacity(*map(Decimal, capacity)))


def read_groups(items: Sequence[Item]) -> Mapping[tuple[str, str], Costs]:
    """Return the groups of a summary, by business unit and namespace, from its items; none without items."""
    return _Groups(items)


class _Groups(Mapping[tuple[str, str], Costs]):
    """Decompresses the groups on first use, because many readers need only the totals."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], Costs]:
        return unpack(self._items, _groups) if self._items else {}

    def __getitem__(self, key: tuple[str, str]) -> Costs:
        return self._by_name[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def items(self) -> ItemsView[tuple[str, str], Costs]:
        return self._by_name.items()


def _groups(document: dict[str, Any]) -> dict[tuple[str, str], Costs]:
    return {(unit, namespace): Costs(*map(Decimal, row)) for unit, namespace, row in document["groups"]}


def nodes_document(record: HourRecord) -> dict[str, Any]:
    """Return an hour's nodes and its charges that belong to no node, as JSON types."""
    return {
        "nodes": [
            [_row(field) if isinstance(field, Amounts) else field for field in row(node)] for node in record.nodes
        ],
        "charges": [row(charge) for charge in record.charges],
    }


def read_nodes(document: dict[str, Any]) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
    """Read what `nodes_document` returned."""
    nodes = []
    for *facts, billed, allocated, capacity in document["nodes"]:
        amounts: list[Any] = [None if billed is None else Decimal(billed), Decimal(allocated)]
        nodes.append(NodeHour(*[*facts, *amounts, Capacity(*map(Decimal, capacity))]))
    charges = tuple(
        ClusterCharge(kind, reference, Decimal(amount), currency, None if hours is None else Decimal(hours))
        for kind, reference, amount, currency, hours in document["charges"]
    )
    return tuple(nodes), charges


def restatement_document(restatement: Restatement) -> dict[str, Any]:
    """Return the reason and the changes of a restatement as JSON types."""
    return {
        "reason": restatement.reason,
        "before": totals_document(restatement.before),
        "after": totals_document(restatement.after),
        "units": [[unit, _row(before), _row(after)] for unit, (before, after) in restatement.units.items()],
    }


def read_changed_units(document: dict[str, Any]) -> dict[str, tuple[Costs, Costs]]:
    """Read the costs before and after of each changed business unit from a restatement's document."""
    return {
        unit: (Costs(*map(Decimal, before)), Costs(*map(Decimal, after))) for unit, before, after in document["units"]
    }


def row(record: Any) -> list[Any]:
    """Return a record's field values in order."""
    return [getattr(record, field.name) for field in fields(record)]


def _row(amounts: Amounts) -> list[Decimal]:
    return [getattr(amounts, name) for name in amounts.names()]
