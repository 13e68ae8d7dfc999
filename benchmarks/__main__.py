"""`make bench`: runs every part in a separate process and prints a report (`python -m benchmarks --help`)."""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.figures import Figure, as_json, table

PARTS = (
    "hour",
    "inference",
    "opencost",
    "end_to_end",
    "restatement",
    "ledger",
    "reports",
    "alerts",
    "export",
    "recommendations",
    "cold_start",
    "sizes",
    "growth",
    "aws_cost",
    "page",
)
_RUN_PART = (
    "import json, sys; from importlib import import_module; from pathlib import Path;"
    "from benchmarks.figures import as_json;"
    "found = import_module('benchmarks.' + sys.argv[1]).figures(sys.argv[2] == 'quick');"
    "Path(sys.argv[3]).write_text(json.dumps(as_json(found)))"
)


def run_part(name: str, *, quick: bool, log: Path) -> tuple[list[Figure], dict[str, Any]]:
    """A part's figures, and its seconds, the machine's load before and after, and any error."""
    before, began = os.getloadavg()[0], time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, log.open("a") as file:
        answer = Path(folder) / "figures.json"
        command = [sys.executable, "-c", _RUN_PART, name, "quick" if quick else "full", str(answer)]
        done = subprocess.run(command, stdout=file, stderr=file, check=False)
        measured = json.loads(answer.read_text()) if done.returncode == 0 else []
    names = Figure.__dataclass_fields__
    figures = [Figure(**{key: value for key, value in fields.items() if key in names}) for fields in measured]
    went = {
        "seconds": time.perf_counter() - began,
        "load": [before, os.getloadavg()[0]],
        "failed": done.returncode != 0,
    }
    return figures, went


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit with 1 if a part failed. A missed aim is reported, but is no failure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="this part; may be given several times")
    parser.add_argument(
        "--quick", action="store_true", help="small sizes: some minutes; for a look, not for the record"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    log = Path(tempfile.mkdtemp()) / "benchmarks.log"
    figures_by_part: dict[str, list[Figure]] = {}
    parts: dict[str, Any] = {}
    for name in options.only or PARTS:
        with console.status(name):
            figures_by_part[name], parts[name] = run_part(name, quick=options.quick, log=log)
        if parts[name]["failed"]:
            console.print(f"{name} failed; what it said: {log}")
    Console(width=None if sys.stdout.isatty() else 120).print(table(figures_by_part))
    machine = {"processors": os.cpu_count(), "architecture": platform.machine(), "python": platform.python_version()}
    outcomes = [figure.is_met() for figures in figures_by_part.values() for figure in figures if figure.aim is not None]
    print(
        f"{sum(map(bool, outcomes))} of {len(outcomes)} aims met; {machine['processors']} processors, "
        f"load {' to '.join(f'{load:.1f}' for load in _loads(parts))}, Python {machine['python']}"
    )
    if options.json:
        report = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "quick": options.quick,
            "machine": machine,
            "parts": {name: {**parts[name], "figures": as_json(figures)} for name, figures in figures_by_part.items()},
        }
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    return int(any(part["failed"] for part in parts.values()))


def _loads(parts: dict[str, Any]) -> tuple[float, float]:
    loads = [load for part in parts.values() for load in part["load"]]
    return min(loads), max(loads)


if __name__ == "__main__":
    sys.exit(main())
