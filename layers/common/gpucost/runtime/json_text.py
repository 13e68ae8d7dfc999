"""Writes figures as JSON numbers with all digits, and as CSV cells that no spreadsheet evaluates as formulas."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from operator import attrgetter, call
from types import NoneType
from typing import Any

import simplejson
from msgspec import Struct

from gpucost.core.amounts import DIGITS
from gpucost.core.hours import format_timestamp

CSV_FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")
"""Characters that make a spreadsheet evaluate a cell as a formula (OWASP, CSV injection)."""
_MIN_WIDTH = DIGITS + 1
"""Digits of an amount below 10, with the zero before the decimal point of an amount below 1."""


def dumps(document: Any, *, indent: int | None = None) -> str:
    """Write a document as JSON. Decimals keep all digits, times look like `2026-11-19T10:00:00Z`, records are objects.

    Raises:
        TypeError: a float, which has already lost digits, or a type that JSON cannot represent.
        ValueError: a Decimal that is NaN or infinite.
    """
    return simplejson.dumps(_to_json_types(document), indent=indent, allow_nan=False)


def dumps_row(row: Mapping[str, Any]) -> str:
    """Write one row as JSON, faster than `dumps`.

    Raises:
        TypeError, ValueError: see `dumps`.
    """
    return _row_template(tuple(row)) % tuple([_WRITERS.get(type(value), dumps)(value) for value in row.values()])


def row_writer(writers: Mapping[str, Callable[[Any], str]], *, indent: int | None = None) -> Callable[[Any], str]:
    """Return a function that writes some attributes of a record as `dumps_row` does, in half of the time.

    Args:
        writers: functions that write each attribute's values, such as `fixed_point_text` or those of `value_writer`.
        indent: spaces before each attribute, two more than before the record; None for a single line.
    """
    template, values_of, functions = (
        _row_template(tuple(writers), indent),
        attrgetter(*writers),
        tuple(writers.values()),
    )
    return lambda record: template % tuple(map(call, functions, values_of(record)))


def figures_template(names: Iterable[str]) -> str:
    """Return the JSON text of a row's figures, with `%s` for each, to follow other fields."""
    return "".join(f', "{name}": %s' for name in names)


def value_writer(kind: Any) -> Callable[[Any], str]:
    """Return the function that writes values of a type, which may be a union."""
    return _WRITERS.get(kind, _value_text)


@lru_cache(maxsize=256)
def _row_template(names: tuple[str, ...], indent: int | None = None) -> str:
    """The JSON text of a row with these names, with `%s` for each value."""
    fields = [_json_string(name).replace("%", "%%") + ": %s" for name in names]
    if indent is None:
        return f"{{{', '.join(fields)}}}"
    line = "\n" + " " * indent
    return f"{{{line}{f',{line}'.join(fields)}{line[:-2]}}}"


_json_string = json.encoder.encode_basestring_ascii
_timestamp_text = lru_cache(maxsize=4096)(format_timestamp)


def decimal_text(value: Decimal) -> str:
    """Write an exact number without exponent and trailing zeros: `0E-12` is `0`, `1.500000000000` is `1.5`.

    Raises:
        ValueError: the number is NaN or infinite.
    """
    if not value:
        return "0"
    text = str(value)
    if "E" in text:
        text = format(value, "f")
    elif not text[-1].isdigit():
        raise ValueError(f"{value} is not a number that can be published")
    return text.rstrip("0").rstrip(".") if "." in text else text


def fixed_point_text(units: int | None) -> str:
    """Write a fixed-point amount, a whole number of 1e-12, like `decimal_text`; `null` for None."""
    if not units:
        return "null" if units is None else "0"
    digits = str(units).zfill(_MIN_WIDTH + (units < 0))  # the width includes the sign
    text = f"{digits[:-DIGITS]}.{digits[-DIGITS:]}"
    return text.rstrip("0").rstrip(".") if text[-1] == "0" else text


def _list_text(values: list[Any]) -> str:
    return f"[{', '.join(map(_value_text, values))}]"


def _value_text(value: Any) -> str:
    return _WRITERS.get(type(value), dumps)(value)


_WRITERS: dict[type, Callable[[Any], str]] = {
    Decimal: decimal_text,
    NoneType: lambda _: "null",
    simplejson.RawJSON: attrgetter("encoded_json"),
    datetime: lambda time: f'"{_timestamp_text(time)}"',
    dict: dumps_row,
    int: str,
    list: _list_text,
    str: _json_string,
}
"""Functions that write a value of a row, by its type. Of other types, `dumps` is fast enough."""


def csv_cell(value: object) -> str:
    """Write one cell: None is empty, numbers are exact, and text that would start a formula is prefixed with `'`."""
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, datetime):
        return format_timestamp(value)
    text = str(value)
    if isinstance(value, str) and text.startswith(CSV_FORMULA_STARTS):
        return "'" + text
    return text


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a CSV document (RFC 4180) with a header line. Every cell is written by `csv_cell`."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(csv_cell(name) for name in header)
    writer.writerows([csv_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def _to_json_types(value: Any) -> Any:
    """Convert a document to JSON types. simplejson alone would write small Decimals as `1E-12`."""
    if value is None or isinstance(value, str | int | simplejson.RawJSON):
        return value
    if isinstance(value, Decimal):
        return simplejson.RawJSON(decimal_text(value))
    if isinstance(value, datetime):
        return format_timestamp(value)
    if isinstance(value, Mapping):
        return {_check_key(name): _to_json_types(field_value) for name, field_value in value.items()}
    if hasattr(value, "figures"):  # its amounts are fixed-point integers
        raise TypeError(f"{type(value).__name__} is published as its figures()")
    if hasattr(value, "_asdict"):
        return _to_json_types(value._asdict())
    if isinstance(value, list | tuple):
        return [_to_json_types(element) for element in value]
    if isinstance(value, Struct):
        return {name: _to_json_types(getattr(value, name)) for name in value.__struct_fields__}
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _to_json_types(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} cannot be published as JSON")


def _check_key(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{type(name).__name__} cannot be a key in JSON")
    return name
