"""One business unit's lines of an hour as items, and back.

A document has a column for each field, by its name, and a single value where all rows agree: a field may move, and a
later version may add one. Each item says how many pieces there are, so that a missing piece is noticed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from typing import Any

from gpucost.core.errors import IntegrityError, SourceError
from gpucost.core.line_use import LineUse
from gpucost.core.model import Line
from gpucost.storage import compressed_documents
from gpucost.storage.table import Item, check_format, integer, key, text

LINES_FORMAT = 2
_NAMES = Line._fields
_DECIMALS = {name for name, kind in Line.__annotations__.items() if "Decimal" in str(kind)}


class IncompleteLinesError(SourceError):
    """Pieces of a unit's lines are missing or damaged; reading again may help."""


def line_items(pk: str, group: str, lines: Sequence[Line], expires_at: int) -> list[Item]:
    """One unit's lines as items.

    Args:
        pk: the hour's partition of lines.
        group: run and unit: the sort keys' beginning.
        lines: of that unit.
        expires_at: seconds since the epoch.
    """
    columns = zip(_NAMES, zip(*lines, strict=True), strict=True)
    pieces = compressed_documents.pack(
        {"rows": len(lines), "columns": {name: _column(values) for name, values in columns}}
    )
    return [
        {
            **key(pk, f"{group}#{place:04d}"),
            "v": {"N": str(LINES_FORMAT)},
            "k": {"N": str(len(pieces))},
            "b": {"B": piece},
            "expires_at": {"N": str(expires_at)},
        }
        for place, piece in enumerate(pieces)
    ]


def read_line_items(items: Iterable[Item]) -> list[Line]:
    """The lines of all the items.

    Raises:
        IncompleteLinesError: a piece is missing or damaged.
        SourceError: a later version wrote them.
    """
    return [line for document in _documents(items) for line in _read_columns(document)]


def read_line_uses(items: Iterable[Item]) -> list[LineUse]:
    """The same lines as advice looks at them, in a third of the time.

    Raises:
        As `read_line_items`.
    """
    return [use for document in _documents(items) for use in _read_uses(document)]


def _documents(items: Iterable[Item]) -> Iterator[Any]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        check_format(item, LINES_FORMAT)
        groups.setdefault(_group_of(item), []).append(item)
    return map(_document, groups.values())


def _group_of(item: Item) -> str:
    """Run and unit of an item of lines."""
    return text(item, "sk").rsplit("#", 1)[0]


def _document(items: Sequence[Item]) -> Any:
    """A unit's document."""
    pieces = integer(items[0], "k")
    if len(items) != pieces:
        raise IncompleteLinesError(f"lines {text(items[0], 'pk')!r} are incomplete: {len(items)} of {pieces} pieces")
    try:
        return compressed_documents.unpack(items)
    except IntegrityError:
        raise IncompleteLinesError(f"lines {text(items[0], 'pk')!r} are not whole") from None


def _read_columns(document: Mapping[str, Any]) -> list[Line]:
    """Fields that only a later version knows are left out."""
    rows = document["rows"]
    columns = {
        name: [_value(name, one) for one in (told if isinstance(told, list) else [told] * rows)]
        for name, told in document["columns"].items()
        if name in _NAMES
    }
    return [Line(**dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]


def _read_uses(document: Mapping[str, Any]) -> Iterator[LineUse]:
    """The columns that advice looks at, and nothing exact: see decision 0043."""
    rows, told = document["rows"], document["columns"]
    columns: list[Iterable[Any]] = []
    for name in LineUse._fields:
        column = told[name]
        if not isinstance(column, list):
            columns.append(repeat(_as_float(name, column), rows))
        elif name in _DECIMALS:
            columns.append(map(_float, column))
        else:
            columns.append(column)
    return map(LineUse, *columns)


def _as_float(name: str, told: Any) -> Any:
    return _float(told) if name in _DECIMALS else told


def _float(told: str | None) -> float | None:
    return None if told is None else float(told)


def _column(values: Sequence[Any]) -> Any:
    """The values, or the one that all are; `1.0` equals `1` and is another text."""
    first = values[0]
    if values.count(first) < len(values) or (isinstance(first, Decimal) and len({*map(str, values)}) > 1):
        return values
    return first


def _value(name: str, told: Any) -> Any:
    return Decimal(told) if name in _DECIMALS and told is not None else told
