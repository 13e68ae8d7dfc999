"""The rules that `gpucost rules` writes, run by Prometheus' own rule engine against figures found by hand."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gpucost.settings_document import parse_settings
from gpucost_cli.main import main
from gpucost_cli.rules import documents
from gpucost_cli.rules.promql import glob_to_regex
from tests.dashboards import promtool, small_cluster
from tests.dashboards.promtool import expectation
from tests.dashboards.small_cluster import SETTINGS, UNITS

NOW = datetime(2026, 11, 20, tzinfo=UTC)
SLICE, BIG = 1 / 7, 7 / 15
"""A 1g.10gb of an H100; a 3g.20gb where 3g+2g+1g+1g, 15/14 of a GPU, share one."""


def groups(text: str = SETTINGS + UNITS, *, alerts: bool = False) -> Sequence[Mapping[str, Any]]:
    settings = parse_settings(text)
    more = documents.alerting_groups(include_template=True) if alerts else ()
    return [*documents.recording_groups(settings, settings.clusters, NOW), *more]


def of(**labels: str) -> dict[str, str]:
    return {"cluster": "c", **labels}


def parts(level: str, minute: int, rows: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Every part of every row of a level, and no others."""
    samples = [
        (of(**({level: name} if name else {}), part=part), gpus)
        for name, own in rows.items()
        for part, gpus in own.items()
    ]
    return expectation(f"sum by (cluster, {level}, part) ({level}:gpucost_gpus:sum)", minute, *samples)


def test_gpus_by_business_unit(tmp_path: Path) -> None:
    """At minute 8: two units by the settings' patterns, and namespaces that are in none."""
    # bu-a: a slice, 0.6 busy, and a quarter of a GPU that two make 0.3 busy: 0.15 each
    effective = 0.6 * SLICE + 0.15 + 0.5 + 0.9
    research = {"effective": effective, "waste": 0.4 * SLICE + 0.1 + 0.6, "unmeasured": BIG}
    lone = {"effective": 0.02 + 0.15, "waste": 0.98 + 0.1, "unmeasured": 0}
    found = promtool.run(tmp_path, groups(), small_cluster.all_series(), [
        parts("business_unit", 8, {"research": research, "lone": lone}),
        expectation("business_unit:gpucost_allocated_gpus:sum", 8,
                    (of(business_unit="research"), SLICE + 0.25 + 2 + BIG), (of(business_unit="lone"), 1.25)),
        expectation("business_unit:gpucost_utilization:ratio", 8,
                    (of(business_unit="research"), effective / (SLICE + 0.25 + 2)),
                    (of(business_unit="lone"), 0.17 / 1.25)),
    ])  # fmt: skip
    assert found == ""


def test_a_pod_that_starts_ends_or_waits(tmp_path: Path) -> None:
    """Who pulls an image holds GPUs and uses none; who is deleted holds none at the next evaluation."""
    a = of(business_unit="research", namespace="bu-a", node="mig-1", node_pool="mig", pod="a", uid="uid-a")
    idle = of(business_unit="lone", namespace="lone", node="whole-1", node_pool="whole", pod="idle", uid="uid-idle")
    found = promtool.run(tmp_path, groups(), small_cluster.all_series(), [
        expectation('pod:gpucost_gpus{pod="a"}', 9, ({**a, "part": "effective"}, 0.6 * SLICE),
                    ({**a, "part": "waste"}, 0.4 * SLICE), ({**a, "part": "unmeasured"}, 0)),
        expectation('pod:gpucost_gpus{pod="a"}', 10),
        expectation('pod:gpucost_gpus{pod="idle"}', 3, ({**idle, "part": "waste"}, 1)),
        expectation('pod:gpucost_gpus{pod="idle"}', 6, ({**idle, "part": "effective"}, 0.02),
                    ({**idle, "part": "waste"}, 0.98), ({**idle, "part": "unmeasured"}, 0)),
        expectation('pod:gpucost_utilization:ratio{pod="idle"}', 3),
        *(expectation(f'pod:gpucost_allocated_gpus{{pod="{pod}"}}', 8) for pod in ("job", "later", "r")),
        expectation("count(count by (pod) (pod:gpucost_allocated_gpus))", 8, ({}, 6)),
    ])  # fmt: skip
    assert found == ""


