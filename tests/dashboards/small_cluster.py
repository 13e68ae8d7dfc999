"""A cluster in promtool's notation, small enough to know every figure by hand.

| node | GPUs | what runs there |
| --- | --- | --- |
| mig-1 | 1 H100 in seven slices named nvidia.com/gpu | bu-a/a: a slice, busy 0.6, deleted at minute 10 |
| whole-1 | 4 A10G | research-x/train: two GPUs, busy 0.5 and 0.9; lone/idle: one, pulls its image until minute 5, then 0.02; done/job: finished, still exported and labelled; waiting/later: not scheduled |
| shared-1 | 1 A10G in four replicas | bu-a/s1 and lone/s2: a replica each of a GPU busy 0.3 |
| mixed-1 | 1 A100 40 GB in 3g+2g+1g+1g, of an instance type that is in no table | research-y/big: the 3g, without a utilization metric |
| empty-1 | 1 H100 in three 2g.20gb | no pod; a seventh of the GPU is stranded |
| gone-1 | an interrupted spot node | render/r: its pod is still listed |
| plain-1 | none | |

kube-state-metrics runs with two replicas, so each of its series exists twice.
"""  # noqa: E501 - a table

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gpucost.settings_document import parse_settings
from gpucost_cli.rules import documents
from tests.dashboards.promtool import series

MINUTES = 14
UNITS = "business_units: [{name: research, namespaces: [bu-a, 'research-*']}]\n"
SETTINGS = (
    "clusters: [{name: c, prometheus: {url: 'http://127.0.0.1:9'}, selector: {cluster: c}}]\n"
    "pricing: {source: constant, gpu_hourly_usd: 12}\n"
)
A100 = "NVIDIA-A100-SXM4-40GB"
Series = dict[str, str]


def all_series() -> list[Series]:
    return [*kube_state_metrics(), *dcgm_exporter()]


def kube_state_metrics() -> Iterator[Series]:
    for instance in ("ksm-a", "ksm-b"):
        target_labels = {"cluster": "c", "job": "kube-state-metrics", "instance": instance}
        for metric, labels, values in (*_nodes(), *_pods()):
            yield series(metric, {**labels, **target_labels}, values)


def _nodes() -> Iterator[tuple[str, Series, str]]:
    always = f"1x{MINUTES}"
    for node, pool, kind, product, units in (
        ("mig-1", "mig", "p5.4xlarge", "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", {"gpu": 7}),
        ("whole-1", "whole", "g5.12xlarge", "NVIDIA-A10G", {"gpu": 4}),
        ("shared-1", "shared", "g5.xlarge", "NVIDIA-A10G-SHARED", {"gpu": 4}),
        ("mixed-1", "mixed", "x9.metal", A100, {"mig_3g_20gb": 1, "mig_2g_10gb": 1, "mig_1g_5gb": 2}),
        ("empty-1", "empty", "p5.4xlarge", "NVIDIA-H100-80GB-HBM3", {"mig_2g_20gb": 3}),
        ("plain-1", "general", "m7i.large", "", {}),
    ):
        node_labels = {"label_karpenter_sh_nodepool": pool, "label_node_kubernetes_io_instance_type": kind}
        node_labels |= {"label_nvidia_com_gpu_product": product} if product else {}
        yield "kube_node_labels", {"node": node, **node_labels}, always
        yield "kube_node_info", {"node": node}, always
        for resource, count in units.items():
            for metric in ("capacity", "allocatable"):
                labels = {"node": node, "resource": f"nvidia_com_{resource}", "unit": "integer"}
                # One GPU of whole-1 is not healthy from minute 10 on.
                healthy = f"4x9 3x{MINUTES}" if (node, metric) == ("whole-1", "allocatable") else f"{count}x{MINUTES}"
                yield f"kube_node_status_{metric}", labels, healthy


