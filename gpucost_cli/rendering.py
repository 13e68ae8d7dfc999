"""Renders results: tables for people, JSON and CSV for scripts."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import ROUND_FLOOR, Decimal
from functools import lru_cache
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table
from simplejson import RawJSON

from gpucost.core.amounts import CapacityCosts, Costs, unit_of
from gpucost.core.hour_record import LINE_AMOUNTS, HourRecord, Line
from gpucost.runtime.json_text import csv_text, dumps, fixed_point_text, row_writer, value_writer

COST_COLUMNS = ("GPU-hours", "allocated", "effective", "waste", "unmeasured", "waste %\nof cost")
_MEASURED = {
    name: unit_of(name)
    for name, field in Costs.fields().items()
    if field.title and field.needs in {"energy", "emission factor"}
}
"""Amounts that tables show if they are known, with the headings of their columns."""
UNKNOWN = "—"
"""What stands for a figure that is not known."""
AT_LEAST = "≥"
"""What stands before a share of waste if a part of the cost is unmeasured: it may be waste, too."""
MIN_MEASURED_SHARE = Decimal("0.1")
"""Least measured share of GPU-hours for a share of waste, as on the page. Less says nothing about the others."""
_NAME_WIDTH = 24
"""Longer names wrap where the terminal is narrow."""


def print_table(part: Table | str, console: Console | None = None) -> None:
    """Print a table, or a line of text, without dropping digits or names.

    A terminal that is too narrow wraps the lines of a table instead. A pipe gets each row as one line, so that names
    can be searched, unless COLUMNS sets its width. Text is never wrapped, so that a line to change can be copied whole.
    """
    console = console or Console()
    if isinstance(part, Table):
        for column in part.columns:
            cells = (*str(column.header).splitlines(), *map(str, column.cells))
            longest = max(map(cell_len, cells), default=0)
            column.min_width = longest if column.no_wrap else min(longest, _NAME_WIDTH)
        needed = Measurement.get(console, console.options.update(width=10_000), part)
        is_pipe = not console.is_terminal and "COLUMNS" not in os.environ
        console.width = max(console.width, needed.maximum if is_pipe else needed.minimum)
    console.print(part, soft_wrap=isinstance(part, str))


def hours_document(records: Iterable[HourRecord]) -> dict[str, Any]:
    """Build `{"hours": [Hour, …]}`, as docs/explanation/cost-model.md describes it; unknown figures are null."""
    return {"hours": [_hour_document(record) for record in records]}


def hours_json(records: Iterable[HourRecord]) -> str:
    """Render hours as JSON text, with every digit of every number."""
    return dumps(hours_document(records), indent=2)


def hours_csv(records: Iterable[HourRecord]) -> str:
    """Render hours as CSV text: one row per line, with its cluster, hour and status."""
    rows = [
        [record.cluster, record.hour, record.status, *(_cell(figures.get(name, "")) for name in Line._fields)]
        for record in records
        for figures in (line.figures() for line in record.lines)
    ]
    return csv_text(["cluster", "hour", "status", *Line._fields], rows)


def unpriced_note(totals: Mapping[str, Any]) -> str | None:
    """Return a sentence about GPU-hours without a price, which no amount contains, or None."""
    allocated = totals.get("unpriced_gpu_hours") or 0
    capacity = totals.get("unpriced_capacity_gpu_hours") or 0
    if not allocated + capacity:
        return None
    return (
        f"note: {allocated:,.3f} of these GPU-hours and {capacity:,.3f} of the nodes' GPU-hours have no price and "
        "are not included in any amount"
    )


def energy_note(totals: Mapping[str, Any]) -> str | None:
    """Return a sentence about the energy of all GPUs, or None if it was not measured."""
    energy = totals.get("device_energy_kwh")
    if energy is None:
        return None
    emissions = totals["device_co2e_kg"]
    measured, capacity = totals["device_energy_gpu_hours"], totals["capacity_gpu_hours"]
    gpus = "all GPUs" if measured == capacity else f"{measured:,.1f} of {capacity:,.1f} GPU-hours, the others unmetered"
    kwh, idle, unattributed, co2e = (
        quantity(amount, digits_of(energy))
        for amount in (energy, totals["idle_energy_kwh"], totals["unattributed_energy_kwh"], emissions)
    )
    return f"energy of {gpus}: {kwh} kWh, of which {idle} kWh idle and {unattributed} kWh not attributed; " + (
        "emissions unknown" if emissions is None else f"{co2e} kg CO2e (location-based)"
    )


def costs_table(
    title: str, units: Mapping[str, Mapping[str, Any]], totals: Mapping[str, Any], currency: str = "USD"
) -> Table:
    """Build the table of business units with their sum.

    Args:
        title: above the table.
        units: `Costs` by business unit.
        totals: `Costs` and capacity figures, null where unknown.
        currency: of all amounts.
    """
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("business unit", min_width=13, overflow="fold")
    measured = measured_columns(totals)
    for name in (*COST_COLUMNS, *measured.values()):
        table.add_column(name, justify="right", no_wrap=True)
    for unit, costs in sorted(units.items(), key=lambda item: -(item[1]["waste_usd"] or 0)):
        table.add_row(printable(unit), *cost_cells(costs, currency), *measured_cells(costs, measured))
    table.add_section()
    table.add_row("all units", *cost_cells(totals, currency), *measured_cells(totals, measured), style="bold")
    return table


def plain_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[str] = ()) -> Table:
    """Build a table of texts under headings.

    Args:
        columns: headings; underscores become spaces. A column `id` does not wrap.
        rows: cells in the order of the columns.
        right: columns of numbers, aligned at the right.
    """
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        justify: JustifyMethod = "right" if column in right else "left"
        table.add_column(column.replace("_", " "), justify=justify, no_wrap=column == "id", overflow="fold")
    for row in rows:
        table.add_row(*map(printable, row))
    return table


def money(amount: Decimal | None, currency: str = "USD") -> str:
    """Format an amount to two digits after the point."""
    if amount is None:
        return UNKNOWN
    return f"${amount:,.2f}" if currency == "USD" else f"{amount:,.2f} {currency}"


def whole_money(amount: Decimal | None, currency: str = "USD") -> str:
    """Format an amount without digits after the point; a small amount is not rounded to zero."""
    if amount is None:
        return UNKNOWN
    is_small = 0 < amount < Decimal("0.5")
    digits = "1" if is_small else f"{amount:,.0f}"
    return ("<" if is_small else "") + (f"${digits}" if currency == "USD" else f"{digits} {currency}")


def digits_of(total: Decimal) -> int:
    """Return how many digits after the point GPU-hours or kWh have that add up to a total."""
    return 1 if total >= 10 else 3


def quantity(amount: Decimal | None, digits: int) -> str:
    """Format GPU-hours or kWh; a small amount is not rounded to zero."""
    if amount is None:
        return UNKNOWN
    least = Decimal(1).scaleb(-digits)
    return f"<{least}" if 0 < amount < least / 2 else f"{amount:,.{digits}f}"


def percent(part: Decimal | None, whole: Decimal | None) -> str:
    """Format a share of a whole as a percentage."""
    return UNKNOWN if part is None or not whole else f"{part / whole:.1%}"


def wasted_gpu_hours(costs: Mapping[str, Any]) -> Decimal | None:
    """Return the GPU-hours that were held and not used while use was measured; None if none of them was measured."""
    held, used, unmeasured = (costs[f"{part}_gpu_hours"] for part in ("allocated", "effective", "unmeasured"))
    if held is None or used is None or (held and (unmeasured or 0) >= held):
        return None
    wasted: Decimal = held - used - (unmeasured or 0)
    return wasted


def waste_percent(costs: Mapping[str, Any], *, of: str = "allocated_usd") -> str:
    """Format the wasted share of the allocated cost, or of the GPU-hours; nothing if there are none.

    What is unmeasured may be waste, too: the share is then the least, and unknown if hardly anything is measured.
    """
    held, unmeasured = costs["allocated_gpu_hours"], costs["unmeasured_gpu_hours"] or 0
    wasted = costs["waste_usd"] if of == "allocated_usd" else wasted_gpu_hours(costs)
    if not costs[of] and costs[of] is not None:
        return ""
    if wasted is None or costs[of] is None or held - unmeasured < MIN_MEASURED_SHARE * held:
        return UNKNOWN
    if not unmeasured:
        return percent(wasted, costs[of])
    share: Decimal = wasted / costs[of]
    return f"{AT_LEAST}{share.quantize(Decimal('0.001'), ROUND_FLOOR):.1%}"  # rounded up, it would not be the least


def printable(name: str) -> str:
    """Make a name safe to print: no markup and no control characters."""
    return escape("".join(letter if letter.isprintable() else "�" for letter in name))


def cost_cells(costs: Mapping[str, Any], currency: str) -> Sequence[str]:
    """Format the columns of `Costs` for `costs_table`. Use and waste are unknown if nothing was measured."""
    held, unmeasured = costs["allocated_gpu_hours"], costs["unmeasured_gpu_hours"]
    is_measured = not held or unmeasured < held
    effective, waste = (costs[f"{part}_usd"] if is_measured else None for part in ("effective", "waste"))
    return (
        f"{held:,.3f}",
        money(costs["allocated_usd"], currency),
        money(effective, currency),
        money(waste, currency),
        money(costs["unmeasured_usd"], currency),
        waste_percent(costs),
    )


def measured_columns(totals: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the headings of energy and what follows from it, by amount; none if none of it is known."""
    return _MEASURED if any(totals.get(name) is not None for name in _MEASURED) else {}


