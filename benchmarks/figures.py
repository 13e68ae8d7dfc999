"""Figures of a benchmark, each with the floor measured in the same run and its aim."""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import log
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

Part = Callable[[bool], list["Figure"]]
"""A module's `figures(quick)`, which measures, with small sizes if quick."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure.

    Where there is a floor, the aim is for the ratio to it, else for the value.
    """

    name: str
    value: float
    unit: str = ""
    floor: float | None = None
    """The floor, in the unit of the value."""
    aim: float | None = None
    """The largest value, or ratio if there is a floor, that is aimed at."""

    @property
    def ratio(self) -> float | None:
        """The ratio to the floor."""
        return self.value / self.floor if self.floor else None

    def is_met(self) -> bool | None:
        """Whether the aim is met. None without an aim."""
        if self.aim is None:
            return None
        return (self.value if self.ratio is None else self.ratio) <= self.aim


def in_turns(ours: Callable[[], object], floor: Callable[[], object], rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of both functions, in turns, so that changes of the machine's speed affect both."""
    took: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        for seconds, run in zip(took, (ours, floor), strict=True):
            began = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - began)
    return took


def against(name: str, ours: Sequence[float], floor: Sequence[float], aim: float | None, unit: str = "s") -> Figure:
    """A figure from measurements in turns: the median, and the median of the turns' ratios."""
    value = median(ours)
    ratio = median(seconds / bare for seconds, bare in zip(ours, floor, strict=True))
    return Figure(name, value, unit, value / ratio, aim)


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Resources that a separate process used."""

    seconds: float
    processor_seconds: float
    output: str
    peak_mib: float = 0.0
    """Peak resident memory, known for processes of `called`."""


def run_process(command: Sequence[str], environment: Mapping[str, str] | None = None) -> ResourceUsage:
    """Run a command to its end.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        output = process.stdout.read() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command), output)
    return ResourceUsage(seconds, used.ru_utime + used.ru_stime, output)


def peak_mib() -> float:
    """The peak resident memory of this process.

    Not `ru_maxrss`, in which a process begins with the peak of the one that started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def called(function: str, *arguments: str) -> ResourceUsage:
    """Call `module:function` with text arguments in a separate process."""
    module, _, name = function.partition(":")
    code = f"import sys; from {module} import {name}; {name}(*sys.argv[1:])"
    code += "; from benchmarks.figures import peak_mib; print(); print(peak_mib())"
    usage = run_process([sys.executable, "-c", code, *arguments])
    output, _, peak = usage.output.rstrip("\n").rpartition("\n")
    return replace(usage, output=output, peak_mib=float(peak))


def exponent(points: Iterable[tuple[float, float]]) -> float:
    """`k` of the fitted power law `size ** k`: least squares on the logarithms."""
    logs = [(log(size), log(measured)) for size, measured in points]
    middle_x, middle_y = (sum(column) / len(logs) for column in zip(*logs, strict=True))
    covered = sum((x - middle_x) ** 2 for x, _ in logs)
    return float(sum((x - middle_x) * (y - middle_y) for x, y in logs) / covered)


def table(rows: Mapping[str, Sequence[Figure]]) -> Table:
    """A table of figures of several parts."""
    printed = Table("figure", "value", "floor", "ratio", "aim", "")
    for column in printed.columns[1:5]:
        column.justify = "right"
    for part, figures in rows.items():
        printed.add_row(f"[bold]{part}")
        for figure in figures:
            floor = "" if figure.floor is None else _number(figure.floor)
            ratio = "" if figure.ratio is None else f"{figure.ratio:.2f}"
            aim = "" if figure.aim is None else f"≤ {figure.aim:,g}"
            outcome = {None: "", True: "met", False: "[red]missed"}[figure.is_met()]
            printed.add_row(
                f"  {figure.name}", f"{_number(figure.value)} {figure.unit}".strip(), floor, ratio, aim, outcome
            )
        printed.add_section()
    return printed


def _number(value: float) -> str:
    if value == int(value):
        return f"{value:,.0f}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.3g}"


def as_json(figures: Iterable[Figure]) -> list[dict[str, object]]:
    """Figures in the format of `--json`."""
    return [{**asdict(figure), "ratio": figure.ratio, "is_met": figure.is_met()} for figure in figures]


def stand_alone(part: Part, description: str | None) -> None:
    """`python -m benchmarks.X [--quick] [--json FILE]`."""
    name = Path(sys.argv[0]).stem
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    options = parser.parse_args()
    figures = part(options.quick)
    Console().print(table({name: figures}))
    if options.json:
        options.json.write_text(json.dumps(as_json(figures), indent=2))
