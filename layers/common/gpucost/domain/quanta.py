"""Costs as whole numbers of 1e-12: sums of thousands of rows without an object for every amount that is summed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from functools import reduce
from itertools import repeat
from operator import add, attrgetter
from typing import TypeVar

from gpucost.domain.model import Costs
from gpucost.domain.money import QUANTUM

Quanta = tuple[int, ...]
"""The amounts of one `Costs`, in the order of its names."""
K = TypeVar("K")
NOTHING: Quanta = (0,) * len(Costs.names())
_EXPONENT = QUANTUM.adjusted()
_scaled = Context(prec=60).scaleb
_values = attrgetter(*Costs.names())
_MONEY = tuple(name.endswith("_usd") for name in Costs.names())
_ALLOCATED, _UNPRICED = map(Costs.names().index, ("allocated_gpu_hours", "unpriced_gpu_hours"))


class CostTable(Mapping[K, Costs]):
    """Costs by key, kept as whole numbers; a row becomes amounts when somebody looks at it.

    Args:
        quanta: the rows.
    """

    def __init__(self, quanta: Mapping[K, Quanta]) -> None:
        self.quanta = quanta

    def __getitem__(self, key: K) -> Costs:
        (costs,) = costs_of([self.quanta[key]])
        return costs

    def __iter__(self) -> Iterator[K]:
        return iter(self.quanta)

    def __len__(self) -> int:
        return len(self.quanta)

    def __contains__(self, key: object) -> bool:
        return key in self.quanta

    def __repr__(self) -> str:
        return repr(dict(self))


def quanta_of(table: Mapping[K, Costs]) -> Mapping[K, Quanta]:
    """A table's rows as whole numbers, exact.

    Raises:
        ValueError: an amount has more digits than the ledger keeps.
    """
    return table.quanta if isinstance(table, CostTable) else dict(zip(table, wholes(table.values()), strict=True))


def wholes(rows: Iterable[Costs]) -> list[Quanta]:
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


def plus(one: Quanta, other: Quanta) -> Quanta:
    """The sum of two rows of one length."""
    return tuple(map(add, one, other))


def total(rows: Iterable[Quanta]) -> Quanta:
    """The sum of many rows; nothing of none."""
    left = iter(rows)
    return reduce(plus, left, next(left, NOTHING))


def published(row: Quanta) -> Sequence[int | None]:
    """A row as `Costs.figures` has it: money is None where nothing of what was allocated has a price."""
    if 0 < row[_UNPRICED] == row[_ALLOCATED]:
        return [None if is_money else whole for whole, is_money in zip(row, _MONEY, strict=True)]
    return row


def costs_of(rows: Sequence[Quanta]) -> list[Costs]:
    """Rows as amounts, all at once."""
    columns = [amounts(column) for column in zip(*rows, strict=True)]
    return [*map(Costs, *columns)] if columns else []


def amounts(column: Iterable[int]) -> list[Decimal]:
    """Whole numbers of 1e-12 as amounts, each as `money.from_quanta` makes it."""
    return [*map(_scaled, map(Decimal, column), repeat(_EXPONENT))]