def measured_cells(costs: Mapping[str, Any], names: Iterable[str]) -> Sequence[str]:
    """Format the cells of `measured_columns`."""
    figures = [costs.get(name) for name in names]
    return [UNKNOWN if figure is None else f"{figure:,.3f}" for figure in figures]


def _hour_document(record: HourRecord) -> dict[str, Any]:
    coverage, totals = record.coverage, record.totals
    figures: dict[str, Any] = dict.fromkeys((*Costs.names(), *CapacityCosts.names()))
    if totals is not None:
        figures |= totals.costs.figures()
        figures |= totals.capacity.figures() if totals.capacity is not None else {}
    return {
        "cluster": record.cluster,
        "hour": record.hour,
        "status": record.status,
        "coverage": {
            "allocation": coverage.allocation if coverage else None,
            "utilization": coverage.utilization if coverage else None,
        },
        "totals": figures,
        "business_units": [
            {"business_unit": unit, **costs.figures()} for unit, costs in record.by_business_unit().items()
        ],
        "lines": [RawJSON(_line_json(line)) for line in record.lines],
        "notes": list(record.notes),
        "currency": record.currency,
        "charges": [charge.figures() for charge in record.charges],
        **({"models": [model.figures() for model in record.models]} if record.models else {}),
    }


_LINE_INDENT = 10
"""Spaces before the fields of a line in the document."""


