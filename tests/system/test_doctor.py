"""`gpucost doctor` against a real Prometheus: each fault planted, and the finding with its line to change."""

import json
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpucost.adapters.prometheus import queries
from gpucost.adapters.prometheus.client import PrometheusClient
from gpucost.settings import parse_settings
from local.doctor import Report, examine
from local.doctor.checks import Check
from local.doctor.checks.metrics import KUBE_METRICS
from local.doctor.labels import NODE_LABELS, Needs, allow_list
from local.prometheus import free_port
from tests.system.doctor_cluster import KSM, LABELS, Recent, bare, healthy, pod
from tests.system.test_cli import gpucost

Examine = Callable[..., Report]
NODES = "--metric-labels-allowlist=nodes=[node.kubernetes.io/instance-type,"


def document(url: str, *, more: str = "", clusters: str = "") -> str:
    clusters = clusters or f'[{{name: demo, prometheus: {{url: "{url}"}}}}]'
    return f"clusters: {clusters}\npricing: {{source: constant, gpu_hourly_usd: 12}}\n{more}"


@pytest.fixture
def examined(prometheus: Callable[[str], str]) -> Examine:
    def run(cluster: Recent, more: str = "", selector: str = "") -> Report:
        url = prometheus(cluster.text())
        one = f'[{{name: demo, prometheus: {{url: "{url}"}}, selector: {{{selector}}}}}]'
        settings = parse_settings(document(url, more=more, clusters=one))
        return examine(settings.clusters[0], settings, cluster.now)

    return run


def named(report: Report, name: str, metric: str = "") -> Check:
    found = [check for check in report.checks if check.name == name and metric in {"", check.metric}]
    assert len(found) == 1, [check.name for check in report.checks]
    return found[0]


def faults(report: Report) -> dict[str, Check]:
    return {check.name: check for check in report.checks if check.change}


def only(report: Report, name: str, *, says: str, change: str, status: str = "faulty") -> Check:
    """The one fault of a cluster, with its line to change."""
    found = faults(report)
    assert set(found) == {name}
    check = found[name]
    assert check.status == status
    assert says in (check.finding or "")
    assert change in (check.change or "")
    return check


def rungs(report: Report) -> list[tuple[str | None, str, Decimal]]:
    return [(one.signal, one.rung, one.gpus) for one in report.utilization]


GR = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"


