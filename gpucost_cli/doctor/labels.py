"""The Kubernetes labels that the settings need, and the flag of kube-state-metrics that exports them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpucost.core.metering.kubernetes_labels import (
    ADMIN_ACCESS_LABEL,
    GPU_CLIQUE_LABEL,
    NAMESPACE_LABELS_METRIC,
    POD_LABELS_METRIC,
    NodeLabel,
)
from gpucost.settings import CoreSettings


@dataclass(frozen=True, slots=True)
class RequiredLabels:
    """Labels that the settings need."""

    of_namespaces: tuple[str, ...]
    of_pods: tuple[str, ...]
    of_nodes: tuple[NodeLabel, ...] = ()
    """In addition to those that every cluster needs."""

    def by_metric(self) -> Mapping[str, tuple[str, ...]]:
        """The labels, by the metric that carries them."""
        return {NAMESPACE_LABELS_METRIC: self.of_namespaces, POD_LABELS_METRIC: self.of_pods}


def required_labels(settings: CoreSettings) -> RequiredLabels:
    """Return the labels that business units and `cost_labels` name, and that of NVLink domains."""
    units = settings.business_units
    return RequiredLabels(
        _sorted_without_duplicates(key for unit in units for key in unit.namespace_labels),
        _sorted_without_duplicates([*(key for unit in units for key in unit.pod_labels), *settings.cost_labels]),
        (GPU_CLIQUE_LABEL,) if settings.nvlink_domains else (),
    )


def allow_lists(required: RequiredLabels, node_labels: Iterable[NodeLabel]) -> list[str]:
    """Return kube-state-metrics' allow-lists of labels, one for each kind of object."""
    keys = {
        "nodes": [key for label in node_labels for key in label.all_keys],
        "namespaces": [*required.of_namespaces, ADMIN_ACCESS_LABEL],
        "pods": required.of_pods,
    }
    return [f"{kind}=[{','.join(names)}]" for kind, names in keys.items() if names]


def allow_list_flag(required: RequiredLabels, node_labels: Iterable[NodeLabel]) -> str:
    """Return the command line flag that exports these labels and no others."""
    return f"--metric-labels-allowlist={','.join(allow_lists(required, node_labels))}"


def _sorted_without_duplicates(keys: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(keys)))
