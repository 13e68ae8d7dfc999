"""Idle cost: the cost of nodes that no pod's line carries, and how it is shared.

idle = unallocated + stranded + unobserved + host + residual, so that allocated + idle = node cost over a response.
It is shared within each cluster and period, in parts that sum to it exactly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, Literal, TypeVar

from gpucost.core.amounts import Costs, Idle, split_each

Share = TypeVar("Share")


@dataclass(frozen=True, slots=True)
class SharedIdle(Generic[Share]):
    """Shares of idle cost by holder; `unshared` is what remains if no holder has any allocation."""

    parts: Mapping[Share, Idle]
    unshared: Idle


def share_idle(
    idle: Idle,
    costs_by_holder: Mapping[Share, Costs],
    by: Literal["allocation", "even"],
    group_by_holder: Mapping[Share, object],
) -> SharedIdle[Share]:
    """Share idle cost among holders, exactly.

    Args:
        idle: of one cluster and period.
        costs_by_holder: allocated costs; all holders of idle costs.
        by: in proportion to allocated cost (GPU-hours if there are no prices), or evenly among groups.
        group_by_holder: for `even`; holders of one group share its part by allocation.
    """
    if not costs_by_holder:
        return SharedIdle({}, idle)
    holders = list(costs_by_holder)
    allocated = _allocation_weights([*costs_by_holder.values()])
    weights: Sequence[Fraction | int] = allocated
    if by == "even":
        weights = _evenly(allocated, [group_by_holder[holder] for holder in holders])
    if not any(weights):
        return SharedIdle({}, idle)
    gpu_hours, usd = split_each([idle.idle_gpu_hours, idle.idle_usd], weights)
    parts = {holder: Idle(*part) for holder, part in zip(holders, zip(gpu_hours, usd, strict=True), strict=True)}
    return SharedIdle(parts, Idle())


def _allocation_weights(costs: Sequence[Costs]) -> list[int]:
    for name in ("allocated_usd", "allocated_gpu_hours"):
        weights = [max(0, getattr(holder_costs, name)) for holder_costs in costs]
        if any(weights):
            return weights
    return [0 for _ in costs]


def _evenly(weights_held: Sequence[int], groups: Sequence[object]) -> list[Fraction]:
    members: dict[object, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    weights = [Fraction(0)] * len(weights_held)
    for indexes in members.values():
        group_total = sum(weights_held[index] for index in indexes)
        for index in indexes:
            weights[index] = Fraction(weights_held[index], group_total) if group_total else Fraction(1, len(indexes))
    return weights
