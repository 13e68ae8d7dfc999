"""The template's alerts on AMP, run by Prometheus' own rule engine, in the names of every version of Karpenter."""

from pathlib import Path
from typing import Any

import pytest

from gpucost_cli.rules import documents
from tests.dashboards import promtool

GPU = "nvidia.com/gpu"
LABELS = {"severity": "warning", "gpucost": "true"}


def at(minute: int, alert: str, *told: tuple[dict[str, str], str]) -> dict[str, Any]:
    expected = [{"exp_labels": labels, "exp_annotations": {"summary": summary}} for labels, summary in told]
    return {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": expected}


def check(folder: Path, series: list[dict[str, str]], *alerts: dict[str, Any]) -> None:
    groups = documents.alerting_groups(include_template=True)
    assert promtool.run(folder, groups, series, alerts=alerts) == ""


@pytest.mark.parametrize(
    ("metric", "label"),
    [
        ("karpenter_nodepools", "nodepool"),
        ("karpenter_nodepool", "nodepool"),
        ("karpenter_provisioner", "provisioner"),
    ],
)
def test_a_node_pool_near_its_limit(tmp_path: Path, metric: str, label: str) -> None:
    """For five minutes, and GPUs alone: CPUs near their limit are nobody's GPU cost."""
    series = []
    for pool, resource, used, limit in (
        ("full", GPU, "5x9 10x40", 10), ("roomy", GPU, "5x50", 10), ("cpus", "cpu", "99x50", 100),
        ("trn", "aws.amazon.com/neuroncore", "96x50", 96), ("closed", GPU, "0x50", 0),
    ):  # fmt: skip
        own = {"cluster": "c", label: pool, "resource_type": resource}
        series += [
            promtool.series(f"{metric}_usage", own, used),
            promtool.series(f"{metric}_limit", own, f"{limit}x50"),
        ]

    def near(pool: str, resource: str) -> tuple[dict[str, str], str]:
        return {**LABELS, "cluster": "c", label: pool, "resource_type": resource}, "GPU node pool at 100% of its limit"

    name, neuron, full = "GPUNodePoolNearLimit", near("trn", "aws.amazon.com/neuroncore"), near("full", GPU)
    check(tmp_path, series, at(4, name), at(6, name, neuron), at(13, name, neuron), at(40, name, neuron, full))


def test_clusters_whose_karpenters_speak_differently_are_told_apart(tmp_path: Path) -> None:
    series = []
    for cluster, metric, label in (
        ("new", "karpenter_nodepools", "nodepool"),
        ("old", "karpenter_provisioner", "provisioner"),
    ):
        own = {"cluster": cluster, label: "gpu", "resource_type": GPU}
        series += [promtool.series(f"{metric}_usage", own, "19x30"), promtool.series(f"{metric}_limit", own, "20x30")]
    told = [
        ({**LABELS, "cluster": cluster, label: "gpu", "resource_type": GPU}, "GPU node pool at 95% of its limit")
        for cluster, label in (("new", "nodepool"), ("old", "provisioner"))
    ]
    check(tmp_path, series, at(20, "GPUNodePoolNearLimit", *told))


def test_a_quota_near_its_limit(tmp_path: Path) -> None:
    series = []
    for namespace, used in (("full", 8), ("roomy", 4)):
        for kind, value in (("used", used), ("hard", 8)):
            own = {"cluster": "c", "namespace": namespace, "resource": "requests.nvidia.com/gpu", "type": kind}
            series.append(promtool.series("kube_resourcequota", own, f"{value}x30"))
    labels = {**LABELS, "cluster": "c", "namespace": "full", "resource": "requests.nvidia.com/gpu"}
    check(
        tmp_path,
        series,
        at(4, "GPUQuotaNearLimit"),
        at(20, "GPUQuotaNearLimit", (labels, "GPU quota at 100% of its limit")),
    )


def test_nodes_that_could_not_be_made(tmp_path: Path) -> None:
    """What the provider refused; not what was gone already, nor what other calls got wrong."""
    series = [
        promtool.series("karpenter_cloudprovider_errors_total",
                        {"cluster": "c", "nodepool": pool, "method": method, "error": error}, "0x10 1x40")
        for pool, method, error in (("gpu", "Create", "InsufficientCapacityError"),
                                    ("gone", "Create", "NodeClaimNotFoundError"), ("other", "Delete", "Throttled"))
    ]  # fmt: skip
    ended = {"cluster": "c", "nodepool": "gpu", "reason": "ProvisioningFailed"}
    series.append(promtool.series("karpenter_nodeclaims_terminated_total", ended, "3x20 4x30"))
    name, labels = (
        "KarpenterProvisioningFailed",
        {"severity": "critical", "gpucost": "true", "cluster": "c", "nodepool": "gpu"},
    )
    refused = {**labels, "error": "InsufficientCapacityError"}, "Karpenter could not make a node"
    failed = {**labels, "reason": "ProvisioningFailed"}, "Karpenter could not make a node"
    check(tmp_path, series, at(9, name), at(13, name, refused), at(23, name, refused, failed), at(45, name))


def test_the_first_failure_counts_and_a_gap_in_the_scrapes_is_none(tmp_path: Path) -> None:
    """Counters of errors are not there before the first one."""
    own = {"cluster": "c", "method": "Create", "error": "InsufficientCapacityError"}
    series = [
        promtool.series("karpenter_cloudprovider_errors_total", {**own, "nodepool": "first"}, "_x70 1x60"),
        promtool.series("karpenter_cloudprovider_errors_total", {**own, "nodepool": "old"}, "3x60 _x10 3x60"),
        promtool.series("karpenter_build_info", {"cluster": "c", "version": "1.8.0"}, "1x60 _x10 1x60"),
    ]
    labels = {"severity": "critical", "gpucost": "true", "cluster": "c", "error": own["error"], "nodepool": "first"}
    name, first = "KarpenterProvisioningFailed", (labels, "Karpenter could not make a node")
    check(
        tmp_path, series, at(65, name), at(73, name, first), at(84, name, first), *(at(m, name) for m in range(88, 120))
    )
