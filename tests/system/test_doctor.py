"""`gpucost doctor` against a real Prometheus: each fault of a source and the resulting finding."""

import re
from collections.abc import Callable
from decimal import Decimal

import pytest

from gpucost.core.metering.energy import ENERGY_COUNTER
from gpucost.core.metering.kubernetes_labels import NODE_LABELS
from gpucost_cli.doctor.labels import RequiredLabels, allow_list_flag
from gpucost_devstack.template import REPOSITORY
from tests.prometheus_clients import SentQuery, recording_client
from tests.system.doctor_cluster import KSM, Recent, bare, healthy, pod
from tests.system.doctor_findings import GR, Examine, faults, named, only, sources

NODES = "--metric-labels-allowlist=nodes=[node.kubernetes.io/instance-type,"


def test_doctor_sends_few_queries_without_long_ranges(examined: Examine) -> None:
    queries: list[SentQuery] = []
    examined(healthy(3), client=recording_client(queries))
    sent = [form["query"] for _, form in queries]
    assert len(sent) <= 15
    assert not [query for query in sent if "_over_time" in query]
    assert [query[:3] for query in sent if re.search(r"\[\d+ms\]$", query)] == ["up{"]


def test_healthy_cluster_has_no_findings(examined: Examine) -> None:
    report = examined(healthy(2))
    assert report.possible
    assert [check.finding for check in report.checks if check.finding and check.metric != ENERGY_COUNTER] == []
    assert {check.status for check in report.checks} == {"found", "not needed"}
    assert named(report, "kube_node_info").series == 2
    assert named(report, "kube_pod_container_resource_requests").series == 4
    assert named(report, "utilization signal").series == 8
    assert named(report, "kube_pod_status_phase").scrape_interval_seconds == 60
    assert sources(report) == [(GR, "pod", Decimal(4))]


def test_empty_prometheus_makes_attribution_impossible(examined: Examine) -> None:
    report = examined(Recent())
    assert not report.possible
    assert report.first_problem.startswith("there are no series of kube-state-metrics")
    assert faults(report).keys() == {"kube-state-metrics", "utilization signal"}
    assert "it is unknown which pods hold GPUs" in (faults(report)["kube-state-metrics"].finding or "")
    change = faults(report)["kube-state-metrics"].change or ""
    assert "regex: up|kube_pod_" in change
    assert "gpucost manifests render --for prometheus --settings settings.yaml --out manifests && " in change
    assert "-f manifests/helm/kube-state-metrics.yaml" in change
    assert "-f manifests/helm/dcgm-exporter.yaml" in (faults(report)["utilization signal"].change or "")
    assert named(report, "node label node.kubernetes.io/instance-type").status == "unknown"


def test_pages_show_the_findings_of_an_empty_workspace(examined: Examine) -> None:
    findings = "\n".join(f"{check.severity}: {check.finding}" for check in faults(examined(Recent())).values())
    for page in ("kube-prometheus-stack", "amp-scraper", "opentelemetry"):
        assert findings in (REPOSITORY / "docs" / "how-to" / "clusters" / f"{page}.md").read_text()


def test_missing_requests_make_attribution_impossible(examined: Examine) -> None:
    report = examined(healthy().without("kube_pod_container_resource_requests"))
    assert not report.possible
    check = faults(report)["kube_pod_container_resource_requests"]
    assert (check.status, check.severity, check.series) == ("missing", "required", 0)
    assert "--metric-allowlist=…,kube_pod_container_resource_requests" in (check.change or "")


def test_cluster_without_gpu_requests_has_no_faults(examined: Examine) -> None:
    cluster = bare()
    cluster.node("cpu", labels={"node_kubernetes_io_instance_type": "m5.large"}, capacity={"cpu": 4})
    pod(cluster, "web", node="cpu", resource="cpu")
    cluster.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
    report = examined(cluster)
    assert report.possible
    assert faults(report) == {}
    assert "no pod on a node requests a GPU" in (named(report, "GPU requests").finding or "")
    assert named(report, "utilization signal").status == "not needed"
    assert named(report, "node label nvidia.com/gpu.product").status == "not needed"


