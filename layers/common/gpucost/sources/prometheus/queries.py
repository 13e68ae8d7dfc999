"""The PromQL queries of attribution: a handful, whatever the cluster's size, in shards if results are too large.

Every query counts or sums samples over a range vector, or takes single samples at its ends. None uses a subquery, and
none assumes a scrape interval. A range ends one millisecond before the hour's end (`offset 1ms`), so that
`[hour, hour + 1h)` holds the same samples in Prometheus 2 (closed ranges) and 3 (left-open ranges).

One query returns several statistics as a union, distinguished by a label. The statistic with most series has no label,
because adding and encoding the label costs Prometheus more than reading the samples.
"""

import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from gpucost.core.hours import HOUR_MS
from gpucost.core.metering.accelerators import (
    ACCELERATORS,
    DRA_DRIVERS,
    DRA_DRIVERS_WITHOUT_GPUS,
    EXTENDED_RESOURCES,
    GPU_RESOURCES,
    NEURON,
    NO_GPUS,
    accelerator_of_signal,
)
from gpucost.core.metering.energy import ENERGY_COUNTERS, POWER_GAUGES
from gpucost.core.metering.fraction_schedulers import (
    FRACTION_RESOURCES,
    GPU_LABEL_OF_SIGNAL,
    VGPU_METRICS,
    VGPU_SIGNALS,
)
from gpucost.core.metering.inference_servers import InferenceServer, metrics_of_servers
from gpucost.core.metering.kubernetes_labels import (
    ADMIN_NAMESPACE_LABEL,
    GPU_GROUP_LABEL,
    NAMESPACE_LABELS_METRIC,
    NODE_LABELS_METRIC,
    POD_LABELS_METRIC,
)
from gpucost.core.metering.observations import MARGIN_BEFORE_HOUR_MS
from gpucost.core.metering.signals import Signal
from gpucost.sources.prometheus.claim_collectors import CLAIM_COLLECTORS
from gpucost.sources.prometheus.metrics_sources import (
    KUBE_STATE_METRICS,
    MetricsSource,
    TrustedSeries,
    metrics_source_of,
)

# Shards of a query's series, for queries whose whole result is too large for one response (AMP: 50 MB).
#
# PromQL has no hash function. Shards are selected by the last character of a label that is evenly distributed: uids and
# UUIDs end in hexadecimal digits, names of nodes and ReplicaSets in digits and letters. Other endings are in the last
# shard.

_CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


class Shard(Struct, frozen=True):
    """Series whose label ends in one of some characters, or with `includes_others` in a character of no shard."""

    endings: str = ""
    includes_others: bool = False

    def matcher(self, label: str) -> str:
        """The PromQL matcher that selects the shard by a label."""
        endings = f".*[{self.endings}{self.endings.upper()}]"
        if not self.includes_others:
            return f'{label}=~"{endings}"'
        # An empty or missing label has no last character. It belongs to this shard only.
        return f'{label}=~"({endings}|.*[^0-9a-zA-Z])?"'


ALL_SERIES = Shard()


def make_shards(count: int) -> Sequence[Shard]:
    """Divide all series into up to 36 disjoint shards."""
    return [Shard(_CHARACTERS[offset::count], includes_others=offset == count - 1) for offset in range(count)]


# All queries of a cluster's hours.

