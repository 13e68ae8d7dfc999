"""The demos that run on this machine: each has a record of its own, which names its embedded AWS.

A demo holds a lock on its record as long as it lives, and the kernel lets go of it however the process ends: a record
without its lock is a dead demo's, and whoever sees it removes it. A record's name is never used again, so that this
takes no other demo's away.
"""

import fcntl
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from devstack.aws import STACK
from gpucost.core.errors import GpuCostError, InvalidInputError

RECORDS = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpucost" / "demos"


@dataclass(frozen=True, slots=True)
class DemoRecord:
    """How a running demo is reached."""

    port: int
    """Of its API."""
    pid: int
    endpoint: str
    """Address of its embedded AWS."""
    dynamodb: str
    """Address of the engine that holds its table."""
    access_keys: dict[str, str] = field(default_factory=dict)
    """Access key ids of its functions, by name: each has its own permissions."""

    @property
    def stack(self) -> str:
        """What `--stack` calls it."""
        return f"{STACK}:{self.port}"


@contextmanager
def announced(
    *, port: int, endpoint: str, dynamodb: str, access_keys: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Let other commands find the demo of this process until the end of the block."""
    RECORDS.mkdir(parents=True, exist_ok=True)
    record = DemoRecord(port, os.getpid(), endpoint, dynamodb, dict(access_keys or {}))
    with tempfile.NamedTemporaryFile("w", dir=RECORDS, prefix=f"{port}-", suffix=".new", delete=False) as file:
        path = Path(file.name)
        try:
            fcntl.flock(file, fcntl.LOCK_EX)
            json.dump(asdict(record), file)
            file.flush()
            path = path.rename(path.with_suffix(".json"))  # from here on it is seen, with its lock
            yield
        finally:
            path.unlink(missing_ok=True)


def running_demos() -> list[DemoRecord]:
    """The demos that run on this machine, by port; records of dead ones are removed."""
    records = [record for path in sorted(RECORDS.glob("*.json")) if (record := _read(path)) is not None]
    return sorted(records, key=lambda record: record.port)


def find_demo(stack: str) -> DemoRecord:
    """The demo that `--stack local` or `--stack local:PORT` means.

    Raises:
        InvalidInputError: several run, or none on that port; lists those that do.
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
    """Whether a stack's name means a demo of this machine: `local` or `local:PORT`."""
    return stack == STACK or stack.startswith(f"{STACK}:")


def _read(path: Path) -> DemoRecord | None:
    """A record; None for a dead demo's, which is removed, and for one that has just gone."""
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
    """A record; None for that of another version of this product, whose demo cannot be reached from here."""
    try:
        return DemoRecord(**json.loads(text))
    except (TypeError, ValueError):
        return None