@pytest.mark.parametrize(
    ("metric", "severity", "says"),
    [
        ("kube_pod_status_phase", "recommended", "pods that pull their image count as running"),
        ("kube_pod_owner", "recommended", "not the workloads"),
        ("kube_replicaset_owner", "recommended", "Deployments appear as their ReplicaSets"),
        ("kube_pod_status_scheduled_time", "optional", "the start of a pod in a scrape gap"),
        ("kube_node_info", "recommended", "replaced by one of the same name"),
        ("kube_node_status_capacity", "recommended", "unallocated GPUs"),
        ("kube_node_status_allocatable", "recommended", "unhealthy GPUs"),
    ],
)
def test_missing_metric_is_a_finding(examined: Examine, metric: str, severity: str, says: str) -> None:
    report = examined(healthy().without(metric))
    assert report.possible
    check = faults(report)[metric]
    assert (check.status, check.severity, check.series) == ("missing", severity, 0)
    assert says in (check.finding or "")
    assert f"kube-state-metrics: --resources=…,{'nodes' if 'node' in metric else metric.split('_')[1]}" in (
        check.change or ""
    )
    assert f"--metric-allowlist=…,{metric}" in (check.change or "")


def test_finished_jobs_need_job_owners_and_completion_times(examined: Examine) -> None:
    cluster = healthy()
    cluster.pod("train", finished_at=10, node="n1")
    cluster.owned("train", "Job", "train")
    findings = faults(examined(cluster))
    assert set(findings) == {"kube_job_owner", "kube_pod_completion_time"}
    assert findings["kube_pod_completion_time"].severity == "optional"


def test_missing_labels_of_the_settings_are_findings(examined: Examine) -> None:
    more = (
        "business_units:\n- {name: a, namespace_labels: {team: a}}\n"
        "- {name: b, pod_labels: {app.kubernetes.io/part-of: b}}\n"
        "cost_labels: [costCenter]\n"
    )
    cluster = healthy()
    cluster.add("kube_pod_labels", namespace="team", pod="n1-a0", uid="uid-n1-a0", label_cost_center="7", **KSM)
    report = examined(cluster, more)
    allow_list = "namespaces=[team,resource.kubernetes.io/admin-access],pods=[app.kubernetes.io/part-of,costCenter]"
    findings = faults(report)
    assert set(findings) == {"kube_namespace_labels", "pod label app.kubernetes.io/part-of"}
    assert NODES in (findings["kube_namespace_labels"].change or "")
    assert all((check.change or "").endswith(allow_list) for check in findings.values())
    assert (named(report, "pod label costCenter").status, named(report, "pod label costCenter").series) == ("found", 1)
    assert named(report, "namespace label team").status == "missing"


def test_units_without_pods_are_noted(examined: Examine) -> None:
    name = "namespaces of business units"
    units = "business_units: [{name: a, namespaces: ['team*']}, {name: research, namespaces: ['research-.*', b]}]\n"
    report = examined(healthy(), more=units)
    check = named(report, name)
    assert (check.status, check.change) == ("unknown", None)
    assert "no pod with GPUs is in the namespaces of the business units research (research-.*, b)." in str(
        check.finding
    )
    assert faults(report) == {}
    from_2031 = units.replace("name: research", "name: research, from: 2031-01-01")
    assert name not in {check.name for check in examined(healthy(), more=from_2031).checks}


def test_allow_list_contains_only_required_kinds_of_objects() -> None:
    flag = allow_list_flag(RequiredLabels((), ()), NODE_LABELS)
    assert flag.startswith(NODES)
    assert flag.endswith(",namespaces=[resource.kubernetes.io/admin-access]")
    assert "pods=" not in flag
    assert flag.count("[") == 2


def test_missing_node_labels_are_findings(examined: Examine) -> None:
    findings = faults(examined(healthy().without("kube_node_labels")))
    assert "other metrics stand in for their instance type" in (findings["kube_node_labels"].finding or "")
    assert not [name for name in findings if name.startswith("node label")]
    assert all(NODES in (check.change or "") for check in findings.values())


def test_node_label_missing_on_some_nodes_is_a_finding(examined: Examine) -> None:
    cluster = healthy(2).edited(
        "kube_node_labels",
        lambda line: re.sub(r'label_karpenter_sh_capacity_type="[^"]*",?', "", line) if '"n2"' in line else line,
    )
    check = only(
        examined(cluster),
        "node label karpenter.sh/capacity-type or eks.amazonaws.com/capacityType",
        says="1 of 2 GPU nodes have no label for the capacity type (n2)",
        change=NODES,
        status="missing",
    )
    assert check.series == 1


