"""Everything that the exporters of a cluster expose at one time, whether it is queried or not.

Metric families and labels are those of kube-state-metrics 2.20's docs/metrics, dcgm-exporter's
etc/default-counters.csv, Karpenter's metrics reference and neuron-monitor's user guide. Series about GPUs come from the
simulated fleet.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from gpucost_devstack.fleet import dcgm_exporter, karpenter, kube_state_metrics, neuron_monitor
from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.series import SimulatedSeries

Labels = Mapping[str, str]
POD_METRICS = (
    "created",
    "start_time",
    "status_initialized_time",
    "status_ready_time",
    "status_container_ready_time",
    "status_unscheduled_time",
    "overhead_cpu_cores",
    "overhead_memory_bytes",
    "deletion_timestamp",
)
CONTAINER_METRICS = (
    "status_waiting",
    "status_running",
    "state_started",
    "status_terminated",
    "status_ready",
    "status_restarts_total",
    "status_last_terminated_exitcode",
    "status_last_terminated_timestamp",
)
DEPLOYMENT_METRICS = (
    "status_replicas",
    "status_replicas_ready",
    "status_replicas_available",
    "status_replicas_unavailable",
    "status_replicas_updated",
    "status_observed_generation",
    "spec_replicas",
    "spec_paused",
    "metadata_generation",
    "created",
    "spec_strategy_rollingupdate_max_unavailable",
    "spec_strategy_rollingupdate_max_surge",
)
REPLICASET_METRICS = (
    "status_replicas",
    "status_fully_labeled_replicas",
    "status_ready_replicas",
    "status_observed_generation",
    "spec_replicas",
    "metadata_generation",
    "created",
)
JOB_METRICS = (
    "info",
    "spec_parallelism",
    "spec_completions",
    "status_active",
    "status_succeeded",
    "status_failed",
    "status_start_time",
    "status_completion_time",
    "created",
)
DCGM_COUNTERS = (
    "DCGM_FI_DEV_SM_CLOCK",
    "DCGM_FI_DEV_MEM_CLOCK",
    "DCGM_FI_DEV_MEMORY_TEMP",
    "DCGM_FI_DEV_GPU_TEMP",
    "DCGM_FI_DEV_POWER_USAGE",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
    "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_DEC_UTIL",
    "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_DEV_FB_FREE",
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_FB_RESERVED",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "DCGM_FI_PROF_DRAM_ACTIVE",
    "DCGM_FI_PROF_PCIE_TX_BYTES",
    "DCGM_FI_PROF_PCIE_RX_BYTES",
)
"""The default counters without DCGM_FI_DEV_GPU_UTIL and DCGM_FI_PROF_GR_ENGINE_ACTIVE, which the fleet exposes."""
KARPENTER_METRICS = (
    "karpenter_build_info",
    "karpenter_cloudprovider_errors_total",
    "karpenter_cluster_state_node_count",
    "karpenter_cluster_state_synced",
    "karpenter_cluster_utilization_percent",
    "karpenter_nodeclaims_created_total",
    "karpenter_nodeclaims_disrupted_total",
    "karpenter_nodeclaims_terminated_total",
    "karpenter_nodepools_allowed_disruptions",
    "karpenter_scheduler_queue_depth",
    "karpenter_scheduler_unschedulable_pods_count",
    "karpenter_voluntary_disruption_eligible_nodes",
    "karpenter_voluntary_disruption_decisions_total",
    "controller_runtime_reconcile_total",
    "workqueue_depth",
    "client_go_request_total",
    "aws_sdk_go_request_total",
)
NEURON_METRICS = (
    "neuroncore_memory_usage_tensors",
    "neuron_runtime_memory_used_bytes",
    "neuron_runtime_vcpu_usage_ratio",
    "execution_errors_total",
    "execution_status_total",
    "execution_latency_seconds",
    "instance_info",
    "system_memory_total_bytes",
    "system_vcpu_usage_ratio",
)
PROCESS_METRICS = (
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "go_goroutines",
    "go_gc_duration_seconds_sum",
)
INSTANCE_TYPES = 40
"""A part of the hundreds of instance types whose prices and zones Karpenter exposes."""


@dataclass
class Target:
    """A scraped pod with its exposed samples."""

    exporter: str
    node: str
    exposed: list[tuple[str, Labels, str]] = field(default_factory=list)

    def add(self, metric: str, value: str = "1", **labels: str) -> None:
        self.exposed.append((metric, labels, value))

    def text(self) -> str:
        return "".join(f"{metric}{{{format_labels(labels)}}} {value}\n" for metric, labels, value in self.exposed)


def format_labels(labels: Labels) -> str:
    return ",".join(f'{name}="{value}"' for name, value in labels.items())


def targets(scenario: Scenario, minute: int, *, pods_without_gpus: int = 0) -> list[Target]:
    """Return everything that the exporters of a scenario expose at a minute.

    Args:
        pods_without_gpus: number of other pods, two on each node, that kube-state-metrics also exposes.
    """
    exporter_targets = [_kube_state_metrics(scenario, minute, pods_without_gpus)]
    for exporter, series in (
        ("dcgm-exporter", dcgm_exporter.series(scenario)),
        ("neuron-monitor", neuron_monitor.series(scenario)),
        ("karpenter", karpenter.series(scenario)),
    ):
        by_instance: dict[str, Target] = {}
        for single_series, value in samples_at(series, minute):
            target = by_instance.setdefault(single_series.labels["instance"], Target(exporter, _node(single_series)))
            target.add(single_series.metric, value, **exposed_labels(single_series))
        for target in by_instance.values():
            _ADD_OTHER_METRICS[exporter](target)
            for metric in PROCESS_METRICS:
                target.add(metric)
        exporter_targets += by_instance.values()
    return exporter_targets


def samples_at(series: Iterable[SimulatedSeries], minute: int) -> Iterator[tuple[SimulatedSeries, str]]:
    """Series that have a sample time a minute, with its value; not Prometheus' own."""
    for candidate in series:
        value = next((value for time, value in candidate.samples if time == minute * 60_000), None)
        if value is not None and candidate.metric != "up":
            yield candidate, value.lstrip("@")


