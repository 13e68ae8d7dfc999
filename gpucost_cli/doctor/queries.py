"""The PromQL that `doctor` sends: counts and single samples at some times, never an hour of every series."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from gpucost.core.metering.accelerators import ACCELERATORS, Accelerator, accelerator_of_signal
from gpucost.core.metering.contradictions import MIN_POWER_RATIO, MIN_WITNESSED_USE
from gpucost.core.metering.energy import ENERGY_COUNTERS, POWER_GAUGES
from gpucost.core.metering.fraction_schedulers import FRACTION_RESOURCES
from gpucost.core.metering.kubernetes_labels import (
    ADMIN_NAMESPACE_LABEL,
    NAMESPACE_LABELS_METRIC,
    NODE_LABELS_METRIC,
    NodeLabel,
    all_node_labels,
    exported_name,
)
from gpucost.sources.prometheus.claim_collectors import CLAIM_COLLECTORS
from gpucost.sources.prometheus.cluster_labels import CLUSTER_LABELS, NODE_INFO_LABELS
from gpucost.sources.prometheus.metrics_sources import TrustedSeries, metrics_source_of
from gpucost.sources.prometheus.queries import (
    UNKNOWN_DRIVER_MATCHERS,
    any_of_values,
    name_matcher,
    quote,
    union,
    unknown_resource_queries,
)
from gpucost_cli.doctor.facts import CLAIM_INFO, REQUESTS, Target
from gpucost_cli.doctor.setup import COLLECTOR_LABELS
from gpucost_cli.doctor.signals import Signal

_OF_NVIDIA = "nvidia_com_"


def requested_resources(fraction_resources: Iterable[str]) -> str:
    """Return a regular expression of what pods request: GPUs, and parts of them by a scheduler's resources."""
    parts = sorted(name for name in fraction_resources if not name.startswith(_OF_NVIDIA))
    return "|".join((f"{_OF_NVIDIA}.+", *(accelerator.resource_pattern for accelerator in ACCELERATORS), *parts))


REQUESTED_RESOURCES = requested_resources(FRACTION_RESOURCES)
INIT_REQUESTS = "kube_pod_init_container_resource_requests"
PHASE, NODE_INFO = "kube_pod_status_phase", "kube_node_info"
COMPLETION = "kube_pod_completion_time"
CAPACITY, ALLOCATABLE = "kube_node_status_capacity", "kube_node_status_allocatable"
SCRAPE_LABELS = ("job", "instance", "prometheus_replica", "__replica__")
_POD_LABELS = ("namespace", "pod", "uid", "exported_namespace", "exported_pod")
_DEVICE_LABELS = (
    "__name__",
    *SCRAPE_LABELS,
    "gpu",
    "device",
    "UUID",
    "uuid",
    "GPU_I_ID",
    "GPU_I_PROFILE",
    "modelName",
    "Hostname",
    "hostname",
    "node",
    "kubernetes_node",
    "nodename",
    "instance_id",
    "namespace",
    "pod",
    "exported_namespace",
    "exported_pod",
    "pod_namespace",
    "pod_name",
    "vgpu",
    "dra_claim_name",
)

AT_ZERO = "zero"
"""The statistic of devices whose signals are 0."""
NODE_NAME_LABELS = ("Hostname", "hostname", "node", "kubernetes_node", "nodename", "instance_id")
"""Labels that name a device's node, in order of preference."""
_GPU_LABELS = (*SCRAPE_LABELS, "gpu", "UUID", "uuid")
"""Labels that identify a GPU with all its MIG slices: if slices have a signal, one of the whole GPU adds nothing."""


