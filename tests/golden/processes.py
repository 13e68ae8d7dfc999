"""Starts and calls worker processes of the product."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

WORKER = Path(__file__).with_name("worker.py")
_PASSED_ON = ("PATH", "HOME", "LANG", "TMPDIR")


class Answer(NamedTuple):
    """A worker's answer: its result or error, and its output."""

    result: Any
    error: str
    message: str
    log: str


class Worker:
    """One process under a fixed clock.

    Args:
        *kind: `function`, `command` or `aws`, with a function's folder after it.
        root: the repository, or a copy, whose code it runs.
        now: the time at which it starts.
        environment: its variables.
    """

    def __init__(self, *kind: str, root: Path, now: datetime, environment: Mapping[str, str]) -> None:
        self._name = " ".join(kind)
        self._log = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(WORKER), kind[0], str(root), now.isoformat(), *kind[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={name: os.environ[name] for name in _PASSED_ON if name in os.environ}
            | {"COLUMNS": "200", "NO_COLOR": "1", **environment},
        )

    def ask(self, now: datetime, **request: Any) -> Answer:
        """Send a request that happens at a time, and wait for the answer.

        Raises:
            RuntimeError: the process ended.
        """
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError(f"{self._name} has no pipes")
        try:
            self._process.stdin.write(json.dumps({"now": now.isoformat(), **request}) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"{self._name} ended: {self._printed(0, None)[-2000:]}")
        answer = json.loads(line, parse_float=Decimal)
        log = self._printed(*answer["log"])
        return Answer(answer.get("result"), answer.get("error", ""), answer.get("message", ""), log)

    def _printed(self, begin: int, end: int | None) -> str:
        file = self._log.fileno()
        last = os.fstat(file).st_size if end is None else end
        return os.pread(file, last - begin, begin).decode(errors="replace")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._log.close()
