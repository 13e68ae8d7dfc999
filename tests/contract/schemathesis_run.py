"""Runs schemathesis against a running API in a separate process."""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Done:
    """A run: the output, the number of cases, and schemathesis's exit status."""

    output: str
    cases: int
    status: int


def run(
    address: str, token: str, *, examples: int, phases: str = "examples,coverage,fuzzing,stateful", seed: int = 1
) -> Done:
    """Run all checks as the caller of a token, with `examples` cases for each operation."""
    with tempfile.TemporaryDirectory() as folder:
        done = _run(Path(folder), address, token, examples, phases, seed)
    match = re.search(r"([\d,]+) generated", done.stdout)
    cases = int(match[1].replace(",", "")) if match else 0
    return Done(done.stdout + done.stderr, cases, done.returncode)


def _run(
    folder: Path, address: str, token: str, examples: int, phases: str, seed: int
) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [
            Path(sys.executable).with_name("schemathesis"),
            *("--config-file", HERE / "schemathesis.toml"),
            *("run", f"{address}/openapi.json", "--checks", "all", "--phases", phases),
            *("--max-examples", str(examples), "--seed", str(seed), "--continue-on-failure"),
            *("--header", f"Authorization: Bearer {token}", "--no-color", "--warnings", "off"),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.contract.hooks", "PYTHONPATH": str(HERE.parents[1])},
    )
