"""ResourceClaims of which no metric says what they allocate."""

from gpucost.core.amounts import CapacityCosts
from gpucost.core.hour_record import HourRecord
from tests.records import amount
from tests.system.doctor_cluster import KSM, LABELS, Recent, bare, healthy, pod
from tests.system.doctor_findings import Examine, faults
from tests.system.metered_hours import Attribute
from tests.system.timeline import Timeline

CLAIMING = "pods with ResourceClaims of which no metric says what they allocate"


def claim(timeline: Timeline, name: str, namespace: str = "team") -> None:
    """A pod with a claim."""
    labels = {"namespace": namespace, "pod": name, "uid": f"uid-{name}", **KSM}
    timeline.add("kube_pod_resourceclaim_info", claim_name="device", resourceclaim_name=f"{name}-x", **labels)
    timeline.add("kube_pod_owner", owner_kind="ReplicaSet", owner_name="app-1", **labels)


def node(timeline: Timeline, name: str = "n1", *, pool: str = "claims", gpus: int = 0, start: float = -65) -> None:
    """A node of four GPUs that advertises some of them."""
    labels = {"node_kubernetes_io_instance_type": "g5.12xlarge", "karpenter_sh_nodepool": pool}
    timeline.node(name, start, capacity={"nvidia_com_gpu": gpus} if gpus else {}, labels=labels)
    timeline.add("kube_node_status_capacity", start, value=48, node=name, resource="cpu", **KSM)


def monitored(timeline: Timeline, start: float = -65) -> None:
    """A claim with admin access sees the idle GPUs of the node."""
    held = {"exported_namespace": "infra", "exported_pod": "monitor", "dra_claim_name": "monitor-x"}
    for gpu in range(4):
        labels = {"dra_driver_name": "gpu.nvidia.com", "dra_device_name": f"gpu-{gpu}", **held}
        timeline.device(0, start, gpu=gpu, **labels)
    label = {"label_resource_kubernetes_io_admin_access": "true"}
    timeline.add("kube_namespace_labels", namespace="infra", **label, **KSM)


def cluster() -> Timeline:
    timeline = Timeline()
    timeline.up()
    return timeline


def capacity(record: HourRecord) -> CapacityCosts:
    assert record.totals is not None
    assert record.totals.capacity is not None
    return record.totals.capacity


def test_gpus_that_unreported_claims_may_hold_are_unobserved(attribute: Attribute) -> None:
    """The exporter reports the GPUs, without the labels of claims."""
    timeline = cluster()
    node(timeline)
    for gpu in range(4):
        timeline.device(0.5, gpu=gpu)
    claim(timeline, "p")
    claim(timeline, "q")
    (record,) = attribute(timeline)
    assert capacity(record).unobserved_gpu_hours == amount(4)
    assert capacity(record).stranded_gpu_hours == amount(0)
    (note,) = [note for note in record.notes if CLAIMING in note]
    assert note.startswith(f"unknown: 2 {CLAIMING}, the first being team/p; GPUs that nothing else explains are unobs")
    assert "KUBERNETES_ENABLE_DRA" in note


def test_claims_where_nodes_advertise_all_gpus_are_not_noted(attribute: Attribute) -> None:
    """A ComputeDomain's daemon, EFA interfaces: what such claims allocate is no GPU of these nodes."""
    timeline = cluster()
    node(timeline, gpus=4)
    claim(timeline, "computedomain-daemon-abc", "nvidia-dra-driver-gpu")
    (record,) = attribute(timeline)
    assert capacity(record).unallocated_gpu_hours == amount(4)
    assert not any(note.startswith("unknown") for note in record.notes)


def test_claims_where_an_exporter_reports_those_of_gpus_are_not_noted(attribute: Attribute) -> None:
    timeline = cluster()
    node(timeline)
    held = {"exported_namespace": "team", "exported_pod": "p", "dra_claim_name": "p-x", "dra_device_name": "gpu-0"}
    timeline.device(0.5, gpu=0, dra_driver_name="gpu.nvidia.com", **held)
    for gpu in range(1, 4):
        timeline.device(0, gpu=gpu)
    claim(timeline, "p")
    claim(timeline, "computedomain-daemon-abc", "nvidia-dra-driver-gpu")
    (record,) = attribute(timeline)
    assert capacity(record).unallocated_gpu_hours == amount(3)
    assert not any(note.startswith("unknown") for note in record.notes)


