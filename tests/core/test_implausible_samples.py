"""With any samples, every node's parts sum to its cost, and no line has implausible figures."""

from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from benchmarks.core import instructions
from gpucost.core.amounts import CapacityCosts
from gpucost.core.attribution import AttributionRules, build_record
from gpucost.core.hours import to_epoch_ms
from gpucost.core.intervals import IntervalMs, Scrapes
from gpucost.core.metering.contradictions import contradictory_devices
from gpucost.core.metering.device_use import DeviceKey, group_by_device
from gpucost.core.metering.implausible_samples import (
    MAX_SOURCES,
    SUSPECT_PREFIX,
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
from gpucost.core.pricing.node_costs import Pricing
from tests.core.generated_observations import START, cluster_observations, times

ABSURD = [Decimal(text) for text in ("NaN", "Infinity", "-Infinity", "-1", "0.5", "1e18", "1e308", "-1e308", "100001")]
absurd = st.sampled_from([*ABSURD, Decimal(1), Decimal(8)])
MINUTE = 60_000


@st.composite
def implausible_observations(draw: st.DrawFn) -> Observation:
    """A cluster-hour in which any number may be absurd, and any pod or node contradictory."""
    plausible = draw(cluster_observations())
    reasons = st.sampled_from(["", "", "sources say otherwise"])
    return replace(
        plausible,
        pods=tuple(
            replace(
                pod,
                requests=tuple(request._replace(units=draw(absurd)) for request in pod.requests),
                contradiction=draw(reasons),
            )
            for pod in plausible.pods
        ),
        nodes=tuple(
            replace(
                node,
                contradiction=draw(reasons),
                states=tuple(
                    NodeState(state.sample_times, {**state.capacity}, {**state.allocatable}, state.labels)
                    for state in node.states
                ),
            )
            for node in plausible.nodes
        ),
        devices=tuple(
            replace(
                device,
                sample_sum=draw(absurd),
                samples=draw(st.none() | st.just(((device.sample_count, draw(absurd)),))),
            )
            for device in plausible.devices
        ),
    )


@settings(max_examples=150, deadline=None)
@given(implausible_observations())
def test_parts_sum_to_cost_despite_implausible_samples(observation: Observation) -> None:
    usage = meter(observation, MeteringRules(("pod", "shared", "node", "cluster")))
    record = build_record(usage, AttributionRules(Pricing.constant(Decimal(12))))
    if record.totals is None:
        return
    costs, capacity = record.totals.costs, record.totals.capacity
    assert costs.allocated_usd == costs.effective_usd + costs.waste_usd + costs.unmeasured_usd
    if capacity is not None:
        rest = sum((getattr(capacity, part) for part in CapacityCosts.names() if part.endswith("_usd")), Decimal(0))
        assert costs.allocated_usd + rest - capacity.node_cost_usd == capacity.node_cost_usd
        assert record.totals.are_plausible()
    for node in usage.nodes or ():
        held = sum(candidate.gpu_ms for candidate in usage.pods if candidate.node.name == node.node.name)
        twins = [candidate for candidate in usage.nodes or () if candidate.node.name == node.node.name]
        parts = (node.unallocated_gpu_ms, node.stranded_gpu_ms, node.unobserved_gpu_ms, -node.excess_gpu_ms)
        assert len(twins) > 1 or held + sum(parts) == node.total_gpu_ms
    assert all(is_count(Decimal(line.units)) for line in record.lines)
    names = {(pod.namespace, pod.pod) for pod in observation.pods if pod.contradiction}
    assert not names & {(line.namespace, line.pod) for line in record.lines}
    assert record.notes == tuple(sorted(record.notes, key=lambda note: not note.startswith(SUSPECT_PREFIX)))


def test_sources_contradict_only_after_five_minutes() -> None:
    constant = {minute * MINUTE: 8 for minute in range(60)}

    def changed(start: int, end: int) -> dict[int, int]:
        return {minute * MINUTE + 9: 64 if start <= minute < end else 8 for minute in range(60)}

    assert not sources_contradict({"a": constant, "b": changed(10, 15)})
    assert sources_contradict({"a": constant, "b": changed(10, 18)})
    assert not sources_contradict({"a": constant}), "a source cannot contradict itself"
    assert not sources_contradict({"a": constant, "b": {}})
    successor = {minute * MINUTE: 64 for minute in range(60, 90)}
    assert not sources_contradict({"a": constant, "b": successor}), "successive sources are a change"


def test_overlap_beyond_five_minutes_exceeds_lag() -> None:
    assert not overlap_beyond_lag(IntervalMs(0, 10 * MINUTE), IntervalMs(5 * MINUTE, 60 * MINUTE))
    assert overlap_beyond_lag(IntervalMs(0, 10 * MINUTE), IntervalMs(5 * MINUTE - 1, 60 * MINUTE))


def test_utilization_up_to_ten_times_full_use_is_plausible() -> None:
    assert is_utilization(Decimal("1.2"), Decimal(1)), "MIG devices may exceed full use"
    assert is_utilization(Decimal(10), Decimal(1))
    assert not any(is_utilization(Decimal(text), Decimal(1)) for text in ("10.1", "-0.1", "NaN", "Infinity"))


MANY = 1500
"""Sources that one exporter can fabricate by its labels; an algorithm of quadratic time takes minutes for them."""
FEW = 30_000_000
"""Seven millions at most; without bounds, each of these takes billions."""


def series_of_same_gpu(pods: Sequence[str], exporters: Sequence[str]) -> list[DeviceSeries]:
    """Return series of one GPU that every exporter reports, each with all pods."""
    return [
        DeviceSeries(
            node="n1",
            uuid="GPU-0",
            mig_instance="",
            mig_profile="",
            model="NVIDIA A10G",
            namespace="team",
            pod=pod,
            uid="",
            slot="",
            resource_claim="",
            scrape_target=f"dcgm-exporter|/{exporter}",
            scale=Decimal(1),
            signal_rank=0,
            sample_count=60,
            sample_sum=Decimal(30),
            samples=tuple((at, Decimal("0.5")) for at in times(0, 59)),
        )
        for pod in pods
        for exporter in exporters
    ]


def test_many_exporters_of_same_gpu_are_suspect_and_checked_quickly() -> None:
    hour = IntervalMs(to_epoch_ms(START), to_epoch_ms(START) + 60 * MINUTE)
    series = group_by_device(series_of_same_gpu(["p"], [f"n1:{number}" for number in range(MANY)]))
    contradictory: dict[DeviceKey, tuple[str, str]] = {}
    assert instructions(lambda: contradictory.update(contradictory_devices(series, hour, {("team", "p")}))) < FEW
    assert list(contradictory) == [("n1", "GPU-0", "")]


def test_successive_exporters_are_not_suspect() -> None:
    hour = IntervalMs(to_epoch_ms(START), to_epoch_ms(START) + 60 * MINUTE)
    series = [
        replace(device_series, samples=tuple((at, Decimal("0.5")) for at in times(4 * number, 4 * number + 3)))
        for number, device_series in enumerate(series_of_same_gpu(["p"], [f"n1:{number}" for number in range(15)]))
    ]
    assert contradictory_devices(group_by_device(series), hour, {("team", "p")}) == {}


def test_many_sources_contradict_and_are_checked_quickly() -> None:
    values_by_source = {f"ksm|/{number}": dict.fromkeys(times(0, 59), 4) for number in range(MANY)}
    assert instructions(lambda: sources_contradict(values_by_source)) < FEW
    assert sources_contradict(values_by_source)
    assert not sources_contradict({source: values_by_source[source] for source in list(values_by_source)[:MAX_SOURCES]})


@pytest.mark.tools
def test_many_pods_on_same_gpu_are_metered_quickly() -> None:
    """The pods share the GPU and start in succession, so that each has another running time."""
    names = [f"p{number}" for number in range(MANY // 3)]
    observation = Observation(
        cluster="c",
        hour=START,
        allocation_scrapes={"k": Scrapes(times(-60, 119))},
        pods=tuple(
            PodObservation(
                namespace="team",
                pod=name,
                uid=name,
                node="n1",
                requests=(ContainerRequest("main", "container", "nvidia_com_gpu", Decimal(1)),),
                held_samples=None,
                running_samples={"k": times(number % 50, 119)},
            )
            for number, name in enumerate(names)
        ),
        nodes=(NodeObservation("n1", "", None, {"label_nvidia_com_gpu_replicas": "500"}, ()),),
        devices=tuple(series_of_same_gpu(names, ["n1:9400"])),
        utilization_scrapes={"dcgm-exporter|/n1:9400": Scrapes(times(-5, 64))},
    )
    usages: list[Usage] = []
    assert instructions(lambda: usages.append(meter(observation, MeteringRules(("pod", "shared"))))) < FEW
    used = sum(pod.effective_gpu_ms + pod.use.beyond_allocation_gpu_ms for pod in usages[0].pods)
    assert used == 30 * MINUTE
