"""Costs as whole numbers of 1e-12: sums of thousands of rows without an object for every amount that is summed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from functools import reduce
from itertools import repeat
from operator import add
from typing import TypeVar

from gpucost.domain.model import Costs
from gpucost.domain.money import QUANTUM, to_quanta

Quanta = tuple[int, ...]
"""The amounts of one `Costs`, in the order of its names."""
K = TypeVar("K")
_EXPONENT = QUANTUM.adjusted()
_scaled = Context(prec=60).scaleb


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
    """A table's rows as whole numbers, exact."""
    if isinstance(table, CostTable):
        return table.quanta
    return {key: tuple(to_quanta(getattr(costs, name)) for name in Costs.names()) for key, costs in table.items()}


def _plus(one: Quanta, other: Quanta) -> Quanta:
    return tuple(map(add, one, other))


def total(rows: Iterable[Quanta]) -> Quanta:
    """The sum of many rows, at least one, all of one length."""
    return reduce(_plus, rows)


def costs_of(rows: Sequence[Quanta]) -> list[Costs]:
    """Rows as amounts, all at once."""
    columns = [amounts(column) for column in zip(*rows, strict=True)]
    return [*map(Costs, *columns)] if columns else []


def amounts(column: Iterable[int]) -> list[Decimal]:
    """Whole numbers of 1e-12 as amounts, each as `money.from_quanta` makes it."""
    return [*map(_scaled, map(Decimal, column), repeat(_EXPONENT))]