def test_pools_and_clusters_sum_up_to_their_gpus(tmp_path: Path) -> None:
    """Every physical GPU is in exactly one part; a pair of kube-state-metrics doubles nothing."""
    pools = {
        "mig": {"effective": 0.6 * SLICE, "waste": 0.4 * SLICE, "unmeasured": 0, "unallocated": 6 * SLICE,
                "stranded": 0},
        "whole": {"effective": 1.42, "waste": 1.58, "unmeasured": 0, "unallocated": 1, "stranded": 0},
        "shared": {"effective": 0.3, "waste": 0.2, "unmeasured": 0, "unallocated": 0.5, "stranded": 0},
        "mixed": {"unmeasured": BIG, "waste": 0, "unallocated": 1 - BIG, "stranded": 0},
        "empty": {"unallocated": 6 * SLICE, "stranded": SLICE},
    }  # fmt: skip
    fleet = {
        part: sum(own.get(part, 0) for own in pools.values())
        for part in ("effective", "waste", "unmeasured", "unallocated", "stranded")
    }
    assert sum(fleet.values()) == pytest.approx(8)
    later = {**pools["whole"], "unallocated": 0, "stranded": 1}
    found = promtool.run(tmp_path, groups(), small_cluster.all_series(), [
        parts("node_pool", 8, pools),
        expectation("cluster:gpucost_gpus:sum", 8, *((of(part=part), gpus) for part, gpus in fleet.items())),
        expectation("cluster:gpucost_capacity_gpus:sum", 8, (of(), 8)),
        expectation("sum(cluster:gpucost_gpus:sum) - sum(cluster:gpucost_capacity_gpus:sum)", 12, ({}, 0)),
        expectation("node_pool:gpucost_capacity_gpus:sum", 8, *(
            (of(node_pool=pool), gpus) for pool, gpus in
            (("mig", 1), ("whole", 4), ("shared", 1), ("mixed", 1), ("empty", 1)))),
        expectation('node_pool:gpucost_gpus:sum{node_pool="whole"}', 12, *(
            (of(node_pool="whole", part=part), gpus) for part, gpus in later.items())),
    ])  # fmt: skip
    assert found == ""


def test_use_by_any_exporter(tmp_path: Path) -> None:
    """Names and labels of old and new exporters, percent where nothing better is told, and honoured labels."""
    pods = {"old": "n0", "new": "n1", "percent": "n2", "honoured": "n3", "slice": "n4", "above": "n5"}
    ksm, dcgm = _small(pods), []
    for metric, labels, value in (
        ("dcgm_fi_prof_gr_engine_active",
         {"uuid": "0", "Hostname": "n0", "pod_namespace": "ns", "pod_name": "old"}, 0.1),
        ("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", {"UUID": "1", "hostname": "n1", "namespace": "ns", "pod": "new"}, 0.2),
        ("DCGM_FI_DEV_GPU_UTIL", {"UUID": "2", "Hostname": "n2", "namespace": "ns", "pod": "percent"}, 30),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", {"UUID": "3", "Hostname": "n3", "namespace": "ns", "pod": "honoured"}, 0.4),
        ("DCGM_FI_DEV_GPU_UTIL", {"UUID": "3", "Hostname": "n3", "namespace": "ns", "pod": "honoured"}, 99),
        ("DCGM_FI_DEV_GPU_UTIL",
         {"UUID": "4", "GPU_I_ID": "1", "Hostname": "n4", "namespace": "ns", "pod": "slice"}, 0),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE",
         {"UUID": "5", "Hostname": "exporter-pod", "node": "n5", "namespace": "ns", "pod": "above"}, 1.2),
    ):  # fmt: skip
        dcgm.append(promtool.series(metric, {"cluster": "c", **labels}, f"{value}x10"))
    found = promtool.run(tmp_path, groups(), [*ksm, *dcgm], [
        expectation("sum by (pod) (pod:gpucost_effective_gpus)", 5, *(
            ({"pod": pod}, gpus) for pod, gpus in
            {"old": 0.1, "new": 0.2, "percent": 0.3, "honoured": 0.4, "above": 1}.items())),
        expectation("sum by (pod) (pod:gpucost_unmeasured_gpus > 0)", 5, ({"pod": "slice"}, 1)),
        expectation("node:gpucost_unallocated_gpus", 5, *((of(node=node), 7) for node in pods.values())),
    ])  # fmt: skip
    assert found == ""


