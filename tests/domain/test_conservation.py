"""The identity of design §1, on fleets that nobody thought of: nothing is lost, doubled or clamped."""

import random
from datetime import UTC, datetime
from decimal import Decimal
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from gpucost.domain.attribution import AttributionRules, BusinessUnit, attribute
from gpucost.domain.hours import to_ms
from gpucost.domain.metering import MeteringRules, meter
from gpucost.domain.model import Capacity, Costs, HourRecord
from gpucost.domain.money import ZERO
from gpucost.domain.observations import (
    ContainerRequest,
    DeviceObservation,
    Heartbeat,
    NodeObservation,
    Observation,
    PodObservation,
    Presence,
)
from gpucost.domain.rating import Rate

START = datetime(2026, 11, 19, 10, tzinfo=UTC)
STEP = 60_000
RESOURCES = ["nvidia_com_gpu", "nvidia_com_mig_1g_5gb", "nvidia_com_mig_3g_20gb", "nvidia_com_gpu_shared"]
T = TypeVar("T")
units = st.integers(1, 9).map(Decimal)


def times(first: int, last: int) -> tuple[int, ...]:
    """Scrapes of the minutes from the first to the last."""
    return tuple(to_ms(START) + minute * STEP for minute in range(first, last + 1))


@st.composite
def presences(draw: st.DrawFn) -> Presence:
    if draw(st.booleans()):
        return Presence({"k": 65})
    first = draw(st.integers(-60, 59))
    return Presence({"k": 1}, times(first, draw(st.integers(first, 119))))


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    nodes = [
        NodeObservation(
            name=f"n{i}",
            provider_id="",
            present=draw(presences()),
            labels=draw(
                st.sampled_from(
                    [
                        {},
                        {"label_node_kubernetes_io_instance_type": "p4d.24xlarge"},
                        {"label_nvidia_com_gpu_replicas": "3", "label_nvidia_com_gpu_count": "2"},
                        {"label_nvidia_com_gpu_product": "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb"},
                    ]
                )
            ),
            capacity=draw(st.dictionaries(st.sampled_from(RESOURCES), units, max_size=3)),
            allocatable=draw(st.dictionaries(st.sampled_from(RESOURCES), units, max_size=2)),
            advertised=draw(st.none() | presences()),
        )
        for i in range(draw(st.integers(0, 3)))
    ]
    names = [node.name for node in nodes] + draw(st.sampled_from([[], ["unknown"]]))
    pods = [
        PodObservation(
            namespace=draw(st.sampled_from(["a", "b", "c-1"])),
            pod=f"p{i}",
            uid=f"u{i}",
            node=(node := draw(st.sampled_from(names))),
            requests=tuple(
                ContainerRequest("", "", "", node, f"c{j}", init, draw(st.sampled_from(RESOURCES)), draw(units))
                for j, init in enumerate(draw(st.lists(st.booleans(), min_size=1, max_size=3)))
            ),
            held=draw(presences()),
            running=draw(st.none() | presences()),
        )
        for i in range(draw(st.integers(0, 6)) if names else 0)
    ]
    devices = [
        DeviceObservation(
            node=draw(st.sampled_from(["n0", "n1", "elsewhere"])),
            uuid=f"GPU-{draw(st.integers(0, 3))}",
            mig_instance=draw(st.sampled_from(["", "1", "2"])),
            mig_profile="",
            model="NVIDIA A100-SXM4-40GB",
            namespace=holder.namespace if holder else "",
            pod=holder.pod if holder else "",
            uid="",
            samples=(samples := draw(st.integers(0, 60))),
            total=draw(st.decimals(0, 2, places=6)) * samples,
            instance="d",
        )
        for holder in draw(st.lists(st.sampled_from([*pods, None]), max_size=8))
    ]
    missing = draw(st.integers(0, 40))
    scrapes = times(-60, 9) + times(10 + missing, 119)
    return Observation("c", START, Heartbeat({"k": scrapes}), tuple(pods), tuple(nodes), tuple(devices), {"d": scrapes})


rules = st.builds(
    MeteringRules,
    full_scale=st.sampled_from([Decimal(1), Decimal(100)]),
    ladder=st.permutations(["pod", "shared", "node", "cluster"]).flatmap(
        lambda rungs: st.integers(0, 4).map(lambda n: tuple(rungs[:n]))
    ),
    slices_per_gpu=st.sampled_from([None, 7]),
)
prices = st.decimals(Decimal("0.01"), 100, places=4).map(lambda usd: Rate(usd, "constant", "gpu-bears-all"))


def record(observation: Observation, metering: MeteringRules, rate: Rate) -> HourRecord:
    units = (BusinessUnit("first", ("a",)), BusinessUnit("rest", ("c-*",)))
    return attribute(meter(observation, metering), AttributionRules(rate, units))


def without_residual(capacity: Capacity) -> Decimal:
    parts = (capacity.unallocated_usd, capacity.stranded_usd, capacity.unobserved_usd, capacity.host_usd)
    return sum(parts, ZERO)


@settings(max_examples=600, deadline=None)
@given(observations(), rules, prices)
def test_every_dollar_is_somewhere(observation: Observation, metering: MeteringRules, rate: Rate) -> None:
    found = record(observation, metering, rate)
    assert found.totals is not None
    costs, capacity = found.totals.costs, found.totals.capacity
    assert costs == Costs.total(found.by_business_unit().values())
    for part in (*(line.costs() for line in found.lines), costs):
        assert part.allocated_usd == part.effective_usd + part.waste_usd + part.unmeasured_usd
        assert min(getattr(part, name) for name in Costs.names()) >= 0
        assert part.effective_gpu_hours + part.unmeasured_gpu_hours <= part.allocated_gpu_hours
    if capacity is not None:
        spread = costs.allocated_usd + without_residual(capacity)
        assert spread + capacity.residual_usd == capacity.node_cost_usd
        assert min(getattr(capacity, name) for name in Capacity.names() if name != "residual_usd") >= 0
        usage = meter(observation, metering)
        contradiction = any(node.excess_gpu_ms for node in usage.nodes or ())
        assert contradiction or capacity.residual_usd == 0
        hours = costs.allocated_gpu_hours + capacity.unallocated_gpu_hours + capacity.stranded_gpu_hours
        assert contradiction or hours + capacity.unobserved_gpu_hours == capacity.capacity_gpu_hours


@settings(max_examples=100, deadline=None)
@given(observations(), rules, prices, st.randoms(use_true_random=False))
def test_the_order_of_what_was_seen_does_not_matter(
    observation: Observation, metering: MeteringRules, rate: Rate, shuffle: random.Random
) -> None:
    def shuffled(things: tuple[T, ...]) -> tuple[T, ...]:
        return tuple(shuffle.sample(things, len(things)))

    other = Observation(
        observation.cluster,
        observation.hour,
        observation.heartbeat,
        shuffled(observation.pods),
        shuffled(observation.nodes),
        shuffled(observation.devices),
        observation.device_scrapes,
    )
    assert record(other, metering, rate).lines == record(observation, metering, rate).lines
