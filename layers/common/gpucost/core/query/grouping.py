"""From read figures to the rows of a response: filters, shares of idle cost, groups and order.

For every query, the rows and the filtered-out figures add up to the figures that were read, to the last digit.

Idle cost is the cost of nodes that no pod's line carries:

    idle = unallocated + stranded + unobserved + host + residual, so that allocated + idle = node cost

It is shared within each cluster and period, in parts that sum to it exactly.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Literal, NamedTuple, TypeVar

from gpucost.core.amounts import CapacityCosts, Costs, Idle, split_each, to_decimal
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.query.cost_query import IDLE_FIGURES, CostQuery
from gpucost.core.query.dimensions import GroupKey, matches_all

RowKind = Literal["held", "idle"]


CellKey = tuple[datetime, str, GroupKey]
"""The key of costs that were read: the start of a row, a cluster, and the values of the query's dimensions."""
_RowKey = tuple[datetime, RowKind, GroupKey, bool]
"""A row's start, kind and group, and whether the filters keep it."""


class GroupRow(NamedTuple):
    """One group's costs in one period."""

    start: datetime
    end: datetime
    group: Mapping[str, str]
    costs: Costs
    kind: RowKind = "held"
    idle: Idle | None = None
    """Its share of idle cost; None if the query does not share it, or if it is unknown."""

    def figure(self, name: str) -> Decimal | None:
        """Return a figure as published; None if it is unknown."""
        figures = self.costs.figures() if name in Costs.names() else self.idle_figures()
        return figures[name]

    def idle_figures(self) -> dict[str, Decimal | None]:
        """Return the idle figures as published, and the row's cost with idle."""
        if self.idle is None:
            return dict.fromkeys(IDLE_FIGURES)
        cost = to_decimal(self.costs.allocated_usd + self.idle.idle_usd) if self.costs.has_price() else None
        return {**self.idle.figures(), "cost_usd": cost}


def group_rows(
    query: CostQuery,
    cells: CostsByKey[CellKey],
    capacities: Mapping[tuple[datetime, str], CapacityCosts | None],
    filtered_out: Costs,
) -> tuple[list[GroupRow], GroupRow | None]:
    """Return the sorted rows of a response, and the sum of what the filters exclude; None without filters.

    Args:
        query: the cost query.
        cells: the costs that were read.
        capacities: by start of the row and cluster; None if the capacity of any hour is unknown.
        filtered_out: costs that the filters exclude and that are not in the cells.
    """
    dimensions, count, shares_idle = query.dimensions(), len(query.group_by), query.idle.startswith("shared")

    def row_key_of(cell: CellKey) -> _RowKey:
        begin, _, key = cell
        return begin, "held", key[:count], not query.filters or matches_all(query.filters, dimensions, key)

    costs = cells.group_by(row_key_of).rows
    holders: dict[tuple[datetime, str], dict[_RowKey, list[Costs]]] = {}
    if shares_idle:
        for cell, cell_costs in cells.items():
            holders.setdefault(cell[:2], {}).setdefault(row_key_of(cell), []).append(cell_costs)
    idles = {} if query.idle == "hidden" else _idle_by_row(query, capacities, holders)
    rows: list[GroupRow] = []
    no_costs = Costs()
    excluded_costs, excluded_idles = [filtered_out], list[Idle | None]()
    end_of, group_of = cache(query.row_end), cache(lambda names: dict(zip(query.group_by, names, strict=True)))
    for row_key in sorted({**costs, **idles}):
        begin, kind, names, is_kept = row_key
        row_costs = costs.get(row_key, no_costs)
        idle = None if query.idle == "hidden" else Idle.total_if_complete(idles.get(row_key, ()))
        if is_kept:
            rows.append(GroupRow(begin, end_of(begin), group_of(names), row_costs, kind, idle))
        else:
            excluded_costs.append(row_costs)
            excluded_idles.append(idle)
    rows = _sort_rows(rows, query.sort)
    if not query.filters:
        return rows, None
    idle = None if query.idle == "hidden" else Idle.total_if_complete(excluded_idles)
    return rows, GroupRow(query.period.start, query.period.end, {}, Costs.total(excluded_costs), "held", idle)


