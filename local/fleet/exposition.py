"""A scenario as the OpenMetrics that kube-state-metrics, dcgm-exporter and Prometheus' own `up` would leave.

Names and labels as the exporters write them (kube-state-metrics 2.20, dcgm-exporter 4.5 scraped by a ServiceMonitor
with `honorLabels: false`).
"""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path

from local.fleet.scenario import Node, Pod, Scenario

KSM = {"job": "kube-state-metrics", "instance": "10.0.0.10:8080"}
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
Labels = Mapping[str, str]
Value = Callable[[datetime], str]
Series = tuple[Labels, datetime, datetime, Value]


def write(scenario: Scenario, path: Path, progress: Callable[[float], None] = lambda _: None) -> None:
    """Write every sample of a scenario; `progress` is told the part that is done, 0 to 1."""
    step = timedelta(seconds=scenario.step_seconds)
    families = list(_families(scenario))
    with path.open("w") as file:
        for done, (metric, series) in enumerate(families):
            file.write(f"# TYPE {metric} gauge\n")
            for labels, start, end, value in series:
                name = f"{metric}{{{_inside({'cluster': scenario.cluster, **labels})}}}"
                at = max(start, scenario.start)
                stop = min(end, scenario.end)
                while at < stop:
                    file.write(f"{name} {value(at)} {int(at.timestamp())}\n")
                    at += step
            progress((done + 1) / len(families))
        file.write("# EOF\n")


def _families(scenario: Scenario) -> Iterator[tuple[str, list[Series]]]:
    always = (scenario.start, scenario.end)
    nodes, pods = scenario.nodes, scenario.pods
    targets: list[Series] = [(KSM, *always, _one)]
    targets += [
        ({"job": "dcgm-exporter", "instance": f"{node.name}:9400"}, node.start, node.end, _one) for node in nodes
    ]
    yield "up", targets
    yield (
        "kube_node_info",
        [
            ({"node": node.name, "provider_id": f"aws:///{node.zone}/i-{node.name}", **KSM}, node.start, node.end, _one)
            for node in nodes
        ],
    )
    yield (
        "kube_node_labels",
        [({"node": node.name, **_node_labels(node), **KSM}, node.start, node.end, _one) for node in nodes],
    )
    for metric in ("kube_node_status_capacity", "kube_node_status_allocatable"):
        yield (
            metric,
            [
                (
                    {"node": node.name, "resource": "nvidia_com_gpu", "unit": "integer", **KSM},
                    node.start,
                    node.end,
                    _constant(node.units),
                )
                for node in nodes
            ],
        )
    yield (
        "kube_pod_container_resource_requests",
        [
            (
                {
                    **_pod(pod),
                    "container": "main",
                    "node": pod.node.name,
                    "resource": "nvidia_com_gpu",
                    "unit": "integer",
                },
                pod.start,
                pod.end,
                _constant(pod.units),
            )
            for pod in pods
        ],
    )
    yield (
        "kube_pod_status_phase",
        [({**_pod(pod), "phase": phase}, pod.start, pod.end, _phase(pod, phase)) for pod in pods for phase in PHASES],
    )
    yield (
        "kube_pod_owner",
        [
            (
                {
                    **_pod(pod),
                    "owner_kind": pod.owners[0][0],
                    "owner_name": pod.owners[0][1],
                    "owner_is_controller": "true",
                },
                pod.start,
                pod.end,
                _one,
            )
            for pod in pods
            if pod.owners
        ],
    )
    yield "kube_replicaset_owner", _owners(pods, "ReplicaSet", "replicaset", always)
    yield "kube_job_owner", _owners(pods, "Job", "job_name", always)
    yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", [series for node in nodes for series in _devices(node, pods)]


def _devices(node: Node, pods: tuple[Pod, ...]) -> Iterator[Series]:
    """Each device's series: one for every pod that held it, one for the times in which nobody did."""
    for device in range(node.units):
        labels = _device_labels(node, device)
        holders = sorted(
            (pod for pod in pods if pod.node is node and pod.first_device <= device < pod.first_device + pod.units),
            key=lambda pod: pod.start,
        )
        free_from = node.start
        for pod in holders:
            yield labels, free_from, min(pod.running, node.end), _zero
            workload = {"exported_namespace": pod.namespace, "exported_pod": pod.name, "exported_container": "main"}
            yield {**labels, **workload}, pod.running, min(pod.stops, node.end), _use(pod)
            free_from = pod.stops
        yield labels, free_from, node.end, _zero


def _device_labels(node: Node, device: int) -> dict[str, str]:
    gpu, piece = divmod(device, node.slices_per_gpu)
    mig = {"GPU_I_PROFILE": node.mig_profile, "GPU_I_ID": str(piece + 7)} if node.mig_profile else {}
    return {
        "gpu": str(gpu),
        "UUID": f"GPU-{node.name}-{gpu}",
        "device": f"nvidia{gpu}",
        "modelName": node.model,
        "Hostname": node.name,
        "job": "dcgm-exporter",
        "instance": f"{node.name}:9400",
        "namespace": "gpu-operator",
        "pod": f"nvidia-dcgm-exporter-{node.name}",
        **mig,
    }


def _node_labels(node: Node) -> dict[str, str]:
    return {
        "label_node_kubernetes_io_instance_type": node.instance_type,
        "label_topology_kubernetes_io_zone": node.zone,
        "label_karpenter_sh_nodepool": node.node_pool,
        "label_karpenter_sh_capacity_type": node.capacity_type,
        "label_nvidia_com_gpu_product": node.product,
        "label_nvidia_com_gpu_count": str(node.units),
        "label_nvidia_com_gpu_replicas": "1",
        "label_nvidia_com_mig_strategy": "single",
    }


def _pod(pod: Pod) -> dict[str, str]:
    return {"namespace": pod.namespace, "pod": pod.name, "uid": pod.uid, **KSM}


def _owners(pods: tuple[Pod, ...], kind: str, label: str, time: tuple[datetime, datetime]) -> list[Series]:
    found: dict[tuple[str, str], Series] = {}
    for pod in pods:
        if len(pod.owners) > 1 and pod.owners[0][0] == kind:
            (_, name), (owner_kind, owner) = pod.owners[:2]
            labels = {"namespace": pod.namespace, label: name, "owner_kind": owner_kind, "owner_name": owner, **KSM}
            found[pod.namespace, name] = (labels, *time, _one)
    return list(found.values())


def _phase(pod: Pod, phase: str) -> Value:
    def value(at: datetime) -> str:
        if pod.finished is not None and at >= pod.finished:
            now = "Succeeded"
        else:
            now = "Running" if at >= pod.running else "Pending"
        return "1" if now == phase else "0"

    return value


def _use(pod: Pod) -> Value:
    return lambda at: str(pod.use(at.replace(minute=0, second=0, microsecond=0)))


def _constant(number: int) -> Value:
    return lambda _: str(number)


def _one(_: datetime) -> str:
    return "1"


def _zero(_: datetime) -> str:
    return "0"


def _inside(labels: Labels) -> str:
    return ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
