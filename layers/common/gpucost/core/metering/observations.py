"""What a metrics source saw of one cluster in one hour, before anything is concluded from it.

Adapters fill these records from raw samples; `domain.metering` reads them. Times are integer milliseconds since the
epoch, Prometheus' own resolution.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from typing import NamedTuple

from gpucost.core.hours import HOUR_MS
from gpucost.core.intervals import Scrapes

EDGE_MARGIN_MS = 300_000
"""How far before the hour samples are counted: more than any scrape interval in use (15 to 120 s)."""

LOOK_AROUND_MS = HOUR_MS
"""How far beyond an hour's edges samples are looked for: gaps up to this long are bridged."""

Instance = str
"""One scraped process of a source (`job` and `instance` of its series)."""

SampleTimes = Mapping[Instance, tuple[int, ...]] | None
"""Times at which something was seen, by who saw it; None for what was seen at every scrape of the hour."""


class ContainerRequest(NamedTuple):
    """A container's request of a GPU resource."""

    container: str
    kind: str
    """`container`, `init` (runs before the others) or `sidecar` (an init container that runs on beside them)."""
    resource: str
    """As kube-state-metrics writes it: `nvidia_com_gpu`, `nvidia_com_mig_1g_5gb`, `aws_amazon_com_neuron`."""
    units: Decimal


@dataclass(frozen=True, slots=True)
class PodObservation:
    """A pod with GPU requests that was bound to a node around the hour."""

    namespace: str
    pod: str
    uid: str
    node: str
    requests: tuple[ContainerRequest, ...]
    held: SampleTimes
    """Samples in which the request stood on a node and the pod was not Succeeded or Failed."""
    running: SampleTimes = None
    """Samples in phase Running; like `held` where phases are not kept."""
    scheduled_at: int | None = None
    """`kube_pod_status_scheduled_time`, looked at only where the start fell into a gap."""
    completed_at: int | None = None
    """`kube_pod_completion_time` of a finished pod, looked at only where the finish fell into a gap."""
    finished: SampleTimes = field(default_factory=dict)
    """Samples in which the pod was Succeeded or Failed."""
    workload_kind: str = ""
    workload: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    namespace_labels: Mapping[str, str] = field(default_factory=dict)
    contradiction: str = ""
    """How sources contradict each other about what it holds; "" where they do not."""


@dataclass(frozen=True, slots=True)
class NodeState:
    """What a node said of itself for as long as what it advertised did not change."""

    sampled: SampleTimes
    capacity: Mapping[str, Decimal]
    """Advertised units per GPU resource; none of 0."""
    allocatable: Mapping[str, Decimal]
    """Healthy units per GPU resource."""
    labels: Mapping[str, str]
    """As kube-state-metrics writes them: `label_node_kubernetes_io_instance_type`."""


@dataclass(frozen=True, slots=True)
class NodeObservation:
    """A node, known by name and provider id: the same name with another id is another node."""

    name: str
    provider_id: str
    present: SampleTimes
    labels: Mapping[str, str]
    """All labels seen; the latest value of each."""
    states: tuple[NodeState, ...]
    """In order of time; none where the node advertised no GPUs."""
    contradiction: str = ""
    """How sources contradict each other about what it advertises; "" where they do not."""


class DeviceSeries(NamedTuple):
    """One series of a utilization signal: a GPU, MIG device or NeuronCore, with the pod it is labelled with, if any."""

    node: str
    uuid: str
    mig_instance: str
    mig_profile: str
    model: str
    namespace: str
    pod: str
    uid: str
    slot: str
    """Which of a shared device's replicas (`vgpu`); "" where that is not told."""
    resource_claim: str
    """The ResourceClaim by which its pod holds it (DRA), where that is told."""
    instance: Instance
    scale: Decimal
    """The value that means fully used."""
    rank: int
    """Place of its signal in the order of preference; 0 is best."""
    sample_count: int = 0
    """Samples in the hour."""
    total: Decimal = Decimal(0)
    """Sum of their values."""
    samples: tuple[tuple[int, Decimal], ...] | None = None
    """The samples themselves, where sum and count do not tell enough; None where they do: seen at every scrape."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything seen of one cluster-hour."""

    cluster: str
    hour: datetime
    allocation: Mapping[Instance, Scrapes]
    """Scrapes of the source of requests, nodes and phases, over the look-around of the hour, by its instances."""
    pods: tuple[PodObservation, ...]
    nodes: tuple[NodeObservation, ...]
    devices: tuple[DeviceSeries, ...]
    utilization: Mapping[Instance, Scrapes] = field(default_factory=dict)
    """Scrapes of the exporters of utilization."""
    collects_nodes: bool = False
    """Whether nodes themselves are among the metrics, so that one that is not seen is not there."""
    collects_capacity: bool = False
    """Whether nodes' capacity is among the metrics even if none advertises GPUs."""
    notes: tuple[str, ...] = ()
