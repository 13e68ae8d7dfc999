"""A large cluster as OpenMetrics: 10,000 GPU pods on 1,250 nodes of 8 GPUs, shared by 200 business units."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

PODS_PER_NODE = 8
UNITS = 200
STEP = 60
PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")
TOKENS_PER_SECOND = {
    "vllm:prompt_tokens_total": 900,
    "vllm:generation_tokens_total": 200,
    "vllm:prompt_tokens_cached_total": 300,
    "vllm:request_success_total": 1,
}
Family = tuple[str, Iterator[tuple[str, str]]]
"""A metric and its series: labels and a constant value."""
_UID, _UID_AFTER = "0a1b2c3d-0000-4000-8000-", "0a1b2c3d-0000-4000-8001-"
_POD_NAME = re.compile(r"\bpod-(\d+)(?=\")")
KSM = 'job="kube-state-metrics",instance="10.0.0.1:8080"'


def write(
    path: Path,
    pods: int,
    start: int,
    end: int,
    step: int = STEP,
    *,
    units: int = UNITS,
    with_opencost: bool = False,
    servers: int = 0,
    replaced: int = 0,
) -> None:
    """Write every series with a sample each `step` seconds in `[start, end)` (seconds since the epoch).

    Args:
        path: the file.
        pods: how many there are, one GPU each.
        start: of the first sample.
        end: after the last sample.
        step: seconds between two scrapes.
        units: namespaces that they are in.
        with_opencost: what OpenCost reads, too (`benchmarks.opencost`).
        servers: how many of the pods serve a model with vLLM.
        replaced: how many percent of the pods end halfway, each with a successor on its GPU.
    """
    times = range(start, end, step)
    families = list(_families(pods, units, servers))
    if with_opencost:
        families = _joined([*families, *_read_by_opencost(pods, units)])
    with path.open("w") as file:
        for metric, series in families:
            file.write(f"# TYPE {metric} gauge\n")
            for labels, value in series:
                for of_pod, pod_times in _successive_pods(labels, times, replaced):
                    file.writelines(f"{metric}{{{of_pod}}} {value} {at}\n" for at in pod_times)
        for metric, per_second in TOKENS_PER_SECOND.items() if servers else ():
            file.write(f"# TYPE {metric} unknown\n")  # vLLM's names end in `_total` in this format only
            for i in range(servers):
                labels = _server(i, units)
                file.writelines(f"{metric}{{{labels}}} {per_second * (at - start)} {at}\n" for at in times)
        file.write("# EOF\n")


def _successive_pods(labels: str, times: range, replaced: int) -> list[tuple[str, range]]:
    """The series of a pod and of its successor; of others, the series itself."""
    pod = _POD_NAME.search(labels)
    if pod is None or int(pod[1]) % 100 >= replaced:
        return [(labels, times)]
    middle = len(times) // 2
    return [(labels, times[:middle]), (labels.replace(pod[0], f"{pod[0]}b").replace(_UID, _UID_AFTER), times[middle:])]


def _families(pods: int, units: int, servers: int) -> Iterator[Family]:
    nodes = range(-(-pods // PODS_PER_NODE))
    exporters = ((f'job="dcgm-exporter",instance="node-{node}:9400"', "1") for node in nodes)
    yield "up", chain([(KSM, "1")], exporters, ((_target(i, units), "1") for i in range(servers)))
    yield "kube_node_info", ((f'node="node-{n}",provider_id="aws:///zone/i-{n}",{KSM}', "1") for n in nodes)
    yield "kube_node_labels", ((_node_labels(node), "1") for node in nodes)
    gpu = 'resource="nvidia_com_gpu",unit="integer"'
    for metric in ("kube_node_status_capacity", "kube_node_status_allocatable"):
        yield metric, ((f'node="node-{node}",{gpu},{KSM}', str(PODS_PER_NODE)) for node in nodes)
    yield (
        "kube_pod_container_resource_requests",
        ((f'{_pod(i, units)},container="main",node="node-{i // PODS_PER_NODE}",{gpu},{KSM}', "1") for i in range(pods)),
    )
    yield (
        "kube_pod_status_phase",
        (
            (f'{_pod(i, units)},phase="{phase}",{KSM}', "1" if phase == "Running" else "0")
            for i in range(pods)
            for phase in PHASES
        ),
    )
    yield (
        "kube_pod_owner",
        (
            (f'{_pod(i, units)},owner_kind="ReplicaSet",owner_name="rs-{i // 4}",owner_is_controller="true",{KSM}', "1")
            for i in range(pods)
        ),
    )
    yield "kube_replicaset_owner", ((_replicaset(rs, units), "1") for rs in range(-(-pods // 4)))
    yield "DCGM_FI_PROF_GR_ENGINE_ACTIVE", ((_device(i, units), f"0.{i % 100:02d}") for i in range(pods))


def _read_by_opencost(pods: int, units: int) -> Iterator[Family]:
    """Metrics that OpenCost reads for the same pods: kube-state-metrics, cAdvisor, and its own exporter.

    Left out, as few GPU clusters have many of them: volumes and their claims, load balancers, services, stateful sets,
    annotations, traffic by zone. OpenCost asks for them all the same, and is answered at once.
    """
    nodes = range(-(-pods // PODS_PER_NODE))
    opencost, cadvisor = 'job="opencost",instance="10.0.0.9:9003"', 'job="kubelet"'

    def of_pods(labels: str, value: str) -> Iterator[tuple[str, str]]:
        return ((f'{_pod(i, units)},node="node-{i // PODS_PER_NODE}",{labels}', value) for i in range(pods))

    main = f'container="main",{KSM}'
    for resource, unit, value in (("cpu", "core", "12"), ("memory", "byte", "137438953472")):
        labels = f'resource="{resource}",unit="{unit}",{main}'
        yield "kube_pod_container_resource_requests", of_pods(labels, value)
    yield "kube_pod_container_status_running", of_pods(main, "1")
    yield (
        "kube_pod_labels",
        ((f'{_pod(i, units)},label_app="app-{i // 4}",label_team="team-{i % units}",{KSM}', "1") for i in range(pods)),
    )
    yield "kube_namespace_labels", ((f'namespace="team-{i}",label_owner="o-{i}",{KSM}', "1") for i in range(units))
    for metric, value in (
        ("container_cpu_usage_seconds_total", "1000"),
        ("container_memory_working_set_bytes", "1e11"),
    ):
        yield metric, of_pods(f'container="main",image="i",{cadvisor}', value)
    for metric in ("container_network_receive_bytes_total", "container_network_transmit_bytes_total"):
        yield metric, of_pods(f'interface="eth0",{cadvisor}', "1000000")
    for metric, value in (
        ("container_cpu_allocation", "12"),
        ("container_memory_allocation_bytes", "1e11"),
        ("container_gpu_allocation", "1"),
    ):
        yield metric, of_pods(f'container="main",{opencost}', value)
    for metric in (
        "node_cpu_hourly_cost",
        "node_ram_hourly_cost",
        "node_gpu_hourly_cost",
        "node_total_hourly_cost",
        "node_gpu_count",
        "kubecost_node_is_spot",
    ):
        yield (
            metric,
            ((f'node="node-{n}",instance_type="p5.48xlarge",provider_id="i-{n}",{opencost}', "1") for n in nodes),
        )
    deployments = range(-(-pods // 4))
    yield (
        "deployment_match_labels",
        (
            (f'namespace="team-{4 * d % units}",deployment="app-{d}",label_app="app-{d}",{opencost}', "1")
            for d in deployments
        ),
    )


def _joined(families: Iterable[Family]) -> list[Family]:
    """Samples grouped by metric, as the format requires."""
    parts: dict[str, list[Iterator[tuple[str, str]]]] = {}
    for metric, series in families:
        parts.setdefault(metric, []).append(series)
    return [(metric, chain.from_iterable(series_lists)) for metric, series_lists in parts.items()]


def _pod(i: int, units: int) -> str:
    return f'namespace="team-{i % units}",pod="pod-{i}",uid="{_UID}{i:012d}"'


def _replicaset(rs: int, units: int) -> str:
    owner = f'owner_kind="Deployment",owner_name="app-{rs}"'
    return f'namespace="team-{(4 * rs) % units}",replicaset="rs-{rs}",{owner},{KSM}'


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


def _device(i: int, units: int) -> str:
    node, gpu = divmod(i, PODS_PER_NODE)
    device = f'gpu="{gpu}",UUID="GPU-{i}",Hostname="node-{node}",modelName="NVIDIA H100 80GB HBM3"'
    workload = f'exported_container="main",exported_namespace="team-{i % units}",exported_pod="pod-{i}"'
    return f'job="dcgm-exporter",instance="node-{node}:9400",{device},{workload}'


def _target(i: int, units: int) -> str:
    return f'job="vllm",instance="pod-{i}:8000",namespace="team-{i % units}",pod="pod-{i}"'


def _server(i: int, units: int) -> str:
    return f'{_target(i, units)},engine="0",model_name="model-{i // 4}"'
