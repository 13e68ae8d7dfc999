"""What a cluster's Prometheus was seen to hold, before anything is concluded from it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cached_property

from gpucost.core.metering.gpu_models import GPUS_OF_INSTANCE
from gpucost.core.metering.gpu_shares import SHARED_SUFFIX
from gpucost.core.metering.kubernetes_labels import INSTANCE_TYPE, NodeLabel
from gpucost_cli.doctor.signals import NEURON

REQUESTS = "kube_pod_container_resource_requests"
CLAIM_INFO = "kube_pod_resourceclaim_info"
"""Pods that hold GPUs through DRA; such GPUs are in no request."""
GPU, GPU_SHARED, MIG = "nvidia_com_gpu", "nvidia_com_gpu_shared", "nvidia_com_mig_"
NEURON_RESOURCE = "aws_amazon_com_neuron"


@dataclass(frozen=True, slots=True)
class Target:
    """One scraped process: which job and instance, and which of several equal Prometheus servers scraped it."""

    job: str
    instance: str
    replica: str = ""


@dataclass(frozen=True, slots=True)
class Holder:
    """A running pod's request of one GPU resource."""

    namespace: str
    pod: str
    uid: str
    node: str
    resource: str
    """As kube-state-metrics writes it: `nvidia_com_gpu`."""
    units: int
    targets: frozenset[Target]

    @property
    def name(self) -> tuple[str, str]:
        """Namespace and pod."""
        return self.namespace, self.pod


@dataclass(frozen=True, slots=True)
class Device:
    """One series of a utilization signal."""

    signal: str
    target: Target
    uuid: str
    mig_id: str
    profile: str
    model: str
    node_names: Sequence[str]
    """What its labels say that its node is called, the first choice first; for Neuron the EC2 instance."""
    workload: tuple[str, str]
    """Namespace and pod that the exporter labelled it with, or blanks."""
    has_exported_labels: bool
    """Whether the workload stood in `exported_…`, the scrape having taken `pod` for the exporter's own."""
    target_pod: str
    """`pod` as it stands on the series, whoever wrote it."""
    slot: str
    """`vgpu`: which replica of a shared GPU."""
    claim: str
    """The DRA claim through which it is held."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """All of them, to ask for the series again."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """The device, whatever pod it is labelled with and whichever server scraped it."""
        return self.target.job, self.target.instance, self.uuid, self.mig_id


@dataclass(frozen=True, slots=True)
class Node:
    """A node with what it advertises."""

    name: str
    instance_id: str = ""
    has_info: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    """As kube-state-metrics writes them; only those that attribution reads."""
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    targets: frozenset[Target] = frozenset()

    def label(self, wanted: NodeLabel) -> str:
        """The value of the first of a fact's labels that the node has, else blank."""
        return wanted.value(self.labels)

    @property
    def has_gpus(self) -> bool:
        """Whether it is known to have NVIDIA GPUs."""
        known = self.label(INSTANCE_TYPE) in GPUS_OF_INSTANCE
        return known or any(name.startswith("nvidia_com_") for name in self.capacity)


def shared_mig_profiles(node: Node) -> set[str]:
    """Return the profiles (`1g.5gb`) of MIG slices that a node advertises as shared by several pods."""
    names = (name.removeprefix(MIG) for name in node.capacity if name.startswith(MIG) and name.endswith(SHARED_SUFFIX))
    return {name.removesuffix(SHARED_SUFFIX).replace("_", ".") for name in names}