def test_gpus_of_claims_that_may_have_admin_access_are_held_with_a_note(attribute: Attribute) -> None:
    timeline = cluster()
    node(timeline)
    monitored(timeline)
    claim(timeline, "monitor", "infra")
    (record,) = attribute(timeline)
    assert [line.allocated_gpu_hours for line in record.lines] == [amount(4)]
    (note,) = (note for note in record.notes if note.startswith("unknown"))
    assert "4 devices of node" in note


def test_admin_claim_that_only_the_exporter_reports_holds_nothing(attribute: Attribute) -> None:
    """The node joins at minute 30, so that nothing else makes the reader look for claims."""
    timeline = cluster()
    node(timeline, start=30)
    monitored(timeline, start=30)
    watched = {"exported_namespace": "team", "exported_pod": "p", "dra_claim_name": "p-x"}
    timeline.device(0.5, gpu=0, start=30, dra_driver_name="gpu.nvidia.com", dra_device_name="gpu-0", **watched)
    (record,) = attribute(timeline)
    assert [(line.namespace, line.allocated_gpu_hours) for line in record.lines] == [("team", amount("0.5"))]
    assert capacity(record).unallocated_gpu_hours == amount("1.5")


def test_node_that_is_not_ready_in_pool_of_ready_ones_is_stranded(attribute: Attribute) -> None:
    timeline = cluster()
    node(timeline, "n1", pool="plugin", gpus=4)
    node(timeline, "n2", pool="plugin")
    claim(timeline, "computedomain-daemon-abc", "nvidia-dra-driver-gpu")
    (record,) = attribute(timeline)
    assert capacity(record).stranded_gpu_hours == amount(4)
    assert not any(note.startswith("unknown") for note in record.notes)


def test_doctor_knows_capacity_of_node_whose_gpus_are_all_claimed(examined: Examine) -> None:
    """A pod with an extended resource that a claim provides: the node advertises no GPU, but its CPUs are reported."""
    cluster = healthy()
    labels = {**LABELS, "karpenter_sh_nodepool": "claims", "node_kubernetes_io_instance_type": "g5.xlarge"}
    cluster.node("dra", labels=labels)
    cluster.add("kube_node_status_capacity", value=48, node="dra", resource="cpu", **KSM)
    cluster.exporter_up("dra")
    pod(cluster, "extended", node="dra")
    held = {"exported_namespace": "team", "exported_pod": "extended"}
    cluster.device(0.5, node="dra", dra_claim_name="extended-extended-resources-abcde", **held)
    assert "nodes of pods" not in faults(examined(cluster))


def test_doctor_finds_node_without_any_capacity(examined: Examine) -> None:
    """Nodes of which kube-state-metrics reports no capacity at all, unlike those above."""
    metrics: Recent = bare()
    metrics.exporter_up("n1")
    metrics.node(labels=LABELS)
    metrics.node("n2", labels=LABELS, capacity={"nvidia_com_gpu": 4})
    metrics.exporter_up("n2")
    pod(metrics, "p")
    assert "nodes without kube_node_status_capacity (n1)" in (faults(examined(metrics))["nodes of pods"].finding or "")


def test_doctor_names_the_label_of_admin_access_where_several_claims_have_a_device(examined: Examine) -> None:
    cluster = healthy()
    for namespace, name in (("team", "trainer"), ("infra", "monitor")):
        held = {"namespace": namespace, "pod": name, "dra_claim_name": f"{name}-x", "dra_driver_name": "gpu.nvidia.com"}
        cluster.device(0.5, gpu=3, **held)
    check = faults(examined(cluster))["several claims on a device"]
    assert "1 device of node pool gpu (n1)" in (check.finding or "")
    assert "infra/monitor-x, team/trainer-x" in (check.finding or "")
    assert "namespaces=[resource.kubernetes.io/admin-access]" in (check.change or "")
    label = {"label_resource_kubernetes_io_admin_access": "true"}
    cluster.add("kube_namespace_labels", namespace="infra", **label, **KSM)
    assert "several claims on a device" not in faults(examined(cluster))
