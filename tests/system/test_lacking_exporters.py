"""Exporters that lack something: labels of pods, idle GPUs, devices of claims, or the samples of most of their pods."""

import pytest

from gpucost.core.amounts import CapacityCosts
from gpucost.core.hour_record import HourRecord
from tests.records import amount
from tests.system.doctor_cluster import KSM, LABELS, Recent, bare, healthy, pod
from tests.system.doctor_findings import GR, Examine, faults, named, only
from tests.system.metered_hours import Attribute, line
from tests.system.timeline import Timeline

INF2 = {"node_kubernetes_io_instance_type": "inf2.24xlarge"}
"""Six devices, twelve cores."""
TRN1 = {"node_kubernetes_io_instance_type": "trn1.32xlarge", "karpenter_sh_nodepool": "train"}
"""Sixteen devices."""
A10G = {"node_kubernetes_io_instance_type": "g5.12xlarge", "karpenter_sh_nodepool": "claims"}
"""Four GPUs."""
NEURON_MONITOR = {"job": "neuron-monitor", "instance": "n1:8000", "instance_id": "i-n1"}


def cluster() -> Timeline:
    timeline = Timeline()
    timeline.up()
    return timeline


def capacity(record: HourRecord) -> CapacityCosts:
    assert record.totals is not None
    assert record.totals.capacity is not None
    return record.totals.capacity


def notes_about(record: HourRecord, text: str) -> list[str]:
    return [note for note in record.notes if text in note]


def neuron_cores(timeline: Timeline, pods: dict[int, str], count: int = 12) -> None:
    """Cores of node n1 with a use of a half, some of them with a pod's labels."""
    for core in range(count):
        labels = {"namespace": "team", "pod": pods[core]} if core in pods else {}
        timeline.add("neuroncore_utilization_ratio", value=0.5, neuroncore=str(core), **labels, **NEURON_MONITOR)


def neuron_node(timeline: Timeline, labels: dict[str, str] = INF2) -> None:
    timeline.node(capacity={"aws_amazon_com_neuron": 6, "aws_amazon_com_neuroncore": 12}, labels=labels)


def test_neuron_pods_without_labels_are_unmeasured_with_the_integration_to_turn_on(attribute: Attribute) -> None:
    timeline = cluster()
    neuron_node(timeline)
    neuron_cores(timeline, {})
    for name in ("p", "q"):
        timeline.pod(name, resource="aws_amazon_com_neuroncore", units=2)
    (record,) = attribute(timeline)
    assert [line(record, name).utilization_source for name in ("p", "q")] == ["none", "none"]
    (note,) = notes_about(record, "neuron-monitor names a pod")
    assert "the use of 2 pods on 1 nodes (the first is 'n1') is unmeasured" in note
    assert "neuron-monitor-k8s-info.py" in note


def test_labels_of_neuron_pods_measure_them(attribute: Attribute) -> None:
    timeline = cluster()
    neuron_node(timeline)
    neuron_cores(timeline, {0: "p", 1: "p", 2: "q", 3: "q"})
    for name in ("p", "q"):
        timeline.pod(name, resource="aws_amazon_com_neuroncore", units=2)
    (record,) = attribute(timeline)
    assert [line(record, name).utilization_source for name in ("p", "q")] == ["pod", "pod"]
    assert not notes_about(record, "names a pod")


def test_pod_with_all_devices_of_its_node_needs_no_labels(attribute: Attribute) -> None:
    timeline = cluster()
    neuron_node(timeline)
    neuron_cores(timeline, {})
    timeline.pod("p", resource="aws_amazon_com_neuron", units=6)
    (record,) = attribute(timeline)
    assert line(record, "p").utilization_source == "pod"
    assert not notes_about(record, "names a pod")


