"""The recorded scenarios. Each module creates a scenario's inputs, which are only needed for recording.

A module has `inputs()`, the scenario as `player.Player` takes it, and `write_metrics(folder)`, the OpenMetrics files
that a real Prometheus answers its queries from. Both are the same each time.
"""

import importlib
from typing import Any

NAMES = ("months", "fleet", "prices", "demo")
"""Scenario names, longest run first."""


def module(name: str) -> Any:
    """The module of a scenario."""
    return importlib.import_module(f"tests.golden.scenarios.{name}")
