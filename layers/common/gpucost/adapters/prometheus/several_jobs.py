"""Pods and nodes that one job reports and another, which reports the same kinds of objects, does not."""

from collections.abc import Iterable, Mapping

from gpucost.adapters.prometheus.beats import HourBeats
from gpucost.adapters.prometheus.nodes import NodeTable
from gpucost.adapters.prometheus.pods import PodTable
from gpucost.domain.hours import HOUR_MS, to_ms
from gpucost.domain.intervals import Interval
from gpucost.domain.suspicion import LASTING_MS, SUSPECT

_Told = tuple[str, frozenset[str], Interval]
"""A name, the jobs that report it, and from when to when."""


def told_by_some_jobs(nodes: NodeTable, pods: PodTable, allocation: HourBeats) -> list[str]:
    """A note for each job that reports pods or GPU nodes of which another job knows nothing.

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
    everyone = frozenset(job for _, jobs, _ in known for job in jobs)
    scrapes = _times_by_job(allocation)
    found: dict[tuple[str, str], list[str]] = {}
    for name, jobs, time in known:
        for other in everyone - jobs:
            seen = [at for at in scrapes.get(other, ()) if time.holds(at)]
            if seen and seen[-1] - seen[0] > LASTING_MS:
                found.setdefault((" and ".join(sorted(jobs)), other), []).append(name)
    return [
        f"{SUSPECT}{len(names)} GPU {what} ({min(names)} is the first) are reported by job {jobs!r} and not by job "
        f"{other!r}: name the jobs to trust in the settings, sources.kube_state_metrics of the cluster"
        for (jobs, other), names in sorted(found.items())
    ]


def _times_by_job(allocation: HourBeats) -> Mapping[str, list[int]]:
    times: dict[str, set[int]] = {}
    for who, run in allocation.scrapes.items():
        times.setdefault(who.partition("|")[0], set()).update(run.times)
    return {job: sorted(seen) for job, seen in times.items()}
