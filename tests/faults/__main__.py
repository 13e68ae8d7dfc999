"""Plant each fault in a copy of the repository, run the tests on it, and print which faults were caught.

The exit status is 1 if a fault was not caught, or if its original text is gone.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gpucost_devstack.template import REPOSITORY
from tests.faults.planted import FAULTS, Fault
from tests.faults.planted_manifests import MANIFEST_FAULTS
from tests.faults.planted_rules import RULES_FAULTS

NOT_COPIED = (".git", ".venv", ".tools", ".aws-sam", "node_modules", "__pycache__", ".*_cache", ".hypothesis")


def main() -> None:
    """Run the faults whose description contains any of the arguments; all of them without arguments."""
    selected = [
        fault
        for fault in (*FAULTS, *MANIFEST_FAULTS, *RULES_FAULTS)
        if not sys.argv[1:] or any(argument in fault.mistake for argument in sys.argv[1:])
    ]
    missed = []
    with tempfile.TemporaryDirectory(prefix="gpucost-faults-") as folder:
        copy = Path(folder) / "repository"
        shutil.copytree(REPOSITORY, copy, ignore=shutil.ignore_patterns(*NOT_COPIED))
        (copy / ".venv").symlink_to(REPOSITORY / ".venv")
        for modules in REPOSITORY.glob("gpucost_devstack/*/node_modules"):
            (copy / modules.relative_to(REPOSITORY)).symlink_to(modules)
        for tests in dict.fromkeys(fault.tests for fault in selected):
            baseline = run(copy, tests)
            if baseline.returncode != 0:
                sys.exit(f"the tests fail without any fault: {baseline.stdout.decode()[-2000:]}")
        for fault in selected:
            caught = plant(copy, fault)
            print(f"{'caught' if caught else 'MISSED'}  {fault.mistake}", flush=True)
            if not caught:
                missed.append(fault.mistake)
    print(f"{len(selected) - len(missed)} of {len(selected)} faults caught")
    sys.exit(1 if missed else 0)


def plant(copy: Path, fault: Fault) -> bool:
    """Plant a fault and return whether the tests fail."""
    path = copy / fault.file
    text = path.read_text(encoding="utf-8")
    if text.count(fault.original) != 1:
        sys.exit(f"{fault.mistake}: {fault.file} contains its original text {text.count(fault.original)} times")
    path.write_text(text.replace(fault.original, fault.faulty), encoding="utf-8")
    try:
        return run(copy, fault.tests).returncode != 0
    finally:
        path.write_text(text, encoding="utf-8")


def run(copy: Path, tests: Iterable[str]) -> subprocess.CompletedProcess[bytes]:
    """Run tests in a copy, with the code of the copy, until the first failure."""
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
    completed = subprocess.run(command, cwd=copy, env=environment, capture_output=True, check=False)
    if completed.returncode not in {0, 1, 2}:
        sys.exit(f"pytest could not run: {completed.stdout.decode()[-2000:]}{completed.stderr.decode()[-2000:]}")
    return completed


if __name__ == "__main__":
    main()
