"""Tables for people: who held and used the GPUs, what that cost, and where the rest of the nodes went.

The sum of all hours is first, and rows are sorted by waste. What is unknown is a dash, and a line below a table says
why. GPU-hours need no price.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from rich import box
from rich.markup import escape
from rich.table import Table

from gpucost.core.amounts import Totals
from gpucost.core.costs_by_key import sum_by_key
from gpucost.core.hour_record import HourRecord, Line
from gpucost.core.hours import HOUR, format_epoch_ms, format_timestamp
from gpucost.core.metering.metering import PARTIAL_HOUR_PREFIX
from gpucost_cli.rendering import (
    AT_LEAST,
    UNKNOWN,
    digits_of,
    energy_note,
    money,
    percent,
    printable,
    quantity,
    unpriced_note,
    waste_percent,
    wasted_gpu_hours,
    whole_money,
)

if TYPE_CHECKING:
    from gpucost.pipeline.attribute import SoFar

_NO_PRICE = re.compile(r"no price for node \S+ \((.+?)\) from (?:[^;]+; )?(.*)")
_PARTS = {
    "effective": "held by pods and used",
    "waste": "held by pods and not used",
    "unmeasured": "held by pods; no metric measured the use",
    "unallocated": "offered, and no pod held it",
    "stranded": "no pod could hold it",
    "unobserved": "no metric says who held it",
    "host": "CPU and memory of the nodes",
    "residual": "metrics that contradict each other",
}
"""The parts of the nodes' cost, as the glossary defines them. Pods held the first three."""
_NO_PRICE_OF_ROWS = (
    "cost: no node of these rows has a price; notes of the hours say why. AWS credentials, or pricing of the settings, "
    "give prices"
)
_OF_PODS = ("effective", "waste", "unmeasured")
_WITHOUT_GPU_HOURS = {"host", "residual"}
WORKLOAD = ("workload_kind", "workload", "namespace")


def hours_tables(
    records: Sequence[HourRecord], group_by: Sequence[str] = ("business_unit",), *, doctor: str, each_hour: bool = False
) -> Iterator[Table | str]:
    """Yield the sum of each cluster's hours, with notes; then each hour if requested.

    Args:
        records: the hours of all clusters.
        group_by: names of lines' fields.
        doctor: the command that says why figures are unknown.
        each_hour: whether each hour has tables, too.
    """
    for cluster in sorted({record.cluster for record in records}):
        of_cluster = [record for record in records if record.cluster == cluster]
        yield from _sum_tables(_title(of_cluster), of_cluster, group_by, doctor)
        if each_hour and len(of_cluster) > 1:
            for record in of_cluster:
                yield from _sum_tables(_title([record]), [record], group_by, doctor)


def _title(records: Sequence[HourRecord]) -> str:
    start, end = format_timestamp(records[0].hour), format_timestamp(records[-1].hour + HOUR)
    return f"{records[0].cluster}  {start} to {end}  {_status(records)}"


def _sum_tables(
    title: str, records: Sequence[HourRecord], group_by: Sequence[str], doctor: str
) -> Iterator[Table | str]:
    rated = [record for record in records if record.totals is not None]
    totals = Totals.total(record.totals for record in rated if record.totals is not None)
    if totals is None:
        yield escape(title)
    else:
        lines = [line for record in rated for line in record.lines]
        rows, currency = _figures_by(lines, group_by), rated[0].currency
        figures = totals.costs.figures() | ({} if totals.capacity is None else totals.capacity.figures())
        yield from figures_tables(title, group_by, rows, figures, currency, doctor)
        top = first_by_waste(rows)
        if top and "workload" not in group_by and "pod" not in group_by:
            of_top = [line for line in lines if _group(line, group_by) == top]
            yield from top_waster_sentence(top, rows[top], _figures_by(of_top, WORKLOAD), currency)
    for note in joined_notes(records):
        yield escape(f"note: {note}")


def _figures_by(lines: Iterable[Line], names: Sequence[str]) -> dict[tuple[str, ...], Mapping[str, Any]]:
    sums = sum_by_key((_group(line, names), line.costs()) for line in lines)
    return {group: costs.figures() for group, costs in sums.items()}


