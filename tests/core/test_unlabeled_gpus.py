"""Nodes without labels that advertise more GPUs than their exporter reports: shared, if anything shows it."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction

import pytest
from msgspec.structs import replace

from gpucost.core.hours import HOUR_MS
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.observations import DeviceSeries, NodeState, Observation, PodObservation
from gpucost.core.metering.usage import Usage
from tests.core.single_node_cluster import GPU, device, node, observation, pod


def pods(count: int) -> tuple[PodObservation, ...]:
    return tuple(replace(pod(), pod=f"p{number}", uid=f"u{number}") for number in range(count))


def devices(held: int, idle: int) -> tuple[DeviceSeries, ...]:
    """GPUs with the label of one pod each, and without any."""
    names = [("team", f"p{number}") for number in range(held)] + [("", "")] * idle
    return tuple(
        replace(device(), uuid=f"GPU-{number}", namespace=namespace, pod=name)
        for number, (namespace, name) in enumerate(names)
    )


def observed(units: int, held: Sequence[PodObservation], of_node: tuple[DeviceSeries, ...]) -> Observation:
    of_hour = observation(devices=of_node, nodes=(node(units, {}),))
    return replace(of_hour, pods=tuple(held), collects_nodes=True, notes=())


def metered(of_hour: Observation) -> Usage:
    return meter(replace(of_hour, collects_capacity=True), MeteringRules())


def held_and_total(usage: Usage) -> list[Fraction]:
    (of_node,) = usage.nodes or ()
    return [sum((holding.gpus for holding in usage.pods), Fraction(0)), Fraction(of_node.total_gpu_ms) / HOUR_MS]


@pytest.mark.parametrize(
    ("units", "holding", "of_node", "expected"),
    [
        (16, 3, devices(3, 1), (Fraction(3, 4), 4)),
        (16, 8, devices(4, 0), (2, 4)),
        (8, 2, devices(0, 4), (1, 4)),
        (10, 3, devices(1, 0), (Fraction(3, 10), 1)),
    ],
    ids=["an idle GPU is reported", "pods hold more than is reported", "no label names a pod", "one GPU"],
)
def test_gpus_are_those_of_the_exporter_where_it_hides_none(
    units: int, holding: int, of_node: tuple[DeviceSeries, ...], expected: tuple[Fraction, Fraction]
) -> None:
    usage = metered(observed(units, pods(holding), of_node))
    assert held_and_total(usage) == [*expected]
    (note,) = [note for note in usage.notes if "advertise more GPUs" in note]
    assert f"the first is 'n1': {units} and {len(of_node)}). They count as shared" in note


@pytest.mark.parametrize(
    ("units", "holding", "of_node"),
    [(8, 4, devices(4, 0)), (8, 2, devices(2, 1)), (8, 2, ())],
    ids=["each reported GPU is held", "the units are no multiple", "no exporter"],
)
def test_gpus_are_whole_with_a_note_where_it_may_hide_some(
    units: int, holding: int, of_node: tuple[DeviceSeries, ...]
) -> None:
    usage = metered(observed(units, pods(holding), of_node))
    assert held_and_total(usage) == [holding, units]
    (note,) = [note for note in usage.notes if "advertise more GPUs" in note]
    assert "They count as whole GPUs, but may be shared" in note


def test_broken_gpus_make_the_others_no_shared_ones() -> None:
    """Two GPUs, of which one broke: the exporter reports only the other."""
    broken = observed(2, pods(1), devices(1, 0))
    state = NodeState(None, {GPU: Decimal(2)}, {GPU: Decimal(1)}, {})
    usage = metered(replace(broken, pods=pods(2), nodes=(replace(node(2, {}), states=(state,)),)))
    assert held_and_total(usage) == [2, 2]


@pytest.mark.parametrize(
    ("labels", "units"),
    [
        ({"label_nvidia_com_gpu_product": "NVIDIA-A10G"}, 8),
        ({"label_nvidia_com_gpu_count": "8"}, 8),
        ({"label_nvidia_com_gpu_replicas": "1"}, 8),
        ({}, 1),
    ],
)
def test_nodes_with_labels_or_a_single_unit_have_no_note(labels: dict[str, str], units: int) -> None:
    labeled = replace(observed(units, pods(1), ()), nodes=(node(units, labels),))
    usage = metered(labeled)
    assert held_and_total(usage) == [1, units]
    assert not [note for note in usage.notes if "advertise more GPUs" in note]
