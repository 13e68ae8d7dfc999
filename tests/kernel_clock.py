"""The clock of programs in Go, such as Prometheus and Alertmanager, which a set clock (`scripts/clocks.py`) misses."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile

from tests.gpucost_command import GPUCOST


def kernel_time() -> datetime:
    """The time that the kernel gives a new file."""
    with NamedTemporaryFile() as file:
        return datetime.fromtimestamp(Path(file.name).stat().st_mtime, UTC)


def gpucost(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line with the kernel's clock, on samples that Prometheus scraped."""
    variables = {name: text for name, text in os.environ.items() if name not in {"LD_PRELOAD", "CLOCK_OFFSET"}}
    return subprocess.run([GPUCOST, *arguments], env=variables, capture_output=True, text=True, check=False)
