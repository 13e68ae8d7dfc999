"""`gpucost doctor` on signals, devices, MIG slices and shared GPUs, against a real Prometheus."""

import re
from decimal import Decimal
from pathlib import Path

import pytest

from gpucost.core.metering.energy import ENERGY_COUNTER, POWER_GAUGES
from gpucost.sources.prometheus import queries
from gpucost_cli.doctor.checks.allocation_metrics import KUBE_METRICS
from gpucost_cli.doctor.checks.gpu_fractions import SHARER_ANNOTATIONS
from tests.system.doctor_cluster import KSM, LABELS, Recent, bare, healthy, pod, shared, sliced
from tests.system.doctor_findings import GR, Examine, faults, named, only, sources
from tests.system.timeline import Timeline


def test_missing_signal_and_its_fallback_are_findings(examined: Examine) -> None:
    report = examined(healthy().without(GR))
    check = only(
        report, "utilization signal", says="no GPU's utilization is measured", change=f"{GR}, gauge", status="missing"
    )
    assert "-f manifests/helm/dcgm-exporter.yaml" in (check.change or "")
    assert sources(report) == [(None, "none", Decimal(2))]

    device = healthy()
    device.families["DCGM_FI_DEV_GPU_UTIL"] = [
        re.sub(r"\} (\S+) ", lambda value: f"}} {int(float(value[1]) * 100)} ", line).replace(
            GR, "DCGM_FI_DEV_GPU_UTIL"
        )
        for line in device.families.pop(GR)
    ]
    report = examined(device)
    only(
        report,
        "utilization signal",
        says="DCGM_FI_DEV_GPU_UTIL is used instead; it overstates",
        change=f"{GR}, gauge",
        status="missing",
    )
    assert sources(report) == [("DCGM_FI_DEV_GPU_UTIL", "pod", Decimal(2))]


def test_node_with_only_the_fallback_signal_is_a_finding(examined: Examine) -> None:
    cluster = healthy(2)
    cluster.families["DCGM_FI_DEV_GPU_UTIL"] = [
        line.replace(GR, "DCGM_FI_DEV_GPU_UTIL").replace("} 0.", "} ") for line in cluster.families[GR]
    ]
    assert faults(examined(cluster)) == {}
    cluster.edited(GR, lambda line: "" if "n2" in line else line)
    report = examined(cluster)
    only(
        report,
        "signal of every device",
        says="4 devices of n2 have no DCGM_FI_PROF_GR_ENGINE_ACTIVE",
        change=f"{GR}, gauge",
    )
    assert sources(report) == [("DCGM_FI_DEV_GPU_UTIL", "pod", Decimal(2)), (GR, "pod", Decimal(2))]


def test_card_without_the_signal_beside_one_that_has_it_is_a_finding(examined: Examine) -> None:
    cluster = healthy(2)
    cluster.families["DCGM_FI_DEV_GPU_UTIL"] = [
        line.replace(GR, "DCGM_FI_DEV_GPU_UTIL").replace("} 0.", "} ") for line in cluster.families[GR]
    ]
    cluster.edited(GR, lambda line: "" if "n2" in line and 'gpu="0"' in line else line)
    report = examined(cluster)
    only(
        report,
        "signal of every device",
        says="1 devices of n2 have no DCGM_FI_PROF_GR_ENGINE_ACTIVE: DCGM_FI_DEV_GPU_UTIL is used instead; other "
        "devices of the same node have it, so these cards may have no such counter",
        change="nothing for cards without it; else dcgm-exporter: counters",
    )
    assert sources(report) == [("DCGM_FI_DEV_GPU_UTIL", "pod", Decimal(1)), (GR, "pod", Decimal(3))]


