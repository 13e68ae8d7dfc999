"""Whatever samples say, every node's parts sum to its cost, and no line holds what cannot be."""

from dataclasses import replace
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from gpucost.domain.attribution import AttributionRules, attribute
from gpucost.domain.intervals import Interval
from gpucost.domain.metering import MeteringRules, meter
from gpucost.domain.model import Capacity
from gpucost.domain.observations import NodeState, Observation
from gpucost.domain.pricing import Pricing
from gpucost.domain.suspicion import SUSPECT, contradict, is_count, is_utilization, overlap_lastingly
from tests.domain.observed import observations

ABSURD = [Decimal(text) for text in ("NaN", "Infinity", "-Infinity", "-1", "0.5", "1e18", "1e308", "-1e308", "100001")]
absurd = st.sampled_from([*ABSURD, Decimal(1), Decimal(8)])
MINUTE = 60_000


@st.composite
def forged(draw: st.DrawFn) -> Observation:
    """A cluster-hour in which any number may be absurd, and any pod or node contradictory."""
    seen = draw(observations())
    reasons = st.sampled_from(["", "", "sources say otherwise"])
    return replace(
        seen,
        pods=tuple(
            replace(
                pod,
                requests=tuple(one._replace(units=draw(absurd)) for one in pod.requests),
                contradiction=draw(reasons),
            )
            for pod in seen.pods
        ),
        nodes=tuple(
            replace(
                node,
                contradiction=draw(reasons),
                states=tuple(
                    NodeState(state.seen, {**state.capacity}, {**state.allocatable}, state.labels)
                    for state in node.states
                ),
            )
            for node in seen.nodes
        ),
        devices=tuple(
            one._replace(total=draw(absurd), values=draw(st.none() | st.just(((one.samples, draw(absurd)),))))
            for one in seen.devices
        ),
    )


@settings(max_examples=150, deadline=None)
@given(forged())
def test_parts_sum_to_the_cost_whatever_is_forged(observation: Observation) -> None:
    usage = meter(observation, MeteringRules(("pod", "shared", "node", "cluster")))
    record = attribute(usage, AttributionRules(Pricing.constant(Decimal(12))))
    if record.totals is None:
        return
    costs, capacity = record.totals.costs, record.totals.capacity
    assert costs.allocated_usd == costs.effective_usd + costs.waste_usd + costs.unmeasured_usd
    if capacity is not None:
        rest = sum((getattr(capacity, part) for part in Capacity.names() if part.endswith("_usd")), Decimal(0))
        assert costs.allocated_usd + rest - capacity.node_cost_usd == capacity.node_cost_usd
        assert record.totals.are_reasonable()
    for node in usage.nodes or ():
        held = sum(one.holding.gpu_ms for one in usage.pods if one.holding.node.name == node.node.name)
        twins = [one for one in usage.nodes or () if one.node.name == node.node.name]
        parts = (
            node.unallocated_gpu_ms, node.stranded_gpu_ms, node.unobserved_gpu_ms, -node.excess_gpu_ms,
        )  # fmt: skip
        assert len(twins) > 1 or held + sum(parts) == node.total_gpu_ms
    assert all(is_count(Decimal(line.units)) for line in record.lines)
    names = {(pod.namespace, pod.pod) for pod in observation.pods if pod.contradiction}
    assert not names & {(line.namespace, line.pod) for line in record.lines}
    assert record.notes == tuple(sorted(record.notes, key=lambda note: not note.startswith(SUSPECT)))


def test_sources_contradict_after_five_minutes_and_not_before() -> None:
    one = {minute * MINUTE: 8 for minute in range(60)}

    def other(start: int, end: int) -> dict[int, int]:
        return {minute * MINUTE + 9: 64 if start <= minute < end else 8 for minute in range(60)}

    assert not contradict({"a": one, "b": other(10, 15)})
    assert contradict({"a": one, "b": other(10, 18)})
    assert not contradict({"a": one}), "one source agrees with itself"
    assert not contradict({"a": one, "b": {}})
    successor = {minute * MINUTE: 64 for minute in range(60, 90)}
    assert not contradict({"a": one, "b": successor}), "one after the other is a change"


def test_overlap_is_lasting_beyond_five_minutes() -> None:
    assert not overlap_lastingly(Interval(0, 10 * MINUTE), Interval(5 * MINUTE, 60 * MINUTE))
    assert overlap_lastingly(Interval(0, 10 * MINUTE), Interval(5 * MINUTE - 1, 60 * MINUTE))


def test_utilization_above_full_use_counts_up_to_ten_times() -> None:
    assert is_utilization(Decimal("1.2"), Decimal(1)), "MIG devices are seen above"
    assert is_utilization(Decimal(10), Decimal(1))
    assert not any(is_utilization(Decimal(text), Decimal(1)) for text in ("10.1", "-0.1", "NaN", "Infinity"))
