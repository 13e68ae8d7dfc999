"""What-if analyses by hand, compared with a simulated fleet that has the slices, and exact to the last digit."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucost.core.amounts import CapacityCosts, Costs, to_decimal
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.errors import InvalidInputError
from gpucost.core.ledger import FactKey, sum_lines
from gpucost.features.recommendations.what_if import MoveToSlices, SliceMoveOutcome, calculate_move
from tests.features.recommendations import simulated_fleet as sim
from tests.records import amount

A100 = "NVIDIA A100-SXM4-40GB"
POOL = sim.Pool("a100", "p4d.24xlarge", 8, Decimal(32), model=A100)
MOVE = MoveToSlices("research", 10, "A100", "3g.20gb")
DAYS = 2


def days_of(loads: list[sim.Load]) -> list[tuple[CostsByKey[FactKey], CapacityCosts]]:
    records = list(sim.simulate(loads, 24 * DAYS))
    days = []
    for day in range(DAYS):
        day_records = [record for record in records if record.hour.date() == (sim.START + timedelta(days=day)).date()]
        facts = sum_lines(line for record in day_records for line in record.lines)
        days.append((facts, CapacityCosts.total(node.capacity for record in day_records for node in record.nodes)))
    return days


def loads() -> list[sim.Load]:
    return [
        sim.Load("serve", lambda _: 4.0, lambda _: 16, pool=POOL),
        sim.Load("train", lambda _: 7.0, lambda _: 1, gpus=8, pool=POOL, unit="vision"),
        sim.Load("other", lambda _: 1.0, lambda _: 2, unit="research"),
    ]


def sum_of_parts(outcome: SliceMoveOutcome, unit_costs: Costs, capacity: CapacityCosts) -> int:
    """The sum of all parts of the nodes' cost."""
    held = [unit_costs, outcome.other_units_costs]
    return (
        sum((costs.effective_usd + costs.waste_usd + costs.unmeasured_usd for costs in held), capacity.unallocated_usd)
        + capacity.stranded_usd
        + capacity.unobserved_usd
        + capacity.host_usd
        + capacity.residual_usd
    )


def test_ten_gpus_moved_to_halves_free_five_gpus() -> None:
    outcome = calculate_move(MOVE, days_of(loads()))
    assert outcome.moved_gpu_hours == amount(10 * 24 * DAYS)
    assert outcome.freed_gpu_hours == 5 * 24 * DAYS, "ten halves of ten GPUs"
    assert outcome.freed_usd == 5 * 24 * DAYS * 4, "at $4 a GPU-hour"
    assert outcome.costs_before.effective_usd == outcome.costs_after.effective_usd, "the work is the same"
    assert to_decimal(outcome.costs_before.waste_usd - outcome.costs_after.waste_usd) == outcome.freed_usd
    assert outcome.slice_utilization == Decimal("0.583333333333"), "a quarter of a GPU on 3 of 7 compute slices"
    assert outcome.capacity_after.node_cost_usd == outcome.capacity_before.node_cost_usd
    assert outcome.is_conserved


def test_outcome_matches_the_fleet_simulated_with_slices() -> None:
    serve, train, other = loads()
    sliced = [
        replace(serve, name="serve-3g", pods=lambda _: 10, work=lambda _: 2.5, gpu_share=Decimal("0.5")),
        replace(serve, pods=lambda _: 6, work=lambda _: 1.5),
        train,
        other,
    ]
    outcome = calculate_move(MOVE, days_of(loads()))
    units = [costs for facts, _ in days_of(sliced) for key, costs in facts.items() if key.business_unit == "research"]
    truth = Costs.total(units)
    for name in ("allocated_usd", "effective_usd", "waste_usd", "allocated_gpu_hours", "effective_gpu_hours"):
        assert float(getattr(outcome.costs_after, name)) == pytest.approx(float(getattr(truth, name)), rel=1e-9), name


def test_effective_hours_of_a_slice_are_limited_by_its_size() -> None:
    busy = [sim.Load("serve", lambda _: 14.4, lambda _: 16, pool=POOL)]
    outcome = calculate_move(replace(MOVE, gpus=16), days_of(busy))
    assert outcome.slice_utilization is not None
    assert outcome.slice_utilization > 2
    assert outcome.costs_after.effective_gpu_hours == outcome.costs_after.allocated_gpu_hours
    assert outcome.costs_after.waste_usd == 0
    assert outcome.is_conserved


