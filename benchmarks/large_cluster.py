"""A large cluster as OpenMetrics: 10,000 GPU pods on 1,250 nodes of 8 GPUs, shared by 200 business units."""

from collections.abc import Iterator
from pathlib import Path

PODS_PER_NODE = 8
UNITS = 200
STEP = 60
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
KSM = 'job="kube-state-metrics",instance="10.0.0.1:8080"'


def write(path: Path, pods: int, start: int, end: int, step: int = STEP) -> None:
    """Write every series with a sample each `step` seconds in `[start, end)` (seconds since the epoch)."""
    times = range(start, end, step)
    with path.open("w") as file:
        for metric, series in _families(pods):
            file.write(f"# TYPE {metric} gauge\n")
            for labels, value in series:
                file.writelines(f"{metric}{{{labels}}} {value} {at}\n" for at in times)
        file.write("# EOF\n")


def _families(pods: int) -> Iterator[tuple[str, Iterator[tuple[str, str]]]]:
    nodes = range(-(-pods // PODS_PER_NODE))
    exporters = ((f'job="dcgm-exporter",instance="node-{node}:9400"', "1") for node in nodes)
    yield "up", iter([(KSM, "1"), *exporters])
    yield "kube_node_info", ((f'node="node-{n}",provider_id="aws:///zone/i-{n}",{KSM}', "1") for n in nodes)
    yield "kube_node_labels", ((_node_labels(node), "1") for node in nodes)
    gpu = 'resource="nvidia_com_gpu",unit="integer"'
    for metric in ("kube_node_status_capacity", "kube_node_status_allocatable"):
        yield metric, ((f'node="node-{node}",{gpu},{KSM}', str(PODS_PER_NODE)) for node in nodes)
    yield (
        "kube_pod_container_resource_requests",
        ((f'{_pod(i)},container="main",node="node-{i // PODS_PER_NODE}",{gpu},{KSM}', "1") for i in range(pods)),
    )
    yield (
        "kube_pod_status_phase",
        (
            (f'{_pod(i)},phase="{phase}",{KSM}', "1" if phase == "Running" else "0")
            for i in range(pods)
            for phase in PHASES
        ),
    )
    yield (
        "kube_pod_owner",
        (
            (f'{_pod(i)},owner_kind="ReplicaSet",owner_name="rs-{i // 4}",owner_is_controller="true",{KSM}', "1")
            for i in range(pods)
        ),
    )
    yield "kube_replicaset_owner", ((_replicaset(rs), "1") for rs in range(-(-pods // 4)))
    yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", ((_device(i), f"0.{i % 100:02d}") for i in range(pods))


def _pod(i: int) -> str:
    return f'namespace="team-{i % UNITS}",pod="pod-{i}",uid="0a1b2c3d-0000-4000-8000-{i:012d}"'


def _replicaset(rs: int) -> str:
    owner = f'owner_kind="Deployment",owner_name="app-{rs}"'
    return f'namespace="team-{(4 * rs) % UNITS}",replicaset="rs-{rs}",{owner},{KSM}'


def _node_labels(node: int) -> str:
    labels = {
        "node_kubernetes_io_instance_type": "p5.48xlarge",
        "topology_kubernetes_io_zone": f"zone-{node % 3}",
        "karpenter_sh_nodepool": f"pool-{node % 7}",
        "karpenter_sh_capacity_type": "on-demand",
        "nvidia_com_gpu_product": "NVIDIA-H100-80GB-HBM3",
    }
    inside = ",".join(f'label_{name}="{value}"' for name, value in labels.items())
    return f'node="node-{node}",{inside},{KSM}'


def _device(i: int) -> str:
    node, gpu = divmod(i, PODS_PER_NODE)
    device = f'gpu="{gpu}",UUID="GPU-{i}",Hostname="node-{node}",modelName="NVIDIA H100 80GB HBM3"'
    workload = f'exported_container="main",exported_namespace="team-{i % UNITS}",exported_pod="pod-{i}"'
    return f'job="dcgm-exporter",instance="node-{node}:9400",{device},{workload}'
