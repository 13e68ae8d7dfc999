"""Lines and summaries as compressed JSON, in pieces that fit an item."""

import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import fields
from decimal import Decimal
from typing import Any

from gpucost.domain.ledger import HourSummary
from gpucost.domain.model import Amounts, Capacity, Costs, Line, Totals

PIECE = 300_000
"""Bytes; an item holds 400 KB at most."""
_LINE_FIELDS = tuple(field.name for field in fields(Line))
_DECIMALS = {field.name for field in fields(Line) if "Decimal" in str(field.type)}


def pack(document: Any) -> list[bytes]:
    """A document as compressed pieces."""
    data = zlib.compress(json.dumps(document, separators=(",", ":"), ensure_ascii=False, default=str).encode())
    return [data[at : at + PIECE] for at in range(0, len(data), PIECE)]


def unpack(pieces: Iterable[bytes]) -> Any:
    """The document of all its pieces, in order."""
    return json.loads(zlib.decompress(b"".join(pieces)))


def lines_document(lines: Sequence[Line]) -> list[list[Any]]:
    """Lines as rows in the order of their fields; decimals as text, exact."""
    return [[getattr(line, name) for name in _LINE_FIELDS] for line in lines]


def read_lines(document: Iterable[Sequence[Any]]) -> list[Line]:
    """Back from `lines_document`."""
    return [Line(*map(_read, _LINE_FIELDS, row)) for row in document]


def summary_document(summary: HourSummary) -> dict[str, Any]:
    """What a summary holds beyond its manifest."""
    totals = summary.totals
    return {
        "costs": _row(totals.costs) if totals else None,
        "capacity": _row(totals.capacity) if totals and totals.capacity else None,
        "groups": [[unit, namespace, _row(costs)] for (unit, namespace), costs in summary.groups.items()],
    }


def read_totals(document: dict[str, Any]) -> Totals | None:
    """Back from `summary_document`."""
    if document["costs"] is None:
        return None
    capacity = document["capacity"]
    return Totals(
        Costs(*map(Decimal, document["costs"])), None if capacity is None else Capacity(*map(Decimal, capacity))
    )


def read_groups(document: dict[str, Any]) -> dict[tuple[str, str], Costs]:
    """Back from `summary_document`."""
    return {(unit, namespace): Costs(*map(Decimal, row)) for unit, namespace, row in document["groups"]}


def _row(amounts: Amounts) -> list[Decimal]:
    return [getattr(amounts, name) for name in amounts.names()]


def _read(field: str, value: Any) -> Any:
    return Decimal(value) if field in _DECIMALS and value is not None else value
