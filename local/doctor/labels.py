"""Kubernetes labels that attribution reads, as kube-state-metrics exports them, and the flag that lets them through."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpucost.settings import Settings

NAMESPACE_LABELS, POD_LABELS = "kube_namespace_labels", "kube_pod_labels"


@dataclass(frozen=True, slots=True)
class NodeLabel:
    """A fact about nodes, and the labels that tell it; the first that a node has counts."""

    fact: str
    keys: tuple[str, ...]
    """As Kubernetes writes them."""
    lost: str
    """What attribution cannot do without."""


INSTANCE_TYPE = NodeLabel(
    "instance type",
    ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
    "the node's price and its physical GPUs are not known from it",
)
ZONE = NodeLabel(
    "zone",
    ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone"),
    "lines have no zone, and spot prices cannot be told by zone",
)
NODE_POOL = NodeLabel(
    "node pool",
    (
        "karpenter.sh/nodepool",
        "eks.amazonaws.com/nodegroup",
        "karpenter.sh/provisioner-name",
        "alpha.eksctl.io/nodegroup-name",
    ),
    "lines have no node pool",
)
CAPACITY_TYPE = NodeLabel(
    "capacity type",
    ("karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType", "node-lifecycle", "lifecycle"),
    "spot cannot be told from on-demand",
)
PRODUCT = NodeLabel("GPU model", ("nvidia.com/gpu.product",), "GPU model and MIG profile are not known")
COUNT = NodeLabel("GPUs", ("nvidia.com/gpu.count",), "physical GPUs of a type that no table has are not known")
REPLICAS = NodeLabel("replicas per GPU", ("nvidia.com/gpu.replicas",), "the share of a sharer is not known from it")
SHARING = NodeLabel("sharing strategy", ("nvidia.com/gpu.sharing-strategy",), "sharers cannot be told from slices")
MIG_STRATEGY = NodeLabel("MIG strategy", ("nvidia.com/mig.strategy",), "slices named nvidia.com/gpu look like GPUs")
NODE_LABELS = (
    INSTANCE_TYPE, ZONE, NODE_POOL, CAPACITY_TYPE, PRODUCT, COUNT, REPLICAS, SHARING, MIG_STRATEGY,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Needs:
    """Labels of namespaces and pods that the settings ask for."""

    of_namespaces: tuple[str, ...]
    of_pods: tuple[str, ...]

    def by_metric(self) -> Mapping[str, tuple[str, ...]]:
        """The labels, by the metric that carries them."""
        return {NAMESPACE_LABELS: self.of_namespaces, POD_LABELS: self.of_pods}


def needs(settings: Settings) -> Needs:
    """What business units and `cost_labels` are told by."""
    units = settings.business_units
    return Needs(
        _distinct(key for unit in units for key in unit.namespace_labels),
        _distinct([*(key for unit in units for key in unit.pod_labels), *settings.cost_labels]),
    )


def exported(key: str) -> str:
    """A Kubernetes label as kube-state-metrics names it: `app.kubernetes.io/team` → `label_app_kubernetes_io_team`."""
    snake = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", re.sub(r"[^a-zA-Z0-9_]", "_", key))
    return f"label_{snake.lower()}"


def current_keys(label: NodeLabel) -> list[str]:
    """A fact's labels without those that Kubernetes or Karpenter have given up."""
    return [key for key in label.keys if not _is_outdated(key)]


def allow_list(need: Needs) -> str:
    """kube-state-metrics' flag that exports every label that attribution reads, and no other."""
    nodes = [key for label in NODE_LABELS for key in current_keys(label)]
    parts = [f"nodes=[{','.join(nodes)}]"]
    if need.of_namespaces:
        parts.append(f"namespaces=[{','.join(need.of_namespaces)}]")
    if need.of_pods:
        parts.append(f"pods=[{','.join(need.of_pods)}]")
    return f"--metric-labels-allowlist={','.join(parts)}"


def _is_outdated(key: str) -> bool:
    return "beta.kubernetes.io" in key or key in {
        "karpenter.sh/provisioner-name",
        "alpha.eksctl.io/nodegroup-name",
        "lifecycle",
        "node-lifecycle",
    }


def _distinct(keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(keys)))
