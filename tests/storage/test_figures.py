"""Tables of figures read back equal, to the last digit, whatever they hold."""

from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.amounts import CapacityCosts, Costs, Totals
from gpucost.storage.compressed_documents import read_totals_text, totals_text
from gpucost.storage.rollups import pack_table, unpack_single_key_table, unpack_table
from tests.records import amount

amounts = st.integers(-(10**27), 10**27)
costs = st.builds(Costs, *(amounts for _ in Costs.names()))
texts = st.text(max_size=4)


@given(st.integers(0, 3).flatmap(lambda keys: st.lists(st.tuples(st.tuples(*[texts] * keys), costs), max_size=8)))
def test_any_table_is_read_as_written(rows: list[tuple[tuple[str, ...], Costs]]) -> None:
    table = unpack_table(pack_table(rows))
    assert list(table) == [key for key, _ in rows]
    assert Costs.columns(costs for _, costs in rows) == [list(column) for column in table._columns]


@given(st.lists(st.tuples(st.tuples(texts, texts), costs), max_size=8, unique_by=lambda row: row[0]))
def test_table_of_distinct_keys_is_a_mapping_of_its_rows(rows: list[tuple[tuple[str, ...], Costs]]) -> None:
    assert unpack_table(pack_table(rows)) == dict(rows)


@given(st.lists(st.tuples(texts, costs), max_size=8, unique_by=lambda row: row[0]))
def test_table_of_units_is_a_mapping_of_its_rows(rows: list[tuple[str, Costs]]) -> None:
    assert unpack_single_key_table(pack_table([((unit,), costs) for unit, costs in rows])) == dict(rows)


@given(costs, st.none() | st.builds(CapacityCosts, *(amounts for _ in CapacityCosts.names())))
def test_totals_are_read_as_written(total_costs: Costs, capacity: CapacityCosts | None) -> None:
    totals = Totals(total_costs, capacity)
    assert read_totals_text(totals_text(totals)) == totals


@pytest.mark.parametrize("damaged", ["1.5", '"1"', "null", "1e3"])
def test_totals_that_are_not_whole_numbers_are_refused(damaged: str) -> None:
    """Their text has no checksum."""
    totals = totals_text(Totals(Costs(waste_usd=17), CapacityCosts(host_usd=19)))
    for number in ("17", "19"):
        with pytest.raises(TypeError):
            read_totals_text(totals.replace(number, damaged))


def test_amounts_that_follow_from_others_take_no_space() -> None:
    def row(i: int) -> tuple[tuple[str], Costs]:
        hours = (i * 7_919_777_333_111) % amount(24) + amount(1)
        used = hours * (i % 97) // 97
        return (f"unit-{i}",), Costs(hours, used, hours * 12, used * 12, (hours - used) * 12)

    assert len(pack_table([row(i) for i in range(1000)])) <= 1000 * (6 + 6 + 6 + 5), "hours, use, dollars, and a name"


TABLE_OF_A_PAST_RELEASE = (
    "eNpjYGDQqlYqyi8vVrIy1FEqSa0oAbKio5WSMxJLlGJjdZQSc/NL80CChsa1jAxMzC+ZmF8xMb8GMtnvMP5lYn7PxPyBifkjE/MnJubPTMxfmJi/"
    "AgAWlhlb"
)
"""The stored table of one unit whose amounts, in stored order, are 1001 to 1013."""
STORED_COSTS = (
    "allocated_gpu_hours",
    "effective_gpu_hours",
    "allocated_usd",
    "effective_usd",
    "waste_usd",
    "unmeasured_usd",
    "unmeasured_gpu_hours",
    "unpriced_gpu_hours",
    "energy_kwh",
    "energy_gpu_hours",
    "unused_energy_kwh",
    "co2e_kg",
    "energy_without_factor_kwh",
)
STORED_CAPACITY = (
    "capacity_gpu_hours",
    "unallocated_gpu_hours",
    "stranded_gpu_hours",
    "unobserved_gpu_hours",
    "node_cost_usd",
    "unallocated_usd",
    "stranded_usd",
    "unobserved_usd",
    "host_usd",
    "residual_usd",
    "unpriced_capacity_gpu_hours",
    "device_energy_kwh",
    "idle_energy_kwh",
    "unattributed_energy_kwh",
    "device_energy_gpu_hours",
    "device_co2e_kg",
    "idle_co2e_kg",
    "unattributed_co2e_kg",
    "device_energy_without_factor_kwh",
)


def test_ledger_of_past_release_is_read() -> None:
    """Amounts are stored by position, so new amounts stand after all others."""
    table = unpack_table(b64decode(TABLE_OF_A_PAST_RELEASE))
    assert table == {("chat",): Costs(**dict(zip(STORED_COSTS, range(1001, 1014), strict=True)))}
    stored = read_totals_text(f"[{[*range(1, 14)]},{[*range(1, 20)]}]")
    assert stored == Totals(
        Costs(**dict(zip(STORED_COSTS, range(1, 14), strict=True))),
        CapacityCosts(**dict(zip(STORED_CAPACITY, range(1, 20), strict=True))),
    )
