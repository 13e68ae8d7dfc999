"""Plant each fault in a copy of the repository, run the tests on it, and print which were caught.

Exit status 1 where one was not, or where its place in the code is gone.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from devstack.template import REPOSITORY
from tests.faults.planted import FAULTS, Fault
from tests.faults.planted_kit import KIT_FAULTS
from tests.faults.planted_rules import RULES_FAULTS

COPIED = (
    "cluster",
    "dashboards",
    "docs",
    "layers",
    "devstack",
    "gpucost_cli",
    "authoring",
    "tests",
    "functions",
    "pyproject.toml",
    "template.yaml",
    "samconfig.toml",
)


def main() -> None:
    """Run the faults whose description holds any of the words given; all where none are."""
    wanted = [
        fault
        for fault in (*FAULTS, *KIT_FAULTS, *RULES_FAULTS)
        if not sys.argv[1:] or any(words in fault.what for words in sys.argv[1:])
    ]
    missed = []
    with tempfile.TemporaryDirectory(prefix="gpucost-faults-") as folder:
        copy = Path(folder)
        for name in COPIED:
            source = REPOSITORY / name
            if source.is_dir():
                shutil.copytree(source, copy / name, ignore=shutil.ignore_patterns("__pycache__", "node_modules"))
            else:
                shutil.copy(source, copy / name)
        (copy / ".venv").symlink_to(REPOSITORY / ".venv")
        if not run(copy, {tests: None for fault in wanted for tests in fault.tests}):
            sys.exit("the tests fail without any fault")
        for fault in wanted:
            caught = plant(copy, fault)
            print(f"{'caught' if caught else 'MISSED'}  {fault.what}", flush=True)
            if not caught:
                missed.append(fault.what)
    print(f"{len(wanted) - len(missed)} of {len(wanted)} faults caught")
    sys.exit(1 if missed else 0)


def plant(copy: Path, fault: Fault) -> bool:
    """Whether the tests fail with a fault."""
    path = copy / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.right) != 1:
        sys.exit(f"{fault.what}: {fault.file} holds its place {text.count(fault.right)} times")
    path.write_text(text.replace(fault.right, fault.wrong), encoding="utf-8")
    try:
        return not run(copy, fault.tests)
    finally:
        path.write_text(text, encoding="utf-8")


def run(copy: Path, tests: Iterable[str]) -> bool:
    """Whether the tests pass in a copy, on its own code."""
    environment = {**os.environ, "PYTHONPATH": f"{copy}:{copy / 'layers' / 'common'}", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [
        str(REPOSITORY / ".venv" / "bin" / "python"),
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False)
    if done.returncode not in {0, 1, 2}:
        sys.exit(f"pytest could not run: {done.stdout.decode()[-2000:]}{done.stderr.decode()[-2000:]}")
    return done.returncode == 0


if __name__ == "__main__":
    main()
