"""Decides which series collectors keep: those that metering, recommendations, `doctor`, dashboards and rules query.

Names and label values come from the queries themselves, so a changed query changes what is collected.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from gpucost.core.metering.accelerators import Accelerator
from gpucost.core.metering.energy import ENERGY_COUNTER, ENERGY_COUNTERS, POWER_GAUGES
from gpucost.core.metering.fraction_schedulers import FRACTION_SCHEDULERS
from gpucost.core.metering.kubernetes_labels import POD_LABELS_METRIC
from gpucost.core.metering.signals import SIGNALS
from gpucost.features.recommendations.sources import ALLOWED_DISRUPTIONS, ELIGIBLE_NODES, GPU_MEMORY_METRICS
from gpucost.sources.prometheus import queries
from gpucost.sources.prometheus.claim_collectors import KUBE_DRA_EXPORTER
from gpucost.sources.prometheus.metrics_sources import metrics_source_of
from gpucost.sources.prometheus.node_pool_limits import KUBERNETES_GPU_RESOURCES
from gpucost_cli.doctor.checks import CHECKS
from gpucost_cli.doctor.checks.allocation_metrics import KUBE_METRICS
from gpucost_cli.doctor.checks.model import DoctorCheck
from gpucost_cli.doctor.labels import RequiredLabels
from gpucost_cli.manifests import dashboard_metrics

_POD_METRICS = (queries.REQUESTS, queries.INIT_REQUESTS)
_RESOURCES = "[^_;]+_[^_;]+_[^;]+"
"""All resources with a domain: of those that are not known, hours have a note."""
_NODE_METRICS: Mapping[str, str] = {queries.ALLOCATABLE: _RESOURCES, queries.CAPACITY: f"{_RESOURCES}|cpu"}
"""Metrics of nodes and the resources to keep. `cpu` shows whether a node's capacity is collected at all."""
_PHASES = "Pending|Running|Succeeded|Failed"
"""All phases but `Unknown`, which no query reads."""

KUBE_STATE_METRICS = "kube-state-metrics"
QUOTA = "kube_resourcequota"
_KARPENTER_PREFIX = "karpenter_"
_PINNED_EXPORTER = "2.0-4.8"
"""Signals have these `exporter_versions` if the dcgm-exporter of `cluster/versions.yaml` reports them."""
DCGM_COUNTERS: Sequence[tuple[str, str, str]] = (
    ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "gauge", "Ratio of time the graphics engine is active."),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %)."),
    ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "gauge", "Ratio of cycles the tensor pipe is active."),
    ("DCGM_FI_PROF_DRAM_ACTIVE", "gauge", "Ratio of cycles the device memory interface is active."),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Framebuffer memory used (in MiB)."),
    ("DCGM_FI_DEV_FB_FREE", "gauge", "Framebuffer memory free (in MiB)."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
    (ENERGY_COUNTER, "counter", "Total energy consumption since the driver was loaded (in mJ)."),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C)."),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered."),
)
"""Counters that dcgm-exporter reads: name, type, help. Others would cost profiling time for nothing."""


def dcgm_counters(signal: str) -> list[tuple[str, str, str]]:
    """Return the counters for dcgm-exporter, with that of the settings' utilization signal.

    The exporter does not start with a name that its version does not have.
    """
    family = SIGNALS[signal].family
    needed = next(
        candidate.name
        for candidate in SIGNALS.values()
        if candidate.family == family and candidate.exporter_versions == _PINNED_EXPORTER
    )
    if any(name == needed for name, _, _ in DCGM_COUNTERS):
        return list(DCGM_COUNTERS)
    return [(needed, "gauge", "The utilization signal of the settings."), *DCGM_COUNTERS]


def kube_state_metrics_pattern(required: RequiredLabels, *, dashboards: bool) -> str:
    """Return the regular expression over `__name__;resource;phase;node` that keeps kube-state-metrics' series."""
    # Pods without a node hold no GPU, but recommendations report how long they wait.
    parts = [f"({'|'.join(_POD_METRICS)});({_RESOURCES});;.*"]
    parts += [f"{name};({resources});;.*" for name, resources in _NODE_METRICS.items()]
    parts.append(f"{queries.PHASE};;({_PHASES});.*")
    parts.append(f"({'|'.join(_unfiltered_families(required))});;;.*")
    if dashboards:
        parts.append(rf"{QUOTA};(requests\.)?({KUBERNETES_GPU_RESOURCES});;.*")
    return "|".join(parts)


def kube_state_metrics_families(required: RequiredLabels, *, dashboards: bool) -> list[str]:
    """List the metric families of kube-state-metrics of which any series is kept."""
    families = {
        *_POD_METRICS,
        *_NODE_METRICS,
        queries.PHASE,
        *_unfiltered_families(required),
        *([QUOTA] if dashboards else []),
    }
    return sorted(families)