def claimed(timeline: Timeline, name: str, driver: str, devices: int, *, of_node: int) -> None:
    """ResourceSlices of node n1, and a pod with a claim of some of its devices."""
    for number in range(of_node):
        timeline.add(
            "kube_resourceslice_device_info",
            driver=driver,
            pool_name="n1",
            device_name=f"device-{number}",
            node_name="n1",
            **KSM,
        )
    of_claim = {"namespace": "team", "resourceclaim": f"{name}-x", **KSM}
    for number in range(devices):
        timeline.add(
            "kube_resourceclaim_allocation_device_info",
            driver=driver,
            pool="n1",
            device=f"device-{number}",
            request="devices",
            **of_claim,
        )
    timeline.add(
        "kube_resourceclaim_status_reserved_for",
        consumer_apigroup="",
        consumer_resource="pods",
        consumer_name=name,
        consumer_uid=f"uid-{name}",
        **of_claim,
    )
    of_pod = {"namespace": "team", "pod": name, "uid": f"uid-{name}", **KSM}
    timeline.add("kube_pod_resourceclaim_info", claim_name="devices", resourceclaim_name=f"{name}-x", **of_pod)
    timeline.add("kube_pod_owner", owner_kind="ReplicaSet", owner_name="app-1", **of_pod)


def silent_node(timeline: Timeline, labels: dict[str, str]) -> None:
    """A node that advertises no accelerator."""
    timeline.node(labels=labels)
    timeline.add("kube_node_status_capacity", value=48, node="n1", resource="cpu", **KSM)


def test_full_neuron_node_of_claims_is_allocated_and_not_stranded(attribute: Attribute) -> None:
    timeline = cluster()
    silent_node(timeline, TRN1)
    claimed(timeline, "p", "neuron.aws.com", 16, of_node=16)
    (record,) = attribute(timeline)
    assert line(record, "p").allocated_gpu_hours == amount(16)
    assert line(record, "p").utilization_source == "none"
    assert capacity(record).stranded_gpu_hours == capacity(record).unobserved_gpu_hours == amount(0)
    assert notes_about(record, "neuron-monitor does not support the Neuron DRA driver")


def test_idle_neuron_devices_of_claims_are_unallocated(attribute: Attribute) -> None:
    timeline = cluster()
    silent_node(timeline, TRN1)
    claimed(timeline, "p", "neuron.aws.com", 4, of_node=16)
    (record,) = attribute(timeline)
    assert line(record, "p").allocated_gpu_hours == amount(4)
    assert capacity(record).unallocated_gpu_hours == amount(12)
    assert capacity(record).stranded_gpu_hours == amount(0)


def test_neuron_devices_that_no_claim_has_are_unallocated(attribute: Attribute) -> None:
    timeline = cluster()
    silent_node(timeline, TRN1)
    for number in range(16):
        timeline.add(
            "kube_resourceslice_device_info",
            driver="neuron.aws.com",
            pool_name="n1",
            device_name=f"device-{number}",
            node_name="n1",
            **KSM,
        )
    timeline.node("n2", capacity={"nvidia_com_gpu": 1})
    timeline.pod("q", node="n2")
    (record,) = attribute(timeline)
    assert capacity(record).unallocated_gpu_hours == amount(16)
    assert capacity(record).stranded_gpu_hours == amount(0)


def test_neuron_claims_without_a_collector_are_named_with_what_reports_them(attribute: Attribute) -> None:
    timeline = cluster()
    silent_node(timeline, TRN1)
    of_pod = {"namespace": "team", "pod": "p", "uid": "uid-p", **KSM}
    timeline.add("kube_pod_resourceclaim_info", claim_name="devices", resourceclaim_name="p-x", **of_pod)
    (record,) = attribute(timeline)
    assert capacity(record).unobserved_gpu_hours == amount(16)
    (note,) = notes_about(record, "pods with ResourceClaims of which no metric says what they allocate")
    assert "KUBERNETES_ENABLE_DRA" not in note, "dcgm-exporter reports no Neuron devices"


def test_driver_that_no_catalog_has_is_named_with_the_amount_of_its_devices(attribute: Attribute) -> None:
    timeline = cluster()
    silent_node(timeline, A10G)
    claimed(timeline, "p", "gpu.example.com", 1, of_node=4)
    (record,) = attribute(timeline)
    (note,) = notes_about(record, "gpu.example.com")
    assert note.startswith("unknown: 4 devices in ResourceSlices of the DRA driver gpu.example.com on n1")
    assert capacity(record).unobserved_gpu_hours == amount(4)