STATISTIC_LABEL = "gpucost_stat"
"""The label that names a statistic. No exporter has it."""
NO_STATISTIC_LABEL = ""
"""The statistic of series without the label."""
_TARGET_LABELS = "job, instance, prometheus_replica, __replica__"
"""The labels by which `tables.scrape_target` identifies a target."""
ADVERTISED, REQUESTED = "unknown-advertised", "unknown-requested"
"""Statistics of resources of which metering does not know whether they are GPUs."""
REQUESTS = "kube_pod_container_resource_requests"
INIT_REQUESTS = "kube_pod_init_container_resource_requests"
INIT_RUNNING = "kube_pod_init_container_status_running"
PHASE = "kube_pod_status_phase"
POD_RESOURCE_CLAIMS = "kube_pod_resourceclaim_info"
POD_ANNOTATIONS = "kube_pod_annotations"
GROUP_LABEL_MATCHER = f'{GPU_GROUP_LABEL}!=""'
"""Selects pods with fractions of reserved GPUs, and reservation pods (KAI Scheduler)."""
POD_OWNER, POD_LABELS = "kube_pod_owner", POD_LABELS_METRIC
SCHEDULED, COMPLETED = "kube_pod_status_scheduled_time", "kube_pod_completion_time"
NODE_INFO, NODE_LABELS = "kube_node_info", NODE_LABELS_METRIC
CAPACITY, ALLOCATABLE = "kube_node_status_capacity", "kube_node_status_allocatable"
KARPENTER_NODES = "karpenter_nodes_allocatable"
KARPENTER_LABELS = ("node_name", "instance_type", "zone", "capacity_type", "nodepool")
NEURON_LABELS = ("instance_name", "instance_id", "instance_type", "availability_zone")
GPU_MEMORY = ("DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE")
WHOLE_GPUS = 'GPU_I_ID=""'
_RUNNING, _PHASES = 'phase="Running"', 'phase=~"Running|Succeeded|Failed"'
ENERGY, ENERGY_SAMPLES = "energy", "energy-samples"
"""Prefixes of the statistics of an energy counter: its increase over the hour, and its number of samples."""
UNKNOWN_DRIVERS = "unknown-drivers"
"""The prefix of the statistics of devices of DRA drivers that are not in the catalog."""
ADMIN_NAMESPACES = "admin-namespaces"
"""The statistic of namespaces whose claims may have admin access."""
POWER = "power"
"""The prefix of statistics of GPUs' mean power over the hour, in watts."""
PARTIAL = "partial"
"""The statistic of pods for which the increase of inference servers' counters is not enough."""
COUNTS, SAMPLES = "counts", "samples"
"""The statistic that counts series by their number of samples, and the label that holds this number."""
_HOUR_RANGE = "[1h] offset 1ms"
_AT_END = "offset 1ms"


class Window(Struct, frozen=True):
    """The time before the evaluation that a query reads, in milliseconds."""

    length: int = HOUR_MS + MARGIN_BEFORE_HOUR_MS
    """The time in which samples are counted."""
    start: int = HOUR_MS
    """How long before the evaluation the hour starts."""

    @property
    def range(self) -> str:
        """The range selector of the window."""
        return f"[{self.length}ms] offset 1ms"

    @property
    def at_start(self) -> str:
        """The offset modifier of the hour's start."""
        return f"offset {self.start}ms"


HOUR_WINDOW = Window()


class PodMatcher(Struct, frozen=True):
    """Selects some pods by uid, or by name if the source has no uids."""

    label: Literal["uid", "pod", "exported_pod"]
    values: tuple[str, ...]


class InferenceLabels(Struct, frozen=True):
    """Inference servers, and the labels of their counters that name the pod."""

    servers: Sequence[InferenceServer]
    namespace: str = "namespace"
    pod: str = "pod"
    gateway: InferenceServer | None = None

    @property
    def sources(self) -> Sequence[InferenceServer]:
        """The servers and the gateway."""
        return self.servers if self.gateway is None else (*self.servers, self.gateway)


