"""The Athena statements for each export format, and parsing of their rows."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cache
from pathlib import Path
from string import Template
from typing import get_args

from gpucost.core.amounts import is_amount
from gpucost.core.decimals import parse_decimal
from gpucost.core.errors import SourceError
from gpucost.core.hours import HOUR
from gpucost.core.pricing.bill_lines import BillLine, LineKind
from gpucost.settings.bill import CurSettings

COLUMNS = (
    "kind",
    "usage_start",
    "usage_end",
    "account",
    "region",
    "resource",
    "instance_type",
    "capacity_type",
    "operation",
    "hours",
    "amount",
    "currency",
    "is_final",
    "reservation",
)
"""The columns of every statement, in this order."""
ACCELERATED_FAMILIES_PATTERN = "^(ml[.])?(p|g|gr|inf|trn|dl|vt)[0-9]"
"""Instance families of EC2 and SageMaker with accelerators, including future ones, as a regular expression that all
engines support."""
BILL_CLOSED_AFTER = timedelta(days=14)
"""FOCUS 1.0 does not say when a bill is closed; AWS closes them within the first days of the next month."""
_STATEMENTS_FOLDER = Path(__file__).parent / "statements"
_LINE_KINDS = get_args(LineKind)


def sql_template_name(cur: CurSettings) -> str:
    """The name of the statement for an export's format."""
    if cur.format == "cur2":
        return "cur2" if cur.amount == "amortized" else "cur2_net"
    return cur.format.replace("-", "_").replace(".", "_")


def sql_statement(cur: CurSettings, start: datetime, end: datetime, *, now: datetime) -> str:
    """The statement that reads the bill's lines of `[start, end)`.

    Only timestamps, months and the validated table name are inserted, so nothing needs escaping.
    """
    return _sql_template(sql_template_name(cur)).substitute(
        table=f'"{cur.table}"',
        first_period=f"{start:%Y-%m}",
        last_period=f"{end - timedelta(microseconds=1):%Y-%m}",
        start=f"{start.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        end=f"{end.astimezone(UTC):%Y-%m-%d %H:%M:%S}",
        accelerated=ACCELERATED_FAMILIES_PATTERN,
        closed_before=f"{(now - BILL_CLOSED_AFTER).astimezone(UTC):%Y-%m-%d %H:%M:%S}",
    )


@cache
def _sql_template(name: str) -> Template:
    return Template((_STATEMENTS_FOLDER / f"{name}.sql").read_text(encoding="utf-8"))


def parse_bill_line(row: Sequence[str | None]) -> BillLine:
    """Parse a row of a statement's result.

    Raises:
        SourceError: the row does not have the statement's format, or the export is not hourly.
    """
    cells: Mapping[str, str | None] = dict(zip(COLUMNS, row, strict=True))
    try:
        line = BillLine(
            kind=_parse_line_kind(_text(cells, "kind")),
            start=datetime.fromisoformat(_text(cells, "usage_start")),
            end=datetime.fromisoformat(_text(cells, "usage_end")),
            account=_text(cells, "account"),
            region=cells["region"] or "",
            resource_id=_text(cells, "resource"),
            instance_type=cells["instance_type"] or "",
            capacity_type=_text(cells, "capacity_type"),
            operation=cells["operation"] or "",
            reservation_id=(cells["reservation"] or "").rpartition("/")[2],
            instance_hours=None if cells["hours"] is None else Fraction(_number(cells["hours"])),
            amount=_number(_text(cells, "amount")),
            currency=_text(cells, "currency"),
            is_final=_text(cells, "is_final") == "1",
        )
    except ValueError as error:
        raise SourceError(f"the bill has a row that cannot be read ({error}): {row}") from error
    if line.kind == "instance" and line.end - line.start > HOUR:
        raise SourceError(
            f"the bill's export is not hourly: instance {line.resource_id} has a line from {line.start} to {line.end}; "
            "see docs/how-to/bill.md for how the export is set up"
        )
    return line


def _text(cells: Mapping[str, str | None], name: str) -> str:
    text = cells[name]
    if not text:
        raise ValueError(f"{name} is empty")
    return text


def _number(text: str) -> Decimal:
    value = parse_decimal(text)
    if not is_amount(value):
        raise ValueError(f"{text} is not a plausible amount")
    return value


def _parse_line_kind(text: str) -> LineKind:
    kind: LineKind | None = next((kind for kind in _LINE_KINDS if kind == text), None)
    if kind is None:
        raise ValueError(f"unknown kind {text!r}")
    return kind
