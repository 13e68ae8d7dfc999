"""What metrics other than labels say about nodes: their size, and what controllers and exporters report."""

from collections.abc import Callable, Collection, Iterable, Mapping

from gpucost.core.metering.kubernetes_labels import INSTANCE_TYPE_LABEL
from gpucost.core.metering.unlabeled_nodes import NodeHardware, ReportedNode
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.queries import STATISTIC_LABEL
from gpucost.sources.prometheus.tables import Rows, exported_label


def has_unlabeled_nodes(nodes: Iterable[Series], gpu_nodes: Callable[[], Collection[str]]) -> bool:
    """Whether a node with GPUs has no label of its instance type.

    Args:
        nodes: results of `Queries.nodes`.
        gpu_nodes: returns the nodes on which an exporter reports GPUs, or on which pods request GPUs.
    """
    unlabeled, labeled, with_capacity = set[str](), set[str](), set[str]()
    for labels, _ in nodes:
        match labels.get(STATISTIC_LABEL, ""):
            case "labels-end" | "labels-start":
                if INSTANCE_TYPE_LABEL.value_in(labels):
                    labeled.add(exported_label(labels, "node"))
            case "info":
                unlabeled.add(exported_label(labels, "node"))
            case "capacity-sum":
                with_capacity.add(exported_label(labels, "node"))
    unlabeled -= labeled
    return not labeled.issuperset(with_capacity) or (bool(unlabeled) and not unlabeled.isdisjoint(gpu_nodes()))


def node_hardware(rows: Mapping[str, Rows], names: Mapping[str, str]) -> dict[str, NodeHardware]:
    """Return the hardware of nodes by name.

    Args:
        rows: results of `Queries.hardware`, by statistic.
        names: names of nodes, by name and by EC2 instance id.
    """
    nodes: dict[str, NodeHardware] = {}

    def of_node(name: str) -> NodeHardware:
        return nodes.setdefault(names.get(name, name), NodeHardware())

    for statistic in ("largest", "smallest"):
        for labels, amount in rows.get(statistic, ()):
            hardware = of_node(exported_label(labels, "node"))
            if amount.is_finite():
                (hardware.cpus if labels.get("resource") == "cpu" else hardware.memory_bytes).add(amount)
    for labels, amount in rows.get("gpu-memory", ()):
        if amount.is_finite():
            of_node(labels.get("Hostname") or labels.get("hostname", "")).gpu_memory_mib = amount
    for labels, _ in rows.get("karpenter", ()):
        reported = ReportedNode(
            "karpenter",
            labels.get("instance_type", ""),
            zone=labels.get("zone", ""),
            capacity_type=labels.get("capacity_type", ""),
            node_pool=labels.get("nodepool", ""),
        )
        of_node(labels.get("node_name", "")).reported.append(reported)
    for labels, _ in rows.get("neuron-monitor", ()):
        name = labels.get("instance_name", "")
        reported = ReportedNode(
            "neuron-monitor", labels.get("instance_type", ""), zone=labels.get("availability_zone", "")
        )
        of_node(name if name in names else labels.get("instance_id", "")).reported.append(reported)
    return nodes