def dcgm_exporter_pattern(*, dashboards: bool, checks: Sequence[DoctorCheck] = CHECKS) -> str:
    """Return the regular expression over names that keeps dcgm-exporter's series, with those of doctor's checks."""
    shown = sorted(
        name for name in dashboard_metrics.queried_metrics() if name.startswith("DCGM_") and name not in SIGNALS
    )
    needed = [*SIGNALS, *GPU_MEMORY_METRICS, *ENERGY_COUNTERS, *POWER_GAUGES, *_metrics_of(checks, "DCGM_")]
    return _alternation(dict.fromkeys([*needed, *(shown if dashboards else ())]))


def accelerator_pattern(accelerator: Accelerator, *, dashboards: bool, checks: Sequence[DoctorCheck] = CHECKS) -> str:
    """Return the regular expression over names that keeps another vendor's series, with those of doctor's checks."""
    signals = [
        *(signal.name for signal in accelerator.signals),
        *accelerator.power_metrics,
        *_metrics_of(checks, accelerator.metric_prefixes),
    ]
    shown = sorted(
        name
        for name in dashboard_metrics.queried_metrics()
        if name.startswith(accelerator.metric_prefixes) and name not in signals
    )
    return _alternation(dict.fromkeys([*signals, *(shown if dashboards else ())]))


def other_patterns() -> dict[str, str]:
    """Return the regular expressions over names that keep the series of exporters of claims and fractions, by job."""
    claims = KUBE_DRA_EXPORTER
    return {
        "kube-dra-exporter": _alternation([claims.devices, claims.allocations, claims.reservations]),
        **{
            exporter.job: _alternation(
                [name for name in scheduler.metrics if metrics_source_of(name) == exporter.source]
            )
            for scheduler in FRACTION_SCHEDULERS
            for exporter in scheduler.exporters
        },
    }


def karpenter_pattern() -> str:
    """Return the regular expression over names that keeps Karpenter's series."""
    shown = {name for name in dashboard_metrics.queried_metrics() if name.startswith(_KARPENTER_PREFIX)}
    return _alternation(sorted(shown | {ELIGIBLE_NODES, ALLOWED_DISRUPTIONS}))


def inference_pattern(metrics: Iterable[str]) -> str:
    """Return the regular expression over `__name__;le` that keeps the counters and latencies of inference servers.

    Some counters are sums of histograms. The OpenTelemetry collector drops a histogram without its count, and in older
    versions without the bucket +Inf (receiver/prometheusreceiver/internal/metricfamily.go, toDistributionPoint).
    """
    names = [*metrics]
    histograms = [re.escape(name.removesuffix("_sum")) for name in names if name.endswith("_sum")]
    of_histograms = [f"({'|'.join(histograms)})_(count;|bucket;\\+Inf)"] if histograms else []
    buckets = [name for name in names if name.endswith("_bucket")]
    of_latencies = [f"({_alternation(buckets)});.*"] if buckets else []
    counters = _alternation(name for name in names if name not in buckets)
    return "|".join([f"({counters});", *of_histograms, *of_latencies])


def remote_write_pattern(patterns: Mapping[str, str], inference_metrics: Iterable[str] = ()) -> str:
    """Return the regular expression over `job;__name__;resource;phase;node` that keeps the series of several jobs.

    Args:
        patterns: of each job, as the other functions return them, over the metric's name; for kube-state-metrics over
            `__name__;resource;phase;node`.
        inference_metrics: counters of inference servers, which any job may scrape.
    """
    parts = [
        f"{job};({pattern})" if job == KUBE_STATE_METRICS else f"{job};({pattern});.*"
        for job, pattern in patterns.items()
    ]
    names = [*inference_metrics]
    jobs = "[^;]*" if names else f"({'|'.join(patterns)})"  # `up` shows that a server was scraped
    of_servers = [f"[^;]*;({_alternation(names)});.*"] if names else []
    return "|".join([*parts, *of_servers, f"{jobs};up;.*"])


def _metrics_of(checks: Iterable[DoctorCheck], prefixes: str | tuple[str, ...]) -> list[str]:
    """The metrics of one exporter that checks of `doctor` read."""
    return [metric for check in checks for metric in check.metrics if metric.startswith(prefixes)]


def _unfiltered_families(required: RequiredLabels) -> list[str]:
    unneeded = {*_POD_METRICS, *_NODE_METRICS, queries.PHASE, *([] if required.of_pods else [POD_LABELS_METRIC])}
    return [name for name in KUBE_METRICS if name not in unneeded]


def _alternation(names: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in names)
