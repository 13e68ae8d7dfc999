"""`make chaos`: every crash point of a day, and the fault table. Exits with 1 if anything is lost or doubled."""

import argparse
import os
import sys
import tempfile
import warnings
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

HOURS = 24


def main() -> None:
    """Try all faults and print the findings."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--hours", type=int, default=HOURS, help="number of hours of the day in which every call fails once"
    )
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "No application metrics")
    os.environ["POWERTOOLS_LOG_LEVEL"] = "CRITICAL"  # the product reads it when it is imported
    from tests.chaos.bench import Bench
    from tests.chaos.crash import FaultReport, enumerate_crashes
    from tests.chaos.faults import TABLE
    from tests.chaos.services import first_hour, running_metrics, running_services

    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    crashes, others = FaultReport(), FaultReport()
    with (
        tempfile.TemporaryDirectory(prefix="gpucost-chaos-") as folder,
        running_services() as endpoints,
        running_metrics(Path(folder)) as (prometheus, sampled_hour),
        Progress(*columns, console=Console(stderr=True)) as steps,
    ):
        bench = Bench(endpoints, first_hour(), prometheus, sampled_hour, others)
        task = steps.add_task("fault table", total=len(TABLE))
        for fault in TABLE:
            steps.update(task, description=f"fault table: {fault.__name__.replace('_', ' ')}")
            fault(bench)
            steps.advance(task)
        task = steps.add_task("crash points", total=None)
        for crash_point, crashes in enumerate_crashes(endpoints, first_hour(), range(options.hours), ("west",)):
            steps.update(task, description=f"{crashes.tried} crash points: {crash_point}")
    reports = (crashes, others)
    for report in reports:
        for finding in (*report.lost, *report.doubled, *report.missing_messages, *report.dead):
            console.print(finding, soft_wrap=True, markup=False)
    console.print(f"faults tried    {crashes.tried + others.tried} ({crashes.tried} at single calls)")
    console.print(f"hours lost      {sum(len(report.lost) for report in reports)}")
    console.print(f"hours doubled   {sum(len(report.doubled) for report in reports)}")
    console.print(f"alerts lost     {sum(len(report.missing_messages) for report in reports)}")
    console.print(f"dead letters    {sum(len(report.dead) for report in reports)}")
    sys.exit(0 if all(report.is_clean() for report in reports) else 1)


if __name__ == "__main__":
    main()