def _small(pods: Mapping[str, str], resource: str = "nvidia_com_gpu", **more: str) -> list[dict[str, str]]:
    """Pods with a unit each, on nodes of eight GPUs."""
    own = {"cluster": "c", "job": "kube-state-metrics"}
    found = []
    for pod, node in pods.items():
        labels = {"namespace": "ns", "pod": pod, "uid": pod, **own}
        unit = {"resource": resource, "unit": "integer", "node": node}
        found += [
            promtool.series("kube_pod_container_resource_requests", {**labels, **unit, "container": "x"}, "1x10"),
            promtool.series("kube_pod_status_phase", {**labels, "phase": "Running"}, "1x10"),
            promtool.series("kube_node_info", {"node": node, **own}, "1x10"),
            promtool.series("kube_node_labels", {"node": node, **more, **own}, "1x10"),
            promtool.series("kube_node_status_capacity", {**unit, **own}, "8x10"),
            promtool.series("kube_node_status_allocatable", {**unit, **own}, "8x10"),
        ]
    return found


SHARES = (
    ("NVIDIA-A100-SXM4-40GB", "nvidia_com_mig_1g_10gb", 1 / 4),
    ("NVIDIA-A100-SXM4-80GB", "nvidia_com_mig_1g_10gb", 1 / 7),
    ("NVIDIA-H200", "nvidia_com_mig_1g_18gb_me", 1 / 7),
    ("NVIDIA-H100-80GB-HBM3", "nvidia_com_mig_7g_80gb", 1),
    ("NVIDIA-X1000", "nvidia_com_mig_2g_999gb", 2 / 7),
    ("NVIDIA-A30-MIG-2g.12gb", "nvidia_com_gpu", 1 / 2),
    ("NVIDIA-GH200-480GB-MIG-1g.24gb", "nvidia_com_gpu", 1 / 4),
    ("NVIDIA-A10G-SHARED", "nvidia_com_gpu", 1 / 2),
    ("NVIDIA-A10G", "nvidia_com_gpu_shared", 1 / 2),
    ("", "aws_amazon_com_neuroncore", 1 / 2),
)
"""Product labels, resources, and the share of a physical GPU that a unit is."""


def test_shares(tmp_path: Path) -> None:
    """What one unit is, where eight are advertised of four GPUs, or of sixteen Neuron devices."""
    given, units, held = [], [], []
    for place, (product, resource, share) in enumerate(SHARES):
        kind = "trn1.32xlarge" if "neuron" in resource else "g5.12xlarge"
        labels = {"label_nvidia_com_gpu_product": product, "label_node_kubernetes_io_instance_type": kind}
        given += _small({f"p{place}": f"n{place}"}, resource, **labels)
        units.append((of(node=f"n{place}", resource=resource), share))
        # Units of more than four GPUs in all are scaled down to four.
        held.append(({"pod": f"p{place}"}, min(share, 4 / 8)))
    found = promtool.run(tmp_path, groups(), given, [
        expectation("node_resource:gpucost_nominal_unit_gpus", 2, *units),
        expectation("sum by (pod) (pod:gpucost_allocated_gpus)", 2, *held),
    ])  # fmt: skip
    assert found == ""


