"""What-if: by hand, against a fleet that is simulated with the slices, and conserved to the last digit."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucost.core.amounts import Capacity, Costs
from gpucost.core.errors import InvalidInputError
from gpucost.core.rollups import FactKey, sum_facts
from gpucost.features.recommendations.what_if import Move, Outcome, what_if
from tests.features.recommendations import simulated_fleet as sim

A100 = "NVIDIA A100-SXM4-40GB"
POOL = sim.Pool("a100", "p4d.24xlarge", 8, Decimal(32), model=A100)
MOVE = Move("research", 10, "A100", "3g.20gb")
DAYS = 2


def days_of(loads: list[sim.Load]) -> list[tuple[dict[FactKey, Costs], Capacity]]:
    records = list(sim.simulate(loads, 24 * DAYS))
    found = []
    for day in range(DAYS):
        own = [one for one in records if one.hour.date() == (sim.START + timedelta(days=day)).date()]
        facts = sum_facts(line for one in own for line in one.lines)
        found.append((facts, Capacity.total(node.capacity for one in own for node in one.nodes)))
    return found


def loads() -> list[sim.Load]:
    return [
        sim.Load("serve", lambda _: 4.0, lambda _: 16, pool=POOL),
        sim.Load("train", lambda _: 7.0, lambda _: 1, gpus=8, pool=POOL, unit="vision"),
        sim.Load("other", lambda _: 1.0, lambda _: 2, unit="research"),
    ]


def identity(outcome: Outcome, own: Costs, capacity: Capacity) -> Decimal:
    """Everything that the nodes' cost went into, added up here."""
    held = [own, outcome.others]
    return sum(
        (one.effective_usd + one.waste_usd + one.unmeasured_usd for one in held), capacity.unallocated_usd
    ) + capacity.stranded_usd + capacity.unobserved_usd + capacity.host_usd + capacity.residual_usd  # fmt: skip


def test_ten_a100s_become_halves_by_hand() -> None:
    found = what_if(MOVE, days_of(loads()))
    assert found.moved_gpu_hours == 10 * 24 * DAYS
    assert found.freed_gpu_hours == 5 * 24 * DAYS, "ten halves of ten GPUs"
    assert found.freed_usd == 5 * 24 * DAYS * 4, "at $4 a GPU-hour"
    assert found.before.effective_usd == found.after.effective_usd, "the work is the same"
    assert found.before.waste_usd - found.after.waste_usd == found.freed_usd
    assert found.slice_utilization == Decimal("0.583333333333"), "a quarter of a GPU on 3 of 7 compute slices"
    assert found.capacity_after.node_cost_usd == found.capacity_before.node_cost_usd
    assert found.is_conserved


def test_it_is_the_fleet_simulated_with_slices() -> None:
    serve, train, other = loads()
    sliced = [
        replace(serve, name="serve-3g", pods=lambda _: 10, work=lambda _: 2.5, slice=Decimal("0.5")),
        replace(serve, pods=lambda _: 6, work=lambda _: 1.5), train, other,
    ]  # fmt: skip
    found = what_if(MOVE, days_of(loads()))
    units = [costs for facts, _ in days_of(sliced) for key, costs in facts.items() if key.business_unit == "research"]
    truth = Costs.total(units)
    for name in ("allocated_usd", "effective_usd", "waste_usd", "allocated_gpu_hours", "effective_gpu_hours"):
        assert float(getattr(found.after, name)) == pytest.approx(float(getattr(truth, name)), rel=1e-9), name


def test_a_slice_gives_no_more_than_it_has() -> None:
    busy = [sim.Load("serve", lambda _: 14.4, lambda _: 16, pool=POOL)]
    found = what_if(replace(MOVE, gpus=16), days_of(busy))
    assert found.slice_utilization is not None
    assert found.slice_utilization > 2
    assert found.after.effective_gpu_hours == found.after.allocated_gpu_hours
    assert found.after.waste_usd == 0
    assert found.is_conserved


def test_the_cap_is_of_the_moved_gpus_alone() -> None:
    """Half of the GPUs move: they were 90% busy and give half a GPU each; the others do what they did."""
    busy = [sim.Load("serve", lambda _: 14.4, lambda _: 16, pool=POOL)]
    found = what_if(replace(MOVE, gpus=8), days_of(busy))
    assert found.after.effective_gpu_hours == (8 * Decimal("0.9") + 8 * Decimal("0.5")) * 24 * DAYS
    assert found.after.allocated_gpu_hours == (8 + 4) * 24 * DAYS
    assert found.after.effective_usd == found.after.effective_gpu_hours * 4


