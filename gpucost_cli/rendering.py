"""Results for people and for scripts: tables, and the JSON and CSV of design §6."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.table import Table

from gpucost.core.hours import HOUR, format_instant
from gpucost.core.model import Capacity, Costs, HourRecord, Line, Totals
from gpucost.runtime.json_text import csv_text, dumps

_UNKNOWN = "—"
_NAME_WIDTH = 24
"""Longer names are folded where the terminal is narrow."""


def put(part: Table | str, console: Console | None = None) -> None:
    """Print a table whole: a terminal too narrow for it (or a pipe, taken for 80 columns) breaks its lines, rather
    than that amounts lose digits and rows their names."""
    console = console or Console()
    if isinstance(part, Table):
        for column in part.columns:
            longest = max(cell_len(str(cell)) for cell in (column.header, *column.cells))
            column.min_width = longest if column.no_wrap else min(longest, _NAME_WIDTH)
        wide = console.options.update(width=10_000)
        console.width = max(console.width, Measurement.get(console, wide, part).minimum)
    console.print(part)


def hours_document(records: Iterable[HourRecord]) -> dict[str, Any]:
    """`{"hours": [Hour, …]}` of design §6; figures of an incomplete hour are null."""
    return {"hours": [_hour(record) for record in records]}


def hours_json(records: Iterable[HourRecord]) -> str:
    """The document as text, numbers with all their digits."""
    return dumps(hours_document(records), indent=2)


def hours_csv(records: Iterable[HourRecord]) -> str:
    """One row per line, with its cluster, hour and status."""
    rows = [
        [record.cluster, record.hour, record.status, *map(_cell, line)] for record in records for line in record.lines
    ]
    return csv_text(["cluster", "hour", "status", *Line._fields], rows)


def hours_tables(records: Sequence[HourRecord]) -> Iterator[Table | str]:
    """Tables of every hour, or a sentence for one without figures; then each cluster's sum over several hours."""
    for record in records:
        title = f"{record.cluster}  {format_instant(record.hour)}  {record.status}"
        if record.totals is None:
            yield escape(f"{title}: {'; '.join(record.notes)}")
            continue
        yield from _totals_tables(title, record.by_business_unit(), record.totals, record.currency)
        for note in record.notes:
            yield escape(f"note: {note}")
    for cluster in sorted({record.cluster for record in records}):
        cluster_records = [record for record in records if record.cluster == cluster]
        if len(cluster_records) > 1:
            yield from _sum_tables(cluster, cluster_records)


def _sum_tables(cluster: str, records: Sequence[HourRecord]) -> Iterator[Table | str]:
    """The sum over a cluster's hours that have figures."""
    known = [(record, record.totals) for record in records if record.totals is not None]
    if not known:
        return
    units: dict[str, list[Costs]] = {}
    for record, _ in known:
        for unit, costs in record.by_business_unit().items():
            units.setdefault(unit, []).append(costs)
    capacities = [totals.capacity for _, totals in known if totals.capacity is not None]
    totals = Totals(
        Costs.total(totals.costs for _, totals in known),
        Capacity.total(capacities) if len(capacities) == len(known) else None,
    )
    period = f"{format_instant(records[0].hour)} to {format_instant(records[-1].hour + HOUR)}"
    title = f"{cluster}  {period}  sum of {len(known)} of {len(records)} hours"
    by_unit = {unit: Costs.total(parts) for unit, parts in units.items()}
    yield from _totals_tables(title, by_unit, totals, known[0][0].currency)


def _totals_tables(title: str, units: Mapping[str, Costs], totals: Totals, currency: str) -> Iterator[Table | str]:
    """What business units cost, and where the nodes' cost went."""
    capacity = None if totals.capacity is None else totals.capacity.figures()
    figures = totals.costs.figures() | (capacity or {})
    yield costs_table(title, {unit: costs.figures() for unit, costs in units.items()}, figures, currency)
    if (note := unpriced_note(figures)) is not None:
        yield note
    if figures.get("node_cost_usd") is not None:
        yield identity_table(figures, currency)
    else:
        yield "note: the nodes' cost is unknown, and with it what is unallocated, stranded or host cost"


