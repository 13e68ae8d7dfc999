"""Peak memory and processor time of each function's main work at 10,000 pods, compared with its memory size.

Lambda gives a function processors by its memory: one at 1,769 MB, and in proportion below (AWS's developer guide,
"Configure Lambda function memory"). Work of one thread therefore costs the same at every size up to there: half the
memory takes twice the time. Waiting costs by size, and above 1,769 MB one thread gets no faster. So the least size that
holds the peak with a fifth to spare costs least; a larger one up to 1,769 MB buys time, and is right where people wait.
"""

import os
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from benchmarks import large_ledger
from benchmarks.end_to_end import BenchmarkSystem, metrics
from benchmarks.figures import Figure, ResourceUsage, called, stand_alone
from gpucost.core.hours import DAY, HOUR, floor_hour
from gpucost_devstack.aws import local_client
from gpucost_devstack.dynamodb_local import create_table, running_dynamodb
from gpucost_devstack.template import transformed_template

FULL_PROCESSOR_MB = 1_769
STEP, SPARE = 128, 1.25


def attribute(dynamodb: str, prometheus: str, hour: str) -> None:
    """An hour from Prometheus into the ledger."""
    start = datetime.fromisoformat(hour)
    BenchmarkSystem(local_client("dynamodb", dynamodb), prometheus).attribute(start, start + HOUR)


def report(dynamodb: str, start: str, days: str) -> None:
    """The largest report, from a cold start."""
    from benchmarks import reports
    from functions.api.app import PAGE_FOLDER, handler
    from gpucost.api.app import build_app
    from gpucost.container import Container

    client = local_client("dynamodb", dynamodb)
    app = build_app(Container(client=lambda _service: client).api_services, PAGE_FOLDER)
    request = reports.reports(datetime.fromisoformat(start), int(days))[0]
    answer = handler(reports._event(request), reports._Context(), app=app)  # type: ignore[arg-type]
    if answer["statusCode"] != 200:
        sys.exit(f"{request.path} answered {answer['statusCode']}")


def alert() -> None:
    """Ticks and hours of 500 business units, in a process that fills the table first, which adds to them."""
    from benchmarks import alerts

    alerts.measure()


def export(pods: str) -> None:
    """A day of FOCUS rows."""
    from benchmarks import export as exporting

    exporting.measure(int(pods))


def recommend(workloads: str) -> None:
    """A review of 30 days, two pods each."""
    from benchmarks import recommendations

    recommendations.measure(int(workloads), 2)


def measured(pods: int) -> Iterator[tuple[str, str, ResourceUsage]]:
    """(function, workload, used resources)."""
    start = floor_hour(datetime.now(UTC) - timedelta(minutes=10)) - HOUR
    days = 35
    with running_dynamodb() as dynamodb:
        with metrics(pods, start, start + HOUR) as url:
            did = f"an hour of {pods:,} pods"
            yield "AttributeFunction", did, called("benchmarks.sizes:attribute", dynamodb, url, start.isoformat())
        client: Any = local_client("dynamodb", dynamodb)
        os.environ |= {"GPUCOST_TABLE": "ledger", "POWERTOOLS_LOG_LEVEL": "CRITICAL"}
        create_table(client, "ledger")
        from benchmarks.reports import push_settings

        push_settings(client, 3)
        midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - (days + 1) * DAY
        for number in range(3):
            large_ledger.fill(client, "ledger", f"cluster-{number}", midnight, days, seed=number)
        arguments = (dynamodb, midnight.isoformat(), str(days))
        yield "ApiFunction", "35 days of 200 units in 3 clusters", called("benchmarks.sizes:report", *arguments)
    yield "AlertFunction", "ticks and hours of 500 units", called("benchmarks.sizes:alert")
    yield "ExportFunction", f"a day of {pods:,} pods", called("benchmarks.sizes:export", str(pods))
    workloads = pods // 10
    yield "RecommendFunction", f"{workloads:,} workloads", called("benchmarks.sizes:recommend", str(workloads))


def least(peak_mib: float) -> int:
    """The memory size with the lowest cost, in MB."""
    return max(STEP, -(-int(peak_mib * SPARE) // STEP) * STEP)


def figures(quick: bool) -> list[Figure]:
    """Figures of each function whose work grows with the fleet."""
    resources, figures = transformed_template()["Resources"], []
    for name, workload, usage in measured(1_000 if quick else 10_000):
        size = resources[name]["Properties"]["MemorySize"]
        subject = f"{name}, {workload}"
        figures.append(Figure(f"{subject}: peak memory, ÷ its size", usage.peak_mib, "MiB", size, 1 / SPARE))
        figures.append(Figure(f"{subject}: size that costs least", least(usage.peak_mib), "MB"))
        if name == "AlertFunction":
            continue  # its time includes filling the table
        slowed = max(1.0, FULL_PROCESSOR_MB / size)
        most = resources[name]["Properties"]["Timeout"] / 2
        figures.append(
            Figure(f"{subject}: processor time at its size", usage.processor_seconds * slowed, "s", aim=most)
        )
    return figures


if __name__ == "__main__":
    stand_alone(figures, __doc__)