def test_without_up_the_scrape_interval_comes_from_another_series(examined: Examine) -> None:
    report = examined(healthy().without("up"))
    findings = faults(report)
    assert set(findings) == {"up of kube-state-metrics", "up of GPU exporter"}
    assert all("regex: up|…" in (check.change or "") for check in findings.values())
    assert named(report, "kube_node_info").scrape_interval_seconds == 60
    assert named(report, "utilization signal").scrape_interval_seconds == 60


def test_different_and_long_scrape_intervals_are_findings(examined: Examine) -> None:
    slow = healthy(2)
    slow.edited("up", lambda line: "" if "n2" in line else line)
    other = Recent(step=120)
    other.exporter_up("n2")
    slow.families["up"] += other.families["up"]
    check = named(examined(slow), "scrape interval of GPU exporter")
    assert check.scrape_interval_seconds == 120
    assert "60 to 120 s (n2:9400)" in (check.finding or "")

    coarse = Recent(step=240)
    coarse.up()
    late = healthy().edited("up", lambda line: "" if "kube-state" in line else line)
    late.families["up"] += coarse.families["up"]
    only(examined(late), "scrape interval of kube-state-metrics", says="every 240 s", change="interval: 60s")


def _also_from(cluster: Recent, instance: str, keep: Callable[[str], bool] = lambda _: True) -> Recent:
    """Add a second instance of kube-state-metrics."""
    for metric, lines in cluster.families.items():
        lines_of_first = [line for line in lines if "10.0.0.1:8080" in line]
        copies = [line.replace("10.0.0.1:8080", instance) for line in lines_of_first if keep(line)]
        cluster.families[metric] = lines + copies
    return cluster


def test_replicas_and_shards_of_kube_state_metrics_are_distinguished(examined: Examine) -> None:
    pair = examined(_also_from(healthy(), "10.0.0.2:8080"))
    check = named(pair, "kube-state-metrics")
    assert (check.status, check.series) == ("found", 2)
    assert "2 instances are scraped, and report the same objects (high availability)" in (check.finding or "")
    assert faults(pair) == {}
    assert sources(pair) == [(GR, "pod", Decimal(2))]

    split = healthy(2)
    for metric, lines in split.families.items():
        split.families[metric] = [
            line.replace("10.0.0.1:8080", "10.0.0.2:8080") if '"n2' in line or "uid-n2" in line else line
            for line in lines
        ]
    shards = examined(split)
    assert "each reports its own objects (shards)" in (named(shards, "kube-state-metrics").finding or "")


def test_exporters_without_recent_series_are_findings(examined: Examine) -> None:
    cluster = healthy()
    middle = cluster.base.timestamp() + 1200
    for metric in cluster.families:
        cluster.edited(metric, lambda line: line if float(line.split()[-1]) < middle else "")
    check = only(
        examined(cluster),
        "kube-state-metrics now",
        says=f"the last samples of kube-state-metrics are from {cluster.base:%Y-%m-%dT%H}:19:00Z",
        change="remote_write",
    )
    assert check.severity == "required"

    devices = healthy().edited(GR, lambda line: line if float(line.split()[-1]) < middle else "")
    only(examined(devices), "GPU exporter now", says="although GPU nodes exist", change="its targets")


def test_restarts_and_prometheus_replicas_are_counted_once(examined: Examine) -> None:
    before, after = healthy(), healthy()
    for metric, lines in _also_from(before, "10.0.0.2:8080").families.items():
        middle = after.base.timestamp() + 1800
        after.families[metric] = [
            line
            for line in lines
            if "10.0.0." not in line or (float(line.split()[-1]) < middle) == ("10.0.0.1" in line)
        ]
    check = named(examined(after), "kube-state-metrics")
    assert "2 instances are scraped, one after the other" in (check.finding or "")

    twice = healthy()
    for metric, lines in twice.families.items():
        twice.families[metric] = [line.replace("{", f'{{prometheus_replica="{i}",') for i in range(2) for line in lines]
    report = examined(twice)
    check = named(report, "kube-state-metrics")
    assert (check.series, check.finding) == (1, "2 Prometheus replicas write its series: counted once")
    assert faults(report) == {}
    assert sources(report) == [(GR, "pod", Decimal(2))]


