"""From what was read to rows: filters, who bears what nobody held, groups, order.

Whatever is asked, the rows and what the filters left out add up to what was read, to the last digit.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import Literal, NamedTuple

from gpucost.core.fixed_point import ZERO_ROW, FixedPointRow, published_figures, sum_rows, to_costs
from gpucost.core.model import Capacity, Costs
from gpucost.core.money import from_fixed_point
from gpucost.core.query.cost_query import CostQuery
from gpucost.core.query.dimensions import GroupKey
from gpucost.core.query.filters import matches_all
from gpucost.core.query.idle import Idle, idle_of, share_idle
from gpucost.core.query.periods import row_end

Kind = Literal["held", "idle"]


class Cell(NamedTuple):
    """Where figures belong: a row's period, a cluster, and the values of the question's dimensions."""

    begin: datetime
    cluster: str
    key: GroupKey


@dataclass(slots=True)
class QueryResult:
    """What was read for a question."""

    cells: dict[Cell, FixedPointRow] = field(default_factory=dict)
    capacities: dict[tuple[datetime, str], Capacity | None] = field(default_factory=dict)
    """By period and cluster; None where one hour's is not known."""
    filtered_out: FixedPointRow = ZERO_ROW
    """Of the fleet, what the filters leave out for certain and was therefore not read in detail."""


class Row(NamedTuple):
    """One group's figures in one period; whole numbers, for most rows are written and never reckoned with."""

    start: datetime
    end: datetime
    group: Mapping[str, str]
    amounts: FixedPointRow
    kind: Kind = "held"
    idle: Idle | None = None
    """Its part of what nobody held; None where that is not asked for, or not known."""

    @property
    def costs(self) -> Costs:
        """What it cost, in amounts."""
        (costs,) = to_costs([self.amounts])
        return costs

    def figure(self, name: str) -> Decimal | None:
        """A figure as published: None where it is not known."""
        if name not in Costs.names():
            return self.idle_figures()[name]
        whole = published_figures(self.amounts)[Costs.names().index(name)]
        return None if whole is None else from_fixed_point(whole)

    def idle_figures(self) -> dict[str, Decimal | None]:
        """Idle as published, with the row's whole cost."""
        allocated = self.figure("allocated_usd")
        if self.idle is None:
            return {"idle_gpu_hours": None, "idle_usd": None, "cost_usd": None}
        cost = None if allocated is None else allocated + self.idle.idle_usd
        return {"idle_gpu_hours": self.idle.idle_gpu_hours, "idle_usd": self.idle.idle_usd, "cost_usd": cost}


@dataclass(frozen=True, slots=True)
class GroupedRows:
    """Rows in the order asked for, and what the filters left out."""

    rows: list[Row]
    filtered_out: Row | None
    """None where nothing was filtered."""


class _Bin(NamedTuple):
    begin: datetime
    kind: Kind
    group: GroupKey
    is_kept: bool


def group_rows(question: CostQuery, read: QueryResult) -> GroupedRows:
    """Make the rows of an answer."""
    dimensions, count = question.dimensions(), len(question.group_by)
    costs: dict[_Bin, list[FixedPointRow]] = {}
    holders: dict[tuple[datetime, str], dict[_Bin, list[FixedPointRow]]] = {}
    for cell, figures in read.cells.items():
        is_kept = not question.filters or matches_all(question.filters, dimensions, cell.key)
        bin = _Bin(cell.begin, "held", cell.key[:count], is_kept)
        costs.setdefault(bin, []).append(figures)
        if question.idle.startswith("shared"):
            holders.setdefault((cell.begin, cell.cluster), {}).setdefault(bin, []).append(figures)
    idles = {} if question.idle == "hidden" else _idle(question, read, holders)
    rows, excluded = [], _Excluded()
    bins = {**dict.fromkeys(idles, ()), **costs}
    ends = {begin: row_end(begin, question.granularity, question.period) for begin in {bin.begin for bin in bins}}
    named = {names: dict(zip(question.group_by, names, strict=True)) for names in {bin.group for bin in bins}}
    for bin, parts in bins.items():
        held = parts[0] if len(parts) == 1 else sum_rows(parts)
        idle = None if question.idle == "hidden" else _total_idle(idles.get(bin, []))
        if bin.is_kept:
            rows.append(Row(bin.begin, ends[bin.begin], named[bin.group], held, bin.kind, idle))
        else:
            excluded.costs.append(held)
            excluded.idles.append(idle)
    excluded.costs.append(read.filtered_out)
    rows.sort(key=lambda row: (row.start, row.kind, tuple(row.group.values())))
    return GroupedRows(_sorted(rows, question.sort), excluded.row(question) if question.filters else None)


