"""What a simulated cluster is: nodes with GPUs, pods with their lives, how busy they are, and how they are scraped.

Times are minutes from the scenario's base, a full UTC hour; they may be fractions, and negative.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from devstack.fleet.scraping import Scraping

Minutes = float | Fraction
Interval = tuple[Minutes, Minutes]
Use = Sequence[tuple[Minutes, str]]
"""Use of a device, 0 to 1, from each time on until the next."""
FOREVER: Interval = (-1e6, 1e6)
GPU = "nvidia_com_gpu"


@dataclass(frozen=True)
class Device:
    """A GPU, or a MIG device in it."""

    gpu: int
    profile: str = ""
    mig_id: int = 0


@dataclass(frozen=True)
class Geometry:
    """What a node is divided into for a time."""

    units: Mapping[str, int]
    """Units advertised, by resource as kube-state-metrics writes it."""
    share: Mapping[str, Fraction]
    """The truth: physical GPUs in one unit of each resource."""
    devices: Sequence[Device]
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of GPU Feature Discovery."""
    lifetime: Interval = FOREVER
    """When it is advertised."""
    allocatable: Mapping[str, int] | None = None
    replicas: int = 1
    """Units per device, under time-slicing or MPS."""
    share_factors: Mapping[int, Fraction] = field(default_factory=dict)
    """The truth: factor on the shares of a GPU's slices, by GPU, where they add up to more than the GPU."""


@dataclass(frozen=True)
class Node:
    """A GPU node."""

    name: str
    instance_type: str
    gpus: int
    """Physical GPUs, or Neuron devices."""
    model: str
    """DCGM's `modelName`."""
    geometries: Sequence[Geometry]
    lifetime: Interval = FOREVER
    provider_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    labels_from: Minutes = FOREVER[0]
    """GPU Feature Discovery comes late on a node that boots."""

    def geometry_at(self, minute: Minutes) -> Geometry | None:
        """Its geometry at a time."""
        return next(
            (geometry for geometry in self.geometries if geometry.lifetime[0] <= minute < geometry.lifetime[1]), None
        )


