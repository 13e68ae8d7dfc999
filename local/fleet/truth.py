"""The truth about a scenario, computed from it alone: no series is read, no code is shared with `gpucost`."""

from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction

from local.fleet.scenario import Pod, Scenario

HOUR = timedelta(hours=1)


def seconds(start: datetime, end: datetime, hour: datetime) -> Fraction:
    """Seconds of `[start, end)` in an hour."""
    overlap = min(end, hour + HOUR) - max(start, hour)
    return Fraction(max(0, round(overlap.total_seconds())))


def allocated(pod: Pod, hour: datetime) -> Fraction:
    """Physical GPU-hours that a pod held in an hour."""
    start, end = max(pod.start, pod.node.start), min(pod.stops, pod.node.end)
    return pod.gpus * seconds(start, end, hour) / 3600


def effective(pod: Pod, hour: datetime) -> Fraction:
    """Physical GPU-hours that a pod used in an hour."""
    start, end = max(pod.running, pod.node.start), min(pod.stops, pod.node.end)
    return pod.gpus * Fraction(pod.use(hour)) * seconds(start, end, hour) / 3600


def capacity(scenario: Scenario, hour: datetime) -> Fraction:
    """Physical GPU-hours that the nodes had in an hour."""
    lives = (Fraction(node.gpus) * seconds(node.start, node.end, hour) for node in scenario.nodes)
    return sum(lives, Fraction(0)) / 3600


def by_namespace(
    scenario: Scenario, hours: list[datetime], gpu_hourly_usd: Decimal
) -> dict[str, tuple[Fraction, Fraction]]:
    """(allocated, effective) USD per namespace over some hours."""
    found: dict[str, tuple[Fraction, Fraction]] = {}
    for pod in scenario.pods:
        held, used = found.get(pod.namespace, (Fraction(0), Fraction(0)))
        held += sum((allocated(pod, hour) for hour in hours), Fraction(0)) * Fraction(gpu_hourly_usd)
        used += sum((effective(pod, hour) for hour in hours), Fraction(0)) * Fraction(gpu_hourly_usd)
        found[pod.namespace] = (held, used)
    return {namespace: figures for namespace, figures in sorted(found.items()) if figures[0]}