@dataclass(slots=True)
class _Excluded:
    costs: list[FixedPointRow] = field(default_factory=list)
    idles: list[Idle | None] = field(default_factory=list)

    def row(self, question: CostQuery) -> Row:
        idle = None if question.idle == "hidden" else _total_idle(self.idles)
        return Row(question.period.start, question.period.end, {}, sum_rows(self.costs), "held", idle)


def _idle(
    question: CostQuery,
    read: QueryResult,
    holders: Mapping[tuple[datetime, str], Mapping[_Bin, Sequence[FixedPointRow]]],
) -> dict[_Bin, list[Idle | None]]:
    """What each row bears; a row of its own for what nobody does. What is unknown makes a row's unknown."""
    idle_by_bin: dict[_Bin, list[Idle | None]] = {}
    nameless = tuple("" for _ in question.dimensions())
    is_kept = matches_all(question.filters, question.dimensions(), nameless)
    for (begin, cluster), capacity in read.capacities.items():
        rows_by_bin = holders.get((begin, cluster), {})
        costs_by_bin = dict(zip(rows_by_bin, to_costs([sum_rows(parts) for parts in rows_by_bin.values()]), strict=True))
        names = tuple(cluster if name == "cluster" else "" for name in question.group_by)
        idle_row = _Bin(begin, "idle", names, is_kept)
        if capacity is None:
            for bin in costs_by_bin or [idle_row]:
                idle_by_bin.setdefault(bin, []).append(None)
            continue
        by: Literal["allocation", "even"] = "even" if question.idle == "shared-evenly" else "allocation"
        shared = share_idle(idle_of(capacity), costs_by_bin, by, {bin: bin.group for bin in costs_by_bin})
        for bin, part in shared.parts.items():
            idle_by_bin.setdefault(bin, []).append(part)
        if question.idle == "separate" or shared.unshared != Idle():
            idle_by_bin.setdefault(idle_row, []).append(shared.unshared)
    return idle_by_bin


def _sorted(rows: list[Row], order: Sequence[tuple[str, bool]]) -> list[Row]:
    """Stable, so that the last key sorts first; what is unknown comes last either way."""
    for name, is_descending in reversed(order):
        if name == "start":
            rows = sorted(rows, key=lambda row: row.start, reverse=is_descending)
        elif rows and name in rows[0].group:
            rows = sorted(rows, key=lambda row: row.group[name], reverse=is_descending)
        else:
            figures = [(row.figure(name), row) for row in rows]
            available = [(figure, row) for figure, row in figures if figure is not None]
            available.sort(key=lambda figure_and_row: figure_and_row[0], reverse=is_descending)
            rows = [row for _, row in available] + [row for figure, row in figures if figure is None]
    return rows


def _total_idle(parts: Iterable[Idle | None]) -> Idle | None:
    parts = list(parts)
    available = [part for part in parts if part is not None]
    return Idle.total(available) if len(available) == len(parts) else None


def sum_cells(parts: Mapping[Cell, Sequence[Costs]]) -> dict[Cell, Costs]:
    """Sums, so that memory follows the answer's size and not the hours'."""
    return {cell: costs[0] if len(costs) == 1 else Costs.total(costs) for cell, costs in parts.items()}