@pytest.mark.parametrize("driver", ["compute-domain.nvidia.com", "dra.cpu", "efa.networking.k8s.aws", "dra.net"])
def test_drivers_of_other_devices_are_not_named(attribute: Attribute, driver: str) -> None:
    timeline = cluster()
    timeline.node(labels=A10G, capacity={"nvidia_com_gpu": 4})
    claimed(timeline, "p", driver, 1, of_node=4)
    (record,) = attribute(timeline)
    assert not notes_about(record, driver)
    assert capacity(record).unallocated_gpu_hours == amount(4)


def hiding(timeline: Timeline, name: str = "n1", gpus: int = 1) -> None:
    """A node whose exporter reports only the GPUs that pods have through claims."""
    timeline.node(name, labels=A10G)
    timeline.add("kube_node_status_capacity", value=48, node=name, resource="cpu", **KSM)
    for gpu in range(gpus):
        held = {"exported_namespace": "team", "exported_pod": f"{name}-p{gpu}", "dra_claim_name": f"{name}-p{gpu}-x"}
        timeline.device(0.5, gpu=gpu, node=name, dra_driver_name="gpu.nvidia.com", dra_device_name=f"gpu-{gpu}", **held)
        of_pod = {"namespace": "team", "pod": f"{name}-p{gpu}", "uid": f"uid-{name}-p{gpu}", **KSM}
        timeline.add("kube_pod_resourceclaim_info", claim_name="gpu", resourceclaim_name=f"{name}-p{gpu}-x", **of_pod)


def test_idle_gpus_that_the_exporter_hides_are_unallocated(attribute: Attribute) -> None:
    timeline = cluster()
    hiding(timeline)
    (record,) = attribute(timeline)
    assert line(record, "n1-p0").allocated_gpu_hours == amount(1)
    assert capacity(record).unallocated_gpu_hours == amount(3)
    assert capacity(record).stranded_gpu_hours == capacity(record).unobserved_gpu_hours == amount(0)
    (note,) = notes_about(record, "exporters report 1 of 4 GPUs of 1 nodes")
    assert "4.4.2-4.7.0 or later" in note


def test_exporter_that_reports_idle_gpus_is_not_noted(attribute: Attribute) -> None:
    timeline = cluster()
    hiding(timeline)
    for gpu in range(1, 4):
        timeline.device(0, gpu=gpu)
    (record,) = attribute(timeline)
    assert capacity(record).unallocated_gpu_hours == amount(3)
    assert not notes_about(record, "GPUs of 1 nodes")


def in_turn(timeline: Timeline, nodes: int = 2, address: str = "dcgm-exporter:9400") -> None:
    """One target whose Service sends each scrape to another node's exporter; each node has one held GPU."""
    timeline.up(job="dcgm", instance=address)
    for number in range(nodes):
        name = f"n{number + 1}"
        timeline.node(name, capacity={"nvidia_com_gpu": 1}, labels={"node_kubernetes_io_instance_type": "g5.xlarge"})
        timeline.pod(f"p-{name}", node=name)
        for minute in range(-64 + number, 124, nodes):
            labels = {"exported_namespace": "team", "exported_pod": f"p-{name}"}
            timeline.add(
                GR,
                minute,
                minute + 1,
                0.5,
                UUID=f"GPU-{name}",
                gpu="0",
                Hostname=name,
                job="dcgm",
                instance=address,
                **labels,
            )


def test_service_of_several_exporters_is_named(attribute: Attribute) -> None:
    timeline = cluster()
    in_turn(timeline)
    (record,) = attribute(timeline)
    (note,) = notes_about(record, "devices of 2 nodes in turn")
    assert "dcgm/dcgm-exporter:9400" in note
    assert "PodMonitor" in note


