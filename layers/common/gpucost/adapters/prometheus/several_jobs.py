"""Pods and nodes that one job reports and another, which reports the same kinds of objects, does not."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from gpucost.adapters.prometheus.beats import HourBeats
from gpucost.adapters.prometheus.nodes import NodeTable
from gpucost.adapters.prometheus.pods import PodTable
from gpucost.domain.hours import HOUR_MS, to_ms
from gpucost.domain.intervals import Interval
from gpucost.domain.suspicion import LASTING_MS, SUSPECT

MOST_JOBS = 10
"""Jobs against whose reports others' objects are held."""
_Told = tuple[str, frozenset[str], Interval]
"""A name, the jobs that report it, and from when to when."""


def told_by_some_jobs(nodes: NodeTable, pods: PodTable, allocation: HourBeats) -> list[str]:
    """A note for each job that reports pods or GPU nodes of which a larger job knows nothing.

    A tenant whose own exporter is scraped can make up pods and nodes; nothing tells them from those of a second
    kube-state-metrics that watches other objects, until the settings name the jobs to read.
    """
    if len(_times_by_job(allocation)) == 1:
        return []
    start = to_ms(allocation.hour)
    hour = Interval(start, start + HOUR_MS)
    of_pods = [(pods.name_of(uid), jobs, time or hour) for uid, (jobs, time) in pods.jobs().items()]
    of_nodes = [(name, jobs, hour) for name, jobs in nodes.jobs().items()]
    return [*_notes("pods", of_pods, allocation), *_notes("nodes", of_nodes, allocation)]


def _notes(what: str, told: Iterable[_Told], allocation: HourBeats) -> list[str]:
    known = list(told)
    reports = Counter(job for _, jobs, _ in known for job in jobs)
    scrapes = _times_by_job(allocation)
    # Whoever makes up samples makes up jobs, too: each object is held against the few that report most.
    by_reports = sorted(reports, key=lambda job: (-reports[job], job))
    largest = [job for job in by_reports if _lasts(scrapes.get(job, []))][:MOST_JOBS]
    found: dict[tuple[str, str], list[str]] = {}
    for name, jobs, time in known:
        others = (other for other in largest if other not in jobs and _lasts(scrapes[other], time))
        other = next(others, None)
        if other is not None:
            found.setdefault((" and ".join(sorted(jobs)), other), []).append(name)
    return [
        f"{SUSPECT}{len(names)} GPU {what} ({min(names)} is the first) are reported by job {jobs!r} and not by job "
        f"{other!r}: name the jobs to trust in the settings, sources.kube_state_metrics of the cluster"
        for (jobs, other), names in sorted(found.items())
    ]


def _lasts(times: Sequence[int], within: Interval | None = None) -> bool:
    """Whether scrapes, in order, span more than a lag."""
    if within is not None:
        times = times[bisect_left(times, within.start) : bisect_left(times, within.end)]
    return bool(times) and times[-1] - times[0] > LASTING_MS


def _times_by_job(allocation: HourBeats) -> Mapping[str, Sequence[int]]:
    times: dict[str, set[int]] = {}
    for who, run in allocation.scrapes.items():
        times.setdefault(who.partition("|")[0], set()).update(run.times)
    return {job: sorted(seen) for job, seen in times.items()}
