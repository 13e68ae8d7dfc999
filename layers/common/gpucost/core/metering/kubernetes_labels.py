"""The catalog of Kubernetes labels that this product reads, with their purposes.

Metrics readers, the rendered manifests, `gpucost doctor`, the recording rules and docs/how-to/existing-cluster.md use
its label keys. kube-state-metrics exports only labels in its allow-list, so a label that is missing here would be blank
in every cluster. The settings name further labels: those of business units and `cost_labels`.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property

from msgspec import Struct

from gpucost.core.metering.gpu_models import MIG_GPUS

NODE_LABELS_METRIC = "kube_node_labels"
NAMESPACE_LABELS_METRIC = "kube_namespace_labels"
POD_LABELS_METRIC = "kube_pod_labels"

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
"""The label `true` of namespaces whose ResourceClaims may have access to devices that other claims hold."""

INTERRUPTIBLE_LABEL = "gpucost/interruptible"
"""The pod label that says whether a workload may be interrupted. It reaches the ledger if `cost_labels` lists it."""

GPU_LABEL_PREFIXES = ("label_nvidia_com_", "label_amd_com_")
"""Prefixes of the exported names of the labels of GPU feature discovery and of AMD's node labeller."""


@cache
def exported_name(key: str) -> str:
    """Return a label key as kube-state-metrics exports it: `a.io/costCenter` → `label_a_io_cost_center`."""
    snake = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"[^a-zA-Z0-9_]", "_", key))
    return f"label_{snake.lower()}"


GPU_GROUP_LABEL = exported_name("runai-gpu-group")
"""The label of pods on one GPU that KAI Scheduler divides; of several GPUs, the prefix of a label for each."""


ADMIN_NAMESPACE_LABEL = exported_name(ADMIN_ACCESS_LABEL)
"""The same label as kube-state-metrics exports it."""


def parse_whole_number(text: str) -> int:
    """Parse a label's value as a whole number; 0 if it is not a plausible one."""
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) else 0


class NodeLabel(Struct, frozen=True, dict=True):
    """An attribute of a node and the label keys that carry it; the first key with a value counts."""

    attribute: str
    keys: tuple[str, ...]
    """The keys in use today."""
    purpose: str
    """What the product uses it for."""
    effect_if_missing: str
    """The effect on attribution if the label is missing."""
    older_keys: tuple[str, ...] = ()
    """Keys of older releases and other installers, read after `keys`."""

    @property
    def all_keys(self) -> tuple[str, ...]:
        """Every key, in order of preference."""
        return self.keys + self.older_keys

    @cached_property
    def exported_names(self) -> tuple[str, ...]:
        """Every key as kube-state-metrics exports it, in order of preference."""
        return tuple(exported_name(key) for key in self.all_keys)

    def value_in(self, labels: Mapping[str, str]) -> str:
        """Return the attribute's value in exported labels, "" where no key has one."""
        for name in self.exported_names:
            if label_text := labels.get(name):
                return label_text
        return ""


