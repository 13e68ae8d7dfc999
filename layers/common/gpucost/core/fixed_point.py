"""Costs as whole numbers of 1e-12: sums of thousands of rows without an object for every amount that is summed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from functools import cached_property, reduce
from itertools import repeat
from operator import add, attrgetter
from typing import TypeVar

from gpucost.core.model import Costs
from gpucost.core.money import QUANTUM

FixedPointRow = tuple[int, ...]
"""The amounts of one `Costs`, in the order of its names."""
K = TypeVar("K")
ZERO_ROW: FixedPointRow = (0,) * len(Costs.names())
_EXPONENT = QUANTUM.adjusted()
_scaled = Context(prec=60).scaleb
_values = attrgetter(*Costs.names())
_MONEY = tuple(name.endswith("_usd") for name in Costs.names())
_ALLOCATED, _UNPRICED = map(Costs.names().index, ("allocated_gpu_hours", "unpriced_gpu_hours"))


class CostTable(Mapping[K, Costs]):
    """Costs by key, kept as columns of whole numbers; a row becomes amounts when somebody looks at it.

    Args:
        names: the keys, each once.
        columns: for each amount of `Costs`, the rows' in the order of their keys.
    """

    def __init__(self, names: Iterable[K], columns: Sequence[Sequence[int]]) -> None:
        self._names = tuple(names)
        self._columns = columns

    @classmethod
    def from_costs(cls, table: Mapping[K, Costs]) -> "CostTable[K]":
        """Any table's rows, exact.

        Raises:
            ValueError: an amount has more digits than the ledger keeps.
        """
        return table if isinstance(table, CostTable) else _table(dict(zip(table, to_fixed_point_rows(table.values()), strict=True)))

    @cached_property
    def rows(self) -> Mapping[K, FixedPointRow]:
        """The rows."""
        return dict(zip(self._names, zip(*self._columns, strict=True), strict=True))

    def select(self, names: Iterable[K]) -> "CostTable[K]":
        """The rows of some keys."""
        return _table({name: self.rows[name] for name in names if name in self.rows})

    def summed_under(self, name: K) -> "CostTable[K]":
        """One row for all of them, if there are any."""
        return CostTable([name], [[sum(column)] for column in self._columns]) if self._names else self

    def __add__(self, other: "CostTable[K]") -> "CostTable[K]":
        """Row by row; column by column where both have the same keys, as a unit's days mostly do."""
        if self._names == other._names:
            columns = zip(self._columns, other._columns, strict=True)
            return CostTable(self._names, [[*map(add, one, more)] for one, more in columns])
        sums = {**self.rows}
        for name, row in other.rows.items():
            sums[name] = add_rows(sums[name], row) if name in sums else row
        return _table(sums)

    def __getitem__(self, key: K) -> Costs:
        (costs,) = to_costs([self.rows[key]])
        return costs

    def __iter__(self) -> Iterator[K]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, key: object) -> bool:
        return key in self.rows

    def __repr__(self) -> str:
        return repr(dict(self))


def _table(rows: Mapping[K, FixedPointRow]) -> CostTable[K]:
    return CostTable(rows, [*zip(*rows.values(), strict=True)] or [()] * len(ZERO_ROW))


def to_fixed_point_rows(rows: Iterable[Costs]) -> list[FixedPointRow]:
    """Rows as whole numbers, exact: back from `costs_of`.

    Raises:
        ValueError: an amount has more digits than the ledger keeps.
    """
    return [*zip(*map(_whole, zip(*map(_values, rows), strict=True)), strict=True)]


def _whole(column: Sequence[Decimal]) -> list[int]:
    scaled = [*map(_scaled, column, repeat(-_EXPONENT))]
    found = [*map(int, scaled)]
    if found != scaled:
        raise ValueError(f"an amount is not a whole number of {QUANTUM}")
    return found


def add_rows(one: FixedPointRow, other: FixedPointRow) -> FixedPointRow:
    """The sum of two rows of one length."""
    return tuple(map(add, one, other))


def sum_rows(rows: Iterable[FixedPointRow]) -> FixedPointRow:
    """The sum of many rows; nothing of none."""
    left = iter(rows)
    return reduce(add_rows, left, next(left, ZERO_ROW))


def published_figures(row: FixedPointRow) -> Sequence[int | None]:
    """A row as `Costs.figures` has it: money is None where nothing of what was allocated has a price."""
    if 0 < row[_UNPRICED] == row[_ALLOCATED]:
        return [None if is_money else whole for whole, is_money in zip(row, _MONEY, strict=True)]
    return row


def to_costs(rows: Sequence[FixedPointRow]) -> list[Costs]:
    """Rows as amounts, all at once."""
    columns = [to_decimals(column) for column in zip(*rows, strict=True)]
    return [*map(Costs, *columns)] if columns else []


def to_decimals(column: Iterable[int]) -> list[Decimal]:
    """Whole numbers of 1e-12 as amounts, each as `money.from_fixed_point` makes it."""
    return [*map(_scaled, map(Decimal, column), repeat(_EXPONENT))]
