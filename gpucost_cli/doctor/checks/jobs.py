"""Which jobs the series of each source come from, and whether the settings say which of them to trust."""

from collections.abc import Iterable, Mapping, Sequence

from gpucost.core.metering.signals import NEURON, SIGNALS
from gpucost.features.recommendations.sources.gpu_memory import MEMORY
from gpucost.sources.prometheus.queries import CAPACITY, NODE_INFO, quote
from gpucost_cli.doctor.checks.model import Check, CheckContext, Fault
from gpucost_cli.doctor.facts import REQUESTS

JOB_METRICS: Sequence[str] = (
    REQUESTS, NODE_INFO, CAPACITY, "kube_pod_labels", "kube_namespace_labels", *SIGNALS, MEMORY, NEURON.name,
    "karpenter_nodepools_limit", "karpenter_nodepool_limit",
)  # fmt: skip
"""Metrics by which sources and their jobs are known."""


def jobs(context: CheckContext) -> Iterable[Check]:
    """One check for each source that has series; it lists the jobs."""
    for source, by_job in sorted(context.facts.jobs.items()):
        trusted: Mapping[str, Sequence[str]] | None = getattr(context.cluster.sources, source)
        named = set(trusted.get("job", by_job)) if trusted else set(by_job)
        listed = ", ".join(f"{job or 'none'} ({count} series)" for job, count in sorted(by_job.items()))
        fault, note, count = None, None, sum(by_job[job] for job in by_job if job in named)
        if trusted is None and len(by_job) > 1:
            usual = max(sorted(by_job), key=lambda job: by_job[job])
            fault = Fault(
                f"series of {source} come from {len(by_job)} jobs: {listed}. Whoever can have an exporter scraped can "
                "make up pods, requests and use",
                _line(context, source, usual),
            )
        elif not named & set(by_job):
            fault = Fault(
                f"sources.{source} of the settings names job {', '.join(sorted(named))}; the jobs with series are: "
                f"{listed}",
                _line(context, source, min(by_job)),
            )
        elif set(by_job) - named:
            note = f"left out, as the settings say: job {', '.join(sorted(set(by_job) - named))}"
        name, metric = f"jobs of {source.replace('_', '-')}", f"job: {', '.join(sorted(by_job))}"
        yield context.check(name, metric, "recommended", fault, note=note, series=count)


def _line(context: CheckContext, source: str, job: str) -> str:
    return f"settings, cluster {context.cluster.name}: sources: {{{source}: {{job: {quote(job)}}}}}, or a list of jobs"
