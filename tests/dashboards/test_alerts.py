"""The stack's alerting rules, run by Prometheus' rule engine with the metric names of every version of Karpenter."""

from pathlib import Path
from typing import Any

import pytest

from gpucost_cli.rules import documents
from tests.dashboards import promtool

GPU = "nvidia.com/gpu"
LABELS = {"severity": "warning", "gpucost": "true"}


def expect_alerts(minute: int, alert: str, *labels_and_summaries: tuple[dict[str, str], str]) -> dict[str, Any]:
    expected = [
        {"exp_labels": labels, "exp_annotations": {"summary": summary}} for labels, summary in labels_and_summaries
    ]
    return {"eval_time": f"{minute}m", "alertname": alert, "exp_alerts": expected}


def check(folder: Path, series: list[dict[str, str]], *alerts: dict[str, Any]) -> None:
    groups = documents.alerting_groups(include_template=True)
    assert promtool.run(folder, groups, series, alerts=alerts) == ""


@pytest.mark.parametrize(
    ("metric", "label"),
    [("karpenter_nodepools", "nodepool"), ("karpenter_nodepool", "nodepool"), ("karpenter_provisioner", "provisioner")],
)
def test_node_pool_near_its_limit_fires(tmp_path: Path, metric: str, label: str) -> None:
    """The alert fires after five minutes, for GPUs only."""
    series = []
    for pool, resource, used, limit in (
        ("full", GPU, "5x9 10x40", 10),
        ("roomy", GPU, "5x50", 10),
        ("cpus", "cpu", "99x50", 100),
        ("trn", "aws.amazon.com/neuroncore", "96x50", 96),
        ("closed", GPU, "0x50", 0),
    ):
        labels = {"cluster": "c", label: pool, "resource_type": resource}
        series += [
            promtool.series(f"{metric}_usage", labels, used),
            promtool.series(f"{metric}_limit", labels, f"{limit}x50"),
        ]

    def near(pool: str, resource: str) -> tuple[dict[str, str], str]:
        return {**LABELS, "cluster": "c", label: pool, "resource_type": resource}, "GPU node pool at 100% of its limit"

    name, neuron, full = "GPUNodePoolNearLimit", near("trn", "aws.amazon.com/neuroncore"), near("full", GPU)
    check(
        tmp_path,
        series,
        expect_alerts(4, name),
        expect_alerts(6, name, neuron),
        expect_alerts(13, name, neuron),
        expect_alerts(40, name, neuron, full),
    )


def test_clusters_with_different_karpenter_versions_are_distinguished(tmp_path: Path) -> None:
    series = []
    for cluster, metric, label in (
        ("new", "karpenter_nodepools", "nodepool"),
        ("old", "karpenter_provisioner", "provisioner"),
    ):
        labels = {"cluster": cluster, label: "gpu", "resource_type": GPU}
        series += [
            promtool.series(f"{metric}_usage", labels, "19x30"),
            promtool.series(f"{metric}_limit", labels, "20x30"),
        ]
    alerts = [
        ({**LABELS, "cluster": cluster, label: "gpu", "resource_type": GPU}, "GPU node pool at 95% of its limit")
        for cluster, label in (("new", "nodepool"), ("old", "provisioner"))
    ]
    check(tmp_path, series, expect_alerts(20, "GPUNodePoolNearLimit", *alerts))


def test_quota_near_its_limit_fires(tmp_path: Path) -> None:
    series = []
    for namespace, used in (("full", 8), ("roomy", 4)):
        for kind, value in (("used", used), ("hard", 8)):
            series_labels = {
                "cluster": "c",
                "namespace": namespace,
                "resource": "requests.nvidia.com/gpu",
                "type": kind,
            }
            series.append(promtool.series("kube_resourcequota", series_labels, f"{value}x30"))
    labels = {**LABELS, "cluster": "c", "namespace": "full", "resource": "requests.nvidia.com/gpu"}
    check(
        tmp_path,
        series,
        expect_alerts(4, "GPUQuotaNearLimit"),
        expect_alerts(20, "GPUQuotaNearLimit", (labels, "GPU quota at 100% of its limit")),
    )


def test_failed_provisioning_fires(tmp_path: Path) -> None:
    """Errors about deleted nodes and errors of other calls do not count."""
    series = [
        promtool.series(
            "karpenter_cloudprovider_errors_total",
            {"cluster": "c", "nodepool": pool, "method": method, "error": error},
            "0x10 1x40",
        )
        for pool, method, error in (
            ("gpu", "Create", "InsufficientCapacityError"),
            ("gone", "Create", "NodeClaimNotFoundError"),
            ("other", "Delete", "Throttled"),
        )
    ]
    ended = {"cluster": "c", "nodepool": "gpu", "reason": "ProvisioningFailed"}
    series.append(promtool.series("karpenter_nodeclaims_terminated_total", ended, "3x20 4x30"))
    name, labels = (
        "KarpenterProvisioningFailed",
        {"severity": "critical", "gpucost": "true", "cluster": "c", "nodepool": "gpu"},
    )
    refused = {**labels, "error": "InsufficientCapacityError"}, "Karpenter could not create a node"
    failed = {**labels, "reason": "ProvisioningFailed"}, "Karpenter could not create a node"
    check(
        tmp_path,
        series,
        expect_alerts(9, name),
        expect_alerts(13, name, refused),
        expect_alerts(23, name, refused, failed),
        expect_alerts(45, name),
    )


def test_first_failure_fires_and_scrape_gap_does_not(tmp_path: Path) -> None:
    """An error counter does not exist before its first error."""
    error_labels = {"cluster": "c", "method": "Create", "error": "InsufficientCapacityError"}
    series = [
        promtool.series("karpenter_cloudprovider_errors_total", {**error_labels, "nodepool": "first"}, "_x70 1x60"),
        promtool.series("karpenter_cloudprovider_errors_total", {**error_labels, "nodepool": "old"}, "3x60 _x10 3x60"),
        promtool.series("karpenter_build_info", {"cluster": "c", "version": "1.8.0"}, "1x60 _x10 1x60"),
    ]
    labels = {
        "severity": "critical",
        "gpucost": "true",
        "cluster": "c",
        "error": error_labels["error"],
        "nodepool": "first",
    }
    name, first = "KarpenterProvisioningFailed", (labels, "Karpenter could not create a node")
    check(
        tmp_path,
        series,
        expect_alerts(65, name),
        expect_alerts(73, name, first),
        expect_alerts(84, name, first),
        *(expect_alerts(m, name) for m in range(88, 120)),
    )
