"""Whatever samples say, every node's parts sum to its cost, and no line holds what cannot be."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from gpucost.core.attribution import AttributionRules, attribute
from gpucost.core.hours import to_epoch_ms
from gpucost.core.intervals import Interval, Scrapes
from gpucost.core.metering.device_use import DeviceKey
from gpucost.core.metering.exporter_conflicts import contradictory_devices
from gpucost.core.metering.implausible_samples import (
    MAX_SOURCES,
    SUSPECT,
    is_count,
    is_utilization,
    overlap_beyond_lag,
    sources_contradict,
)
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import (
    ContainerRequest,
    DeviceSeries,
    NodeObservation,
    NodeState,
    Observation,
    PodObservation,
)
from gpucost.core.metering.usage import Usage
from gpucost.core.model import Capacity
from gpucost.core.pricing.node_prices import Pricing
from tests.core.generated_observations import START, cluster_observations, times
from tests.raw_server import elapsed

ABSURD = [Decimal(text) for text in ("NaN", "Infinity", "-Infinity", "-1", "0.5", "1e18", "1e308", "-1e308", "100001")]
absurd = st.sampled_from([*ABSURD, Decimal(1), Decimal(8)])
MINUTE = 60_000


@st.composite
def implausible_observations(draw: st.DrawFn) -> Observation:
    """A cluster-hour in which any number may be absurd, and any pod or node contradictory."""
    seen = draw(cluster_observations())
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
                    NodeState(state.sampled, {**state.capacity}, {**state.allocatable}, state.labels)
                    for state in node.states
                ),
            )
            for node in seen.nodes
        ),
        devices=tuple(
            one._replace(total=draw(absurd), samples=draw(st.none() | st.just(((one.sample_count, draw(absurd)),))))
            for one in seen.devices
        ),
    )


@settings(max_examples=150, deadline=None)
@given(implausible_observations())
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
        assert record.totals.are_plausible()
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

    assert not sources_contradict({"a": one, "b": other(10, 15)})
    assert sources_contradict({"a": one, "b": other(10, 18)})
    assert not sources_contradict({"a": one}), "one source agrees with itself"
    assert not sources_contradict({"a": one, "b": {}})
    successor = {minute * MINUTE: 64 for minute in range(60, 90)}
    assert not sources_contradict({"a": one, "b": successor}), "one after the other is a change"


def test_overlap_is_lasting_beyond_five_minutes() -> None:
    assert not overlap_beyond_lag(Interval(0, 10 * MINUTE), Interval(5 * MINUTE, 60 * MINUTE))
    assert overlap_beyond_lag(Interval(0, 10 * MINUTE), Interval(5 * MINUTE - 1, 60 * MINUTE))


def test_utilization_above_full_use_counts_up_to_ten_times() -> None:
    assert is_utilization(Decimal("1.2"), Decimal(1)), "MIG devices are seen above"
    assert is_utilization(Decimal(10), Decimal(1))
    assert not any(is_utilization(Decimal(text), Decimal(1)) for text in ("10.1", "-0.1", "NaN", "Infinity"))


MANY = 1500
"""Sources that one exporter can make up by its labels; what grows with their square takes minutes."""
QUICK = 20.0
"""Seconds; without a bound, each of these takes more than a hundred on an idle machine."""


def series_of_one_gpu(pods: Sequence[str], exporters: Sequence[str]) -> list[DeviceSeries]:
    """Series of one GPU that every exporter reports, each with all pods."""
    return [
        DeviceSeries(
            node="n1", uuid="GPU-0", mig_instance="", mig_profile="", model="NVIDIA A10G", namespace="team", pod=pod,
            uid="", slot="", resource_claim="", instance=f"dcgm-exporter|/{exporter}", scale=Decimal(1), rank=0, sample_count=60,
            total=Decimal(30), samples=tuple((at, Decimal("0.5")) for at in times(0, 59)),
        )
        for pod in pods
        for exporter in exporters
    ]  # fmt: skip


def test_crowd_of_exporters_of_one_gpu_is_suspect_and_costs_little_time() -> None:
    hour = Interval(to_epoch_ms(START), to_epoch_ms(START) + 60 * MINUTE)
    series = series_of_one_gpu(["p"], [f"n1:{number}" for number in range(MANY)])
    found: dict[DeviceKey, tuple[str, str]] = {}
    assert elapsed(lambda: found.update(contradictory_devices(series, hour, {("team", "p")}))) < QUICK
    assert list(found) == [("n1", "GPU-0", "")]


def test_exporters_that_follow_one_another_are_not_suspect() -> None:
    hour = Interval(to_epoch_ms(START), to_epoch_ms(START) + 60 * MINUTE)
    series = [
        one._replace(samples=tuple((at, Decimal("0.5")) for at in times(4 * number, 4 * number + 3)))
        for number, one in enumerate(series_of_one_gpu(["p"], [f"n1:{number}" for number in range(15)]))
    ]
    assert contradictory_devices(series, hour, {("team", "p")}) == {}


def test_crowd_of_sources_contradicts_and_costs_little_time() -> None:
    told = {f"ksm|/{number}": dict.fromkeys(times(0, 59), 4) for number in range(MANY)}
    assert elapsed(lambda: sources_contradict(told)) < QUICK
    assert sources_contradict(told)
    assert not sources_contradict({who: told[who] for who in list(told)[:MAX_SOURCES]})


def test_many_pods_on_one_gpu_cost_little_time() -> None:
    """The use of each is its part of what the GPU did; they come one after the other, so that each has its own time."""
    names = [f"p{number}" for number in range(MANY // 3)]
    observation = Observation(
        cluster="c",
        hour=START,
        allocation={"k": Scrapes(times(-60, 119))},
        pods=tuple(
            PodObservation(
                namespace="team", pod=name, uid=name, node="n1",
                requests=(ContainerRequest("main", "container", "nvidia_com_gpu", Decimal(1)),),
                held=None, running={"k": times(number % 50, 119)},
            )
            for number, name in enumerate(names)
        ),
        nodes=(NodeObservation("n1", "", None, {"label_nvidia_com_gpu_replicas": "500"}, ()),),
        devices=tuple(series_of_one_gpu(names, ["n1:9400"])),
        utilization={"dcgm-exporter|/n1:9400": Scrapes(times(-5, 64))},
    )  # fmt: skip
    usages: list[Usage] = []
    assert elapsed(lambda: usages.append(meter(observation, MeteringRules(("pod", "shared"))))) < QUICK
    used = sum(
        pod.measurement.effective_gpu_ms + pod.measurement.used_beyond_allocation_gpu_ms for pod in usages[0].pods
    )
    assert used == 30 * MINUTE