def so_far_tables(so_far: "SoFar", group_by: Sequence[str], *, doctor: str) -> Iterator[Table | str]:
    """Yield the tables of a time that is no whole hour."""
    record, time = so_far.record, so_far.time
    title = f"{record.cluster}  {format_epoch_ms(time.start)} to {format_epoch_ms(time.end)}  so far"
    yield from _sum_tables(title, [record], group_by, doctor)


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
    totals: Mapping[str, Any],
    currency: str,
    doctor: str,
) -> Iterator[Table | str]:
    """Yield the table of rows, where the nodes' GPU-hours and cost went, and the reasons of both tables' dashes."""
    yield usage_table(title, group_by, rows, totals, currency)
    has_capacity = totals.get("capacity_gpu_hours") is not None
    yield ""
    if has_capacity:
        yield parts_table(totals, currency)
    for reason in unknown_reasons([*rows.values(), totals], has_capacity=has_capacity):
        missing = "" if reason == _NO_PRICE_OF_ROWS else f". To see what is missing, run: {doctor}"
        yield escape(f"{UNKNOWN} {reason}{missing}")
    if (unused := largest_unused_part(totals, currency)) is not None:
        yield unused
    if totals["allocated_usd"] is not None and (unpriced := unpriced_note(totals)) is not None:
        yield unpriced
    if (energy := energy_note(totals)) is not None:
        yield energy


