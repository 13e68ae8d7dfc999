"""Fewer replicas of an inference server, where its own latency histogram shows that they would suffice.

The evidence is what replicas already did: if replicas that served as many requests in an hour as each of fewer ones
would in the busiest hour had the same p95, then fewer suffice. Nothing is extrapolated. So a server whose replicas were
always the same and equally loaded gets no recommendation.
"""

from collections.abc import Sequence
from typing import NamedTuple

from gpucost.features.recommendations.history import LookBack
from gpucost.features.recommendations.measuring import WorkloadMeasures

MIN_COMPLETE_SHARE = 0.9
"""Part of the hours with GPUs in which the latency of all pods must be known."""
MIN_POD_HOURS = 24
"""Hours of single pods that must have served the load of fewer replicas."""
P95_TOLERANCE = 1.05
"""By how much p95 may be higher and still count as the same: buckets are no finer."""


class PodHour(NamedTuple):
    """The requests of a pod in an hour, and their p95 latency in seconds."""

    requests: float
    p95: float


class FittingReplicas(NamedTuple):
    """The fewest replicas that suffice, and why."""

    replicas: int
    busiest_hour_requests: float
    requests_per_replica: float
    """In the busiest hour, with these replicas."""
    pod_hours: int
    """Hours of pods that served at least that many."""
    p95: float
    """Of all pod-hours: the mean of hourly p95, weighted by requests."""
    p95_at_load: float
    """The same of the pod-hours with at least that many requests."""


def fitting_replicas(look_back: LookBack, measures: WorkloadMeasures) -> FittingReplicas | None:
    """Find the fewest replicas that keep the p95; None if fewer are not proven to do so, or if latency is unknown."""
    history = measures.history
    complete_hours = hours_with_latency(look_back, measures)
    if not complete_hours:
        return None
    pod_hours = [pod_hour for hour in complete_hours for pod_hour in hour]
    busiest = max(sum(pod_hour.requests for pod_hour in hour) for hour in complete_hours)
    p95 = mean_p95(pod_hours)
    for replicas in range(1, max(1, round(measures.current_gpus / history.gpus_per_pod))):
        at_load = [pod_hour for pod_hour in pod_hours if pod_hour.requests >= busiest / replicas]
        if len(at_load) >= MIN_POD_HOURS and mean_p95(at_load) <= P95_TOLERANCE * p95:
            return FittingReplicas(replicas, busiest, busiest / replicas, len(at_load), p95, mean_p95(at_load))
    return None


def hours_with_latency(look_back: LookBack, measures: WorkloadMeasures) -> list[list[PodHour]]:
    """Return the pods of each hour in which the latency of all of them is known; empty if that is too few hours."""
    history = measures.history
    if not history.latencies or history.gpus_per_pod <= 0 or look_back.is_part_of_server(history.key.name):
        return []
    held = [index for index in range(measures.first_held_index, look_back.hours) if history.held_gpu_hours[index] > 0]
    complete_hours = [
        [PodHour(*latency) for latency in history.latencies[index].values()]
        for index in held
        if len(history.latencies.get(index, ())) >= history.pod_counts[index]
    ]
    return complete_hours if len(complete_hours) >= MIN_COMPLETE_SHARE * len(held) else []


def mean_p95(pod_hours: Sequence[PodHour]) -> float:
    """Return the mean of hourly p95, weighted by requests."""
    return sum(requests * p95 for requests, p95 in pod_hours) / sum(requests for requests, _ in pod_hours)
