"""The recorded scenarios. Each module creates a scenario's inputs, which are only needed for recording.

A module has `inputs()`, the scenario as `player.Player` takes it, and `write_metrics(folder)`, the OpenMetrics files
that a real Prometheus answers its queries from. Both are the same each time. Names in them
are those of the day of the recording: `renamed.yaml` translates them.
"""

import importlib
from dataclasses import replace
from typing import Any

from gpucost_devstack.fleet.scenario import Scenario
from tests.golden.renames import Renames

NAMES = ("months", "fleet", "prices", "demo")
"""Scenario names, longest run first."""


def module(name: str) -> Any:
    """The module of a scenario."""
    return importlib.import_module(f"tests.golden.scenarios.{name}")


def as_recorded(scenario: Scenario) -> Scenario:
    """A simulated cluster under the names that it and its pods had when it was recorded."""
    renames = Renames()
    clusters, pods = renames.names("clusters"), renames.names("pods")
    return replace(
        scenario,
        name=clusters.old((), scenario.name),
        pods=[replace(pod, name=pods.old((), pod.name)) for pod in scenario.pods],
    )
