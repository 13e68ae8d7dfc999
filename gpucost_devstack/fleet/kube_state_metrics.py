"""Metrics of kube-state-metrics for a scenario, with names and labels as of version 2.20."""

import itertools
import zlib
from collections.abc import Iterator, Mapping, Sequence

from gpucost_devstack.fleet.scenario import GPU, KubeStateMetrics, Node, Pod, Scenario
from gpucost_devstack.fleet.series import Minutes, SimulatedSeries, constant

PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
Labels = Mapping[str, str]


def series(scenario: Scenario) -> Iterator[SimulatedSeries]:
    """All series of all instances."""
    for instance in scenario.ksm:
        times = instance.scraping.successful_times(scenario.start, scenario.end)
        target_labels = {"job": instance.scraping.job, "instance": instance.scraping.instance}
        instance_series = _InstanceSeries(instance, times, target_labels)
        for node in scenario.nodes:
            if instance_series.is_in_shard(node.name):
                yield from instance_series.node(node)
        for pod in scenario.pods:
            if instance_series.is_in_shard(pod.id):
                yield from instance_series.pod(pod)
        yield from instance_series.owners(scenario.pods)
        yield from instance_series.quotas(scenario)
        for namespace, labels in scenario.namespace_labels.items():
            exposed = {"namespace": namespace, **labels, **target_labels}
            yield SimulatedSeries("kube_namespace_labels", exposed, constant(times, *_WHOLE_SCENARIO, 1))


_WHOLE_SCENARIO = (-1e6, 1e6)
_VERSIONS = {
    "container_runtime_version": "containerd://2.1.4",
    "kernel_version": "6.12.46",
    "kubelet_version": "v1.34.1-eks-113cf36",
    "kubeproxy_version": "deprecated",
    "os_image": "Bottlerocket OS 1.48.0 (aws-k8s-1.34-nvidia)",
}


def group_labels(pod: Pod) -> dict[str, str]:
    """The labels with which KAI Scheduler names a pod's GPUs, in the spelling of kube-state-metrics."""
    if len(pod.groups) == 1:
        return {"label_runai_gpu_group": pod.groups[0]}
    return {f"label_runai_gpu_group_{group.replace('-', '_')}": group for group in pod.groups}


