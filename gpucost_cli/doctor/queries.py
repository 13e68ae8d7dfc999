"""The PromQL that `doctor` sends: counts and single samples at some times, never an hour of every series."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpucost.core.metering.kubernetes_labels import (
    NAMESPACE_LABELS_METRIC,
    NODE_LABELS_METRIC,
    all_node_labels,
    exported_name,
)
from gpucost.sources.prometheus.queries import any_of_values, quote, union
from gpucost.sources.prometheus.source_selectors import Sources, source_of
from gpucost_cli.doctor.facts import REQUESTS, Target

GPU_RESOURCES = "nvidia_com_.+|aws_amazon_com_neuron.*"
INIT_REQUESTS = "kube_pod_init_container_resource_requests"
PHASE, NODE_INFO = "kube_pod_status_phase", "kube_node_info"
CAPACITY, ALLOCATABLE = "kube_node_status_capacity", "kube_node_status_allocatable"
SCRAPE_LABELS = ("job", "instance", "prometheus_replica", "__replica__")
CLUSTER_LABELS = (
    "cluster", "cluster_name", "clusterName", "ClusterName", "cluster_id", "eks_cluster", "eks_cluster_name",
    "k8s_cluster", "k8s_cluster_name", "kubernetes_cluster",
)  # fmt: skip
"""Labels by which clusters of one workspace are told apart, as far as they are in common use."""
_POD = ("namespace", "pod", "uid", "exported_namespace", "exported_pod")
_DEVICE = (
    "__name__", *SCRAPE_LABELS, "gpu", "device", "UUID", "uuid", "GPU_I_ID", "GPU_I_PROFILE", "modelName",
    "Hostname", "hostname", "node", "kubernetes_node", "nodename", "instance_id", "neuroncore", "namespace", "pod",
    "exported_namespace", "exported_pod", "pod_namespace", "pod_name", "vgpu", "dra_claim_name",
)  # fmt: skip

_GPU = (*SCRAPE_LABELS, "gpu", "UUID", "uuid", "neuroncore")
"""A GPU with all its MIG slices: where some slices tell a signal, a poorer one of the whole GPU adds nothing."""


@dataclass(frozen=True, slots=True)
class Queries:
    """The queries of one cluster; `selector` is added to each matcher set."""

    selector: Mapping[str, str]
    sources: Sources = field(default_factory=Sources)
    """Label matchers of the series that each source is trusted for."""

    def select(self, metric: str, *matchers: str) -> str:
        """A selector with the matchers of the cluster and of the metric's source."""
        own = [f"{name}={quote(value)}" for name, value in sorted(self.selector.items())]
        return f"{metric}{{{','.join((*matchers, *own, *self.sources.matchers(source_of(metric))))}}}"

    def any_of(self, metrics: Iterable[str]) -> str:
        """The series of several metrics."""
        groups = self.sources.groups(metrics) or [([], [])]
        return " or ".join(self.select("", name_matcher(names), *trusted) for names, trusted in groups)

    def jobs(self, metrics: Iterable[str]) -> str:
        """Series by metric and job, whatever the settings say of sources."""
        return f"count by (__name__,job) ({Queries(self.selector).any_of(metrics)})"

    def counts(self, metrics: Iterable[str]) -> str:
        """Series by metric and scraped process."""
        return f"count by (__name__,{','.join(SCRAPE_LABELS)}) ({self.any_of(metrics)})"

    def device_counts(self, metrics: Iterable[str]) -> str:
        """Series by metric; exporters are many, so they are not told apart."""
        return f"count by (__name__) ({self.any_of(metrics)})"

    def resources(self) -> str:
        """Requests of pods on nodes, by GPU resource."""
        return f"count by (resource) ({self._requests(REQUESTS)} or {self._requests(INIT_REQUESTS)})"

    def max_values(self, signals: Iterable[str]) -> str:
        """The highest value of each signal."""
        return f"max by (__name__) ({self.any_of(signals)})"

    def holders(self) -> str:
        """Requests of pods that run; neither those that pull their images nor those that finished."""
        idle = f"({self.select(PHASE, _PHASES_WITHOUT_USE)} == 1)"
        by = ",".join((*_POD, "container", "exported_container", "node", "exported_node", "resource", *SCRAPE_LABELS))
        return union(
            {
                what: f"max by ({by}) ({self._requests(metric)} unless on ({','.join((*_POD, 'instance'))}) {idle})"
                for what, metric in (("main", REQUESTS), ("init", INIT_REQUESTS))
            }
        )

    def nodes(self) -> str:
        """Nodes, the labels of theirs that are read, and the GPUs that they advertise."""
        gpus = f"resource=~{quote(GPU_RESOURCES)}"
        labels = ",".join(name for label in all_node_labels() for name in label.exported)
        return union(
            {
                "info": f"max by (node,exported_node,provider_id,{','.join(SCRAPE_LABELS)}) ({self.select(NODE_INFO)})",
                "labels": f"max by (node,exported_node,{labels}) ({self.select(NODE_LABELS_METRIC)})",
                "capacity": f"max by (node,exported_node,resource) ({self.select(CAPACITY, gpus)})",
                "allocatable": f"max by (node,exported_node,resource) ({self.select(ALLOCATABLE, gpus)})",
            }
        )

    def devices(self, ranks: Iterable[Iterable[str]]) -> str:
        """Device series, each device by the best rank of signals that tells of it."""
        asked = [f"max by ({','.join(_DEVICE)}) ({self.any_of(signals)})" for signals in ranks]
        return f" or on ({','.join(_GPU)}) ".join(asked)

    def cluster_labels(self) -> str:
        """Labels that may name clusters."""
        some = self.any_of([NODE_INFO, NAMESPACE_LABELS_METRIC])
        return f"count by ({','.join(CLUSTER_LABELS)}) ({some} or {self._requests(REQUESTS)})"

    def label_counts(self, needed: Mapping[str, Iterable[str]]) -> str:
        """Finished pods, and series that carry a Kubernetes label, as `metric label`."""
        finished = self.select(PHASE, 'phase=~"Succeeded|Failed"')
        parts = {"finished": f"count({finished} == 1)"}
        for metric, keys in needed.items():
            for key in keys:
                carrying = self.select(metric, f'{exported_name(key)}!=""')
                parts[f"{metric} {key}"] = f"count({carrying})"
        return union(parts)

    def owners(self) -> str:
        """Pods by what owns them."""
        return f"count by (owner_kind) ({self.select('kube_pod_owner')})"

    def up(self, sources: Iterable[Target]) -> str:
        """Scrapes of some processes: raw samples."""
        some = list(sources)
        jobs, instances = {one.job for one in some}, {one.instance for one in some}
        return self.select("up", f"job=~{any_of_values(sorted(jobs))}", f"instance=~{any_of_values(sorted(instances))}")

    def one_series(self, metric: str, labels: Mapping[str, str]) -> str:
        """One series, or a few of one process: raw samples."""
        return self.select(metric, *(f"{name}={quote(value)}" for name, value in sorted(labels.items())))

    def _requests(self, metric: str) -> str:
        return self.select(metric, f"resource=~{quote(GPU_RESOURCES)}", 'node!=""')


def outside_selector(metrics: Iterable[str], selector: Mapping[str, str]) -> str:
    """Series by metric and by the labels that select clusters, whatever the selector says."""
    labels = dict.fromkeys((*selector, *CLUSTER_LABELS))
    return f"count by (__name__,{','.join(labels)}) ({{{name_matcher(metrics)}}})"


def name_matcher(metrics: Iterable[str]) -> str:
    return f"__name__=~{any_of_values(metrics)}"


_PHASES_WITHOUT_USE = 'phase=~"Pending|Succeeded|Failed"'
