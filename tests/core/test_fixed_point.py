"""Sums in whole numbers against fractions."""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.fixed_point import ZERO_ROW, CostTable, published_figures, sum_rows, to_costs, to_fixed_point_rows
from gpucost.core.model import Costs

AMOUNTS = st.decimals(-(10**15), 10**15, places=12, allow_nan=False, allow_infinity=False)
COSTS = st.builds(Costs, *(AMOUNTS for _ in Costs.names()))


@given(st.dictionaries(st.text(max_size=3), COSTS, max_size=6))
def test_a_table_is_what_it_was_made_of(rows: Mapping[str, Costs]) -> None:
    table = CostTable.from_costs(rows)
    assert table == rows
    assert len(table) == len(rows)
    assert CostTable.from_costs(table) is table
    assert [list(map(str, _values(table[key]))) for key in rows] == [list(map(str, _values(rows[key]))) for key in rows]


@given(st.lists(COSTS, min_size=1, max_size=30))
def test_sums_are_those_of_fractions(rows: list[Costs]) -> None:
    (found,) = to_costs([sum_rows(to_fixed_point_rows(rows))])
    assert found == CostTable.from_costs(dict(enumerate(rows))).summed_under(-1)[-1]
    for name in Costs.names():
        assert Fraction(getattr(found, name)) == sum(Fraction(getattr(one, name)) for one in rows)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), COSTS, max_size=3), min_size=1, max_size=4))
def test_tables_add_up_row_by_row(tables: list[dict[str, Costs]]) -> None:
    found = sum(map(CostTable.from_costs, tables[1:]), CostTable.from_costs(tables[0]))
    assert set(found) == {key for table in tables for key in table}
    for key, costs in found.items():
        for name in Costs.names():
            own = [Fraction(getattr(table[key], name)) for table in tables if key in table]
            assert Fraction(getattr(costs, name)) == sum(own)


@given(st.dictionaries(st.sampled_from("abc"), COSTS, max_size=3), st.sets(st.sampled_from("abcd")))
def test_some_rows_of_a_table(rows: dict[str, Costs], names: set[str]) -> None:
    assert CostTable.from_costs(rows).select(names) == {key: costs for key, costs in rows.items() if key in names}


def _values(costs: Costs) -> list[Decimal]:
    return [getattr(costs, name) for name in Costs.names()]


def test_nothing_has_no_rows() -> None:
    assert to_costs([]) == []
    assert to_fixed_point_rows([]) == []
    empty: dict[str, Costs] = {}
    assert CostTable.from_costs(empty) == CostTable.from_costs(empty).summed_under("all") == empty
    assert to_costs([sum_rows([])]) == to_costs([ZERO_ROW]) == [Costs()]


@given(st.lists(COSTS, max_size=6))
def test_amounts_come_back(rows: list[Costs]) -> None:
    assert to_costs(to_fixed_point_rows(rows)) == rows


def test_more_digits_than_the_ledger_keeps_are_refused_not_rounded() -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        to_fixed_point_rows([Costs(), Costs(waste_usd=Decimal("1.0000000000001"))])


FEW = st.sampled_from([Decimal("0.000000000000"), Decimal(1), Decimal("2.5"), Decimal(-1)])


@given(st.builds(Costs, *(FEW for _ in Costs.names())))
def test_money_that_nobody_knows_is_published_as_unknown(costs: Costs) -> None:
    (row,) = to_fixed_point_rows([costs])
    truth = [None if figure is None else Fraction(figure) * 10**12 for figure in costs.figures().values()]
    assert list(published_figures(row)) == truth
