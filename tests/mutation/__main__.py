"""Run mutation tests of the metering core (`make mutate`).

Prints every surviving mutant and the score. The exit status is 1 if the tests kill fewer than 90% of the mutants.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from gpucost_devstack.template import REPOSITORY

TOOLS = REPOSITORY / ".tools" / "mutate" / "bin"
MIN_SCORE = 90
MODULES = ("metering/metering", "metering/gpu_models", "attribution")
TESTS = ("tests/mutation/recorded.py", "tests/core")
CONFIG = """
[tool.mutmut]
source_paths = ["gpucost"]
only_mutate = [{modules}]
also_copy = ["benchmarks", "gpucost_devstack", "gpucost_cli", "template.yaml"]
pytest_add_cli_args = ["--import-mode=importlib", "-p", "no:cacheprovider", "-p", "tests.mutation.fresh_caches", "-q"]
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
        for name in ("benchmarks", "gpucost_devstack", "gpucost_cli", "tests"):
            shutil.copytree(REPOSITORY / name, home / name, ignore=ignore)
        shutil.copy(REPOSITORY / "template.yaml", home)
        modules = ", ".join(f'"gpucost/core/{name}.py"' for name in mutated)
        (home / "pyproject.toml").write_text(
            CONFIG.format(modules=modules, tests=", ".join(f'"{test}"' for test in TESTS))
        )
        recorded = home / "recorded.pickle"
        environment = {**os.environ, "GPUCOST_RECORDED": str(recorded), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([sys.executable, "-m", "tests.mutation.record", str(recorded)], cwd=REPOSITORY, check=True)
        subprocess.run([TOOLS / "mutmut", "run"], cwd=home, env=environment, check=True, stdout=subprocess.DEVNULL)
        listed = subprocess.run(
            [TOOLS / "mutmut", "results", "--all", "true"], cwd=home, env=environment, check=True, capture_output=True
        ).stdout.decode()
        outcomes = re.findall(r"^\s*(\S+): (.+)$", listed, re.MULTILINE)
        survivors = [name for name, outcome in outcomes if outcome in {"survived", "no tests", "suspicious"}]
        for name in survivors:
            shown = subprocess.run(
                [TOOLS / "mutmut", "show", name], cwd=home, env=environment, capture_output=True, check=False
            )
            print(shown.stdout.decode())
    score = 100 * (1 - len(survivors) / len(outcomes)) if outcomes else 0.0
    print(f"{len(outcomes)} mutants, {len(survivors)} survived: {score:.1f}% killed")
    sys.exit(score < MIN_SCORE)


if __name__ == "__main__":
    main()
