"""The parts of a node's cost sum to it, for arbitrary clusters: nothing is lost, counted twice or clamped."""

import random
from decimal import Decimal
from fractions import Fraction
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.core.amounts import CapacityCosts, Costs
from gpucost.core.attribution import AttributionRules, BusinessUnit, build_record
from gpucost.core.hour_record import HourRecord
from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.implausible_samples import SUSPECT_PREFIX
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import Observation
from gpucost.core.metering.usage import Usage
from gpucost.core.pricing.node_costs import Pricing
from tests.core.generated_observations import START, cluster_observations, metering_rules
from tests.records import amount

T = TypeVar("T")
prices = st.decimals(Decimal("0.01"), 100, places=4).map(Pricing.constant)


def record(observation: Observation, metering: MeteringRules, rate: Pricing) -> HourRecord:
    units = (BusinessUnit("first", ("a",)), BusinessUnit("rest", ("c-*",)))
    return build_record(meter(observation, metering), AttributionRules(rate, units))


def without_residual(capacity: CapacityCosts) -> int:
    return capacity.unallocated_usd + capacity.stranded_usd + capacity.unobserved_usd + capacity.host_usd


@settings(max_examples=200, deadline=None)
@given(cluster_observations(), metering_rules, prices)
def test_parts_sum_to_node_cost(observation: Observation, metering: MeteringRules, rate: Pricing) -> None:
    attributed = record(observation, metering, rate)
    assert attributed.totals is not None
    costs, capacity = attributed.totals.costs, attributed.totals.capacity
    assert costs == Costs.total(attributed.by_business_unit().values())
    for part in (*(line.costs() for line in attributed.lines), costs):
        assert part.allocated_usd == part.effective_usd + part.waste_usd + part.unmeasured_usd
        assert min(getattr(part, name) for name in Costs.names()) >= 0
        assert part.effective_gpu_hours + part.unmeasured_gpu_hours <= part.allocated_gpu_hours
    if capacity is not None:
        spread = costs.allocated_usd + without_residual(capacity)
        assert spread + capacity.residual_usd == capacity.node_cost_usd
        assert min(getattr(capacity, name) for name in CapacityCosts.names() if name != "residual_usd") >= 0
        usage = meter(observation, metering)
        contradiction = any(node.excess_gpu_ms for node in usage.nodes or ())
        assert contradiction or capacity.residual_usd == 0
        hours = costs.allocated_gpu_hours + capacity.unallocated_gpu_hours + capacity.stranded_gpu_hours
        assert contradiction or hours + capacity.unobserved_gpu_hours == capacity.capacity_gpu_hours


@settings(max_examples=100, deadline=None)
@given(cluster_observations(), metering_rules)
def test_parts_of_node_sum_to_its_gpu_time(observation: Observation, metering: MeteringRules) -> None:
    usage = meter(observation, metering)
    for node in usage.nodes or ():
        pods = [pod for pod in usage.pods if pod.node.name == node.node.name]
        pods = [pod for pod in pods if pod.node.provider_id == node.provider_id]
        held = sum((pod.gpu_ms for pod in pods), Fraction(0))
        parts = node.unallocated_gpu_ms + node.stranded_gpu_ms + node.unobserved_gpu_ms
        assert held + parts - node.excess_gpu_ms == node.total_gpu_ms
        assert min(node.unallocated_gpu_ms, node.stranded_gpu_ms, node.unobserved_gpu_ms, node.excess_gpu_ms) >= 0
        assert all(node.present.overlap(pod.held) == pod.held for pod in pods)


@settings(max_examples=33, deadline=None)
@given(cluster_observations(), metering_rules, prices, st.randoms(use_true_random=False))
def test_order_of_observations_does_not_matter(
    observation: Observation, metering: MeteringRules, rate: Pricing, shuffle: random.Random
) -> None:
    def shuffled(records: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(shuffle.sample(records, len(records)))

    other = replace(
        observation,
        pods=shuffled(observation.pods),
        nodes=shuffled(observation.nodes),
        devices=shuffled(observation.devices),
    )
    assert record(other, metering, rate).lines == record(observation, metering, rate).lines


def held_by_pod(usage: Usage) -> dict[tuple[str, str], Fraction]:
    held: dict[tuple[str, str], Fraction] = {}
    for pod_usage in usage.pods:
        key = (pod_usage.pod.uid, pod_usage.resource)
        held[key] = held.get(key, Fraction(0)) + pod_usage.held.length * pod_usage.units
    return held


@settings(max_examples=66, deadline=None)
@given(cluster_observations(changed=False), st.integers(1, HOUR_MS - 1))
def test_two_parts_of_hour_add_up_to_hour(observation: Observation, cut: int) -> None:
    metering = MeteringRules()
    start = to_epoch_ms(START)
    windows = [
        IntervalMs(start, start + HOUR_MS),
        IntervalMs(start, start + cut),
        IntervalMs(start + cut, start + HOUR_MS),
    ]
    # A request is plausible according to the node's state in the metered time, of which a part may show less.
    notes = [note for window in windows for note in meter(observation, metering, window).notes]
    possible = [
        pod
        for pod in observation.pods
        if not any(f"{SUSPECT_PREFIX}pod {pod.namespace}/{pod.pod} " in note for note in notes)
    ]
    observation = replace(observation, pods=tuple(possible))
    whole, *parts = (meter(observation, metering, window) for window in windows)
    together: dict[tuple[str, str], Fraction] = {}
    for part in parts:
        for key, held in held_by_pod(part).items():
            together[key] = together.get(key, Fraction(0)) + held
    assert together == held_by_pod(whole)


@settings(max_examples=66, deadline=None)
@given(cluster_observations(), metering_rules, prices)
def test_additional_pod_does_not_raise_cost_of_other_lines(
    observation: Observation, metering: MeteringRules, rate: Pricing
) -> None:
    """An exception is the scrape interval after a pod's last sample, in which the pod may have ended at any time.

    If metrics contradict each other, another pod may change when it ended.
    """
    if not observation.pods:
        return
    fewer = record(replace(observation, pods=observation.pods[:-1]), metering, rate)
    more = {(line.uid, line.resource): line for line in record(observation, metering, rate).lines}
    for line in fewer.lines:
        after = more.get((line.uid, line.resource))
        assert line.gpu_hourly_usd and line.allocated_usd is not None
        interval_usd = line.gpu_hourly_usd * line.units * line.gpu_share / 60
        most = line.allocated_usd + amount(interval_usd + Decimal("1e-9"))
        assert after is None or (after.allocated_usd is not None and after.allocated_usd <= most)


@settings(max_examples=33, deadline=None)
@given(cluster_observations(), metering_rules, prices)
def test_renamed_namespaces_change_only_names(observation: Observation, metering: MeteringRules, rate: Pricing) -> None:
    def renamed(namespace: str) -> str:
        return f"x-{namespace}" if namespace else ""

    other = replace(
        observation,
        pods=tuple(replace(pod, namespace=renamed(pod.namespace)) for pod in observation.pods),
        devices=tuple(replace(device, namespace=renamed(device.namespace)) for device in observation.devices),
    )
    plain = AttributionRules(rate)
    lines = build_record(meter(observation, metering), plain).lines
    again = build_record(meter(other, metering), plain).lines
    assert [
        line._replace(namespace=renamed(line.namespace), business_unit=renamed(line.namespace)) for line in lines
    ] == list(again)
