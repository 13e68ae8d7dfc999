"""Runs each Lambda function of the template in its own process and environment."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from gpucost.core.errors import GpuCostError

WORKER = Path(__file__).with_name("lambda_worker.py")
_INHERITED_VARIABLES = ("PATH", "HOME", "LANG", "TMPDIR", "LD_PRELOAD", "CLOCK_OFFSET")
"""The last two set a clock (`scripts/clocks.py`), without which signatures would have expired."""


class FunctionError(GpuCostError):
    """A function raised. Lambda would report a failed invocation."""


class LocalFunction:
    """One function's process.

    Args:
        name: for its logs.
        handler: `module.function`.
        folders: its import path, before the interpreter's own.
        environment: its environment variables.
        interpreter: the Python that runs it.
        isolated: exclude the interpreter's site-packages, as for built artifacts.
    """

    def __init__(
        self,
        name: str,
        handler: str,
        folders: Sequence[Path],
        environment: Mapping[str, str],
        *,
        interpreter: str = sys.executable,
        isolated: bool = False,
    ) -> None:
        self.name = name
        self._lock = Lock()
        flags = ["-I", "-S"] if isolated else ["-I"]
        self._command = [interpreter, *flags, str(WORKER), handler, *map(str, folders)]
        self._environment = {"AWS_LAMBDA_FUNCTION_NAME": name, **environment}
        self._start()

    def _start(self) -> None:
        self._log = tempfile.TemporaryFile(mode="w+", prefix=f"gpucost-{self.name}-")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={key: os.environ[key] for key in _INHERITED_VARIABLES if key in os.environ} | self._environment,
        )
        self._ready = False

    def restart(self) -> None:
        """Start a new process with empty caches, like a new execution environment of Lambda."""
        self.stop()
        self._start()

    def invoke(self, event: Mapping[str, Any]) -> Any:
        """Send an event and wait for the answer.

        Raises:
            FunctionError: the function raised, or its process died.
        """
        with self._lock:
            if not self._ready:
                self._read()
                self._ready = True
            self._write(json.dumps(event))
            answer = self._read()
        if "error" in answer:
            raise FunctionError(f"{self.name}: {answer['error']}")
        return answer["result"]

    def log(self) -> str:
        """The function's log so far."""
        self._log.seek(0)
        return self._log.read()

    def stop(self) -> None:
        """End the process."""
        if self._process.stdin:
            self._process.stdin.close()
        self._process.terminate()
        self._process.wait()
        if self._process.stdout:
            self._process.stdout.close()
        self._log.close()

    def _write(self, line: str) -> None:
        if self._process.stdin is None or self._process.poll() is not None:
            raise FunctionError(f"{self.name} is not running: {self.log()[-500:]}")
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _read(self) -> dict[str, Any]:
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise FunctionError(f"{self.name} ended: {self.log()[-500:]}")
        answer: dict[str, Any] = json.loads(line)
        return answer
