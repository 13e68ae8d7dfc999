"""The jobs from which each source's series come, and whether the settings name the trusted ones."""

from collections.abc import Iterable, Mapping, Sequence

from gpucost.core.metering.accelerators import ACCELERATOR_SIGNALS
from gpucost.core.metering.signals import SIGNALS
from gpucost.features.recommendations.sources import GPU_MEMORY_METRICS
from gpucost.sources.prometheus.claim_collectors import KUBE_DRA_EXPORTER
from gpucost.sources.prometheus.queries import CAPACITY, NODE_INFO, quote
from gpucost_cli.doctor.checks.gpu_fractions import VGPU_METRIC_NAMES
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault, doctor_check
from gpucost_cli.doctor.facts import REQUESTS

JOB_METRICS: Sequence[str] = (
    REQUESTS,
    NODE_INFO,
    CAPACITY,
    "kube_pod_labels",
    "kube_namespace_labels",
    *SIGNALS,
    *GPU_MEMORY_METRICS,
    *(signal.name for signal in ACCELERATOR_SIGNALS),
    KUBE_DRA_EXPORTER.devices,
    *VGPU_METRIC_NAMES,
    "karpenter_nodepools_limit",
    "karpenter_nodepool_limit",
)
"""Metrics from which the jobs of all sources are read."""


@doctor_check(
    "the cluster and its exporters",
    """
jobs of … | the source's series come from several jobs, which the finding lists: anyone whose exporter is scraped can report false pods, requests and utilization. The finding also appears if the settings name a job without series | `sources: {kube_state_metrics: {job: …}}` for the cluster, one job or a list ([which series are trusted](../how-to/existing-cluster.md#which-series-are-trusted))
""",  # noqa: E501 - one line for each row
)
def check_jobs(context: CheckContext) -> Iterable[Check]:
    """Check each source that has series, and list its jobs."""
    for metrics_source, by_job in sorted(context.facts.jobs.items()):
        trusted: Mapping[str, Sequence[str]] | None = getattr(context.cluster.sources, metrics_source)
        trusted_jobs = set(trusted.get("job", by_job)) if trusted else set(by_job)
        listed = ", ".join(f"{job or 'none'} ({count} series)" for job, count in sorted(by_job.items()))
        fault, note, count = None, None, sum(by_job[job] for job in by_job if job in trusted_jobs)
        if trusted is None and len(by_job) > 1:
            largest = max(sorted(by_job), key=lambda job: by_job[job])
            fault = Fault(
                f"series of {metrics_source} come from {len(by_job)} jobs: {listed}. Anyone whose exporter is scraped "
                "can report false pods, requests and utilization",
                _settings_line_to_change(context, metrics_source, largest),
            )
        elif not trusted_jobs & set(by_job):
            fault = Fault(
                f"sources.{metrics_source} in the settings has job {', '.join(sorted(trusted_jobs))}; the jobs with "
                f"series are {listed}",
                _settings_line_to_change(context, metrics_source, min(by_job)),
            )
        elif set(by_job) - trusted_jobs:
            note = f"ignored because of the settings: job {', '.join(sorted(set(by_job) - trusted_jobs))}"
        name, metric = f"jobs of {metrics_source.replace('_', '-')}", f"job: {', '.join(sorted(by_job))}"
        yield context.check(name, metric, "recommended", fault, note=note, series=count)


def _settings_line_to_change(context: CheckContext, metrics_source: str, job: str) -> str:
    setting = f"sources: {{{metrics_source}: {{job: {quote(job)}}}}}, or a list of jobs"
    return f"settings, cluster {context.cluster.name}: {setting}"
