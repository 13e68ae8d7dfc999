"""Observations: the samples of one cluster in one hour, as metering reads them.

`gpucost.sources.prometheus` builds these records from raw samples. Times are integer milliseconds since the epoch,
which is Prometheus' resolution.
"""

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from msgspec import Struct, field

from gpucost.core.hours import HOUR_MS
from gpucost.core.intervals import Scrapes
from gpucost.core.metering.accelerators import NVIDIA
from gpucost.core.metering.inference_servers import CounterKind

MARGIN_BEFORE_HOUR_MS = 300_000
"""How long before the hour samples are counted: more than the usual scrape intervals (15 to 120 s)."""

LOOK_AROUND_MS = HOUR_MS
"""How far beyond the hour samples are queried, so that gaps up to this long are bridged."""

ScrapeTarget = str
"""One scraped process of a source, identified by `job` and `instance` of its series."""

SampleTimes = Mapping[ScrapeTarget, tuple[int, ...]] | None
"""The times of an object's samples, by instance of the source; None for a sample at every scrape of the hour.

The first and the last are enough, because an object exists without interruption (`spans`).
"""


class ContainerRequest(NamedTuple):
    """A container's request for a GPU resource."""

    container: str
    kind: str
    """`container`, `init` (runs before the others) or `sidecar` (an init container that keeps running)."""
    resource: str
    """Named as in kube-state-metrics: `nvidia_com_gpu`, `nvidia_com_mig_1g_5gb`, `aws_amazon_com_neuron`."""
    units: Decimal
    """Of `nvidia_com_gpucores` percent, of `nvidia_com_gpumem` MiB, else a count."""


class ClaimedDevice(NamedTuple):
    """A device that a ResourceClaim allocates. Pods that use the same claim share it."""

    claim: str
    """Its name in the pods' namespace."""
    node: str
    uuid: str
    mig_instance: str
    name: str = ""
    """The device's name in its ResourceSlice: `gpu-0`, `gpu-0-mig-1g5gb-19-4`."""
    driver: str = ""
    """The DRA driver that offers it."""


class GpuFraction(NamedTuple):
    """What a pod gets of each of some GPUs that KAI Scheduler reserves for several pods."""

    share: Decimal | None
    """Annotation `gpu-fraction`."""
    memory_mib: Decimal | None
    """Annotation `gpu-memory`."""
    groups: frozenset[str]
    """The GPUs, by the groups of their reservation pods."""


class PodObservation(Struct, frozen=True):
    """A pod that was bound to a node around the hour, with its GPU requests or with a device of a claim."""

    namespace: str
    pod: str
    uid: str
    node: str
    requests: tuple[ContainerRequest, ...]
    held_samples: SampleTimes
    """Samples in which the pod was bound to a node and not Succeeded or Failed."""
    running_samples: SampleTimes = None
    """Samples in phase Running; None, as for `held_samples`, where phases are not collected."""
    scheduled_at: int | None = None
    """`kube_pod_status_scheduled_time`, used only if the pod started within a gap."""
    completed_at: int | None = None
    """`kube_pod_completion_time` of a finished pod, used only if the pod finished within a gap."""
    finished_samples: SampleTimes = field(default_factory=dict)
    """Samples in which the pod was Succeeded or Failed."""
    workload_kind: str = ""
    workload: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    contradiction: str = ""
    """How sources contradict each other about what the pod holds; "" if they agree."""
    claimed_device: ClaimedDevice | None = None
    """The device that the pod holds through a ResourceClaim (DRA); None if it holds what it requests."""
    fraction: GpuFraction | None = None
    """What the pod gets of reserved GPUs, which other pods request for it."""
    reserved_group: str | None = None
    """The group of pods for which this pod reserves its GPU; "" if it is unknown, None if the pod reserves none."""


class NodeState(Struct, frozen=True):
    """A node's capacity and labels, for as long as what it advertised did not change."""

    sample_times: SampleTimes
    capacity: Mapping[str, Decimal]
    """Advertised units by GPU resource, without resources of 0 units."""
    allocatable: Mapping[str, Decimal]
    """Healthy units by GPU resource."""
    labels: Mapping[str, str]
    """Named as in kube-state-metrics: `label_node_kubernetes_io_instance_type`."""


class UnlabeledFacts(Struct, frozen=True):
    """What metrics other than its labels say about a node; "" for what is unknown."""

    instance_type: str = ""
    instance_type_source: str = ""
    """`karpenter`, `neuron-monitor` or `ec2`, which report it; `hardware` if it is inferred; "" from a label."""
    zone: str = ""
    capacity_type: str = ""
    node_pool: str = ""


_LABELED = UnlabeledFacts()


class NodeObservation(Struct, frozen=True):
    """A node, identified by name and provider id: the same name with another id is another node."""

    name: str
    provider_id: str
    sample_times: SampleTimes
    labels: Mapping[str, str]
    """All its labels, each with the latest value."""
    states: tuple[NodeState, ...]
    """In order of time; empty if the node advertised no GPUs."""
    contradiction: str = ""
    """How sources contradict each other about what it advertises; "" if they agree."""
    unlabeled: UnlabeledFacts = _LABELED
    """What counts where a label is missing."""


