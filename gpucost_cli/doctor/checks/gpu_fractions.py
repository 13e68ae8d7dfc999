"""Checks of fractions of GPUs: what their schedulers report, and the labels and annotations of KAI Scheduler."""

from collections.abc import Iterable

from gpucost.core.metering.fraction_schedulers import FRACTION_SCHEDULERS, VGPU_METRICS, VGPU_SIGNALS
from gpucost.core.metering.kubernetes_labels import POD_LABELS_METRIC
from gpucost.sources.prometheus.queries import GROUP_LABEL_MATCHER, POD_ANNOTATIONS, union
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, doctor_check, first_few
from gpucost_cli.doctor.facts import Facts
from gpucost_cli.doctor.queries import DoctorQueries

VGPU_METRIC_NAMES = (*VGPU_METRICS["allocated"], *(signal.name for signal in VGPU_SIGNALS))
SHARER_LABELS, SHARER_ANNOTATIONS = "kube_pod_labels runai-gpu-group", "kube_pod_annotations gpu-fraction"
"""Series with the labels and annotations of pods on GPUs that KAI Scheduler reserves."""


def _count_vgpu_metrics(queries: DoctorQueries, facts: Facts) -> str:
    return queries.device_counts(VGPU_METRIC_NAMES) if facts.nodes_with_vgpus else ""


def _count_sharers(queries: DoctorQueries, facts: Facts) -> str:
    """Number of pods with the labels and annotations by which KAI Scheduler divides GPUs, by statistic."""
    if not facts.reservations:
        return ""
    annotations = " or ".join(
        queries.select(POD_ANNOTATIONS, f'annotation_{name}!=""') for name in ("gpu_fraction", "gpu_memory")
    )
    return union(
        {
            SHARER_LABELS: f"count({queries.select(POD_LABELS_METRIC, GROUP_LABEL_MATCHER)})",
            SHARER_ANNOTATIONS: f"count({annotations})",
        }
    )


@doctor_check(
    "the GPU exporter",
    """
HAMi scheduler | pods request cores or memory of GPUs, and no metric says which GPU each pod is on: their use is unmeasured on nodes with several GPUs | scrape the Service `hami-scheduler`, port `monitor`
HAMi vGPU monitor | the use of these pods is not measured by container; the use of each GPU is divided among its pods | scrape the Service `hami-device-plugin-monitor`, port `monitorport`
""",  # noqa: E501 - one line for each row
    query=_count_vgpu_metrics,
)
def check_vgpus(context: CheckContext) -> Iterable[Check]:
    """Check whether a scheduler says on which GPU each pod is, and how much of it the pod uses."""
    facts = context.facts
    for scheduler in FRACTION_SCHEDULERS:
        nodes_of_scheduler = facts.nodes_by_scheduler.get(scheduler.name)
        if not nodes_of_scheduler:
            continue
        nodes = first_few(nodes_of_scheduler)
        use = [signal.name for signal in scheduler.use]
        scrape_allocations, scrape_use = scheduler.how_to_scrape
        fault = None
        if not facts.has_series_of_any(*scheduler.allocated, *use):
            fault = Fault(
                f"pods request fractions of GPUs ({nodes}), and no metric says which GPUs they are on: on nodes with "
                "several GPUs, their use is unmeasured",
                scrape_allocations,
            )
        allocated = scheduler.allocated
        yield context.check(
            f"{scheduler.name} scheduler", allocated[0], "recommended", fault, series=_count(context, allocated)
        )
        fault = None
        if not facts.has_series_of_any(*use):
            fault = Fault(
                f"the use of fractions of GPUs ({nodes}) is not measured by container: the use of each GPU is divided "
                "among its pods",
                scrape_use,
            )
        yield context.check(f"{scheduler.name} vGPU monitor", use[0], "optional", fault, series=_count(context, use))


@doctor_check(
    "the GPU exporter",
    """
shared GPUs: runai-gpu-group, gpu-fraction | GPUs are reserved for pods that share them (KAI Scheduler), and no label says which pods these are, or no annotation what they get: what they hold is unobserved | kube-state-metrics' allow-lists of labels and annotations
""",  # noqa: E501 - one line for each row
    query=_count_sharers,
)
def check_reservations(context: CheckContext) -> Iterable[Check]:
    """Check whether the labels and annotations of pods on GPUs that KAI Scheduler reserves are exported."""
    facts = context.facts
    if not facts.reservations:
        return
    count = f"{len(facts.reservations)} GPUs are reserved for pods that share them"
    for name, finding, flag in (
        (SHARER_LABELS, "which pods these are", "--metric-labels-allowlist=pods=[runai-gpu-group]"),
        (
            SHARER_ANNOTATIONS,
            "what each of them gets",
            "--metric-annotations-allowlist=pods=[gpu-fraction,gpu-memory,gpu-fraction-num-devices]",
        ),
    ):
        fault = None
        if not facts.has_series_of_any(name):
            fault = Fault(
                f"{count}, and no series says {finding}: what they hold is unobserved",
                f"kube-state-metrics: {flag}, in addition to what the flag has now; and keep {name.split()[0]}",
            )
        yield context.check(
            f"shared GPUs: {name.split()[1]}", name.split()[0], "recommended", fault, series=facts.series.get(name, 0)
        )


def _count(context: CheckContext, metrics: Iterable[str]) -> int:
    return sum(context.facts.series.get(metric, 0) for metric in metrics)