def answer_first_scrapes(series: Sequence[SimulatedSeries], base: datetime) -> Callable[[str], bytes]:
    """Answer all samples at the first three scrapes, with their times, and nothing later.

    On a busy machine a scrape can fail after the exporter answered.
    """
    zero = int(base.timestamp() * 1000)
    lines = []
    for single_series in series:
        labels = format_labels(exposed_labels(single_series))
        for time, text in single_series.samples:
            sample = zero // 1000 + int(text[1:]) if text.startswith("@") else text
            lines.append(f"{single_series.metric}{{{labels}}} {sample} {zero + time}\n")
    left = ["".join(lines).encode()] * 3
    return lambda _: left.pop() if left else b""


def exposed_labels(series: SimulatedSeries) -> dict[str, str]:
    """Return the labels that the exporter exposes, without those of the scrape."""
    return {name: value for name, value in series.labels.items() if name not in {"job", "instance"}}


def _node(series: SimulatedSeries) -> str:
    return series.labels.get("Hostname", series.labels["instance"].rpartition(":")[0])


def _kube_state_metrics(scenario: Scenario, minute: int, others: int) -> Target:
    target = Target("kube-state-metrics", "system-1")
    for series, value in samples_at(kube_state_metrics.series(scenario), minute):
        target.add(series.metric, value, **exposed_labels(series))
    for pod in scenario.pods:
        if pod.bound_at <= minute < pod.deleted_at:
            _add_pod(target, pod.namespace, pod.name, pod.id, pod.node.name if pod.node else "")
    for number in range(others):
        name, uid, node = f"web-5d8c-{number}", f"uid-web-{number}", f"general-{number // 2}"
        pod_labels = {"namespace": "web", "pod": name, "uid": uid}
        for phase in kube_state_metrics.PHASES:
            target.add("kube_pod_status_phase", str(int(phase == "Running")), phase=phase, **pod_labels)
        target.add(
            "kube_pod_owner", owner_kind="ReplicaSet", owner_name="web-5d8c", owner_is_controller="true", **pod_labels
        )
        target.add("kube_pod_status_scheduled_time", **pod_labels)
        _add_pod(target, "web", name, uid, node)
        if number % 2 == 0:
            target.add("kube_node_info", node=node, provider_id=f"aws:///us-west-2a/i-{node}")
            target.add("kube_node_labels", node=node, label_node_kubernetes_io_instance_type="m7i.2xlarge")
            target.add("kube_node_status_capacity", "8", node=node, resource="cpu", unit="core")
            _add_node(target, node)
    for node_with_gpus in scenario.nodes:
        if node_with_gpus.lifetime[0] <= minute < node_with_gpus.lifetime[1]:
            _add_node(target, node_with_gpus.name)
    for space in {pod.namespace for pod in scenario.pods} | {"web", "kube-system"}:
        target.add("kube_namespace_created", namespace=space)
        for phase in ("Active", "Terminating"):
            target.add("kube_namespace_status_phase", namespace=space, phase=phase)
        for resource in ("requests.nvidia.com/gpu", "requests.cpu"):
            for kind in ("hard", "used"):
                target.add("kube_resourcequota", namespace=space, resourcequota="gpu", resource=resource, type=kind)
    _add_workloads(target, {pod.owners[0] for pod in scenario.pods if pod.owners} | {("ReplicaSet", "web-5d8c")})
    target.add(
        "kube_replicaset_owner",
        namespace="web",
        replicaset="web-5d8c",
        owner_kind="Deployment",
        owner_name="web",
        owner_is_controller="true",
    )
    return target


