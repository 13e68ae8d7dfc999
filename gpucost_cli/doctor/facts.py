"""Facts about the metrics in a cluster's Prometheus, before any check evaluates them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from functools import cached_property

from gpucost.core.metering.accelerators import NVIDIA, accelerator_of_signal, vendor_of
from gpucost.core.metering.claims import is_claim_of_extended_resources
from gpucost.core.metering.gpu_shares import SHARED_SUFFIX
from gpucost.core.metering.instance_types import GPUS_OF_INSTANCE, NEURON_OF_INSTANCE
from gpucost.core.metering.kubernetes_labels import INSTANCE_TYPE_LABEL, NodeLabel
from gpucost.core.metering.observations import Unexplained

KUBE_STATE_METRICS = "kube-state-metrics"
REQUESTS = "kube_pod_container_resource_requests"
CLAIM_INFO = "kube_pod_resourceclaim_info"
"""Pods that hold GPUs through DRA. Such GPUs are not in container requests."""
GPU, GPU_SHARED, MIG = "nvidia_com_gpu", "nvidia_com_gpu_shared", "nvidia_com_mig_"


@dataclass(frozen=True, slots=True)
class Target:
    """A scraped target: its job and instance, and the replica of Prometheus that scraped it."""

    job: str
    instance: str
    replica: str = ""


@dataclass(frozen=True, slots=True)
class GpuHolder:
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
class ObservedDevice:
    """One series of a utilization signal."""

    signal: str
    target: Target
    uuid: str
    mig_id: str
    profile: str
    model: str
    node_names: Sequence[str]
    """Names of its node in its labels, in order of preference; for Neuron, the EC2 instance id."""
    workload: tuple[str, str]
    """Namespace and pod that the exporter labeled it with, or blanks."""
    has_exported_labels: bool
    """Whether the workload is in `exported_…`, because `pod` is the exporter's own pod."""
    target_pod: str
    """The series' label `pod`."""
    slot: str
    """The label `vgpu`: the replica of a shared GPU."""
    claim: str
    """The DRA claim through which it is held."""
    is_zero: bool = False
    """Whether the signal is 0."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """All labels, to select the series again."""
    vendor: str = NVIDIA

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identifies the device, regardless of the pod in its labels and of the Prometheus replica."""
        return self.target.job, self.target.instance, self.uuid, self.mig_id


@dataclass(frozen=True, slots=True)
class ObservedNode:
    """A node with its labels and GPU capacity."""

    name: str
    instance_id: str = ""
    zone_of_provider_id: tuple[str, str] = ("", "")
    """Zone and zone id, as metering takes them for nodes without labels."""
    has_info: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    """The labels that attribution reads, named as kube-state-metrics names them."""
    capacity: Mapping[str, int] = field(default_factory=dict)
    allocatable: Mapping[str, int] = field(default_factory=dict)
    targets: frozenset[Target] = frozenset()
    reports_capacity: bool = False
    """Whether the capacity of any resource is reported."""

    def label(self, node_label: NodeLabel) -> str:
        """The value of a label under the first of its names that the node has, else blank."""
        return node_label.value_in(self.labels)

    @property
    def has_gpus(self) -> bool:
        """Whether the node has NVIDIA GPUs, by its instance type or capacity."""
        vendors = {vendor_of(name) for name in self.capacity}
        return NVIDIA in vendors or (not vendors and self.label(INSTANCE_TYPE_LABEL) in GPUS_OF_INSTANCE)


def shared_mig_profiles(node: ObservedNode) -> set[str]:
    """The profiles (`1g.5gb`) of MIG slices that a node shares among several pods."""
    names = (name.removeprefix(MIG) for name in node.capacity if name.startswith(MIG) and name.endswith(SHARED_SUFFIX))
    return {name.removesuffix(SHARED_SUFFIX).replace("_", ".") for name in names}


