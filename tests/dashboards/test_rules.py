"""The rules of `gpucost manifests rules`, run by Prometheus' rule engine and compared with hand-computed figures."""

import re
from collections.abc import Mapping
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
from tests.dashboards.small_cluster import NOW, SETTINGS, groups, of, small

SLICE, BIG = 1 / 7, 7 / 15
"""GPUs of a 1g.10gb of an H100, and of a 3g.20gb where 3g+2g+1g+1g (15/14 of a GPU) share one GPU."""


def parts(level: str, minute: int, rows: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Expect exactly these parts of the rows of a level."""
    samples = [
        (of(**({level: name} if name else {}), part=part), gpus)
        for name, gpus_by_part in rows.items()
        for part, gpus in gpus_by_part.items()
    ]
    return expectation(f"sum by (cluster, {level}, part) ({level}:gpucost_gpus:sum)", minute, *samples)


def test_gpus_by_business_unit(tmp_path: Path) -> None:
    """Two namespaces match a business unit of the settings, and the others match none."""
    # bu-a: a slice at 0.6, and a quarter of a GPU at 0.3 that two pods share: 0.15 each
    effective = 0.6 * SLICE + 0.15 + 0.5 + 0.9
    research = {"effective": effective, "waste": 0.4 * SLICE + 0.1 + 0.6, "unmeasured": BIG}
    unassigned = {"effective": 0.02 + 0.15, "waste": 0.98 + 0.1, "unmeasured": 0}
    output = promtool.run(
        tmp_path,
        groups(),
        small_cluster.all_series(),
        [
            parts("business_unit", 8, {"research": research, "lone": unassigned}),
            expectation(
                "business_unit:gpucost_allocated_gpus:sum",
                8,
                (of(business_unit="research"), SLICE + 0.25 + 2 + BIG),
                (of(business_unit="lone"), 1.25),
            ),
            expectation(
                "business_unit:gpucost_utilization:ratio",
                8,
                (of(business_unit="research"), effective / (SLICE + 0.25 + 2)),
                (of(business_unit="lone"), 0.17 / 1.25),
            ),
        ],
    )
    assert output == ""


def test_starting_deleted_and_pending_pods(tmp_path: Path) -> None:
    """A pod that pulls its image wastes its GPUs; a deleted pod holds none at the next evaluation."""
    a = of(business_unit="research", namespace="bu-a", node="mig-1", node_pool="mig", pod="a", uid="uid-a")
    idle = of(business_unit="lone", namespace="lone", node="whole-1", node_pool="whole", pod="idle", uid="uid-idle")
    output = promtool.run(
        tmp_path,
        groups(),
        small_cluster.all_series(),
        [
            expectation(
                'pod:gpucost_gpus{pod="a"}',
                9,
                ({**a, "part": "effective"}, 0.6 * SLICE),
                ({**a, "part": "waste"}, 0.4 * SLICE),
                ({**a, "part": "unmeasured"}, 0),
            ),
            expectation('pod:gpucost_gpus{pod="a"}', 10),
            expectation('pod:gpucost_gpus{pod="idle"}', 3, ({**idle, "part": "waste"}, 1)),
            expectation(
                'pod:gpucost_gpus{pod="idle"}',
                6,
                ({**idle, "part": "effective"}, 0.02),
                ({**idle, "part": "waste"}, 0.98),
                ({**idle, "part": "unmeasured"}, 0),
            ),
            expectation('pod:gpucost_utilization:ratio{pod="idle"}', 3),
            *(expectation(f'pod:gpucost_allocated_gpus{{pod="{pod}"}}', 8) for pod in ("job", "later", "r")),
            expectation("count(count by (pod) (pod:gpucost_allocated_gpus))", 8, ({}, 6)),
        ],
    )
    assert output == ""


def test_parts_of_pools_and_clusters_sum_to_their_gpus(tmp_path: Path) -> None:
    """Each physical GPU is in exactly one part, although two replicas of kube-state-metrics run."""
    pools = {
        "mig": {
            "effective": 0.6 * SLICE,
            "waste": 0.4 * SLICE,
            "unmeasured": 0,
            "unallocated": 6 * SLICE,
            "stranded": 0,
        },
        "whole": {"effective": 1.42, "waste": 1.58, "unmeasured": 0, "unallocated": 1, "stranded": 0},
        "shared": {"effective": 0.3, "waste": 0.2, "unmeasured": 0, "unallocated": 0.5, "stranded": 0},
        "mixed": {"unmeasured": BIG, "waste": 0, "unallocated": 1 - BIG, "stranded": 0},
        "empty": {"unallocated": 6 * SLICE, "stranded": SLICE},
    }
    fleet = {
        part: sum(pool_parts.get(part, 0) for pool_parts in pools.values())
        for part in ("effective", "waste", "unmeasured", "unallocated", "stranded")
    }
    assert sum(fleet.values()) == pytest.approx(8)
    later = {**pools["whole"], "unallocated": 0, "stranded": 1}
    output = promtool.run(
        tmp_path,
        groups(),
        small_cluster.all_series(),
        [
            parts("node_pool", 8, pools),
            expectation("cluster:gpucost_gpus:sum", 8, *((of(part=part), gpus) for part, gpus in fleet.items())),
            expectation("cluster:gpucost_capacity_gpus:sum", 8, (of(), 8)),
            expectation("sum(cluster:gpucost_gpus:sum) - sum(cluster:gpucost_capacity_gpus:sum)", 12, ({}, 0)),
            expectation(
                "node_pool:gpucost_capacity_gpus:sum",
                8,
                *(
                    (of(node_pool=pool), gpus)
                    for pool, gpus in (("mig", 1), ("whole", 4), ("shared", 1), ("mixed", 1), ("empty", 1))
                ),
            ),
            expectation(
                'node_pool:gpucost_gpus:sum{node_pool="whole"}',
                12,
                *((of(node_pool="whole", part=part), gpus) for part, gpus in later.items()),
            ),
        ],
    )
    assert output == ""


def test_utilization_from_every_exporter_version(tmp_path: Path) -> None:
    """Names and labels of old and new exporters, percent as a fallback, and honored labels."""
    pods = {"old": "n0", "new": "n1", "percent": "n2", "honored": "n3", "slice": "n4", "above": "n5"}
    ksm, dcgm = small(pods), []
    for metric, labels, value in (
        (
            "dcgm_fi_prof_gr_engine_active",
            {"uuid": "0", "Hostname": "n0", "pod_namespace": "ns", "pod_name": "old"},
            0.1,
        ),
        ("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", {"UUID": "1", "hostname": "n1", "namespace": "ns", "pod": "new"}, 0.2),
        ("DCGM_FI_DEV_GPU_UTIL", {"UUID": "2", "Hostname": "n2", "namespace": "ns", "pod": "percent"}, 30),
        ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", {"UUID": "3", "Hostname": "n3", "namespace": "ns", "pod": "honored"}, 0.4),
        ("DCGM_FI_DEV_GPU_UTIL", {"UUID": "3", "Hostname": "n3", "namespace": "ns", "pod": "honored"}, 99),
        (
            "DCGM_FI_DEV_GPU_UTIL",
            {"UUID": "4", "GPU_I_ID": "1", "Hostname": "n4", "namespace": "ns", "pod": "slice"},
            0,
        ),
        (
            "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
            {"UUID": "5", "Hostname": "exporter-pod", "node": "n5", "namespace": "ns", "pod": "above"},
            1.2,
        ),
    ):
        dcgm.append(promtool.series(metric, {"cluster": "c", **labels}, f"{value}x10"))
    output = promtool.run(
        tmp_path,
        groups(),
        [*ksm, *dcgm],
        [
            expectation(
                "sum by (pod) (pod:gpucost_effective_gpus)",
                5,
                *(
                    ({"pod": pod}, gpus)
                    for pod, gpus in {"old": 0.1, "new": 0.2, "percent": 0.3, "honored": 0.4, "above": 1}.items()
                ),
            ),
            expectation("sum by (pod) (pod:gpucost_unmeasured_gpus > 0)", 5, ({"pod": "slice"}, 1)),
            expectation("node:gpucost_unallocated_gpus", 5, *((of(node=node), 7) for node in pods.values())),
        ],
    )
    assert output == ""


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
    ("", "aws_amazon_com_neuroncore", 1 / 8),
)
"""Product labels, resources, and the share of a physical GPU that a unit is."""


def test_shares_of_a_physical_gpu(tmp_path: Path) -> None:
    """Nodes offer eight units of four GPUs, or of a Neuron device."""
    input_series, units, held = [], [], []
    for index, (product, resource, share) in enumerate(SHARES):
        kind = "trn1.2xlarge" if "neuron" in resource else "g5.12xlarge"
        labels = {"label_nvidia_com_gpu_product": product, "label_node_kubernetes_io_instance_type": kind}
        input_series += small({f"p{index}": f"n{index}"}, resource, **labels)
        units.append((of(node=f"n{index}", resource=resource), share))
        # Units that sum to more than four GPUs are scaled down to four.
        held.append(({"pod": f"p{index}"}, min(share, 4 / 8)))
    output = promtool.run(
        tmp_path,
        groups(),
        input_series,
        [
            expectation("node_resource:gpucost_nominal_unit_gpus", 2, *units),
            expectation("sum by (pod) (pod:gpucost_allocated_gpus)", 2, *held),
        ],
    )
    assert output == ""


@pytest.mark.parametrize(
    ("kind", "advertised", "cores"),
    [
        ("trn2.48xlarge", {"aws_amazon_com_neuron": 16, "aws_amazon_com_neuroncore": 64}, 4),
        ("trn2.48xlarge", {"aws_amazon_com_neuroncore": 128}, 8),
        ("trn1.32xlarge", {"aws_amazon_com_neuron": 16, "aws_amazon_com_neuroncore": 32}, 2),
        ("trn9.48xlarge", {"aws_amazon_com_neuron": 16, "aws_amazon_com_neuroncore": 256}, 16),
    ],
)
def test_cores_are_what_the_node_advertises(tmp_path: Path, kind: str, advertised: dict[str, int], cores: int) -> None:
    """A pod with all cores holds all devices, however many physical cores are a logical one."""
    total = advertised["aws_amazon_com_neuroncore"]
    node = {"cluster": "c", "node": "n", "job": "kube-state-metrics", "instance": "k"}
    pod = {"namespace": "ns", "pod": "p", "uid": "p", "container": "x", "resource": "aws_amazon_com_neuroncore"}
    input_series = [
        promtool.series("kube_node_info", node, "1x10"),
        promtool.series("kube_node_labels", {**node, "label_node_kubernetes_io_instance_type": kind}, "1x10"),
        promtool.series("kube_pod_container_resource_requests", {**node, **pod}, f"{total}x10"),
        *(
            promtool.series(f"kube_node_status_{metric}", {**node, "resource": resource}, f"{units}x10")
            for metric in ("capacity", "allocatable")
            for resource, units in advertised.items()
        ),
    ]
    output = promtool.run(
        tmp_path,
        groups(),
        input_series,
        [
            expectation("sum by (node) (node:gpucost_capacity_gpus)", 2, ({"node": "n"}, 16)),
            expectation(
                'node_resource:gpucost_unit_gpus{resource="aws_amazon_com_neuroncore"}',
                2,
                (of(node="n", resource="aws_amazon_com_neuroncore"), 1 / cores),
            ),
            expectation("sum by (pod) (pod:gpucost_allocated_gpus)", 2, ({"pod": "p"}, 16)),
        ],
    )
    assert output == ""


def test_requests_are_counted_as_by_the_scheduler(tmp_path: Path) -> None:
    """The sum of containers or the largest init container counts; newer labels replace older ones."""
    pod_labels = {"cluster": "c", "namespace": "ns", "pod": "p", "uid": "p", "node": "n", "resource": "nvidia_com_gpu"}
    node_labels = {"cluster": "c", "node": "n"}
    other_series = [
        promtool.series(
            "kube_pod_container_resource_requests", {**pod_labels, "container": "y", "unit": "integer"}, "2x10"
        ),
        promtool.series("kube_pod_init_container_resource_requests", {**pod_labels, "container": "i"}, "4x4 2x10"),
        # Without a staleness marker the old labels stay visible for five minutes.
        promtool.series("kube_node_labels", {**node_labels, "label_karpenter_sh_nodepool": "new"}, "_x3 1x10"),
        promtool.series("kube_node_labels", {**node_labels, "label_karpenter_sh_nodepool": "old"}, "1x3 _x10"),
    ]
    without_labels = [series for series in small({"p": "n"}) if not series["series"].startswith("kube_node_labels")]
    output = promtool.run(
        tmp_path,
        groups(),
        [*without_labels, *other_series],
        [
            expectation("sum by (node_pool) (pod:gpucost_allocated_gpus)", 3, ({"node_pool": "old"}, 4)),
            expectation("sum by (node_pool) (pod:gpucost_allocated_gpus)", 6, ({"node_pool": "new"}, 3)),
        ],
    )
    assert output == ""


BY_LABELS = """business_units:
  - {name: first, namespaces: ["a*"], from: 2026-12-01}
  - {name: 'the $1 "best"', namespaces: ["a?"], namespace_labels: {example.com/Team: x}}
  - {name: second, namespaces: ["[!b-z]*"]}
  - {name: pods, pod_labels: {app: p}, distribute: even}
"""


@pytest.mark.parametrize("of_pods", [False, True])
def test_first_matching_business_unit_owns(of_pods: bool, tmp_path: Path) -> None:
    """Units match by patterns and labels. A namespace without a match is its own business unit."""
    text = SETTINGS + (BY_LABELS if of_pods else BY_LABELS.rpartition("  -")[0])
    expected = {"aa": 'the $1 "best"', "aaa": "second", "b": "b", "labelled": 'the $1 "best"', "A": "second"}
    expected["withpod"] = "pods" if of_pods else "withpod"
    input_series = [
        promtool.series(
            "kube_namespace_labels", {"cluster": "c", "namespace": "labelled", "label_example_com_team": "x"}, "1x10"
        ),
        promtool.series(
            "kube_pod_labels", {"cluster": "c", "namespace": "withpod", "pod": "p", "label_app": "p"}, "1x10"
        ),
    ]
    for namespace in expected:
        input_series += [
            {**series, "series": series["series"].replace('namespace="ns"', f'namespace="{namespace}"')}
            for series in small({"p": "n"})
            if namespace == "aa" or "namespace=" in series["series"]
        ]
    units: dict[str, int] = {}
    for unit in expected.values():
        units[unit] = units.get(unit, 0) + 1
    output = promtool.run(
        tmp_path,
        groups(text),
        input_series,
        [
            expectation(
                "business_unit:gpucost_allocated_gpus:sum",
                5,
                *((of(business_unit=unit.replace('"', '\\"')), count) for unit, count in units.items()),
            ),
            expectation(
                "count by (business_unit, namespace) (pod:gpucost_allocated_gpus)",
                5,
                *(
                    ({"business_unit": unit.replace('"', '\\"'), "namespace": namespace}, 1)
                    for namespace, unit in expected.items()
                ),
            ),
        ],
    )
    assert output == ""


def test_idle_gpus_fire_an_alert(tmp_path: Path) -> None:
    """Two pods use less than a tenth for long enough, one is busy, and one has no metric."""
    recorded = []
    for pod, use in (("idle", "0.2x10 0.02x100"), ("nearly", "0.05x110"), ("busy", "0.2x110"), ("unknown", "_x110")):
        labels = of(business_unit="u", namespace="ns", pod=pod, uid=pod)
        recorded += [
            promtool.series("pod:gpucost_utilization:ratio", labels, use),
            promtool.series("pod:gpucost_allocated_gpus", labels, "2x110"),
        ]

    def alert(gpus: int) -> dict[str, object]:
        labels = of(severity="info", gpucost="true", business_unit="u", namespace="ns")
        summary = f"{gpus} GPUs are held by pods that use less than 10% of them"
        return {"exp_labels": labels, "exp_annotations": {"summary": summary}}

    output = promtool.run(
        tmp_path,
        documents.alerting_groups(include_template=False),
        recorded,
        alerts=[
            {"eval_time": f"{minute}m", "alertname": "LowGPUUtilization", "exp_alerts": expected}
            for minute, expected in ((59, []), (61, [alert(4)]), (100, [alert(4)]))
        ],
    )
    assert output == ""


def test_every_format_contains_the_same_rules(tmp_path: Path) -> None:
    """Prometheus accepts the rules, and they fit AMP's quotas."""
    units = "".join(f"  - {{name: unit-{i}, namespaces: ['team-{i}-*']}}\n" for i in range(200))
    settings = parse_settings(SETTINGS + "business_units:\n" + units)
    recording = documents.recording_groups(settings, settings.clusters, NOW)
    all_groups = [*recording, *documents.alerting_groups(include_template=True)]
    texts = {output_format: documents.render_groups(output_format, all_groups) for output_format in documents.FORMATS}
    assert promtool.check(tmp_path, texts["prometheus"]) == ""
    read = {output_format: yaml.safe_load(text) for output_format, text in texts.items()}
    assert read["operator"]["kind"] == "PrometheusRule"
    rules = read["cloudformation"]["Resources"]["Rules"]["Properties"]
    assert read["prometheus"] == read["operator"]["spec"] == yaml.safe_load(rules["Data"])
    assert max(len(group["rules"]) for group in all_groups) <= documents.MAX_RULES
    assert len(rules["Data"].encode()) < 1_000_000, "AMP's limit of a rule groups namespace"
    alerts = [rule["alert"] for group in all_groups for rule in group["rules"] if "alert" in rule]
    assert alerts == ["LowGPUUtilization", "GPUNodePoolNearLimit", "GPUQuotaNearLimit", "KarpenterProvisioningFailed"]


def test_command_prints_rules_and_their_limitations(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With several workspaces it requires a cluster."""
    path = tmp_path / "settings.yaml"

    def run_command(text: str, *arguments: str) -> tuple[object, str, str]:
        path.write_text(text)
        status: object = 0
        try:
            main(["manifests", "rules", "--settings", str(path), *arguments])
        except SystemExit as error:
            status = error.code
        return (status, *capsys.readouterr())

    other_settings = "utilization: {sources: [pod, node]}\n" + BY_LABELS.replace("2026-12-01", "2999-12-01")
    status, text, notes = run_command(SETTINGS + other_settings)
    assert (status, promtool.check(tmp_path, text), len(notes.splitlines())) == (0, "", 4)
    for text_part in ("sources node", "by shared", "'pods' keeps", "'first' changes at 2999-12-01T00:00:00Z"):
        assert text_part in notes
    two = SETTINGS.replace("clusters: [", "clusters: [{name: d, prometheus: {url: 'http://127.0.0.1:8'}}, ")
    status, text, sentence = run_command(two)
    assert (status, text) == (2, "")
    assert "Pass --cluster with one of: d, c" in sentence
    status, text, _ = run_command(two, "--cluster", "d", "--format", "cloudformation")
    assert 'cluster="d"' in text
    assert 'cluster="c"' not in text
    assert run_command(two, "--cluster", "e")[0] == 2


@given(st.text("ab*?[]!-^\\.", max_size=8), st.text("ab*?[]!-^\\.", max_size=8))
@example("[?-.]", "-")
@example("[b-a]", "a")
@example("[!b-a]", "a")
@example("[a-b-]", "-")
@example("[--a]", "?")
def test_patterns_match_as_in_settings(pattern: str, namespace: str) -> None:
    assert (re.fullmatch(glob_to_regex(pattern), namespace) is not None) == fnmatchcase(namespace, pattern)