class DeviceSeries(Struct, frozen=True):
    """One series of a utilization signal: a GPU, a partition of one or a NeuronCore, and its pod's labels, if any."""

    node: str
    uuid: str
    """Identifies the physical device."""
    mig_instance: str
    """The MIG device, or the partition of an AMD GPU; "" for a whole device."""
    mig_profile: str
    model: str
    namespace: str
    pod: str
    uid: str
    slot: str
    """The replica of a shared device (`vgpu`); "" if the exporter does not report it."""
    resource_claim: str
    """The ResourceClaim by which the pod holds the device (DRA), if the exporter reports it."""
    scrape_target: ScrapeTarget
    scale: Decimal
    """The value of full use."""
    signal_rank: int
    """The position of its signal in the order of preference; 0 is best."""
    sample_count: int = 0
    """The number of samples in the hour."""
    sample_sum: Decimal = Decimal(0)
    """The sum of the samples' values."""
    samples: tuple[tuple[int, Decimal], ...] | None = None
    """Times and values of the samples; None if there is a sample at every scrape, so that sum and count suffice."""
    claimed_name: str = ""
    """The name in its ResourceSlice of the device that the claim allocates."""
    dra_driver: str = ""
    """The DRA driver of the claim's device."""
    vendor: str = NVIDIA


class OfferedDevice(NamedTuple):
    """A device in a ResourceSlice, which claims can have."""

    node: str
    name: str
    sample_times: SampleTimes


class Unexplained(NamedTuple):
    """Something that a node advertises, or that is requested, claimed, labeled or measured, and has no explanation."""

    description: str
    """What the amount counts: `advertised units of`."""
    name: str
    """As its source writes it."""
    amount: Decimal
    node: str = ""
    """The node that has it; "" if that is unknown."""
    change: str = ""
    """The line to change so that it is understood."""
    may_be_gpus: bool = True
    """Whether it may stand for GPUs."""


class GpuLimits(NamedTuple):
    """What a scheduler divides of each GPU of a node."""

    cores: Decimal
    """Percent: 100, unless deviceCoreScaling says otherwise."""
    memory_mib: Decimal


class VirtualGpus(Struct, frozen=True):
    """What a scheduler reports about the fractions of GPUs that it allocates to containers."""

    gpus_of_pod: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    """UUIDs of the GPUs on which pods have vGPUs, by namespace and name."""
    limits: Mapping[str, GpuLimits] = field(default_factory=dict)
    """By node."""
    use: tuple[DeviceSeries, ...] = ()
    """The use of a GPU by one container, which `slot` names."""


class EnergySeries(NamedTuple):
    """One series of a GPU's energy counter, or of its power where there is no counter.

    A MIG device's series, and each copy of a shared device's, has the value of the whole GPU.
    """

    node: str
    uuid: str
    scrape_target: ScrapeTarget
    is_counter: bool
    increase: Decimal | None
    """A counter's increase over the hour in joules; None if single samples are needed."""
    samples: tuple[tuple[int, Decimal], ...] | None = None
    """Times and values in joules, or in watts of a series that is no counter; from before the hour to its end."""


class CounterSeries(NamedTuple):
    """One series of an inference server's counter."""

    namespace: str
    pod: str
    server: str
    model: str
    """The label of the model; "" if the server has none."""
    kind: CounterKind
    instance: str
    """The process that counts: address and port."""
    scrape_target: ScrapeTarget
    other_labels: frozenset[tuple[str, str]]
    """What distinguishes the process' series of this kind and model, such as the reason why requests finished."""
    increase: Decimal | None
    """The increase over the hour; None if single samples are needed."""
    samples: tuple[tuple[int, Decimal], ...] | None = None
    """Times and values, from before the hour to after it."""
    consumer: str = ""
    """The label of who sent the requests; "" if it is not read or not there."""


class ServerCounters(Struct, frozen=True):
    """The counters of inference servers; empty where the settings do not read them."""

    series: tuple[CounterSeries, ...] = ()
    scrapes: Mapping[ScrapeTarget, Mapping[int, bool]] = field(default_factory=dict)
    """By target, the times of scrapes and whether they succeeded, of pods whose single samples are read."""
    of_gateways: tuple[CounterSeries, ...] = ()
    """The counters of gateways, whose pods process no tokens."""


class Observation(Struct, frozen=True):
    """All observations of one cluster-hour."""

    cluster: str
    hour: datetime
    allocation_scrapes: Mapping[ScrapeTarget, Scrapes]
    """Scrapes of the source of requests, nodes and phases (kube-state-metrics), including the look-around."""
    pods: tuple[PodObservation, ...]
    nodes: tuple[NodeObservation, ...]
    devices: tuple[DeviceSeries, ...]
    utilization_scrapes: Mapping[ScrapeTarget, Scrapes] = field(default_factory=dict)
    """Scrapes of the utilization exporters."""
    vgpus: VirtualGpus = field(default_factory=VirtualGpus)
    """What a scheduler of fractions reports; empty where no pod requests a fraction of a GPU."""
    collects_nodes: bool = False
    """Whether node metrics are collected, so that a node without samples does not exist."""
    collects_capacity: bool = False
    """Whether the capacity of nodes is collected, even if none advertises GPUs."""
    lacks_ends_of_pods: bool = False
    """Whether neither phases nor completion times say when pods finish."""
    contradicted_gpus: frozenset[tuple[str, str]] = frozenset()
    """GPUs (node, UUID) whose signal another witness contradicts, so that their use is unknown."""
    process_devices: tuple[DeviceSeries, ...] = ()
    """Shared devices by the signal that exporters report per process, if metering needs it."""
    notes: tuple[str, ...] = ()
    unexplained: tuple[Unexplained, ...] = ()
    """What the reader does not understand."""
    admin_namespaces: frozenset[str] | None = None
    """Namespaces whose claims may have admin access; None if no pod has a device through a claim."""
    offered_devices: tuple[OfferedDevice, ...] = ()
    """The devices in ResourceSlices; empty if no collector reports them."""
    energy: tuple[EnergySeries, ...] = ()
    """The energy of GPUs; empty if it is not measured."""
    counters: ServerCounters = field(default_factory=ServerCounters)
    """The counters of inference servers."""