def _add_pod(target: Target, namespace: str, name: str, uid: str, node: str) -> None:
    pod_labels = {"namespace": namespace, "pod": name, "uid": uid}
    for metric in POD_METRICS:
        target.add(f"kube_pod_{metric}", **pod_labels)
    target.add("kube_pod_info", node=node, host_ip="10.0.0.1", pod_ip="10.0.1.1", created_by_kind="", **pod_labels)
    target.add("kube_pod_ips", ip="10.0.1.1", ip_family="4", **pod_labels)
    target.add("kube_pod_restart_policy", type="Always", **pod_labels)
    target.add("kube_pod_service_account", service_account="default", **pod_labels)
    target.add("kube_pod_scheduler", name="default-scheduler", **pod_labels)
    for metric in ("ready", "scheduled"):
        for condition in ("true", "false", "unknown"):
            target.add(f"kube_pod_status_{metric}", condition=condition, **pod_labels)
    for kind in ("BestEffort", "Burstable", "Guaranteed"):
        target.add("kube_pod_status_qos_class", qos_class=kind, **pod_labels)
    for reason in ("Evicted", "NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError"):
        target.add("kube_pod_status_reason", "0", reason=reason, **pod_labels)
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        target.add("kube_pod_tolerations", key=key, operator="Exists", effect="NoExecute", **pod_labels)
    target.add("kube_pod_container_info", container="main", image="registry/app:1", container_id="c", **pod_labels)
    for metric in CONTAINER_METRICS:
        target.add(f"kube_pod_container_{metric}", container="main", **pod_labels)
    for metric in ("requests", "limits"):
        for resource, unit in (("cpu", "core"), ("memory", "byte")):
            target.add(
                f"kube_pod_container_resource_{metric}",
                container="main",
                node=node,
                resource=resource,
                unit=unit,
                **pod_labels,
            )


def _add_node(target: Target, node: str) -> None:
    for metric in ("created", "spec_unschedulable", "role", "spec_taint"):
        target.add(f"kube_node_{metric}", node=node)
    for kind in ("InternalIP", "Hostname", "InternalDNS"):
        target.add("kube_node_status_addresses", node=node, type=kind, address="10.0.0.1")
    for condition in ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"):
        for status in ("true", "false", "unknown"):
            target.add("kube_node_status_condition", node=node, condition=condition, status=status)
    for metric in ("capacity", "allocatable"):
        for resource in ("cpu", "memory", "pods", "ephemeral_storage", "hugepages_1Gi", "hugepages_2Mi"):
            if (metric, resource) != ("capacity", "cpu"):  # already added
                target.add(f"kube_node_status_{metric}", node=node, resource=resource, unit="x")


def _add_workloads(target: Target, owners: Iterable[tuple[str, str]]) -> None:
    for kind, name in owners:
        label, metrics = {
            "ReplicaSet": ("replicaset", [*(f"kube_replicaset_{metric}" for metric in REPLICASET_METRICS)]),
            "Job": ("job_name", [f"kube_job_{metric}" for metric in JOB_METRICS]),
        }.get(kind, ("", []))
        for metric in metrics:
            target.add(metric, **{"namespace": "any", label: name})
        if kind == "ReplicaSet":
            for metric in DEPLOYMENT_METRICS:
                target.add(f"kube_deployment_{metric}", namespace="any", deployment=name.rpartition("-")[0])


def _add_counters(target: Target) -> None:
    device_labels = [labels for metric, labels, _ in target.exposed if metric == "DCGM_FI_PROF_GR_ENGINE_ACTIVE"]
    for metric in DCGM_COUNTERS:
        for labels in device_labels:
            target.exposed.append((metric, {**labels, "DCGM_FI_DRIVER_VERSION": "580.95.05"}, "1"))


def _add_karpenter(target: Target) -> None:
    for metric in KARPENTER_METRICS:
        target.add(metric, nodepool="gpu-general")
    for kind in ("cpu", "memory", "pods"):
        for metric in ("karpenter_nodepools_usage", "karpenter_nodepools_limit"):
            target.add(metric, nodepool="gpu-general", resource_type=kind)
    for number in range(INSTANCE_TYPES):
        for capacity in ("spot", "on-demand"):
            for zone in ("us-west-2a", "us-west-2b", "us-west-2c"):
                for metric in ("offering_price_estimate", "offering_available"):
                    target.add(
                        f"karpenter_cloudprovider_instance_type_{metric}",
                        instance_type=f"m{number}.large",
                        capacity_type=capacity,
                        zone=zone,
                    )
    for metric in ("reconcile_time_seconds", "scheduling_duration_seconds"):
        for bound in ("0.1", "1", "10", "+Inf"):
            target.add(f"controller_runtime_{metric}_bucket", le=bound)


def _add_neuron(target: Target) -> None:
    for metric in NEURON_METRICS:
        target.add(metric, instance_id="i-1", neuroncore="0")


_ADD_OTHER_METRICS = {"dcgm-exporter": _add_counters, "karpenter": _add_karpenter, "neuron-monitor": _add_neuron}
