"""Clusters as they are found: each a scenario with its truth."""

from devstack.fleet.scenario import Scenario
from devstack.fleet.scenarios import clusters, labels, lifetimes, mixes, nodes, outages, sharing, slices, sources


def all_scenarios() -> list[Scenario]:
    """Every scenario, each under a name of its own."""
    rooms = (sharing, slices, lifetimes, nodes, outages, sources, labels, clusters, mixes)
    return [scenario for room in rooms for scenario in room.scenarios()]
