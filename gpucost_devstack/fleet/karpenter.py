"""Metrics of Karpenter's controller for a scenario: usage of each node pool, as of version 1.x.

`resource_type` keeps its dot and slash here, unlike kube-state-metrics' `resource`.
"""

import itertools
import math
from collections.abc import Iterator

from gpucost_devstack.fleet.scenario import Minutes, Scenario
from gpucost_devstack.fleet.scraping import Scraping
from gpucost_devstack.fleet.series import SimulatedSeries, constant

SCRAPING = Scraping("karpenter", "10.0.0.20:8080")
GPU_LIMIT = 64


def series(scenario: Scenario) -> Iterator[SimulatedSeries]:
    """GPUs used, and their limit, for each node pool in the nodes' labels. A part of a GPU is one device."""
    pools: dict[str, list[tuple[Minutes, Minutes, int]]] = {}
    for node in scenario.nodes:
        pool = node.labels.get("karpenter_sh_nodepool")
        if pool:
            pools.setdefault(pool, []).append((*node.lifetime, math.ceil(node.gpus)))
    times = SCRAPING.successful_times(scenario.start, scenario.end)
    target_labels = {"job": SCRAPING.job, "instance": SCRAPING.instance, "resource_type": "nvidia.com/gpu"}
    for pool, intervals in pools.items():
        edges = sorted({scenario.start, scenario.end, *(edge for start, end, _ in intervals for edge in (start, end))})
        usage = [
            sample
            for since, until in itertools.pairwise(edges)
            for sample in constant(times, since, until, sum(gpus for a, b, gpus in intervals if a <= since < b))
        ]
        yield SimulatedSeries("karpenter_nodepools_usage", {"nodepool": pool, **target_labels}, usage)
        yield SimulatedSeries(
            "karpenter_nodepools_limit",
            {"nodepool": pool, **target_labels},
            constant(times, edges[0], edges[-1], GPU_LIMIT),
        )
