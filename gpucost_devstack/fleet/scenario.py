"""The description of a simulated cluster: nodes with GPUs, pods, their lifetimes and use, and how they are scraped.

Times are minutes from the scenario's base, a full UTC hour. They may be fractional and negative.
"""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from gpucost_devstack.fleet.scraping import Scraping

Minutes = float | Fraction
Interval = tuple[Minutes, Minutes]
Use = Sequence[tuple[Minutes, str]]
"""Utilization of a device, 0 to 1, as steps: (from minute, value)."""
FOREVER: Interval = (-1e6, 1e6)
GPU = "nvidia_com_gpu"
CORES, MEMORY, MEMORY_PERCENTAGE = "nvidia_com_gpucores", "nvidia_com_gpumem", "nvidia_com_gpumem_percentage"
FRACTION_RESOURCES = {CORES, MEMORY, MEMORY_PERCENTAGE}
"""Parts of a GPU's cores in percent, and of its memory in MiB or percent, as a scheduler of fractions names them."""


@dataclass(frozen=True)
class Device:
    """A GPU, or a MIG device in it."""

    gpu: int
    profile: str = ""
    mig_id: int = 0
    start: int = 0
    """The first memory slice of a MIG device, where a DRA driver offers it."""

    @property
    def name(self) -> str:
        """Its name in a ResourceSlice of NVIDIA's DRA driver. The number of the profile depends on its compute."""
        number = {"1": 19, "2": 14, "3": 9, "4": 5, "7": 0}.get(self.profile[:1], 0)
        profile = self.profile.replace(".", "").replace("+", "-")
        return f"gpu-{self.gpu}-mig-{profile}-{number}-{self.start}" if profile else f"gpu-{self.gpu}"


@dataclass(frozen=True)
class Geometry:
    """How a node's GPUs are divided and advertised during an interval."""

    units: Mapping[str, int]
    """Advertised units by resource, in the spelling of kube-state-metrics."""
    share: Mapping[str, Fraction]
    """The truth: physical GPUs in one unit of each resource."""
    devices: Sequence[Device]
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of GPU Feature Discovery."""
    lifetime: Interval = FOREVER
    """When it is advertised."""
    allocatable: Mapping[str, int] | None = None
    serves_claims: bool = False
    """Whether a DRA driver offers the devices. Then kube-state-metrics exposes no capacity."""
    is_dynamic: bool = False
    """Whether the DRA driver creates MIG devices for claims, and removes them afterwards."""
    offered_profiles: Sequence[str] = ()
    """The profiles of the partitions in the ResourceSlices, where they are not all that the GPU has."""
    offers_whole_gpus: bool = True
    """Whether GPUs are in the ResourceSlices as a whole, too."""
    replicas: int = 1
    """Units per device, under time-slicing or MPS."""
    vgpus_per_gpu: int = 0
    """How many times HAMi advertises each GPU; 0 if it does not divide GPUs."""
    memory_mib: int = 0
    """The memory of each GPU that HAMi divides."""
    cores: int = 100
    """The percent of each GPU's cores that HAMi divides."""
    share_factors: Mapping[int, Fraction] = field(default_factory=dict)
    """The truth: by GPU, the factor on its slices' shares if they add up to more than the GPU."""