class _InstanceSeries:
    """The series that one instance (a shard, or all) exposes during the scenario."""

    def __init__(self, instance: KubeStateMetrics, times: Sequence[int], target_labels: Labels) -> None:
        self._instance = instance
        self._times = times
        self._target_labels = target_labels

    def is_in_shard(self, name: str) -> bool:
        """Whether this shard exposes an object."""
        shard, shards = self._instance.shard
        return zlib.crc32(name.encode()) % shards == shard

    def node(self, node: Node) -> Iterator[SimulatedSeries]:
        """A node's series, for as long as the node exists."""
        start, end = node.lifetime
        node_labels = {"node": node.name}
        if self._instance.node_info:
            identity = {"provider_id": node.provider_id or f"aws:///us-west-2a/{node.instance_id}"}
            yield self._series("kube_node_info", {**node_labels, **_VERSIONS, **identity}, start, end)
        if self._instance.node_labels:
            yield from self._node_labels(node)
        if not self._instance.capacity:
            return
        cpu_labels = {**node_labels, "resource": "cpu", "unit": "core"}
        yield self._series("kube_node_status_capacity", cpu_labels, start, end, 8)
        for geometry in node.geometries:
            begin, stop = max(start, geometry.lifetime[0]), min(end, geometry.lifetime[1])
            allocatable = {**geometry.units, **(geometry.allocatable or {})}
            for metric, units in (("capacity", geometry.units), ("allocatable", allocatable)):
                for resource, count in units.items():
                    labels = {**node_labels, "resource": resource, "unit": "integer"}
                    yield self._series(f"kube_node_status_{metric}", labels, begin, stop, count)

    def _node_labels(self, node: Node) -> Iterator[SimulatedSeries]:
        start, end = node.lifetime
        base = {f"label_{name}": value for name, value in {"kubernetes_io_os": "linux", **node.labels}.items()}
        if zone := node.labels.get("topology_kubernetes_io_zone"):
            base.setdefault("label_topology_kubernetes_io_region", zone[:-1])
        if node.instance_type:
            base["label_node_kubernetes_io_instance_type"] = node.instance_type
        edges = sorted(
            {start, end, *(edge for geometry in node.geometries for edge in geometry.lifetime), node.labels_from}
        )
        edges = [edge for edge in edges if start <= edge <= end]
        current: tuple[Labels, Minutes] | None = None
        for edge, after in zip(edges, [*edges[1:], end], strict=True):
            if edge >= after:
                continue
            geometry = node.geometry_at(edge)
            feature_labels = geometry.labels if geometry is not None and edge >= node.labels_from else {}
            labels = {**base, **{f"label_{name}": value for name, value in feature_labels.items()}}
            if current is not None and current[0] == labels:
                yield self._series("kube_node_labels", {"node": node.name, **labels}, edge, after)
            else:
                yield self._series("kube_node_labels", {"node": node.name, **labels}, edge, after)
            current = (labels, after)

    def pod(self, pod: Pod) -> Iterator[SimulatedSeries]:
        """A pod's series, until the pod is deleted."""
        pod_labels = {"namespace": pod.namespace, "pod": pod.name, "uid": pod.id}
        node = pod.node.name if pod.node else ""
        for metric, containers in (
            ("kube_pod_container_resource_requests", {} if pod.claims else pod.requests),
            ("kube_pod_init_container_resource_requests", {**pod.init_requests, **pod.sidecar_requests}),
        ):
            for container, units in containers.items():
                for resource, count in units.items():
                    labels = {
                        **pod_labels,
                        "container": container,
                        "node": node,
                        "resource": resource,
                        "unit": "integer",
                    }
                    yield self._series(metric, labels, pod.bound_at, pod.deleted_at, count)
        for container in (*pod.init_requests, *pod.sidecar_requests):
            runs = pod.run_interval if container in pod.sidecar_requests else (pod.bound_at, pod.run_interval[0])
            yield self._true_during(
                "kube_pod_init_container_status_running", {**pod_labels, "container": container}, pod, runs
            )
        if self._instance.phases:
            begin, stop = pod.run_interval
            phase_intervals = {
                "Pending": (pod.bound_at, begin),
                "Running": (begin, stop),
                pod.phase_at_end: (stop, pod.deleted_at),
            }
            for phase in PHASES:
                interval = phase_intervals.get(phase, (pod.deleted_at, pod.deleted_at))
                yield self._true_during("kube_pod_status_phase", {**pod_labels, "phase": phase}, pod, interval)
        if self._instance.pod_times:
            yield from self._pod_times(pod, pod_labels)
        for claim in pod.claims:
            claim_labels = {
                "claim_name": "gpu",
                "resourceclaim_name": claim,
                "resourceclaim_template_name": pod.claim_template,
            }
            yield self._series(
                "kube_pod_resourceclaim_info", {**pod_labels, **claim_labels}, pod.bound_at, pod.deleted_at
            )
        kind, name = pod.owners[0] if pod.owners else ("", "")
        owner = {"owner_kind": kind, "owner_name": name, "owner_is_controller": "true" if pod.owners else ""}
        yield self._series("kube_pod_owner", {**pod_labels, **owner}, pod.bound_at, pod.deleted_at)
        yield from self._labels_and_annotations(pod, pod_labels)

    def _labels_and_annotations(self, pod: Pod, pod_labels: Labels) -> Iterator[SimulatedSeries]:
        labels = {**pod.labels, **group_labels(pod)}
        if self._instance.pod_labels and labels:
            yield self._series("kube_pod_labels", {**pod_labels, **labels}, pod.bound_at, pod.deleted_at)
        if self._instance.pod_annotations and not pod.reserves and (pod.fraction or pod.fraction_mib):
            annotations = {"annotation_gpu_fraction": pod.fraction} if pod.fraction else {}
            if pod.fraction_mib:
                annotations["annotation_gpu_memory"] = str(pod.fraction_mib)
            if len(pod.groups) > 1:
                annotations["annotation_gpu_fraction_num_devices"] = str(len(pod.groups))
            # The annotations exist before the pod is bound to a node.
            yield self._series("kube_pod_annotations", {**pod_labels, **annotations}, pod.bound_at - 3, pod.deleted_at)

    def _pod_times(self, pod: Pod, pod_labels: Labels) -> Iterator[SimulatedSeries]:
        if pod.bound_at > _WHOLE_SCENARIO[0]:
            yield self._timestamp(
                "kube_pod_status_scheduled_time", pod_labels, pod.bound_at, pod.deleted_at, pod.bound_at
            )
        if pod.finished_at is not None:
            yield self._timestamp(
                "kube_pod_completion_time", pod_labels, pod.finished_at, pod.deleted_at, pod.finished_at
            )

    def owners(self, pods: Sequence[Pod]) -> Iterator[SimulatedSeries]:
        """The owners of pods' owners, for as long as the pods exist; those without an owner have no labels of it."""
        lifetimes: dict[tuple[str, str, str, str, str], tuple[Minutes, Minutes]] = {}
        for pod in pods:
            if pod.owners and self.is_in_shard(pod.id):
                key = (pod.namespace, *pod.owners[0], *(pod.owners[1] if len(pod.owners) > 1 else ("", "")))
                start, end = lifetimes.get(key, (pod.bound_at, pod.deleted_at))
                lifetimes[key] = (min(start, pod.bound_at), max(end, pod.deleted_at))
        for (namespace, kind, name, owner_kind, owner), (start, end) in lifetimes.items():
            label = {"ReplicaSet": "replicaset", "Job": "job_name"}.get(kind)
            if label:
                labels = {"namespace": namespace, label: name, "owner_kind": owner_kind, "owner_name": owner}
                metric = "kube_replicaset_owner" if kind == "ReplicaSet" else "kube_job_owner"
                is_controller = "true" if owner_kind else ""
                yield self._series(metric, {**labels, "owner_is_controller": is_controller}, start, end)

    def quotas(self, scenario: Scenario) -> Iterator[SimulatedSeries]:
        """The quotas of GPUs, and how much of them the namespaces' unfinished pods request."""
        for namespace, limit in scenario.quotas.items():
            if not self.is_in_shard(namespace):
                continue
            changes: dict[Minutes, int] = {scenario.start: 0}
            for pod in scenario.pods:
                if pod.namespace == namespace:
                    requested = sum(units.get(GPU, 0) for units in pod.requests.values())
                    for at, units in ((max(pod.bound_at, scenario.start), requested), (pod.released_at, -requested)):
                        changes[at] = changes.get(at, 0) + units
            labels = {"namespace": namespace, "resourcequota": "gpus", "resource": "requests.nvidia.com/gpu"}
            used, samples = 0, list[tuple[int, str]]()
            for since, until in itertools.pairwise([*sorted(changes), _WHOLE_SCENARIO[1]]):
                used += changes[since]
                samples += constant(self._times, since, until, used)
            quota = self._series("kube_resourcequota", {**labels, "type": "hard"}, *_WHOLE_SCENARIO, limit)
            yield quota
            yield SimulatedSeries(quota.metric, {**quota.labels, "type": "used"}, samples)

    def _series(self, metric: str, labels: Labels, start: Minutes, end: Minutes, value: object = 1) -> SimulatedSeries:
        return SimulatedSeries(metric, {**labels, **self._target_labels}, constant(self._times, start, end, value))

    def _true_during(self, metric: str, labels: Labels, pod: Pod, interval: tuple[Minutes, Minutes]) -> SimulatedSeries:
        start, end = max(pod.bound_at, interval[0]), min(pod.deleted_at, interval[1])
        samples = (
            constant(self._times, pod.bound_at, min(start, pod.deleted_at), 0)
            + constant(self._times, start, end, 1)
            + constant(self._times, max(start, end), pod.deleted_at, 0)
        )
        return SimulatedSeries(metric, {**labels, **self._target_labels}, samples)

    def _timestamp(self, metric: str, labels: Labels, start: Minutes, end: Minutes, minute: Minutes) -> SimulatedSeries:
        """A time as a value. `@seconds` is resolved when the base is known."""
        samples = constant(self._times, start, end, f"@{float(minute) * 60:.0f}")
        return SimulatedSeries(metric, {**labels, **self._target_labels}, samples)
