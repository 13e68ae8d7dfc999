"""Lines and summaries as compressed JSON, in pieces that fit an item."""

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
"""Bytes; an item holds 400 KB at most."""


def pack(document: Any) -> list[bytes]:
    """A document as compressed pieces."""
    data = zlib.compress(json.dumps(document, separators=(",", ":"), ensure_ascii=False, default=str).encode())
    return [data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)]


def unpack(items: Sequence[Item], read: Callable[[Any], T] = lambda document: document) -> T:
    """The document of the items that hold its pieces, in order.

    Args:
        items: at least one.
        read: makes of the document what is wanted.

    Raises:
        IntegrityError: a piece is missing or not what was written.
    """
    with verify_integrity(items[0]):
        return read(json.loads(zlib.decompress(b"".join([item["b"]["B"] for item in items]))))


def summary_document(summary: HourSummary) -> dict[str, Any]:
    """What a summary holds beyond its manifest and its totals."""
    return {"groups": [[unit, namespace, _row(costs)] for (unit, namespace), costs in summary.groups.items()]}


def totals_document(totals: Totals | None) -> dict[str, Any]:
    """Totals as rows of amounts."""
    return {
        "costs": _row(totals.costs) if totals else None,
        "capacity": _row(totals.capacity) if totals and totals.capacity else None,
    }


def read_totals(document: dict[str, Any]) -> Totals | None:
    """Back from `totals_document`."""
    if document["costs"] is None:
        return None
    capacity = document["capacity"]
    return Totals(
        Costs(*map(Decimal, document["costs"])), None if capacity is None else Capacity(*map(Decimal, capacity))
    )


def totals_text(totals: Totals) -> str:
    """Totals as an attribute of their own, beside what is packed."""
    return json.dumps([_row(totals.costs), _row(totals.capacity) if totals.capacity else None], default=str)


def read_totals_text(text: str) -> Totals:
    """Back from `totals_text`."""
    costs, capacity = json.loads(text)
    return Totals(Costs(*map(Decimal, costs)), None if capacity is None else Capacity(*map(Decimal, capacity)))


def read_groups(items: Sequence[Item]) -> Mapping[tuple[str, str], Costs]:
    """The groups of `summary_document` from its items; without one there are none."""
    return _Groups(items)


class _Groups(Mapping[tuple[str, str], Costs]):
    """Unpacked when somebody looks at them: who wants an hour's totals alone does not."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = items

    @cached_property
    def _known(self) -> dict[tuple[str, str], Costs]:
        return unpack(self._items, _groups) if self._items else {}

    def __getitem__(self, key: tuple[str, str]) -> Costs:
        return self._known[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    def items(self) -> ItemsView[tuple[str, str], Costs]:
        return self._known.items()


def _groups(document: dict[str, Any]) -> dict[tuple[str, str], Costs]:
    return {(unit, namespace): Costs(*map(Decimal, row)) for unit, namespace, row in document["groups"]}


def nodes_document(record: HourRecord) -> dict[str, Any]:
    """What each node of an hour cost, and what was paid for without one."""
    return {
        "nodes": [
            [_row(value) if isinstance(value, Amounts) else value for value in row(node)] for node in record.nodes
        ],
        "charges": [row(charge) for charge in record.charges],
    }


def read_nodes(document: dict[str, Any]) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
    """Back from `nodes_document`."""
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
    """What changed, and why."""
    return {
        "why": restatement.reason,
        "before": totals_document(restatement.before),
        "after": totals_document(restatement.after),
        "units": [[unit, _row(before), _row(after)] for unit, (before, after) in restatement.units.items()],
    }


def read_changed_units(document: dict[str, Any]) -> dict[str, tuple[Costs, Costs]]:
    """The business units of `restatement_document`."""
    return {
        unit: (Costs(*map(Decimal, before)), Costs(*map(Decimal, after))) for unit, before, after in document["units"]
    }


def row(record: Any) -> list[Any]:
    """A record's values in the order of its fields."""
    return [getattr(record, field.name) for field in fields(record)]


def _row(amounts: Amounts) -> list[Decimal]:
    return [getattr(amounts, name) for name in amounts.names()]