@dataclass(frozen=True)
class Facts:
    """All facts about one cluster."""

    now: datetime
    evaluated_at: datetime
    """The time of holders, nodes and devices: the last time in the window at which pods held GPUs."""
    series: Mapping[str, int] = field(default_factory=dict)
    """Number of series by metric, at most at one time of the window."""
    exporters: Mapping[Target, frozenset[int]] = field(default_factory=dict)
    """Targets of kube-state-metrics, with the times (ms) at which they had series."""
    resources: Mapping[str, int] = field(default_factory=dict)
    """Number of requests by GPU resource, at most at one time of the window."""
    holders: Sequence[GpuHolder] = ()
    nodes: Mapping[str, ObservedNode] = field(default_factory=dict)
    nodes_by_scheduler: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Names of nodes whose GPUs a scheduler divides by cores and memory, by the scheduler."""
    devices: Sequence[ObservedDevice] = ()
    nodes_with_several_exporters: frozenset[str] = frozenset()
    """Names of nodes of which several exporters report the same devices, for longer than a restart takes."""
    nodes_in_turn: Mapping[Target, frozenset[str]] = field(default_factory=dict)
    """Targets that report other nodes each time, with the nodes' names: a Service of several pods."""
    contradictions: Mapping[str, str] = field(default_factory=dict)
    """By UUID of GPUs whose signal is 0: the metric that says that they are in use."""
    unexplained: Sequence[Unexplained] = ()
    """What attribution does not understand."""
    claiming_pods: frozenset[tuple[str, str]] = frozenset()
    """Namespace and name of running pods with ResourceClaims, if nodes with accelerators advertise none."""
    admin_namespaces: frozenset[str] = frozenset()
    """Names of namespaces whose claims may have admin access, if exporters report claims."""
    pods_of_reported_claims: frozenset[tuple[str, str]] = frozenset()
    """Namespace and name of those whose claims a collector reports, if Neuron nodes advertise no devices."""
    process_values: Mapping[str, Mapping[str, Decimal]] = field(default_factory=dict)
    """By UUID of shared GPUs: the sum of what pods' processes use (`pods`), and the device's own value (`device`)."""
    max_values: Mapping[str, Decimal] = field(default_factory=dict)
    """The largest value of each signal."""
    cluster_labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Labels that name clusters, with their values."""
    label_counts: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """Number of series by metric and Kubernetes label that the settings need."""
    owner_kinds: Mapping[str, int] = field(default_factory=dict)
    finished_pods: int = 0
    intervals: Mapping[Target, Decimal] = field(default_factory=dict)
    """Scrape interval in seconds, of some targets of each exporter."""
    scrape_gaps: Mapping[tuple[str, str], tuple[int, int]] = field(default_factory=dict)
    """Start and end (ms) of the longest time without a scrape, by job and instance of some GPU exporters, and of all
    instances of kube-state-metrics together."""
    last_scrapes: Mapping[Target, int] = field(default_factory=dict)
    """The time (ms) of the last successful scrape, of some targets of each exporter."""
    jobs_with_up: frozenset[str] = frozenset()
    """Jobs whose `up` is kept."""
    labels_outside_selector: Mapping[str, Sequence[Mapping[str, str]]] = field(default_factory=dict)
    """Labels of series that the selector leaves out, by metric, for metrics of which it selects no series."""
    accepts_long_queries: bool = True
    jobs: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Number of series by source and job, regardless of the settings' matchers of sources."""
    collector_labels: Sequence[Mapping[str, str]] = ()
    """Labels that show which collector wrote the series of the sources."""

    def has_series_of_any(self, *metrics: str) -> bool:
        """Whether any of some metrics has series."""
        return any(self.series.get(metric) for metric in metrics)

    @cached_property
    def nodes_with_vgpus(self) -> frozenset[str]:
        """Names of nodes whose GPUs any scheduler divides by cores and memory."""
        return frozenset().union(*self.nodes_by_scheduler.values())

    @cached_property
    def has_kube_state_metrics(self) -> bool:
        """Whether there are series of kube-state-metrics."""
        return any(count for metric, count in self.series.items() if metric.startswith("kube_"))

    @cached_property
    def gpu_holders(self) -> Sequence[GpuHolder]:
        """Pods that hold NVIDIA GPUs."""
        return [holder for holder in self.holders if holder.resource.startswith("nvidia_com_")]

    @cached_property
    def reservations(self) -> Sequence[GpuHolder]:
        """Pods with which KAI Scheduler reserves GPUs for pods with fractions of them."""
        return [holder for holder in self.gpu_holders if holder.pod.startswith("gpu-reservation-")]

    @cached_property
    def gpu_devices(self) -> Sequence[ObservedDevice]:
        """Devices of NVIDIA GPUs."""
        return [device for device in self.devices if device.vendor == NVIDIA]

    @cached_property
    def gpu_nodes(self) -> Mapping[str, ObservedNode]:
        """Nodes with NVIDIA GPUs: by capacity, instance type, pods that hold GPUs, or devices of exporters."""
        names = {holder.node for holder in self.gpu_holders} | {self.node_of(device) for device in self.gpu_devices}
        return {name: node for name, node in self.nodes.items() if node.has_gpus or name in names}

    @cached_property
    def silent_neuron_nodes(self) -> Sequence[str]:
        """Names of nodes that have Neuron devices by their instance types, and advertise none."""
        return [
            name
            for name, node in self.nodes.items()
            if not node.capacity and node.label(INSTANCE_TYPE_LABEL) in NEURON_OF_INSTANCE
        ]

    @cached_property
    def has_silent_nodes(self) -> bool:
        """Whether any node has devices and advertises none, as with a DRA driver."""
        return bool(self.silent_neuron_nodes) or any(not node.capacity for node in self.gpu_nodes.values())

    @cached_property
    def claims_by_device(self) -> Mapping[object, Sequence[ObservedDevice]]:
        """The series of each device that ResourceClaims have: one for each claim."""
        series: dict[object, dict[tuple[str, str], ObservedDevice]] = {}
        for device in self.gpu_devices:
            if device.claim:
                series.setdefault(device.key, {})[device.workload[0], device.claim] = device
        return {key: list(by_claim.values()) for key, by_claim in series.items()}

    @property
    def has_devices_of_several_claims(self) -> bool:
        """Whether any device has several ResourceClaims at a time."""
        return any(len(claims) > 1 for claims in self.claims_by_device.values())

    @cached_property
    def holding_claims_by_device(self) -> Mapping[object, Sequence[ObservedDevice]]:
        """The same without claims that only look: their namespaces allow it, and others have one of the devices."""
        looks = {
            (device.workload[0], device.claim)
            for claims in self.claims_by_device.values()
            if not all(map(self.may_have_admin_access, claims))
            for device in claims
            if self.may_have_admin_access(device)
        }
        return {
            key: [device for device in claims if (device.workload[0], device.claim) not in looks]
            for key, claims in self.claims_by_device.items()
        }

    def may_have_admin_access(self, device: ObservedDevice) -> bool:
        """Whether the claim of a device's series may only look at it, as in metering."""
        namespace, pod = device.workload
        return namespace in self.admin_namespaces and not is_claim_of_extended_resources(device.claim, pod)

    @cached_property
    def uses_gpus(self) -> bool:
        """Whether the cluster has NVIDIA GPUs."""
        return bool(self.gpu_nodes or self.gpu_holders or self.gpu_devices)

    @cached_property
    def _node_names(self) -> Mapping[str, str]:
        ids = {node.instance_id: name for name, node in self.nodes.items() if node.instance_id}
        return {**ids, **{name: name for name in self.nodes}}

    def node_of(self, device: ObservedDevice) -> str:
        """The name of the node that a device is on; blank if none of its labels names a node."""
        return next((self._node_names[name] for name in device.node_names if name in self._node_names), "")

    def node_named(self, name: str) -> str:
        """The node of a name or an EC2 instance id; the name itself if no node has it."""
        return self._node_names.get(name, name)

    @cached_property
    def devices_by_node(self) -> Mapping[str, Sequence[ObservedDevice]]:
        """Devices by the name of their node."""
        by_node: dict[str, list[ObservedDevice]] = {}
        for device in self.devices:
            by_node.setdefault(self.node_of(device), []).append(device)
        return by_node

    @cached_property
    def holder_names(self) -> frozenset[tuple[str, str]]:
        """Namespace and name of all pods that hold GPUs."""
        return frozenset(holder.name for holder in self.holders)

    def is_labeled_with_holder(self, device: ObservedDevice) -> bool:
        """Whether a device is labeled with a pod that holds GPUs."""
        return device.workload in self.holder_names

    def is_exporter_pod(self, device: ObservedDevice) -> bool:
        """Whether the pod in a device's labels is the exporter's own."""
        pod = device.target_pod
        return bool(pod) and not self.is_labeled_with_holder(device) and ("exporter" in pod or "dcgm" in pod)

    def targets_of(self, metric: str) -> Iterable[Target]:
        """The known targets of the exporter of a metric."""
        if metric.startswith("kube_"):
            return self.exporters
        accelerator = accelerator_of_signal(metric)
        if accelerator is not None:
            return {device.target for device in self.devices if device.vendor == accelerator.vendor}
        return {device.target for device in self.gpu_devices}

    def scrape_interval_seconds(self, metric: str) -> Decimal | None:
        """The scrape interval of a metric's exporter in seconds, the longest if targets differ."""
        intervals = [self.intervals[target] for target in self.targets_of(metric) if target in self.intervals]
        return max(intervals) if intervals and (self.has_series_of_any(metric) or metric.endswith("*")) else None