def neuron_nodes(timeline: Timeline) -> None:
    """Two nodes with a pod each, and the address of one Service."""
    for name in ("n1", "n2"):
        timeline.node(
            name,
            capacity={"aws_amazon_com_neuron": 1, "aws_amazon_com_neuroncore": 2},
            labels={**LABELS, "node_kubernetes_io_instance_type": "inf2.xlarge"},
        )
    timeline.up(job="neuron-monitor", instance="neuron-monitor:8000")


def neuron_scrapes(timeline: Timeline, name: str, first: float, last: float) -> None:
    """Scrapes of that Service that the neuron-monitor of one node answers."""
    for core in "01":
        timeline.add(
            "neuroncore_utilization_ratio",
            first,
            last,
            0.5,
            neuroncore=core,
            job="neuron-monitor",
            instance="neuron-monitor:8000",
            instance_id=f"i-{name}",
        )


def test_service_of_several_neuron_monitors_is_named(attribute: Attribute) -> None:
    timeline = cluster()
    neuron_nodes(timeline)
    for number, name in enumerate(("n1", "n2")):
        for minute in range(-64 + number, 124, 2):
            neuron_scrapes(timeline, name, minute, minute + 1)
        timeline.pod(f"p-{name}", node=name, resource="aws_amazon_com_neuroncore", units=2)
    (record,) = attribute(timeline)
    (note,) = notes_about(record, "devices of 2 nodes in turn")
    assert "neuron-monitor/neuron-monitor:8000" in note


def test_exporter_that_reports_two_nodes_at_once_is_not_noted(attribute: Attribute) -> None:
    timeline = cluster()
    for name in ("n1", "n2"):
        timeline.node(name, capacity={"nvidia_com_gpu": 1})
        timeline.add(GR, value=0.5, UUID=f"GPU-{name}", gpu="0", Hostname=name, job="dcgm", instance="central:9400")
        for start, end in ((-65, 30), (32, 125)):  # two scrapes lack one GPU of each node
            timeline.add(
                GR, start, end, 0.5, UUID=f"GPU-odd-{name}", gpu="1", Hostname=name, job="dcgm", instance="central:9400"
            )
    (record,) = attribute(timeline)
    assert not notes_about(record, "in turn")


def test_service_of_shards_of_kube_state_metrics_is_named(attribute: Attribute) -> None:
    timeline = cluster()
    ksm = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}
    for number, name in enumerate(("n1", "n2")):
        of_node = {"node": name, **ksm}
        for minute in range(-64 + number, 124, 2):
            timeline.add("kube_node_info", minute, minute + 1, provider_id=f"aws:///us-west-2a/i-{name}", **of_node)
            timeline.add(
                "kube_node_status_capacity", minute, minute + 1, 1, resource="nvidia_com_gpu", unit="integer", **of_node
            )
    (record,) = attribute(timeline)
    assert notes_about(record, "reports other nodes in each scrape")


# gpucost doctor


def recent_in_turn() -> Recent:
    """Two nodes that one target reports in turn, at the doctor's times. Samples have no markers of stale series."""
    metrics = bare()
    now = (metrics.now - metrics.base).total_seconds() / 60
    for number, name in enumerate(("n1", "n2")):
        metrics.node(
            name,
            capacity={"nvidia_com_gpu": 1},
            labels={**LABELS, "nvidia_com_gpu_count": "1"} | {"node_kubernetes_io_instance_type": "g5.xlarge"},
        )
        pod(metrics, f"p-{name}", node=name)
        for turn in range(10 + number, -1, -2):
            at = now - 10 * turn
            labels = {"exported_namespace": "team", "exported_pod": f"p-{name}"}
            metrics.add(
                GR,
                at - 3,
                at,
                0.5,
                UUID=f"GPU-{name}",
                gpu="0",
                Hostname=name,
                job="dcgm-exporter",
                instance="svc:9400",
                **labels,
            )
    metrics.up(job="dcgm-exporter", instance="svc:9400")
    metrics.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
    return metrics


def test_doctor_names_the_service_and_not_missing_exporters(examined: Examine) -> None:
    report = examined(recent_in_turn())
    found = faults(report)
    assert "exporter on every node" not in found
    assert "reports the devices of 2 nodes in turn (n1, n2)" in (found["pods of a Service"].finding or "")
    assert "PodMonitor" in (found["pods of a Service"].change or "")