def unpriced_note(totals: Mapping[str, Any]) -> str | None:
    """A sentence about GPU-hours that no amount contains because they have no price."""
    allocated = totals.get("unpriced_gpu_hours") or 0
    capacity = totals.get("unpriced_capacity_gpu_hours") or 0
    if not allocated + capacity:
        return None
    return (
        f"note: {allocated:,.3f} of these GPU-hours, and {capacity:,.3f} of the nodes', have no price and are in no "
        "amount"
    )


def costs_table(
    title: str, units: Mapping[str, Mapping[str, Any]], totals: Mapping[str, Any], currency: str = "USD"
) -> Table:
    """What each business unit costs, and what is beside them.

    Args:
        title: above the table.
        units: `Costs` by business unit.
        totals: `Costs` and capacity figures, null where unknown.
        currency: of all amounts.
    """
    table = Table(title=escape(title), box=box.SIMPLE_HEAD, title_justify="left", padding=(0, 1, 0, 0))
    table.add_column("business unit", min_width=13, overflow="fold")
    for name in ("GPU-hours", "allocated", "effective", "waste", "unmeasured", "waste %"):
        table.add_column(name, justify="right", no_wrap=True)
    for unit, costs in sorted(units.items(), key=lambda item: -(item[1]["waste_usd"] or 0)):
        table.add_row(printable(unit), *figures(costs, currency))
    table.add_section()
    table.add_row("all", *figures(totals, currency), style="bold")
    return table


def identity_table(totals: Mapping[str, Any], currency: str = "USD") -> Table:
    """The identity of design §1 as a sum, checked to the last digit."""
    table = Table(title="where the nodes' cost went", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("part")
    table.add_column(currency, justify="right")
    table.add_column("share", justify="right")
    cost = totals["node_cost_usd"]
    total = Decimal(0)
    for part in ("effective", "waste", "unmeasured", "unallocated", "stranded", "unobserved", "host", "residual"):
        amount = totals[f"{part}_usd"]
        total += amount or 0  # unknown only where nothing of it has a price: it is in no sum
        table.add_row(part, money(amount, currency), percent(amount, cost))
    table.add_section()
    verdict = "exact" if total == cost else f"off by {total - cost}"
    table.add_row("node cost", money(cost, currency), f"identity {verdict}", style="bold")
    return table


def money(amount: Decimal | None, currency: str = "USD") -> str:
    """Dollars and cents (or another currency's), for people."""
    if amount is None:
        return _UNKNOWN
    return f"${amount:,.2f}" if currency == "USD" else f"{amount:,.2f} {currency}"


def percent(part: Decimal | None, whole: Decimal | None) -> str:
    """A share of a whole, for people."""
    return _UNKNOWN if part is None or not whole else f"{part / whole:.1%}"


def printable(name: str) -> str:
    """A name in a terminal: no markup, no control characters."""
    return escape("".join(letter if letter.isprintable() else "�" for letter in name))


def figures(costs: Mapping[str, Any], currency: str) -> Sequence[str]:
    """The cells of `Costs`, for people."""
    return (
        f"{costs['allocated_gpu_hours']:,.3f}",
        money(costs["allocated_usd"], currency),
        money(costs["effective_usd"], currency),
        money(costs["waste_usd"], currency),
        money(costs["unmeasured_usd"], currency),
        percent(costs["waste_usd"], costs["allocated_usd"]),
    )


def _hour(record: HourRecord) -> dict[str, Any]:
    coverage, totals = record.coverage, record.totals
    figures: dict[str, Any] = dict.fromkeys((*Costs.names(), *Capacity.names()))
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
        "lines": [line._asdict() for line in record.lines],
        "notes": list(record.notes),
        "currency": record.currency,
        "charges": list(record.charges),
    }


def _cell(value: object) -> object:
    return dumps(value) if isinstance(value, dict) else value