@pytest.mark.parametrize("name", ["DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "dcgm_fi_prof_gr_engine_active"])
def test_signal_is_read_under_its_other_names(examined: Examine, name: str) -> None:
    cluster = healthy()
    cluster.families[name] = [line.replace(GR, name) for line in cluster.families.pop(GR)]
    report = examined(cluster)
    assert faults(report) == {}
    assert f"read as {GR}" in (named(report, "utilization signal", name).finding or "")
    assert sources(report) == [(name, "pod", Decimal(2))]


def test_wrong_scale_is_a_finding(examined: Examine) -> None:
    percent = healthy().edited(GR, lambda line: line.replace("} 0.5 ", "} 50 "))
    check = only(
        examined(percent),
        f"scale of {GR}",
        says="reach 50 at a scale of 1: utilization is overstated",
        change=f"utilization: {{signal: {GR}, scale: 100}}",
    )
    assert check.severity == "required"
    only(
        examined(healthy(), f"utilization: {{signal: {GR}, scale: 100}}\n"),
        f"scale of {GR}",
        says="reach 0.5 at a scale of 100: it is a ratio",
        change="scale: 1}",
    )


def test_percentage_that_reaches_1_is_a_note_only(examined: Examine) -> None:
    cluster = healthy().without(GR)
    held = {"exported_namespace": "team", "exported_pod": "n1-a0"}
    cluster.device(1, signal="DCGM_FI_DEV_GPU_UTIL", **held)
    report = examined(cluster, "utilization: {signal: DCGM_FI_DEV_GPU_UTIL}\n")
    check = named(report, "scale of DCGM_FI_DEV_GPU_UTIL")
    assert (check.status, check.change) == ("found", None)
    assert "almost idle, or a ratio" in (check.finding or "")


def test_signal_that_does_not_work_for_slices_is_a_finding(examined: Examine) -> None:
    cluster = sliced().without(GR)
    cluster.device(40, signal="DCGM_FI_DEV_GPU_UTIL", exported_namespace="team", exported_pod="a-0")
    findings = faults(examined(cluster, "utilization: {signal: DCGM_FI_DEV_GPU_UTIL}\n"))
    assert f"settings: utilization: {{signal: {GR}}}" in (findings["signal under MIG"].change or "")


def test_devices_without_pods_are_a_finding(examined: Examine) -> None:
    cluster = healthy().edited(GR, lambda line: re.sub(r',exported_\w+="[^"]*"', "", line))
    report = examined(cluster)
    check = only(
        report,
        "pods of devices",
        says="2 pods hold GPUs, and no device series is labeled with any of them",
        change="dcgm-exporter: env DCGM_EXPORTER_KUBERNETES=true",
    )
    assert "the label pod of every series is the exporter's own pod" in (check.finding or "")
    assert sources(report) == [(None, "none", Decimal(2))]
    node = examined(cluster, "utilization: {sources: [pod, shared, node]}\n")
    assert sources(node) == [(GR, "node", Decimal(2))]


def test_exporter_pod_on_idle_devices_is_a_finding(examined: Examine) -> None:
    def honor(line: str) -> str:
        if "exported_pod" not in line:
            return line
        plain = re.sub(r'(?<![_\w])(namespace|pod)="[^"]*",', "", line)
        return plain.replace("exported_", "")

    report = examined(healthy().edited(GR, honor))
    check = only(
        report,
        "honorLabels",
        says="2 idle devices are labeled with the exporter's own pod (dcgm-exporter-n1)",
        change="honorLabels: false",
    )
    assert check.severity == "optional"
    assert sources(report) == [(GR, "pod", Decimal(2))]


def test_host_name_of_no_node_is_a_finding(examined: Examine) -> None:
    cluster = healthy().edited(GR, lambda line: line.replace('Hostname="n1"', 'Hostname="dcgm-exporter-x7f"'))
    only(
        examined(cluster),
        "Hostname",
        says="the labels of 4 devices name no node of kube-state-metrics (Hostname dcgm-exporter-x7f)",
        change="NODE_NAME: {valueFrom: {fieldRef: {fieldPath: spec.nod",
    )


def test_node_without_exporter_is_a_finding(examined: Examine) -> None:
    cluster = healthy(2).edited(GR, lambda line: "" if "n2" in line else line)
    only(
        examined(cluster),
        "exporter on every node",
        says="1 of 2 GPU nodes have no device series: node pool gpu (n2)",
        change="tolerations: [{operator: Exists}]",
    )


def test_unreported_idle_gpus_are_a_finding(examined: Examine) -> None:
    cluster = healthy().edited(GR, lambda line: "" if 'gpu="3"' in line else line.replace("{", '{vgpu="0",'))
    only(examined(cluster), "all GPUs of a node", says="(n1: 3 of 4)", change="dcgm-exporter: version 4.5.3 or later")


def test_unlabeled_sharers_are_a_finding(examined: Examine) -> None:
    report = examined(shared())
    only(
        report,
        "virtual GPUs",
        says="GPUs of node pool gpu (n1) are shared, and 4 of their pods are in no device",
        change="helm/dcgm-exporter-shared.yaml of gpucost manifests render: env KUBERNETES_VIRTUAL_GPUS=true, version "
        "4.1.1 or later",
    )
    assert sources(report) == [(None, "none", Decimal("1.5"))]
    whole = examined(shared(labeled=3, slots=True))
    assert faults(whole) == {}
    assert sources(whole) == [(GR, "shared", Decimal("1.5"))]


def test_changing_labels_of_shared_gpus_are_a_finding(examined: Examine) -> None:
    only(
        examined(shared(labeled=3)),
        "virtual GPUs",
        says="change from one of their pods to another",
        change="env KUBERNETES_VIRTUAL_GPUS=true",
    )


@pytest.mark.parametrize("uses", [(40, 20, 0), (0, 0, 0)], ids=["seen", "unseen"])
def test_processes_that_the_exporter_cannot_see_are_a_finding(examined: Examine, uses: tuple[int, ...]) -> None:
    cluster = shared(labeled=3, slots=True)
    for gpu in range(2):
        cluster.device(60, gpu=gpu, signal="DCGM_FI_DEV_GPU_UTIL")
        for i, use in enumerate(uses):
            pod_labels = {"exported_namespace": "team", "exported_pod": f"s-{gpu * 3 + i}", "pod_uid": f"u-{gpu}-{i}"}
            cluster.device(use, gpu=gpu, signal="DCGM_FI_DEV_GPU_UTIL", vgpu=str(i), **pod_labels)
    report = examined(cluster)
    if any(uses):
        assert faults(report) == {}
    else:
        only(
            report,
            "processes on shared GPUs",
            says="on node pool gpu (n1), the utilization of the pods' processes",
            change="helm/dcgm-exporter-shared.yaml of gpucost manifests render: hostPID: true",
        )
    assert sources(report) == [(GR, "process" if any(uses) else "shared", Decimal("1.5"))]


def test_unmapped_renamed_resources_are_a_finding(examined: Examine) -> None:
    only(
        examined(shared("nvidia_com_gpu_shared", labeled=0)),
        "pods of nvidia.com/gpu.shared",
        says="6 pods hold nvidia.com/gpu.shared, and no device is labeled with them",
        change="env NVIDIA_RESOURCE_NAMES=nvidia.com/gpu.shared",
    )


def test_labeled_slices_have_no_findings(examined: Examine) -> None:
    report = examined(sliced())
    assert faults(report) == {}
    assert sources(report) == [(GR, "pod", Decimal("2.285714"))]


def test_slices_under_the_name_of_whole_gpus_count_as_slices(examined: Examine) -> None:
    cluster = bare()
    cluster.exporter_up("mig")
    node_labels = {
        "node_kubernetes_io_instance_type": "p5.4xlarge",
        "nvidia_com_gpu_product": "NVIDIA-H100-MIG-1g.10gb",
    }
    cluster.node("mig", capacity={"nvidia_com_gpu": 7}, labels={**LABELS, **node_labels})
    cluster.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
    for i in range(3):
        pod(cluster, f"m-{i}", node="mig")
        cluster.device(0.3, node="mig", GPU_I_ID=str(i), exported_namespace="team", exported_pod=f"m-{i}")
    report = examined(cluster)
    assert faults(report) == {}
    assert sources(report) == [(GR, "pod", Decimal("0.428571"))]


def test_slices_without_pods_are_a_finding(examined: Examine) -> None:
    report = examined(sliced(labeled=False))
    only(
        report,
        "pods of MIG devices",
        says="2 pods hold MIG slices, and no MIG device is labeled",
        change="dcgm-exporter: version 4.5.3 or later",
    )
    assert sources(report) == [(GR, "pod", Decimal(2)), (None, "none", Decimal("0.285714"))]


def test_unknown_mig_profile_is_a_finding(examined: Examine) -> None:
    only(examined(sliced("1g_99gb")), "MIG profiles", says="1g.99gb of NVIDIA-A100-SXM4-40GB", change="MIG_GPUS")


def test_neuron_without_metrics_is_a_finding(examined: Examine) -> None:
    cluster = bare()
    node_labels = {**LABELS, "node_kubernetes_io_instance_type": "inf2.xlarge"}
    cluster.node("inf", capacity={"aws_amazon_com_neuron": 1, "aws_amazon_com_neuroncore": 2}, labels=node_labels)
    cluster.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
    pod(cluster, "infer", node="inf", resource="aws_amazon_com_neuroncore", units=2)
    report = examined(cluster)
    only(report, "Neuron", says="pods hold aws_amazon_com_neuroncore", change="neuron-monitor", status="missing")
    assert sources(report) == [(None, "none", Decimal(1))]
    cluster.add(
        "neuroncore_utilization_ratio", value=0.4, instance_id="i-inf", neuroncore="0", job="neuron", instance="x"
    )
    assert named(examined(cluster), "Neuron").status == "found"


def amd() -> Recent:
    cluster = bare()
    labels = {name: text for name, text in LABELS.items() if not name.startswith("nvidia")}
    labels["node_kubernetes_io_instance_type"] = "mi300x.8"
    cluster.node("mi300x", capacity={"amd_com_gpu": 8}, labels=labels)
    cluster.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
    return cluster


def amd_device(cluster: Recent, **labels: str) -> None:
    scraped = {"job": "amd-device-metrics-exporter", "instance": "mi300x:5000", "hostname": "mi300x"}
    of_gpu = {"gpu_id": "0", "serial_number": "S0", "gpu_partition_id": "0", "gpu_compute_partition_type": "spx"}
    cluster.add("gpu_gfx_activity", value=40, **scraped | of_gpu | labels)


def test_exporter_of_amd_gpus_is_missing_on_their_nodes(examined: Examine) -> None:
    cluster = amd()
    idle = named(examined(cluster), "AMD GPU")
    assert (idle.status, "nodes have AMD GPU devices (mi300x)" in (idle.finding or "")) == ("missing", True)
    pod(cluster, "train", node="mi300x", resource="amd_com_gpu", units=1)
    report = examined(cluster)
    only(report, "AMD GPU", says="pods hold amd_com_gpu", change="device-metrics-exporter-charts", status="missing")
    assert sources(report) == [(None, "none", Decimal(1))]
    amd_device(cluster, pod="train", namespace="team")
    report = examined(cluster)
    assert faults(report) == {}
    assert sources(report) == [("gpu_gfx_activity", "pod", Decimal(1))]


def test_amd_devices_without_pods_and_nodes_are_findings(examined: Examine) -> None:
    cluster = amd()
    pod(cluster, "train", node="mi300x", resource="amd_com_gpu", units=1)
    amd_device(cluster)
    only(examined(cluster), "pods of AMD GPU", says="no device series is labeled", change="pod-resources")
    cluster = amd()
    pod(cluster, "train", node="mi300x", resource="amd_com_gpu", units=1)
    amd_device(cluster, hostname="elsewhere", pod="train", namespace="team")
    only(examined(cluster), "nodes of AMD GPU", says="name no node", change="__meta_kubernetes_pod_node_name")


def test_vendors_without_nodes_have_no_findings(examined: Examine) -> None:
    names = {check.name for check in examined(healthy()).checks}
    assert not {name for name in names if "AMD" in name or "Gaudi" in name or "Intel" in name}


def test_cluster_with_dra_claims_only_can_be_attributed(examined: Examine) -> None:
    claim = {"namespace": "team", "pod": "d-0", "uid": "uid-d-0", "claim_name": "gpu", "resourceclaim_name": "c"}
    cluster = healthy().without("kube_pod_container_resource_requests")
    cluster.add("kube_pod_resourceclaim_info", **claim, **KSM)
    report = examined(cluster)
    assert report.possible
    assert named(report, "kube_pod_container_resource_requests").status == "not needed"


def test_pod_that_outlived_its_node_holds_nothing(examined: Examine) -> None:
    cluster = healthy()
    pod(cluster, "left-behind", node="reclaimed")
    report = examined(cluster)
    assert faults(report) == {}
    assert sources(report) == [(GR, "pod", Decimal(2))]


def test_every_metric_that_attribution_queries_is_checked() -> None:
    queried = set(re.findall(r'"(kube_[a-z_]+)"', Path(queries.__file__).read_text()))
    assert len(queried) > 10
    in_checks_of_fractions = {SHARER_ANNOTATIONS.split()[0]}
    assert queried - in_checks_of_fractions <= set(KUBE_METRICS)


def test_unreported_dra_claims_are_a_finding(examined: Examine) -> None:
    claim = {"namespace": "team", "pod": "d-0", "uid": "uid-d-0", "claim_name": "gpu", "resourceclaim_name": "c"}
    small = {**LABELS, "node_kubernetes_io_instance_type": "g5.xlarge", "karpenter_sh_nodepool": "claims"}

    def with_claims() -> Recent:
        cluster = healthy()
        cluster.node("dra", labels=small)
        cluster.exporter_up("dra")
        cluster.device(0.5, node="dra")
        cluster.add("kube_pod_resourceclaim_info", **claim, **KSM)
        return cluster

    cluster = with_claims()
    only(
        examined(cluster),
        "DRA claims",
        says="1 pods have resource claims that no device series names, and the GPU nodes of node pool claims (dra) "
        "advertise no GPUs",
        change="helm/dcgm-exporter-dra.yaml of gpucost manifests render, on nodes with the label "
        "nvidia.com/dra-kubelet-plugin=true: env KUBERNETES_ENABLE_DRA=true, without KUBERNETES_VIRTUAL_GPUS",
    )

    reported = healthy()
    reported.node("dra", labels=small)
    reported.exporter_up("dra")
    reported.device(0.5, node="dra", dra_claim_name="c", dra_claim_namespace="team")
    only(
        examined(reported),
        "kube_pod_resourceclaim_info",
        says="through DRA claims have no owner and no labels",
        change="version 2.20 or later",
        status="missing",
    )

    # A pool whose exporter reports claims, next to one whose exporter does not.
    two_pools = with_claims()
    two_pools.node("right", labels={**small, "karpenter_sh_nodepool": "reported"})
    two_pools.exporter_up("right")
    two_pools.device(0.5, node="right", dra_claim_name="r", exported_namespace="team", exported_pod="r-0")
    right = {"namespace": "team", "pod": "r-0", "uid": "uid-r-0", "claim_name": "gpu", "resourceclaim_name": "r"}
    two_pools.add("kube_pod_resourceclaim_info", **right, **KSM)
    only(
        examined(two_pools),
        "DRA claims",
        says="1 pods have resource claims that no device series names, and the GPU nodes of node pool claims (dra)",
        change="helm/dcgm-exporter-dra.yaml",
    )
    pending = with_claims()
    pending.add("kube_pod_status_phase", value=1, namespace="team", pod="d-0", uid="uid-d-0", phase="Pending", **KSM)
    assert faults(examined(pending)) == {}


def add_exporter(cluster: Recent, job: str, start: float = -65) -> None:
    """Another exporter of the GPUs of node n1."""
    for gpu in range(4):
        labels = {"gpu": str(gpu), "UUID": f"GPU-n1-{gpu}", "Hostname": "n1", "instance": "10.0.0.9:9400"}
        cluster.add(GR, start, value=0.25, job=job, **labels)


def test_node_with_two_exporters_is_a_finding(examined: Examine) -> None:
    """Devices have the series of two targets, as if the GPU Operator's exporter ran next to the rendered one."""
    cluster = healthy()
    add_exporter(cluster, "nvidia-dcgm-exporter")
    cluster.up(job="nvidia-dcgm-exporter", instance="10.0.0.9:9400")
    report = examined(cluster)
    check = named(report, "one exporter on every node")
    assert (check.status, check.severity) == ("faulty", "recommended")
    assert "several exporters report the GPUs of node pool gpu (n1)" in (check.finding or "")
    assert "GPU Operator: helm/gpu-operator-exporter.yaml" in (check.change or "")
    assert "helm/dcgm-exporter.yaml" in (check.change or "")
    assert named(examined(healthy()), "one exporter on every node").status == "found"


def test_replaced_exporter_is_no_finding(examined: Examine) -> None:
    """A new pod has another address; the series of the old one may still be there for minutes."""
    cluster = healthy()
    add_exporter(cluster, "dcgm-exporter", (cluster.now - cluster.base).total_seconds() // 60 - 2)
    assert named(examined(cluster), "one exporter on every node").status == "found"


@pytest.mark.parametrize(
    ("resource", "labels", "change"),
    [
        ("nvidia_com_mig_1g_5gb_shared", {}, "parameters: collection: {shared_mig_profiles: [1g.5gb]}"),
        ("nvidia_com_gpu", {"nvidia_com_gpu_sharing_strategy": ""}, "label nvidia.com/gpu.sharing-strategy by which"),
    ],
)
def test_virtual_gpus_name_the_label_that_selects_nodes(
    examined: Examine, resource: str, labels: dict[str, str], change: str
) -> None:
    cluster = shared(resource)
    for name, text in labels.items():
        cluster.edited("kube_node_labels", lambda line: re.sub(rf'(label_{name})="[^"]*"', rf'\1="{text}"', line))  # noqa: B023
    assert change in (named(examined(cluster), "virtual GPUs").change or "")


def test_hami_without_metrics_is_a_finding(examined: Examine) -> None:
    def cluster() -> Recent:
        recent = healthy()
        recent.node("hami", capacity={"nvidia_com_gpu": 40}, labels=LABELS)
        recent.exporter_up("hami")
        for gpu in range(4):
            recent.device(0.2, gpu=gpu, node="hami")
        pod(recent, "quarter", node="hami")
        requests = {"namespace": "team", "pod": "quarter", "uid": "uid-quarter", "container": "main", "node": "hami"}
        for resource in ("nvidia_com_gpucores", "nvidia_com_gpumem_percentage"):
            recent.add("kube_pod_container_resource_requests", value=25, resource=resource, **requests, **KSM)
        return recent

    report = examined(cluster())
    findings = {check.name: check.finding for check in report.checks if check.status == "faulty"}
    assert findings.keys() == {"HAMi scheduler", "HAMi vGPU monitor"}, findings
    assert "their use is unmeasured" in str(findings["HAMi scheduler"])
    scraped = cluster()
    gpu = {"namespace": "team", "pod": "quarter", "device_uuid": "GPU-0", "job": "hami", "instance": "hami:9394"}
    scraped.add("hami_vgpu_memory_allocated_bytes", value=2**30, container_index="0", node="hami", **gpu)
    scraped.add("hami_container_device_utilization_ratio", value=20, container="main", vdevice_index="0", **gpu)
    assert not [check for check in examined(scraped).checks if check.status == "faulty"]


def test_reserved_gpus_without_labels_or_annotations_are_findings(examined: Examine) -> None:
    cluster = healthy()
    name = "gpu-reservation-n1-x7k2p"
    pod(cluster, name)
    cluster.device(0.4, gpu=2, exported_namespace="team", exported_pod=name)
    cluster.add("kube_pod_labels", namespace="team", pod=name, uid=f"uid-{name}", label_runai_gpu_group="a", **KSM)
    only(
        examined(cluster),
        "shared GPUs: gpu-fraction",
        says="no series says what each of them gets",
        change="--metric-annotations-allowlist=pods=[gpu-fraction,gpu-memory,gpu-fraction-num-devices]",
    )
    sharer = {"namespace": "team", "pod": "quarter", "uid": "uid-quarter"}
    cluster.add("kube_pod_annotations", annotation_gpu_fraction="0.25", **sharer, **KSM)
    assert not [check for check in examined(cluster).checks if check.status == "faulty"]


def test_doctor_says_how_energy_is_measured(examined: Examine) -> None:
    def energy(cluster: Timeline) -> tuple[str, str, str]:
        check = named(examined(cluster), "energy")
        return check.metric, check.status, check.finding or ""

    assert energy(healthy()) == (
        ENERGY_COUNTER,
        "not needed",
        f"energy and emissions are unknown: add {ENERGY_COUNTER} to dcgm-exporter's counters to measure them",
    )
    power = healthy()
    power.families[POWER_GAUGES[0]] = [line.replace(GR, POWER_GAUGES[0]) for line in power.families[GR]]
    metric, status, finding = energy(power)
    assert (metric, status) == (POWER_GAUGES[0], "found")
    assert "unknown in gaps" in finding
    power.families[ENERGY_COUNTER] = [line.replace(GR, ENERGY_COUNTER) for line in power.families[GR]]
    assert energy(power) == (ENERGY_COUNTER, "found", "")


def test_unlabeled_gpus_are_counted_as_in_attribution(examined: Examine) -> None:
    """An exporter that hides idle GPUs shows two of four: they are whole. One that shows an idle one shows all."""

    def report_of(idle: int) -> list[tuple[str | None, str, Decimal]]:
        cluster = bare()
        cluster.node("n1", capacity={"nvidia_com_gpu": 4})
        cluster.exporter_up("n1")
        for number in range(2 - idle):
            pod(cluster, f"p{number}", units=1)
            cluster.device(0.5, node="n1", gpu=number, exported_pod=f"p{number}", exported_namespace="team")
        for number in range(2 - idle, 2):
            cluster.device(0, node="n1", gpu=number)
        return sources(examined(cluster))

    assert [gpus for _, _, gpus in report_of(idle=0)] == [Decimal(2)]
    assert [gpus for _, _, gpus in report_of(idle=1)] == [Decimal("0.5")]
