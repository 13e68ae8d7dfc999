"""Clusters as they are found: each a scenario with its truth."""

from local.fleet.scenario import Scenario
from local.fleet.scenarios import clusters, labels, lives, mixes, outages, sharing


def all_scenarios() -> list[Scenario]:
    """Every scenario, each under a name of its own."""
    rooms = (sharing, lives, outages, labels, clusters, mixes)
    return [scenario for room in rooms for scenario in room.scenarios()]