@dataclass(frozen=True)
class Pod:
    """A pod: bound to a node at `start`, running from `running`, finished at `finished`, deleted at `deleted`."""

    name: str
    node: Node | None
    devices: Sequence[int] = ()
    """Places in its node's geometry of the devices that it was given; of Neuron, cores."""
    use: Use = ((FOREVER[0], "0"),)
    """Of each device; with several curves see `uses`."""
    uses: Sequence[Use] = ()
    requests: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: {"main": {GPU: 1}})
    """Units by container and resource."""
    init: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sidecars: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    namespace: str = "team"
    uid: str = ""
    start: Minutes = FOREVER[0]
    running: Minutes | None = None
    finished: Minutes | None = None
    deleted: Minutes = FOREVER[1]
    phase_at_end: str = "Succeeded"
    owners: Sequence[tuple[str, str]] = ()
    """(kind, name) from the pod's owner upwards."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """As kube-state-metrics writes them."""
    never_runs: bool = False
    claims: Sequence[str] = ()
    """ResourceClaims by which it holds what it requests: kube-state-metrics then tells of no request."""

    @property
    def id(self) -> str:
        """Its uid."""
        return self.uid or f"uid-{self.namespace}-{self.name}"

    @property
    def run_interval(self) -> Interval:
        """When it runs."""
        begin = self.start if self.running is None else self.running
        return (begin, self.released_at) if not self.never_runs else (self.released_at, self.released_at)

    @property
    def released_at(self) -> Minutes:
        """When it no longer holds anything."""
        return self.deleted if self.finished is None else min(self.finished, self.deleted)

    def use_of(self, position: int) -> Use:
        """The use of the device at a place in `devices`."""
        return self.uses[position] if self.uses else self.use


@dataclass(frozen=True)
class KubeStateMetrics:
    """One instance, and what it exposes."""

    scraping: Scraping = field(default_factory=lambda: Scraping("kube-state-metrics", "10.0.0.10:8080"))
    shard: tuple[int, int] = (0, 1)
    """This one of so many."""
    node_labels: bool = True
    capacity: bool = True
    node_info: bool = True
    phases: bool = True
    pod_times: bool = False
    """`kube_pod_status_scheduled_time` and `kube_pod_completion_time`."""
    pod_labels: bool = True
    replicaset_owner: bool = True


@dataclass(frozen=True)
class Exporter:
    """dcgm-exporter, one on every node with NVIDIA GPUs."""

    scraping: Scraping = field(default_factory=lambda: Scraping("dcgm-exporter", ""))
    by_node: Mapping[str, Scraping] = field(default_factory=dict)
    """Where a node's is scraped in another way."""
    signals: Mapping[str, int] = field(default_factory=lambda: {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1})
    """Metrics, with the value that means full use."""
    signals_by_node: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Where a node's exporter is of another version."""
    upgraded: tuple[Minutes, Mapping[str, int]] | None = None
    """From a time on, other metrics: the exporter is another version then."""
    mig_gpu_util: str = "absent"
    """What GPU_UTIL, which is not made for MIG, says there: `absent` (mostly), or `zero` (dcgm-exporter#216)."""
    restarts: Sequence[Interval] = ()
    """When the exporter's pods are replaced: silent, and another instance from then on."""
    hostname_is_pod: bool = False
    """Whether it calls itself, not its node, the host (NODE_NAME is not set)."""
    dialect: str = "exported"
    """`exported` (honorLabels false), `plain`, `honor` (idle GPUs carry the exporter's own pod), `blank`, `old`."""
    hostname: str = "Hostname"
    pod_uid: bool = False
    mapping: bool = True
    """Whether pods are mapped at all."""
    sharers: str = "copies"
    """`copies` (one series per sharer), `copies+device` (the unlabelled one too), `first`, `flip`."""
    lingers: Minutes = 0
    """For how long a label stays after its pod has finished."""
    labels_pending_pods: bool = False
    """Whether a label stands from the binding on, before the pod runs."""
    blank: Sequence[Interval] = ()
    """When devices tell nothing although the exporter answers."""
    nan: Sequence[Interval] = ()
    clamps: bool = True
    """Whether values stay within full use."""
    labels_claims: bool = True
    """Whether it labels devices with ResourceClaims."""


@dataclass(frozen=True)
class Scenario:
    """A cluster over some time."""

    name: str
    nodes: Sequence[Node] = ()
    pods: Sequence[Pod] = ()
    ksm: Sequence[KubeStateMetrics] = (KubeStateMetrics(),)
    dcgm: Exporter | None = field(default_factory=Exporter)
    neuron_labels: bool = True
    """Whether neuron-monitor's series carry their pod (its Kubernetes integration is off unless it is asked for)."""
    start: Minutes = -70
    end: Minutes = 130
    hours: Sequence[int] = (0,)
    """The hours to look at, from the base."""
    settings: str = ""
    """Lines of settings beside clusters and pricing."""
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    unrequested_use: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """Use of devices, by node and place, by somebody who requested none."""
    business_units: Mapping[str, str] = field(default_factory=dict)
    """The truth: business units by namespace, where they are not the namespace itself."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The truth: rungs by pod, where they are not what the devices' sharing says."""
    notes: Sequence[str] = ()
    """What the hour's notes must say."""
    residual: bool = False
    """Whether the metrics contradict each other on purpose."""

    def with_scraping(self, **changes: object) -> "Scenario":
        """The same cluster, everything scraped in another way."""
        ksm = tuple(replace(instance, scraping=replace(instance.scraping, **changes)) for instance in self.ksm)  # type: ignore[arg-type]
        dcgm = self.dcgm and replace(self.dcgm, scraping=replace(self.dcgm.scraping, **changes))  # type: ignore[arg-type]
        return replace(self, ksm=ksm, dcgm=dcgm)