def test_requests_are_counted_as_the_scheduler_counts_them(tmp_path: Path) -> None:
    """The sum of containers, or the largest init container; a newer set of labels replaces an older one."""
    own = {"cluster": "c", "namespace": "ns", "pod": "p", "uid": "p", "node": "n", "resource": "nvidia_com_gpu"}
    own_node = {"cluster": "c", "node": "n"}
    more = [
        promtool.series("kube_pod_container_resource_requests", {**own, "container": "y", "unit": "integer"}, "2x10"),
        promtool.series("kube_pod_init_container_resource_requests", {**own, "container": "i"}, "4x4 2x10"),
        # Without a marker of its end the old set is seen on for five minutes.
        promtool.series("kube_node_labels", {**own_node, "label_karpenter_sh_nodepool": "new"}, "_x3 1x10"),
        promtool.series("kube_node_labels", {**own_node, "label_karpenter_sh_nodepool": "old"}, "1x3 _x10"),
    ]
    without_labels = [one for one in _small({"p": "n"}) if not one["series"].startswith("kube_node_labels")]
    found = promtool.run(tmp_path, groups(), [*without_labels, *more], [
        expectation("sum by (node_pool) (pod:gpucost_allocated_gpus)", 3, ({"node_pool": "old"}, 4)),
        expectation("sum by (node_pool) (pod:gpucost_allocated_gpus)", 6, ({"node_pool": "new"}, 3)),
    ])  # fmt: skip
    assert found == ""


BY_LABELS = """business_units:
  - {name: first, namespaces: ["a*"], from: 2026-12-01}
  - {name: 'the $1 "best"', namespaces: ["a?"], namespace_labels: {example.com/Team: x}}
  - {name: second, namespaces: ["[!b-z]*"]}
  - {name: pods, pod_labels: {app: p}, distribute: even}
"""


@pytest.mark.parametrize("of_pods", [False, True])
def test_owners(of_pods: bool, tmp_path: Path) -> None:
    """The first unit in force that matches, by patterns and labels; a namespace that nothing matches is its own."""
    text = SETTINGS + (BY_LABELS if of_pods else BY_LABELS.rpartition("  -")[0])
    expected = {"aa": 'the $1 "best"', "aaa": "second", "b": "b", "labelled": 'the $1 "best"', "A": "second"}
    expected["withpod"] = "pods" if of_pods else "withpod"
    told = [promtool.series("kube_namespace_labels", {"cluster": "c", "namespace": "labelled",
                            "label_example_com_team": "x"}, "1x10"),
            promtool.series("kube_pod_labels", {"cluster": "c", "namespace": "withpod", "pod": "p",
                            "label_app": "p"}, "1x10")]  # fmt: skip
    for namespace in expected:
        told += [
            {**one, "series": one["series"].replace('namespace="ns"', f'namespace="{namespace}"')}
            for one in _small({"p": "n"})
            if namespace == "aa" or "namespace=" in one["series"]
        ]
    units: dict[str, int] = {}
    for unit in expected.values():
        units[unit] = units.get(unit, 0) + 1
    found = promtool.run(tmp_path, groups(text), told, [
        expectation("business_unit:gpucost_allocated_gpus:sum", 5, *(
            (of(business_unit=unit.replace('"', '\\"')), count) for unit, count in units.items())),
        expectation("count by (business_unit, namespace) (pod:gpucost_allocated_gpus)", 5, *(
            ({"business_unit": unit.replace('"', '\\"'), "namespace": namespace}, 1)
            for namespace, unit in expected.items())),
    ])  # fmt: skip
    assert found == ""


