"""What no catalog has is named with its amount in a note and by doctor, and never makes waste or stranded grow."""

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpucost.core.hours import HOUR_MS
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.gpu_shares import GPU, GpuNode
from gpucost.core.metering.metering import MeteringRules, meter
from gpucost.core.metering.nodes import NodeLifecycle
from gpucost.core.metering.observations import Observation, Unexplained
from gpucost.core.metering.unexplained import UNKNOWN_PREFIX, relevant_things, unexplained_notes
from gpucost.core.metering.usage import Usage
from gpucost.settings_document import parse_settings
from gpucost_cli.doctor.checks.model import CheckContext
from gpucost_cli.doctor.checks.unexplained import check_unexplained
from gpucost_cli.doctor.facts import Facts, ObservedNode
from gpucost_cli.doctor.labels import required_labels
from tests.core.generated_observations import cluster_observations, metering_rules

DESCRIPTIONS = (
    "advertised units of",
    "requested units of",
    "devices of the DRA driver",
    "pods with claims of",
    "values of",
)


@st.composite
def unexplained(draw: st.DrawFn, nodes: Sequence[str]) -> list[Unexplained]:
    """Resources, drivers, claims and labels that no catalog has, on some nodes or anywhere."""
    return [
        Unexplained(
            draw(st.sampled_from(DESCRIPTIONS)),
            draw(st.from_regex(r"[a-z]{1,5}_[a-z]{2,3}_(v?gpu|fpga|x)[a-z0-9_]{0,5}", fullmatch=True)),
            Decimal(draw(st.integers(1, 10_000))),
            draw(st.sampled_from([*nodes, ""])),
            draw(st.sampled_from(["", "Settings: units"])),
            draw(st.booleans()),
        )
        for _ in range(draw(st.integers(1, 4)))
    ]


@st.composite
def clusters_with_unexplained(draw: st.DrawFn) -> Observation:
    observation = draw(cluster_observations())
    return replace(observation, unexplained=tuple(draw(unexplained([node.name for node in observation.nodes]))))


def waste(usage: Usage) -> Fraction:
    return sum((pod.waste_gpu_ms for pod in usage.pods), Fraction(0))


@pytest.mark.parametrize(("source", "names"), [("hardware", {"silent"}), ("", set())])
def test_nodes_of_an_inferred_type_are_of_no_known_pool(source: str, names: set[str]) -> None:
    """One may advertise its GPUs, and a DRA driver offer the other's. With labels, the silent one is not ready."""
    hour = IntervalMs(0, HOUR_MS)
    silent = GpuNode("silent", instance_type="p4d.24xlarge", instance_type_source=source, physical_gpus=8)
    other = replace(silent, name="other", capacity={GPU: Decimal(8)}, allocatable={GPU: Decimal(8)})
    lifecycles = {"silent": [NodeLifecycle(silent, hour, ())], "other": [NodeLifecycle(other, hour, ((hour, other),))]}
    claims = Unexplained("pods with claims of", "team/a", Decimal(1))
    _, nodes = relevant_things([claims], lifecycles, ())
    assert {name for name, _ in nodes} == names


@given(clusters_with_unexplained(), metering_rules)
def test_what_is_not_understood_is_never_waste_or_stranded(observation: Observation, rules: MeteringRules) -> None:
    usage, without = meter(observation, rules), meter(replace(observation, unexplained=()), rules)
    assert waste(usage) == waste(without)
    assert usage.pods == without.pods
    assert (usage.nodes is None) == (without.nodes is None)
    for node, before in zip(usage.nodes or (), without.nodes or (), strict=True):
        assert node.stranded_gpu_ms <= before.stranded_gpu_ms
        assert node.unobserved_gpu_ms - before.unobserved_gpu_ms == before.stranded_gpu_ms - node.stranded_gpu_ms
        assert node.total_gpu_ms == before.total_gpu_ms
        assert node.unallocated_gpu_ms == before.unallocated_gpu_ms


@given(clusters_with_unexplained(), metering_rules)
def test_what_is_not_understood_on_gpu_nodes_is_noted_with_its_amount(
    observation: Observation, rules: MeteringRules
) -> None:
    usage = meter(observation, rules)
    gpu_nodes = {node.node.name for node in usage.nodes or ()}
    must_be_noted = [item for item in observation.unexplained if item.node in gpu_nodes or not item.may_be_gpus]
    for name in {(item.description, item.name) for item in must_be_noted}:
        of_name = [item for item in observation.unexplained if (item.description, item.name) == name]
        if len(of_name) == 1:
            (item,) = of_name
            text = f"{UNKNOWN_PREFIX}{item.amount} {item.description} {item.name}"
            assert any(note.startswith(text) for note in usage.notes), usage.notes


@given(unexplained(["n0", "n1"]))
def test_doctor_names_what_is_not_understood_with_its_amount(items: list[Unexplained]) -> None:
    nodes = {name: ObservedNode(name, capacity={"nvidia_com_gpu": 1}) for name in ("n0", "n1")}
    now = datetime(2026, 11, 28, tzinfo=UTC)
    settings = parse_settings(
        "clusters: [{name: c, prometheus: {url: 'http://p'}}]\npricing: {source: constant, gpu_hourly_usd: 1}"
    )
    context = CheckContext(
        Facts(now, now, nodes=nodes, unexplained=items), settings.clusters[0], settings, required_labels(settings), []
    )
    findings = {check.name: check.finding or "" for check in check_unexplained(context)}
    amounts: dict[Unexplained, Decimal] = {}
    for item in items:
        key = item._replace(amount=Decimal(0), node="")
        amounts[key] = amounts.get(key, Decimal(0)) + item.amount
    for key, amount in amounts.items():
        assert f"{amount} {key.description} {key.name}" in findings[f"unknown {key.name}"]


def test_the_same_thing_on_many_nodes_is_one_note() -> None:
    items = [Unexplained("advertised units of", "example_org_gpu", Decimal(2), f"n{i}", "Change it") for i in range(9)]
    assert unexplained_notes(items) == [
        "unknown: 18 advertised units of example_org_gpu on n0, n1, n2 and 6 more; GPUs that nothing else explains are "
        "unobserved. Change it"
    ]
