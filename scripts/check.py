"""Runs the static checks side by side (`make check`), and prints the output of those that fail.

Arguments are names of checks; without arguments, all run.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
CODE = (
    "layers/common",
    "functions",
    "gpucost_cli",
    "gpucost_devstack",
    "authoring",
    "benchmarks",
    "lint",
    "scripts",
    "tests",
)
CHECKS: dict[str, tuple[str | Path, ...]] = {
    "types": (BIN / "mypy",),
    "page": ("npm", "--prefix", "web", "run", "--silent", "check"),
    "sources": (BIN / "python", "-m", "lint"),
    "template": (ROOT / ".tools" / "sam" / "bin" / "sam", "validate", "--lint"),
    "site": (BIN / "python", "-m", "authoring.site"),
    "reference": (BIN / "python", "-m", "authoring.reference", "--check"),
    "openapi": (BIN / "python", "-m", "authoring.openapi", "--check"),
    "amounts": (BIN / "python", "-m", "authoring.amounts", "--check"),
    "dashboards": (BIN / "python", "-m", "authoring.grafana", "--check"),
    "imports": (BIN / "lint-imports",),
    "terms": (
        "sh",
        "-c",
        "git ls-files -co --exclude-standard | grep -E '[.](py|md|tsx?|css|html|ya?ml|toml|sh|mako|j2)$' "
        "| grep -vE '^((web/)?tests/|CHANGELOG|lint/language|pyproject)' | xargs codespell",
    ),
    "ruff": (BIN / "ruff", "check", *CODE),
    "format": (BIN / "ruff", "format", "--check", "-q", *CODE),
}
"""Commands, those that take longest first."""


def main(wanted: Sequence[str]) -> int:
    """Run some checks, or all, as many at a time as there are processors; return the exit status."""
    if unknown := set(wanted) - CHECKS.keys():
        print(f"check: there is no check {min(unknown)!r}. Checks: {', '.join(CHECKS)}.", file=sys.stderr)
        return 2
    start = time.monotonic()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = [
            name for name, passed in zip(wanted or CHECKS, pool.map(run, wanted or CHECKS), strict=True) if not passed
        ]
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"check: {time.monotonic() - start:.0f} s, {usage.ru_utime + usage.ru_stime:.0f} s of processor time")
    if failed:
        print(f"check: {', '.join(failed)} failed. `make fix` corrects what a machine can.", file=sys.stderr)
    return int(bool(failed))


def run(name: str) -> bool:
    """Run a check, print its output if it failed, and return whether it passed."""
    environment = {
        **os.environ,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "SAM_CLI_TELEMETRY": "0",
        "AWS_DEFAULT_REGION": "eu-central-1",
    }
    start = time.monotonic()
    done = subprocess.run(CHECKS[name], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    outcome = f"failed ({done.returncode})" if done.returncode else "passed"
    lines = [f"{outcome} {time.monotonic() - start:4.0f} s  {name}"]
    if done.returncode:
        lines.append(f"{done.stdout}{done.stderr}".rstrip())
    elif done.stderr.startswith("warning:"):
        lines.append(done.stderr.rstrip())
    print("\n".join(lines), flush=True)
    return not done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
