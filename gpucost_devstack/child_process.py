"""Programs that end with the process that starts them, even if that process is killed and can end nothing itself."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_WATCHER = """
import os, signal, sys
sys.stdin.read()  # ends when the process at the other end of the pipe does
os.kill(int(sys.argv[1]), signal.SIGTERM)
"""


@contextmanager
def running_program(command: list[str], **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program until the end of the `with` block. Takes the options of `subprocess.Popen`."""
    process = subprocess.Popen(command, **options)
    with terminating_with_this_process(process.pid):
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


@contextmanager
def terminating_with_this_process(pid: int) -> Iterator[None]:
    """Terminate a process, or the group of processes `-pid`, if this process ends within the `with` block.

    A process waits for the end of this one. Linux could signal it, but means the thread that started the child.
    """
    command = [sys.executable, "-I", "-S", "-c", _WATCHER, str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True) as watcher:
        try:
            yield
        finally:
            watcher.kill()
