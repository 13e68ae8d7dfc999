"""Shared business units: their cost is distributed to the other units by a policy."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from gpucost_devstack.fleet.builders import gpu_node, time_sliced_geometry, whole_gpus_geometry
from gpucost_devstack.fleet.scenario import GPU, Node, Pod, Scenario
from gpucost_devstack.fleet.scenarios.sharing import constant_use, container_request

_PLATFORM_UNIT = "{{name: platform, namespaces: [gpu-operator, monitoring]{policy}}}"
_RESEARCH_UNIT = "{name: research, namespaces: ['research-*']}"


@dataclass(frozen=True)
class ClusterWithSharedUnit:
    """A simulated cluster with a shared business unit, and the true allocation shares of its cost."""

    scenario: Scenario
    allocation_shares: Mapping[str, Fraction]
    """Shares of `platform`'s cost by the business unit that bears it; empty if it is not distributed."""


def clusters_with_shared_units() -> list[ClusterWithSharedUnit]:
    """Clusters for every distribution policy and its edge cases."""
    n = gpu_node("n1", "h100", whole_gpus_geometry("h100"))
    t4 = gpu_node("n2", "t4", time_sliced_geometry("t4", 3))
    system = [
        Pod("validator", n, [0], constant_use("0.25"), namespace="gpu-operator"),
        Pod("dcgm-probe", t4, [0], constant_use("0.3"), namespace="monitoring"),
    ]
    tenants = [
        Pod("train", n, [1, 2, 3], constant_use("0.7"), namespace="research-nlp", requests=container_request(GPU, 3)),
        Pod("chat", n, [4], constant_use("0.5"), namespace="chat"),
        Pod("share", t4, [0], constant_use("0.2"), namespace="chat"),
    ]
    # research holds 3 GPUs, chat 1 and a third: 9/13 and 4/13 of what the tenants cost.
    by_cost = {"research": Fraction(9, 13), "chat": Fraction(4, 13)}
    evenly = {"research": Fraction(1, 2), "chat": Fraction(1, 2)}
    return [
        _cluster_with_shared_unit(
            "shared-proportional", [n, t4], [*system, *tenants], ", distribute: proportional", by_cost
        ),
        _cluster_with_shared_unit("shared-even", [n, t4], [*system, *tenants], ", distribute: even", evenly),
        _cluster_with_shared_unit("shared-without-tenants", [n, t4], system, ", distribute: proportional", {}),
        _cluster_with_shared_unit("shared-not", [n, t4], [*system, *tenants], "", {}),
    ]


def _cluster_with_shared_unit(
    name: str, nodes: list[Node], pods: list[Pod], policy: str, parts: Mapping[str, Fraction]
) -> ClusterWithSharedUnit:
    settings = f"business_units: [{_PLATFORM_UNIT.format(policy=policy)}, {_RESEARCH_UNIT}]\n"
    return ClusterWithSharedUnit(Scenario(name, nodes, pods, settings=settings), parts)
