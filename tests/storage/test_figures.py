"""Tables of figures read back equal, to the last digit, whatever they hold."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.amounts import Costs
from gpucost.storage.amount_columns import pack_table, unpack_table

amounts = st.integers(-(10**27), 10**27).map(lambda units: Decimal(units).scaleb(-12))
costs = st.builds(Costs, *(amounts for _ in Costs.names()))
texts = st.text(max_size=4)


@given(st.integers(0, 3).flatmap(lambda keys: st.lists(st.tuples(st.tuples(*[texts] * keys), costs), max_size=8)))
def test_any_table_is_read_as_written(rows: list[tuple[tuple[str, ...], Costs]]) -> None:
    assert unpack_table(pack_table(rows)) == rows


def test_amounts_with_too_many_digits_are_refused() -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        pack_table([(("a",), Costs(waste_usd=Decimal("1e-13")))])


def test_amounts_that_follow_from_others_take_no_space() -> None:
    def row(i: int) -> tuple[tuple[str], Costs]:
        hours = Decimal((i * 7_919_777_333_111) % 24_000_000_000_000).scaleb(-12) + 1
        used = (hours * (i % 97) / 97).quantize(Decimal("1e-12"))
        return (f"unit-{i}",), Costs(hours, used, hours * 12, used * 12, (hours - used) * 12)

    assert len(pack_table([row(i) for i in range(1000)])) <= 1000 * (6 + 6 + 6 + 5), "hours, use, dollars, and a name"
