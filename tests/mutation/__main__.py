"""Run mutation tests of the metering core (`make mutate`).

Prints every surviving mutant and the score. The exit status is 1 if the tests kill fewer than 90% of the mutants.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from gpucost_devstack.template import REPOSITORY

TOOLS = REPOSITORY / ".tools" / "mutate" / "bin"
MIN_SCORE = 90
MODULES = ("metering/metering", "metering/gpu_models", "attribution")
TESTS = ("tests/mutation/recorded.py", "tests/core")
IMPORTED = ("authoring", "benchmarks", "gpucost_devstack", "gpucost_cli")
"""Other packages that the tests import."""
KILLED = {"killed", "timeout", "segfault"}
CONFIG = """
[tool.mutmut]
source_paths = ["gpucost"]
only_mutate = [{modules}]
also_copy = [{imported}, "template.yaml"]
pytest_add_cli_args = ["--import-mode=importlib", "-p", "no:cacheprovider", "-p", "tests.mutation.plugin", "-q"]
pytest_add_cli_args_test_selection = [{tests}]
mutate_only_covered_lines = true

[tool.pytest.ini_options]
pythonpath = ["."]
filterwarnings = ["error", "default::DeprecationWarning", "ignore::pytest.PytestUnknownMarkWarning"]
"""


def main() -> None:
    """Record observations, run mutmut on the modules given as arguments (default: all) and print the score."""
    mutated = sys.argv[1:] or list(MODULES)
    with tempfile.TemporaryDirectory(prefix="gpucost-mutants-") as folder:
        home = Path(folder)
        ignore = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(REPOSITORY / "layers" / "common" / "gpucost", home / "gpucost", ignore=ignore)
        for name in (*IMPORTED, "tests"):
            shutil.copytree(REPOSITORY / name, home / name, ignore=ignore)
        shutil.copy(REPOSITORY / "template.yaml", home)
        modules = [f"gpucost/core/{name}.py" for name in mutated]
        config = CONFIG.format(modules=quoted(modules), imported=quoted(IMPORTED), tests=quoted(TESTS))
        (home / "pyproject.toml").write_text(config)
        recorded = home / "recorded.pickle"
        environment = {**os.environ, "GPUCOST_RECORDED": str(recorded), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([sys.executable, "-m", "tests.mutation.record", str(recorded)], cwd=REPOSITORY, check=True)
        done = subprocess.run([TOOLS / "mutmut", "run"], cwd=home, env=environment, capture_output=True, check=False)
        if done.returncode:
            sys.exit(f"mutmut failed:\n{done.stdout.decode()[-3000:]}{done.stderr.decode()[-3000:]}")
        listed = subprocess.run(
            [TOOLS / "mutmut", "results", "--all", "true"], cwd=home, env=environment, check=True, capture_output=True
        ).stdout.decode()
        outcomes = re.findall(r"^\s*(\S+): (.+)$", listed, re.MULTILINE)
        survivors = [name for name, outcome in outcomes if outcome not in KILLED]
        for name in survivors:
            shown = subprocess.run(
                [TOOLS / "mutmut", "show", name], cwd=home, env=environment, capture_output=True, check=False
            )
            print(shown.stdout.decode())
    score = 100 * (1 - len(survivors) / len(outcomes)) if outcomes else 0.0
    print(f"{len(outcomes)} mutants, {len(survivors)} survived: {score:.1f}% killed")
    sys.exit(score < MIN_SCORE)


def quoted(names: Iterable[str]) -> str:
    """The items of an array in TOML."""
    return ", ".join(f'"{name}"' for name in names)


if __name__ == "__main__":
    main()
