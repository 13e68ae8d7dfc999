"""The PromQL that attribution sends: a handful of queries whatever the cluster's size.

Every query counts or sums real samples over a raw range vector, or takes single samples at its ends; none uses a
subquery, none assumes an interval. A range ends one millisecond before the evaluated hour's end (`offset 1ms`), so
that `[hour, hour + 1h)` holds the same samples in Prometheus 2 (closed ranges) and 3 (left-open ones).

Several statistics travel in one query as a union, told apart by a label; the one with most series goes without, because
marking and encoding each costs Prometheus more than reading its samples.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from gpucost.core.hours import HOUR_MS
from gpucost.core.metering.kubernetes_labels import NAMESPACE_LABELS_METRIC, NODE_LABELS_METRIC, POD_LABELS_METRIC
from gpucost.core.metering.observations import EDGE_MS
from gpucost.core.metering.signals import Signal
from gpucost.sources.prometheus.shards import ALL_SERIES, Shard
from gpucost.sources.prometheus.source_selectors import KUBE_STATE_METRICS, SourceName, Sources, source_of

STAT = "gpucost_stat"
"""The label that names a statistic, and that no exporter has."""
UNLABELED = ""
"""The statistic of series without it."""
_SCRAPED_BY = "job, instance, prometheus_replica, __replica__"
"""What `tables.instance` tells one scraped process by."""
GPU_RESOURCES = "nvidia_com_gpu|nvidia_com_gpu_shared|nvidia_com_mig_.+|aws_amazon_com_neuron.*"
REQUESTS = "kube_pod_container_resource_requests"
INIT_REQUESTS = "kube_pod_init_container_resource_requests"
INIT_RUNNING = "kube_pod_init_container_status_running"
PHASE = "kube_pod_status_phase"
CLAIMS = "kube_pod_resourceclaim_info"
POD_OWNER, POD_LABELS = "kube_pod_owner", POD_LABELS_METRIC
SCHEDULED, COMPLETED = "kube_pod_status_scheduled_time", "kube_pod_completion_time"
NODE_INFO, NODE_LABELS = "kube_node_info", NODE_LABELS_METRIC
CAPACITY, ALLOCATABLE = "kube_node_status_capacity", "kube_node_status_allocatable"
_RUNNING, _PHASES = 'phase="Running"', 'phase=~"Running|Succeeded|Failed"'
COUNTS, SAMPLES = "counts", "samples"
"""The statistic of how many series have how many samples, and the label that says how many."""
_HOUR = "[1h] offset 1ms"
_END = "offset 1ms"


@dataclass(frozen=True, slots=True)
class Window:
    """The time that a query looks back on from where it is evaluated, in milliseconds."""

    length: int = HOUR_MS + EDGE_MS
    """Samples of this much time are counted."""
    start: int = HOUR_MS
    """What stood at the hour's start is looked up this long before the end."""

    @property
    def range(self) -> str:
        """As a range selector."""
        return f"[{self.length}ms] offset 1ms"

    @property
    def at_start(self) -> str:
        """As an offset."""
        return f"offset {self.start}ms"


HOUR_WINDOW = Window()


@dataclass(frozen=True, slots=True)
class PodMatcher:
    """Some pods, by uid, or by name where the source tells no uid."""

    label: Literal["uid", "pod", "exported_pod"]
    values: tuple[str, ...]


