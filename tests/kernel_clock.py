"""The clock of programs in Go, such as Prometheus and Alertmanager, which a set clock (`scripts/clocks.py`) misses."""

from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile


def kernel_time() -> datetime:
    """The time that the kernel gives a new file."""
    with NamedTemporaryFile() as file:
        return datetime.fromtimestamp(Path(file.name).stat().st_mtime, UTC)