@dataclass(frozen=True, slots=True)
class DoctorQueries:
    """The queries of one cluster."""

    selector: Mapping[str, str]
    """Label values that are added to each selector."""
    trusted_series: TrustedSeries = field(default_factory=TrustedSeries)
    """Label matchers of each source's trusted series."""
    units: Mapping[str, Fraction] = field(default_factory=dict)
    """GPUs per unit of further resources, from the settings."""
    has_phases: bool = True
    """Whether pods have phases. Without them, pods end when they completed, as in metering."""

    def select(self, metric: str, *matchers: str) -> str:
        """A selector with the matchers of the cluster and of the metrics source."""
        of_cluster = [f"{name}={quote(value)}" for name, value in sorted(self.selector.items())]
        of_source = self.trusted_series.matchers(metrics_source_of(metric))
        return f"{metric}{{{','.join((*matchers, *of_cluster, *of_source))}}}"

    def any_of(self, metrics: Iterable[str]) -> str:
        """The series of several metrics."""
        groups = self.trusted_series.groups(metrics) or [([], [])]
        return " or ".join(self.select("", name_matcher(names), *matchers) for names, matchers in groups)

    def jobs(self, metrics: Iterable[str]) -> str:
        """Number of series by metric, job and collector, without the settings' matchers of sources."""
        by = ",".join(("__name__", "job", *COLLECTOR_LABELS))
        return f"count by ({by}) ({DoctorQueries(self.selector).any_of(metrics)})"

    def counts(self, metrics: Iterable[str]) -> str:
        """Number of series by metric and target."""
        return f"count by (__name__,{','.join(SCRAPE_LABELS)}) ({self.any_of(metrics)})"

    def device_counts(self, metrics: Iterable[str]) -> str:
        """Number of series by metric, summed over all targets, because there are many exporters."""
        return f"count by (__name__) ({self.any_of(metrics)})"

    def resources(self) -> str:
        """Number of requests of pods on nodes, by GPU resource."""
        return f"count by (resource) ({self._requests(REQUESTS)} or {self._requests(INIT_REQUESTS)})"

    def max_values(self, signals: Iterable[str]) -> str:
        """The largest value of each signal."""
        return f"max by (__name__) ({self.any_of(signals)})"

    def holders(self) -> str:
        """Requests of running pods, without pending and finished ones."""
        by = ",".join(
            (*_POD_LABELS, "container", "exported_container", "node", "exported_node", "resource", *SCRAPE_LABELS)
        )
        on = ",".join((*_POD_LABELS, "instance"))
        return union(
            {
                kind: f"max by ({by}) ({self._requests(metric)} unless on ({on}) {self._idle_pods})"
                for kind, metric in (("main", REQUESTS), ("init", INIT_REQUESTS))
            }
        )

    def nodes(self, additional_labels: Iterable[NodeLabel] = ()) -> str:
        """Nodes, the node labels that attribution reads, the nodes' GPU capacity, and resources that are not known."""
        gpus = f"resource=~{quote(self._gpu_resources)}"
        processors = self.select(CAPACITY, 'resource="cpu"')
        labels = ",".join(name for label in (*all_node_labels(), *additional_labels) for name in label.exported_names)
        return union(
            {
                "info": f"max by (node,exported_node,provider_id,{','.join(SCRAPE_LABELS)}) ({self.select(NODE_INFO)})",
                "labels": f"max by (node,exported_node,{labels}) ({self.select(NODE_LABELS_METRIC)})",
                "capacity": f"max by (node,exported_node,resource) ({self.select(CAPACITY, gpus)})",
                "allocatable": f"max by (node,exported_node,resource) ({self.select(ALLOCATABLE, gpus)})",
                "reports": f"group by (node,exported_node) ({processors})",
                **unknown_resource_queries(
                    lambda metric, *matchers, **_: self.select(metric, *matchers), self.units, lambda series: series
                ),
            }
        )

    def devices(self, ranks: Iterable[Iterable[str]]) -> str:
        """Device series: of each device, the best rank of signals that it has."""
        labels = dict.fromkeys(
            (*_DEVICE_LABELS, *(name for accelerator in ACCELERATORS for name in accelerator.labels.names))
        )
        by_rank = [f"max by ({','.join(labels)}) ({self.any_of(signals)})" for signals in ranks]
        return f" or on ({','.join(_GPU_LABELS)}) ".join(by_rank)

    def process_values(self, signals: Iterable[str]) -> str:
        """Utilization of shared GPUs: the sum of what their pods' processes use, and that of the device itself."""
        names = list(signals)
        of_pods = " or ".join(self.select(name, 'vgpu!=""', 'pod_uid!=""') for name in names)
        of_device = " or ".join(self.select(name, 'vgpu=""', 'pod_uid=""') for name in names)
        return union(
            {"pods": f"sum by (UUID) (max by (UUID,pod_uid) ({of_pods}))", "device": f"max by (UUID) ({of_device})"}
        )

    def cluster_labels(self) -> str:
        """Values of labels that may name clusters: the usual ones of several metrics, and all of kube_node_info."""
        series = self.any_of([NODE_INFO, NAMESPACE_LABELS_METRIC])
        nodes = f"group without ({','.join(NODE_INFO_LABELS)}) ({self.select(NODE_INFO)})"
        return f"count by ({','.join(CLUSTER_LABELS)}) ({series} or {self._requests(REQUESTS)}) or {nodes}"

    def labels_and_finished_pods(self, needed: Mapping[str, Iterable[str]]) -> str:
        """Number of finished pods, and of series with a Kubernetes label, as statistic `metric label`."""
        finished = self.select(PHASE, 'phase=~"Succeeded|Failed"')
        statistics = {"finished": f"count({finished} == 1)"}
        for metric, keys in needed.items():
            for key in keys:
                with_label = self.select(metric, f'{exported_name(key)}!=""')
                statistics[f"{metric} {key}"] = f"count({with_label})"
        return union(statistics)

    def admin_namespaces(self) -> str:
        """Namespaces whose claims may have admin access."""
        labels = self.select(NAMESPACE_LABELS_METRIC, f'{ADMIN_NAMESPACE_LABEL}="true"')
        return f"group by (namespace,exported_namespace) ({labels})"

    def claiming_pods(self) -> str:
        """Running pods with ResourceClaims."""
        on = ",".join((*_POD_LABELS, "instance"))
        return f"max by ({','.join(_POD_LABELS)}) ({self.select(CLAIM_INFO)} unless on ({on}) {self._idle_pods})"

    def pods_of_reported_claims(self) -> str:
        """Pods of claims that a collector reports, by the collector's metric."""
        return union(
            {
                collector.reservations: f"group by (namespace,exported_namespace,{collector.pod}) "
                f"({self.select(collector.reservations)})"
                for collector in CLAIM_COLLECTORS
            }
        )

    def unknown_drivers(self) -> str:
        """Number of devices of DRA drivers that are not in the catalog, by driver and node."""
        return union(
            {
                collector.devices: f"count by (driver,{collector.node}) "
                f"({self.select(collector.devices, *UNKNOWN_DRIVER_MATCHERS)})"
                for collector in CLAIM_COLLECTORS
            }
        )

    def nodes_by_target(self, signals: Iterable[str]) -> str:
        """The nodes that each target reports, by statistic: of exporters of devices, and of kube-state-metrics."""
        by = ",".join((*SCRAPE_LABELS, *NODE_NAME_LABELS))
        return union(
            {
                "devices": f"group by ({by}) ({self.any_of(signals)})",
                "info": f"group by ({by},exported_node) ({self.select(NODE_INFO)})",
            }
        )

    def contradictions(self, ranks: Sequence[Sequence[Signal]], uuids: Iterable[str]) -> str:
        """GPUs whose signals of the best rank are 0 in the last hour, by what says that they are in use.

        Args:
            ranks: the signals, best first.
            uuids: the GPUs.
        """
        of_gpus = f"UUID=~{any_of_values(uuids)}"
        best = " or ".join(f"max_over_time({self.select(signal.name, of_gpus)}[1h])" for signal in ranks[0])
        stuck = f"(max by (UUID) ({best}) == 0)"
        statistics: dict[str, str] = {}
        for signal in (signal for rank in ranks[1:] for signal in rank):
            if accelerator_of_signal(signal.name) is None:
                use = f"max by (UUID) (avg_over_time({self.select(signal.name, of_gpus)}[1h]))"
                statistics[signal.name] = (
                    f"{stuck} and on (UUID) ({use} >= {float(Fraction(signal.scale) * MIN_WITNESSED_USE)})"
                )
        power = {
            **{name: f"rate({self.select(name, of_gpus)}[1h])" for name in ENERGY_COUNTERS},
            **{name: f"avg_over_time({self.select(name, of_gpus)}[1h])" for name in POWER_GAUGES},
        }
        for name, watts in power.items():
            lowest = f"(min by (UUID) (min_over_time(({watts})[23h:1h] offset 1h)) > 0)"
            statistics[name] = f"{stuck} and on (UUID) (max by (UUID) ({watts}) >= {MIN_POWER_RATIO} * {lowest})"
        return union(statistics)

    def power_witnesses(self, accelerator: Accelerator) -> str:
        """Another vendor's devices whose signals are 0 in the last hour, and those with twice the power of the day."""
        names = accelerator.labels.names
        by = ",".join(dict.fromkeys((*names, *NODE_NAME_LABELS)))
        signals = " or ".join(f"max_over_time({self.select(signal.name)}[1h])" for signal in accelerator.signals)
        statistics = {AT_ZERO: f"(max by ({by}) ({signals}) == 0)"}
        for name in accelerator.power_metrics:
            power = f"avg_over_time({self.select(name)}[1h])"
            lowest = f"(min by ({by}) (min_over_time(({power})[23h:1h] offset 1h)) > 0)"
            statistics[name] = f"(max by ({by}) ({power}) >= {MIN_POWER_RATIO} * {lowest})"
        return union(statistics)

    def owners(self) -> str:
        """Number of pods by the kind of their owner."""
        return f"count by (owner_kind) ({self.select('kube_pod_owner')})"

    def up(self, targets: Collection[Target]) -> str:
        """Selector of `up` of some targets, for raw samples."""
        jobs, instances = {target.job for target in targets}, {target.instance for target in targets}
        return self.select("up", f"job=~{any_of_values(sorted(jobs))}", f"instance=~{any_of_values(sorted(instances))}")

    def one_series(self, metric: str, labels: Mapping[str, str]) -> str:
        """Selector of one series, or a few of one target, for raw samples."""
        return self.select(metric, *(f"{name}={quote(value)}" for name, value in sorted(labels.items())))

    @property
    def _idle_pods(self) -> str:
        """Pods that do not run."""
        return f"({self.select(PHASE, _PHASES_WITHOUT_USE)} == 1)" if self.has_phases else self.select(COMPLETION)

    def _requests(self, metric: str) -> str:
        return self.select(metric, f"resource=~{quote(self._gpu_resources)}", 'node!=""')

    @property
    def _gpu_resources(self) -> str:
        """A regular expression of GPU resources, with those of the settings."""
        return "|".join([REQUESTED_RESOURCES, *sorted(name for name, gpus in self.units.items() if gpus)])


def count_outside_selector(metrics: Iterable[str], selector: Mapping[str, str]) -> str:
    """Number of series by metric and by labels that may select clusters, without the cluster's selector."""
    labels = dict.fromkeys((*selector, *CLUSTER_LABELS))
    return f"count by (__name__,{','.join(labels)}) ({{{name_matcher(metrics)}}})"


_PHASES_WITHOUT_USE = 'phase=~"Pending|Succeeded|Failed"'
