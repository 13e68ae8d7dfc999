"""Compresses documents as JSON, in chunks that fit an item, and reads them: summaries, nodes, restatements."""

import json
import zlib
from collections.abc import Callable, Sequence
from operator import index
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple

from gpucost.core.amounts import Amounts, CapacityCosts, Costs, Totals
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.hour_record import ClusterCharge, HourRecord, ModelHour, ModelKey, NodeHour
from gpucost.core.ledger import Restatement
from gpucost.storage.table import Item, verify_integrity

T = TypeVar("T")
CHUNK_BYTES = 300_000
"""An item holds 400 KB at most."""


def pack(document: Any, chunk_bytes: int = CHUNK_BYTES) -> list[bytes]:
    """Compress a document into chunks."""
    data = zlib.compress(json.dumps(document, separators=(",", ":"), ensure_ascii=False, default=str).encode())
    return [data[start : start + chunk_bytes] for start in range(0, len(data), chunk_bytes)]


def unpack(items: Sequence[Item], read: Callable[[Any], T] = lambda document: document) -> T:
    """Decompress the document in some items.

    Args:
        items: the items of its chunks, in order; at least one.
        read: converts the document.

    Raises:
        IntegrityError: a chunk is missing or damaged.
    """
    with verify_integrity(items[0]):
        return read(msgspec.json.decode(zlib.decompress(b"".join([item["b"]["B"] for item in items]))))


def groups_document(groups: CostsByKey[tuple[str, str]]) -> dict[str, Any]:
    """Return an hour's costs by (business unit, namespace) as JSON types, without amounts that all of them lack."""
    count = max((len(_amounts(costs)) for costs in groups.values()), default=0)
    return {"groups": [[unit, namespace, *astuple(costs)[:count]] for (unit, namespace), costs in groups.items()]}


def totals_document(totals: Totals | None) -> list[Any] | None:
    """Return totals as rows of amounts: costs, and capacity or None."""
    if totals is None:
        return None
    return [_amounts(totals.costs), None if totals.capacity is None else _amounts(totals.capacity)]


def _amounts(record: Amounts) -> tuple[int, ...]:
    """Return a record's amounts without the zeros at the end, to which amounts default."""
    amounts = astuple(record)
    count = next((count for count in range(len(amounts), 0, -1) if amounts[count - 1]), 0)
    return amounts[:count]


def read_totals(document: list[Any] | None) -> Totals | None:
    """Read what `totals_document` returned."""
    if document is None:
        return None
    costs, capacity = document
    # `index` refuses what is not an integer: this text has no checksum.
    return Totals(Costs(*map(index, costs)), None if capacity is None else CapacityCosts(*map(index, capacity)))


def totals_text(totals: Totals) -> str:
    """Return totals as text, for an attribute that is not compressed."""
    return json.dumps(totals_document(totals), separators=(",", ":"))


def read_totals_text(text: str) -> Totals | None:
    """Read what `totals_text` returned."""
    return read_totals(msgspec.json.decode(text))


def read_summary_costs(items: Sequence[Item]) -> CostsByKey[tuple[str, str]]:
    """Return the costs of a summary from its items; none without items.

    They are decompressed on first use, because many readers need only the totals.
    """
    return CostsByKey.deferred(lambda: unpack(items, _groups)) if items else CostsByKey()


def _groups(document: dict[str, Any]) -> CostsByKey[tuple[str, str]]:
    if not document["groups"]:
        return CostsByKey()
    units, namespaces, *columns = zip(*document["groups"], strict=True)
    added = [[0] * len(units)] * (len(Costs.names()) - len(columns))  # amounts that all rows lack
    return CostsByKey(zip(units, namespaces, strict=True), [*columns, *added])


def nodes_document(record: HourRecord) -> dict[str, Any]:
    """Return an hour's nodes and its charges that belong to no node, as JSON types."""
    return {
        "nodes": [
            [_amounts(field) if isinstance(field, CapacityCosts) else field for field in _node_fields(node)]
            for node in record.nodes
        ],
        "charges": [*map(astuple, record.charges)],
    }


def read_nodes(document: dict[str, Any]) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
    """Read what `nodes_document` returned."""
    nodes = tuple(_node(row) for row in document["nodes"])
    return nodes, tuple(ClusterCharge(*charge) for charge in document["charges"])


def models_document(models: Sequence[ModelHour]) -> list[list[Any]]:
    """Return an hour's costs by model as JSON types."""
    return [[*model.key, *model[2:], *_amounts(model.costs)] for model in models]


def _node_fields(node: NodeHour) -> tuple[Any, ...]:
    """Return a node's fields, the last only if it is not blank, which is rare."""
    fields = astuple(node)
    return fields if node.instance_type_source else fields[:-1]


def _node(row: list[Any]) -> NodeHour:
    *facts, capacity = row if isinstance(row[-1], list) else row[:-1]
    source = "" if isinstance(row[-1], list) else row[-1]
    return NodeHour(*[*facts, CapacityCosts(*capacity), source])


def read_models(document: list[list[Any]]) -> tuple[ModelHour, ...]:
    """Read what `models_document` returned."""
    keys, counts = len(ModelKey._fields), len(ModelHour._fields) - 2
    return tuple(
        ModelHour(ModelKey(*row[:keys]), Costs(*row[keys + counts :]), *row[keys : keys + counts]) for row in document
    )


def restatement_document(restatement: Restatement) -> dict[str, Any]:
    """Return the reason and the changes of a restatement as JSON types."""
    return {
        "reason": restatement.reason,
        "before": totals_document(restatement.before),
        "after": totals_document(restatement.after),
        "units": [
            [unit, _amounts(before), _amounts(after)] for unit, (before, after) in restatement.changed_units.items()
        ],
    }


def read_changed_units(document: dict[str, Any]) -> dict[str, tuple[Costs, Costs]]:
    """Read the costs before and after of each changed business unit from a restatement's document."""
    return {unit: (Costs(*before), Costs(*after)) for unit, before, after in document["units"]}
