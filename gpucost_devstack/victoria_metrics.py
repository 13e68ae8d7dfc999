"""Runs VictoriaMetrics on this machine in place of Prometheus, for `make compat`."""

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import requests

from gpucost.core.errors import GpuCostError
from gpucost_devstack.child_process import running_program
from gpucost_devstack.prometheus import free_port, wait_until_ready

FLAGS = (
    "-retentionPeriod=100y",  # counted from the clock, while Prometheus counts from the newest sample
    "-search.latencyOffset=0s",  # by default the newest 30 seconds are not answered
    "-search.disableCache",  # samples are loaded after the fact
    "-search.maxQueryLen=1MB",  # the default of 16 KiB is too short for hours in which many pods come and go
)
"""Flags. docs/how-to/existing-cluster.md says which of them a real server needs."""


@contextmanager
def running_victoria_metrics(executable: str, openmetrics: Iterable[Path]) -> Iterator[str]:
    """Run VictoriaMetrics over the samples of OpenMetrics files. Yields its URL and stops it on exit.

    Raises:
        GpuCostError: it does not start, or refuses a file.
    """
    with tempfile.TemporaryDirectory(prefix="gpucost-victoria-metrics-") as folder:
        log_path = Path(folder) / "log"
        url = f"http://127.0.0.1:{free_port()}"
        address = url.removeprefix("http://")
        command = [executable, f"-httpListenAddr={address}", f"-storageDataPath={folder}/data", *FLAGS]
        with log_path.open("wb") as log, running_program(command, stdout=log, stderr=subprocess.STDOUT) as process:
            wait_until_ready(f"{url}/health", "VictoriaMetrics", process, log_path)
            for path in openmetrics:
                _import(url, path)
            yield url


def _import(url: str, openmetrics: Path) -> None:
    with openmetrics.open("rb") as body:
        answer = requests.post(f"{url}/api/v1/import/prometheus", data=body, timeout=120)
    if not answer.ok:
        raise GpuCostError(f"VictoriaMetrics refuses {openmetrics}: {answer.text.strip()[:300]}")
    flush(url)


def flush(url: str) -> None:
    """Make samples visible to queries at once, which otherwise takes some seconds."""
    requests.get(f"{url}/internal/force_flush", timeout=60).raise_for_status()
