"""Runs a real Alertmanager on this machine, for tests that post alerts."""

import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import requests

from gpucost.core.errors import GpuCostError
from gpucost_devstack.child_process import running_program
from gpucost_devstack.installation import missing_program
from gpucost_devstack.prometheus import free_port

EXECUTABLE_NAMES = ("prometheus-alertmanager", "alertmanager")
"""The names of the executable in Debian's package and in the official release."""
START_SECONDS = 30.0
EMPTY_CONFIG = "route: {receiver: none}\nreceivers: [{name: none}]\n"


@contextmanager
def running_alertmanager(
    config: str = EMPTY_CONFIG, files: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> Iterator[str]:
    """Run a single Alertmanager. Yields its URL and stops it on exit.

    Args:
        config: its configuration.
        files: further files in its folder, by name.
        environment: environment of its process.

    Raises:
        GpuCostError: it is not installed, or it does not start. The message says why.
    """
    executable = next(filter(None, map(shutil.which, EXECUTABLE_NAMES)), None)
    if executable is None:
        raise missing_program("alertmanager")
    with tempfile.TemporaryDirectory(prefix="gpucost-alertmanager-") as folder:
        home = Path(folder)
        for name, text in {"alertmanager.yml": config, **(files or {})}.items():
            (home / name).write_text(text)
        url = f"http://127.0.0.1:{free_port()}"
        command = [
            executable,
            f"--config.file={home / 'alertmanager.yml'}",
            f"--storage.path={home / 'data'}",
            f"--web.listen-address={url.removeprefix('http://')}",
            "--cluster.listen-address=",
        ]
        with (home / "log").open("wb") as log:
            options = {"stdout": log, "stderr": subprocess.STDOUT, "env": environment}
            with running_program(command, **options) as process:
                _wait(url, process, home / "log")
                yield url


def _wait(url: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if requests.get(f"{url}/-/ready", timeout=1).ok:
                return
        except requests.RequestException:
            pass
        time.sleep(0.05)
    raise GpuCostError(f"Alertmanager did not start: {log.read_text(errors='replace').strip()[-300:]}")