def test_doctor_names_the_service_of_neuron_monitors(examined: Examine) -> None:
    metrics = bare()
    neuron_nodes(metrics)
    now = (metrics.now - metrics.base).total_seconds() / 60
    for number, name in enumerate(("n1", "n2")):
        for turn in range(10 + number, -1, -2):
            neuron_scrapes(metrics, name, now - 10 * turn - 3, now - 10 * turn)
        pod(metrics, f"p-{name}", node=name, resource="aws_amazon_com_neuroncore", units=2)
    check = faults(examined(metrics))["pods of a Service"]
    assert "neuron-monitor on neuron-monitor:8000" in (check.finding or "")
    assert "devices of 2 nodes in turn (n1, n2)" in (check.finding or "")


def test_doctor_names_the_service_of_shards_of_kube_state_metrics(examined: Examine) -> None:
    metrics = healthy(nodes=2)
    now = (metrics.now - metrics.base).total_seconds() / 60
    metrics.without("kube_node_info")
    for number, name in enumerate(("n1", "n2")):
        for turn in range(14 + number, -1, -2):
            metrics.add(
                "kube_node_info",
                now - 10 * turn - 3,
                now - 10 * turn,
                node=name,
                provider_id=f"aws:///us-west-2a/i-{name}",
                **KSM,
            )
    check = faults(examined(metrics))["pods of a Service"]
    assert (check.severity, check.status) == ("required", "faulty")
    assert "reports the objects of 2 nodes in turn (n1, n2)" in (check.finding or "")


