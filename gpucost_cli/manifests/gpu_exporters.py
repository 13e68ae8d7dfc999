"""The releases of dcgm-exporter, one for each kind of GPU node pool, and the node labels that separate the kinds.

No mode of dcgm-exporter suits all kinds: with `KUBERNETES_VIRTUAL_GPUS` it does not report claims, and without, it
labels a shared GPU with only one of its pods (4.5.3-4.8.2, internal/pkg/transformation/kubernetes.go, `Process`). The
affinities exclude each other, so every GPU node has exactly one exporter.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

_SHARED = {"operator": "In", "values": ["time-slicing", "mps"]}
"""Values of GPU feature discovery's label `sharing-strategy` (k8s-device-plugin v0.20.0, internal/lm/resource.go)."""
_DRA = {
    # Documented by NVIDIA: the node selector of the driver's kubelet plugin, if its own chart installs it.
    "nvidia.com/dra-kubelet-plugin": ["true"],
    # Written by the GPU Operator to GPU nodes of a cluster with a GPUCluster (v26.7.0, controllers/state_manager.go).
    # The second value pauses the plugin; no other exporter may start meanwhile.
    "nvidia.com/gpu.deploy.dra-driver": ["true", "paused-for-driver-upgrade"],
}
"""Labels of nodes on which NVIDIA's DRA driver runs, with their values."""
_HAS_GPUS = {"key": "nvidia.com/gpu.present", "operator": "In", "values": ["true"]}
"""Written by GPU feature discovery and by the GPU Operator."""
_NOT_PAUSED = {
    "key": "nvidia.com/gpu.deploy.dcgm-exporter",
    "operator": "NotIn",
    "values": ["paused-for-driver-upgrade", "paused-for-mig-change"],
}
"""Before the GPU Operator unloads a driver, or MIG Manager changes a GPU's mode, they pause exporters by this label."""


class GpuExporter(NamedTuple):
    """A release of the chart dcgm-exporter."""

    pools: str
    """The kind of node pools: `plain` (whole GPUs and MIG slices), `shared` (time-slicing and MPS) or `dra`."""
    namespace: str
    """Each release needs a namespace of its own, because the chart's Role and ConfigMap have fixed names."""

    @property
    def release(self) -> str:
        """The name of the Helm release."""
        return "dcgm-exporter" if self.pools == "plain" else f"dcgm-exporter-{self.pools}"

    @property
    def values_file(self) -> str:
        """The rendered file with its values."""
        return f"helm/{self.release}.yaml"


PLAIN_EXPORTER = GpuExporter("plain", "gpu-operator")
SHARED_EXPORTER = GpuExporter("shared", "dcgm-exporter-shared")
DRA_EXPORTER = GpuExporter("dra", "dcgm-exporter-dra")
GPU_EXPORTERS = (PLAIN_EXPORTER, SHARED_EXPORTER, DRA_EXPORTER)
OPERATOR_VALUES_FILE = "helm/gpu-operator-exporter.yaml"
"""The values that switch off the GPU Operator's exporter, which runs in one mode on all nodes."""


def node_selector_terms(pools: str, shared_mig_profiles: Sequence[str]) -> list[dict[str, list[dict[str, Any]]]]:
    """Return the node selector terms of an exporter. A node that fits any of them gets a pod.

    Args:
        pools: the kind of node pools.
        shared_mig_profiles: profiles (`1g.5gb`) whose slices are time-sliced. A node whose GPUs are not shared as a
            whole has no other label that says so.
    """
    if pools == "dra":
        return [_term({"key": key, "operator": "In", "values": ["true"]}) for key in _DRA]
    without_claims = [{"key": key, "operator": "NotIn", "values": values} for key, values in _DRA.items()]
    resources = ["nvidia.com/gpu", *(f"nvidia.com/mig-{profile}" for profile in shared_mig_profiles)]
    shared = [{"key": f"{resource}.sharing-strategy", **_SHARED} for resource in resources]
    if pools == "plain":
        return [_term(_HAS_GPUS, *without_claims, *({**label, "operator": "NotIn"} for label in shared))]
    return [_term(_HAS_GPUS, *without_claims, label) for label in shared]


def _term(*expressions: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    return {"matchExpressions": [*expressions, _NOT_PAUSED]}