@dataclass(frozen=True)
class Node:
    """A GPU node."""

    name: str
    instance_type: str
    gpus: int | Fraction
    """Physical GPUs, or devices of another vendor."""
    model: str
    """The model in the exporter's labels: DCGM's `modelName`, AMD's `card_model`."""
    geometries: Sequence[Geometry]
    lifetime: Interval = FOREVER
    provider_id: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    labels_from: Minutes = FOREVER[0]
    """From when GPU Feature Discovery's labels exist. On a booting node they come late."""
    vendor: str = "nvidia"
    """`nvidia`, `neuron`, or a vendor of `accelerator_exporters`."""

    @property
    def has_dcgm(self) -> bool:
        """Whether dcgm-exporter runs on the node, if it is installed."""
        return bool(self.model) and self.vendor == "nvidia"

    @property
    def clique(self) -> str:
        """Its NVLink domain, as GPU feature discovery labels it (k8s-device-plugin 0.20, internal/lm/imex.go)."""
        return self.labels.get("nvidia_com_gpu_clique", "")

    @property
    def instance_id(self) -> str:
        """Its EC2 instance ID."""
        return self.provider_id.rpartition("/")[2] or f"i-{self.name}"

    def geometry_at(self, minute: Minutes) -> Geometry | None:
        """The node's geometry at a time."""
        return next(
            (geometry for geometry in self.geometries if geometry.lifetime[0] <= minute < geometry.lifetime[1]), None
        )


@dataclass(frozen=True)
class Pod:
    """A pod: bound to a node at `start`, running from `running`, finished at `finished`, deleted at `deleted`."""

    name: str
    node: Node | None
    devices: Sequence[int] = ()
    """Indices in its node's geometry of the devices assigned to it. For Neuron, indices of cores."""
    use: Use = ((FOREVER[0], "0"),)
    """The use of each device. `uses` overrides it with a curve per device."""
    use_by_device: Sequence[Use] = ()
    requests: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: {"main": {GPU: 1}})
    """Units by container and resource."""
    init_requests: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sidecar_requests: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    namespace: str = "team"
    uid: str = ""
    bound_at: Minutes = FOREVER[0]
    running_at: Minutes | None = None
    finished_at: Minutes | None = None
    deleted_at: Minutes = FOREVER[1]
    phase_at_end: str = "Succeeded"
    owners: Sequence[tuple[str, str]] = ()
    """(kind, name) from the pod's owner upwards."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """In the spelling of kube-state-metrics."""
    never_starts: bool = False
    claims: Sequence[str] = ()
    """ResourceClaims through which it holds its devices. kube-state-metrics then exposes no request. Pods with the same
    claim share its devices."""
    claim_template: str = ""
    """The template from which its claims were made."""
    is_extended: bool = False
    """Whether its request is backed by DRA (KEP-5004): the scheduler generates a claim that is not in the pod's
    specification."""

    fraction: str = ""
    """The share of each of its GPUs that KAI Scheduler gives it (annotation `gpu-fraction`)."""
    fraction_mib: int = 0
    """The memory of each of its GPUs that KAI Scheduler gives it (annotation `gpu-memory`)."""
    reserves: bool = False
    """Whether it reserves its GPU for pods with fractions."""
    groups: Sequence[str] = ()
    """The names of its GPUs at KAI Scheduler, if it reserves them or has fractions of them."""

    @property
    def id(self) -> str:
        """The pod's uid."""
        return self.uid or f"uid-{self.namespace}-{self.name}"

    @property
    def run_interval(self) -> Interval:
        """The interval in which the pod runs."""
        begin = self.bound_at if self.running_at is None else self.running_at
        return (begin, self.released_at) if not self.never_starts else (self.released_at, self.released_at)

    @property
    def released_at(self) -> Minutes:
        """When the pod releases its devices: finished or deleted."""
        return self.deleted_at if self.finished_at is None else min(self.finished_at, self.deleted_at)

    @property
    def device_claims(self) -> Sequence[str]:
        """The claims with which an exporter labels its devices."""
        return [f"{self.name}-extended-resources-"[:58] + "x7k2p"] if self.is_extended else self.claims

    def use_of(self, position: int) -> Use:
        """The use of the device at a position in `devices`."""
        return self.use_by_device[position] if self.use_by_device else self.use


