"""Adds up the parts of a report that the API reads in parts. A group can have a row in each part."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from gpucost.core.amounts import WIDE_CONTEXT, Costs
from gpucost.core.decimals import parse_decimal
from gpucost.core.query.cost_query import IDLE_FIGURES
from gpucost.runtime.json_text import csv_text


def add_up_parts(rows: Iterable[Mapping[str, Any]], sort: str) -> list[dict[str, Any]]:
    """Return one row for each start, kind and group, in the order of the parameter `sort`."""
    sums: dict[tuple[object, ...], dict[str, Any]] = {}
    for row in rows:
        key = (row["start"], row.get("kind"), *row["group"].values())
        sums[key] = _sum(sums[key], row) if key in sums else {**row}
    ordered = [*sums.values()]
    for name in reversed([name for name in sort.split(",") if name]):
        figures = [(row["group"].get(name.removeprefix("-"), row.get(name.removeprefix("-"))), row) for row in ordered]
        sortable = [pair for pair in figures if pair[0] is not None]
        sortable.sort(key=lambda pair: pair[0], reverse=name.startswith("-"))
        ordered = [row for _, row in sortable] + [row for figure, row in figures if figure is None]
    return ordered


def add_up_csv(text: str) -> str:
    """Return a CSV file with one row for each of its names. A file with figures that have no sums stays as it is."""
    header, *rows = csv.reader(io.StringIO(text))
    amounts = {*Costs.names(), *IDLE_FIGURES}
    first = next((position for position, name in enumerate(header) if name in amounts), len(header))
    if not amounts.issuperset(header[first:]):
        return text
    sums: dict[tuple[str, ...], dict[str, Any]] = {}
    for row in rows:
        key = tuple(row[:first])
        figures = {
            name: parse_decimal(cell) if cell else None for name, cell in zip(header[first:], row[first:], strict=True)
        }
        sums[key] = _sum(sums[key], figures) if key in sums else figures
    return csv_text(header, [[*key, *figures.values()] for key, figures in sums.items()])


def _sum(total: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Add figures. Idle figures are unknown where those of any part are; others where those of all are."""
    figures = {**total}
    for name in Costs.names():
        figures[name] = _sum_or_none((total[name], row[name]))
    for name in IDLE_FIGURES:
        if name in total:
            is_unknown = total[name] is None or row[name] is None
            figures[name] = None if is_unknown else WIDE_CONTEXT.add(total[name], row[name])
    return figures


def _sum_or_none(amounts: Sequence[Decimal | None]) -> Decimal | None:
    present = [amount for amount in amounts if amount is not None]
    total = Decimal(0)
    for amount in present:
        total = WIDE_CONTEXT.add(total, amount)
    return total if present else None
