"""Labels of series that distinguish clusters in one Prometheus."""

import re
from collections.abc import Iterable, Mapping
from decimal import Decimal

from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE
from gpucost.core.metering.kubernetes_labels import INSTANCE_TYPE_LABEL
from gpucost.core.metering.observations import Unexplained
from gpucost.sources.prometheus.families import Family, HourReading
from gpucost.sources.prometheus.queries import STATISTIC_LABEL
from gpucost.sources.prometheus.tables import Labels, Rows

CLUSTER_LABELS = (
    "cluster",
    "cluster_name",
    "clusterName",
    "ClusterName",
    "cluster_id",
    "eks_cluster",
    "eks_cluster_name",
    "k8s_cluster",
    "k8s_cluster_name",
    "kubernetes_cluster",
)
"""The usual ones. Every label with `cluster` in its name is one."""
NODE_INFO_LABELS = (
    "kernel_version",
    "os_image",
    "container_runtime_version",
    "kubelet_version",
    "kubeproxy_version",
    "provider_id",
    "pod_cidr",
    "system_uuid",
    "internal_ip",
)
"""Labels of kube_node_info other than the node's name (kube-state-metrics 2.20, docs/metrics/cluster)."""
_OF_TARGETS = re.compile(
    r"__name__|job|instance|(exported_)?(namespace|pod|service|container|endpoint)|prometheus.*|__.*|.*"
    r"(replica|shard|hash|version|revision|chart|index|pod_name|instance|metrics_path|scheme|address|host|ip|uid|agent).*"
)
"""Labels that distinguish targets of one cluster."""
_WHOLE_GPU_RESOURCES = {f"{vendor}_com_gpu" for vendor in ("nvidia", "amd")}


class Clusters(Family):
    """Labels by which one Prometheus has the series of several clusters."""

    def read(self, reading: HourReading) -> None:
        """Compare the labels of nodes."""
        nodes = reading.rows["nodes"]
        reading.mixed_clusters = multiple_clusters(
            (labels for labels, _ in nodes.get("info") or nodes.get("capacity") or []), nodes
        )

    def notes(self, reading: HourReading) -> Iterable[str]:
        """The labels that name several clusters."""
        return reading.mixed_clusters[0]

    def unexplained(self, reading: HourReading) -> Iterable[Unexplained]:
        """What else divides the nodes like clusters."""
        return reading.mixed_clusters[1]


def values_of_cluster_labels(values_by_label: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """The values of the labels with which several clusters are named, the usual labels first."""
    several = {
        name: names
        for name, values in values_by_label.items()
        if "cluster" in name.lower() and not name.startswith("label_") and len(names := sorted({*values} - {""})) > 1
    }
    order = [*(name for name in CLUSTER_LABELS if name in several), *sorted(several.keys() - {*CLUSTER_LABELS})]
    return {name: several[name] for name in order}


def multiple_clusters(
    nodes: Iterable[Labels], rows: Mapping[str, Rows] | None = None
) -> tuple[list[str], list[Unexplained]]:
    """A note if the labels of nodes name several clusters, or what else divides the nodes like clusters.

    Args:
        nodes: labels of kube_node_info.
        rows: results of `Queries.nodes`, by statistic, for the GPU-hours of nodes with the name of another.
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
        hours = missing_gpu_hours(name, rows) if lost and rows else None
        gpus = f", with about {hours:.4g} GPU-hours" if hours else ""
        unseen = f", and {lost} nodes have the name of another and are missing{gpus}" if lost else ""
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


def missing_gpu_hours(label: str, rows: Mapping[str, Rows]) -> Decimal | None:
    """The GPU-hours of nodes that another node of the same name hides; None if none is known.

    The node with most GPU-hours of each name is taken as the one that counts. GPUs are those of the instance type, or
    else units of whole GPUs that the node advertised last. A node is there for its part of the most scrapes.
    """
    gpus: dict[tuple[str, str], Decimal] = {}
    for labels, units in rows.get("capacity", ()):
        if labels.get("resource") in _WHOLE_GPU_RESOURCES:
            gpus[_node_of_cluster(label, labels)] = units
    for labels, _ in rows.get("labels-end", ()):
        if devices := GPUS_OF_INSTANCE.get(INSTANCE_TYPE_LABEL.value_in(labels)):
            gpus[_node_of_cluster(label, labels)] = Decimal(devices.numerator) / devices.denominator
    scrapes: dict[tuple[str, str], Decimal] = {}
    for labels, count in rows.get("info", ()):
        node = _node_of_cluster(label, labels)
        scrapes[node] = max(count, scrapes.get(node, Decimal(0)))
    by_name: dict[str, list[Decimal]] = {}
    for node, count in scrapes.items():
        by_name.setdefault(node[0], []).append(gpus.get(node, Decimal(0)) * count / max(scrapes.values()))
    return sum((sum(hours) - max(hours) for hours in by_name.values()), Decimal(0)) or None


def _node_of_cluster(label: str, labels: Labels) -> tuple[str, str]:
    return labels.get("exported_node") or labels.get("node", ""), labels.get(label, "")


_USUAL_LABELS = {*NODE_INFO_LABELS, "node", "exported_node", "resource", "unit", "job", "instance", STATISTIC_LABEL}