class Queries(Struct, frozen=True):
    """The queries of one cluster.

    Args:
        selector: label values that are added to each selector.
        signals: utilization signals by rank, the best first.
        shard: the shard of the series to read, if the whole response would be too large.
        trusted_series: label matchers of each metrics source's trusted series.
        measures_energy: whether the energy of GPUs is read.
        units: GPUs per unit of further resources, from the settings; 0 for a resource that is no GPU.
    """

    selector: Mapping[str, str]
    signals: Sequence[Sequence[Signal]]
    shard: Shard = ALL_SERIES
    trusted_series: TrustedSeries = field(default_factory=TrustedSeries)
    measures_energy: bool = False
    """Whether the energy of GPUs is read."""
    inference: InferenceLabels | None = None
    """The inference servers whose counters are read; None if none are."""
    units: Mapping[str, Fraction] = field(default_factory=dict)
    """GPUs per unit of further resources."""

    @property
    def _gpu_resources(self) -> str:
        """A regular expression of all resources that are GPUs."""
        return all_gpu_resources(self.units)

    @property
    def _pod_resources(self) -> str:
        """What pods request. Nodes may advertise cores and memory of GPUs, too, but these are no further GPUs."""
        return "|".join([self._gpu_resources, *sorted(FRACTION_RESOURCES)])

    def for_shard(self, shard: Shard) -> "Queries":
        """The same queries for one shard of the series."""
        return replace(self, shard=shard)

    def series_selector(
        self, metric: str, *matchers: str, shard_by: str = "", metrics_source: MetricsSource | None = None
    ) -> str:
        """A selector with the matchers of the cluster and of the metrics source.

        Args:
            metric: the metric's name; "" if the matchers name several metrics.
            matchers: further matchers.
            shard_by: the label by which series are divided into shards.
            metrics_source: the exporter of the series, if the metric's name does not determine it.
        """
        of_cluster = [f"{name}={quote(value)}" for name, value in sorted(self.selector.items())]
        of_shard = [self.shard.matcher(shard_by)] if shard_by and self.shard != ALL_SERIES else []
        of_source = self.trusted_series.matchers(metrics_source or metrics_source_of(metric))
        all_matchers = ",".join((*matchers, *of_cluster, *of_source, *of_shard))
        return f"{metric}{{{all_matchers}}}"

    def _requests(self, *matchers: str, init: bool) -> str:
        metric, resources = INIT_REQUESTS if init else REQUESTS, f"resource=~{quote(self._pod_resources)}"
        return self.series_selector(metric, resources, 'node!=""', *matchers, shard_by="uid")

    def _gpu_pods(self, offset: str, *matchers: str) -> str:
        return f"({self._requests(*matchers, init=False)} {offset} or {self._requests(*matchers, init=True)} {offset})"

    def _pods_with_gpus(self) -> str:
        """Pods that exist at the hour's end and request GPUs, or hold some through claims."""
        return f"({self._gpu_pods(_AT_END)} or {self.series_selector(POD_RESOURCE_CLAIMS, shard_by='uid')} {_AT_END})"

    def requests(self, window: Window = HOUR_WINDOW) -> str:
        """GPU requests of pods on nodes: samples in the window, and units at its end if they are not 1."""
        return union(
            {
                NO_STATISTIC_LABEL: f"count_over_time({self._requests(init=False)}{window.range})",
                "units": f"({self._requests(init=False)} {_AT_END} != 1)",
                "init-count": f"count_over_time({self._requests(init=True)}{window.range})",
                "init-units": f"({self._requests(init=True)} {_AT_END} != 1)",
            }
        )

    def running(self, window: Window = HOUR_WINDOW) -> str:
        """Uids of the GPU pods that every target reports as Running at the window's start and end.

        No pod leaves phase Running and returns to it. Most pods are in this result, with one short label each. The
        others are queried with `phases`.
        """
        running = self.series_selector(PHASE, _RUNNING, shard_by="uid")
        both = f"min by (uid) ({running} {_AT_END}) + min by (uid) ({running} {window.at_start}) == 2"
        return f"({both}) and on (uid) {self._gpu_pods(_AT_END)}"

    def phases(self, window: Window = HOUR_WINDOW, uids: Iterable[str] = ()) -> str:
        """The phases of GPU pods at the window's start and end; of all GPU pods if no uids are given."""
        matchers = [f"uid=~{any_of_values(uids)}"] if uids else []
        phases = self.series_selector(PHASE, _PHASES, *matchers, shard_by="uid")
        offsets = {"start": window.at_start, "end": _AT_END}
        return union(
            {
                name: f"(({phases} {offset} == 1) and on (uid) {self._gpu_pods(offset, *matchers)})"
                for name, offset in offsets.items()
            }
        )

    def completed(self) -> str:
        """Completion times of GPU pods, which say when they finished if no phases are collected."""
        return f"{self.series_selector(COMPLETED, shard_by='uid')} {_AT_END} and on (uid) {self._gpu_pods(_AT_END)}"

    def nodes(self) -> str:
        """Nodes, their labels at the hour's end, their labels at its start if they differ, and their GPU capacity.

        Two more statistics, which mostly have no series, are about resources that are not known.
        """
        resources = f"resource=~{quote(self._gpu_resources)}"
        capacity = self.series_selector(CAPACITY, resources, shard_by="node")
        allocatable = self.series_selector(ALLOCATABLE, resources, shard_by="node")
        labels = self.series_selector(NODE_LABELS, shard_by="node")
        processors = self.series_selector(CAPACITY, 'resource="cpu"', shard_by="node")
        return union(
            {
                "info": f"count_over_time({self.series_selector(NODE_INFO, shard_by='node')}{HOUR_WINDOW.range})",
                "labels-start": f"({labels} {HOUR_WINDOW.at_start} unless {labels} {_AT_END})",
                "labels-end": f"{labels} {_AT_END}",
                "capacity-sum": f"sum_over_time({capacity}{HOUR_WINDOW.range})",
                "capacity": f"{capacity} {_AT_END}",
                "allocatable-sum": f"sum_over_time({allocatable}{HOUR_WINDOW.range})",
                "allocatable": f"{allocatable} {_AT_END}",
                "kept": f"count({processors} {_AT_END})",
                **unknown_resource_queries(self.series_selector, self.units),
            }
        )

    def hardware(self) -> str:
        """What says the instance types of nodes if their labels are not exported."""
        size = self.series_selector(CAPACITY, 'resource=~"cpu|memory"', shard_by="node")
        by_node = "node, exported_node, resource"
        memory = " + ".join(
            f"min by (Hostname, hostname, UUID) "
            f"(max_over_time({self.series_selector(metric, WHOLE_GPUS, shard_by='UUID')}{_HOUR_RANGE}))"
            for metric in GPU_MEMORY
        )
        karpenter = self.series_selector(KARPENTER_NODES, 'resource_type="cpu"', shard_by="node_name")
        neuron = [f"last_over_time({self.series_selector(signal.name)}{_HOUR_RANGE})" for signal in NEURON.signals]
        return union(
            {
                "largest": f"max by ({by_node}) (max_over_time({size}{_HOUR_RANGE}))",
                "smallest": f"min by ({by_node}) (min_over_time({size}{_HOUR_RANGE}))",
                "gpu-memory": f"min by (Hostname, hostname) ({memory})",
                "karpenter": f"group by ({', '.join(KARPENTER_LABELS)}) (last_over_time({karpenter}{_HOUR_RANGE}))",
                "neuron-monitor": f"group by ({', '.join(NEURON_LABELS)}) ({' or '.join(neuron)})",
            }
        )

    def owners(self) -> str:
        """The owners of the GPU pods that exist at the hour's end, and the owners of these owners."""
        pods = f"{self.series_selector(POD_OWNER, shard_by='uid')} {_AT_END} and on (uid) {self._pods_with_gpus()}"
        return union(
            {
                NO_STATISTIC_LABEL: _owner_labels_only(pods, "pod, exported_pod, owner_is_controller"),
                "replicaset": _owner_labels_only(
                    f"{self.series_selector('kube_replicaset_owner', shard_by='replicaset')} {_AT_END}", "replicaset"
                ),
                "job": _owner_labels_only(
                    f"{self.series_selector('kube_job_owner', shard_by='job_name')} {_AT_END}", "job_name"
                ),
                "claim": (
                    f"last_over_time({self.series_selector(POD_RESOURCE_CLAIMS, shard_by='uid')}{HOUR_WINDOW.range})"
                ),
            }
        )

    def admin_namespaces(self) -> str:
        """Namespaces whose claims may have admin access."""
        labels = self.series_selector(NAMESPACE_LABELS_METRIC, f'{ADMIN_NAMESPACE_LABEL}="true"')
        return f"last_over_time({labels}{_HOUR_RANGE})"

    def claim_objects(self) -> str:
        """Devices of ResourceSlices, devices of claims, and pods of claims: samples in the window, by metric.

        Of drivers that may offer accelerators and are not in the catalog: how many devices each node has. And the
        namespaces whose claims may have admin access.
        """
        of_driver = f"driver=~{any_of_values(DRA_DRIVERS)}"
        statistics: dict[str, str] = {}
        for collector in CLAIM_COLLECTORS:
            for metric, shard_by, matchers in (
                (collector.devices, collector.device_labels.device, [of_driver]),
                (collector.allocations, collector.claim, [of_driver]),
                (collector.reservations, collector.claim, []),
            ):
                series = self.series_selector(metric, *matchers, shard_by=shard_by)
                statistics[metric] = f"count_over_time({series}{HOUR_WINDOW.range})"
            labels, node = collector.device_labels, collector.node
            unknown = self.series_selector(collector.devices, *UNKNOWN_DRIVER_MATCHERS, shard_by=labels.device)
            devices = (
                f"group by (driver, {labels.pool}, {labels.device}, {node}) (last_over_time({unknown}{_HOUR_RANGE}))"
            )
            statistics[f"{UNKNOWN_DRIVERS} {collector.devices}"] = f"count by (driver, {node}) ({devices})"
        statistics[ADMIN_NAMESPACES] = self.admin_namespaces()
        return union(statistics)

    def labels(self, *, of_pods: bool, of_namespaces: bool) -> str | None:
        """Labels of pods and of namespaces; None if neither is requested."""
        statistics: dict[str, str] = {}
        if of_namespaces:
            namespaces = self.series_selector(NAMESPACE_LABELS_METRIC, shard_by="namespace")
            statistics["namespace-start"] = f"{namespaces} {HOUR_WINDOW.at_start}"
            statistics["namespace"] = f"{namespaces} {_AT_END}"
        if of_pods:
            pods = f"{self.series_selector(POD_LABELS, shard_by='uid')} {_AT_END}"
            statistics["pod"] = f"({pods} and on (uid) {self._pods_with_gpus()})"
        return union(statistics) if statistics else None

    def devices(self, rank: int, nodes: Sequence[str] = (), label: str = "Hostname") -> str:
        """Device series of one rank's signals.

        Per series: the sum of its samples in the hour, and whether any was above full use. Per exporter: how many
        series have how many samples, which is nearly always the same number for all.

        Args:
            rank: 0 for the best.
            nodes: only these nodes; all if empty.
            label: the label that holds nodes' names, `Hostname` or `hostname`.
        """
        matchers = [f"{label}=~{any_of_values(nodes)}"] if nodes else []
        statistics: dict[str, str] = {}
        of_accelerators: dict[str, str] = {}
        for signal, series in self._signals(rank, matchers):
            is_first = signal == self.signals[rank][0]
            of_vendor = statistics if accelerator_of_signal(signal.name) is None else of_accelerators
            sums, peaks = f"sum_over_time({series}{_HOUR_RANGE})", f"max_over_time({series}{_HOUR_RANGE})"
            if signal.averaged_over:
                sums = f"avg without ({signal.averaged_over}) ({sums})"
                peaks = f"max without ({signal.averaged_over}) ({peaks})"
            of_vendor[NO_STATISTIC_LABEL if is_first else f"sum {signal.name}"] = sums
            counts = f"count_over_time({series}{_HOUR_RANGE})"
            of_vendor[f"{COUNTS} {signal.name}"] = f'count_values by ({_TARGET_LABELS}) ("{SAMPLES}", {counts})'
            of_vendor[f"peak {signal.name}"] = f"({peaks} > {signal.scale})"
        if rank == 0 and self.measures_energy:
            statistics |= self._energy()
        # In parentheses, so that `or` combines the many series of NVIDIA's GPUs with the others once.
        return f"{union(statistics)} or ({union(of_accelerators)})" if of_accelerators else union(statistics)

    def _energy(self) -> dict[str, str]:
        """The energy of GPUs: statistics without any series where no exporter measures it.

        `ENERGY` is the increase of a counter from its last sample before the hour to the last in it. `ENERGY_SAMPLES`
        are the sample counts of series of which single samples are needed: counters that started again or are not
        there at both ends, and power where there is no counter.
        """
        statistics: dict[str, str] = {}
        samples: list[str] = []
        for name in ENERGY_COUNTERS:
            counter = self.series_selector(name, shard_by="UUID")
            increase = f"({counter} - {counter} offset 1h unless resets({counter}[65m]) > 0)"
            samples.append(f"count_over_time({counter}[1h])")
            statistics[f"{ENERGY} {name}"] = increase
            statistics[f"{ENERGY_SAMPLES} {name}"] = f"({samples[-1]} unless {increase})"
        gauges = " or ".join(
            f"count_over_time({self.series_selector(name, shard_by='UUID')}[1h])" for name in POWER_GAUGES
        )
        without_counter = " ".join(f"unless on (UUID, instance) {counts}" for counts in samples)
        return statistics | {f"{ENERGY_SAMPLES} power": f"(({gauges}) {without_counter})"}

    def witnesses(self, vendors: Container[str], nodes: Sequence[str], label: str) -> str:
        """The signals of lower ranks, and the mean power of the hour, of GPUs whose signal is 0.

        Args:
            vendors: of these GPUs.
            nodes: of NVIDIA's GPUs, only those of these nodes; all if empty.
            label: the label that holds nodes' names, `Hostname` or `hostname`.
        """
        matchers = [f"{label}=~{any_of_values(nodes)}"] if nodes else []
        statistics: dict[str, str] = {}
        for rank in range(1, len(self.signals)):
            for signal, series in self._signals(rank, matchers):
                statistics[f"sum {signal.name}"] = f"sum_over_time({series}{_HOUR_RANGE})"
                statistics[f"count {signal.name}"] = f"count_over_time({series}{_HOUR_RANGE})"
        for name, joules in ENERGY_COUNTERS.items():
            counter = self.series_selector(name, *matchers, shard_by="UUID")
            statistics[f"{POWER} {name}"] = f"rate({counter}{_HOUR_RANGE}) * {joules}"
        gauges = [(name, "UUID", matchers) for name in POWER_GAUGES]
        if self._includes_unsharded:
            of_vendors = [accelerator for accelerator in ACCELERATORS if accelerator.vendor in vendors]
            gauges += [(name, "", []) for accelerator in of_vendors for name in accelerator.power_metrics]
        for name, shard_by, of_nodes in gauges:
            gauge = self.series_selector(name, *of_nodes, shard_by=shard_by)
            statistics[f"{POWER} {name}"] = f"avg_over_time({gauge}{_HOUR_RANGE})"
        return union(statistics)

    def counters(self, inference: InferenceLabels) -> str:
        """The increase of inference servers' counters over the hour.

        The increase is that from the last sample before the hour to the last in it. `PARTIAL` are the pods with series
        that are not there at both ends, or with a counter that started again: their single samples are needed.
        """
        metrics = metrics_of_servers(inference.sources)
        counters = self.series_selector("", name_matcher(metrics), shard_by=inference.pod)
        # Binary operators drop the metric's name, so it is copied to the label of the statistic first.
        at_end, at_start = (_with_name(f"{counters} offset {offset}ms") for offset in (1, HOUR_MS + 1))
        increase = f"({at_end} - {at_start})"
        resets = (f"resets({self.series_selector(metric, shard_by=inference.pod)}[65m]) > 0" for metric in metrics)
        partial = [f"{_with_name(f'last_over_time({counters}{_HOUR_RANGE})')} unless {increase}", *resets]
        pods = " or ".join(f"group by ({inference.namespace}, {inference.pod}) ({part})" for part in partial)
        return f'{increase} or label_replace({pods},"{STATISTIC_LABEL}","{PARTIAL}","","")'

    def counters_of_pods(self, inference: InferenceLabels, pods: Iterable[str]) -> str:
        """A selector of the counters of some pods, and of `up` of their targets."""
        names = name_matcher([*metrics_of_servers(inference.sources), "up"])
        return self.series_selector("", names, f"{inference.pod}=~{any_of_values(pods)}")

    def energy_selector(self, label: str, values: Iterable[str]) -> str:
        """A selector of the energy counters and the power of some GPUs."""
        names = name_matcher([*ENERGY_COUNTERS, *POWER_GAUGES])
        return self.series_selector(
            "", names, f"{label}=~{any_of_values(values)}", metrics_source=metrics_source_of(POWER_GAUGES[0])
        )

    def device_counts(self, rank: int, instances: Iterable[str] = ()) -> str:
        """The number of samples in the hour of each series of one rank's signals, of some exporters or of all."""
        matchers = [f"instance=~{any_of_values(instances)}"] if instances else []
        statistics: dict[str, str] = {}
        for signal, series in self._signals(rank, matchers):
            counts = f"count_over_time({series}{_HOUR_RANGE})"
            if signal.averaged_over:
                counts = f"max without ({signal.averaged_over}) ({counts})"
            statistics[f"count {signal.name}"] = counts
        return union(statistics)

    def vgpus(self) -> str:
        """Fractions of GPUs allocated to pods, and what is divided of each GPU, each at its last sample."""
        return union(
            {
                statistic: " or ".join(f"last_over_time({self.series_selector(name)}{_HOUR_RANGE})" for name in names)
                for statistic, names in VGPU_METRICS.items()
            }
        )

    def sharers(self) -> str:
        """Labels and annotations of pods with fractions of reserved GPUs, and labels of the reservation pods."""

        def last(metric: str, *matchers: str) -> str:
            return f"last_over_time({self.series_selector(metric, *matchers, shard_by='uid')}{_HOUR_RANGE})"

        by_share, by_memory, several = (
            last(POD_ANNOTATIONS, f'annotation_{name}!=""')
            for name in ("gpu_fraction", "gpu_memory", "gpu_fraction_num_devices")
        )
        return union(
            {
                "groups": f"({last(POD_LABELS, GROUP_LABEL_MATCHER)} or ({last(POD_LABELS)} and on (uid) {several}))",
                "annotations": f"({by_share} or {by_memory})",
            }
        )

    def of_containers(self) -> "Queries":
        """The same queries for the signals of containers with fractions, as rank 0."""
        return replace(self, signals=[VGPU_SIGNALS])

    @property
    def _includes_unsharded(self) -> bool:
        """Whether the shard has the series that no label distributes evenly."""
        return self.shard == ALL_SERIES or self.shard.includes_others

    def _signals(self, rank: int, matchers: Sequence[str]) -> Iterable[tuple[Signal, str]]:
        for signal in self.signals[rank]:
            of_devices = [f"{label}={quote(text)}" for label, text in signal.matchers]
            if signal.name.isupper() or signal.name in GPU_LABEL_OF_SIGNAL:
                label = GPU_LABEL_OF_SIGNAL.get(signal.name, "UUID")
                yield signal, self.series_selector(signal.name, *of_devices, *matchers, shard_by=label)
            # No label of these series is evenly distributed: all of them are in one shard.
            elif self._includes_unsharded:
                yield signal, self.series_selector(signal.name, *of_devices, *matchers)

    # The following methods return selectors for `PrometheusClient.raw_samples`.

    def up(self, jobs: Iterable[str], instances: Iterable[str], metrics_source: MetricsSource | None) -> str:
        """`up` of some targets of a metrics source."""
        return self.series_selector(
            "up", f"job=~{any_of_values(jobs)}", f"instance=~{any_of_values(instances)}", metrics_source=metrics_source
        )

    def pod_requests(self, pod: "PodMatcher") -> str:
        """GPU requests of some pods, for clusters whose Prometheus keeps no node metrics."""
        return self._requests(f"{pod.label}=~{any_of_values(pod.values)}", init=False)

    def device_selectors(self, rank: int, label: str, values: Iterable[str]) -> list[str]:
        """Selectors of one rank's signals for some values of a label: one for each set of source matchers."""
        matcher = f"{label}=~{any_of_values(values)}"
        return [
            self.series_selector("", name_matcher(names), matcher, metrics_source=metrics_source_of(names[0]))
            for names, _ in self.trusted_series.groups(signal.name for signal in self.signals[rank])
        ]

    def pod_metrics(self, pods: "PodMatcher", *, labels: bool) -> str:
        """All metrics that are read of some pods."""
        metrics = [REQUESTS, INIT_REQUESTS, INIT_RUNNING, PHASE, POD_OWNER, SCHEDULED, COMPLETED]
        return self.series_selector(
            "",
            name_matcher([*metrics, POD_LABELS] if labels else metrics),
            f"{pods.label}=~{any_of_values(pods.values)}",
            f"resource=~{quote(f'({self._pod_resources})?')}",
            'phase=~"(Running|Succeeded|Failed)?"',
            metrics_source=KUBE_STATE_METRICS,
        )

    def claim_object_metrics(self, metric: str, label: str, values: Iterable[str]) -> str:
        """A collector's series of some nodes' ResourceSlices, or of some claims."""
        return self.series_selector(metric, f"{label}=~{any_of_values(values)}")

    def owner_metrics(self, kind: Literal["replicaset", "job"], names: Iterable[str]) -> str:
        """The owners of some ReplicaSets or Jobs."""
        label = "replicaset" if kind == "replicaset" else "job_name"
        return self.series_selector(f"kube_{kind}_owner", f"{label}=~{any_of_values(names)}")

    def node_metrics(self, nodes: Iterable[str], metrics: Iterable[str], label: str = "node") -> str:
        """Metrics of some nodes; `label` holds the nodes' names."""
        resources = f"resource=~{quote(f'({self._gpu_resources})?')}"
        return self.series_selector(
            "", name_matcher(metrics), f"{label}=~{any_of_values(nodes)}", resources, metrics_source=KUBE_STATE_METRICS
        )


