"""Announces an embedded AWS to the command line as a running demo."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

from gpucost_devstack.demo_records import registered_demo
from gpucost_devstack.template import REPOSITORY


@contextmanager
def announced_in(folder: Path, endpoint: str) -> Iterator[None]:
    """Announce it to this process and those that it starts, with the folder as XDG_CACHE_HOME."""
    with (
        patch.dict(os.environ, XDG_CACHE_HOME=str(folder)),
        registered_demo(port=1, endpoint=endpoint, dynamodb=endpoint),
    ):
        yield


ANNOUNCE = """
import sys
from gpucost_devstack.demo_records import registered_demo
port = int(sys.argv[1])
with registered_demo(port=port, endpoint="http://127.0.0.1:9", dynamodb="http://127.0.0.1:9"):
    print("announced", flush=True)
    sys.stdin.read()
"""


@contextmanager
def another_demo(folder: Path, port: int) -> Iterator["subprocess.Popen[str]"]:
    """A process that has announced a demo."""
    with subprocess.Popen(
        [sys.executable, "-c", ANNOUNCE, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "XDG_CACHE_HOME": str(folder)},
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == "announced\n"
        yield process
