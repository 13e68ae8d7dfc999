"""The recorded hour as a stock kube-prometheus-stack has it: no labels of nodes are exported.

The recorded nodes all say 96 CPUs, so these are set to those of the true instance types (EC2's data sheets).
"""

from collections.abc import Iterator
from fractions import Fraction

import pytest

from gpucost.pipeline.attribute import AttributedHour
from tests.recorded_hour.recording import (
    attribute,
    nodes_of,
    read_series,
    running_variants,
    true_pods,
    unpack,
    wrong_pods,
)
from tests.recorded_hour.transforms import DCGM, GPU_NODES, KSM, NEURON, READ, SPOT, STOCK
from tests.system.metered_hours import assert_identity


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, AttributedHour]]:
    recorded = read_series(unpack(tmp_path_factory.mktemp("stock")), (KSM, DCGM, NEURON))
    with running_variants((each for each in recorded if each.name.startswith(READ)), STOCK) as url:
        yield {variant: attribute(url, variant) for variant in STOCK}


@pytest.mark.parametrize("variant", ["stock", "without-memory"])
def test_every_instance_type_is_inferred_and_none_is_wrong(hours: dict[str, AttributedHour], variant: str) -> None:
    types = {name: usage.node.instance_type for name, usage in nodes_of(hours[variant]).items()}
    assert types == GPU_NODES
    assert len(types) == 12
    sources = {usage.node.name: usage.node.instance_type_source for usage in nodes_of(hours[variant]).values()}
    assert sources == {name: "neuron-monitor" if name == "al-trn-1" else "hardware" for name in GPU_NODES}


@pytest.mark.parametrize("variant", STOCK)
def test_every_pod_holds_what_it_held(hours: dict[str, AttributedHour], variant: str) -> None:
    hour, pods = hours[variant], true_pods()
    assert_identity(hour.record)
    assert {pods[uid].pod if uid in pods else uid for uid in wrong_pods(hour)} == set()


def test_shared_gpus_and_mig_slices_are_what_they_are(hours: dict[str, AttributedHour]) -> None:
    lines = hours["stock"].record.lines
    assert {line.gpu_share for line in lines if line.node == "al-ts-1"} == {Fraction(1, 4)}
    slices = {line.resource: round(float(line.gpu_share), 6) for line in lines if "mig" in line.resource}
    assert slices == {"nvidia.com/mig-1g.5gb": round(1 / 7, 6), "nvidia.com/mig-3g.20gb": 0.5}


def test_lines_and_notes_say_that_a_type_is_inferred(hours: dict[str, AttributedHour]) -> None:
    record = hours["stock"].record
    assert {line.instance_type_source for line in record.lines} == {"hardware", "neuron-monitor"}
    assert {node.instance_type_source for node in record.nodes} == {"hardware", "neuron-monitor"}
    assert {node.zone for node in record.nodes} == {"us-west-2a"}
    notes = [note for note in record.notes if "instance type" in note]
    spot_unknown = "no metric has its capacity type, so spot is priced as on-demand"
    a100, a10g, h100 = "8 × NVIDIA A100-SXM4-40GB", "NVIDIA A10G", "8 × NVIDIA H100 80GB HBM3"
    assert notes == [
        f"instance type g5.12xlarge of al-g5-1, al-g5-2, al-g5-3 and 1 more is inferred from 4 × {a10g}, 48 CPUs and "
        f"184 GiB; {spot_unknown}",
        f"instance type p4d.24xlarge of al-dra-2, al-p4-1 is inferred from {a100}, 96 CPUs and 1106 GiB; "
        f"{spot_unknown}",
        f"instance type p5.48xlarge of al-dra-1, al-kq-1, al-kq-2 and 2 more is inferred from {h100}, 192 CPUs and "
        f"1966 GiB; {spot_unknown}",
        f"instance type trn2.48xlarge of al-trn-1 is from the metrics of neuron-monitor; {spot_unknown}",
    ]


def test_karpenter_says_types_and_capacity_types(hours: dict[str, AttributedHour]) -> None:
    nodes = {name: usage.node for name, usage in nodes_of(hours["with-karpenter"]).items()}
    assert {name: node.instance_type for name, node in nodes.items()} == GPU_NODES
    assert {name for name, node in nodes.items() if node.capacity_type == "spot"} == SPOT
    assert {node.instance_type_source for node in nodes.values()} == {"karpenter"}
    assert {node.node_pool for node in nodes.values()} == {"pool"}
    assert not [note for note in hours["with-karpenter"].record.notes if "inferred" in note or "capacity type" in note]


def test_ambiguous_types_are_unknown_and_their_candidates_are_named(hours: dict[str, AttributedHour]) -> None:
    types = {name: usage.node.instance_type for name, usage in nodes_of(hours["ambiguous"]).items()}
    assert types == {
        name: "" if name == "al-trn-1" or instance_type == "p5.48xlarge" else instance_type
        for name, instance_type in GPU_NODES.items()
    }
    notes = "\n".join(hours["ambiguous"].record.notes)
    assert "is unknown: p5e.48xlarge and p5en.48xlarge have 8 × NVIDIA H200, 192 CPUs and 1966 GiB. Export" in notes
    assert "is unknown: trn2.48xlarge and trn2u.48xlarge have 16 × AWS, 192 CPUs and 1966 GiB. Export" in notes


def test_no_type_is_inferred_without_cpus(hours: dict[str, AttributedHour]) -> None:
    nodes = {name: usage.node for name, usage in nodes_of(hours["without-cpus"]).items()}
    assert {node.instance_type for name, node in nodes.items() if name != "al-trn-1"} == {""}
    assert any(
        "is unknown: kube_node_status_capacity has no CPUs" in note for note in hours["without-cpus"].record.notes
    )
