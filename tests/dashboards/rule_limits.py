"""What recording rules count otherwise than the ledger, and can be computed: cases in docs/how-to/grafana.md."""

from collections.abc import Sequence
from dataclasses import replace

from gpucost_devstack.fleet.scenario import Geometry, Node, Pod, Scenario

COUNTED_OTHERWISE = (
    "utilization from the source `process`",
    "NeuronCores, AMD GPUs, Gaudi, Intel GPUs",
    "MIG devices of DRA claims",
    "GPUs of DRA claims that only a collector reports",
    "fractions of GPUs (HAMi)",
    "fractions of GPUs (KAI Scheduler)",
)


def as_counted_by_rules(scenario: Scenario) -> Scenario:
    """The cluster whose true figures are what the rules count according to the documentation.

    Use of a shared GPU is divided by replicas, vGPUs are equal parts of a GPU, and use without labels is unmeasured.
    """
    nodes = {id(node): _with_equal_vgpus(node) for node in scenario.nodes}
    unmeasured = {pod.name: "none" for pod in scenario.pods if not _is_use_known(pod)}
    return replace(
        scenario,
        nodes=list(nodes.values()),
        pods=[replace(pod, node=nodes[id(pod.node)]) if pod.node is not None else pod for pod in scenario.pods],
        sources=[source for source in scenario.sources if source != "process"],
        utilization_source_by_pod={**scenario.utilization_source_by_pod, **unmeasured},
    )


def pods_unknown_to_rules(scenario: Scenario) -> set[str]:
    """Pods with fractions, whose GPUs the reservations hold, and with claims for devices that no exporter labels."""
    exporter = scenario.dcgm
    return {
        pod.name
        for pod in scenario.pods
        if _has_fraction(pod)
        or (pod.claims and (exporter is None or not exporter.labels_claims))
        or (exporter is not None and not exporter.labels_partitions and _claims_created_partitions(pod))
    }


def _with_equal_vgpus(node: Node) -> Node:
    return replace(node, geometries=[replace(geometry, vgpus_per_gpu=0) for geometry in node.geometries])


def _is_use_known(pod: Pod) -> bool:
    is_vgpu = any(geometry.vgpus_per_gpu for geometry in _geometries(pod))
    is_nvidia = pod.node is not None and pod.node.vendor == "nvidia"
    return is_nvidia and not is_vgpu and not _has_fraction(pod) and not (pod.claims and _has_partition(pod))


def _has_fraction(pod: Pod) -> bool:
    return bool(pod.groups) and not pod.reserves


def _claims_created_partitions(pod: Pod) -> bool:
    return _has_partition(pod) and any(geometry.is_dynamic for geometry in _geometries(pod))


def _has_partition(pod: Pod) -> bool:
    return any(geometry.devices[index].profile for geometry in _geometries(pod) for index in pod.devices)


def _geometries(pod: Pod) -> Sequence[Geometry]:
    return () if pod.node is None else pod.node.geometries
