"""Runs the tests of `make test` under set clocks (`make nightly ONLY=clocks`), or other arguments of pytest.

A small library, built here by the system's C compiler, shifts the wall clock of pytest and of every process that it
starts, so all of them agree: Python, Java, Node and Chromium. Programs in Go (Prometheus, Alertmanager) read the
kernel's clock past it, so tests of what they scrape do so, too (`tests/kernel_clock.py`). libfaketime is no choice:
the version of Debian 12 and Ubuntu 24.04 makes Python's `time.sleep` or `Event.wait` fail.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "scripts" / "clock.c"
LIBRARY = ROOT / ".tools" / "clocks" / "clock.so"
PYTEST = (sys.executable, "-m", "pytest")


def main(arguments: Sequence[str]) -> int:
    """Run the tests once under each clock; return the exit status."""
    if sys.platform != "linux":
        print("clocks: only Linux can shift the clock of a process; use a container", file=sys.stderr)
        return 2
    build()
    failed = []
    for name, start in clocks(datetime.now(UTC)):
        print(f"clocks: {name}, {start:%A %Y-%m-%d %H:%M:%S} UTC", flush=True)
        done = subprocess.run([*PYTEST, *arguments], cwd=ROOT, env=environment(start), check=False)
        if done.returncode:
            failed.append(name)
    print(f"clocks: {', '.join(failed)} failed" if failed else "clocks: all passed")
    return int(bool(failed))


def clocks(now: datetime) -> Iterator[tuple[str, datetime]]:
    """The set clocks: two in the past, and one so far ahead that what tests write as a date is long ago."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    days = [midnight + timedelta(days=number) for number in range(-7, 200)]
    yield "before midnight", midnight - timedelta(seconds=30)
    ordinary = [day for day in days if day < midnight and day.weekday() < 5 and 1 < day.day < 28]
    yield "early on an ordinary day", ordinary[-1] + timedelta(hours=5, minutes=30)
    a_31st = next(day for day in days if day > midnight + timedelta(days=100) and day.day == 31)
    yield "a 31st in some months", a_31st + timedelta(hours=14, minutes=10)


def build() -> None:
    """Build the library if its source is newer."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise SystemExit("clocks: cc is missing. Install it, for example: apt-get install gcc libc6-dev")
    if not LIBRARY.exists() or LIBRARY.stat().st_mtime < SOURCE.stat().st_mtime:
        LIBRARY.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-O2", "-Wall", "-shared", "-fPIC", "-o", LIBRARY, SOURCE], check=True)


def environment(start: datetime) -> dict[str, str]:
    """The variables of a process whose clock shows a time now."""
    offset = round((start - datetime.now(UTC)).total_seconds())
    return {**os.environ, "LD_PRELOAD": str(LIBRARY), "CLOCK_OFFSET": str(offset)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]))
