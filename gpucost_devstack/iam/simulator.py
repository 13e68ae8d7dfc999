"""Evaluates IAM requests with `@cloud-copilot/iam-simulate`, which runs in a Node process."""

import atexit
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any

from gpucost.core.errors import GpuCostError
from gpucost_devstack.installation import find_program, node_package_folder

FOLDER = Path(__file__).parent
MAX_PIPELINED_REQUESTS = 100
"""Simulations sent before their results are read. More could fill both pipes and deadlock."""


class Simulator:
    """One Node process. Evaluating a request takes about 0.3 ms."""

    def __init__(self) -> None:
        node = find_program("node")
        self._lock = Lock()
        self._process = subprocess.Popen(
            [node, str(node_package_folder(FOLDER) / "evaluate.mjs")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.stop)

    def allows(self, simulations: Sequence[Mapping[str, Any]]) -> list[bool]:
        """Evaluate simulations in the library's format.

        Raises:
            GpuCostError: an action does not exist, or a policy is invalid.
        """
        with self._lock:
            answers = [answer for batch in _batches_to_pipeline(simulations) for answer in self._evaluate(batch)]
        for answer, simulation in zip(answers, simulations, strict=True):
            if "error" in answer:
                raise GpuCostError(f"IAM cannot evaluate {simulation['request']}: {answer['error']}")
        return [answer["result"] == "Allowed" for answer in answers]

    def stop(self) -> None:
        """End the process."""
        atexit.unregister(self.stop)
        if self._process.stdin and self._process.stdout:
            self._process.stdin.close()
            self._process.wait()
            self._process.stdout.close()

    def _evaluate(self, batch: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        if self._process.stdin is None or self._process.stdout is None:
            raise GpuCostError("the IAM simulator has no pipes")
        self._process.stdin.writelines(json.dumps(simulation) + "\n" for simulation in batch)
        self._process.stdin.flush()
        lines = [self._process.stdout.readline() for _ in batch]
        if not all(lines):
            raise GpuCostError(f"the IAM simulator ended with status {self._process.wait()}")
        return [json.loads(line) for line in lines]


def _batches_to_pipeline(simulations: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[Mapping[str, Any]]]:
    for start in range(0, len(simulations), MAX_PIPELINED_REQUESTS):
        yield simulations[start : start + MAX_PIPELINED_REQUESTS]


@cache
def simulator() -> Simulator:
    """The simulator of this process."""
    return Simulator()
