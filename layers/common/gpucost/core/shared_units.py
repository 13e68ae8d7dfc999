"""Shared units: what nobody owns alone (operators, validators, monitoring) is paid by the others, by a policy.

Each line of a shared unit becomes one line per receiving unit, so that every report sums up the same way.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

from gpucost.core.model import Line
from gpucost.core.money import ZERO, split_each

DistributionPolicy = Literal["proportional", "even"]
"""By what the receivers' own lines cost in the hour, or the same for each."""


def distribute_lines(lines: Sequence[Line], policies: Mapping[str, DistributionPolicy]) -> list[Line]:
    """Pass the lines of shared units on to the units that have lines of their own in the hour.

    Where there is no such unit, the shared unit keeps what it cost.

    Args:
        lines: all of a cluster-hour.
        policies: by the shared units' names.

    Returns:
        Lines with the same sums, to the last digit, of every amount.
    """
    if not policies:
        return list(lines)
    costs: dict[str, Fraction] = {}
    for line in lines:
        if line.business_unit not in policies:
            costs[line.business_unit] = costs.get(line.business_unit, Fraction(0)) + Fraction(line.allocated_usd or 0)
    receivers = sorted(costs)
    if not receivers:
        return list(lines)
    by_cost = [costs[unit] for unit in receivers]
    evenly = [Fraction(1)] * len(receivers)
    weights = {"even": evenly, "proportional": by_cost if any(by_cost) else evenly}
    found: list[Line] = []
    for line in lines:
        if line.business_unit in policies:
            found.extend(_parts(line, receivers, weights[policies[line.business_unit]]))
        else:
            found.append(line)
    return found


def _parts(line: Line, receivers: Sequence[str], weights: Sequence[Fraction]) -> list[Line]:
    """A line in parts; each part's `allocated` is the sum of its own effective, waste and unmeasured."""
    effective_hours, effective = line.effective_gpu_hours or ZERO, line.effective_usd or ZERO
    is_priced, unmeasured = line.allocated_usd is not None, line.unmeasured_usd or ZERO
    wasted_hours = line.allocated_gpu_hours - effective_hours - line.unmeasured_gpu_hours
    amounts = [
        effective_hours,
        wasted_hours,
        line.unmeasured_gpu_hours,
        effective,
        (line.allocated_usd or ZERO) - effective - unmeasured,
        unmeasured,
        line.used_beyond_allocation_gpu_hours,
    ]
    parts = split_each(amounts, weights)
    return [
        line._replace(
            business_unit=unit,
            shared_from=line.business_unit,
            allocated_gpu_hours=used_hours + idle_hours + unseen_hours,
            effective_gpu_hours=None if line.effective_gpu_hours is None else used_hours,
            unmeasured_gpu_hours=unseen_hours,
            allocated_usd=used + idle + unseen if is_priced else None,
            effective_usd=None if line.effective_usd is None else used,
            waste_usd=None if line.waste_usd is None else idle,
            unmeasured_usd=unseen if is_priced else None,
            used_beyond_allocation_gpu_hours=beyond,
        )
        for unit, used_hours, idle_hours, unseen_hours, used, idle, unseen, beyond in zip(
            receivers, *parts, strict=True
        )
    ]
