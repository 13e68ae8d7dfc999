"""Pods and nodes that one job reports and another, which reports the same kinds of objects, does not."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpucost.core.hours import HOUR_MS, to_epoch_ms
from gpucost.core.intervals import IntervalMs
from gpucost.core.metering.implausible_samples import MAX_LAG_MS, SUSPECT_PREFIX
from gpucost.sources.prometheus.scrapes import HourScrapes

if TYPE_CHECKING:
    from gpucost.sources.prometheus.nodes import NodeTable
    from gpucost.sources.prometheus.pods import PodTable

MAX_JOBS = 10
"""Jobs whose reports are compared with those of other jobs."""
_ReportedObject = tuple[str, frozenset[str], IntervalMs]
"""An object's name, the jobs that report it, and when."""


def notes_on_missing_objects(nodes: "NodeTable", pods: "PodTable", allocation: HourScrapes) -> list[str]:
    """A note for each job that reports pods or GPU nodes that a larger job does not report.

    A tenant whose own exporter is scraped can invent pods and nodes. They cannot be distinguished from those of a
    second kube-state-metrics that watches other objects, unless the settings name the trusted jobs.
    """
    if len(_scrape_times_by_job(allocation)) == 1:
        return []
    start = to_epoch_ms(allocation.hour)
    hour = IntervalMs(start, start + HOUR_MS)
    of_pods = [(pods.name_of(uid), jobs, time or hour) for uid, (jobs, time) in pods.reporting_jobs().items()]
    of_nodes = [(name, jobs, hour) for name, jobs in nodes.reporting_jobs().items()]
    return [*_notes("pods", of_pods, allocation), *_notes("nodes", of_nodes, allocation)]


def _notes(kind: str, reported: Sequence[_ReportedObject], allocation: HourScrapes) -> list[str]:
    reports = Counter(job for _, jobs, _ in reported for job in jobs)
    scrapes = _scrape_times_by_job(allocation)
    # A tenant that invents samples can also invent jobs: compare each object with the few jobs that report most.
    by_reports = sorted(reports, key=lambda job: (-reports[job], job))
    largest = [job for job in by_reports if _outlasts_lag(scrapes.get(job, []))][:MAX_JOBS]
    missing: dict[tuple[str, str], list[str]] = {}
    for name, jobs, time in reported:
        others = (other for other in largest if other not in jobs and _outlasts_lag(scrapes[other], time))
        other = next(others, None)
        if other is not None:
            missing.setdefault((" and ".join(sorted(jobs)), other), []).append(name)
    return [
        f"{SUSPECT_PREFIX}{len(names)} GPU {kind} ({min(names)} is the first) are reported by job {jobs!r} and not by "
        f"job {other!r}: name the jobs to trust in the settings, sources.kube_state_metrics of the cluster"
        for (jobs, other), names in sorted(missing.items())
    ]


def _outlasts_lag(times: Sequence[int], within: IntervalMs | None = None) -> bool:
    """Whether sorted scrape times span more than one target may lag behind another."""
    if within is not None:
        times = times[bisect_left(times, within.start) : bisect_left(times, within.end)]
    return bool(times) and times[-1] - times[0] > MAX_LAG_MS


def _scrape_times_by_job(allocation: HourScrapes) -> Mapping[str, Sequence[int]]:
    times: dict[str, set[int]] = {}
    for target, target_scrapes in allocation.scrapes.items():
        times.setdefault(target.partition("|")[0], set()).update(target_scrapes.times)
    return {job: sorted(job_times) for job, job_times in times.items()}
