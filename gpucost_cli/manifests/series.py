"""Which series a collector keeps: what metering, advice and `doctor` ask for, and what dashboards and rules ask for.

Names and values come from the queries themselves, so that a query that asks for more is collected for.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from gpucost.core.metering.kubernetes_labels import NAMESPACE_LABELS_METRIC, POD_LABELS_METRIC
from gpucost.core.metering.signals import NEURON, SIGNALS
from gpucost.features.recommendations.sources import disruption
from gpucost.features.recommendations.sources.gpu_memory import MEMORY
from gpucost.sources.prometheus import queries
from gpucost_cli.doctor.checks.metrics import KUBE_METRICS
from gpucost_cli.doctor.labels import Needs
from gpucost_cli.doctor.queries import GPU_RESOURCES
from gpucost_cli.manifests import dashboard_metrics

_OF_PODS = (queries.REQUESTS, queries.INIT_REQUESTS)
_OF_NODES: Mapping[str, str] = {queries.ALLOCATABLE: GPU_RESOURCES, queries.CAPACITY: f"{GPU_RESOURCES}|cpu"}
"""Which resources are asked for; `cpu` tells whether a node's capacity is kept at all."""
_PHASES = "Pending|Running|Succeeded|Failed"
"""`Unknown` is asked for by nobody."""

QUOTA = "kube_resourcequota"
_OF_KARPENTER, _OF_NEURON = "karpenter_", ("neuron_", "execution_")
COUNTERS: Sequence[tuple[str, str, str]] = (
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Ratio of time the graphics engine is active."),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Ratio of cycles the tensor pipe is active."),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Ratio of cycles the device memory interface is active."),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB)."),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB)."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered."),
)
"""What dcgm-exporter is told to read: a counter that nobody keeps is not worth its profiling time."""


def of_kube_state_metrics(need: Needs, *, dashboards: bool) -> str:
    """The regular expression over `__name__;resource;phase;node` that keeps kube-state-metrics' series."""
    # A pod without a node holds nothing; advice says how long such pods wait.
    parts = [f"({'|'.join(_OF_PODS)});({GPU_RESOURCES});;.*"]
    parts += [f"{name};({resources});;.*" for name, resources in _OF_NODES.items()]
    parts.append(f"{queries.PHASE};;({_PHASES});.*")
    parts.append(f"({'|'.join(_plain_families(need))});;;.*")
    if dashboards:
        parts.append(rf"{QUOTA};(requests\.)?(nvidia\.com/.+|aws\.amazon\.com/neuron.*);;.*")
    return "|".join(parts)


def families(need: Needs, *, dashboards: bool) -> list[str]:
    """kube-state-metrics' families of which anything is kept."""
    found = {*_OF_PODS, *_OF_NODES, queries.PHASE, *_plain_families(need), *([QUOTA] if dashboards else [])}
    return sorted(found)


def of_gpus(*, dashboards: bool) -> str:
    """The regular expression over names that keeps dcgm-exporter's series."""
    shown = sorted(name for name in dashboard_metrics.metrics() if name.startswith("DCGM_") and name not in SIGNALS)
    return _any_of(dict.fromkeys([*SIGNALS, MEMORY, *(shown if dashboards else ())]))


def of_neuron(*, dashboards: bool) -> str:
    """The regular expression over names that keeps neuron-monitor's series."""
    shown = sorted(name for name in dashboard_metrics.metrics() if name.startswith(_OF_NEURON))
    return _any_of([NEURON.name, *(shown if dashboards else ())])


def of_karpenter() -> str:
    """The regular expression over names that keeps Karpenter's series: of dashboards, alerts and advice."""
    asked_of_it = {name for name in dashboard_metrics.metrics() if name.startswith(_OF_KARPENTER)}
    return _any_of(sorted(asked_of_it | {disruption.ELIGIBLE, disruption.ALLOWED}))


def _plain_families(need: Needs) -> list[str]:
    unneeded = {
        *_OF_PODS,
        *_OF_NODES,
        queries.PHASE,
        *([] if need.of_namespaces else [NAMESPACE_LABELS_METRIC]),
        *([] if need.of_pods else [POD_LABELS_METRIC]),
    }
    return [name for name in KUBE_METRICS if name not in unneeded]


def _any_of(names: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in names)