def test_more_than_there_are_moves_all_there_are() -> None:
    found = what_if(replace(MOVE, gpus=1000), days_of(loads()))
    assert found.moved_gpu_hours == 16 * 24 * DAYS
    assert found.moved_gpus == 16


def test_unobserved_use_stays_unmeasured() -> None:
    unseen = [replace(one, source="none") for one in loads()]
    found = what_if(MOVE, days_of(unseen))
    assert found.slice_utilization is None
    assert found.after.unmeasured_usd == found.after.allocated_usd < found.before.unmeasured_usd
    assert found.is_conserved


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "H100"}, "held no whole GPU"),
        ({"model": "A10"}, "held no whole GPU"),
        ({"model": "-"}, "held no whole GPU"),
        ({"business_unit": "nobody"}, "held no whole GPU"),
        ({"profile": "3g.40gb"}, "it has 1g.10gb, 1g.5gb, 2g.10gb"),
    ],
)
def test_invalid_moves_are_rejected(change: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        what_if(replace(MOVE, **change), days_of(loads()))  # type: ignore[arg-type]


@pytest.mark.parametrize("model", ["a100", "A100-SXM4-40GB", "nvidia a100", "A100 40GB"])
def test_a_model_is_named_by_its_words(model: str) -> None:
    assert what_if(replace(MOVE, model=model), days_of(loads())).moved_gpus == 10


def test_ambiguous_model_name_lists_the_matching_models() -> None:
    larger = replace(POOL, name="large", instance_type="p4de.24xlarge", model="NVIDIA A100-SXM4-80GB")
    both = [*loads(), sim.Load("big", lambda _: 4.0, lambda _: 8, pool=larger)]
    named = "'A100' matches NVIDIA A100-SXM4-40GB and NVIDIA A100-SXM4-80GB; name one of them"
    with pytest.raises(InvalidInputError, match=named):
        what_if(MOVE, days_of(both))
    found = what_if(replace(MOVE, model="A100 40GB"), days_of(both))
    assert found.moved_gpus == 10
    assert found.freed_gpu_hours == 5 * 24 * DAYS


QUANTA = st.integers(0, 10**16)


@settings(max_examples=100)
@given(
    st.lists(st.tuples(QUANTA, QUANTA, QUANTA, QUANTA, QUANTA), min_size=1, max_size=4),
    st.integers(1, 40),
    st.sampled_from(["1g.5gb", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb"]),
)
def test_nothing_is_lost_whatever_the_digits(
    rows: list[tuple[int, int, int, int, int]], gpus: int, profile: str
) -> None:
    facts, cost = {}, Decimal(0)
    for number, row in enumerate(rows):
        hours, used, usd, used_usd, rest = (Decimal(one + 1).scaleb(-12) for one in row)
        used, used_usd = min(used, hours), min(used_usd, usd)
        unmeasured = min(rest, usd - used_usd)
        key = FactKey("research", "ns", "Job", f"job-{number}", "p", "i", "", A100, "nvidia.com/gpu", "a", ())
        facts[key] = Costs(
            allocated_gpu_hours=hours, effective_gpu_hours=used, allocated_usd=usd, effective_usd=used_usd,
            waste_usd=usd - used_usd - unmeasured, unmeasured_usd=unmeasured,
            unmeasured_gpu_hours=min(rest, hours - used),
        )  # fmt: skip
        cost += usd
    capacity = Capacity(node_cost_usd=cost + 7, unallocated_usd=Decimal(7))
    found = what_if(Move("research", gpus, "a100", profile), [(facts, capacity)])
    assert found.is_conserved
    assert identity(found, found.after, found.capacity_after) == capacity.node_cost_usd
    after = found.after
    assert min(after.effective_usd, after.waste_usd, after.unmeasured_usd, after.effective_gpu_hours) >= 0
    assert after.allocated_usd == after.effective_usd + after.waste_usd + after.unmeasured_usd
    assert after.effective_gpu_hours + after.unmeasured_gpu_hours <= after.allocated_gpu_hours
