"""Sums in whole numbers against fractions."""

from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.domain.model import Costs
from gpucost.domain.quanta import NOTHING, CostTable, costs_of, published, quanta_of, total, wholes

AMOUNTS = st.decimals(-(10**15), 10**15, places=12, allow_nan=False, allow_infinity=False)
COSTS = st.builds(Costs, *(AMOUNTS for _ in Costs.names()))


@given(st.dictionaries(st.text(max_size=3), COSTS, max_size=6))
def test_a_table_is_what_it_was_made_of(rows: Mapping[str, Costs]) -> None:
    table = CostTable(quanta_of(rows))
    assert table == rows
    assert quanta_of(table) is table.quanta
    assert [list(map(str, _values(table[key]))) for key in rows] == [list(map(str, _values(rows[key]))) for key in rows]


@given(st.lists(COSTS, min_size=1, max_size=30))
def test_sums_are_those_of_fractions(rows: list[Costs]) -> None:
    (found,) = costs_of([total(quanta_of(dict(enumerate(rows))).values())])
    for name in Costs.names():
        assert Fraction(getattr(found, name)) == sum(Fraction(getattr(one, name)) for one in rows)


def _values(costs: Costs) -> list[Decimal]:
    return [getattr(costs, name) for name in Costs.names()]


def test_nothing_has_no_rows() -> None:
    assert costs_of([]) == []
    assert wholes([]) == []
    assert costs_of([total([])]) == costs_of([NOTHING]) == [Costs()]


@given(st.lists(COSTS, max_size=6))
def test_amounts_come_back(rows: list[Costs]) -> None:
    assert costs_of(wholes(rows)) == rows


def test_more_digits_than_the_ledger_keeps_are_refused_not_rounded() -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        wholes([Costs(), Costs(waste_usd=Decimal("1.0000000000001"))])


FEW = st.sampled_from([Decimal("0.000000000000"), Decimal(1), Decimal("2.5"), Decimal(-1)])


@given(st.builds(Costs, *(FEW for _ in Costs.names())))
def test_money_that_nobody_knows_is_published_as_unknown(costs: Costs) -> None:
    (row,) = wholes([costs])
    truth = [None if figure is None else Fraction(figure) * 10**12 for figure in costs.figures().values()]
    assert list(published(row)) == truth
