"""Records of the demos that run on this machine. Each names the addresses of its embedded AWS.

A demo holds a lock on its record while it runs, and the kernel releases the lock however the process ends. A record
without a lock belongs to a demo that has ended, and every reader removes it. File names are never reused, so this
cannot remove the record of another demo.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from gpucost.core.errors import GpuCostError, InvalidInputError
from gpucost_devstack.aws import STACK


def records_folder() -> Path:
    """The folder of the records, in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpucost" / "demos"


@dataclass(frozen=True, slots=True)
class DemoRecord:
    """The addresses of a running demo."""

    port: int
    """The port of its API."""
    pid: int
    endpoint: str
    """Address of its embedded AWS."""
    dynamodb: str
    """Address of DynamoDB Local, which holds its table."""
    access_keys: dict[str, str] = field(default_factory=dict)
    """Access key IDs by function. Each function has its own permissions."""

    @property
    def stack(self) -> str:
        """The demo's name for `--stack`."""
        return f"{STACK}:{self.port}"


@contextmanager
def registered_demo(
    *, port: int, endpoint: str, dynamodb: str, access_keys: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Let other commands find the demo of this process until the end of the block."""
    folder = records_folder()
    folder.mkdir(parents=True, exist_ok=True)
    record = DemoRecord(port, os.getpid(), endpoint, dynamodb, dict(access_keys or {}))
    with tempfile.NamedTemporaryFile("w", dir=folder, prefix=f"{port}-", suffix=".new", delete=False) as file:
        path = Path(file.name)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            json.dump(asdict(record), file)
            file.flush()
            path = path.rename(path.with_suffix(".json"))  # visible from here on, already locked
            yield
        finally:
            path.unlink(missing_ok=True)


def running_demos() -> list[DemoRecord]:
    """The demos that run on this machine, by port. Records of demos that have ended are removed."""
    records = [record for path in sorted(records_folder().glob("*.json")) if (record := _read(path)) is not None]
    return sorted(records, key=lambda record: record.port)


def find_demo(stack: str) -> DemoRecord:
    """The demo for `--stack local` or `--stack local:PORT`.

    Raises:
        InvalidInputError: several run, or none on that port. The message lists the running ones.
        GpuCostError: none runs.
    """
    demos = running_demos()
    if not demos:
        raise GpuCostError("no demo is running on this machine; start one with: gpucost demo")
    chosen = demos if stack == STACK else [demo for demo in demos if demo.stack == stack]
    if len(chosen) == 1:
        return chosen[0]
    names = ", ".join(demo.stack for demo in demos)
    if not chosen:
        raise InvalidInputError(f"stack {stack!r} is not a running demo; running: {names}")
    raise InvalidInputError(f"{len(demos)} demos are running on this machine; name one with --stack: {names}")


def is_demo(stack: str) -> bool:
    """Whether a stack name refers to a demo on this machine: `local` or `local:PORT`."""
    return stack == STACK or stack.startswith(f"{STACK}:")


def _read(path: Path) -> DemoRecord | None:
    """Read a record. None if its demo has ended (the record is removed), or if the file has just disappeared."""
    try:
        with path.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _parse(file.read())
            path.unlink(missing_ok=True)
    except FileNotFoundError:
        pass
    return None


def _parse(text: str) -> DemoRecord | None:
    """Parse a record. None if another version of the product wrote it."""
    try:
        return DemoRecord(**json.loads(text))
    except (TypeError, ValueError):
        return None
