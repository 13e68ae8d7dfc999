"""A day of exports: rows, bytes, seconds and memory by cluster size, with amounts random to the last digit.

`python -m benchmarks.export [PODS]` (10,000 where not given). Reading the ledger is not in it (see benchmarks.ledger).
"""

import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from benchmarks.figures import Figure
from gpucost.core.amounts import SCALE, CapacityCosts, Costs, Totals, to_fixed_point
from gpucost.core.hour_record import Coverage, HourRecord, Line, NodeHour
from gpucost.core.ledger import Manifest
from gpucost.features.exports.exported_days import HourRows
from gpucost.features.exports.files import DuckDbFiles
from gpucost.features.exports.focus import focus_rows

DAY = datetime(2026, 11, 19, tzinfo=UTC)
PER_NODE = 8
ZONE = "eu-central-1a"


def hours(pods: int) -> Iterator[HourRows]:
    """24 hours of pods that run all day, eight on a node with nine GPUs."""
    source = random.Random(7)
    uids = [str(UUID(int=source.getrandbits(128))) for _ in range(pods)]
    for number in range(24):
        hour = DAY + timedelta(hours=number)
        lines, nodes = [], []
        for first in range(0, pods, PER_NODE):
            price = Decimal(source.randrange(10**12, 9 * 10**12)).scaleb(-12)
            name = f"ip-10-{first >> 16}-{first >> 8 & 255}-{first & 255}.eu-central-1.compute.internal"
            used = [Decimal(source.randrange(10**12)).scaleb(-12) for _ in uids[first : first + PER_NODE]]
            lines += [_line(first + i, uids[first + i], name, price, part) for i, part in enumerate(used)]
            capacity = CapacityCosts(
                capacity_gpu_hours=(PER_NODE + 1) * SCALE,
                unallocated_gpu_hours=SCALE,
                node_cost_usd=to_fixed_point(price * (PER_NODE + 1)),
                unallocated_usd=to_fixed_point(price),
            )
            nodes.append(
                NodeHour(
                    name,
                    f"aws:///{ZONE}/i-{first:017x}",
                    "train",
                    "p5.48xlarge",
                    "spot",
                    ZONE,
                    "H100",
                    "spot",
                    "gpu-bears-all",
                    None,
                    0,
                    capacity,
                )
            )
        totals = Totals(
            Costs.total(line.costs() for line in lines), CapacityCosts.total(node.capacity for node in nodes)
        )
        coverage = Coverage(Decimal(1), Decimal(1))
        manifest = Manifest("c", hour, "complete", 1, "1-a", 1, coverage, 0, None, DAY)
        record = HourRecord("c", hour, "complete", coverage, totals, tuple(lines), nodes=tuple(nodes))
        yield HourRows(focus_rows(manifest, record, "123456789012"))


def _line(number: int, uid: str, node: str, price: Decimal, used: Decimal) -> Line:
    allocated, effective = to_fixed_point(price), to_fixed_point(price * used)
    return Line(
        business_unit=f"unit-{number % 200}",
        namespace=f"ns-{number % 400}",
        workload_kind="Deployment",
        workload=f"job-{number % 700}",
        pod=f"job-{number % 700}-{uid[:10]}-{uid[-5:]}",
        uid=uid,
        node=node,
        node_pool="train",
        instance_type="p5.48xlarge",
        capacity_type="spot",
        zone=ZONE,
        gpu_model="H100",
        resource="nvidia.com/gpu",
        units=1,
        gpu_share=Decimal(1),
        gpu_share_source="capacity",
        labels={"team": "x"},
        split_policy="gpu-bears-all",
        allocated_gpu_hours=SCALE,
        effective_gpu_hours=to_fixed_point(used),
        utilization=used,
        utilization_source="pod",
        unmeasured_gpu_hours=0,
        gpu_hourly_usd=price,
        price_source="spot",
        allocated_usd=allocated,
        effective_usd=effective,
        waste_usd=allocated - effective,
        unmeasured_usd=0,
    )


def measure(pods: int) -> tuple[int, list[float], float, float, float]:
    """Write a day: rows, megabytes of both files, seconds of computing and writing, peak MiB."""
    began = time.process_time()
    for rows in hours(pods):
        sum(1 for _ in rows.costs)
    making = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        began = time.process_time()
        files = DuckDbFiles()(hours(pods), Path(folder))
        seconds = time.process_time() - began - making
        megabytes = [path.stat().st_size / 1e6 for path in (files.parquet_path, files.csv_path)]
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return files.row_count, megabytes, making, seconds, memory


def figures(quick: bool) -> list[Figure]:
    """Figures of a day."""
    pods = 1_000 if quick else 10_000
    rows, (parquet, csv), making, writing, memory = measure(pods)
    subject = f"a day of {pods:,} pods exported"
    return [
        Figure(f"{subject}: rows", rows),
        Figure(f"{subject}: Parquet", parquet, "MB"),
        Figure(f"{subject}: gzipped CSV", csv, "MB"),
        Figure(f"{subject}: processor time, ÷ making the rows", making + writing, "s", making),
        Figure(f"{subject}: peak memory", memory, "MiB"),
    ]


def main(pods: int) -> None:
    """Write a day and print its figures."""
    rows, megabytes, making, seconds, memory = measure(pods)
    print(f"{pods:,} pods: {rows:,} rows, {megabytes[0]:.1f} MB of Parquet, {megabytes[1]:.1f} MB of gzipped CSV")
    print(f"making rows {making:.0f} s, writing {seconds:.0f} s of one core; {memory:.0f} MB of memory at most")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