def test_limit_applies_only_to_moved_gpus() -> None:
    """Half of the GPUs move. They were 90% busy, and each slice gives half a GPU. The others do not change."""
    busy = [sim.Load("serve", lambda _: 14.4, lambda _: 16, pool=POOL)]
    outcome = calculate_move(replace(MOVE, gpus=8), days_of(busy))
    assert outcome.costs_after.effective_gpu_hours == amount((8 * Decimal("0.9") + 8 * Decimal("0.5")) * 24 * DAYS)
    assert outcome.costs_after.allocated_gpu_hours == amount((8 + 4) * 24 * DAYS)
    assert outcome.costs_after.effective_usd == outcome.costs_after.effective_gpu_hours * 4


def test_move_of_more_gpus_than_held_moves_all() -> None:
    outcome = calculate_move(replace(MOVE, gpus=1000), days_of(loads()))
    assert outcome.moved_gpu_hours == amount(16 * 24 * DAYS)
    assert outcome.moved_gpus == 16


def test_unobserved_use_stays_unmeasured() -> None:
    unseen = [replace(load, source="none") for load in loads()]
    outcome = calculate_move(MOVE, days_of(unseen))
    assert outcome.slice_utilization is None
    assert outcome.costs_after.unmeasured_usd == outcome.costs_after.allocated_usd < outcome.costs_before.unmeasured_usd
    assert outcome.is_conserved


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "H100"}, "held no whole GPU"),
        ({"model": "A10"}, "held no whole GPU"),
        ({"model": "-"}, "held no whole GPU"),
        ({"business_unit": "unknown"}, "held no whole GPU"),
        ({"profile": "3g.40gb"}, "it has 1g.10gb, 1g.5gb, 2g.10gb"),
    ],
)
def test_invalid_moves_are_rejected(change: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        calculate_move(replace(MOVE, **change), days_of(loads()))  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["a100", "A100-SXM4-40GB", "nvidia a100", "A100 40GB"])
def test_model_matches_by_words(model: str) -> None:
    assert calculate_move(replace(MOVE, model=model), days_of(loads())).moved_gpus == 10


def test_ambiguous_model_name_lists_the_matching_models() -> None:
    larger = replace(POOL, name="large", instance_type="p4de.24xlarge", model="NVIDIA A100-SXM4-80GB")
    both = [*loads(), sim.Load("big", lambda _: 4.0, lambda _: 8, pool=larger)]
    message = "'A100' matches NVIDIA A100-SXM4-40GB and NVIDIA A100-SXM4-80GB; name one of them"
    with pytest.raises(InvalidInputError, match=message):
        calculate_move(MOVE, days_of(both))
    outcome = calculate_move(replace(MOVE, model="A100 40GB"), days_of(both))
    assert outcome.moved_gpus == 10
    assert outcome.freed_gpu_hours == 5 * 24 * DAYS


FIXED_POINT = st.integers(0, 10**16)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(FIXED_POINT, FIXED_POINT, FIXED_POINT, FIXED_POINT, FIXED_POINT), min_size=1, max_size=4),
    st.integers(1, 40),
    st.sampled_from(["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]),
)
def test_costs_are_conserved_for_any_digits(
    rows: list[tuple[int, int, int, int, int]], gpus: int, profile: str
) -> None:
    facts, cost = {}, 0
    for number, row in enumerate(rows):
        hours, used, usd, used_usd, rest = (digits + 1 for digits in row)
        used, used_usd = min(used, hours), min(used_usd, usd)
        unmeasured = min(rest, usd - used_usd)
        key = FactKey("research", "ns", "Job", f"job-{number}", "p", "i", "", A100, "nvidia.com/gpu", "a", ())
        facts[key] = Costs(
            allocated_gpu_hours=hours,
            effective_gpu_hours=used,
            allocated_usd=usd,
            effective_usd=used_usd,
            waste_usd=usd - used_usd - unmeasured,
            unmeasured_usd=unmeasured,
            unmeasured_gpu_hours=min(rest, hours - used),
        )
        cost += usd
    capacity = CapacityCosts(node_cost_usd=cost + 7, unallocated_usd=7)
    outcome = calculate_move(MoveToSlices("research", gpus, "a100", profile), [(CostsByKey.of(facts), capacity)])
    assert outcome.is_conserved
    assert sum_of_parts(outcome, outcome.costs_after, outcome.capacity_after) == capacity.node_cost_usd
    after = outcome.costs_after
    assert min(after.effective_usd, after.waste_usd, after.unmeasured_usd, after.effective_gpu_hours) >= 0
    assert after.allocated_usd == after.effective_usd + after.waste_usd + after.unmeasured_usd
    assert after.effective_gpu_hours + after.unmeasured_gpu_hours <= after.allocated_gpu_hours
