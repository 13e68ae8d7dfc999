"""Runs the product with a fixed clock: one JSON line on stdout for each JSON line on stdin.

    python -I worker.py function ROOT TIME FOLDER      # events for `functions/<FOLDER>/app.py`
    python -I worker.py command ROOT TIME              # arguments for the console script `gpucost`
    python -I worker.py aws ROOT TIME                  # moto's server; a request only moves its clock

Every request names the time at which it happens. The clock of the process stands still there, for `datetime.now`,
`time.time` and their C callers alike, so the product needs no clock of its own that tests could replace. Monotonic
clocks keep running. What the product prints comes back with the answer.

moto's own clock ticks, or its queues would never end a long poll, and is only moved forward, or they would hide messages.
"""

import importlib
import io
import json
import os
import sys
import time
import tomllib
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import time_machine

Request = dict[str, Any]


class Context:
    """The parts of Lambda's context that handlers read."""

    function_version = "$LATEST"
    memory_limit_in_mb = 512
    aws_request_id = "golden"

    def __init__(self, name: str, seconds: float = 900) -> None:
        self.function_name = name
        self.invoked_function_arn = f"arn:aws:lambda:local:000000000000:function:{name}"
        self._deadline = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> int:
        """Time left, in milliseconds."""
        return max(0, int((self._deadline - time.monotonic()) * 1000))


def load_function(root: Path, folder: str) -> Callable[[Request], Any]:
    """A function's handler, imported like Lambda does."""
    sys.path[:0] = [str(root / "functions" / folder), str(root / "layers" / "common")]
    handler = importlib.import_module("app").handler
    return lambda request: handler(request["event"], Context(folder))


def load_command(root: Path) -> Callable[[Request], Any]:
    """The command line's entry point from pyproject.toml."""
    sys.path[:0] = [str(root), str(root / "layers" / "common")]
    module, _, name = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]["gpucost"].partition(
        ":"
    )
    main = getattr(importlib.import_module(module), name)

    def run(arguments: list[str]) -> dict[str, Any]:
        out, err, status = io.StringIO(), io.StringIO(), 0
        sys.argv = ["gpucost", *arguments]
        with redirect_stdout(out), redirect_stderr(err):
            try:
                main()
            except SystemExit as end:
                status = int(end.code or 0)
        return {"status": status, "stdout": out.getvalue(), "stderr": err.getvalue()}

    return lambda request: in_child(lambda: run(request["arguments"]))


def in_child(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run a call in a forked process, so that it starts without caches but with all imports.

    This process imports what the child did, so that the next one need not.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        try:
            answer = call()
        except BaseException as error:  # the parent reports it
            answer = {"status": -1, "stdout": "", "stderr": f"{type(error).__name__}: {error}"}
        with os.fdopen(writer, "w") as pipe:
            pipe.write(json.dumps([answer, [*sys.modules]]))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    result: dict[str, Any]
    result, modules = json.loads(text)
    for name in modules:
        if name not in sys.modules:
            with suppress(ImportError):  # made by another module
                importlib.import_module(name)
    return result


def load_aws() -> Callable[[Request], Any]:
    """moto's server with the scenario's clock."""
    import logging

    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return lambda _: f"http://{host}:{port}"


def main() -> None:
    """Serve until stdin ends."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    kind, root, first, *folder = sys.argv[1:]
    ticks = kind == "aws"
    with time_machine.travel(datetime.fromisoformat(first), tick=ticks) as clock:
        loaders: dict[str, Callable[[], Callable[[Request], Any]]] = {
            "function": lambda: load_function(Path(root), folder[0]),
            "command": lambda: load_command(Path(root)),
            "aws": load_aws,
        }
        answer_to = loaders[kind]()
        for line in sys.stdin:
            request = json.loads(line)
            now = datetime.fromisoformat(request["now"])
            if not ticks or now > datetime.now(UTC):
                clock.move_to(now)
            begin = os.fstat(2).st_size
            try:
                answer = {"result": answer_to(request)}
            except Exception as error:
                traceback.print_exc()
                answer = {"error": type(error).__name__, "message": str(error)}
            sys.stdout.flush()
            sys.stderr.flush()
            answer["log"] = [begin, os.fstat(2).st_size]
            answers.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    main()
