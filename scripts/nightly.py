"""Runs everything that takes too long for each change (`make nightly`), one part after the other.

A part that fails does not stop the others. The workflow `nightly` runs each part on a machine of its own.
"""

import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = ("pytest", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder")
CASES = tuple(
    f"tests/{name}"
    for name in ("contract", "core", "features", "functions", "pipeline", "reports", "sources", "storage")
)
"""Folders with random cases, and with tables that are in SQLite in the other runs."""
TODAY = datetime.now(UTC).toordinal()
PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "marked": ((*PYTEST, "--ring", "nightly"),),
    "cases": ((*PYTEST, "--all-cases", *CASES),),
    "clocks": (("scripts.clocks",),),
    "orders": ((*PYTEST, "--order", f"{TODAY}1"), (*PYTEST, "--order", f"{TODAY}2")),
    "golden": (("tests.golden", "check"),),
    "faults": (("tests.faults",),),
    "mutants": (("tests.mutation",),),
    "compat": (("scripts.compat",),),
    "chaos": (("tests.chaos",),),
    "contract": (("tests.contract",),),
}
"""Python modules with their arguments. Each day has other orders; the runs print them."""


def main(wanted: Sequence[str]) -> int:
    """Run some parts, or all; return the exit status."""
    if unknown := set(wanted) - PARTS.keys():
        print(f"nightly: there is no part {min(unknown)!r}. Parts: {', '.join(PARTS)}.", file=sys.stderr)
        return 2
    failed = [name for name in wanted or PARTS if not run(name)]
    print(f"nightly: {', '.join(failed)} failed" if failed else "nightly: all passed")
    return int(bool(failed))


def run(name: str) -> bool:
    """Run a part, and return whether it passed."""
    start, used = time.monotonic(), processor_seconds()
    passed = True
    for command in PARTS[name]:
        print(f"nightly: python -m {' '.join(command)}", flush=True)
        passed &= subprocess.run([sys.executable, "-m", *command], cwd=ROOT, check=False).returncode == 0
    outcome = "passed" if passed else "failed"
    seconds, used = time.monotonic() - start, processor_seconds() - used
    print(f"nightly: {name} {outcome} in {seconds:.0f} s, {used:.0f} s of processor time", flush=True)
    return passed


def processor_seconds() -> float:
    """Processor time of all child processes that ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