@dataclass(frozen=True)
class Facts:
    """All of one cluster."""

    now: datetime
    evaluated_at: datetime
    """When holders, nodes and devices were looked at: the last time in the window at which pods held GPUs."""
    series: Mapping[str, int] = field(default_factory=dict)
    """By metric, the most at one time of the window."""
    exporters: Mapping[Target, frozenset[int]] = field(default_factory=dict)
    """Instances of kube-state-metrics, with the times (ms) at which they were seen."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Requests by GPU resource, the most at one time of the window."""
    holders: Sequence[Holder] = ()
    nodes: Mapping[str, Node] = field(default_factory=dict)
    devices: Sequence[Device] = ()
    max_values: Mapping[str, Decimal] = field(default_factory=dict)
    """The highest value of each signal."""
    cluster_labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Labels that name clusters, with their values."""
    label_counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Series by metric and Kubernetes label that the settings need."""
    owner_kinds: Mapping[str, int] = field(default_factory=dict)
    finished_pods: int = 0
    intervals: Mapping[Target, Decimal] = field(default_factory=dict)
    """Scrape interval in seconds, of some instances of each exporter."""
    jobs_with_up: frozenset[str] = frozenset()
    """Jobs whose `up` is kept."""
    labels_outside_selector: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    """Where the selector matches nothing of a metric: what its labels are on series that it leaves out."""
    accepts_long_queries: bool = True
    jobs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Series by source and job, whatever the settings say of sources."""

    def has(self, *metrics: str) -> bool:
        """Whether any of some metrics has series."""
        return any(self.series.get(metric) for metric in metrics)

    @cached_property
    def has_kube_state_metrics(self) -> bool:
        """Whether anything of it is there."""
        return any(count for metric, count in self.series.items() if metric.startswith("kube_"))

    @cached_property
    def gpu_holders(self) -> Sequence[Holder]:
        """Those of NVIDIA GPUs."""
        return [one for one in self.holders if one.resource.startswith("nvidia_com_")]

    @cached_property
    def gpu_devices(self) -> Sequence[Device]:
        """Those of NVIDIA."""
        return [one for one in self.devices if one.signal != NEURON.name]

    @cached_property
    def gpu_nodes(self) -> Mapping[str, Node]:
        """Nodes with NVIDIA GPUs: by what they advertise, by instance type, by who holds and by what exporters see."""
        names = {one.node for one in self.gpu_holders} | {self.node_of(one) for one in self.gpu_devices}
        return {name: node for name, node in self.nodes.items() if node.has_gpus or name in names}

    @cached_property
    def uses_gpus(self) -> bool:
        """Whether there is anything to measure."""
        return bool(self.gpu_nodes or self.gpu_holders or self.gpu_devices)

    @cached_property
    def _node_names(self) -> Mapping[str, str]:
        ids = {node.instance_id: name for name, node in self.nodes.items() if node.instance_id}
        return {**ids, **{name: name for name in self.nodes}}

    def node_of(self, device: Device) -> str:
        """The node that a device is on, blank where no name that it carries is a node's."""
        return next((self._node_names[name] for name in device.node_names if name in self._node_names), "")

    @cached_property
    def devices_on(self) -> Mapping[str, Sequence[Device]]:
        """Device series by node."""
        found: dict[str, list[Device]] = {}
        for device in self.devices:
            found.setdefault(self.node_of(device), []).append(device)
        return found

    @cached_property
    def holder_names(self) -> frozenset[tuple[str, str]]:
        """Namespace and pod of whoever holds."""
        return frozenset(one.name for one in self.holders)

    def is_labeled_with_holder(self, device: Device) -> bool:
        """Whether it is labelled with a pod that holds GPUs."""
        return device.workload in self.holder_names

    def is_exporter_pod(self, device: Device) -> bool:
        """Whether the pod on a series is the exporter's own."""
        pod = device.target_pod
        return bool(pod) and not self.is_labeled_with_holder(device) and ("exporter" in pod or "dcgm" in pod)

    def targets_of(self, metric: str) -> Iterable[Target]:
        """Instances of the exporter that a metric is from, as far as they were looked at."""
        if metric.startswith("kube_"):
            return self.exporters
        if metric == NEURON.name:
            return {one.target for one in self.devices if one.signal == NEURON.name}
        return {one.target for one in self.gpu_devices}

    def interval(self, metric: str) -> Decimal | None:
        """The scrape interval of a metric's exporter in seconds, the longest where instances differ."""
        known = [self.intervals[source] for source in self.targets_of(metric) if source in self.intervals]
        return max(known) if known and (self.has(metric) or metric.endswith("*")) else None
