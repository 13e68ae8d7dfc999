"""What is recorded. Each module makes a scenario's inputs; they are needed for recording alone.

A module has `inputs()`, the scenario as `player.Player` takes it, and `write_metrics(folder)`, the OpenMetrics files
that a real Prometheus answers its queries from. Both are the same each time. Names in them are those of the day of the recording:
`renamed.yaml` translates them.
"""

import importlib
from typing import Any

NAMES = ("months", "fleet", "prices", "demo")
"""The longest first."""


def module(name: str) -> Any:
    """The module of a scenario."""
    return importlib.import_module(f"tests.golden.scenarios.{name}")
