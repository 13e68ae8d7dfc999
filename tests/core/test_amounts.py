"""Exact amounts: rounding, splits that sum to the total, and records of amounts."""

from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from typing import Annotated

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpucost.core.amounts import (
    MAX_AMOUNT,
    SCALE,
    AmountField,
    Amounts,
    CapacityCosts,
    Costs,
    Idle,
    Totals,
    is_amount,
    quantize,
    split,
    split_each,
    split_in_two,
    to_decimal,
    to_fixed_point,
    unit_of,
)
from tests.records import OF_EMISSIONS, OF_ENERGY, OF_MONEY, amount, unknown_costs

EXACT = Context(prec=400, rounding=ROUND_HALF_EVEN)
amounts = st.integers(-(10**21), 10**21)
weights = st.lists(st.fractions(min_value=0, max_value=10**6), min_size=1, max_size=30).filter(any)
records_of_costs = st.builds(Costs, *(amounts for _ in Costs.names()))
capacities = st.builds(CapacityCosts, *(amounts for _ in CapacityCosts.names()))


@given(amounts, weights)
def test_parts_of_split_sum_to_total(total: int, parts: list[Fraction]) -> None:
    assert sum(split(total, parts)) == total


@given(amounts, weights)
def test_parts_are_exact_within_a_unit(total: int, parts: list[Fraction]) -> None:
    for part, weight in zip(split(total, parts), parts, strict=True):
        assert abs(part - total * weight / sum(parts)) < 1
        assert weight or not part