INSTANCE_TYPE_LABEL = NodeLabel(
    "instance type",
    ("node.kubernetes.io/instance-type",),
    "price of the node, number of its GPUs",
    "the node's price and its physical GPUs are not known from it",
    ("beta.kubernetes.io/instance-type",),
)
ZONE_LABEL = NodeLabel(
    "zone",
    ("topology.kubernetes.io/zone",),
    "zone of each line, region of prices",
    "lines have no zone",
    ("failure-domain.beta.kubernetes.io/zone",),
)
ZONE_ID_LABEL = NodeLabel(
    "zone ID",
    ("topology.k8s.aws/zone-id",),
    "spot prices, which EC2 quotes by zone ID",
    "spot prices do not apply, and the next price source is used",
)
REGION_LABEL = NodeLabel(
    "region",
    ("topology.kubernetes.io/region",),
    "region of prices, where it is not the zone's",
    "the region of prices is not known",
    ("failure-domain.beta.kubernetes.io/region",),
)
OPERATING_SYSTEM_LABEL = NodeLabel(
    "operating system", ("kubernetes.io/os",), "prices of Windows nodes", "nodes are priced as Linux"
)
NODE_POOL_LABEL = NodeLabel(
    "node pool",
    ("karpenter.sh/nodepool", "eks.amazonaws.com/nodegroup", "sagemaker.amazonaws.com/instance-group-name"),
    "node pool of each line and node",
    "lines have no node pool",
    ("karpenter.sh/provisioner-name", "alpha.eksctl.io/nodegroup-name"),
)
CAPACITY_TYPE_LABEL = NodeLabel(
    "capacity type",
    ("karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType"),
    "spot, on-demand and reserved capacity",
    "spot and on-demand look the same",
    ("node-lifecycle", "lifecycle"),
)
RESERVATION_ID_LABEL = NodeLabel(
    "capacity reservation",
    ("karpenter.k8s.aws/capacity-reservation-id", "eks.amazonaws.com/capacity-reservation-id"),
    "prices of Capacity Blocks",
    "a Capacity Block's fee does not reach its nodes, and all of it counts as unused",
)
GPU_PRODUCT_LABEL = NodeLabel(
    "GPU model", ("nvidia.com/gpu.product",), "GPU model, MIG profile", "GPU model and MIG profile are not known"
)
GPU_COUNT_LABEL = NodeLabel(
    "GPUs",
    ("nvidia.com/gpu.count",),
    "number of GPUs, if the instance type is not in the catalog",
    "physical GPUs of such an instance type are unknown",
)
GPU_REPLICAS_LABEL = NodeLabel(
    "replicas per GPU",
    ("nvidia.com/gpu.replicas",),
    "share of a pod on a time-sliced or MPS GPU",
    "the share of a sharer is not known from it",
)
GPU_SHARING_LABEL = NodeLabel(
    "sharing strategy",
    ("nvidia.com/gpu.sharing-strategy",),
    "whether GPUs are shared",
    "pods with shared GPUs and pods with slices look the same",
)
GPU_CLIQUE_LABEL = NodeLabel(
    "NVLink domain",
    ("nvidia.com/gpu.clique",),
    "free GPUs of NVLink domains in which no whole job fits",
    "nvlink_domains of the settings has no effect on such nodes",
)
GPU_MEMORY_LABEL = NodeLabel(
    "GPU memory",
    ("nvidia.com/gpu.memory",),
    "share of a pod that requests memory of a GPU (HAMi, KAI Scheduler)",
    "the memory of the GPU model's data sheet counts, or what such a pod holds is unobserved",
)
AMD_PRODUCT_LABEL = NodeLabel(
    "AMD GPU model",
    ("amd.com/gpu.product-name",),
    "AMD GPU model",
    "the model of AMD GPUs is not known from it",
    ("beta.amd.com/gpu.product-name",),
)
AMD_PARTITION_LABEL = NodeLabel(
    "AMD partitions",
    ("amd.com/compute-memory-partition",),
    "share of an AMD partition that is named `amd.com/gpu`, if the exporter does not report it",
    "such a partition counts as a whole GPU where the exporter does not report partitions",
)

NODE_LABELS = (
    INSTANCE_TYPE_LABEL,
    ZONE_LABEL,
    ZONE_ID_LABEL,
    REGION_LABEL,
    OPERATING_SYSTEM_LABEL,
    NODE_POOL_LABEL,
    CAPACITY_TYPE_LABEL,
    RESERVATION_ID_LABEL,
    GPU_PRODUCT_LABEL,
    GPU_COUNT_LABEL,
    GPU_REPLICAS_LABEL,
    GPU_SHARING_LABEL,
    GPU_MEMORY_LABEL,
    AMD_PRODUCT_LABEL,
    AMD_PARTITION_LABEL,
)
"""The labels in the allow-list of every cluster; that of NVLink domains is only needed with `nvlink_domains`."""


@cache
def mig_replicas(profile: str) -> NodeLabel:
    """Return the label that says how many pods share a MIG slice of a profile (`1g.5gb`)."""
    return NodeLabel(
        f"replicas per {profile} slice",
        (f"nvidia.com/mig-{profile}.replicas",),
        "share of a pod on a shared MIG slice",
        "the whole slice counts for each of its pods",
    )


def all_node_labels() -> Iterator[NodeLabel]:
    """Yield every label of nodes that may be read, those of shared MIG slices included."""
    yield from NODE_LABELS
    for profile in sorted({profile for gpu in MIG_GPUS for profile in gpu.memory_slices_by_name}):
        yield mig_replicas(profile)
        if profile.startswith("1g."):
            yield mig_replicas(f"{profile}.me")  # one slice of each GPU may have the media engines
