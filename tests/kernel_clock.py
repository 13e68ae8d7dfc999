"""The clock of programs in Go, such as Prometheus and Alertmanager, which a set clock (`scripts/clocks.py`) misses."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile

from tests.gpucost_command import GPUCOST

SET_CLOCK = {name: os.environ[name] for name in ("LD_PRELOAD", "CLOCK_OFFSET") if name in os.environ}
"""The variables of a set clock, for programs with an environment of their own; empty without one."""


def kernel_time() -> datetime:
    """The time that the kernel gives a new file."""
    with NamedTemporaryFile() as file:
        return datetime.fromtimestamp(Path(file.name).stat().st_mtime, UTC)


def gpucost(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line with the kernel's clock, on samples that Prometheus scraped."""
    variables = {name: text for name, text in os.environ.items() if name not in SET_CLOCK}
    return subprocess.run([GPUCOST, *arguments], env=variables, capture_output=True, text=True, check=False)
