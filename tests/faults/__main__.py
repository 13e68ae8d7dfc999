"""Plant each fault in a copy of the repository, run the tests on it, and print which faults were caught.

As many faults are planted at a time as there are processors, each in a copy of its own. The exit status is 1 if a fault
was not caught, or if its original text is gone.
"""

import asyncio
import compileall
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from py_compile import PycInvalidationMode
from subprocess import CompletedProcess
from typing import TypeVar

from gpucost_devstack.template import REPOSITORY
from tests.faults.planted import FAULTS, Fault
from tests.faults.planted_manifests import MANIFEST_FAULTS
from tests.faults.planted_rules import RULES_FAULTS

NOT_COPIED = (".git", ".venv", ".tools", ".aws-sam", "node_modules", "__pycache__", ".*_cache", ".hypothesis")

Trial = TypeVar("Trial")
Result = TypeVar("Result")


def main() -> None:
    """Run the faults whose description contains any of the arguments; all of them without arguments."""
    selected = [
        fault
        for fault in (*FAULTS, *MANIFEST_FAULTS, *RULES_FAULTS)
        if not sys.argv[1:] or any(argument in fault.mistake for argument in sys.argv[1:])
    ]
    for fault in selected:
        count = (REPOSITORY / fault.file).read_text(encoding="utf-8").count(fault.original)
        if count != 1:
            sys.exit(f"{fault.mistake}: {fault.file} contains its original text {count} times")
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the tests as Ctrl-C does
    with tempfile.TemporaryDirectory(prefix="gpucost-faults-") as folder:
        copies = [copy_repository(Path(folder) / str(number)) for number in range(os.cpu_count() or 1)]
        missed = asyncio.run(plant_all(copies, selected))
    print(f"{len(selected) - missed} of {len(selected)} faults caught")
    sys.exit(1 if missed else 0)


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


async def plant_all(copies: list[Path], faults: list[Fault]) -> int:
    """Check that the tests pass without any fault, plant each fault, and return how many faults were not caught."""
    for baseline in await run_in_copies(copies, run, dict.fromkeys(fault.tests for fault in faults)):
        if baseline.returncode != 0:
            sys.exit(f"the tests fail without any fault: {baseline.stdout[-2000:]}")
    return (await run_in_copies(copies, plant, faults)).count(False)


async def run_in_copies(
    copies: list[Path], function: Callable[[Path, Trial], Awaitable[Result]], trials: Iterable[Trial]
) -> list[Result]:
    """Call a function for each trial, in all copies at a time. A copy that is done takes the next trial."""
    remaining = iter(trials)

    async def run_remaining(copy: Path) -> list[Result]:
        return [await function(copy, trial) for trial in remaining]

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run_remaining(copy)) for copy in copies]
    return [result for task in tasks for result in task.result()]


async def plant(copy: Path, fault: Fault) -> bool:
    """Plant a fault, print whether the tests fail, and return it."""
    start = time.monotonic()
    with planted(copy, fault):
        completed = await run(copy, fault.tests)
    is_caught = completed.returncode in {1, 2}  # a test failed, or could not be imported
    failure = re.search(r"^(?:FAILED|ERROR) (.*?)(?: - |$)", completed.stdout, re.MULTILINE)
    reason = failure[1] if failure else f"pytest returned {completed.returncode}"
    result = "caught" if is_caught else "MISSED"
    print(f"{result} {time.monotonic() - start:4.0f} s  {fault.mistake}  ({reason})", flush=True)
    return is_caught


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


async def run(copy: Path, tests: Iterable[str]) -> CompletedProcess[str]:
    """Run tests in a copy, with the code of the copy, until the first failure."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}:{copy / 'layers' / 'common'}"}
    python = str(REPOSITORY / ".venv" / "bin" / "python")
    command = [python, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=copy,
        env=environment,
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
    return CompletedProcess(command, await process.wait(), output.decode())


if __name__ == "__main__":
    main()
