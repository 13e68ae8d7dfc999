"""`gpucost doctor` against a real Prometheus: each fault of the sources planted, and the finding with its line."""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import pytest

from gpucost.core.metering.kubernetes_labels import NODE_LABELS
from gpucost.sources.prometheus.client import PrometheusClient
from gpucost_cli.doctor.labels import RequiredLabels, allow_list_flag
from tests.system.doctor_cluster import KSM, Recent, bare, healthy, pod
from tests.system.doctor_findings import GR, Examine, faults, named, only, rungs

NODES = "--metric-labels-allowlist=nodes=[node.kubernetes.io/instance-type,"


def test_a_handful_of_queries_that_read_little(examined: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    ask = PrometheusClient._send_query

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
    assert report.first_problem.startswith("no series of kube-state-metrics are there")
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


def test_allow_list_names_only_the_kinds_of_objects_that_are_needed() -> None:
    flag = allow_list_flag(RequiredLabels((), ()), NODE_LABELS)
    assert flag.startswith(NODES)
    assert "namespaces=" not in flag
    assert "pods=" not in flag
    assert flag.count("[") == 1


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
    assert report.attribution == "wrong"
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
    assert (
        'the selector {cluster: "est"} matches no series of kube_pod_container_resource_requests'
        in report.first_problem
    )
    only(report, "selector", says="cluster is east", change='selector: {cluster: "east"}', status="missing")


def test_a_selector_that_the_gpu_exporter_does_not_carry(examined: Examine) -> None:
    cluster = healthy(cluster="east").edited(GR, lambda line: line.replace('cluster="east",', ""))
    found = faults(examined(cluster, selector="cluster: east"))
    assert 'external_labels: {cluster: "east"}' in (found["selector"].change or "")
    assert found["selector"].severity == "recommended"
