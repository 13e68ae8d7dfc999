"""Plant each fault in a copy of the repository, run the tests on it, and print which faults were caught.

As many faults are planted at a time as there are processors, each in a copy of its own. `.cache/faults.json`, which is
not in Git, records which test caught a fault on this machine. That test runs first, and all tests of the fault only if
it passes. The exit status is 1 if a fault was not caught, or if its original text is gone.
"""

import asyncio
import compileall
import json
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from py_compile import PycInvalidationMode
from typing import NamedTuple

from gpucost_devstack.template import REPOSITORY
from tests.faults.planted import FAULTS, Fault

RECORD = REPOSITORY / ".cache" / "faults.json"
NOT_COPIED = (".git", ".venv", ".tools", ".aws-sam", "node_modules", "__pycache__", ".*_cache", ".hypothesis")
FAILED = {1, 2}
"""What pytest returns if a test fails, and if a test cannot be imported."""


class Trial(NamedTuple):
    """Tests (arguments of pytest), and the fault that they run on, if any."""

    tests: tuple[str, ...]
    fault: Fault | None = None


def main() -> None:
    """Run the faults whose description contains any of the arguments; all of them without arguments."""
    words = sys.argv[1:]
    faults = [fault for fault in FAULTS if not words or any(word in fault.mistake for word in words)]
    for fault in faults:
        count = (REPOSITORY / fault.file).read_text(encoding="utf-8").count(fault.original)
        if count != 1:
            sys.exit(f"{fault.mistake}: {fault.file} contains its original text {count} times")
    for stop in (signal.SIGINT, signal.SIGTERM):  # processes in the background of a script ignore the first
        signal.signal(stop, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="gpucost-faults-") as folder:
        copies = [copy_repository(Path(folder) / str(number)) for number in range(os.cpu_count() or 1)]
        caught = asyncio.run(plant_all(copies, faults))
    for mistake in [fault.mistake for fault in faults if fault.mistake not in caught]:
        print(f"MISSED  {mistake}")
    print(f"{len(caught)} of {len(faults)} faults caught")
    sys.exit(0 if len(caught) == len(faults) else 1)


def copy_repository(copy: Path) -> Path:
    """Copy the repository and compile the copy.

    Python compares this bytecode with the content of the source. By default it compares time and length, and runs the
    bytecode of the original if a fault of the same length is planted within a second.
    """
    shutil.copytree(REPOSITORY, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
    compileall.compile_dir(copy, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    (copy / ".venv").symlink_to(REPOSITORY / ".venv")
    for modules in REPOSITORY.glob("gpucost_devstack/*/node_modules"):
        (copy / modules.relative_to(REPOSITORY)).symlink_to(modules)
    return copy


async def plant_all(copies: list[Path], faults: list[Fault]) -> set[str]:
    """Plant faults, and return those that were caught: by the recorded test, or else by any of their tests."""
    record = read_record()
    recorded = [Trial((record[fault.mistake],), fault) for fault in faults if fault.mistake in record]
    caught = await plant(copies, recorded)
    return caught | await plant(copies, [Trial(fault.tests, fault) for fault in faults if fault.mistake not in caught])


async def plant(copies: list[Path], trials: list[Trial]) -> set[str]:
    """Try each fault whose tests pass without it, and return those that were caught."""
    baselines = await run_all(copies, (Trial(tests) for tests in dict.fromkeys(trial.tests for trial in trials)))
    passed = {trial.tests for trial, status in baselines if status == 0}
    outcomes = await run_all(copies, (trial for trial in trials if trial.tests in passed))
    return {trial.fault.mistake for trial, status in outcomes if trial.fault and status in FAILED}


async def run_all(copies: list[Path], trials: Iterator[Trial]) -> list[tuple[Trial, int]]:
    """Run trials in all copies at a time. A copy that is done takes the next trial. Return what pytest returned."""

    async def run_remaining(copy: Path) -> list[tuple[Trial, int]]:
        return [await run(copy, trial) for trial in trials]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_remaining(copy)) for copy in copies]
    return [outcome for task in tasks for outcome in task.result()]


async def run(copy: Path, trial: Trial) -> tuple[Trial, int]:
    """Run a trial in a copy, print its outcome, and return it with what pytest returned."""
    start = time.monotonic()
    with planted(copy, trial.fault) if trial.fault else nullcontext():
        status, output = await run_pytest(copy, trial.tests)
    failure = re.search(r"^(?:FAILED|ERROR) (tests/.*?)(?: - |$)", output, re.MULTILINE)
    detail = failure[1] if failure else output.strip().rpartition("\n")[2]
    result = "passed" if status == 0 else "caught" if trial.fault and status in FAILED else "failed"
    subject = trial.fault.mistake if trial.fault else f"without any fault: {' '.join(trial.tests)}"
    print(f"{result} {time.monotonic() - start:4.0f} s  {subject}  ({detail})", flush=True)
    if trial.fault and failure and result == "caught":
        record_test(trial.fault, failure[1])
    return trial, status


def read_record() -> dict[str, str]:
    """Return which test caught a fault on this machine, by mistake."""
    record: dict[str, str] = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.is_file() else {}
    return record


def record_test(fault: Fault, test: str) -> None:
    """Record which test caught a fault."""
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(read_record() | {fault.mistake: test}, indent=2), encoding="utf-8")


@contextmanager
def planted(copy: Path, fault: Fault) -> Iterator[None]:
    """Replace the original text of a fault during the context."""
    path = copy / fault.file
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(fault.original, fault.faulty), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(text, encoding="utf-8")


async def run_pytest(copy: Path, tests: Iterable[str]) -> tuple[int, str]:
    """Run tests in a copy, with the code of the copy, until the first failure; return pytest's status and output."""
    process = await asyncio.create_subprocess_exec(
        str(REPOSITORY / ".venv" / "bin" / "python"),
        *("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests),
        cwd=copy,
        env={**os.environ, "PYTHONPATH": f"{copy}:{copy / 'layers' / 'common'}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # pytest gets Ctrl-C once, from here: a second one would end it before it stops servers
    )
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGINT)
            await process.communicate()
    return await process.wait(), output.decode()


if __name__ == "__main__":
    main()
