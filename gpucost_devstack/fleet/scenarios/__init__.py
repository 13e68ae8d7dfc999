"""Realistic clusters: each a scenario with its true figures."""

from gpucost_devstack.fleet.scenario import Scenario
from gpucost_devstack.fleet.scenarios import (
    energy,
    gpu_fractions,
    labels,
    lifetimes,
    mixes,
    nodes,
    outages,
    partitions,
    processes,
    racks,
    sharing,
    slices,
    sources,
    units_owners_and_claims,
    vendors,
)


def all_scenarios() -> list[Scenario]:
    """All scenarios. Names are unique."""
    modules = (
        sharing,
        slices,
        lifetimes,
        nodes,
        outages,
        sources,
        labels,
        units_owners_and_claims,
        partitions,
        vendors,
        energy,
        mixes,
        processes,
        gpu_fractions,
        racks,
    )
    return [scenario for module in modules for scenario in module.scenarios()]
