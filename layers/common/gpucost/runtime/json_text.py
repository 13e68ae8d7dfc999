"""How figures leave the system: JSON numbers with all their digits, and CSV cells that no spreadsheet runs."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from typing import Any

import simplejson

from gpucost.core.hours import format_timestamp

FORMULA_STARTS = tuple("=+-@\t\r\n＝＋－＠")
"""What makes a spreadsheet read a cell as a formula (OWASP, CSV injection)."""
_PLACES = 12
"""Digits behind the point of amounts."""


def dumps(document: Any, *, indent: int | None = None) -> str:
    """JSON text: Decimals are plain numbers with all digits, instants `2026-11-19T10:00:00Z`, records objects.

    Raises:
        TypeError: a float, which has already lost digits, or a type that has no place in an answer.
        ValueError: a Decimal that is not a number.
    """
    return simplejson.dumps(_plain(document), indent=indent, allow_nan=False)


def dumps_row(row: Mapping[str, Any]) -> str:
    """As `dumps`, for one flat row of many: texts, instants, amounts and objects of texts are written directly.

    Raises:
        As `dumps`.
    """
    return _form(tuple(row)) % tuple([_written(value) for value in row.values()])


@lru_cache(maxsize=256)
def _form(names: tuple[str, ...]) -> str:
    """A row of these names, with a place for each value."""
    return "{" + ", ".join([_quoted(name).replace("%", "%%") + ": %s" for name in names]) + "}"


def _written(value: Any) -> str:
    if isinstance(value, Decimal):
        return decimal_text(value)
    if value is None:
        return "null"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, datetime):
        return f'"{_instant(value)}"'
    return dumps_row(value) if isinstance(value, dict) else dumps(value)


@lru_cache(maxsize=4096)
def _quoted(text: str) -> str:
    return simplejson.dumps(text)


_instant = lru_cache(maxsize=4096)(format_timestamp)


def decimal_text(value: Decimal) -> str:
    """An exact number without exponent and trailing zeros: `0E-12` is `0`, `1.500000000000` is `1.5`.

    Raises:
        ValueError: NaN or infinite.
    """
    if not value:
        return "0"
    text = str(value)
    if "E" in text:
        text = format(value, "f")
    elif not text[-1].isdigit():
        raise ValueError(f"{value} is not a number that can be published")
    return text.rstrip("0").rstrip(".") if "." in text else text


def fixed_point_text(quanta: int | None) -> str:
    """As `decimal_text`, of an amount in whole numbers of 1e-12; `null` where it is not known."""
    if not quanta:
        return "null" if quanta is None else "0"
    if quanta < 0:
        return "-" + fixed_point_text(-quanta)
    digits = str(quanta)
    if len(digits) <= _PLACES:
        digits = digits.zfill(_PLACES + 1)
    text = f"{digits[:-_PLACES]}.{digits[-_PLACES:]}"
    return text if text[-1] != "0" else text.rstrip("0").rstrip(".")


def csv_cell(value: object) -> str:
    """One cell: unknown is empty, numbers are exact, and text that would start a formula is prefixed with `'`."""
    if value is None:
        return ""
    if isinstance(value, Decimal):
        return decimal_text(value)
    if isinstance(value, datetime):
        return format_timestamp(value)
    text = str(value)
    if isinstance(value, str) and text.startswith(FORMULA_STARTS):
        return "'" + text
    return text


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A CSV document (RFC 4180) with a header line; every cell guarded by `csv_cell`."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer)
    writer.writerow(csv_cell(name) for name in header)
    writer.writerows([csv_cell(value) for value in row] for row in rows)
    return buffer.getvalue()


def _plain(value: Any) -> Any:
    """The same document in types that JSON has; simplejson itself would write small Decimals as `1E-12`."""
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, Decimal):
        return simplejson.RawJSON(decimal_text(value))
    if isinstance(value, datetime):
        return format_timestamp(value)
    if isinstance(value, Mapping):
        return {_key(name): _plain(item) for name, item in value.items()}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    raise TypeError(f"{type(value).__name__} cannot be published as JSON")


def _key(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{type(name).__name__} cannot be a key in JSON")
    return name