@lru_cache(maxsize=1024)
def _labels_json(labels: tuple[tuple[str, str], ...]) -> str:
    return dumps(dict(labels), indent=2).replace("\n", "\n" + " " * _LINE_INDENT)


_LINE_WRITERS: dict[str, Callable[[Any], str]] = {
    name: fixed_point_text if name in LINE_AMOUNTS else value_writer(kind)
    for name, kind in Line.__annotations__.items()
} | {"labels": lambda labels: _labels_json(tuple(labels.items()))}
_CLAIM_FIELDS = {"resource_claim", "dra_driver"}


@lru_cache(maxsize=4)
def _line_writer(*, has_claim: bool, has_type_source: bool) -> Callable[[Any], str]:
    """Return the writer of lines with or without the fields that are published only if they are not blank."""
    left_out = (set[str]() if has_claim else _CLAIM_FIELDS) | (set() if has_type_source else {"instance_type_source"})
    return row_writer(
        {name: writer for name, writer in _LINE_WRITERS.items() if name not in left_out}, indent=_LINE_INDENT
    )


def _line_json(line: Line) -> str:
    """Write a line's `figures()` as JSON text, because hours have thousands."""
    writer = _line_writer(has_claim=bool(line.resource_claim), has_type_source=bool(line.instance_type_source))
    return writer(line)


def _cell(value: object) -> object:
    return dumps(value) if isinstance(value, dict) else value
