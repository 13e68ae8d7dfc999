"""Labels of series that distinguish clusters in one Prometheus."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

from gpucost.core.metering.observations import Unexplained
from gpucost.sources.prometheus.queries import STATISTIC_LABEL
from gpucost.sources.prometheus.tables import Labels

CLUSTER_LABELS = (
    "cluster", "cluster_name", "clusterName", "ClusterName", "cluster_id", "eks_cluster", "eks_cluster_name",
    "k8s_cluster", "k8s_cluster_name", "kubernetes_cluster",
)  # fmt: skip
"""The usual ones. Every label with `cluster` in its name is one."""
NODE_INFO_LABELS = (
    "kernel_version", "os_image", "container_runtime_version", "kubelet_version",
    "kubeproxy_version", "provider_id", "pod_cidr", "system_uuid", "internal_ip",
)  # fmt: skip
"""Labels of kube_node_info other than the node's name (kube-state-metrics 2.20, docs/metrics/cluster)."""
_OF_TARGETS = re.compile(
    r"__name__|job|instance|(exported_)?(namespace|pod|service|container|endpoint)|prometheus.*|__.*|.*"
    r"(replica|shard|hash|version|revision|chart|index|pod_name|instance|metrics_path|scheme|address|host|ip|uid|agent).*"
)
"""Labels that distinguish targets of one cluster."""


def values_of_cluster_labels(values_by_label: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """The values of the labels with which several clusters are named, the usual labels first."""
    several = {
        name: names
        for name, values in values_by_label.items()
        if "cluster" in name.lower() and not name.startswith("label_") and len(names := sorted({*values} - {""})) > 1
    }
    order = [*(name for name in CLUSTER_LABELS if name in several), *sorted(several.keys() - {*CLUSTER_LABELS})]
    return {name: several[name] for name in order}


def multiple_clusters(nodes: Iterable[Labels]) -> tuple[list[str], list[Unexplained]]:
    """A note if the labels of nodes name several clusters, or what else divides the nodes like clusters.

    Args:
        nodes: labels of kube_node_info.
    """
    nodes_by_value: dict[str, dict[str, set[str]]] = {}
    for labels in nodes:
        node = labels.get("exported_node") or labels.get("node", "")
        for name in labels.keys() - _USUAL_LABELS:
            nodes_by_value.setdefault(name, {}).setdefault(labels[name], set()).add(node)
    divided = {name: values for name, values in nodes_by_value.items() if len(values) > 1}
    if not divided:  # nearly always
        return [], []
    for name, names in values_of_cluster_labels(divided).items():
        shown = ", ".join(names[:3])
        nodes_of_clusters = divided[name].values()
        lost = sum(map(len, nodes_of_clusters)) - len(set().union(*nodes_of_clusters))
        unseen = f", and {lost} nodes have the name of another and are missing" if lost else ""
        return [
            f"series of several clusters ({name}: {shown}) are counted as one cluster{unseen}: set selector to one of "
            "them"
        ], []
    return [], [
        Unexplained(
            "values of a label that divides the nodes like clusters:",
            name,
            Decimal(len(values)),
            change=f"If they are clusters, set selector to one of them ({', '.join(sorted(values)[:3])})",
            may_be_gpus=False,
        )
        for name, values in sorted(divided.items())
        if not _OF_TARGETS.fullmatch(name) and sum(map(len, values.values())) == len(set().union(*values.values()))
    ]


_USUAL_LABELS = {*NODE_INFO_LABELS, "node", "exported_node", "resource", "unit", "job", "instance", STATISTIC_LABEL}