@dataclass(frozen=True)
class Queries:
    """The queries of one cluster.

    Args:
        selector: added to each matcher set.
        signals: signals of utilization by rank, the best first.
        shard: which part of the series is asked for, where all of them would be too much for one answer.
        sources: label matchers of the series that each source is trusted for.
    """

    selector: Mapping[str, str]
    signals: Sequence[Sequence[Signal]]
    shard: Shard = ALL_SERIES
    sources: Sources = field(default_factory=Sources)

    def for_shard(self, shard: Shard) -> "Queries":
        """The same queries for a part of the series."""
        return replace(self, shard=shard)

    def select(self, metric: str, *matchers: str, shard_by: str = "", source: SourceName | None = None) -> str:
        """A selector with the matchers of the cluster and of the metric's source.

        Args:
            metric: its name; "" where matchers name several.
            matchers: more of them.
            shard_by: the label by which series are divided into parts.
            source: of the series, where the metric's name does not tell.
        """
        own = [f"{name}={quote(value)}" for name, value in sorted(self.selector.items())]
        part = [self.shard.matcher(shard_by)] if shard_by and self.shard != ALL_SERIES else []
        trusted = self.sources.matchers(source or source_of(metric))
        inside = ",".join((*matchers, *own, *trusted, *part))
        return f"{metric}{{{inside}}}"

    def _requests(self, *more: str, init: bool) -> str:
        metric = INIT_REQUESTS if init else REQUESTS
        return self.select(metric, f"resource=~{quote(GPU_RESOURCES)}", 'node!=""', *more, shard_by="uid")

    def _gpu_pods(self, when: str, *more: str) -> str:
        return f"({self._requests(*more, init=False)} {when} or {self._requests(*more, init=True)} {when})"

    def requests(self, window: Window = HOUR_WINDOW) -> str:
        """GPU requests of pods on nodes: samples in the window, and units at its end where they are not 1."""
        return union(
            {
                UNLABELED: f"count_over_time({self._requests(init=False)}{window.range})",
                "units": f"({self._requests(init=False)} {_END} != 1)",
                "init-count": f"count_over_time({self._requests(init=True)}{window.range})",
                "init-units": f"({self._requests(init=True)} {_END} != 1)",
            }
        )

    def running(self, window: Window = HOUR_WINDOW) -> str:
        """Uids of the GPU pods that every instance says are Running at the window's start and end.

        No pod leaves Running and comes back to it. Most are in this answer, of one short label each; of the others,
        `phases` tells more.
        """
        running = self.select(PHASE, _RUNNING, shard_by="uid")
        both = f"min by (uid) ({running} {_END}) + min by (uid) ({running} {window.at_start}) == 2"
        return f"({both}) and on (uid) {self._gpu_pods(_END)}"

    def phases(self, window: Window = HOUR_WINDOW, uids: Iterable[str] = ()) -> str:
        """The phases of GPU pods at the window's start and end: of some, or of all where no uids are given."""
        only = [f"uid=~{any_of_values(uids)}"] if uids else []
        phases = self.select(PHASE, _PHASES, *only, shard_by="uid")
        at = {"start": window.at_start, "end": _END}
        return union(
            {name: f"(({phases} {when} == 1) and on (uid) {self._gpu_pods(when, *only)})" for name, when in at.items()}
        )

    def nodes(self) -> str:
        """Nodes, their labels at the hour's end, at its start where they differ, and the GPUs that they advertise."""
        resources = f"resource=~{quote(GPU_RESOURCES)}"
        capacity = self.select(CAPACITY, resources, shard_by="node")
        allocatable = self.select(ALLOCATABLE, resources, shard_by="node")
        labels = self.select(NODE_LABELS, shard_by="node")
        processors = self.select(CAPACITY, 'resource="cpu"', shard_by="node")
        return union(
            {
                "info": f"count_over_time({self.select(NODE_INFO, shard_by='node')}{HOUR_WINDOW.range})",
                "labels-start": f"({labels} {HOUR_WINDOW.at_start} unless {labels} {_END})",
                "labels-end": f"{labels} {_END}",
                "capacity-sum": f"sum_over_time({capacity}{HOUR_WINDOW.range})",
                "capacity": f"{capacity} {_END}",
                "allocatable-sum": f"sum_over_time({allocatable}{HOUR_WINDOW.range})",
                "allocatable": f"{allocatable} {_END}",
                "kept": f"count({processors} {_END})",
            }
        )

    def owners(self) -> str:
        """What owns the GPU pods that are there at the end, and what owns their owners."""
        pod_metrics = f"{self.select(POD_OWNER, shard_by='uid')} {_END} and on (uid) {self._gpu_pods(_END)}"
        return union(
            {
                UNLABELED: _owned(pod_metrics, "pod, exported_pod, owner_is_controller"),
                "replicaset": _owned(
                    f"{self.select('kube_replicaset_owner', shard_by='replicaset')} {_END}", "replicaset"
                ),
                "job": _owned(f"{self.select('kube_job_owner', shard_by='job_name')} {_END}", "job_name"),
                "claim": f"last_over_time({self.select(CLAIMS, shard_by='uid')}{HOUR_WINDOW.range})",
            }
        )

    def labels(self, *, of_pods: bool, of_namespaces: bool) -> str | None:
        """Labels of pods and namespaces, as far as somebody asks for them."""
        wanted: dict[str, str] = {}
        if of_namespaces:
            namespaces = self.select(NAMESPACE_LABELS_METRIC, shard_by="namespace")
            wanted["namespace-start"] = f"{namespaces} {HOUR_WINDOW.at_start}"
            wanted["namespace"] = f"{namespaces} {_END}"
        if of_pods:
            pods = f"{self.select(POD_LABELS, shard_by='uid')} {_END}"
            wanted["pod"] = f"({pods} and on (uid) {self._gpu_pods(_END)})"
        return union(wanted) if wanted else None

    def devices(self, rank: int, nodes: Sequence[str] = (), label: str = "Hostname") -> str:
        """Signals of one rank: per series the sum of its samples in the hour, and whether any was above full use; per
        exporter how many series have how many samples, which is nearly always one number.

        Args:
            rank: 0 for the best.
            nodes: only these, by the label that names them; all where empty.
            label: `Hostname` or `hostname`.
        """
        only = [f"{label}=~{any_of_values(nodes)}"] if nodes else []
        parts: dict[str, str] = {}
        for signal, series in self._signals(rank, only):
            unmarked = signal == self.signals[rank][0]
            parts[UNLABELED if unmarked else f"sum {signal.name}"] = f"sum_over_time({series}{_HOUR})"
            counts = f"count_over_time({series}{_HOUR})"
            parts[f"{COUNTS} {signal.name}"] = f'count_values by ({_SCRAPED_BY}) ("{SAMPLES}", {counts})'
            parts[f"peak {signal.name}"] = f"(max_over_time({series}{_HOUR}) > {signal.scale})"
        return union(parts)

    def device_counts(self, rank: int, instances: Iterable[str] = ()) -> str:
        """The count of the hour's samples per series of one rank's signals, of some exporters or of all."""
        only = [f"instance=~{any_of_values(instances)}"] if instances else []
        return union(
            {
                f"count {signal.name}": f"count_over_time({series}{_HOUR})"
                for signal, series in self._signals(rank, only)
            }
        )

    def _signals(self, rank: int, only: Sequence[str]) -> Iterable[tuple[Signal, str]]:
        for signal in self.signals[rank]:
            if signal.name.isupper():
                yield signal, self.select(signal.name, *only, shard_by="UUID")
            elif self.shard == ALL_SERIES or self.shard.includes_others:  # no label of theirs is spread evenly: all in one part
                yield signal, self.select(signal.name, *only)

    # What follows selects raw samples, for `PrometheusClient.raw_samples`.

    def up(self, jobs: Iterable[str], instances: Iterable[str], source: SourceName) -> str:
        """The scrapes of some targets of a source."""
        return self.select("up", f"job=~{any_of_values(jobs)}", f"instance=~{any_of_values(instances)}", source=source)

    def pod_requests(self, pod: "PodMatcher") -> str:
        """A pod's requests, where not even nodes are kept."""
        return self._requests(f"{pod.label}=~{any_of_values(pod.values)}", init=False)

    def device_selectors(self, rank: int, label: str, values: Iterable[str]) -> list[str]:
        """Series of one rank's signals, by a label that names devices or their exporters: a selector for each source
        whose series are told apart from others'."""
        only = f"{label}=~{any_of_values(values)}"
        return [
            self.select("", name_matcher(names), only, source=source_of(names[0]))
            for names, _ in self.sources.groups(signal.name for signal in self.signals[rank])
        ]

    def pods(self, pods: "PodMatcher", *, labels: bool) -> str:
        """All that is asked about some pods."""
        metrics = [REQUESTS, INIT_REQUESTS, INIT_RUNNING, PHASE, POD_OWNER, SCHEDULED, COMPLETED]
        return self.select(
            "",
            name_matcher([*metrics, POD_LABELS] if labels else metrics),
            f"{pods.label}=~{any_of_values(pods.values)}",
            f"resource=~{quote(f'({GPU_RESOURCES})?')}",
            'phase=~"(Running|Succeeded|Failed)?"',
            source=KUBE_STATE_METRICS,
        )

    def owner_metrics(self, kind: Literal["replicaset", "job"], names: Iterable[str]) -> str:
        """What owns some ReplicaSets or Jobs."""
        label = "replicaset" if kind == "replicaset" else "job_name"
        return self.select(f"kube_{kind}_owner", f"{label}=~{any_of_values(names)}")

    def node_metrics(self, nodes: Iterable[str], metrics: Iterable[str], label: str = "node") -> str:
        """Metrics of some nodes, by the label that names them."""
        resources = f"resource=~{quote(f'({GPU_RESOURCES})?')}"
        return self.select(
            "", name_matcher(metrics), f"{label}=~{any_of_values(nodes)}", resources, source=KUBE_STATE_METRICS
        )  # fmt: skip


def union(parts: Mapping[str, str]) -> str:
    """Several statistics as one query, each but the unmarked one marked with its name."""
    return " or ".join(
        query if name == UNLABELED else f'label_replace({query},"{STAT}","{name}","","")'
        for name, query in parts.items()
    )


def _owned(owners: str, names: str) -> str:
    """Who owns what, of several instances once, and without labels that nobody reads."""
    return f"group by (namespace, exported_namespace, {names}, owner_kind, owner_name) ({owners})"


def quote(value: str) -> str:
    """A PromQL string that means exactly this value, whatever is in it."""
    return json.dumps(value, ensure_ascii=False)


def any_of_values(values: Iterable[str]) -> str:
    """A PromQL regular expression that matches exactly these values."""
    return quote("|".join(re.escape(value) for value in values))


def name_matcher(metrics: Iterable[str]) -> str:
    """A matcher for any of some metrics."""
    return f"__name__=~{any_of_values(metrics)}"
