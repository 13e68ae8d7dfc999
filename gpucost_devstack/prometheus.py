"""Runs a real Prometheus on this machine over samples from OpenMetrics files.

`make compat` puts other versions on the PATH, or replaces it by VictoriaMetrics.
"""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import requests

from gpucost.core.errors import GpuCostError
from gpucost_devstack.child_process import running_program
from gpucost_devstack.installation import find_program

RETENTION = "400d"
BLOCK_DURATION = "54h"
"""promtool reads the whole file once per block. Its default of two-hour blocks would be slow. It takes the longest of
2, 6, 18, 54 … hours up to this."""
START_SECONDS = 30.0
VICTORIA_METRICS_VARIABLE = "GPUCOST_VICTORIA_METRICS"
"""Environment variable with the executable of VictoriaMetrics, which then replaces Prometheus."""


@contextmanager
def running_prometheus(
    openmetrics: Path | Iterable[Path] | None = None, *flags: str, storage: Path | None = None, port: int = 0
) -> Iterator[str]:
    """Run Prometheus over the samples of OpenMetrics files. Yields its URL and stops it on exit.

    Args:
        openmetrics: one file, several (each loaded before the next is produced), or None for no samples.
        flags: further flags of Prometheus.
        storage: folder of its storage, which may contain blocks and remains; None: a temporary one.
        port: where it listens; 0: any free port.

    Raises:
        GpuCostError: not installed, refuses the file, or does not start.
    """
    files = [openmetrics] if isinstance(openmetrics, Path) else openmetrics or ()
    if other := os.environ.get(VICTORIA_METRICS_VARIABLE):
        from gpucost_devstack.victoria_metrics import running_victoria_metrics

        stored = sorted(storage.glob("*.om")) if storage else []
        with running_victoria_metrics(other, [*files, *stored]) as url:
            yield url
        return
    with tempfile.TemporaryDirectory(prefix="gpucost-prometheus-") as folder:
        home = Path(folder)
        storage = storage or home / "data"
        storage.mkdir(exist_ok=True)
        for file in files:
            create_blocks(file, storage)
        config = home / "prometheus.yml"
        config.write_text("global: {}\n")
        port = port or free_port()
        url = f"http://127.0.0.1:{port}"
        with (home / "prometheus.log").open("wb") as log:
            command = [
                find_program("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={storage}",
                f"--storage.tsdb.retention.time={RETENTION}",
                f"--web.listen-address=127.0.0.1:{port}",
                *flags,
            ]
            with running_program(command, stdout=log, stderr=subprocess.STDOUT) as process:
                wait_until_ready(f"{url}/-/ready", "Prometheus", process, home / "prometheus.log")
                yield url


def create_blocks(openmetrics: Path, folder: Path) -> None:
    """Turn an OpenMetrics file into blocks of Prometheus' storage. VictoriaMetrics reads the file itself.

    Raises:
        GpuCostError: promtool refuses the file. The message says why.
    """
    if os.environ.get(VICTORIA_METRICS_VARIABLE):
        shutil.copyfile(openmetrics, folder / f"{uuid4()}.om")
        return
    done = subprocess.run(
        [
            find_program("promtool"),
            "tsdb",
            "create-blocks-from",
            "--quiet",
            f"--max-block-duration={BLOCK_DURATION}",
            "openmetrics",
            str(openmetrics),
            str(folder),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise GpuCostError(f"promtool refuses the metrics: {done.stderr.strip()[-300:]}")


@contextmanager
def refusing_url() -> Iterator[str]:
    """The URL of a loopback port that refuses connections for as long as the context lasts.

    The port is bound, so no other process can use it, and does not listen.
    """
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"


def usable_port(preferred: int) -> int:
    """A port on the loopback address that is free, if possible the preferred one."""
    try:
        with socket.socket() as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", preferred))
            port: int = listener.getsockname()[1]
            return port
    except OSError:
        return free_port()


def free_port() -> int:
    """A TCP port on the loopback address that no process listens on at the moment."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def wait_until_ready(url: str, server: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    """Wait until a URL responds.

    Raises:
        GpuCostError: the server's process ended, or took too long. The message contains its log.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            if requests.get(url, timeout=1).ok:
                return
        except requests.RequestException:
            pass
        time.sleep(0.05)
    raise GpuCostError(f"{server} did not start: {log.read_text(errors='replace').strip()[-300:]}")
