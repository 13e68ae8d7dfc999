"""Writes one business unit's lines of an hour as items, and reads them.

A document has a column per field, by the field's name, or a single cell if all rows have the same. So fields may change
their order, and later versions may add fields. Each item says how many chunks there are, so that a missing chunk is
noticed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain, repeat
from operator import itemgetter
from typing import Any

from gpucost.core.amounts import SCALE
from gpucost.core.compact_lines import CompactLine
from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import IntegrityError, SourceError
from gpucost.core.hour_record import LINE_AMOUNTS, Line
from gpucost.storage import compressed_documents
from gpucost.storage.table import Item, check_schema_version, integer, key, text

LINES_SCHEMA_VERSION = 2
_FIELD_NAMES = Line._fields
_OPTIONAL_FIELDS = {
    "resource_claim",
    "dra_driver",
    "instance_type_source",
    *(name for name in LINE_AMOUNTS if Line._field_defaults.get(name, 0) is None),
}
"""Fields that are stored only if a line has them, so that lines without claims and energy are no larger."""
_DECIMAL_FIELDS = {name for name, kind in Line.__annotations__.items() if "Decimal" in str(kind)}
_columns_of_line = itemgetter(*_FIELD_NAMES)
_new_line = partial(tuple.__new__, Line)
"""Makes a line of the cells of all its fields, faster than `Line._make`."""


class IncompleteLinesError(SourceError):
    """Chunks of a business unit's lines are missing or damaged; reading again may help."""


def line_items(pk: str, group: str, lines: Sequence[Line], expires_at: int) -> list[Item]:
    """Return one business unit's lines as items.

    Args:
        pk: the partition of the hour's lines.
        group: run and business unit, with which the sort keys begin.
        lines: the business unit's lines.
        expires_at: expiry in seconds since the epoch.
    """
    columns = {name: _column(cells) for name, cells in zip(_FIELD_NAMES, zip(*lines, strict=True), strict=True)}
    document = {
        "rows": len(lines),
        "columns": {name: column for name, column in columns.items() if _is_stored(name, column)},
    }
    chunks = compressed_documents.pack(document)
    return [
        {
            **key(pk, f"{group}#{number:04d}"),
            "v": {"N": str(LINES_SCHEMA_VERSION)},
            "k": {"N": str(len(chunks))},
            "b": {"B": chunk},
            "expires_at": {"N": str(expires_at)},
        }
        for number, chunk in enumerate(chunks)
    ]


def read_line_items(items: Iterable[Item]) -> list[Line]:
    """Read the lines in items.

    Raises:
        IncompleteLinesError: a chunk is missing or damaged.
        SourceError: a newer version wrote them.
    """
    return [*map(_new_line, chain.from_iterable(map(_rows, _documents(items))))]


def read_compact_lines(items: Iterable[Item]) -> list[CompactLine]:
    """Read the fields of lines that recommendations need, in a third of the time of `read_line_items`.

    Raises:
        As `read_line_items`.
    """
    return [*chain.from_iterable(map(_read_compact_lines, _documents(items)))]


def _documents(items: Iterable[Item]) -> Iterator[Any]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        check_schema_version(item, LINES_SCHEMA_VERSION)
        groups.setdefault(_group_of(item), []).append(item)
    return map(_document, groups.values())


def _group_of(item: Item) -> str:
    """Return the run and business unit in an item's sort key."""
    return text(item, "sk").rsplit("#", 1)[0]


def _document(items: Sequence[Item]) -> Any:
    """Read one business unit's document."""
    chunks = integer(items[0], "k")
    if len(items) != chunks:
        raise IncompleteLinesError(f"lines {text(items[0], 'pk')!r} are incomplete: {len(items)} of {chunks} chunks")
    try:
        return compressed_documents.unpack(items)
    except IntegrityError:
        raise IncompleteLinesError(f"lines {text(items[0], 'pk')!r} are damaged") from None


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
    """Read the fields of lines. Fields that a later version added are ignored."""
    rows, stored = document["rows"], {**Line._field_defaults, **document["columns"]}
    for name in _DECIMAL_FIELDS:
        column = stored[name]
        stored[name] = [*map(_decimal, column)] if isinstance(column, list) else _decimal(column)
    columns = [column if type(column) is list else repeat(column, rows) for column in _columns_of_line(stored)]
    return zip(*columns, strict=True)


def _read_compact_lines(document: Mapping[str, Any]) -> Iterator[CompactLine]:
    """Read the columns that recommendations need, as floats (docs/decisions/0043)."""
    rows, stored = document["rows"], document["columns"]
    columns: list[Iterable[Any]] = []
    for name in CompactLine._fields:
        column, convert = stored[name], _FLOATS.get(name)
        if not isinstance(column, list):
            columns.append(repeat(convert(column) if convert else column, rows))
        else:
            columns.append(map(convert, column) if convert else column)
    return map(CompactLine, *columns)


def _ratio(number: str | None) -> float | None:
    return None if number is None else float(number)


def _amount(amount: int | None) -> float | None:
    return None if amount is None else amount / SCALE


_FLOATS: dict[str, Callable[[Any], float | None]] = {
    **dict.fromkeys(_DECIMAL_FIELDS, _ratio),
    **dict.fromkeys(LINE_AMOUNTS, _amount),
}


def _is_stored(name: str, column: Any) -> bool:
    """Whether a column is stored: not if no line has an optional field."""
    return name not in _OPTIONAL_FIELDS or (column is not None and column != "")


def _column(cells: Sequence[Any]) -> Any:
    """Return all cells, or a single one if all have the same text. (`1.0` equals `1`, but its text differs.)"""
    first = cells[0]
    if cells.count(first) < len(cells) or (isinstance(first, Decimal) and len({*map(str, cells)}) > 1):
        return cells
    return first


def _decimal(number: str | None) -> Decimal | None:
    return None if number is None else parse_decimal(number)
