"""One way to log and to count: structured logs with a correlation id, and CloudWatch metrics in the log (EMF).

CloudWatch bills each series of a metric, so that none has a dimension beyond the stack's and the function's name: a
fleet's figures are metrics, a cluster's are in the log.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import Metrics

NAMESPACE = "GpuCost"

logger = Logger()
metrics = Metrics(namespace=NAMESPACE)
if stack := os.environ.get("GPUCOST_STACK"):  # two stacks in an account and region must not ring each other's alarms
    metrics.set_default_dimensions(stack=stack)


class Tally:
    """What one invocation spends, added up where it is spent and published by its handler."""

    def __init__(self) -> None:
        self._amounts: dict[str, float] = {}
        self._lock = Lock()  # queries are sent side by side

    def add(self, name: str, amount: float) -> None:
        """Count something under a metric's name."""
        with self._lock:
            self._amounts[name] = self._amounts.get(name, 0.0) + amount

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Count the seconds that a step takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - began)

    def taken(self) -> dict[str, float]:
        """Everything counted since the last call."""
        with self._lock:
            amounts, self._amounts = self._amounts, {}
        return amounts


tally = Tally()