def test_gpus_that_idle_are_told(tmp_path: Path) -> None:
    """Two of three pods use less than a tenth for half an hour, and that for an hour; of one nobody knows the use."""
    recorded = []
    for pod, use in (("idle", "0.2x10 0.02x100"), ("nearly", "0.05x110"), ("busy", "0.2x110"), ("unknown", "_x110")):
        own = of(business_unit="u", namespace="ns", pod=pod, uid=pod)
        recorded += [promtool.series("pod:gpucost_utilization:ratio", own, use),
                     promtool.series("pod:gpucost_allocated_gpus", own, "2x110")]  # fmt: skip

    def alert(gpus: int) -> dict[str, object]:
        labels = of(severity="info", gpucost="true", business_unit="u", namespace="ns")
        summary = f"{gpus} GPUs are held by pods that use less than 10% of them"
        return {"exp_labels": labels, "exp_annotations": {"summary": summary}}

    found = promtool.run(tmp_path, documents.alerting_groups(include_template=False), recorded, alerts=[
        {"eval_time": f"{minute}m", "alertname": "LowGPUUtilization", "exp_alerts": expected}
        for minute, expected in ((59, []), (61, [alert(4)]), (100, [alert(4)]))
    ])  # fmt: skip
    assert found == ""


def test_every_form_holds_the_same_rules(tmp_path: Path) -> None:
    """Prometheus takes them; AMP takes no more than twenty in a group; the template's alerts are the template's."""
    units = "".join(f"  - {{name: unit-{i}, namespaces: ['team-{i}-*']}}\n" for i in range(200))
    settings = parse_settings(SETTINGS + "business_units:\n" + units)
    recording = documents.recording_groups(settings, settings.clusters, NOW)
    some = [*recording, *documents.alerting_groups(include_template=True)]
    texts = {form: documents.render_groups(form, some) for form in documents.FORMATS}
    assert promtool.check(tmp_path, texts["prometheus"]) == ""
    read = {form: yaml.safe_load(text) for form, text in texts.items()}
    assert read["operator"]["kind"] == "PrometheusRule"
    rules = read["cloudformation"]["Resources"]["Rules"]["Properties"]
    assert read["prometheus"] == read["operator"]["spec"] == yaml.safe_load(rules["Data"])
    assert max(len(group["rules"]) for group in some) <= documents.MAX_RULES
    assert len(rules["Data"].encode()) < 1_000_000, "AMP's limit of a rule groups namespace"
    alerts = [rule["alert"] for group in some for rule in group["rules"] if "alert" in rule]
    assert alerts == ["LowGPUUtilization", "GPUNodePoolNearLimit", "GPUQuotaNearLimit", "KarpenterProvisioningFailed"]


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It says what rules leave out of the settings, and does not guess which workspace is meant."""
    path = tmp_path / "settings.yaml"

    def ask(text: str, *arguments: str) -> tuple[object, str, str]:
        path.write_text(text)
        status: object = 0
        try:
            main(["rules", "--settings", str(path), *arguments])
        except SystemExit as ended:
            status = ended.code
        return (status, *capsys.readouterr())

    more = "utilization: {sources: [pod, node]}\n" + BY_LABELS.replace("2026-12-01", "2999-12-01")
    status, text, notes = ask(SETTINGS + more)
    assert (status, promtool.check(tmp_path, text), len(notes.splitlines())) == (0, "", 4)
    for words in ("rungs node", "by shared", "'pods' keeps", "'first' changes at 2999-12-01T00:00:00Z"):
        assert words in notes
    two = SETTINGS.replace("clusters: [", "clusters: [{name: d, prometheus: {url: 'http://127.0.0.1:8'}}, ")
    status, text, sentence = ask(two)
    assert (status, text) == (2, "")
    assert "say --cluster, one of: d, c" in sentence
    status, text, _ = ask(two, "--cluster", "d", "--format", "cloudformation")
    assert 'cluster="d"' in text
    assert 'cluster="c"' not in text
    assert ask(two, "--cluster", "e")[0] == 2


@given(st.text("ab*?[]!-^\\.", max_size=8), st.text("ab*?[]!-^\\.", max_size=8))
@example("[?-.]", "-")
@example("[b-a]", "a")
@example("[!b-a]", "a")
@example("[a-b-]", "-")
@example("[--a]", "?")
def test_patterns_are_read_as_settings_read_them(pattern: str, namespace: str) -> None:
    assert (re.fullmatch(glob_to_regex(pattern), namespace) is not None) == fnmatchcase(namespace, pattern)