@dataclass(frozen=True)
class KubeStateMetrics:
    """One instance of kube-state-metrics, and which metrics it exposes."""

    scraping: Scraping = field(default_factory=lambda: Scraping("kube-state-metrics", "10.0.0.10:8080"))
    shard: tuple[int, int] = (0, 1)
    """(index of this shard, number of shards)."""
    node_labels: bool = True
    capacity: bool = True
    node_info: bool = True
    phases: bool = True
    pod_times: bool = False
    """`kube_pod_status_scheduled_time` and `kube_pod_completion_time`."""
    pod_labels: bool = True
    pod_annotations: bool = True
    replicaset_owner: bool = True


@dataclass(frozen=True)
class Exporter:
    """dcgm-exporter, one on every node with NVIDIA GPUs."""

    scraping: Scraping = field(default_factory=lambda: Scraping("dcgm-exporter", ""))
    scraping_by_node: Mapping[str, Scraping] = field(default_factory=dict)
    """Nodes whose exporter is scraped differently."""
    targets_have_node: bool = False
    """Whether the targets have the label `node`, as the rendered scrape configuration says."""
    signals: Mapping[str, int] = field(default_factory=lambda: {"DCGM_FI_PROF_GR_ENGINE_ACTIVE": 1})
    """Metrics, with the value that means full use."""
    signals_by_node: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Nodes whose exporter has another version."""
    upgrade: tuple[Minutes, Mapping[str, int]] | None = None
    """(minute of the upgrade, metrics of the new version)."""
    mig_gpu_util: str = "absent"
    """GPU_UTIL of MIG devices, which do not support it: `absent` (mostly), or `zero` (dcgm-exporter#216)."""
    restarts: Sequence[Interval] = ()
    """Intervals in which the exporter's pods are replaced. Afterwards the instance is a new one."""
    hostname_is_pod: bool = False
    """Whether the hostname label is the exporter's pod, because NODE_NAME is not set."""
    label_style: str = "exported"
    """`exported` (honorLabels false), `plain`, `honor` (idle GPUs carry the exporter's own pod), `blank`, `old`."""
    hostname: str = "Hostname"
    pod_uid: bool = False
    maps_pods: bool = True
    """Whether the exporter maps devices to pods."""
    shared_device_series: str = "copies"
    """`copies` (one series per sharer), `copies+device` (the unlabelled one too), `first`, `flip`."""
    per_process: Mapping[str, bool] = field(default_factory=dict)
    """Nodes whose exporter is in virtual-GPU mode and reports GPU_UTIL of shared GPUs per process (dcgm-exporter
    4.5.3-4.8.2 and later); and whether it sees the processes (`hostPID`). If not, it reports 0."""
    unknown_uids: Mapping[str, Sequence[Interval]] = field(default_factory=dict)
    """By pod, intervals in which such an exporter does not know the pod's uid. It then reports 0, without `pod_uid`."""
    gpu_util_factor: str = "1"
    """By what GPU_UTIL, which only says whether any kernel ran, overstates use."""
    label_linger_minutes: Minutes = 0
    """Minutes for which a pod's labels stay after it has finished."""
    labels_pending_pods: bool = False
    """Whether a pod's labels appear when it is bound, before it runs."""
    intervals_without_devices: Sequence[Interval] = ()
    """Intervals in which the exporter answers without device metrics."""
    nan_intervals: Sequence[Interval] = ()
    clamps_to_full_use: bool = True
    """Whether values are limited to full use."""
    labels_claims: bool = True
    """Whether the exporter labels devices with ResourceClaims."""
    labels_partitions: bool = True
    """Whether it labels partitions that are created for claims with pods and claims."""
    energy_metrics: Sequence[str] = ()
    """The energy counter and the power gauge, as far as they are exposed."""
    nodes_without_energy: Sequence[str] = ()
    """Nodes whose exporter exposes neither."""
    idle_watts: int = 60
    full_watts: int = 360
    """A GPU's power without use and at full use."""
    driver_loads: Sequence[Minutes] = ()
    """When the driver is loaded again, so that the energy counter starts at 0."""


@dataclass(frozen=True)
class ClaimCollector:
    """A collector of ResourceSlices and ResourceClaims."""

    kind: str = "kube-dra-exporter"
    """`kube-dra-exporter`, or `kube-state-metrics`."""
    scraping: Scraping = field(default_factory=lambda: Scraping("kube-dra-exporter", "10.0.0.30:8080"))


@dataclass(frozen=True)
class Hami:
    """HAMi's scheduler and its vGPU monitor on every node, and which of them is scraped."""

    version: str = "2.9"
    """`2.9`, or `2.8` with the earlier names of metrics and labels."""
    exposes_scheduler: bool = True
    exposes_monitors: bool = True
    scraping: Scraping = field(default_factory=lambda: Scraping("", ""))


@dataclass(frozen=True)
class AcceleratorExporter:
    """The exporters of the vendors other than NVIDIA and AWS, one on every node of theirs."""

    gaps: Sequence[Interval] = ()
    """Intervals in which they are not scraped."""
    label_style: str = "exported"
    """`exported` (honorLabels false) or `honor` (idle devices carry the exporter's own pod)."""
    prefix: str = ""
    """`MetricsFieldPrefix` of AMD's exporter."""
    has_serial_numbers: bool = True
    """Whether AMD's exporter knows them. In virtual machines it does not."""


def _exact(minute: Minutes) -> Fraction | int:
    """A time for exact arithmetic, which is much faster with integers."""
    return minute if isinstance(minute, int) else Fraction(minute)


@dataclass(frozen=True)
class ModelLoad:
    """What a server processes for one model."""

    model: str
    steps: Sequence[tuple[Minutes, Mapping[str, int]]]
    """Steps of (from minute, tokens or requests per minute by kind): `prompt`, `generated`, `cached`, `requests`."""
    consumer: str = ""
    """The name by which the server's counters know who sends the requests."""
    used_by: str = ""
    """The truth: the business unit that sends them."""

    def served(self, kind: str, time: Interval) -> Fraction | int:
        """What is served in an interval."""
        return self.served_until(kind, time[1]) - self.served_until(kind, time[0])

    def served_until(self, kind: str, minute: Minutes) -> Fraction | int:
        """What is served from the first step until a time."""
        number = bisect_right(self._starts, minute) - 1
        if number < 0:
            return 0
        since, rates = self.steps[number]
        return self._totals[number].get(kind, 0) + rates.get(kind, 0) * (_exact(minute) - _exact(since))

    @cached_property
    def _starts(self) -> Sequence[Minutes]:
        return [since for since, _ in self.steps]

    @cached_property
    def _totals(self) -> Sequence[Mapping[str, Fraction | int]]:
        """What is served before each step."""
        totals: list[dict[str, Fraction | int]] = [{}]
        for (since, rates), (until, _) in pairwise(self.steps):
            minutes = _exact(until) - _exact(since)
            kinds = {**totals[-1], **rates}
            totals.append({kind: totals[-1].get(kind, 0) + rates.get(kind, 0) * minutes for kind in kinds})
        return totals


@dataclass(frozen=True)
class InferenceServer:
    """An inference server in a pod."""

    pod: Pod
    kind: str
    """`vllm`, `sglang`, `tgi`, `nim`, `triton`, `trtllm` or `dynamo` (the frontend)."""
    loads: Sequence[ModelLoad]
    port: int = 8000
    processes: Sequence[Interval] = (FOREVER,)
    """When its processes answer. The counters of each begin at 0."""
    scraping: Scraping = field(default_factory=lambda: Scraping("", ""))
    jobs: Mapping[str, int] = field(default_factory=lambda: {"servers": 0})
    """The jobs that scrape it, each with its offset in seconds."""
    scraped_from: Minutes = FOREVER[0]
    missing_kinds: Sequence[str] = ()
    """Kinds of counters that are not stored."""
    namespace_label: str = "namespace"
    pod_label: str = "pod"
    consumer_label: str = ""
    """The label of its counters that names the consumer."""
    counted_kinds: Sequence[str] = ("prompt", "generated", "cached", "requests")
    """The truth: what of it counts, where two sides of a split count the same tokens."""
    unknown_hours: Sequence[int] = ()
    """The truth: the hours whose tokens cannot be known."""
    counts_again: bool = False
    """The truth: whether another server of the pod counts the same tokens."""
    tolerance_of_split: Fraction = Fraction(0)
    """How much the split of costs between models may be off, where tokens are lost between scrapes."""

    def process_at(self, minute: Minutes) -> Interval | None:
        """The process that answers at a time."""
        return next((process for process in self.processes if process[0] <= minute < process[1]), None)


@dataclass(frozen=True)
class InferenceGateway:
    """A gateway in front of inference servers, in a pod without GPUs."""

    kind: str
    """`llm-d-router` or `inference-extension`."""
    loads: Sequence[ModelLoad]
    """What passes it, by model and consumer."""
    pod: str = "gateway-1"
    namespace: str = "team"
    processes: Sequence[Interval] = (FOREVER,)
    """When its processes answer. The counters of each begin at 0."""
    scraping: Scraping = field(default_factory=lambda: Scraping("", ""))


@dataclass(frozen=True)
class Scenario:
    """A cluster during an interval."""

    name: str
    nodes: Sequence[Node] = ()
    pods: Sequence[Pod] = ()
    ksm: Sequence[KubeStateMetrics] = (KubeStateMetrics(),)
    dcgm: Exporter | None = field(default_factory=Exporter)
    claim_collector: ClaimCollector | None = None
    hami: Hami | None = None
    neuron_labels: bool = True
    """Whether neuron-monitor's series carry their pod (the Kubernetes integration is off by default)."""
    servers: Sequence[InferenceServer] = ()
    gateways: Sequence[InferenceGateway] = ()
    server_groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """The truth: the names of pods that are one server, by any name."""
    accelerators: AcceleratorExporter | None = field(default_factory=AcceleratorExporter)
    """The exporters of other vendors; None if they are missing."""
    start: Minutes = -70
    end: Minutes = 130
    hours: Sequence[int] = (0,)
    """The hours to check, counted from the base."""
    settings: str = ""
    """Lines of the settings document, in addition to clusters and pricing."""
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    quotas: Mapping[str, int] = field(default_factory=dict)
    """GPUs that a namespace may request, by namespace."""
    unrequested_use: Mapping[tuple[str, int], str] = field(default_factory=dict)
    """Use of devices by processes that requested none, by node and device index."""
    business_unit_by_pod: Mapping[str, str] = field(default_factory=dict)
    """The truth: business units by pod, where they are not the namespace itself."""
    utilization_source_by_pod: Mapping[str, str] = field(default_factory=dict)
    """The truth: utilization sources by pod, where they differ from what the devices' sharing implies."""
    sources: Sequence[str] = ("pod", "process", "shared")
    """The truth: the sources that `settings` allow."""
    expected_notes: Sequence[str] = ()
    """Texts that the hour's notes must contain."""
    minimum_job_gpus: int | None = None
    """The truth: fewer free GPUs of an NVLink domain are stranded."""
    allows_residual: bool = False
    """Whether the metrics contradict each other on purpose, so that a residual remains."""

    def with_scraping(self, **changes: object) -> "Scenario":
        """The same cluster with other scrape parameters for all targets."""
        ksm = tuple(replace(instance, scraping=replace(instance.scraping, **changes)) for instance in self.ksm)  # type: ignore[arg-type]
        dcgm = self.dcgm and replace(self.dcgm, scraping=replace(self.dcgm.scraping, **changes))  # type: ignore[arg-type]
        return replace(self, ksm=ksm, dcgm=dcgm)
