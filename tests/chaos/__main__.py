"""`make chaos`: every crash point of a day, and the fault table; ends with 1 where anything was lost or doubled."""

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
    """Try everything, print what came of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=HOURS, help="of the day whose every call is made to fail")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", "No application metrics")
    os.environ["POWERTOOLS_LOG_LEVEL"] = "CRITICAL"  # read where the logger is made, so before the product is imported
    from tests.chaos.bench import Bench
    from tests.chaos.crash import Verdict, enumerate_crashes
    from tests.chaos.faults import TABLE
    from tests.chaos.setting import running_metrics, running_parts, start

    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    crashes, others = Verdict(), Verdict()
    with (
        tempfile.TemporaryDirectory(prefix="gpucost-chaos-") as folder,
        running_parts() as endpoints,
        running_metrics(Path(folder)) as (prometheus, seen),
        Progress(*columns, console=Console(stderr=True)) as steps,
    ):
        bench = Bench(endpoints, start(), prometheus, seen, others)
        task = steps.add_task("fault table", total=len(TABLE))
        for fault in TABLE:
            steps.update(task, description=f"fault table: {fault.__name__.replace('_', ' ')}")
            fault(bench)
            steps.advance(task)
        task = steps.add_task("crash points", total=None)
        for crash_point, crashes in enumerate_crashes(endpoints, start(), range(options.hours), ("west",)):
            steps.update(task, description=f"{crashes.tried} crash points: {crash_point}")
    verdicts = (crashes, others)
    for verdict in verdicts:
        for finding in (*verdict.lost, *verdict.doubled, *verdict.unsaid, *verdict.dead):
            console.print(finding, soft_wrap=True, markup=False)
    console.print(f"faults tried    {crashes.tried + others.tried} ({crashes.tried} at single calls)")
    console.print(f"hours lost      {sum(len(verdict.lost) for verdict in verdicts)}")
    console.print(f"hours doubled   {sum(len(verdict.doubled) for verdict in verdicts)}")
    console.print(f"alerts lost     {sum(len(verdict.unsaid) for verdict in verdicts)}")
    console.print(f"dead letters    {sum(len(verdict.dead) for verdict in verdicts)}")
    sys.exit(0 if all(verdict.is_clean() for verdict in verdicts) else 1)


if __name__ == "__main__":
    main()
