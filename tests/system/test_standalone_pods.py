"""Pods that hold a whole node are measured even without exporter labels. Also fractions of a GPU."""

from decimal import Decimal

import pytest

from gpucost.core.amounts import SCALE
from tests.records import amount
from tests.system.metered_hours import Attribute, hours, line
from tests.system.timeline import Timeline


def node(units: int = 2, gpus: int = 2, **labels: str) -> Timeline:
    """A node whose exporter does not map pods."""
    timeline = Timeline(step=30)
    timeline.up()
    timeline.up(job="dcgm-exporter", instance="n1:9400")
    timeline.node(capacity={"nvidia_com_gpu": units}, labels={"nvidia_com_gpu_count": str(gpus), **labels})
    return timeline


def test_pod_that_holds_all_gpus_all_hour_is_measured_without_labels(attribute: Attribute) -> None:
    timeline = node()
    timeline.pod("p", units=2)
    timeline.device(0.2, gpu=0)
    timeline.device(0.6, gpu=1)
    (record,) = attribute(timeline)
    pod_line = line(record, "p")
    assert (pod_line.utilization_source, pod_line.utilization) == ("pod", Decimal("0.4"))
    assert pod_line.effective_usd == amount(8)
    assert pod_line.unmeasured_usd == 0


def test_pod_that_came_within_the_hour_is_measured_by_the_samples_of_its_time(attribute: Attribute) -> None:
    timeline = node()
    timeline.pod("p", 20, units=2)
    for gpu in (0, 1):
        timeline.device(0, -65, 20, gpu=gpu)
        timeline.device(0.6, 20, gpu=gpu)
    (record,) = attribute(timeline)
    pod_line = line(record, "p")
    assert pod_line.utilization_source == "pod"
    assert pod_line.utilization == pytest.approx(Decimal("0.6"))
    assert hours(record)["p"] == pytest.approx(2 * 40 / 60, abs=0.02)


def test_successive_pods_are_measured_by_their_respective_samples(attribute: Attribute) -> None:
    timeline = node()
    timeline.pod("first", -65, 20, units=2)
    timeline.pod("second", 30, units=2)
    for gpu in (0, 1):
        timeline.device(0.8, -65, 20, gpu=gpu)
        timeline.device(0, 20, 30, gpu=gpu)
        timeline.device(0.2, 30, gpu=gpu)
    (record,) = attribute(timeline)
    assert {pod_line.utilization_source for pod_line in record.lines} == {"pod"}
    assert float(line(record, "first").utilization or 0) == pytest.approx(0.8, abs=0.03)
    assert float(line(record, "second").utilization or 0) == pytest.approx(0.2, abs=0.03)


def test_successive_pods_within_an_interval_are_unmeasured(attribute: Attribute) -> None:
    timeline = node()
    timeline.pod("first", -65, 30, units=2)
    timeline.pod("second", 30, units=2)
    for gpu in (0, 1):
        timeline.device(0.5, gpu=gpu)
    (record,) = attribute(timeline)
    assert {pod_line.utilization_source for pod_line in record.lines} == {"none"}
    assert {pod_line.effective_usd for pod_line in record.lines} == {None}


@pytest.mark.parametrize("case", ["half", "shared", "sliced", "missing", "disputed"])
def test_pod_on_a_possibly_shared_node_is_unmeasured(attribute: Attribute, case: str) -> None:
    labels = {"nvidia_com_gpu_replicas": "2"} if case == "shared" else {}
    timeline = node(4 if case == "shared" else 14 if case == "sliced" else 2, **labels)
    timeline.pod("p", units={"half": 1, "shared": 4, "sliced": 14}.get(case, 2))
    if case == "disputed":
        forged = {"job": "tenant", "instance": "10.9.9.9:8080"}
        timeline.pod("ghost", units=9, **forged)
    for gpu in range(1 if case == "missing" else 2):
        parts = range(7) if case == "sliced" else [None]
        for part in parts:
            mig_labels = {} if part is None else {"GPU_I_ID": str(part), "GPU_I_PROFILE": "1g.5gb"}
            timeline.device(0.5, gpu=gpu, **mig_labels)
    (record,) = attribute(timeline)
    assert line(record, "p").utilization_source == "none"


@pytest.mark.parametrize(
    ("instance_type", "share"),
    [
        ("g6f.large", "0.125"),
        ("g6f.xlarge", "0.125"),
        ("g6f.2xlarge", "0.25"),
        ("g6f.4xlarge", "0.5"),
        ("gr6f.4xlarge", "0.5"),
    ],
)
def test_fraction_of_a_gpu_counts_as_that(attribute: Attribute, instance_type: str, share: str) -> None:
    timeline = node(1, 1, node_kubernetes_io_instance_type=instance_type)
    timeline.pod("p", 15)
    timeline.device(0.5, gpu=0, exported_pod="p", exported_namespace="team")
    (record,) = attribute(timeline)
    pod_line = line(record, "p")
    assert pod_line.gpu_share == Decimal(share)
    assert pod_line.allocated_gpu_hours / SCALE == pytest.approx(float(share) * 0.75, abs=0.01)
    assert pod_line.utilization_source == "pod"
    assert record.coverage is not None
    assert record.coverage.utilization == 1
    assert record.totals is not None
    capacity = record.totals.capacity
    assert capacity is not None
    assert capacity.capacity_gpu_hours == amount(share)
    assert capacity.node_cost_usd == amount(10 * Decimal(share))
    assert capacity.unallocated_gpu_hours / SCALE == pytest.approx(float(share) * 0.25, abs=0.01)
    assert capacity.stranded_gpu_hours == 0


def test_fraction_counts_without_capacity_metrics(attribute: Attribute) -> None:
    timeline = node(1, 1, node_kubernetes_io_instance_type="g6f.2xlarge")
    for family in ("kube_node_status_capacity", "kube_node_status_allocatable"):
        timeline.families[family] = []
    timeline.pod("p")
    (record,) = attribute(timeline)
    assert line(record, "p").gpu_share == Decimal("0.25")
    assert line(record, "p").allocated_usd == amount("2.5")


def test_unobserved_fraction_weighs_as_a_whole_device(attribute: Attribute) -> None:
    timeline = node(1, 1)
    timeline.device(0.5, gpu=0)
    timeline.node("n2", capacity={"nvidia_com_gpu": 1}, labels={"node_kubernetes_io_instance_type": "g6f.large"})
    (record,) = attribute(timeline)
    assert record.coverage is not None
    assert record.coverage.utilization == Decimal("0.5")


def test_time_slices_of_a_fraction_are_parts_of_the_fraction(attribute: Attribute) -> None:
    labels = {"node_kubernetes_io_instance_type": "g6f.4xlarge", "nvidia_com_gpu_replicas": "4"}
    timeline = node(4, 1, **labels)
    timeline.pod("p", units=1)
    timeline.device(0.5, gpu=0)
    (record,) = attribute(timeline)
    pod_line = line(record, "p")
    assert (pod_line.gpu_share, pod_line.utilization_source) == (Decimal("0.125"), "shared")
