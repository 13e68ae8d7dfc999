"""Growth of time and memory with pods, pods that take turns, business units and hours: exponents of power laws.

An exponent of 1 is linear. Processor time of this product's own process alone: Prometheus is not in it. Memory is what
the work adds to a process that has imported everything.
"""

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

from benchmarks.core import hour_of, hour_of_turns
from benchmarks.figures import Figure, called, exponent, peak_mib, stand_alone
from benchmarks.hour import attribute, cluster
from gpucost.core.hour_record import HourRecord

AIM = 1.15
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


def core(make_run: Callable[[int], Callable[[], HourRecord]], size: int) -> float:
    """Processor seconds of metering, splits and lines."""
    run, tries = make_run(size), []
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
    """Growth of the core, and of the whole hour with pods, business units, and hours of a message."""
    pods = (100, 1_000, 4_000) if quick else (100, 1_000, 10_000, 40_000)
    figures: list[Figure] = []
    for subject, make_run, sizes in (
        ("pods", partial(hour_of, units=200), pods),
        ("pods that take turns on a node", partial(hour_of_turns, units=20), (64, 256, 1_024)),
        ("pods that take turns by claim", partial(hour_of_turns, units=20, by_claim=True), (64, 256, 1_024)),
        ("pods, with a shared unit", partial(hour_of, units=20, shared=1), (100, 1_000, 4_000)),
        ("business units by pod label", lambda units: hour_of(1_000, units, by_label=True), (20, 200, 500)),
    ):
        core_seconds = [(size, core(make_run, size)) for size in sizes]
        figures += [
            Figure(f"the core alone, {subject} {size:,}: processor time", seconds, "s")
            for size, seconds in core_seconds
        ]
        figures.append(Figure(f"the core alone, {subject}: exponent of time", exponent(core_seconds), aim=AIM))
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
