"""Tables for people: who held and used the GPUs, what that cost, and where the rest of the nodes went.

The sum of all hours is first, and rows are sorted by waste. What is unknown is a dash, and a line below a table says
why. GPU-hours need no price.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from gpucost.core.amounts import Totals
from gpucost.core.costs_by_key import sum_by_key
from gpucost.core.hour_record import HourRecord, Line
from gpucost.core.hours import HOUR, format_epoch_ms, format_timestamp
from gpucost_cli.rendering import UNKNOWN, energy_note, money, percent, printable, unpriced_note

if TYPE_CHECKING:
    from gpucost.pipeline.attribute import SoFar

USAGE_COLUMNS = ("GPU-hours", "used", "wasted", "unmeasured", "waste %", "cost", "wasted cost")
UNMEASURED = "used and wasted: no metric measured the GPUs of these rows; gpucost doctor says what is missing"
UNPRICED = "cost: no node of these rows has a price; gpucost doctor says what to add"
_NO_PRICE = re.compile(r"no price for node \S+ \((.+?)\) from (?:[^;]+; )?(.*)")
_PARTS = ("effective", "waste", "unmeasured", "unallocated", "stranded", "unobserved", "host", "residual")
_WITHOUT_GPU_HOURS = {"host", "residual"}


def hours_tables(
    records: Sequence[HourRecord], group_by: Sequence[str] = ("business_unit",), *, each_hour: bool = False
) -> Iterator[Table | str]:
    """Yield the sum of each cluster's hours, with notes; then each hour if requested.

    Args:
        records: the hours of all clusters.
        group_by: names of lines' fields.
        each_hour: whether each hour has tables, too.
    """
    for cluster in sorted({record.cluster for record in records}):
        of_cluster = [record for record in records if record.cluster == cluster]
        yield from _sum_tables(_title(of_cluster), of_cluster, group_by)
        if each_hour and len(of_cluster) > 1:
            for record in of_cluster:
                yield from _sum_tables(_title([record]), [record], group_by)


def _title(records: Sequence[HourRecord]) -> str:
    start, end = format_timestamp(records[0].hour), format_timestamp(records[-1].hour + HOUR)
    return f"{records[0].cluster}  {start} to {end}  {_status(records)}"


def _sum_tables(title: str, records: Sequence[HourRecord], group_by: Sequence[str]) -> Iterator[Table | str]:
    rated = [record for record in records if record.totals is not None]
    totals = Totals.total(record.totals for record in rated if record.totals is not None)
    if totals is None:
        yield escape(title)
    else:
        sums = sum_by_key((_group(line, group_by), line.costs()) for record in rated for line in record.lines)
        rows = {group: costs.figures() for group, costs in sums.items()}
        yield from figures_tables(title, group_by, rows, totals, rated[0].currency)
    for note in joined_notes(records):
        yield escape(f"note: {note}")


def so_far_tables(so_far: "SoFar", group_by: Sequence[str]) -> Iterator[Table | str]:
    """Yield the tables of a time that is no whole hour."""
    record, time = so_far.record, so_far.time
    title = f"{record.cluster}  {format_epoch_ms(time.start)} to {format_epoch_ms(time.end)}  so far"
    yield from _sum_tables(title, [record], group_by)


def first_whole_hour_sentence(so_far: "SoFar") -> str:
    """Say how long the samples of a Prometheus reach back, and when its first whole hour ends."""
    minutes = (so_far.time.end - so_far.first_sample) // 60_000
    return (
        f"cluster {so_far.record.cluster} has samples of {minutes} minutes and no whole hour yet. The first one ends "
        f"at {format_epoch_ms(so_far.first_whole_hour_end)}"
    )


def _group(line: Line, group_by: Sequence[str]) -> tuple[str, ...]:
    return tuple(getattr(line, name) for name in group_by)


def _status(records: Sequence[HourRecord]) -> str:
    """Say how many of several hours have figures, or the status of one."""
    if len(records) == 1:
        return records[0].status
    rated = sum(record.totals is not None for record in records)
    return f"sum of {rated} of {len(records)} hours"


def figures_tables(
    title: str,
    group_by: Sequence[str],
    rows: Mapping[tuple[str, ...], Mapping[str, Any]],
    totals: Totals,
    currency: str,
) -> Iterator[Table | str]:
    """Yield the table of rows with the reasons of its dashes, and where the nodes' GPU-hours and cost went."""
    figures = totals.costs.figures() | ({} if totals.capacity is None else totals.capacity.figures())
    yield usage_table(title, group_by, rows, figures, currency)
    for reason in unknown_reasons(rows.values()):
        yield f"{UNKNOWN} {reason}"
    if figures["allocated_usd"] is not None and (unpriced := unpriced_note(figures)) is not None:
        yield unpriced
    if (energy := energy_note(figures)) is not None:
        yield energy
    if totals.capacity is None:
        yield "note: the nodes' cost is unknown, so unallocated, stranded and host cost are unknown too"
    else:
        yield parts_table(figures, currency)


