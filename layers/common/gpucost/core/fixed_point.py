"""Costs as fixed-point amounts: integers that count units of 1e-12.

Summing thousands of rows of integers creates no `Decimal` for each amount.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from functools import cached_property, reduce
from itertools import repeat
from operator import add, attrgetter
from typing import TypeVar

from gpucost.core.model import Costs
from gpucost.core.money import QUANTUM

FixedPointRow = tuple[int, ...]
"""The fixed-point amounts of one `Costs`, in the order of `Costs.names()`."""
K = TypeVar("K")
ZERO_ROW: FixedPointRow = (0,) * len(Costs.names())
_EXPONENT = QUANTUM.adjusted()
_scaled = Context(prec=60).scaleb
_cost_amounts = attrgetter(*Costs.names())
_MONEY = tuple(name.endswith("_usd") for name in Costs.names())
_ALLOCATED, _UNPRICED = map(Costs.names().index, ("allocated_gpu_hours", "unpriced_gpu_hours"))


class CostTable(Mapping[K, Costs]):
    """Costs by key, stored as columns of fixed-point amounts; a row is converted to `Costs` when it is read.

    Args:
        names: the keys, each once.
        columns: one column for each field of `Costs`, with the rows in the order of `names`.
    """

    def __init__(self, names: Iterable[K], columns: Sequence[Sequence[int]]) -> None:
        self._names = tuple(names)
        self._columns = columns

    @classmethod
    def from_costs(cls, table: Mapping[K, Costs]) -> "CostTable[K]":
        """Convert a mapping to a table, exactly.

        Raises:
            ValueError: an amount has more digits than the ledger keeps.
        """
        if isinstance(table, CostTable):
            return table
        return _table(dict(zip(table, to_fixed_point_rows(table.values()), strict=True)))

    @cached_property
    def rows(self) -> Mapping[K, FixedPointRow]:
        """The fixed-point rows by key."""
        return dict(zip(self._names, zip(*self._columns, strict=True), strict=True))

    def select(self, names: Iterable[K]) -> "CostTable[K]":
        """Return the rows of some keys; keys that are not in the table are ignored."""
        return _table({name: self.rows[name] for name in names if name in self.rows})

    def summed_under(self, name: K) -> "CostTable[K]":
        """Return a table with the sum of all rows under one key; an empty table stays empty."""
        return CostTable([name], [[sum(column)] for column in self._columns]) if self._names else self

    def __add__(self, other: "CostTable[K]") -> "CostTable[K]":
        """Add row by row, or column by column where the keys are equal, as those of a unit's days mostly are."""
        if self._names == other._names:
            columns = zip(self._columns, other._columns, strict=True)
            return CostTable(self._names, [[*map(add, left, right)] for left, right in columns])
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
    """Convert costs to fixed-point rows, exactly; the inverse of `to_costs`.

    Raises:
        ValueError: an amount has more digits than the ledger keeps.
    """
    return [*zip(*map(_to_integers, zip(*map(_cost_amounts, rows), strict=True)), strict=True)]


def _to_integers(column: Sequence[Decimal]) -> list[int]:
    scaled = [*map(_scaled, column, repeat(-_EXPONENT))]
    integers = [*map(int, scaled)]
    if integers != scaled:
        raise ValueError(f"an amount is not a whole number of {QUANTUM}")
    return integers


def add_rows(left: FixedPointRow, right: FixedPointRow) -> FixedPointRow:
    """Add two rows of the same length."""
    return tuple(map(add, left, right))


def sum_rows(rows: Iterable[FixedPointRow]) -> FixedPointRow:
    """Return the sum of rows; a row of zeros without any."""
    remaining = iter(rows)
    return reduce(add_rows, remaining, next(remaining, ZERO_ROW))


def published_figures(row: FixedPointRow) -> Sequence[int | None]:
    """Return a row as it is published, like `Costs.figures`: money is None where no allocated GPU-hour has a price."""
    if 0 < row[_UNPRICED] == row[_ALLOCATED]:
        return [None if is_money else amount for amount, is_money in zip(row, _MONEY, strict=True)]
    return row


def to_costs(rows: Sequence[FixedPointRow]) -> list[Costs]:
    """Convert fixed-point rows to costs."""
    columns = [to_decimals(column) for column in zip(*rows, strict=True)]
    return [*map(Costs, *columns)] if columns else []


def to_decimals(column: Iterable[int]) -> list[Decimal]:
    """Convert a column of fixed-point amounts to decimals, each as `money.from_fixed_point` does."""
    return [*map(_scaled, map(Decimal, column), repeat(_EXPONENT))]
