"""Nodes of one hour, put together from the answers about their presence, labels and capacity."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from gpucost.adapters.prometheus.client import Series
from gpucost.adapters.prometheus.tables import Labels, Rows, Seen, label_of, own_labels, told, whole_number
from gpucost.domain.devices import GPUS_OF_INSTANCE
from gpucost.domain.observations import Instance, NodeObservation, Presence

IsWhole = Callable[[Mapping[Instance, int]], bool]
INFO, CAPACITY = "kube_node_info", "kube_node_status_capacity"


@dataclass(slots=True)
class _Node:
    name: str
    provider_id: str = ""
    info: Seen = field(default_factory=Seen)
    advertised: Seen = field(default_factory=Seen)
    labels: dict[str, str] = field(default_factory=dict)
    capacity: dict[str, Decimal] = field(default_factory=dict)
    allocatable: dict[str, Decimal] = field(default_factory=dict)
    times: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Sample times by metric, of nodes that were looked at more closely."""

    @property
    def present(self) -> Seen:
        """What shows that the node is there: its own series, or its capacity where those are not kept."""
        return self.info if self.info.counts else self.advertised


class NodeTable:
    """Builds `NodeObservation`s of the nodes that may have GPUs.

    Args:
        rows: answers to `Queries.nodes`, by statistic.
        with_devices: names of nodes on which DCGM saw GPUs.
    """

    def __init__(self, rows: Mapping[str, Rows], with_devices: Iterable[str]) -> None:
        self._nodes: dict[str, _Node] = {}
        self.name_label = label_of((labels for labels, _ in rows.get("info", rows.get("advertised", []))), "node")
        """The label that holds nodes' names."""
        for labels, value in rows.get("info", []):
            node = self._node(labels)
            node.provider_id = labels.get("provider_id", "") or node.provider_id
            node.info.add(labels, value)
        # A label that changes starts a new series: the one seen longest has the last word, earlier ones fill in.
        for labels, _ in sorted(rows.get("labels", []), key=lambda row: row[1]):
            self._node(labels).labels.update(own_labels(labels))
        for labels, value in rows.get("advertised", []):
            self._node(labels).advertised.add(labels, value)
        for stat in ("capacity", "allocatable"):
            for labels, value in rows.get(stat, []):
                node = self._node(labels)
                units = node.capacity if stat == "capacity" else node.allocatable
                resource = labels.get("resource", "")
                units[resource] = max(units.get(resource, Decimal(0)), whole_number(value, f"{stat} of {node.name}"))
        for node in self._nodes.values():
            node.capacity = {resource: units for resource, units in node.capacity.items() if units}
        self._with_devices = set(with_devices)

    def uncertain(self, is_whole: IsWhole) -> dict[str, list[str]]:
        """Names of GPU nodes not seen at every scrape of the hour, by the metric to look at."""
        found: dict[str, list[str]] = {}
        for node in self._gpu_nodes():
            if node.info.counts and not is_whole(node.info.counts):
                found.setdefault(INFO, []).append(node.name)
            if node.capacity and not is_whole(node.advertised.counts):
                found.setdefault(CAPACITY, []).append(node.name)
        return found

    def look_closer(self, metric: str, series: Sequence[Series]) -> None:
        """Take in raw samples of one metric."""
        times: dict[str, set[int]] = {}
        for one in series:
            seen = (at for at, value in one.samples if metric == INFO or value != "0")
            times.setdefault(told(one.labels, "node"), set()).update(seen)
        for name, run in times.items():
            if name in self._nodes:
                self._nodes[name].times[metric] = tuple(sorted(run))

    def nodes(self) -> tuple[NodeObservation, ...]:
        """All nodes; the caller tells GPU nodes from others."""
        return tuple(
            NodeObservation(
                name=node.name,
                provider_id=node.provider_id,
                present=Presence(node.present.counts, node.times.get(INFO if node.info.counts else CAPACITY)),
                labels=node.labels,
                capacity=node.capacity,
                allocatable=node.allocatable,
                advertised=Presence(node.advertised.counts, node.times.get(CAPACITY)) if node.capacity else None,
            )
            for node in self._nodes.values()
            if node.present.counts
        )

    def _gpu_nodes(self) -> Iterable[_Node]:
        for node in self._nodes.values():
            kind = node.labels.get("label_node_kubernetes_io_instance_type", "")
            if node.capacity or node.name in self._with_devices or kind in GPUS_OF_INSTANCE:
                yield node

    def _node(self, labels: Labels) -> _Node:
        name = told(labels, "node")
        return self._nodes.setdefault(name, _Node(name))
