"""Structured logs with a correlation id, and CloudWatch metrics in the embedded metric format (EMF).

CloudWatch bills each series of a metric. Therefore metrics have only the stack's and the function's name as dimensions:
figures of the fleet are metrics, figures of a cluster are in the log.
"""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from aws_lambda_powertools import Logger
from aws_lambda_powertools.metrics import Metrics

METRICS_NAMESPACE = "GpuCost"

logger = Logger(stream=sys.stdout if "AWS_LAMBDA_FUNCTION_NAME" in os.environ else sys.stderr)
"""Functions log to stdout. Commands log to stderr, because their stdout contains results."""
metrics = Metrics(namespace=METRICS_NAMESPACE)
if stack := os.environ.get("GPUCOST_STACK"):  # two stacks in an account and region must not share alarms
    metrics.set_default_dimensions(stack=stack)


class Tally:
    """Counts what one invocation uses, such as queries; the handler publishes the sums as metrics."""

    def __init__(self) -> None:
        self._amounts: dict[str, float] = {}
        self._lock = Lock()  # queries run in several threads

    def add(self, name: str, amount: float) -> None:
        """Add an amount to a metric."""
        with self._lock:
            self._amounts[name] = self._amounts.get(name, 0.0) + amount

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds that the block takes to a metric."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add(name, time.monotonic() - started)

    def drain(self) -> dict[str, float]:
        """Return the sums since the last call and reset them."""
        with self._lock:
            amounts, self._amounts = self._amounts, {}
        return amounts


tally = Tally()


def log_missing_settings() -> None:
    """Log that there is nothing to do before the first `gpucost settings push`."""
    logger.warning("no settings have been pushed yet: nothing to do until `gpucost settings push`")