def usage_table(
    title: str,
    group_by: Sequence[str],
    rows: Mapping[tuple[str, ...], Mapping[str, Any]],
    totals: Mapping[str, Any],
    currency: str,
) -> Table:
    """Build a table of `Costs` by group, the group that wastes most first."""
    has_cost = totals["allocated_usd"] is not None
    caption = f"sorted by waste in {'cost' if has_cost else 'GPU-hours'}"
    if any(costs["unmeasured_gpu_hours"] for costs in rows.values()):
        caption += f"; {AT_LEAST}: at least, because a part is unmeasured"
    table = Table(
        title=escape(title),
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    for name in group_by:
        table.add_column(name.replace("_", " "), overflow="fold", min_width=13)
    share = "waste %\nof cost" if has_cost else "waste % of\nGPU-hours"
    for name in ("GPU-hours", "effective", "waste", "unmeasured", share, "allocated\ncost", "waste\ncost"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in sorted(rows, key=lambda group: (*_by_waste(rows[group]), group)):
        table.add_row(*(printable(name) or UNKNOWN for name in group), *_usage_cells(rows[group], totals, currency))
    table.add_section()
    name = "all units" if list(group_by) == ["business_unit"] else "all pods"
    table.add_row(name, *[""] * (len(group_by) - 1), *_usage_cells(totals, totals, currency), style="bold")
    return table


def _usage_cells(costs: Mapping[str, Any], totals: Mapping[str, Any], currency: str) -> Iterator[str]:
    """Format the figures of a row with the decimals of the sum; a dash is unknown."""
    wasted = wasted_gpu_hours(costs)
    used = None if wasted is None else costs["effective_gpu_hours"]
    digits = digits_of(totals["allocated_gpu_hours"])
    for amount in (costs["allocated_gpu_hours"], used, wasted, costs["unmeasured_gpu_hours"]):
        yield quantity(amount, digits)
    yield waste_percent(costs, of="allocated_gpu_hours" if totals["allocated_usd"] is None else "allocated_usd")
    show = _money_format(totals["allocated_usd"])
    yield show(costs["allocated_usd"], currency)
    yield show(None if wasted is None else costs["waste_usd"], currency)


def unknown_reasons(rows: Iterable[Mapping[str, Any]], *, has_capacity: bool) -> list[str]:
    """Return why some cells of the rows, or of the table of parts, are dashes."""
    reasons: dict[str, None] = {}
    for costs in rows:
        if wasted_gpu_hours(costs) is None:
            reasons["effective, waste, waste %: no metric measured the GPUs of these rows"] = None
        elif waste_percent(costs, of="allocated_gpu_hours") == UNKNOWN:
            reasons["waste %: less than 10% of the GPU-hours of these rows is measured"] = None
        if costs["allocated_usd"] is None or any(costs.get(f"{part}_usd", 0) is None for part in _PARTS):
            reasons[_NO_PRICE_OF_ROWS] = None
    if not has_capacity:
        reasons["node cost, unallocated, stranded and host cost: no metric says what the nodes have"] = None
    return list(reasons)


def largest_unused_part(totals: Mapping[str, Any], currency: str) -> str | None:
    """Say which GPUs without pods are more than the waste of pods; None if no part is."""
    figure, wasted = ("usd", totals["waste_usd"])
    if totals["allocated_usd"] is None:
        figure, wasted = "gpu_hours", wasted_gpu_hours(totals)
    amounts = {part: totals.get(f"{part}_{figure}") or Decimal(0) for part in ("unallocated", "stranded")}
    part = max(amounts, key=lambda name: amounts[name])
    if wasted is None or amounts[part] <= wasted:
        return None
    amount = (
        _money_format(amounts[part])(amounts[part], currency)
        if figure == "usd"
        else f"{quantity(amounts[part], digits_of(amounts[part]))} GPU-hours"
    )
    return f"more than the waste of pods: {part} GPUs, {amount}; {_PARTS[part]}"


def first_by_waste(rows: Mapping[tuple[str, ...], Mapping[str, Any]]) -> tuple[str, ...] | None:
    """Return the group that wastes most; None if no waste is known."""
    first = min(rows, key=lambda group: (*_by_waste(rows[group]), group), default=None)
    return first if first is not None and any(_by_waste(rows[first])) else None


def top_waster_sentence(
    group: Sequence[str],
    costs: Mapping[str, Any],
    workloads: Mapping[tuple[str, ...], Mapping[str, Any]],
    currency: str,
) -> Iterator[str]:
    """Yield which row wastes most, and the workload with the largest part of it.

    Args:
        group: the names of the row that wastes most.
        costs: its figures.
        workloads: `Costs` of its workloads by kind, name and namespace.
        currency: of all amounts.
    """
    if (top := first_by_waste(workloads)) is None:
        return
    kind, name, namespace = map(printable, top)
    unit = printable(", ".join(filter(None, group)))
    yield (
        f"most waste: {unit}, {_waste(costs, currency)}; its top waster: {kind} {name} in namespace {namespace}, "
        f"{_waste(workloads[top], currency)}"
    )


def _waste(costs: Mapping[str, Any], currency: str) -> str:
    if (usd := costs["waste_usd"]) is None:
        wasted = wasted_gpu_hours(costs) or Decimal(0)
        amount, share = (
            f"{quantity(wasted, digits_of(wasted))} GPU-hours",
            waste_percent(costs, of="allocated_gpu_hours"),
        )
        of = "GPU-hours"
    else:
        amount, share, of = _money_format(usd)(usd, currency), waste_percent(costs), "cost"
    return amount if share == UNKNOWN else f"{amount}, {share} of its {of}"


def _money_format(largest: Decimal | None) -> Callable[[Decimal | None, str], str]:
    """Return how amounts are written of which the largest is given: from 100 on, without digits after the point."""
    return whole_money if (largest or 0) >= 100 else money


def _by_waste(costs: Mapping[str, Any]) -> tuple[Decimal, Decimal]:
    return -(costs["waste_usd"] or Decimal(0)), -(wasted_gpu_hours(costs) or Decimal(0))


def parts_table(totals: Mapping[str, Any], currency: str) -> Table:
    """Build the table of the parts of the nodes' GPU-hours and cost, and check that the cost's sum to it exactly."""
    table = Table(title="where the nodes' GPU-hours and cost went", box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("part")
    for name in ("GPU-hours", currency, "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    cost, capacity, wasted = totals["node_cost_usd"], totals["capacity_gpu_hours"], wasted_gpu_hours(totals)
    of_parts = {part: (totals.get(f"{part}_gpu_hours"), totals[f"{part}_usd"]) for part in _PARTS}
    of_parts["waste"] = wasted, of_parts["waste"][1]
    if wasted is None:
        of_parts["effective"] = of_parts["waste"] = None, None

    def add(name: str, gpu_hours: Decimal | None, amount: Decimal | None, text: str, style: str = "") -> None:
        hours_text = "" if name in _WITHOUT_GPU_HOURS else quantity(gpu_hours, digits_of(totals["allocated_gpu_hours"]))
        share = percent(amount, cost) if cost else percent(gpu_hours, capacity) if capacity else ""
        table.add_row(name, hours_text, money(amount, currency), share, text, style=style)

    add("allocated", totals["allocated_gpu_hours"], totals["allocated_usd"], "effective + waste + unmeasured")
    for part, meaning in _PARTS.items():
        add(f"  {part}" if part in _OF_PODS else part, *of_parts[part], meaning)
    table.add_section()
    total = sum((totals[f"{part}_usd"] or 0 for part in _PARTS), Decimal(0))  # unknown: nothing of it has a price
    check = "the parts add up exactly" if total == cost else f"the parts differ by {total - (cost or 0)}"
    add("node cost", capacity, cost, "" if cost is None else check, "bold")
    return table


def joined_notes(records: Sequence[HourRecord]) -> list[str]:
    """Return the notes of several hours, each once, with the number of hours that have it if not all do.

    Notes about nodes or instance types without a price, or with the same price source, are joined.
    """
    hours_by_note: dict[str, int] = {}
    for record in records:
        notes = _with_prices_joined(record.notes)
        notes.sort(key=lambda note: not note.startswith(PARTIAL_HOUR_PREFIX))  # the cause of a low coverage
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
