"""Runs `gpucost` in processes that are forked from one with its imports, which are most of a short command's time.

Each command has its own process, arguments, environment, folder and output, as with the console script. Terminals, the
documentation's shell and the demo run the script itself.
"""

import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

SCRIPT = Path(__file__).parents[1] / ".venv" / "bin" / "gpucost"
SECONDS = 300
"""After these, a command is killed."""


def run(
    *arguments: str | Path, env: Mapping[str, str], cwd: str | Path | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run the command line to its end, without a standard input."""
    with tempfile.TemporaryDirectory(prefix="gpucost-command-") as folder:
        request = {
            "arguments": [*map(str, arguments)],
            "environment": dict(env),
            "cwd": str(cwd or Path.cwd()),
            "folder": folder,
        }
        answer = _ask(request)
        if not answer and not (Path(folder) / "out").exists():  # the process ended before the command began
            stop()
            answer = _ask(request)
        status = int(answer)
        out, err = ((Path(folder) / name).read_text(encoding="utf-8") for name in ("out", "err"))
    return subprocess.CompletedProcess([str(SCRIPT), *map(str, arguments)], status, out, err)


def _ask(request: Mapping[str, object]) -> str:
    """Send a request, and return the status; "" if the process that forks ended."""
    server = _server()
    assert server.stdin is not None and server.stdout is not None
    with suppress(BrokenPipeError):
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
    return server.stdout.readline()


@cache
def _server() -> "subprocess.Popen[str]":
    """The process that forks, which ends with this one."""
    command = [str(SCRIPT.with_name("python")), "-P", __file__]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=SCRIPT.parents[2],
        start_new_session=True,  # Ctrl-C on a terminal of a test does not end it
    )


def stop() -> None:
    """End the process that forks, if it runs."""
    if _server.cache_info().currsize:
        server = _server()
        _server.cache_clear()
        with suppress(BrokenPipeError), server:  # closes its pipes, and waits for its end
            pass


def serve() -> None:
    """Run the commands that arrive as lines of the standard input, until it ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    importlib.import_module("gpucost_cli.main")
    for line in sys.stdin:
        request = json.loads(line)
        gc.freeze()  # otherwise a child copies all pages of the heap
        child = os.fork()
        if not child:
            answers.close()
            _become(request)
            return
        _, status = os.waitpid(child, 0)
        answers.write(f"{os.waitstatus_to_exitcode(status)}\n")
        _import_as(Path(request["folder"]) / "modules")


def _become(request: dict[str, object]) -> None:
    """Run a command in this forked process."""
    folder = str(request["folder"])
    for descriptor, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, f"{folder}/out", os.O_WRONLY | os.O_CREAT),
        (2, f"{folder}/err", os.O_WRONLY | os.O_CREAT),
    ):
        opened = os.open(path, flags)
        os.dup2(opened, descriptor)
        os.close(opened)
    environment = request["environment"]
    assert isinstance(environment, dict)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    os.chdir(str(request["cwd"]))
    sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115 - descriptors
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115 - a descriptor
    arguments = request["arguments"]
    assert isinstance(arguments, list)
    sys.argv = [str(SCRIPT), *arguments]
    signal.alarm(SECONDS)
    try:
        sys.exit(importlib.import_module("gpucost_cli.main").main())
    finally:
        (Path(folder) / "modules").write_text(json.dumps([*sys.modules]))


def _import_as(path: Path) -> None:
    """Import what a command did, so that the next one need not."""
    if path.is_file():
        for name in json.loads(path.read_text()):
            if name not in sys.modules:
                with suppress(Exception, SystemExit):  # the command that needs it will see the error
                    importlib.import_module(name)


if __name__ == "__main__":
    serve()
