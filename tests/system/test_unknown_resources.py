"""GPUs under names that no catalog has: named with their amounts, and never stranded, wasted or free of charge."""

import pytest

from gpucost.core.amounts import CapacityCosts
from gpucost.core.hour_record import HourRecord
from tests.records import amount
from tests.system.doctor_cluster import LABELS, Recent, bare, healthy, pod
from tests.system.doctor_findings import Examine, faults, named
from tests.system.metered_hours import Attribute, assert_identity, line
from tests.system.timeline import Timeline

NAMES = {
    "passthrough": "nvidia_com_GA102GL_A10",
    "Volcano": "volcano_sh_vgpu_number",
    "vGPU": "nvidia_com_NVIDIA_A10_12Q",
    "virtual GPUs of AWS": "k8s_amazonaws_com_vgpu",
    "named by the site": "nvidia_com_a10g_large",
    "another vendor": "example_org_accelerator",
}
by_name = pytest.mark.parametrize("resource", NAMES.values(), ids=NAMES.keys())


def cluster_with(resource: str) -> Timeline:
    """A node of four A10G that advertises them under another name, of which pods hold three."""
    timeline = Timeline()
    timeline.up()
    timeline.node(capacity={resource: 4}, labels={"node_kubernetes_io_instance_type": "g5.12xlarge"})
    timeline.add(
        "kube_node_status_capacity",
        value=48,
        node="n1",
        resource="cpu",
        job="kube-state-metrics",
        instance="10.0.0.1:8080",
    )
    timeline.pod("p", resource=resource, units=2)
    timeline.pod("q", resource=resource)
    return timeline


def capacity(record: HourRecord) -> CapacityCosts:
    assert record.totals is not None
    assert record.totals.capacity is not None
    return record.totals.capacity


@by_name
def test_gpus_under_another_name_are_unobserved_with_a_note(attribute: Attribute, resource: str) -> None:
    (record,) = attribute(cluster_with(resource))
    assert capacity(record).node_cost_usd == amount(40)
    assert capacity(record).unobserved_usd == amount(40)
    notes = [note for note in record.notes if note.startswith("unknown: ")]
    assert any(f"4 advertised units of {resource} on n1" in note for note in notes)
    assert any(f"3 requested units of {resource} on n1" in note for note in notes)
    assert all(f"units: {{{resource}: N}}" in note for note in notes)


@by_name
def test_settings_give_units_under_another_name_their_gpus(attribute: Attribute, resource: str) -> None:
    (record,) = attribute(cluster_with(resource), cluster=f"units: {{{resource}: 1}}")
    assert line(record, "p").allocated_gpu_hours == amount(2)
    assert capacity(record).unallocated_gpu_hours == amount(1)
    assert not any(note.startswith("unknown") for note in record.notes)


def test_unit_of_the_settings_may_be_a_part_of_a_gpu(attribute: Attribute) -> None:
    timeline = cluster_with("volcano_sh_vgpu_number")
    (record,) = attribute(timeline, cluster="units: {volcano.sh/vgpu-number: 0.5}")
    assert line(record, "p").allocated_gpu_hours == amount(1)
    assert capacity(record).unallocated_gpu_hours == amount("0.5")
    assert capacity(record).stranded_gpu_hours == amount(2)  # half of what the node has is not advertised


def test_resource_that_the_settings_call_no_gpu_is_not_noted(attribute: Attribute) -> None:
    timeline = cluster_with("nvidia_com_gpu")
    timeline.node(capacity={"example_org_fpga": 3}, labels={"node_kubernetes_io_instance_type": "g5.12xlarge"})
    (record,) = attribute(timeline, cluster="units: {example.org/fpga: 0}")
    assert not any(note.startswith("unknown") for note in record.notes)
    assert capacity(record).unallocated_gpu_hours == amount(1)