def test_a_handful_of_queries_that_read_little(examined: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    ask = PrometheusClient._ask

    def record(self: PrometheusClient, path: str, form: Mapping[str, str]) -> Any:
        sent.append(form["query"])
        return ask(self, path, form)

    monkeypatch.setattr(PrometheusClient, "_ask", record)
    examined(healthy(3))
    assert len(sent) <= 15
    assert not [query for query in sent if "_over_time" in query]
    assert [query[:3] for query in sent if re.search(r"\[\d+ms\]$", query)] == ["up{"]


def test_a_healthy_cluster_has_no_findings(examined: Examine) -> None:
    report = examined(healthy(2))
    assert report.possible
    assert [check.finding for check in report.checks if check.finding] == []
    assert {check.status for check in report.checks} == {"found", "not needed"}
    assert named(report, "kube_node_info").series == 2
    assert named(report, "kube_pod_container_resource_requests").series == 4
    assert named(report, "utilization signal").series == 8
    assert named(report, "kube_pod_status_phase").scrape_interval_seconds == 60
    assert rungs(report) == [(GR, "pod", Decimal(4))]


def test_nothing_at_all(examined: Examine) -> None:
    report = examined(Recent())
    assert not report.possible
    assert report.obstacle.startswith("no series of kube-state-metrics are there")
    only(report, "kube-state-metrics", says="nothing tells which pods hold GPUs", change="regex: up|kube_pod_",
         status="missing")  # fmt: skip


def test_kube_state_metrics_without_requests(examined: Examine) -> None:
    report = examined(healthy().without("kube_pod_container_resource_requests"))
    assert not report.possible
    check = faults(report)["kube_pod_container_resource_requests"]
    assert (check.status, check.severity, check.series) == ("missing", "required", 0)
    assert "--metric-allowlist=…,kube_pod_container_resource_requests" in (check.change or "")


def test_no_gpu_in_the_hour_costs_nothing_and_is_no_fault(examined: Examine) -> None:
    cluster = bare()
    cluster.node("cpu", labels={"node_kubernetes_io_instance_type": "m5.large"}, capacity={"cpu": 4})
    pod(cluster, "web", node="cpu", resource="cpu")
    cluster.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
    report = examined(cluster)
    assert report.possible
    assert faults(report) == {}
    assert "no pod on a node asked for a GPU" in (named(report, "GPU requests").finding or "")
    assert named(report, "utilization signal").status == "not needed"
    assert named(report, "node label nvidia.com/gpu.product").status == "not needed"


@pytest.mark.parametrize(
    ("metric", "severity", "says"),
    [
        ("kube_pod_status_phase", "recommended", "pods that finished"),
        ("kube_pod_owner", "recommended", "not the workloads"),
        ("kube_replicaset_owner", "recommended", "Deployments show as their ReplicaSets"),
        ("kube_pod_status_scheduled_time", "optional", "a start within a gap"),
        ("kube_node_info", "recommended", "replaced under its name"),
        ("kube_node_status_capacity", "recommended", "what nobody held is unknown"),
        ("kube_node_status_allocatable", "recommended", "unhealthy GPUs"),
    ],
)
def test_a_family_is_missing(examined: Examine, metric: str, severity: str, says: str) -> None:
    report = examined(healthy().without(metric))
    assert report.possible
    check = faults(report)[metric]
    assert (check.status, check.severity, check.series) == ("missing", severity, 0)
    assert says in (check.finding or "")
    assert f"kube-state-metrics: --resources=…,{'nodes' if 'node' in metric else metric.split('_')[1]}" in (
        check.change or ""
    )
    assert f"--metric-allowlist=…,{metric}" in (check.change or "")


def test_job_owners_and_completion_are_needed_where_jobs_end(examined: Examine) -> None:
    cluster = healthy()
    cluster.pod("train", finished_at=10, node="n1")
    cluster.owned("train", "Job", "train")
    found = faults(examined(cluster))
    assert set(found) == {"kube_job_owner", "kube_pod_completion_time"}
    assert found["kube_pod_completion_time"].severity == "optional"


def test_labels_that_the_settings_need(examined: Examine) -> None:
    more = (
        "business_units:\n- {name: a, namespace_labels: {team: a}}\n"
        "- {name: b, pod_labels: {app.kubernetes.io/part-of: b}}\n"
        "cost_labels: [costCenter]\n"
    )
    cluster = healthy()
    cluster.add("kube_pod_labels", namespace="team", pod="n1-a0", uid="uid-n1-a0", label_cost_center="7", **KSM)
    report = examined(cluster, more)
    wanted = "namespaces=[team],pods=[app.kubernetes.io/part-of,costCenter]"
    found = faults(report)
    assert set(found) == {"kube_namespace_labels", "pod label app.kubernetes.io/part-of"}
    assert NODES in (found["kube_namespace_labels"].change or "")
    assert all((check.change or "").endswith(wanted) for check in found.values())
    assert (named(report, "pod label costCenter").status, named(report, "pod label costCenter").series) == ("found", 1)
    assert named(report, "namespace label team").status == "missing"


def test_the_allow_list_asks_for_no_more_than_is_needed() -> None:
    flag = allow_list(Needs((), ()))
    assert "namespaces=" not in flag
    assert "pods=" not in flag
    keys = "node.kubernetes.io/instance-type topology.kubernetes.io/zone karpenter.sh/nodepool nvidia.com/gpu.product"
    keys += " karpenter.sh/capacity-type eks.amazonaws.com/capacityType nvidia.com/gpu.count nvidia.com/gpu.replicas"
    keys += " nvidia.com/gpu.sharing-strategy nvidia.com/mig.strategy eks.amazonaws.com/nodegroup"
    assert set(keys.split()) == set(re.findall(r"[^\[,\]=]+/[^\[,\]]+", flag))
    assert len(NODE_LABELS) == 9


def test_no_node_labels_at_all(examined: Examine) -> None:
    found = faults(examined(healthy().without("kube_node_labels")))
    assert "have no instance type" in (found["kube_node_labels"].finding or "")
    assert "node label node.kubernetes.io/instance-type" in found
    assert "node label nvidia.com/gpu.count" in found
    assert all(NODES in (check.change or "") for check in found.values())


def test_one_node_label_on_some_nodes(examined: Examine) -> None:
    cluster = healthy(2).edited(
        "kube_node_labels",
        lambda line: re.sub(r'label_karpenter_sh_capacity_type="[^"]*",?', "", line) if '"n2"' in line else line,
    )
    check = only(examined(cluster), "node label karpenter.sh/capacity-type or eks.amazonaws.com/capacityType",
                 says="1 of 2 GPU nodes tell no capacity type (n2)", change=NODES, status="missing")  # fmt: skip
    assert check.series == 1


def test_up_is_not_kept_and_the_interval_is_read_off_a_series(examined: Examine) -> None:
    report = examined(healthy().without("up"))
    found = faults(report)
    assert set(found) == {"up of kube-state-metrics", "up of GPU exporter"}
    assert all("regex: up|…" in (check.change or "") for check in found.values())
    assert named(report, "kube_node_info").scrape_interval_seconds == 60
    assert named(report, "utilization signal").scrape_interval_seconds == 60


def test_intervals_differ_between_instances_and_are_too_long(examined: Examine) -> None:
    slow = healthy(2)
    slow.edited("up", lambda line: "" if "n2" in line else line)
    other = Recent(step=120)
    other.exporter_up("n2")
    slow.families["up"] += other.families["up"]
    check = named(examined(slow), "scrape interval of GPU exporter")
    assert check.scrape_interval_seconds == 120
    assert "every 60 to 120 s (n2:9400)" in (check.finding or "")

    coarse = Recent(step=240)
    coarse.up()
    late = healthy().edited("up", lambda line: "" if "kube-state" in line else line)
    late.families["up"] += coarse.families["up"]
    only(examined(late), "scrape interval of kube-state-metrics", says="every 240 s", change="interval: 60s")


def _also_from(cluster: Recent, instance: str, keep: Callable[[str], bool] = lambda _: True) -> Recent:
    """A second instance of kube-state-metrics."""
    for metric, lines in cluster.families.items():
        ours = [line for line in lines if "10.0.0.1:8080" in line]
        copies = [line.replace("10.0.0.1:8080", instance) for line in ours if keep(line)]
        cluster.families[metric] = lines + copies
    return cluster


def test_instances_of_kube_state_metrics(examined: Examine) -> None:
    pair = examined(_also_from(healthy(), "10.0.0.2:8080"))
    check = named(pair, "kube-state-metrics")
    assert (check.status, check.series) == ("found", 2)
    assert "2 instances are scraped, and tell of the same objects (high availability)" in (check.finding or "")
    assert faults(pair) == {}
    assert rungs(pair) == [(GR, "pod", Decimal(2))]

    split = healthy(2)
    for metric, lines in split.families.items():
        split.families[metric] = [
            line.replace("10.0.0.1:8080", "10.0.0.2:8080") if '"n2' in line or "uid-n2" in line else line
            for line in lines
        ]
    shards = examined(split)
    assert "each tells of its own objects (shards)" in (named(shards, "kube-state-metrics").finding or "")


def test_exporters_that_fell_silent(examined: Examine) -> None:
    cluster = healthy()
    half = cluster.base.timestamp() + 1200
    for metric in cluster.families:
        cluster.edited(metric, lambda line: line if float(line.split()[-1]) < half else "")
    check = only(
        examined(cluster),
        "kube-state-metrics now",
        says="the last series of kube-state-metrics are of",
        change="remote_write",
    )
    assert check.severity == "required"

    devices = healthy().edited(GR, lambda line: line if float(line.split()[-1]) < half else "")
    only(examined(devices), "GPU exporter now", says="while GPU nodes were there", change="its targets")


def test_a_restart_of_kube_state_metrics_and_equal_prometheus_servers(examined: Examine) -> None:
    before, after = healthy(), healthy()
    for metric, lines in _also_from(before, "10.0.0.2:8080").families.items():
        half = after.base.timestamp() + 1800
        after.families[metric] = [
            line for line in lines if "10.0.0." not in line or (float(line.split()[-1]) < half) == ("10.0.0.1" in line)
        ]
    found = named(examined(after), "kube-state-metrics")
    assert "2 instances are scraped, one after the other" in (found.finding or "")

    twice = healthy()
    for metric, lines in twice.families.items():
        twice.families[metric] = [line.replace("{", f'{{prometheus_replica="{i}",') for i in range(2) for line in lines]
    report = examined(twice)
    check = named(report, "kube-state-metrics")
    assert (check.series, check.finding) == (1, "2 equal Prometheus servers write its series: counted once")
    assert faults(report) == {}
    assert rungs(report) == [(GR, "pod", Decimal(2))]


def test_the_scrape_has_taken_names_of_kube_state_metrics_labels(examined: Examine) -> None:
    cluster = healthy()
    for metric in list(cluster.families):
        if metric.startswith("kube_pod"):
            cluster.edited(
                metric,
                lambda line: re.sub(r'(namespace|pod|container)="', r'exported_\1="', line).replace(
                    "{", '{namespace="monitoring",pod="ksm-0",container="ksm",'
                ),
            )
    report = examined(cluster)
    assert faults(report) == {}
    assert rungs(report) == [(GR, "pod", Decimal(2))]


def test_pods_on_nodes_that_no_metric_tells_of(examined: Examine) -> None:
    cluster = healthy(2)
    for metric in ("kube_node_info", "kube_node_status_capacity", "kube_node_status_allocatable", "kube_node_labels"):
        cluster.edited(metric, lambda line: "" if '"n2"' in line else line)
    report = examined(cluster)
    check = named(report, "nodes of pods", "kube_node_info")
    assert "tells nothing (n2)" in (check.finding or "")
    assert "--resources=…,nodes in every shard" in (check.change or "")


def test_requests_without_uid_and_of_unknown_resources(examined: Examine) -> None:
    cluster = healthy().edited("kube_pod_container_resource_requests", lambda line: re.sub(r'uid="[^"]*",?', "", line))
    assert "version 2.0 or later" in (faults(examined(cluster))["uid of pods"].change or "")

    other = healthy()
    other.pod("odd", resource="nvidia_com_hopper")
    check = faults(examined(other))["resource names"]
    assert "nvidia_com_hopper" in (check.finding or "")
    assert "NVIDIA device plugin" in (check.change or "")


def test_several_clusters_in_one_workspace(examined: Examine) -> None:
    both = healthy(cluster="east")
    for metric, lines in healthy(cluster="west").families.items():
        both.families[metric] += lines
    report = examined(both)
    assert report.possible
    check = only(report, "one cluster", says='series of 2 clusters are taken for one: cluster is east, west',
                 change='settings, cluster demo: selector: {cluster: "east"}')  # fmt: skip
    assert check.severity == "required"
    chosen = examined(both, selector="cluster: west")
    assert faults(chosen) == {}
    assert named(chosen, "selector").status == "found"
    assert rungs(chosen) == [(GR, "pod", Decimal(2))]


def test_a_selector_that_matches_nothing(examined: Examine) -> None:
    report = examined(healthy(cluster="east"), selector="cluster: est")
    assert not report.possible
    assert 'the selector {cluster: "est"} matches no series of kube_pod_container_resource_requests' in report.obstacle
    only(report, "selector", says="cluster is east", change='selector: {cluster: "east"}', status="missing")


def test_a_selector_that_the_gpu_exporter_does_not_carry(examined: Examine) -> None:
    cluster = healthy(cluster="east").edited(GR, lambda line: line.replace('cluster="east",', ""))
    found = faults(examined(cluster, selector="cluster: east"))
    assert 'external_labels: {cluster: "east"}' in (found["selector"].change or "")
    assert found["selector"].severity == "recommended"


def test_no_signal_and_a_signal_that_stands_in(examined: Examine) -> None:
    report = examined(healthy().without(GR))
    check = only(report, "utilization signal", says="no GPU's use is measured", change=f"{GR}, gauge", status="missing")
    assert "helm install dcgm-exporter" in (check.change or "")
    assert rungs(report) == [(None, "none", Decimal(2))]

    device = healthy()
    device.families["DCGM_FI_DEV_GPU_UTIL"] = [
        re.sub(r"\} (\S+) ", lambda value: f"}} {int(float(value[1]) * 100)} ", line).replace(
            GR, "DCGM_FI_DEV_GPU_UTIL"
        )
        for line in device.families.pop(GR)
    ]
    report = examined(device)
    only(report, "utilization signal", says="DCGM_FI_DEV_GPU_UTIL stands in for it; it overstates",
         change=f"{GR}, gauge", status="missing")  # fmt: skip
    assert rungs(report) == [("DCGM_FI_DEV_GPU_UTIL", "pod", Decimal(2))]


def test_a_node_whose_exporter_has_the_poorer_signal_only(examined: Examine) -> None:
    cluster = healthy(2)
    cluster.families["DCGM_FI_DEV_GPU_UTIL"] = [
        line.replace(GR, "DCGM_FI_DEV_GPU_UTIL").replace("} 0.", "} ") for line in cluster.families[GR]
    ]
    assert faults(examined(cluster)) == {}
    cluster.edited(GR, lambda line: "" if "n2" in line else line)
    report = examined(cluster)
    only(report, "signal of every device", says="4 devices of n2 have no DCGM_FI_PROF_GR_ENGINE_ACTIVE",
         change=f"{GR}, gauge")  # fmt: skip
    assert rungs(report) == [("DCGM_FI_DEV_GPU_UTIL", "pod", Decimal(2)), (GR, "pod", Decimal(2))]


@pytest.mark.parametrize("name", ["DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", "dcgm_fi_prof_gr_engine_active"])
def test_the_signal_under_another_name(examined: Examine, name: str) -> None:
    cluster = healthy()
    cluster.families[name] = [line.replace(GR, name) for line in cluster.families.pop(GR)]
    report = examined(cluster)
    assert faults(report) == {}
    assert f"read as {GR}" in (named(report, "utilization signal", name).finding or "")
    assert rungs(report) == [(name, "pod", Decimal(2))]


def test_a_wrong_scale(examined: Examine) -> None:
    percent = healthy().edited(GR, lambda line: line.replace("} 0.5 ", "} 50 "))
    check = only(examined(percent), f"scale of {GR}", says="reach 50 at a scale of 1: use is overstated",
                 change=f"utilization: {{signal: {GR}, scale: 100}}")  # fmt: skip
    assert check.severity == "required"
    only(examined(healthy(), f"utilization: {{signal: {GR}, scale: 100}}\n"), f"scale of {GR}",
         says="reach 0.5 at a scale of 100: a ratio", change="scale: 1}")  # fmt: skip


def test_a_percentage_that_is_all_but_idle(examined: Examine) -> None:
    cluster = healthy().without(GR)
    held = {"exported_namespace": "team", "exported_pod": "n1-a0"}
    cluster.device(1, signal="DCGM_FI_DEV_GPU_UTIL", **held)
    report = examined(cluster, "utilization: {signal: DCGM_FI_DEV_GPU_UTIL}\n")
    check = named(report, "scale of DCGM_FI_DEV_GPU_UTIL")
    assert (check.status, check.change) == ("found", None)
    assert "all but idle, or a ratio" in (check.finding or "")


def test_a_signal_that_says_nothing_of_slices(examined: Examine) -> None:
    cluster = sliced().without(GR)
    cluster.device(40, signal="DCGM_FI_DEV_GPU_UTIL", exported_namespace="team", exported_pod="a-0")
    found = faults(examined(cluster, "utilization: {signal: DCGM_FI_DEV_GPU_UTIL}\n"))
    assert f"settings: utilization: {{signal: {GR}}}" in (found["signal under MIG"].change or "")


def test_the_mapping_is_off(examined: Examine) -> None:
    cluster = healthy().edited(GR, lambda line: re.sub(r',exported_\w+="[^"]*"', "", line))
    report = examined(cluster)
    check = only(report, "pods of devices", says="2 pods hold GPUs, and no device series is labelled with any of them",
                 change="dcgm-exporter: env DCGM_EXPORTER_KUBERNETES=true")  # fmt: skip
    assert "the pod on every series is the exporter's own" in (check.finding or "")
    assert rungs(report) == [(None, "none", Decimal(2))]
    node = examined(cluster, "utilization: {ladder: [pod, shared, node]}\n")
    assert rungs(node) == [(GR, "node", Decimal(2))]


def test_labels_of_the_exporter_are_honoured(examined: Examine) -> None:
    def honour(line: str) -> str:
        if "exported_pod" not in line:
            return line
        plain = re.sub(r'(?<![_\w])(namespace|pod)="[^"]*",', "", line)
        return plain.replace("exported_", "")

    report = examined(healthy().edited(GR, honour))
    check = only(report, "honorLabels", says="2 idle devices carry the exporter's own pod (dcgm-exporter-n1)",
                 change="honorLabels: false")  # fmt: skip
    assert check.severity == "optional"
    assert rungs(report) == [(GR, "pod", Decimal(2))]


def test_the_host_name_is_no_node(examined: Examine) -> None:
    cluster = healthy().edited(GR, lambda line: line.replace('Hostname="n1"', 'Hostname="dcgm-exporter-x7f"'))
    only(examined(cluster), "Hostname", says="4 devices are on no node that kube-state-metrics knows "
         "(Hostname dcgm-exporter-x7f)", change="NODE_NAME: {valueFrom: {fieldRef: {fieldPath: spec.nod")  # fmt: skip


def test_a_node_without_exporter(examined: Examine) -> None:
    cluster = healthy(2).edited(GR, lambda line: "" if "n2" in line else line)
    only(
        examined(cluster),
        "exporter on every node",
        says="1 of 2 GPU nodes (n2)",
        change="tolerations: [{operator: Exists}]",
    )


def test_idle_gpus_that_disappear(examined: Examine) -> None:
    cluster = healthy().edited(GR, lambda line: "" if 'gpu="3"' in line else line.replace("{", '{vgpu="0",'))
    only(examined(cluster), "all GPUs of a node", says="(n1: 3 of 4)", change="dcgm-exporter: version 4.5.3 or later")


def shared(resource: str = "nvidia_com_gpu", *, labelled: int = 1, slots: bool = False) -> Recent:
    """Two GPUs, each handed out four times, with three holders on each."""
    names = [f"s-{i}" for i in range(6)]
    cluster = bare()
    cluster.exporter_up("n1")
    own = {"nvidia_com_gpu_replicas": "4", "nvidia_com_gpu_sharing_strategy": "time-slicing"}
    own["node_kubernetes_io_instance_type"] = "custom.2gpu"
    cluster.node(capacity={resource: 8}, labels={**LABELS, **own, "nvidia_com_gpu_count": "2"})
    cluster.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
    for name in names:
        pod(cluster, name, resource=resource)
    for gpu in range(2):
        for i in range(labelled):
            slot = {"vgpu": str(i)} if slots else {}
            cluster.device(0.6, gpu=gpu, exported_namespace="team", exported_pod=names[gpu * 3 + i], **slot)
        if not labelled:
            cluster.device(0.6, gpu=gpu)
    return cluster


def test_one_sharer_is_labelled(examined: Examine) -> None:
    report = examined(shared())
    only(report, "virtual GPUs", says="GPUs of n1 are shared, and 4 of their pods are on no device series",
         change="env KUBERNETES_VIRTUAL_GPUS=true")  # fmt: skip
    assert rungs(report) == [(None, "none", Decimal("1.5"))]
    whole = examined(shared(labelled=3, slots=True))
    assert faults(whole) == {}
    assert rungs(whole) == [(GR, "shared", Decimal("1.5"))]


def test_labels_go_from_sharer_to_sharer(examined: Examine) -> None:
    only(examined(shared(labelled=3)), "virtual GPUs", says="go from one of their pods to another",
         change="env KUBERNETES_VIRTUAL_GPUS=true")  # fmt: skip


def test_renamed_shared_gpus_are_not_looked_for(examined: Examine) -> None:
    only(examined(shared("nvidia_com_gpu_shared", labelled=0)), "pods of nvidia.com/gpu.shared",
         says="6 pods hold nvidia.com/gpu.shared, and none is labelled on a device",
         change="env NVIDIA_RESOURCE_NAMES=nvidia.com/gpu.shared")  # fmt: skip


def sliced(profile: str = "1g_5gb", *, labelled: bool = True, product: str = "NVIDIA-A100-SXM4-40GB") -> Recent:
    """One A100 in slices, two of them held, and a whole GPU beside it on another node."""
    cluster = healthy()
    own = {"node_kubernetes_io_instance_type": "custom.1gpu", "nvidia_com_gpu_count": "1"}
    own |= {"nvidia_com_gpu_product": product, "nvidia_com_mig_strategy": "mixed"}
    resource = f"nvidia_com_mig_{profile}"
    cluster.node("mig", capacity={resource: 7}, labels={**LABELS, **own})
    cluster.exporter_up("mig")
    for i in range(3):
        held = {"exported_namespace": "team", "exported_pod": f"m-{i}"} if labelled and i < 2 else {}
        mig = {"GPU_I_ID": str(i + 7), "GPU_I_PROFILE": profile.replace("_", ".")}
        cluster.device(0.3, gpu=0, node="mig", **mig, **held)
    for i in range(2):
        pod(cluster, f"m-{i}", node="mig", resource=resource)
    return cluster


def test_slices_with_their_pods(examined: Examine) -> None:
    report = examined(sliced())
    assert faults(report) == {}
    assert rungs(report) == [(GR, "pod", Decimal("2.285714"))]


def test_slices_under_the_name_of_gpus(examined: Examine) -> None:
    cluster = bare()
    cluster.exporter_up("mig")
    own = {"node_kubernetes_io_instance_type": "p5.4xlarge", "nvidia_com_gpu_product": "NVIDIA-H100-MIG-1g.10gb"}
    cluster.node("mig", capacity={"nvidia_com_gpu": 7}, labels={**LABELS, **own})
    cluster.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
    for i in range(3):
        pod(cluster, f"m-{i}", node="mig")
        cluster.device(0.3, node="mig", GPU_I_ID=str(i), exported_namespace="team", exported_pod=f"m-{i}")
    report = examined(cluster)
    assert faults(report) == {}
    assert rungs(report) == [(GR, "pod", Decimal("0.428571"))]


def test_slices_that_lost_their_pods(examined: Examine) -> None:
    report = examined(sliced(labelled=False))
    only(report, "pods of MIG devices", says="2 pods hold MIG slices, and no MIG device is labelled",
         change="dcgm-exporter: version 4.5.3 or later")  # fmt: skip
    assert rungs(report) == [(GR, "pod", Decimal(2)), (None, "none", Decimal("0.285714"))]


def test_an_unknown_profile(examined: Examine) -> None:
    only(examined(sliced("1g_99gb")), "MIG profiles", says="1g.99gb of NVIDIA-A100-SXM4-40GB", change="MIG_GPUS")


def test_neuron(examined: Examine) -> None:
    cluster = bare()
    own = {**LABELS, "node_kubernetes_io_instance_type": "inf2.xlarge"}
    cluster.node("inf", capacity={"aws_amazon_com_neuron": 1, "aws_amazon_com_neuroncore": 2}, labels=own)
    cluster.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
    pod(cluster, "infer", node="inf", resource="aws_amazon_com_neuroncore", units=2)
    report = examined(cluster)
    only(report, "Neuron", says="pods hold aws_amazon_com_neuroncore", change="neuron-monitor", status="missing")
    assert rungs(report) == [(None, "none", Decimal(1))]
    cluster.add(
        "neuroncore_utilization_ratio", value=0.4, instance_id="i-inf", neuroncore="0", job="neuron", instance="x"
    )
    assert named(examined(cluster), "Neuron").status == "found"


def test_a_cluster_whose_gpus_are_all_held_through_dra_is_possible(examined: Examine) -> None:
    claim = {"namespace": "team", "pod": "d-0", "uid": "uid-d-0", "claim_name": "gpu", "resourceclaim_name": "c"}
    cluster = healthy().without("kube_pod_container_resource_requests")
    cluster.add("kube_pod_resourceclaim_info", **claim, **KSM)
    report = examined(cluster)
    assert report.possible
    assert named(report, "kube_pod_container_resource_requests").status == "not needed"


def test_a_pod_object_that_outlived_its_node_holds_nothing(examined: Examine) -> None:
    cluster = healthy()
    pod(cluster, "left-behind", node="reclaimed")
    report = examined(cluster)
    assert faults(report) == {}
    assert rungs(report) == [(GR, "pod", Decimal(2))]


def test_every_family_that_attribution_asks_for_is_in_the_catalogue() -> None:
    asked = set(re.findall(r'"(kube_[a-z_]+)"', Path(queries.__file__).read_text()))
    assert len(asked) > 10
    assert asked <= set(KUBE_METRICS)


def test_claims_through_dra(examined: Examine) -> None:
    claim = {"namespace": "team", "pod": "d-0", "uid": "uid-d-0", "claim_name": "gpu", "resourceclaim_name": "c"}
    cluster = healthy()
    small = {**LABELS, "node_kubernetes_io_instance_type": "g5.xlarge"}
    cluster.node("dra", labels=small)
    cluster.exporter_up("dra")
    cluster.device(0.5, node="dra")
    cluster.add("kube_pod_resourceclaim_info", **claim, **KSM)
    only(
        examined(cluster),
        "DRA claims",
        says="GPU nodes advertise no GPUs (dra)",
        change="env KUBERNETES_ENABLE_DRA=true",
    )

    told = healthy()
    told.node("dra", labels=small)
    told.exporter_up("dra")
    told.device(0.5, node="dra", dra_claim_name="c", dra_claim_namespace="team")
    only(examined(told), "kube_pod_resourceclaim_info", says="through DRA claims are not seen",
         change="version 2.20 or later", status="missing")  # fmt: skip


# Through the command line


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    return str(path)


def test_json_of_the_command_line(tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    url = prometheus(healthy().text())
    done = gpucost("doctor", "--settings", write(tmp_path, document(url)), "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    (cluster,) = json.loads(done.stdout)["clusters"]
    assert (cluster["cluster"], cluster["possible"]) == ("demo", True)
    assert cluster["utilization"] == [{"signal": GR, "rung": "pod", "gpus": 2}]
    checks = {check["name"]: check for check in cluster["checks"]}
    assert checks["kube_node_info"] == {
        "name": "kube_node_info",
        "metric": "kube_node_info",
        "status": "found",
        "severity": "recommended",
        "series": 1,
        "scrape_interval_seconds": 60,
        "finding": None,
        "change": None,
    }


def test_the_table_of_the_command_line(tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    path = write(tmp_path, document(prometheus(healthy().text())))
    done = gpucost("doctor", "--settings", path, COLUMNS="140")
    assert (done.returncode, done.stderr) == (0, "")
    assert "demo: attribution is possible" in done.stdout
    assert "nothing to change" in done.stdout
    assert re.search(r"kube_pod_status_phase +found +recommended +\d+ +60 s", done.stdout)

    url = prometheus(shared().text())
    done = gpucost("doctor", "--settings", write(tmp_path, document(url)), COLUMNS="140")
    assert done.returncode == 0
    assert "→ dcgm-exporter, version 4.1.1 or later: env KUBERNETES_VIRTUAL_GPUS=true" in done.stdout


def test_one_cluster_of_two_is_impossible(tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    good, bad = prometheus(healthy().text()), f"http://127.0.0.1:{free_port()}"
    two = f'[{{name: good, prometheus: {{url: "{good}"}}}}, {{name: bad, prometheus: {{url: "{bad}"}}}}]'
    done = gpucost("doctor", "--settings", write(tmp_path, document("", clusters=two)), "--format", "json")
    assert done.returncode == 1
    assert [one["possible"] for one in json.loads(done.stdout)["clusters"]] == [True, False]
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("gpucost: attribution is impossible: cluster bad: ")
    assert "could not be reached" in done.stderr
    assert "good" not in done.stderr


def test_an_empty_prometheus_is_status_1(tmp_path: Path, prometheus: Callable[[str], str]) -> None:
    done = gpucost("doctor", "--settings", write(tmp_path, document(prometheus(Recent().text()))), COLUMNS="140")
    assert done.returncode == 1
    assert "demo: attribution is impossible" in done.stdout
    assert len(done.stderr.splitlines()) == 1
    assert "no series of kube-state-metrics are there" in done.stderr


@pytest.mark.parametrize(
    ("text", "arguments", "says"),
    [
        ("clusters: []", [], "clusters"),
        (document("http://x"), ["--format", "csv"], "'table', 'json'"),
        (None, [], "cannot be read"),
    ],
)
def test_bad_input_is_status_2(tmp_path: Path, text: str | None, arguments: list[str], says: str) -> None:
    path = write(tmp_path, text) if text is not None else "/nowhere"
    done = gpucost("doctor", "--settings", path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert says in done.stderr
