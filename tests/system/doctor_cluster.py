"""Metrics of a small, healthy cluster in the last hours, from which tests remove series or to which they add some."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta

from gpucost.core.hours import HOUR, floor_hour
from tests.system.timeline import Timeline

KSM = {"job": "kube-state-metrics", "instance": "10.0.0.1:8080"}
LABELS = {
    "node_kubernetes_io_instance_type": "g5.12xlarge",
    "topology_kubernetes_io_zone": "us-west-2a",
    "karpenter_sh_nodepool": "gpu",
    "karpenter_sh_capacity_type": "on-demand",
    "nvidia_com_gpu_product": "NVIDIA-A10G",
    "nvidia_com_gpu_count": "4",
    "nvidia_com_gpu_replicas": "1",
    "nvidia_com_gpu_sharing_strategy": "none",
}


class Recent(Timeline):
    """A timeline whose minutes count from the start of the last full hour before its creation (`now`).

    Args:
        cluster: value of the label `cluster`.
        step: seconds between samples.
        lead: how much later all samples are. Tests that share them, and run for some minutes, need later samples.
    """

    def __init__(self, cluster: str = "", step: float = 60.0, lead: timedelta = timedelta()) -> None:
        self.now = datetime.now(UTC)
        self._latest = (self.now + lead).timestamp()
        super().__init__(cluster, step, base=floor_hour(self.now) - HOUR + lead)

    def text(self) -> str:
        """The samples so far, as OpenMetrics: Prometheus 3 takes none that are more than ten minutes ahead."""
        rows = super().text().splitlines(keepends=True)
        return "".join(row for row in rows if row.startswith("#") or float(row.rsplit(" ", 1)[1]) <= self._latest)

    def exporter_up(self, *nodes: str) -> None:
        """Add `up` of GPU exporters."""
        for node in nodes:
            self.up(job="dcgm-exporter", instance=f"{node}:9400")

    def owned(self, pod: str, kind: str, name: str, namespace: str = "team") -> None:
        """Add the owner of a pod."""
        labels = {"namespace": namespace, "pod": pod, "uid": f"uid-{pod}", **KSM}
        self.add("kube_pod_owner", owner_kind=kind, owner_name=name, owner_is_controller="true", **labels)
        self.add("kube_pod_status_scheduled_time", value=1, **labels)

    def without(self, *metrics: str) -> "Recent":
        """Remove some metrics."""
        for metric in metrics:
            del self.families[metric]
        return self

    def edited(self, metric: str, edit: Callable[[str], str], also: Iterable[str] = ()) -> "Recent":
        """Edit the lines of some metrics, and remove lines that become blank."""
        for name in (metric, *also):
            changed = (edit(line) for line in self.families[name])
            self.families[name] = [line for line in changed if line]
        return self


def bare(cluster: str = "", lead: timedelta = timedelta()) -> Recent:
    """A cluster with `up` of kube-state-metrics and nothing else."""
    metrics = Recent(cluster=cluster, lead=lead)
    metrics.up()
    return metrics


def healthy(
    nodes: int = 1,
    *,
    labels: dict[str, str] | None = None,
    units: int = 4,
    cluster: str = "",
    lead: timedelta = timedelta(),
    zone: str = "us-west-2a",
) -> Recent:
    """Nodes of four GPUs: two pods on each, with labeled devices, and two idle devices."""
    metrics = bare(cluster=cluster, lead=lead)
    metrics.exporter_up(*(f"n{i}" for i in range(1, nodes + 1)))
    for i in range(1, nodes + 1):
        node = f"n{i}"
        metrics.node(node, capacity={"nvidia_com_gpu": units}, labels={**LABELS, **(labels or {})}, zone=zone)
        for gpu in range(2):
            pod(metrics, f"{node}-a{gpu}", node=node)
        for gpu in range(4):
            held = {"exported_namespace": "team", "exported_pod": f"{node}-a{gpu}"} if gpu < 2 else {}
            target = {"namespace": "monitoring", "pod": f"dcgm-exporter-{node}"}
            metrics.device(0.25 * (gpu + 1) if gpu < 2 else 0, gpu=gpu, node=node, **target, **held)
    metrics.add(
        "kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", owner_name="app", **KSM
    )
    return metrics


def pod(cluster: Recent, name: str, *, node: str = "n1", resource: str = "nvidia_com_gpu", units: int = 1) -> None:
    """Add a running pod of a Deployment."""
    cluster.pod(name, node=node, resource=resource, units=units)
    cluster.owned(name, "ReplicaSet", "app-1")


def shared(resource: str = "nvidia_com_gpu", *, labeled: int = 1, slots: bool = False) -> Recent:
    """Two GPUs, each shared by four replicas, with three pods on each."""
    names = [f"s-{i}" for i in range(6)]
    cluster = bare()
    cluster.exporter_up("n1")
    node_labels = {"nvidia_com_gpu_replicas": "4", "nvidia_com_gpu_sharing_strategy": "time-slicing"}
    node_labels["node_kubernetes_io_instance_type"] = "custom.2gpu"
    cluster.node(capacity={resource: 8}, labels={**LABELS, **node_labels, "nvidia_com_gpu_count": "2"})
    cluster.add("kube_replicaset_owner", namespace="team", replicaset="app-1", owner_kind="Deployment", **KSM)
    for name in names:
        pod(cluster, name, resource=resource)
    for gpu in range(2):
        for i in range(labeled):
            slot = {"vgpu": str(i)} if slots else {}
            cluster.device(0.6, gpu=gpu, exported_namespace="team", exported_pod=names[gpu * 3 + i], **slot)
        if not labeled:
            cluster.device(0.6, gpu=gpu)
    return cluster


def sliced(profile: str = "1g_5gb", *, labeled: bool = True, product: str = "NVIDIA-A100-SXM4-40GB") -> Recent:
    """A node with a sliced A100, of which pods hold two slices, and a healthy node."""
    cluster = healthy()
    node_labels = {"node_kubernetes_io_instance_type": "custom.1gpu", "nvidia_com_gpu_count": "1"}
    node_labels |= {"nvidia_com_gpu_product": product}
    resource = f"nvidia_com_mig_{profile}"
    cluster.node("mig", capacity={resource: 7}, labels={**LABELS, **node_labels})
    cluster.exporter_up("mig")
    for i in range(3):
        held = {"exported_namespace": "team", "exported_pod": f"m-{i}"} if labeled and i < 2 else {}
        mig = {"GPU_I_ID": str(i + 7), "GPU_I_PROFILE": profile.replace("_", ".")}
        cluster.device(0.3, gpu=0, node="mig", **mig, **held)
    for i in range(2):
        pod(cluster, f"m-{i}", node="mig", resource=resource)
    return cluster