def test_unknown_resource_on_node_that_advertises_all_gpus_is_noted_and_changes_no_figure(attribute: Attribute) -> None:
    timeline = cluster_with("nvidia_com_gpu")
    (without,) = attribute(timeline)
    timeline.node(capacity={"example_org_fpga": 3}, labels={"node_kubernetes_io_instance_type": "g5.12xlarge"})
    (record,) = attribute(timeline)
    assert record.totals == without.totals
    assert any("3 advertised units of example_org_fpga on n1" in note for note in record.notes)


def test_usual_resources_that_are_no_gpus_are_not_noted(attribute: Attribute) -> None:
    timeline = cluster_with("nvidia_com_gpu")
    for resource in (
        "vpc_amazonaws_com_efa",
        "hugepages_2Mi",
        "ephemeral_storage",
        "pods",
        "smarter_devices_fuse",
        "attachable_volumes_aws_ebs",
        "aws_ec2_nitro_nitro_enclaves",
        "nvidia_com_gpumem",
    ):
        timeline.node(capacity={resource: 9}, labels={"node_kubernetes_io_instance_type": "g5.12xlarge"})
    (record,) = attribute(timeline)
    assert not any(note.startswith("unknown") for note in record.notes)


def recent_with(resource: str) -> Recent:
    cluster = bare()
    cluster.exporter_up("n1")
    cluster.node(capacity={resource: 4}, labels=LABELS)
    for gpu in range(4):
        cluster.device(0.5, gpu=gpu)
    for name in ("p", "q"):
        pod(cluster, name, resource=resource)
    return cluster


@by_name
def test_doctor_names_gpus_under_another_name_and_the_setting(examined: Examine, resource: str) -> None:
    report = examined(recent_with(resource))
    check = named(report, f"unknown {resource}")
    assert f"4 advertised units of {resource} on n1" in (check.finding or "")
    assert f"2 requested units of {resource} on n1" in (check.finding or "")
    assert check.change == (
        f"Settings, cluster demo: units: {{{resource}: N}}, where a unit is N GPUs: 1, a part such as 0.25, "
        "or 0 if it is no GPU"
    )
    assert named(report, "GPU requests").finding is None
    assert faults(report).keys() - {"kube_replicaset_owner"} == {f"unknown {resource}"}
    assert report.summary is not None
    assert report.summary.holding == "no pod requests GPUs now; there may be more that is not understood, see below"


def test_doctor_finds_no_unknown_resource_in_a_healthy_cluster(examined: Examine) -> None:
    assert not any(name.startswith("unknown") for name in faults(examined(healthy())))


def test_nodes_of_two_clusters_with_one_name_are_counted_in_the_note_and_parts_add_up(attribute: Attribute) -> None:
    """Both clusters have a node n1 of 4 GPUs; the second also has n2."""
    timeline = Timeline()
    for name, nodes in (("east", ("n1",)), ("west", ("n1", "n2"))):
        ksm = {"job": "kube-state-metrics", "instance": f"10.0.0.{len(nodes)}:8080", "k8s_cluster_name": name}
        timeline.add("up", **ksm)
        for node in nodes:
            of_node = {"node": node, **ksm}
            timeline.add("kube_node_info", provider_id=f"aws:///us-west-2a/i-{name}-{node}", **of_node)
            for metric in ("capacity", "allocatable"):
                resource = {"resource": "nvidia_com_gpu", "unit": "integer"}
                timeline.add(f"kube_node_status_{metric}", value=4, **resource, **of_node)
            timeline.pod(f"p-{name}-{node}", node=node, **ksm)
    (record,) = attribute(timeline)
    assert_identity(record)
    (note,) = [note for note in record.notes if "several clusters" in note]
    assert "(k8s_cluster_name: east, west) are counted as one cluster, and 1 nodes have the name of another" in note
    assert "are missing, with about 4 GPU-hours: set selector" in note
    assert capacity(record).capacity_gpu_hours == amount(3 * 4 - 4)
