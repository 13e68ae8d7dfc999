"""Fixed-point sums equal sums of fractions."""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

import pytest
from gpucost.core.fixed_point import ZERO_ROW, CostTable, published_figures, sum_rows, to_costs, to_fixed_point_rows
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.amounts import Costs

AMOUNTS = st.decimals(-(10**15), 10**15, places=12, allow_nan=False, allow_infinity=False)
COSTS = st.builds(Costs, *(AMOUNTS for _ in Costs.names()))


@given(st.dictionaries(st.text(max_size=3), COSTS, max_size=6))
def test_table_equals_its_costs(rows: Mapping[str, Costs]) -> None:
    table = CostTable.from_costs(rows)
    assert table == rows
    assert len(table) == len(rows)
    assert CostTable.from_costs(table) is table
    assert [list(map(str, _values(table[key]))) for key in rows] == [list(map(str, _values(rows[key]))) for key in rows]


@given(st.lists(COSTS, min_size=1, max_size=30))
def test_sums_equal_sums_of_fractions(rows: list[Costs]) -> None:
    (total,) = to_costs([sum_rows(to_fixed_point_rows(rows))])
    assert total == CostTable.from_costs(dict(enumerate(rows))).summed_under(-1)[-1]
    for name in Costs.names():
        assert Fraction(getattr(total, name)) == sum(Fraction(getattr(row, name)) for row in rows)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), COSTS, max_size=3), min_size=1, max_size=4))
def test_tables_are_added_row_by_row(tables: list[dict[str, Costs]]) -> None:
    total = sum(map(CostTable.from_costs, tables[1:]), CostTable.from_costs(tables[0]))
    assert set(total) == {key for table in tables for key in table}
    for key, costs in total.items():
        for name in Costs.names():
            amounts = [Fraction(getattr(table[key], name)) for table in tables if key in table]
            assert Fraction(getattr(costs, name)) == sum(amounts)


@given(st.dictionaries(st.sampled_from("abc"), COSTS, max_size=3), st.sets(st.sampled_from("abcd")))
def test_selected_rows_of_table(rows: dict[str, Costs], names: set[str]) -> None:
    assert CostTable.from_costs(rows).select(names) == {key: costs for key, costs in rows.items() if key in names}


def _values(costs: Costs) -> list[Decimal]:
    return [getattr(costs, name) for name in Costs.names()]


def test_empty_input_has_no_rows() -> None:
    assert to_costs([]) == []
    assert to_fixed_point_rows([]) == []
    empty: dict[str, Costs] = {}
    assert CostTable.from_costs(empty) == CostTable.from_costs(empty).summed_under("all") == empty
    assert to_costs([sum_rows([])]) == to_costs([ZERO_ROW]) == [Costs()]


@given(st.lists(COSTS, max_size=6))
def test_costs_survive_conversion(rows: list[Costs]) -> None:
    assert to_costs(to_fixed_point_rows(rows)) == rows


def test_more_digits_than_ledger_keeps_are_rejected() -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        to_fixed_point_rows([Costs(), Costs(waste_usd=Decimal("1.0000000000001"))])


FEW = st.sampled_from([Decimal("0.000000000000"), Decimal(1), Decimal("2.5"), Decimal(-1)])


@given(st.builds(Costs, *(FEW for _ in Costs.names())))
def test_money_without_price_is_published_as_unknown(costs: Costs) -> None:
    (row,) = to_fixed_point_rows([costs])
    truth = [None if figure is None else Fraction(figure) * 10**12 for figure in costs.figures().values()]
    assert list(published_figures(row)) == truth
