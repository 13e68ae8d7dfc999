"""Growth of time and memory with pods, business units and hours: exponents of fitted power laws.

An exponent of 1 is linear. Processor time of this product's own process alone: Prometheus is not in it. Memory is what
the work adds to a process that has imported everything.
"""

import time
from collections.abc import Sequence
from datetime import datetime

from benchmarks.core import hour_of
from benchmarks.figures import Figure, called, exponent, peak_mib, stand_alone
from benchmarks.hour import attribute, cluster

AIM = 1.1
TRIES = 3
LEAST_MIB = 2
"""Smaller additions are lost in the memory peak of imports."""
Measured = tuple[float, float]
"""(processor seconds, MiB added)."""


def run_once(url: str, hour: str, hours: str, units: str) -> None:
    """Attribute in this process, and print its processor seconds and memory."""
    before, began = peak_mib(), time.process_time()
    attribute(url, datetime.fromisoformat(hour), int(hours), int(units))
    print(time.process_time() - began, peak_mib() - before)


def measure(url: str, hour: datetime, *, hours: int = 1, units: int = 200) -> Measured:
    """The minimum of several tries, because other work on the machine only adds."""
    tries = [
        called("benchmarks.growth:run_once", url, hour.isoformat(), str(hours), str(units)).output.split()
        for _ in range(TRIES)
    ]
    seconds, mib = (min(float(attempt[column]) for attempt in tries) for column in (0, 1))
    return seconds, mib


def core(pods: int) -> float:
    """Processor seconds of metering, splits and lines."""
    run, tries = hour_of(pods, 200), []
    for _ in range(TRIES):
        began = time.process_time()
        run()
        tries.append(time.process_time() - began)
    return min(tries)


def fitted(subject: str, points: Sequence[tuple[int, Measured]]) -> list[Figure]:
    """The figures of each size, and both exponents."""
    figures = [Figure(f"{subject} {size:,}: processor time", seconds, "s") for size, (seconds, _) in points]
    figures += [Figure(f"{subject} {size:,}: memory added", mib, "MiB") for size, (_, mib) in points]
    figures.append(
        Figure(f"{subject}: exponent of time", exponent((size, point[0]) for size, point in points), aim=AIM)
    )
    measurable = [(size, mib) for size, (_, mib) in points if mib >= LEAST_MIB]
    if len(measurable) > 1:
        figures.append(Figure(f"{subject}: exponent of memory", exponent(measurable), aim=AIM))
    return figures


def figures(quick: bool) -> list[Figure]:
    """Growth with pods (core only, and the whole hour), business units, and hours of a message."""
    pods = (100, 1_000, 4_000) if quick else (100, 1_000, 10_000, 40_000)
    core_seconds = [(size, core(size)) for size in pods]
    figures = [Figure(f"the core alone, pods {size:,}: processor time", seconds, "s") for size, seconds in core_seconds]
    figures.append(Figure("the core alone, pods: exponent of time", exponent(core_seconds), aim=AIM))
    by_pods = []
    for size in pods[:-1] if quick else pods:
        with cluster(size) as (url, hour):
            by_pods.append((size, measure(url, hour)))
    figures += fitted("whole hour, pods", by_pods)
    with cluster(500 if quick else 1_000, units=500) as (url, hour):
        figures += fitted("business units", [(units, measure(url, hour, units=units)) for units in (20, 200, 500)])
    spans = (1, 4) if quick else (1, 4, 16)
    with cluster(200 if quick else 1_000, spans[-1]) as (url, hour):
        figures += fitted("hours of a message", [(hours, measure(url, hour, hours=hours)) for hours in spans])
    return figures


if __name__ == "__main__":
    stand_alone(figures, __doc__)
