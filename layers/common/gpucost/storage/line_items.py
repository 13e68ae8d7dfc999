"""One business unit's lines of an hour as items, and back, in every form they have had.

Form 1 is rows of values in the order of `Line`'s fields. Form 2 is a column for each field, by its name, and a single
value where all rows agree, so that a field may come, go or move without a new form. Each item of form 2 says how many
pieces there are, so that nobody takes some of them for all while they are moved on.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import repeat
from typing import Any

from gpucost.core.errors import DamagedError, SourceError
from gpucost.core.line_use import LineUse, use_of
from gpucost.core.model import Line
from gpucost.storage import compressed_documents as blobs
from gpucost.storage.table import Item, check_format, key, text, whole

LINES_FORMAT = 2
_NAMES = Line._fields
_DECIMALS = {name for name, kind in Line.__annotations__.items() if "Decimal" in str(kind)}


class BeingMovedError(SourceError):
    """Pieces are of two forms, or some are missing: they are moved on at this moment."""


def line_items(pk: str, group: str, lines: Sequence[Line], expires_at: int) -> list[Item]:
    """One unit's lines as items.

    Args:
        pk: the hour's partition of lines.
        group: run and unit: the sort keys' beginning.
        lines: of that unit.
        expires_at: seconds since the epoch.
    """
    columns = zip(_NAMES, zip(*lines, strict=True), strict=True)
    pieces = blobs.pack({"rows": len(lines), "columns": {name: _column(values) for name, values in columns}})
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


def group_of(item: Item) -> str:
    """Run and unit of an item of lines."""
    return text(item, "sk").rsplit("#", 1)[0]


def read_line_items(items: Iterable[Item]) -> list[Line]:
    """The lines of all the items, whatever their form.

    Raises:
        BeingMovedError: some are moved on at this moment; reading again helps.
        SourceError: a form that this version does not know.
    """
    return [line for form, document in _documents(items) for line in _READERS[form](document)]


def read_line_uses(items: Iterable[Item]) -> list[LineUse]:
    """The same lines as advice looks at them, in a third of the time.

    Raises:
        As `read_line_items`.
    """
    return [
        use
        for form, document in _documents(items)
        for use in (_read_uses(document) if form == LINES_FORMAT else map(use_of, _read_rows(document)))
    ]


def _documents(items: Iterable[Item]) -> Iterator[tuple[int, Any]]:
    groups: dict[str, list[Item]] = {}
    for item in items:
        check_format(item, LINES_FORMAT)
        groups.setdefault(group_of(item), []).append(item)
    return map(_document, groups.values())


def _document(items: Sequence[Item]) -> tuple[int, Any]:
    """A unit's document, with its form."""
    forms = {whole(item, "v") for item in items}
    if len(forms) > 1 or (forms == {LINES_FORMAT} and len(items) != whole(items[0], "k")):
        raise BeingMovedError(f"lines {text(items[0], 'pk')!r} are moved on at this moment")
    try:
        document: Any = blobs.unpack(items)
    except DamagedError:
        raise BeingMovedError(f"lines {text(items[0], 'pk')!r} are not whole") from None
    return forms.pop(), document


def _read_rows(document: Iterable[Sequence[Any]]) -> list[Line]:
    """Form 1; fields that were added later are not there, and have their defaults."""
    return [Line(*map(_value, _NAMES, row)) for row in document]


def _read_columns(document: Mapping[str, Any]) -> list[Line]:
    """Form 2; fields that this version does not know are left out, those that it misses have their defaults."""
    rows = document["rows"]
    columns = {
        name: [_value(name, one) for one in (told if isinstance(told, list) else [told] * rows)]
        for name, told in document["columns"].items()
        if name in _NAMES
    }
    return [Line(**dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]


_READERS = {1: _read_rows, LINES_FORMAT: _read_columns}


def _read_uses(document: Mapping[str, Any]) -> Iterator[LineUse]:
    """Form 2, the columns that advice looks at, and nothing exact: see decision 0043."""
    rows, told = document["rows"], document["columns"]
    columns: list[Iterable[Any]] = []
    for name in LineUse._fields:
        column = told.get(name, "")  # only what came later can be missing, and that is a text
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