def _idle_by_row(
    query: CostQuery,
    capacities: Mapping[tuple[datetime, str], CapacityCosts | None],
    holders: Mapping[tuple[datetime, str], Mapping[_RowKey, Sequence[Costs]]],
) -> dict[_RowKey, list[Idle | None]]:
    """Return each row's shares of idle cost, and a row for idle cost that is not shared; None for an unknown share."""
    idle_by_row: dict[_RowKey, list[Idle | None]] = {}
    empty_names = tuple("" for _ in query.dimensions())
    is_kept = matches_all(query.filters, query.dimensions(), empty_names)
    for (begin, cluster), capacity in capacities.items():
        rows_by_key = holders.get((begin, cluster), {})
        costs_by_key = {row_key: Costs.total(parts) for row_key, parts in rows_by_key.items()}
        names = tuple(cluster if name == "cluster" else "" for name in query.group_by)
        idle_row: _RowKey = begin, "idle", names, is_kept
        if capacity is None:
            for row_key in costs_by_key or [idle_row]:
                idle_by_row.setdefault(row_key, []).append(None)
            continue
        groups = {row_key: row_key[2] for row_key in costs_by_key} if query.idle == "shared-evenly" else None
        shares = share_idle(capacity.idle(), costs_by_key, groups)
        for row_key, share in shares.items():
            idle_by_row.setdefault(row_key, []).append(share)
        unshared = Idle() if shares else capacity.idle()
        if query.idle == "separate" or unshared != Idle():
            idle_by_row.setdefault(idle_row, []).append(unshared)
    return idle_by_row


def _sort_rows(rows: list[GroupRow], order: Sequence[tuple[str, bool]]) -> list[GroupRow]:
    """Sort rows by several keys, the last key first because sorting is stable; unknown figures come last."""
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


Holder = TypeVar("Holder")


def share_idle(
    idle: Idle, costs_by_holder: Mapping[Holder, Costs], group_by_holder: Mapping[Holder, object] | None = None
) -> dict[Holder, Idle]:
    """Share idle cost among holders, exactly.

    Args:
        idle: of one cluster and period.
        costs_by_holder: allocated costs; all holders of idle costs.
        group_by_holder: to share evenly among groups; holders of one group share its part by allocation.

    Returns:
        Each holder's share, in proportion to allocated cost (GPU-hours if there are no prices) unless there are groups.
        Empty if no holder has any allocation: then all of it stays unshared.
    """
    allocated = _allocation_weights([*costs_by_holder.values()])
    weights: Sequence[Fraction | int] = allocated
    if group_by_holder is not None:
        weights = _even_weights(allocated, [group_by_holder[holder] for holder in costs_by_holder])
    if not any(weights):
        return {}
    gpu_hours, usd = split_each([idle.idle_gpu_hours, idle.idle_usd], weights)
    return dict(zip(costs_by_holder, map(Idle, gpu_hours, usd), strict=True))


def _allocation_weights(costs: Sequence[Costs]) -> list[int]:
    for name in ("allocated_usd", "allocated_gpu_hours"):
        weights = [max(0, getattr(holder_costs, name)) for holder_costs in costs]
        if any(weights):
            return weights
    return [0 for _ in costs]


def _even_weights(weights_held: Sequence[int], groups: Sequence[object]) -> list[Fraction]:
    members: dict[object, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    weights = [Fraction(0)] * len(weights_held)
    for indexes in members.values():
        group_total = sum(weights_held[index] for index in indexes)
        for index in indexes:
            weights[index] = Fraction(weights_held[index], group_total) if group_total else Fraction(1, len(indexes))
    return weights
