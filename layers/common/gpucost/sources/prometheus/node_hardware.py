"""What metrics other than labels say about nodes: their size, and what controllers and exporters report."""

from collections.abc import Callable, Collection, Container, Iterable, Mapping

from gpucost.core.metering.kubernetes_labels import INSTANCE_TYPE_LABEL
from gpucost.core.metering.unlabeled_nodes import NodeHardware, ReportedNode, describe_unlabeled_nodes
from gpucost.sources.prometheus.client import Series
from gpucost.sources.prometheus.families import ClusterMetrics, Family, HourReading, Query, SeriesByQuery
from gpucost.sources.prometheus.queries import STATISTIC_LABEL, Queries
from gpucost.sources.prometheus.tables import Rows, exported_label, host_name

InstanceLookup = Callable[[Collection[str]], Mapping[str, ReportedNode]]
"""Returns what EC2 says about nodes, by provider id."""


class NodeTypes(Family):
    """The types of nodes whose labels are not exported.

    Args:
        instances: returns what EC2 says about nodes without labels, by provider id; None: only metrics are read.
    """

    def __init__(self, metrics: ClusterMetrics, instances: InstanceLookup | None) -> None:
        super().__init__(metrics)
        self._instances = instances

    def further_queries(self, results: SeriesByQuery, hours_with_gaps: Container[int]) -> Mapping[str, Query]:
        """What else says the types of nodes, if a node with GPUs has no label of it."""
        if has_unlabeled_nodes(results["nodes"], lambda: _gpu_nodes(results)):
            return {"hardware": Query(Queries.hardware)}
        return {}

    def read(self, reading: HourReading) -> None:
        """Describe the nodes, once their devices are read."""
        reading.described_nodes = reading.nodes.nodes()
        if "hardware" not in reading.rows:
            return
        hardware = node_hardware(reading.rows["hardware"], reading.nodes.by_instance_id())
        with_pods = reading.pods.reported_nodes()
        if self._instances is not None:
            unlabeled = {
                node.provider_id: node.name
                for node in reading.described_nodes
                if (node.states or node.name in with_pods) and not INSTANCE_TYPE_LABEL.value_in(node.labels)
            }
            for provider_id, reported in self._instances(unlabeled).items():
                hardware.setdefault(unlabeled[provider_id], NodeHardware()).reported.append(reported)
        reading.described_nodes, reading.type_notes = describe_unlabeled_nodes(
            reading.described_nodes, reading.devices, hardware, with_pods
        )

    def notes(self, reading: HourReading) -> Iterable[str]:
        """Notes on types that are not known from labels."""
        return reading.type_notes


def _gpu_nodes(results: SeriesByQuery) -> set[str]:
    """Names of nodes on which exporters report GPUs, or on which pods request GPUs, in any hour."""
    hosts = {host_name(labels) for labels, _ in results["devices"]}
    return hosts | {exported_label(labels, "node") for labels, _ in results["requests"]}


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
            of_node(host_name(labels)).gpu_memory_mib = amount
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
