"""Idle: what was paid for and no pod's line carries, and who is to bear it.

idle = unallocated + stranded + unobserved + host + residual of the identity (design §1), so that over a whole answer
allocated + idle = node cost. It is shared within each cluster and period, in parts that sum to it exactly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Generic, Literal, TypeVar

from gpucost.core.model import Amounts, Capacity, Costs
from gpucost.core.money import ZERO, split_each, to_fixed_point

Share = TypeVar("Share")


@dataclass(frozen=True, slots=True)
class Idle(Amounts):
    """What nobody held, or a part of it."""

    idle_gpu_hours: Decimal = ZERO
    idle_usd: Decimal = ZERO


def idle_of(capacity: Capacity) -> Idle:
    """What of a capacity nobody held."""
    return Idle(
        capacity.unallocated_gpu_hours + capacity.stranded_gpu_hours + capacity.unobserved_gpu_hours,
        capacity.unallocated_usd
        + capacity.stranded_usd
        + capacity.unobserved_usd
        + capacity.host_usd
        + capacity.residual_usd,
    )


@dataclass(frozen=True, slots=True)
class SharedIdle(Generic[Share]):
    """Parts of an idle cost by who bears them; `left` is what nobody can bear, for nobody holds anything."""

    parts: Mapping[Share, Idle]
    unshared: Idle


def share_idle(
    idle: Idle, holders: Mapping[Share, Costs], by: Literal["allocation", "even"], groups: Mapping[Share, object]
) -> SharedIdle[Share]:
    """Share idle among holders, exactly.

    Args:
        idle: of one cluster and period.
        holders: what each holds there.
        by: by what is allocated to each, in money, or in GPU-hours where nothing has a price; or evenly among groups,
            whatever they hold.
        groups: of each holder; several of one group share its part by what they hold.
    """
    if not holders:
        return SharedIdle({}, idle)
    names = list(holders)
    weights = _held([holders[name] for name in names])
    if by == "even":
        weights = _evenly(weights, [groups[name] for name in names])
    if not any(weights):
        return SharedIdle({}, idle)
    gpu_hours, usd = split_each([idle.idle_gpu_hours, idle.idle_usd], weights)
    parts = {name: Idle(*part) for name, part in zip(names, zip(gpu_hours, usd, strict=True), strict=True)}
    return SharedIdle(parts, Idle())


def _held(costs: Sequence[Costs]) -> list[Fraction]:
    for name in ("allocated_usd", "allocated_gpu_hours"):
        weights = [Fraction(max(0, to_fixed_point(getattr(holder_costs, name)))) for holder_costs in costs]
        if any(weights):
            return weights
    return [Fraction(0) for _ in costs]


def _evenly(weights_held: Sequence[Fraction], groups: Sequence[object]) -> list[Fraction]:
    members: dict[object, list[int]] = {}
    for index, group in enumerate(groups):
        members.setdefault(group, []).append(index)
    weights = [Fraction(0)] * len(weights_held)
    for indexes in members.values():
        group_total = sum(weights_held[index] for index in indexes)
        for index in indexes:
            weights[index] = weights_held[index] / group_total if group_total else Fraction(1, len(indexes))
    return weights