def test_doctor_names_neuron_monitors_integration_with_kubernetes(examined: Examine) -> None:
    def neuron(pods: dict[int, str], *, units: int) -> Recent:
        metrics = bare()
        neuron_node(metrics, {**LABELS, **INF2})
        neuron_cores(metrics, pods)
        for name in ("p", "q")[: 12 // units]:
            pod(metrics, name, resource="aws_amazon_com_neuroncore", units=units)
        metrics.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
        return metrics

    check = faults(examined(neuron({}, units=2)))["pods of Neuron"]
    assert "2 pods hold Neuron devices, and no device series is labeled" in (check.finding or "")
    assert "neuron-monitor-k8s-info.py" in (check.change or "")
    assert "pods of Neuron" not in faults(examined(neuron({0: "p"}, units=2)))
    assert "pods of Neuron" not in faults(examined(neuron({}, units=12)))


def test_doctor_names_neuron_claims_that_no_collector_reports(examined: Examine) -> None:
    metrics = bare()
    silent_node(metrics, {**LABELS, **TRN1})
    of_pod = {"namespace": "team", "pod": "p", "uid": "uid-p", **KSM}
    metrics.add("kube_pod_resourceclaim_info", claim_name="devices", resourceclaim_name="p-x", **of_pod)
    check = faults(examined(metrics))["claims of Neuron"]
    assert check.finding == (
        "1 pods have resource claims of which no metric says what they allocate, and the Neuron nodes of node pool "
        "train (n1) advertise no devices"
    )
    assert (check.change or "").startswith("Scrape kube-dra-exporter, which reports claims of neuron.aws.com")
    reported = bare()
    silent_node(reported, {**LABELS, **TRN1})
    claimed(reported, "p", "neuron.aws.com", 16, of_node=16)
    check = named(examined(reported), "claims of Neuron")
    assert (check.status, check.finding) == (
        "found",
        "neuron-monitor does not support the Neuron DRA driver, so their use is unmeasured",
    )


def test_doctor_says_which_exporters_hide_idle_gpus(examined: Examine) -> None:
    metrics = healthy()
    hiding(metrics, "dra")
    metrics.exporter_up("dra")
    check = faults(examined(metrics))["all GPUs of a node"]
    assert "dra: 1 of 4" in (check.finding or "")
    assert "version 4.4.2-4.7.0 or later" in (check.change or "")


def test_doctor_names_unknown_drivers(examined: Examine) -> None:
    metrics = healthy()
    metrics.add(
        "kube_pod_resourceclaim_info",
        claim_name="devices",
        resourceclaim_name="x",
        namespace="team",
        pod="n1-a0",
        uid="uid-n1-a0",
        **KSM,
    )
    for number in range(2):
        metrics.add(
            "kube_resourceslice_device_info",
            driver="gpu.example.com",
            pool_name="n1",
            node_name="n1",
            device_name=f"device-{number}",
            **KSM,
        )
    check = named(examined(metrics), "unknown gpu.example.com")
    assert "2 devices in ResourceSlices of the DRA driver gpu.example.com on n1" in (check.finding or "")


def stuck(*, other: float = 0, power: tuple[float, float] = (80, 80)) -> Recent:
    """A node whose held GPUs have a signal of 0, with another signal, and the watts before and in the last hour."""
    metrics = healthy()
    metrics.edited(GR, lambda text: text.replace("} 0.25 ", "} 0 ").replace("} 0.5 ", "} 0 "))
    for gpu in range(2):
        labels = {"exported_namespace": "team", "exported_pod": f"n1-a{gpu}"}
        metrics.device(other, signal="DCGM_FI_DEV_GPU_UTIL", gpu=gpu, **labels)
        now = (metrics.now - metrics.base).total_seconds() / 60
        metrics.device(power[0], now - 360, now - 60, signal="DCGM_FI_DEV_POWER_USAGE", gpu=gpu, **labels)
        metrics.device(power[1], now - 60, now + 5, signal="DCGM_FI_DEV_POWER_USAGE", gpu=gpu, **labels)
    return metrics


@pytest.mark.parametrize(
    ("use", "power", "says"),
    [
        (60, (80, 80), "0, although DCGM_FI_DEV_GPU_UTIL says that they are in use"),
        (0, (80, 400), "0, although DCGM_FI_DEV_POWER_USAGE is at least twice that of their lowest hour"),
    ],
)
def test_doctor_names_signals_that_another_metric_contradicts(
    examined: Examine, use: float, power: tuple[float, float], says: str
) -> None:
    metrics = stuck(other=use, power=power)
    only(examined(metrics), "signal of 0", says=says, change="on_contradiction: device")


def test_doctor_finds_nothing_about_idle_gpus(examined: Examine) -> None:
    assert "signal of 0" not in faults(examined(stuck()))


@pytest.mark.parametrize(("watts", "is_fault"), [((90, 300), True), ((90, 90), False)])
def test_doctor_names_devices_of_other_vendors_whose_power_contradicts_their_signal(
    examined: Examine, watts: tuple[float, float], is_fault: bool
) -> None:
    metrics = bare()
    metrics.node(capacity={"amd_com_gpu": 1}, labels={**LABELS, "node_kubernetes_io_instance_type": "custom.amd"})
    pod(metrics, "p", resource="amd_com_gpu")
    metrics.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
    device = {"serial_number": "1", "node": "n1", "job": "amd", "instance": "n1:5000", "exported_namespace": "team"}
    now = (metrics.now - metrics.base).total_seconds() / 60
    metrics.add("gpu_gfx_activity", value=0, exported_pod="p", **device)
    metrics.add("gpu_package_power", now - 360, now - 60, watts[0], exported_pod="p", **device)
    metrics.add("gpu_package_power", now - 60, now + 5, watts[1], exported_pod="p", **device)
    report = examined(metrics)
    assert ("signal of 0" in faults(report)) is is_fault
    if is_fault:
        check = faults(report)["signal of 0"]
        assert "gpu_gfx_activity of 1 GPUs of n1 is 0, although gpu_package_power is at least" in (check.finding or "")
        assert "amd-device-metrics-exporter" in (check.change or "")


def test_doctor_does_not_doubt_a_0_next_to_a_gpu_in_use(examined: Examine) -> None:
    """As attribution: a busy GPU of the node shows that its counters work."""
    metrics = stuck(other=60)
    metrics.edited(GR, lambda text: text.replace("} 0 ", "} 0.5 ") if 'exported_pod="n1-a0"' in text else text)
    assert "signal of 0" not in faults(examined(metrics))
