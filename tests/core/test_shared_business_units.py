"""The cost of shared units is distributed among the others, to the last digit."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucost.core.amounts import Costs
from gpucost.core.attribution import BusinessUnit, DistributionPolicy, business_units_at, distribute_lines
from gpucost.core.hour_record import Line
from tests.records import amount, line

usd = st.decimals(0, 1000, places=12).map(amount)


def priced(unit: str, effective: int, waste: int, unmeasured: int) -> Line:
    return line(unit)._replace(
        effective_usd=effective,
        waste_usd=waste,
        unmeasured_usd=unmeasured,
        allocated_usd=effective + waste + unmeasured,
    )


lines = st.lists(st.builds(priced, st.sampled_from(["platform", "ops", "a", "b", "c"]), usd, usd, usd), max_size=12)
policies = st.dictionaries(st.sampled_from(["platform", "ops"]), st.sampled_from(["proportional", "even"]))


@given(lines, policies)
def test_distribution_preserves_sums(before: list[Line], shared: dict[str, DistributionPolicy]) -> None:
    after = distribute_lines(before, shared)
    assert Costs.total(cost_line.costs() for cost_line in after) == Costs.total(
        cost_line.costs() for cost_line in before
    )
    for cost_line in after:
        assert cost_line.allocated_usd == (cost_line.effective_usd or 0) + (cost_line.waste_usd or 0) + (
            cost_line.unmeasured_usd or 0
        )
    unshared_units = {cost_line.business_unit for cost_line in before} - shared.keys()
    if unshared_units:
        assert {cost_line.business_unit for cost_line in after} == unshared_units


def test_parts_have_the_gpu_hours_of_their_line_and_do_not_know_what_it_does_not_know() -> None:
    receivers = [priced("a", amount(1), 0, 0), priced("b", amount(2), 0, 0)]
    hours: dict[str, Any] = {
        "allocated_gpu_hours": amount(12),
        "effective_gpu_hours": amount(3),
        "unmeasured_gpu_hours": amount(6),
    }
    shared = priced("platform", amount(3), amount(3), amount(6))._replace(**hours)
    in_a, in_b = distribute_lines([shared, *receivers], {"platform": "proportional"})[:2]
    for part, share in ((in_a, 1), (in_b, 2)):
        assert {name: getattr(part, name) for name in hours} == {
            name: hour * share // 3 for name, hour in hours.items()
        }
    unknown = shared._replace(effective_gpu_hours=None, effective_usd=None, waste_usd=None, unmeasured_usd=None)
    unpriced = unknown._replace(unmeasured_gpu_hours=amount(12), allocated_usd=None)
    for part in distribute_lines([unpriced, *receivers], {"platform": "proportional"})[:2]:
        assert part.allocated_gpu_hours == part.unmeasured_gpu_hours > 0
        assert part.effective_gpu_hours is part.allocated_usd is part.effective_usd is part.unmeasured_usd is None


def test_distribution_is_proportional_to_cost_or_even() -> None:
    before = [priced("platform", amount(1), amount(2), 0), priced("a", 0, amount(30), 0), priced("b", amount(60), 0, 0)]
    after = distribute_lines(before, {"platform": "proportional"})
    parts = {cost_line.business_unit: cost_line for cost_line in after if cost_line.shared_from}
    assert {unit: cost_line.allocated_usd for unit, cost_line in parts.items()} == {"a": amount(1), "b": amount(2)}
    assert {unit: cost_line.waste_usd for unit, cost_line in parts.items()} == {
        "a": amount("0.666666666667"),
        "b": amount("1.333333333333"),
    }
    evenly = {
        cost_line.business_unit: cost_line
        for cost_line in distribute_lines(before, {"platform": "even"})
        if cost_line.shared_from
    }
    assert {cost_line.allocated_usd for cost_line in evenly.values()} == {amount("1.5")}


def test_weight_of_unit_is_the_cost_of_all_its_lines() -> None:
    before = [priced("platform", 0, amount(8), 0), *[priced("a", 0, amount(1), 0)] * 3, priced("b", amount(1), 0, 0)]
    after = distribute_lines(before, {"platform": "proportional"})
    assert {line.business_unit: line.allocated_usd for line in after if line.shared_from} == {
        "a": amount(6),
        "b": amount(2),
    }


def test_receivers_without_cost_get_equal_parts() -> None:
    before = [priced("platform", 0, amount(8), 0), priced("a", 0, 0, 0), priced("b", 0, 0, 0)]
    after = distribute_lines(before, {"platform": "proportional"})
    assert [(line.business_unit, line.allocated_usd) for line in after if line.shared_from] == [
        ("a", amount(4)),
        ("b", amount(4)),
    ]


def test_use_beyond_allocation_is_distributed_with_its_line() -> None:
    shared = priced("platform", 0, amount(8), 0)._replace(used_beyond_allocation_gpu_hours=amount(3))
    after = distribute_lines(
        [shared, priced("a", 0, amount(2), 0), priced("b", 0, amount(1), 0)], {"platform": "proportional"}
    )
    assert [(line.business_unit, line.used_beyond_allocation_gpu_hours) for line in after if line.shared_from] == [
        ("a", amount(2)),
        ("b", amount(1)),
    ]


def test_shared_unit_without_receivers_keeps_its_cost() -> None:
    before = [priced("platform", amount(1), amount(2), 0)]
    assert distribute_lines(before, {"platform": "even"}) == before


@pytest.mark.parametrize(("hour", "expected"), [(9, [("x", "y"), None]), (10, [("y",), ("x",)])])
def test_namespace_moves_between_units_at_hour(hour: int, expected: list[tuple[str, ...] | None]) -> None:
    moved = datetime(2026, 11, 19, 10, tzinfo=UTC)
    units = [
        BusinessUnit("a", ("x", "y")),
        BusinessUnit("a", ("y",), since=moved),
        BusinessUnit("b", ("x",), since=moved),
    ]
    units_of_hour = business_units_at(units, moved.replace(hour=hour))
    assert [unit.namespaces for unit in units_of_hour] == [names for names in expected if names]


def test_latest_begun_entry_applies_regardless_of_order() -> None:
    first, second = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)
    old, new = BusinessUnit("a", ("x",), since=first), BusinessUnit("a", ("y",), since=second)
    undated = BusinessUnit("a", ("z",))
    for units in ([old, new, undated], [undated, new, old], [new, undated, old]):
        assert business_units_at(units, second) == [new]
        assert business_units_at(units, first) == [old]
        assert business_units_at(units, datetime(2026, 10, 1, tzinfo=UTC)) == [undated]
