"""Change the metering core a little, a thousand times over, and see whether the tests notice (`make mutate`).

Prints the score and every change that nobody noticed; exit status 1 where fewer than 90% were.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from devstack.template import REPOSITORY

TOOLS = REPOSITORY / ".tools" / "mutate" / "bin"
LEAST = 90
MODULES = ("metering/metering", "metering/gpu_models", "attribution")
TESTS = ("tests/mutation/recorded.py", "tests/core/test_devices.py", "tests/core/test_distribution.py",
         "tests/core/test_attribution.py", "tests/core/test_intervals.py",
         "tests/core/test_metering.py")  # fmt: skip
CONFIG = """
[tool.mutmut]
source_paths = ["gpucost"]
only_mutate = [{modules}]
also_copy = ["devstack", "template.yaml"]
pytest_add_cli_args = ["--import-mode=importlib", "-p", "no:cacheprovider", "-q"]
pytest_add_cli_args_test_selection = [{tests}]
mutate_only_covered_lines = true

[tool.pytest.ini_options]
pythonpath = ["."]
filterwarnings = ["error", "default::DeprecationWarning"]
"""


def main() -> None:
    """Record, mutate, count."""
    wanted = sys.argv[1:] or list(MODULES)
    with tempfile.TemporaryDirectory(prefix="gpucost-mutants-") as folder:
        home = Path(folder)
        ignore = shutil.ignore_patterns("__pycache__", "node_modules")
        shutil.copytree(REPOSITORY / "layers" / "common" / "gpucost", home / "gpucost", ignore=ignore)
        for name in ("devstack", "tests"):
            shutil.copytree(REPOSITORY / name, home / name, ignore=ignore)
        shutil.copy(REPOSITORY / "template.yaml", home)
        modules = ", ".join(f'"gpucost/core/{name}.py"' for name in wanted)
        (home / "pyproject.toml").write_text(
            CONFIG.format(modules=modules, tests=", ".join(f'"{test}"' for test in TESTS))
        )
        recorded = home / "recorded.pickle"
        environment = {**os.environ, "GPUCOST_RECORDED": str(recorded), "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run([sys.executable, "-m", "tests.mutation.record", str(recorded)], cwd=REPOSITORY, check=True)
        subprocess.run([TOOLS / "mutmut", "run"], cwd=home, env=environment, check=True, stdout=subprocess.DEVNULL)
        found = subprocess.run(
            [TOOLS / "mutmut", "results", "--all", "true"], cwd=home, env=environment, check=True, capture_output=True
        ).stdout.decode()
        verdicts = re.findall(r"^\s*(\S+): (.+)$", found, re.MULTILINE)
        survivors = [name for name, verdict in verdicts if verdict in {"survived", "no tests", "suspicious"}]
        for name in survivors:
            shown = subprocess.run(
                [TOOLS / "mutmut", "show", name], cwd=home, env=environment, capture_output=True, check=False
            )
            print(shown.stdout.decode())
    score = 100 * (1 - len(survivors) / len(verdicts)) if verdicts else 0.0
    print(f"{len(verdicts)} mutants, {len(survivors)} survived: {score:.1f}% killed")
    sys.exit(score < LEAST)


if __name__ == "__main__":
    main()