def usage_table(
    title: str,
    group_by: Sequence[str],
    rows: Mapping[tuple[str, ...], Mapping[str, Any]],
    totals: Mapping[str, Any],
    currency: str,
) -> Table:
    """Build a table of `Costs` by group, the group that wastes most first."""
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in group_by:
        table.add_column(name.replace("_", " "), overflow="fold", min_width=13)
    for name in USAGE_COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    for group, costs in sorted(rows.items(), key=lambda row: (*_by_waste(row[1]), row[0])):
        table.add_row(*(printable(name) or UNKNOWN for name in group), *usage_cells(costs, currency))
    table.add_section()
    table.add_row("all", *[""] * (len(group_by) - 1), *usage_cells(totals, currency), style="bold")
    return table


def usage_cells(costs: Mapping[str, Any], currency: str) -> Iterator[str]:
    """Format `USAGE_COLUMNS` of `Costs`; a dash is unknown."""
    held, unmeasured = costs["allocated_gpu_hours"], costs["unmeasured_gpu_hours"]
    wasted = wasted_gpu_hours(costs)
    used = None if wasted is None else costs["effective_gpu_hours"]
    for amount in (held, used, wasted, unmeasured):
        yield UNKNOWN if amount is None else f"{amount:,.1f}" if amount >= 1_000 else f"{amount:,.3f}"
    yield percent(wasted, held)
    yield money(costs["allocated_usd"], currency)
    yield money(None if wasted is None else costs["waste_usd"], currency)


def wasted_gpu_hours(costs: Mapping[str, Any]) -> Decimal | None:
    """Return the GPU-hours that were held and not used while use was measured; None if none of them was measured."""
    held, used, unmeasured = (costs[f"{part}_gpu_hours"] for part in ("allocated", "effective", "unmeasured"))
    if held is None or used is None or (held and (unmeasured or 0) >= held):
        return None
    wasted: Decimal = held - used - (unmeasured or 0)
    return wasted


def unknown_reasons(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return why some cells of rows are dashes."""
    has_unmeasured = has_unpriced = False
    for costs in rows:
        has_unmeasured = has_unmeasured or wasted_gpu_hours(costs) is None
        has_unpriced = has_unpriced or costs["allocated_usd"] is None
    return [*([UNMEASURED] if has_unmeasured else []), *([UNPRICED] if has_unpriced else [])]


def _by_waste(costs: Mapping[str, Any]) -> tuple[Decimal, Decimal]:
    return -(costs["waste_usd"] or Decimal(0)), -(wasted_gpu_hours(costs) or Decimal(0))


def parts_table(totals: Mapping[str, Any], currency: str) -> Table:
    """Build the table of the parts of the nodes' GPU-hours and cost, and check that the cost's sum to it exactly."""
    table = Table(title="where the nodes' GPU-hours and cost went", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("part")
    for name in ("GPU-hours", currency, "share"):
        table.add_column(name, justify="right")
    cost, total = totals["node_cost_usd"], Decimal(0)
    wasted = wasted_gpu_hours(totals)
    for part in _PARTS:
        amount = totals[f"{part}_usd"]
        total += amount or 0  # unknown only where nothing of it has a price: it is in no sum
        gpu_hours = wasted if part == "waste" else totals.get(f"{part}_gpu_hours")
        if part == "effective" and wasted is None:
            gpu_hours = None
        has_gpu_hours = part not in _WITHOUT_GPU_HOURS
        hours_text = (UNKNOWN if gpu_hours is None else f"{gpu_hours:,.3f}") if has_gpu_hours else ""
        share = percent(amount, cost) if cost else percent(gpu_hours, totals["capacity_gpu_hours"])
        table.add_row(part, hours_text, money(amount, currency), share)
    table.add_section()
    check = "" if cost is None else "identity exact" if total == cost else f"identity off by {total - cost}"
    capacity = totals["capacity_gpu_hours"]
    table.add_row("node cost", f"{capacity:,.3f}", money(cost, currency), check, style="bold")
    return table


def joined_notes(records: Sequence[HourRecord]) -> list[str]:
    """Return the notes of several hours, each once, with the number of hours that have it if not all do.

    Notes about nodes or instance types without a price, or with the same price source, are joined.
    """
    hours_by_note: dict[str, int] = {}
    for record in records:
        notes = _with_prices_joined(record.notes)
        if record.totals is None and len(records) > 1:
            notes = [f"no figures: {'; '.join(notes)}"]
        for note in dict.fromkeys(notes):
            hours_by_note[note] = hours_by_note.get(note, 0) + 1
    return [
        note if count == len(records) else f"{note} ({count} of {len(records)} hours)"
        for note, count in hours_by_note.items()
    ]


def _with_prices_joined(notes: Iterable[str]) -> list[str]:
    types_by_source: dict[str, list[str]] = {}
    types_by_reason: dict[str, list[str]] = {}
    others: list[str] = []
    for note in notes:
        instance_type, is_priced, source = note.partition(" is priced at ")
        if is_priced:
            types_by_source.setdefault(source, []).append(instance_type)
        elif match := _NO_PRICE.fullmatch(note):
            types_by_reason.setdefault(match[2], []).append(match[1])
        else:
            others.append(note)
    priced = [
        f"{', '.join(types)} {'is' if len(types) == 1 else 'are'} priced at {source}"
        for source, types in types_by_source.items()
    ]
    unpriced = [
        f"no price for {len(types)} node{'s' if len(types) > 1 else ''} ({', '.join(sorted({*types}))}): {reason}"
        for reason, types in types_by_reason.items()
    ]
    return [*priced, *unpriced, *others]
