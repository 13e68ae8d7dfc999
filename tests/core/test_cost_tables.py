"""Tables of costs equal plain dictionaries of fractions."""

from collections.abc import Hashable, Mapping
from fractions import Fraction
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.amounts import Costs
from gpucost.core.costs_by_key import CostAccumulator, CostsByKey, sum_by_key
from tests.records import amount

K = TypeVar("K", bound=Hashable)
Sums = dict[str, list[Fraction]]
AMOUNTS = st.integers(-(10**27), 10**27)
COSTS = st.builds(Costs, *(AMOUNTS for _ in Costs.names()))
PAIRS = st.lists(st.tuples(st.sampled_from("abcd"), COSTS), max_size=30)


def fractions_of(costs: Costs) -> list[Fraction]:
    return [Fraction(getattr(costs, name), 10**12) for name in Costs.names()]


def all_fractions(rows: Mapping[K, Costs]) -> dict[K, list[Fraction]]:
    return {key: fractions_of(costs) for key, costs in rows.items()}


def sums_by_hand(pairs: list[tuple[str, Costs]]) -> Sums:
    """Sums by key in fractions, in order of each key's first costs."""
    sums: Sums = {}
    for key, costs in pairs:
        before = sums.get(key, [Fraction(0)] * len(Costs.names()))
        sums[key] = [left + right for left, right in zip(before, fractions_of(costs), strict=True)]
    return sums


@given(st.dictionaries(st.text(max_size=3), COSTS, max_size=6))
def test_table_equals_its_costs(rows: Mapping[str, Costs]) -> None:
    table = CostsByKey.of(rows)
    assert table == rows
    assert table == CostsByKey(rows, Costs.columns(rows.values()))
    assert len(table) == len(rows)
    assert list(table) == list(rows)
    assert [*table.values()] == [*rows.values()]
    assert CostsByKey.of(table) is table
    assert all(table[key] == rows[key] and key in table for key in rows)
    assert "absent" not in table
    assert repr(table) == repr(rows)


@given(PAIRS)
def test_costs_are_summed_by_key(pairs: list[tuple[str, Costs]]) -> None:
    table = sum_by_key(pairs)
    assert all_fractions(table) == sums_by_hand(pairs)
    assert list(table) == list(sums_by_hand(pairs)), "in order of each key's first costs"


@pytest.mark.parametrize("most", [0, 1, 5])
@given(pairs=PAIRS)
def test_sums_are_equal_if_added_up_in_between(most: int, pairs: list[tuple[str, Costs]]) -> None:
    sums = CostAccumulator[str](most)
    for key, costs in pairs:
        sums.add(key, costs)
    assert list(sums.keys()) == list(sums_by_hand(pairs))
    assert all_fractions(sums.table()) == sums_by_hand(pairs)
    assert all_fractions(sums.table()) == sums_by_hand(pairs), "a table may be asked for twice"


def test_memory_of_sums_depends_on_keys_not_on_costs() -> None:
    sums = CostAccumulator[str](10)
    for number in range(1000):
        sums.add("ab"[number % 2], Costs(waste_usd=1))
        pending_count = sum(map(len, sums._parts.values()))
        assert pending_count <= 2 * 2 + 10
        assert sums._pending_count == pending_count, "otherwise costs would be added up too often"
    assert sums.table() == {"a": Costs(waste_usd=500), "b": Costs(waste_usd=500)}


@given(st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), COSTS, max_size=12))
def test_rows_are_grouped_by_new_key(rows: dict[tuple[str, int], Costs]) -> None:
    grouped = CostsByKey.of(rows).group_by(lambda key: key[0])
    by_hand = sums_by_hand([(letter, costs) for (letter, _), costs in rows.items()])
    assert all_fractions(grouped) == by_hand
    assert list(grouped) == list(by_hand), "in order of their first row"


@given(st.dictionaries(st.sampled_from("abcd"), COSTS, max_size=4))
def test_total_equals_sum_of_fractions(rows: dict[str, Costs]) -> None:
    table = CostsByKey.of(rows)
    by_hand = sums_by_hand([("all", costs) for costs in rows.values()])
    assert all_fractions(table.total_under("all")) == by_hand
    assert fractions_of(table.total()) == by_hand.get("all", [Fraction(0)] * len(Costs.names()))


@given(st.lists(st.dictionaries(st.sampled_from("abc"), COSTS, max_size=3), min_size=1, max_size=4))
def test_tables_are_added_row_by_row(tables: list[dict[str, Costs]]) -> None:
    total = sum(map(CostsByKey.of, tables[1:]), CostsByKey.of(tables[0]))
    assert all_fractions(total) == sums_by_hand([row for table in tables for row in table.items()])


@given(st.lists(st.lists(COSTS, min_size=2, max_size=2), min_size=1, max_size=4))
def test_tables_with_equal_keys_are_added_row_by_row(days: list[list[Costs]]) -> None:
    tables = [CostsByKey.of(dict(zip("ab", costs, strict=True))) for costs in days]
    total = sum(tables[1:], tables[0])
    assert all_fractions(total) == sums_by_hand([row for table in tables for row in table.items()])


@given(st.dictionaries(st.sampled_from("abc"), COSTS, max_size=3), st.lists(st.sampled_from("abcd"), unique=True))
def test_selected_rows_of_table(rows: dict[str, Costs], names: list[str]) -> None:
    selected = CostsByKey.of(rows).select(names)
    assert selected == {key: costs for key, costs in rows.items() if key in names}
    assert list(selected) == [name for name in names if name in rows], "in the order of the selection"


def test_empty_table_has_no_rows() -> None:
    empty: CostsByKey[str] = CostsByKey.of({})
    assert empty == empty.total_under("all") == empty.select(["a"]) == empty.group_by(str.upper) == CostsByKey() == {}
    assert sum_by_key([]) == {}
    assert empty.total() == Costs()
    single_row = CostsByKey.of({"a": Costs(waste_usd=amount("12.50"))})
    assert empty + single_row == single_row + empty == single_row


def test_deferred_table_is_loaded_once_on_first_use() -> None:
    loads = []

    def load() -> CostsByKey[str]:
        loads.append(1)
        return CostsByKey.of({"a": Costs(waste_usd=amount("12.50"))})

    table = CostsByKey.deferred(load)
    assert not loads
    assert table == {"a": Costs(waste_usd=amount("12.50"))}
    assert (len(table), table.total()) == (1, Costs(waste_usd=amount("12.50")))
    assert loads == [1]