def union(statistics: Mapping[str, str]) -> str:
    """Combine statistics into one query. Each except `NO_STATISTIC_LABEL` gets a label with its name."""
    return " or ".join(
        query if statistic == NO_STATISTIC_LABEL else f'label_replace({query},"{STATISTIC_LABEL}","{statistic}","","")'
        for statistic, query in statistics.items()
    )


def all_gpu_resources(units: Mapping[str, Fraction]) -> str:
    """A regular expression of the resources that are GPUs, with those of the settings."""
    return "|".join([GPU_RESOURCES, *sorted(name for name, gpus in units.items() if gpus)])


def _most_in_hour(series: str) -> str:
    return f"max_over_time({series}{_HOUR_RANGE})"


def unknown_resource_queries(
    select: Callable[..., str], units: Mapping[str, Fraction], values: Callable[[str], str] = _most_in_hour
) -> dict[str, str]:
    """The units that nodes advertise, and that pods on them request, of resources that are not known, by statistic.

    Args:
        select: returns a selector, as `Queries.series_selector`.
        units: GPUs per unit of further resources, from the settings; 0 for a resource that is no GPU.
        values: returns the query for the values of a selector's series.
    """
    parts = sorted(name for name in FRACTION_RESOURCES if not re.fullmatch(NO_GPUS, name))
    no_gpus = sorted(name for name, gpus in units.items() if not gpus)
    explained = "|".join([all_gpu_resources(units), NO_GPUS, *parts, *no_gpus])
    unknown = f"resource=~{quote(EXTENDED_RESOURCES)}", f"resource!~{quote(explained)}"
    capacity = select(CAPACITY, *unknown, shard_by="node")
    requests = select(REQUESTS, *unknown, 'node!=""', shard_by="uid")
    by_node = "node, exported_node, resource"
    by_container = f"{by_node}, namespace, exported_namespace, pod, exported_pod, uid, container, exported_container"
    return {
        ADVERTISED: f"max by ({by_node}) ({values(capacity)})",
        REQUESTED: f"sum by ({by_node}) (max by ({by_container}) ({values(requests)}))",
    }


def _owner_labels_only(owners: str, names: str) -> str:
    """Owners without duplicates from several targets and without labels that are not read."""
    return f"group by (namespace, exported_namespace, {names}, owner_kind, owner_name) ({owners})"


def _with_name(series: str) -> str:
    """Series with their metric's name as the label of the statistic."""
    return f'label_replace({series},"{STATISTIC_LABEL}","$1","__name__","(.+)")'


def quote(value: str) -> str:
    """A PromQL string literal of a value."""
    return json.dumps(value, ensure_ascii=False)


def any_of_values(values: Iterable[str]) -> str:
    """A PromQL regular expression that matches exactly these values."""
    return quote("|".join(re.escape(value) for value in values))


def name_matcher(metrics: Iterable[str]) -> str:
    """A matcher for any of several metrics."""
    return f"__name__=~{any_of_values(metrics)}"


UNKNOWN_DRIVER_MATCHERS = (f"driver!~{any_of_values(DRA_DRIVERS)}", f"driver!~{quote(DRA_DRIVERS_WITHOUT_GPUS)}")
"""Selects the devices of DRA drivers that may offer accelerators, and that are not in the catalog."""
