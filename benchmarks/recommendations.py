"""A review of 30 days: seconds and memory for a number of workloads.

`python -m benchmarks.recommendations [WORKLOADS] [PODS_PER_WORKLOAD]` (default 1,000 and 2). Lines are packed as the
ledger stores them, and unpacked as it reads them, hour by hour. The table's time is excluded: 1,440 queries, 8 seconds
at 5 ms each.
"""

import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal

from benchmarks.figures import Figure
from gpucost.core.amounts import SCALE, CapacityCosts, to_fixed_point
from gpucost.core.hour_record import Line, NodeHour
from gpucost.core.hours import HOUR
from gpucost.features.recommendations.history import LookBack, PodWait, ReservedPrice, SpotPrice
from gpucost.features.recommendations.review import review_cluster
from gpucost.storage.hour_items import line_items, read_compact_lines
from gpucost.storage.table import Item

START = datetime(2026, 11, 1, tzinfo=UTC)
HOURS = 720
GPUS = 8
MODEL = "NVIDIA H100 80GB HBM3"
DISTINCT_HOURS = 4
"""Number of different hours, which the others repeat."""


def stored(workloads: int, pods: int) -> list[list[Item]]:
    """Some hours in the ledger's stored format."""
    chance = random.Random(3)
    busy = [chance.choice((0.0, 0.05, 0.2, 0.33, 0.5, 0.97)) for _ in range(workloads)]
    packed = []
    for _ in range(DISTINCT_HOURS):
        lines = []
        for number in range(workloads):
            for pod in range(pods):
                use = Decimal(f"{busy[number] * chance.uniform(0.9, 1):.12f}")
                lines.append(_line(number, pod, pods, use))
        units: dict[str, list[Line]] = {}
        for line in lines:
            units.setdefault(line.business_unit, []).append(line)
        packed.append(
            [item for unit, unit_lines in units.items() for item in line_items("pk", f"1-a#{unit}", unit_lines, 2**31)]
        )
    return packed


def _line(number: int, pod: int, pods: int, use: Decimal) -> Line:
    pod_number = number * pods + pod
    return Line(
        business_unit=f"unit-{number % 100}",
        namespace=f"ns-{number % 200}",
        workload_kind="Deployment",
        workload=f"serve-{number}",
        pod=f"serve-{number}-{pod}",
        uid=f"{pod_number:036x}",
        node=f"node-{pod_number // GPUS}",
        node_pool=f"pool-{pod_number // GPUS % 5}",
        instance_type="p5.48xlarge",
        capacity_type="on-demand",
        zone="a",
        gpu_model=MODEL,
        resource="nvidia.com/gpu",
        units=1,
        gpu_share=Decimal(1),
        gpu_share_source="whole",
        labels={"team": "x"},
        split_policy="gpu-bears-all",
        allocated_gpu_hours=SCALE,
        effective_gpu_hours=to_fixed_point(use),
        utilization=use,
        utilization_source="pod",
        unmeasured_gpu_hours=0,
        gpu_hourly_usd=Decimal(5),
        price_source="on-demand",
        allocated_usd=5 * SCALE,
        effective_usd=to_fixed_point(5 * use),
        waste_usd=to_fixed_point(5 - 5 * use),
        unmeasured_usd=0,
    )


def nodes(count: int) -> Iterator[NodeHour]:
    """The nodes of an hour, one in ten of them empty."""
    for number in range(count + count // 10):
        capacity = CapacityCosts(capacity_gpu_hours=GPUS * SCALE, node_cost_usd=40 * SCALE)
        yield NodeHour(
            f"node-{number}",
            f"i-{number}",
            f"pool-{number % 5}",
            "p5.48xlarge",
            "on-demand",
            "a",
            MODEL,
            "on-demand",
            "gpu-bears-all",
            None,
            0,
            capacity,
        )


def peaks(workloads: int, pods: int) -> dict[datetime, dict[tuple[str, str], float]]:
    """Every pod's, on every day: from one to seventy GiB."""
    day = {
        (f"ns-{number % 200}", f"serve-{number}-{pod}"): float((1 + number % 70) * 2**30)
        for number in range(workloads)
        for pod in range(pods)
    }
    return {START + HOUR * hour: day for hour in range(0, HOURS, 24)}


def waits(workloads: int) -> dict[datetime, list[PodWait]]:
    """One pod waits on each day for every five workloads, for half an hour to some hours."""
    return {
        START + HOUR * hour: [
            PodWait(
                f"ns-{n % 200}",
                f"job-{hour}-{n}",
                f"u-{hour}-{n}",
                "nvidia.com/gpu",
                1 + n % 4,
                tuple((hour, 0.5) for hour in range(n % 20, n % 20 + 1 + n % 4)),
            )
            for n in range(workloads // 5)
        ]
        for hour in range(0, HOURS, 24)
    }


def measure(workloads: int, pods: int) -> tuple[Counter[str], float, float, float, float]:
    """Review: recommendations by kind, seconds of reading and of recommending, peak and initial MiB."""
    hours = stored(workloads, pods)
    there = list(nodes(workloads * pods // GPUS))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    began = time.process_time()
    look_back = LookBack("demo", START, HOURS)
    look_back.memory_peaks.update(peaks(workloads, pods))
    look_back.add_waits(waits(workloads))
    look_back.spot_prices["p5.48xlarge"] = SpotPrice(20.0, 15.0, 30.0)
    look_back.reserved_prices["p5.48xlarge"] = ReservedPrice(25.0, "p5.*")
    for number in range(HOURS):
        look_back.add_hour(START + HOUR * number, read_compact_lines(hours[number % DISTINCT_HOURS]), there, "USD")
    reading = time.process_time() - began
    review = review_cluster(look_back, START, {})
    thinking = time.process_time() - began - reading
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Counter(recommendation.kind for recommendation in review.recommendations), reading, thinking, memory, before


def figures(quick: bool) -> list[Figure]:
    """Figures of a review."""
    workloads = 20 if quick else 1_000
    _, reading, thinking, memory, _ = measure(workloads, 2)
    subject = f"30 days of {workloads:,} workloads reviewed"
    return [
        Figure(f"{subject}: processor time, ÷ reading the lines", reading + thinking, "s", reading),
        Figure(f"{subject}: processor time", reading + thinking, "s", aim=60),
        Figure(f"{subject}: peak memory", memory, "MiB", aim=512),
    ]


def main(workloads: int, pods: int) -> None:
    """Run a review and print its figures."""
    kinds, reading, thinking, peak, before = measure(workloads, pods)
    lines = workloads * pods * HOURS
    summary = ", ".join(f"{kinds[kind]} {kind}" for kind in sorted(kinds))
    print(f"{workloads:,} workloads, {lines:,} pod-hours over {HOURS // 24} days: {summary}")
    print(
        f"reading {reading:.1f} s, recommending {thinking:.1f} s of one core; "
        f"{peak:.0f} MB at most ({before:.0f} before)"
    )


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:3]) if len(sys.argv) > 1 else (1_000, 2))
