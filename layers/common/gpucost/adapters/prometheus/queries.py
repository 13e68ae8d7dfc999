"""The PromQL that attribution sends: a handful of queries whatever the cluster's size.

Every query counts or sums real samples over a raw range vector; none uses a subquery, none assumes an interval. A
range ends one millisecond before the evaluated hour's end (`offset 1ms`), so that `[hour, hour + 1h)` holds the same
samples in Prometheus 2 (closed ranges) and 3 (left-open ones).

Several statistics travel in one query as a union, told apart by the label `stat`.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from gpucost.domain.observations import EDGE_MS

STAT = "stat"
GPU_RESOURCES = "nvidia_com_gpu|nvidia_com_gpu_shared|nvidia_com_mig_.+"
_HOUR = "[1h] offset 1ms"
_WINDOW = f"[{3_600_000 + EDGE_MS}ms] offset 1ms"
_BEFORE_END = "offset 1ms"


@dataclass(frozen=True, slots=True)
class PodNames:
    """Some pods, by uid, or by name where the source tells no uid."""

    label: Literal["uid", "pod", "exported_pod"]
    values: tuple[str, ...]

    @property
    def matcher(self) -> str:
        """Matches exactly these."""
        return f"{self.label}=~{one_of(self.values)}"


class Queries:
    """The queries of one cluster; `selector` is added to each matcher set."""

    def __init__(self, selector: Mapping[str, str], signal: str) -> None:
        self._selector = tuple(f"{name}={quote(value)}" for name, value in sorted(selector.items()))
        self._signal = signal

    def select(self, metric: str, *matchers: str) -> str:
        """A selector with the cluster's own matchers."""
        inside = ",".join((*matchers, *self._selector))
        return f"{metric}{{{inside}}}"

    def _requests(self, *more: str, init: bool) -> str:
        metric = "kube_pod_init_container_resource_requests" if init else "kube_pod_container_resource_requests"
        return self.select(metric, f"resource=~{quote(GPU_RESOURCES)}", 'node!=""', *more)

    @property
    def _gpu_pods_at_end(self) -> str:
        return f"({self._requests(init=False)} {_BEFORE_END} or {self._requests(init=True)} {_BEFORE_END})"

    def requests(self) -> str:
        """GPU requests of pods on nodes: samples in the window, and units at its end where they are not 1."""
        return union(
            {
                "count": f"count_over_time({self._requests(init=False)}{_WINDOW})",
                "units": f"({self._requests(init=False)} {_BEFORE_END} != 1)",
                "init-count": f"count_over_time({self._requests(init=True)}{_WINDOW})",
                "init-units": f"({self._requests(init=True)} {_BEFORE_END} != 1)",
            }
        )

    def phases(self) -> str:
        """Samples in each phase that matters, of the GPU pods that are there at the end."""
        phases = self.select("kube_pod_status_phase", 'phase=~"Running|Succeeded|Failed"')
        return f"(sum_over_time({phases}{_WINDOW}) > 0) and on (uid) {self._gpu_pods_at_end}"

    def nodes(self) -> str:
        """Nodes, their labels and the GPUs that they advertise."""
        resources = f"resource=~{quote(GPU_RESOURCES)}"
        capacity = self.select("kube_node_status_capacity", resources)
        return union(
            {
                "info": f"count_over_time({self.select('kube_node_info')}{_WINDOW})",
                "labels": f"count_over_time({self.select('kube_node_labels')}{_WINDOW})",
                "advertised": f"count_over_time({capacity}{_WINDOW})",
                "capacity": f"last_over_time({capacity}{_WINDOW})",
                "allocatable": (f"last_over_time({self.select('kube_node_status_allocatable', resources)}{_WINDOW})"),
            }
        )

    def owners(self) -> str:
        """What owns the GPU pods that are there at the end, and what owns their owners."""
        pods = f"({self.select('kube_pod_owner')} {_BEFORE_END} and on (uid) {self._gpu_pods_at_end})"
        return union(
            {
                "pod": pods,
                "replicaset": f"{self.select('kube_replicaset_owner')} {_BEFORE_END}",
                "job": f"last_over_time({self.select('kube_job_owner')}{_WINDOW})",
            }
        )

    def labels(self, *, of_pods: bool, of_namespaces: bool) -> str | None:
        """Labels of pods and namespaces, as far as somebody asks for them."""
        wanted: dict[str, str] = {}
        if of_namespaces:
            wanted["namespace"] = f"last_over_time({self.select('kube_namespace_labels')}{_WINDOW})"
        if of_pods:
            pods = f"{self.select('kube_pod_labels')} {_BEFORE_END}"
            wanted["pod"] = f"({pods} and on (uid) {self._gpu_pods_at_end})"
        return union(wanted) if wanted else None

    def devices(self) -> str:
        """The utilization signal: sum and count of its samples in the hour, per series."""
        series = self.select(self._signal)
        return union({"sum": f"sum_over_time({series}{_HOUR})", "count": f"count_over_time({series}{_HOUR})"})

    # What follows selects raw samples, for `PrometheusClient.raw_samples`.

    def up(self, jobs: Iterable[str], instances: Iterable[str]) -> str:
        """The scrapes of some targets."""
        return self.select("up", f"job=~{one_of(jobs)}", f"instance=~{one_of(instances)}")

    def one_pod(self, pod: "PodNames") -> str:
        """A pod's requests, where not even nodes are kept."""
        return self._requests(pod.matcher, init=False)

    def one_device(self, labels: Mapping[str, str]) -> str:
        """One series of the signal."""
        return self.select(self._signal, *(f"{name}={quote(value)}" for name, value in sorted(labels.items())))

    def requests_of(self, pods: "PodNames", *, init: bool) -> str:
        """Requests of some pods while they are on a node."""
        return self._requests(pods.matcher, init=init)

    def phases_of(self, pods: "PodNames") -> str:
        """Phases of some pods."""
        return self.select("kube_pod_status_phase", 'phase=~"Running|Succeeded|Failed"', pods.matcher)

    def owners_of(self, pods: "PodNames") -> str:
        """Owners of some pods."""
        return self.select("kube_pod_owner", pods.matcher)

    def labels_of(self, pods: "PodNames") -> str:
        """Labels of some pods."""
        return self.select("kube_pod_labels", pods.matcher)

    def nodes_of(self, nodes: Iterable[str], metric: str, label: str = "node") -> str:
        """`kube_node_info` or capacity of some nodes, by the label that names them."""
        gpus = [f"resource=~{quote(GPU_RESOURCES)}"] if metric != "kube_node_info" else []
        return self.select(metric, f"{label}=~{one_of(nodes)}", *gpus)


def union(parts: Mapping[str, str]) -> str:
    """Several statistics as one query, each marked with its name in the label `stat`."""
    return " or ".join(f'label_replace({query},"{STAT}","{name}","","")' for name, query in parts.items())


def quote(value: str) -> str:
    """A PromQL string that means exactly this value, whatever is in it."""
    return json.dumps(value, ensure_ascii=False)


def one_of(values: Iterable[str]) -> str:
    """A PromQL regular expression that matches exactly these values."""
    return quote("|".join(re.escape(value) for value in values))
