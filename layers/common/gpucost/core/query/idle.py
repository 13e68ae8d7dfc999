"""Idle cost: the cost of nodes that no pod's line carries, and how it is shared.

idle = unallocated + stranded + unobserved + host + residual, so that allocated + idle = node cost over a response.
It is shared within each cluster and period, in parts that sum to it exactly.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import TypeVar

from gpucost.core.amounts import Costs, Idle, split_each

Holder = TypeVar("Holder")


def share_idle(
    idle: Idle, costs_by_holder: Mapping[Holder, Costs], group_by_holder: Mapping[Holder, object] | None = None
) -> dict[Holder, Idle]:
    """Share idle cost among holders, exactly.

    Args:
        idle: of one cluster and period.
        costs_by_holder: allocated costs; all holders of idle costs.
        group_by_holder: to share evenly among groups; holders of one group share its part by allocation.

    Returns:
        Each holder's share, in proportion to allocated cost (GPU-hours if there are no prices) unless there are groups.
        Empty if no holder has any allocation: then all of it stays unshared.
    """
    allocated = _allocation_weights([*costs_by_holder.values()])
    weights: Sequence[Fraction | int] = allocated
    if group_by_holder is not None:
        weights = _even_weights(allocated, [group_by_holder[holder] for holder in costs_by_holder])
    if not any(weights):
        return {}
    gpu_hours, usd = split_each([idle.idle_gpu_hours, idle.idle_usd], weights)
    return dict(zip(costs_by_holder, map(Idle, gpu_hours, usd), strict=True))


def _allocation_weights(costs: Sequence[Costs]) -> list[int]:
    for name in ("allocated_usd", "allocated_gpu_hours"):
        weights = [max(0, getattr(holder_costs, name)) for holder_costs in costs]
        if any(weights):
            return weights
    return [0 for _ in costs]


def _even_weights(weights_held: Sequence[int], groups: Sequence[object]) -> list[Fraction]:
    members: dict[object, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    weights = [Fraction(0)] * len(weights_held)
    for indexes in members.values():
        group_total = sum(weights_held[index] for index in indexes)
        for index in indexes:
            weights[index] = Fraction(weights_held[index], group_total) if group_total else Fraction(1, len(indexes))
    return weights
