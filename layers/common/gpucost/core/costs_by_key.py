"""Tables of costs by key: a key is a business unit, a namespace, a day's dimensions or a row of a report."""

from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sequence
from functools import cached_property
from itertools import chain
from operator import add
from typing import Generic, TypeVar

from gpucost.core.amounts import Costs

Key = TypeVar("Key")
NewKey = TypeVar("NewKey")
Columns = Sequence[Sequence[int]]
_MAX_PENDING = 20_000
"""Costs that a sum holds before it adds them up, in addition to two per key."""


class CostsByKey(Mapping[Key, Costs]):
    """Costs by key. They are stored as columns, because adding columns is faster than adding many records.

    Args:
        keys: each once.
        columns: one column for each field of `Costs`, with the amounts in the order of `keys`.
    """

    def __init__(self, keys: Iterable[Key] = (), columns: Columns = ()) -> None:
        self._loaded: tuple[tuple[Key, ...], Columns] = tuple(keys), columns or [()] * len(Costs.names())
        self._load: Callable[[], CostsByKey[Key]] | None = None

    @classmethod
    def deferred(cls, load: Callable[[], "CostsByKey[Key]"]) -> "CostsByKey[Key]":
        """Return a table that is loaded on first use."""
        table: CostsByKey[Key] = cls()
        table._load = load
        return table

    @classmethod
    def of(cls, costs: Mapping[Key, Costs]) -> "CostsByKey[Key]":
        """Return a mapping as a table."""
        return costs if isinstance(costs, CostsByKey) else CostsByKey(costs, Costs.columns(costs.values()))

    @property
    def _content(self) -> tuple[tuple[Key, ...], Columns]:
        if self._load is not None:
            self._loaded, self._load = self._load()._content, None
        return self._loaded

    @property
    def _keys(self) -> tuple[Key, ...]:
        return self._content[0]

    @property
    def _columns(self) -> Columns:
        return self._content[1]

    @cached_property
    def rows(self) -> dict[Key, Costs]:
        """The costs by key."""
        return dict(zip(self._keys, map(Costs, *self._columns), strict=True))

    def group_by(self, key_of: Callable[[Key], NewKey]) -> "CostsByKey[NewKey]":
        """Return the sums of the rows with equal new keys, in order of their first row."""
        keys = [*map(key_of, self._keys)]
        distinct = len({*keys})
        if distinct == len(keys):
            return CostsByKey(keys, self._columns)
        return self.total_under(keys[0]) if distinct == 1 else sum_by_key(zip(keys, self.rows.values(), strict=True))

    def select(self, keys: Iterable[Key]) -> "CostsByKey[Key]":
        """Return the rows of some keys; keys that are not in the table are ignored."""
        return CostsByKey.of({key: self.rows[key] for key in keys if key in self.rows})

    def total_under(self, key: NewKey) -> "CostsByKey[NewKey]":
        """Return a table with the sum of all rows under one key; an empty table stays empty."""
        return CostsByKey([key], [[sum(column)] for column in self._columns]) if self._keys else CostsByKey()

    def total(self) -> Costs:
        """Return the sum of all rows."""
        return Costs(*map(sum, self._columns))

    @classmethod
    def concatenate(cls, tables: Iterable["CostsByKey[Key]"]) -> "CostsByKey[Key]":
        """Return the rows of tables that have no key in common."""
        contents = [table._content for table in tables]
        columns = zip(*(columns for _, columns in contents), strict=True)
        return cls(
            chain.from_iterable(keys for keys, _ in contents), [[*chain.from_iterable(parts)] for parts in columns]
        )

    def __add__(self, other: "CostsByKey[Key]") -> "CostsByKey[Key]":
        """Add row by row, or column by column where the keys are equal, as those of a unit's days mostly are."""
        if not (self._keys and other._keys):
            return self if self._keys else other
        if self._keys == other._keys:
            columns = zip(self._columns, other._columns, strict=True)
            return CostsByKey(self._keys, [_add_columns(left, right) for left, right in columns])
        sums = {**self.rows}
        for key, costs in other.rows.items():
            sums[key] = sums[key] + costs if key in sums else costs
        return CostsByKey.of(sums)

    def items(self) -> ItemsView[Key, Costs]:
        """Return the keys with their costs."""
        return self.rows.items()

    def __getitem__(self, key: Key) -> Costs:
        return self.rows[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self.rows

    def __repr__(self) -> str:
        return repr(self.rows)


def _add_columns(left: Sequence[int], right: Sequence[int]) -> Sequence[int]:
    """Add two columns. Many are all zero, such as the energy of hours in which it was not measured.

    If one is all zero, this is the other one itself. Columns are never changed.
    """
    if not any(right):
        return left
    return [*map(add, left, right)] if any(left) else right


class CostAccumulator(Generic[Key]):
    """Adds up costs by key while they are read. Memory depends on the number of keys, not on what is added."""

    def __init__(self, max_pending: int = _MAX_PENDING) -> None:
        self._parts: dict[Key, list[Costs]] = {}
        self._pending_count = 0
        self._max_pending = max_pending

    def add(self, key: Key, costs: Costs) -> None:
        """Add costs to the sum of a key."""
        self._parts.setdefault(key, []).append(costs)
        self._pending_count += 1
        if self._pending_count > 2 * len(self._parts) + self._max_pending:
            self._parts = {key: [costs] for key, costs in self._sums()}
            self._pending_count = len(self._parts)

    def keys(self) -> KeysView[Key]:
        """Return the keys so far."""
        return self._parts.keys()

    def table(self) -> CostsByKey[Key]:
        """Return the sums so far, in order of each key's first costs."""
        return CostsByKey.of(dict(self._sums()))

    def _sums(self) -> Iterator[tuple[Key, Costs]]:
        return ((key, Costs.total(parts)) for key, parts in self._parts.items())


def sum_by_key(pairs: Iterable[tuple[Key, Costs]]) -> CostsByKey[Key]:
    """Sum costs by key, in order of each key's first costs."""
    sums = CostAccumulator[Key]()
    for key, costs in pairs:
        sums.add(key, costs)
    return sums.table()