def _pods() -> Iterator[tuple[str, Series, str]]:
    always = f"1x{MINUTES}"
    for namespace, pod, node, resource, units, phases in (
        ("bu-a", "a", "mig-1", "gpu", "1x9 stale", {"Running": "1x9 stale"}),
        ("research-x", "train", "whole-1", "gpu", f"2x{MINUTES}", {"Running": always}),
        ("lone", "idle", "whole-1", "gpu", always, {"Pending": f"1x4 0x{MINUTES}", "Running": f"0x4 1x{MINUTES}"}),
        ("done", "job", "whole-1", "gpu", always, {"Succeeded": always, "Running": f"0x{MINUTES}"}),
        ("waiting", "later", "", "gpu", always, {"Pending": always}),
        ("bu-a", "s1", "shared-1", "gpu", always, {"Running": always}),
        ("lone", "s2", "shared-1", "gpu", always, {"Running": always}),
        ("research-y", "big", "mixed-1", "mig_3g_20gb", always, {"Running": always}),
        ("render", "r", "gone-1", "gpu", always, {"Running": always}),
    ):
        pod_labels = {"namespace": namespace, "pod": pod, "uid": f"uid-{pod}"}
        labels = {"container": "main", "node": node, "resource": f"nvidia_com_{resource}", "unit": "integer"}
        yield "kube_pod_container_resource_requests", {**pod_labels, **labels}, units
        for phase, values in phases.items():
            yield "kube_pod_status_phase", {**pod_labels, "phase": phase}, values


def dcgm_exporter() -> Iterator[Series]:
    for node, gpu, labels, values in (
        ("mig-1", 0, {"GPU_I_ID": "7", **_workload("bu-a", "a")}, "0.6x9 stale"),
        ("mig-1", 0, {"GPU_I_ID": "8"}, f"0x{MINUTES}"),
        ("whole-1", 0, _workload("research-x", "train"), f"0.5x{MINUTES}"),
        ("whole-1", 1, _workload("research-x", "train"), f"0.9x{MINUTES}"),
        ("whole-1", 2, _workload("lone", "idle"), f"0.02x{MINUTES}"),
        ("whole-1", 3, _workload("done", "job"), f"0.7x{MINUTES}"),
        ("shared-1", 0, {"vgpu": "0", **_workload("bu-a", "s1")}, f"0.3x{MINUTES}"),
        ("shared-1", 0, {"vgpu": "1", **_workload("lone", "s2")}, f"0.3x{MINUTES}"),
        ("mixed-1", 0, {"GPU_I_ID": "1"}, f"0x{MINUTES}"),
    ):
        target_labels = {
            "cluster": "c",
            "job": "dcgm-exporter",
            "instance": f"{node}:9400",
            "Hostname": node,
            "gpu": str(gpu),
            "UUID": f"GPU-{node}-{gpu}",
            "namespace": "gpu-operator",
            "pod": "dcgm-exporter",
        }
        yield series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", {**target_labels, **labels}, values)


def _workload(namespace: str, pod: str) -> Series:
    return {"exported_namespace": namespace, "exported_pod": pod}


NOW = datetime(2026, 11, 20, tzinfo=UTC)


def groups(text: str = SETTINGS + UNITS, *, alerts: bool = False) -> Sequence[Mapping[str, Any]]:
    settings = parse_settings(text)
    more = documents.alerting_groups(include_template=True) if alerts else ()
    return [*documents.recording_groups(settings, settings.clusters, NOW), *more]


def of(**labels: str) -> dict[str, str]:
    return {"cluster": "c", **labels}


def small(pods: Mapping[str, str], resource: str = "nvidia_com_gpu", **node_labels: str) -> list[dict[str, str]]:
    """Return series of pods with one unit each, on nodes with eight GPUs."""
    target_labels = {"cluster": "c", "job": "kube-state-metrics"}
    cluster_series = []
    for pod, node in pods.items():
        labels = {"namespace": "ns", "pod": pod, "uid": pod, **target_labels}
        unit = {"resource": resource, "unit": "integer", "node": node}
        cluster_series += [
            series("kube_pod_container_resource_requests", {**labels, **unit, "container": "x"}, "1x10"),
            series("kube_pod_status_phase", {**labels, "phase": "Running"}, "1x10"),
            series("kube_node_info", {"node": node, **target_labels}, "1x10"),
            series("kube_node_labels", {"node": node, **node_labels, **target_labels}, "1x10"),
            series("kube_node_status_capacity", {**unit, **target_labels}, "8x10"),
            series("kube_node_status_allocatable", {**unit, **target_labels}, "8x10"),
        ]
    return cluster_series