def test_exported_labels_of_kube_state_metrics_are_read(examined: Examine) -> None:
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
    assert sources(report) == [(GR, "pod", Decimal(2))]


def test_pods_on_unreported_nodes_are_a_finding(examined: Examine) -> None:
    cluster = healthy(2)
    for metric in ("kube_node_info", "kube_node_status_capacity", "kube_node_status_allocatable", "kube_node_labels"):
        cluster.edited(metric, lambda line: "" if '"n2"' in line else line)
    report = examined(cluster)
    check = named(report, "nodes of pods", "kube_node_info")
    assert "on nodes without kube_node_info (n2)" in (check.finding or "")
    assert "--resources=…,nodes in every shard" in (check.change or "")


def test_requests_without_uid_or_with_unknown_resources_are_findings(examined: Examine) -> None:
    cluster = healthy().edited("kube_pod_container_resource_requests", lambda line: re.sub(r'uid="[^"]*",?', "", line))
    assert "version 2.0 or later" in (faults(examined(cluster))["uid of pods"].change or "")

    other = healthy()
    other.pod("odd", resource="nvidia_com_hopper")
    check = faults(examined(other))["unknown nvidia_com_hopper"]
    assert "1 requested units of nvidia_com_hopper on n1" in (check.finding or "")
    assert "units: {nvidia_com_hopper: N}" in (check.change or "")


def test_several_clusters_without_selector_are_a_finding(examined: Examine) -> None:
    both = healthy(cluster="east")
    for metric, lines in healthy(cluster="west").families.items():
        both.families[metric] += lines
    report = examined(both)
    assert report.attribution == "wrong"
    check = only(
        report,
        "one cluster",
        says="series of 2 clusters are counted as one: cluster is east, west",
        change="settings, cluster demo: selector: {cluster: …}, with one of these",
    )
    assert check.severity == "required"
    chosen = examined(both, selector="cluster: west")
    assert faults(chosen) == {}
    assert named(chosen, "selector").status == "found"
    assert sources(chosen) == [(GR, "pod", Decimal(2))]


@pytest.mark.parametrize("label", ["k8s_cluster_name", "clusterName", "fleetCluster"])
def test_clusters_under_another_label_are_a_finding(examined: Examine, label: str) -> None:
    """Both have a node of the same name."""
    both = healthy(cluster="east")
    for metric, lines in healthy(cluster="west").families.items():
        both.families[metric] += lines
    for metric in both.families:
        both.edited(metric, lambda line: line.replace("{cluster=", f"{{{label}="))
    only(examined(both), "one cluster", says=f"{label} is east, west", change=f"selector: {{{label}: …}}")


def test_label_that_divides_nodes_like_clusters_is_a_finding(examined: Examine) -> None:
    cluster = healthy(2)
    cluster.edited("kube_node_info", lambda line: re.sub('node="n(.)"', r'node="n\1",env="env-\1"', line))
    check = faults(examined(cluster))["unknown env"]
    assert "2 values of a label that divides the nodes like clusters: env" in (check.finding or "")
    assert "set selector to one of them (env-1, env-2)" in (check.change or "")


def test_selector_without_series_is_a_finding(examined: Examine) -> None:
    report = examined(healthy(cluster="east"), selector="cluster: est")
    assert not report.possible
    assert (
        'the selector {cluster: "est"} matches no series of kube_pod_container_resource_requests'
        in report.first_problem
    )
    only(report, "selector", says="cluster is east", change='selector: {cluster: "east"}', status="missing")


def test_selector_without_series_is_the_finding_where_samples_have_ended(examined: Examine) -> None:
    cluster = healthy(cluster="east")
    middle = cluster.base.timestamp() + 1200
    for metric in cluster.families:
        cluster.edited(metric, lambda line: line if float(line.split()[-1]) < middle else "")
    report = examined(cluster, selector="cluster: est")
    only(report, "selector", says="cluster is east", change='selector: {cluster: "east"}', status="missing")


def test_gpu_exporter_without_the_selectors_label_is_a_finding(examined: Examine) -> None:
    cluster = healthy(cluster="east").edited(GR, lambda line: line.replace('cluster="east",', ""))
    findings = faults(examined(cluster, selector="cluster: east"))
    assert 'external_labels: {cluster: "east"}' in (findings["selector"].change or "")
    assert findings["selector"].severity == "recommended"