@given(amounts, weights)
def test_larger_remainders_are_rounded_up_first_and_ties_in_order(total: int, parts: list[Fraction]) -> None:
    exact = [total * weight / sum(parts) for weight in parts]
    floors = [share.numerator // share.denominator for share in exact]
    order = sorted(range(len(parts)), key=lambda index: (floors[index] - exact[index], index))
    rounded_up = set(order[: total - sum(floors)])
    assert split(total, parts) == [floor + (index in rounded_up) for index, floor in enumerate(floors)]


@given(st.lists(amounts, max_size=4), weights)
def test_several_amounts_are_split_like_each(totals: list[int], parts: list[Fraction]) -> None:
    assert split_each(totals, parts) == [split(total, parts) for total in totals]


@given(st.lists(amounts, max_size=4), st.fractions(0, 1, max_denominator=10**6), st.fractions(1, 10**9))
def test_split_in_two_equals_split_by_both_weights(totals: list[int], share: Fraction, whole: Fraction) -> None:
    part = share * whole
    assert split_in_two(totals, part, whole) == [(*split(total, [part, whole - part]),) for total in totals]
    assert split_in_two([1, -1, 3], whole / 2, whole) == [(1, 0), (0, -1), (2, 1)], "ties go to the part"


def test_split_in_two_rejects_parts_beyond_the_whole() -> None:
    for part in (Fraction(-1, 3), Fraction(3, 2)):
        with pytest.raises(ValueError, match="negative"):
            split_in_two([1], part, Fraction(1))


def test_uneven_split_gives_rest_to_largest_remainders() -> None:
    assert split(amount(12), [Fraction(1, 7)] * 7).count(amount("1.714285714286")) == 5
    assert split(amount("0.000000000001"), [1, 2]) == [0, 1]


def test_invalid_weights_are_rejected() -> None:
    with pytest.raises(ValueError, match="negative"):
        split(amount(1), [1, -1])
    with pytest.raises(ValueError, match=r"cannot split 1\.000000000000 over weights that are all zero"):
        split(amount(1), [0, 0])
    with pytest.raises(ValueError, match="all zero"):
        split(amount(1), [])
    assert split(0, [0, 0]) == [0, 0]
    assert split(0, []) == []


@pytest.mark.parametrize(
    ("exact", "rounded"),
    [
        (Fraction(1, 3), "0.333333333333"),
        (Fraction(1, 7), "0.142857142857"),
        (Decimal("2.5e-12"), "2e-12"),
        (Decimal("3.5e-12"), "4e-12"),
        (Fraction(5, 2 * 10**12), "2e-12"),
        (Fraction(7, 2 * 10**12), "4e-12"),
        (Fraction(-5, 2 * 10**12), "-2e-12"),
        (Fraction(-7, 2 * 10**12), "-4e-12"),
        (Decimal("-2.5e-12"), "-2e-12"),
        (7, "7"),
    ],
)
def test_rounding_to_twelve_digits_is_to_even(exact: Fraction | Decimal | int, rounded: str) -> None:
    assert quantize(exact) == to_decimal(to_fixed_point(exact)) == Decimal(rounded)


@given(st.fractions() | st.integers(-(10**15), 10**15).map(lambda number: Fraction(number, 2 * SCALE)))
def test_fractions_are_rounded_like_integers(exact: Fraction) -> None:
    """Python rounds a fraction to an integer half-even."""
    assert to_fixed_point(exact) == round(exact * SCALE)


@given(st.decimals(-(10**20), 10**20, allow_nan=False, allow_infinity=False))
def test_decimals_are_rounded_like_fractions(exact: Decimal) -> None:
    assume(len(exact.as_tuple().digits) <= 40)
    assert to_fixed_point(exact) == round(Fraction(exact) * SCALE)


@given(st.integers(-(10**40), 10**40))
def test_amounts_survive_conversion_to_decimals(units: int) -> None:
    published = to_decimal(units)
    assert Fraction(published) == Fraction(units, SCALE)
    assert published.as_tuple().exponent == -12
    assert to_fixed_point(published) == to_fixed_point(Fraction(published)) == units


@pytest.mark.parametrize("digits", ["123456789012345.123456789012", "12345678901234567890123456789.123456789012"])
def test_large_amounts_keep_every_digit(digits: str) -> None:
    assert str(quantize(Decimal(digits))) == str(to_decimal(amount(digits))) == digits


def test_split_of_large_amount_keeps_every_digit() -> None:
    total = amount("123456789012345678901.123456789012")
    parts = split(total, [Fraction(1), Fraction(0), Fraction(2)])
    expected = ["41152263004115226300.374485596337", "0", "82304526008230452600.748971192675"]
    assert [to_decimal(part) for part in parts] == [*map(Decimal, expected)]
    assert sum(parts) == total


@pytest.mark.parametrize(
    ("number", "is_plausible"),
    [("1e12", True), ("-1e12", True), ("1000000000000.000000000001", False), ("Infinity", False), ("NaN", False)],
)
def test_amounts_beyond_cluster_hour_are_implausible(number: str, is_plausible: bool) -> None:
    assert is_amount(Decimal(number)) is is_plausible


def test_records_with_an_implausible_amount_are_implausible() -> None:
    most = amount(MAX_AMOUNT)
    for record_type in (Costs, CapacityCosts):
        for name in record_type.names():
            assert record_type(**{name: most}).are_plausible()
            assert record_type(**{name: -most}).are_plausible()
            assert not record_type(**{name: most + 1}).are_plausible()
            assert not record_type(**{name: -most - 1}).are_plausible()
    assert Totals(Costs(), None).are_plausible()
    assert not Totals(Costs(waste_usd=most + 1), None).are_plausible()
    assert not Totals(Costs(), CapacityCosts(host_usd=most + 1)).are_plausible()


@given(st.lists(records_of_costs, max_size=30))
def test_sums_equal_sums_of_fractions(parts: list[Costs]) -> None:
    total = Costs.total(parts)
    for name, figure in figures_by_hand(total).items():
        assert figure == sum((figures_by_hand(part)[name] for part in parts), Fraction(0))
    assert Costs.columns(parts) == [[getattr(part, name) for part in parts] for name in Costs.names()]


@given(records_of_costs, records_of_costs)
def test_records_are_added_and_subtracted_by_field(left: Costs, right: Costs) -> None:
    for name in Costs.names():
        assert getattr(left + right, name) == getattr(left, name) + getattr(right, name)
        assert getattr(left - right, name) == getattr(left, name) - getattr(right, name)
    assert left + right - right == left


def test_sum_of_nothing_is_zero_or_unknown() -> None:
    assert Costs.total([]) == Costs()
    assert Idle.total_if_complete([]) == Idle()
    assert Idle.total_if_complete([Idle(1, 2), None]) is None
    assert Totals.total([]) is None
    assert Costs.columns([]) == [[] for _ in Costs.names()]


@given(st.lists(st.tuples(records_of_costs, st.none() | capacities), min_size=1, max_size=5))
def test_capacity_of_period_is_unknown_if_any_hour_lacks_it(parts: list[tuple[Costs, CapacityCosts | None]]) -> None:
    total = Totals.total(Totals(costs, capacity) for costs, capacity in parts)
    assert total is not None
    assert total.costs == Costs.total(costs for costs, _ in parts)
    if any(capacity is None for _, capacity in parts):
        assert total.capacity is None
    else:
        assert total.capacity is not None
        for name in CapacityCosts.names():
            assert getattr(total.capacity, name) == sum(getattr(capacity, name) for _, capacity in parts)


FEW = st.sampled_from(["0", "1", "2.5", "-1"]).map(amount)


def figures_by_hand(record: Costs | CapacityCosts) -> dict[str, Fraction]:
    """All amounts of a record, even those that are published as unknown."""
    return {name: Fraction(getattr(record, name), 10**12) for name in record.names()}


@given(st.builds(Costs, *(FEW for _ in Costs.names())))
def test_cost_without_price_is_published_as_unknown(costs: Costs) -> None:
    all_figures = figures_by_hand(costs)
    unknown = unknown_costs(costs)
    assert costs.has_price() is ("allocated_usd" not in unknown)
    assert costs.figures() == all_figures | dict.fromkeys(unknown)
    assert list(costs.figures()) == list(Costs.names())


@given(st.builds(CapacityCosts, *(FEW for _ in CapacityCosts.names())))
def test_capacity_without_price_is_published_as_unknown(capacity: CapacityCosts) -> None:
    """A cluster's charges are money even where no node has a price."""
    all_figures = figures_by_hand(capacity)
    unpriced = all_figures["unpriced_capacity_gpu_hours"]
    has_price = all_figures["node_cost_usd"] != 0 or not 0 < unpriced == all_figures["capacity_gpu_hours"]
    expected = {
        name: figure if has_price or not name.endswith("_usd") else None for name, figure in all_figures.items()
    }
    if not all_figures["device_energy_gpu_hours"]:
        expected |= {name: None for name in all_figures if "energy" in name or "co2e" in name}
    elif 0 < all_figures["device_energy_without_factor_kwh"] == all_figures["device_energy_kwh"]:
        expected |= {name: None for name in all_figures if "co2e" in name}
    assert capacity.figures() == expected


class CostsWithCooling(Costs, frozen=True, gc=False):
    """Costs with an amount more, which follows from the energy."""

    cooling_kwh: Annotated[int, AmountField("Energy that cooled the GPUs", needs="energy")] = 0


class CapacityWithCooling(CapacityCosts, frozen=True, gc=False):
    """Capacity with an amount more, which follows from the emissions."""

    idle_cooling_co2e_kg: Annotated[
        int, AmountField("Emissions of the cooling of idle GPUs", needs="emission factor")
    ] = 0


def test_new_amount_is_published_as_unknown_and_not_as_zero() -> None:
    """The amounts of energy are the last ones of both records, and a new one follows them."""
    not_measured = CostsWithCooling(allocated_gpu_hours=amount(1), allocated_usd=amount(3)).figures()
    assert {name for name, figure in not_measured.items() if figure is None} == {
        *OF_ENERGY,
        *OF_EMISSIONS,
        "cooling_kwh",
    }
    measured = {"energy_gpu_hours": amount(1), "energy_kwh": amount(2)}
    assert CostsWithCooling(**measured, energy_without_factor_kwh=amount(2)).figures()["cooling_kwh"] == 0
    no_factor = {"device_energy_gpu_hours": amount(1), "device_energy_kwh": amount(2)}
    capacity = CapacityWithCooling(**no_factor, device_energy_without_factor_kwh=amount(2)).figures()
    assert [name for name, figure in capacity.items() if figure is None] == [
        "device_co2e_kg",
        "idle_co2e_kg",
        "unattributed_co2e_kg",
        "idle_cooling_co2e_kg",
    ]


def test_amount_without_description_is_refused() -> None:
    class Undescribed(Amounts, frozen=True, gc=False):
        cooling_kwh: int = 0

    with pytest.raises(TypeError, match="cooling_kwh is not described"):
        Undescribed.fields()


def test_every_amount_has_a_unit() -> None:
    units = {name: unit_of(name) for record in (Costs, CapacityCosts, Idle) for name in record.names()}
    assert set(units.values()) >= {"GPU-hours", "USD", "kWh", "kg CO2e"}
    assert (units["energy_gpu_hours"], units["energy_without_factor_kwh"]) == ("GPU-hours", "kWh")
    with pytest.raises(TypeError, match="cooling_l does not end with a unit"):
        unit_of("cooling_l")


def test_figures_of_unpriced_and_partly_priced_costs() -> None:
    unpriced = Costs(allocated_gpu_hours=amount(2), effective_gpu_hours=amount("0.5"), unpriced_gpu_hours=amount(2))
    assert unpriced.figures() == {
        "allocated_gpu_hours": Decimal(2),
        "effective_gpu_hours": Decimal("0.5"),
        "unmeasured_gpu_hours": Decimal(0),
        "unpriced_gpu_hours": Decimal(2),
        **dict.fromkeys(OF_MONEY),
        **dict.fromkeys(OF_ENERGY),
        **dict.fromkeys(OF_EMISSIONS),
    }
    priced = Costs(allocated_gpu_hours=amount(1), allocated_usd=amount("12.50"), waste_usd=amount("12.50"))
    figures = (unpriced + priced).figures()
    assert (figures["allocated_usd"], figures["effective_usd"]) == (Decimal("12.5"), Decimal(0))
    assert (figures["allocated_gpu_hours"], figures["unpriced_gpu_hours"]) == (Decimal(3), Decimal(2))


@given(capacities)
def test_idle_is_the_cost_that_no_line_carries(capacity: CapacityCosts) -> None:
    usd = [capacity.unallocated_usd, capacity.stranded_usd, capacity.unobserved_usd, capacity.host_usd]
    hours = [capacity.unallocated_gpu_hours, capacity.stranded_gpu_hours, capacity.unobserved_gpu_hours]
    assert capacity.idle().idle_usd == sum([*usd, capacity.residual_usd])
    assert capacity.idle().idle_gpu_hours == sum(hours)
