"""Every pod, node, claim and note of the recorded hour is right within a scrape for each edge."""

from collections.abc import Iterator

import pytest

from gpucost.core.amounts import SCALE
from gpucost.core.hours import HOUR_MS
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.pipeline.attribute import AttributedHour
from gpucost.settings_document import parse_settings
from gpucost_cli.doctor import ClusterReport, examine_cluster
from gpucost_devstack.prometheus import running_prometheus
from tests.recorded_hour.recording import (
    CLUSTER,
    HOUR_END,
    SCRAPE,
    attribute,
    gpu_hours,
    nodes_of,
    settings,
    true_nodes,
    true_pods,
    unpack,
    wrong_pods,
)
from tests.system.metered_hours import assert_identity


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_prometheus(storage=unpack(tmp_path_factory.mktemp("recorded"))) as address:
        yield address


@pytest.fixture(scope="module")
def hour(url: str) -> AttributedHour:
    return attribute(url)


@pytest.fixture(scope="module")
def report(url: str) -> ClusterReport:
    document = parse_settings(settings(url))
    return examine_cluster(document.clusters[0], document, HOUR_END)


def test_every_pod_holds_what_it_held(hour: AttributedHour) -> None:
    assert wrong_pods(hour) == {}


def test_pods_that_held_their_gpus_alone_have_their_utilization(hour: AttributedHour) -> None:
    pods = true_pods()
    compared = 0
    for line in hour.record.lines:
        truth = pods[line.uid]
        if line.utilization_source != "pod" or line.effective_gpu_hours is None:
            continue
        compared += 1
        used = truth.use * truth.gpus * truth.running_hours
        assert line.effective_gpu_hours / SCALE == pytest.approx(used, abs=truth.gpus * SCRAPE * (2 + truth.edges))
    assert compared > 60


def test_every_node_has_its_gpus_for_its_time(hour: AttributedHour) -> None:
    nodes = nodes_of(hour)
    held = gpu_hours(hour, by="node")
    expected = {
        name: (GPUS_OF_INSTANCE.get(instance_type) or NEURON_OF_INSTANCE[instance_type][0], end - start)
        for name, (instance_type, start, end) in true_nodes().items()
        if instance_type in GPUS_OF_INSTANCE or instance_type in NEURON_OF_INSTANCE
    }
    assert nodes.keys() == expected.keys()
    for name, (gpus, hours) in expected.items():
        usage = nodes[name]
        assert usage.total_gpu_ms / HOUR_MS == pytest.approx(float(gpus * hours), abs=float(gpus) * SCRAPE * 2), name
        assert usage.stranded_gpu_ms == usage.unobserved_gpu_ms == usage.excess_gpu_ms == 0, name
        assert float(usage.unallocated_gpu_ms / HOUR_MS) + held[name] == pytest.approx(
            float(usage.total_gpu_ms / HOUR_MS)
        ), name


def test_admin_claim_holds_no_gpu_and_leaves_the_use_of_watched_pods(hour: AttributedHour) -> None:
    lines = {line.pod: line for line in hour.record.lines}
    assert not any(pod.startswith("dra-monitor") for pod in lines)
    watched = [line for pod, line in lines.items() if pod.startswith("dra-watched")]
    assert len(watched) == 3
    for line in watched:
        assert line.allocated_gpu_hours == SCALE
        assert float(line.utilization or 0) == pytest.approx(0.64, abs=0.01)
        assert line.waste_usd is not None and line.waste_usd / SCALE == pytest.approx(3.6, abs=0.1)


def test_hour_is_complete_and_its_notes_name_no_fault(hour: AttributedHour) -> None:
    assert_identity(hour.record)
    assert hour.record.status == "complete"
    expected = ("that no pod had requested", "because no series of neuron-monitor names a pod there")
    assert not [note for note in hour.record.notes if not any(text in note for text in expected)], hour.record.notes


def test_doctor_finds_nothing_unknown_and_no_node_without_capacity(report: ClusterReport) -> None:
    assert report.attribution == "possible"
    findings = {check.name: check.finding for check in report.checks if check.change}
    assert not [name for name in findings if name.startswith("unknown")]
    assert "nodes of pods" not in findings
    assert report.cluster == CLUSTER
