"""What takes long to make, is made once in a run of the tests, by the process that needs it first."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """A folder that all processes of a run share. Others wait while one makes it, and only read it.

    Args:
        factory: of this process.
        name: of the folder.
        make: fills the new folder.
    """
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder, complete = shared / name, shared / f"{name}-complete"
    with (shared / f"{name}-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder
