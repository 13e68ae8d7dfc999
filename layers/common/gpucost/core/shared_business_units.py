"""Shared business units: their cost (operators, validators, monitoring) is distributed among the other units.

Each line of a shared unit becomes one line per receiving unit, so that every report adds up to the same total.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from gpucost.core.amounts import split_each
from gpucost.core.hour_record import Line

DistributionPolicy = Literal["proportional", "even"]
"""In proportion to the cost of the receivers' lines in the hour, or in equal parts."""


def distribute_lines(lines: Sequence[Line], policies: Mapping[str, DistributionPolicy]) -> list[Line]:
    """Distribute the lines of shared units among the other units that have lines in the hour.

    Without such a unit, the shared units keep their lines.

    Args:
        lines: all lines of a cluster-hour.
        policies: by the names of the shared units.

    Returns:
        Lines whose amounts have the same sums, to the last digit.
    """
    if not policies:
        return list(lines)
    costs: dict[str, int] = {}
    for line in lines:
        if line.business_unit not in policies:
            costs[line.business_unit] = costs.get(line.business_unit, 0) + (line.allocated_usd or 0)
    receivers = sorted(costs)
    if not receivers:
        return list(lines)
    by_cost = [costs[unit] for unit in receivers]
    evenly = [1] * len(receivers)
    weights = {"even": evenly, "proportional": by_cost if any(by_cost) else evenly}
    distributed: list[Line] = []
    for line in lines:
        if line.business_unit in policies:
            distributed.extend(_parts_of_line(line, receivers, weights[policies[line.business_unit]]))
        else:
            distributed.append(line)
    return distributed


def _parts_of_line(line: Line, receivers: Sequence[str], weights: Sequence[int]) -> list[Line]:
    """Split a line into parts; each part's `allocated` is the sum of its effective, waste and unmeasured."""
    effective_hours, effective = line.effective_gpu_hours or 0, line.effective_usd or 0
    is_priced, unmeasured = line.allocated_usd is not None, line.unmeasured_usd or 0
    waste_hours = line.allocated_gpu_hours - effective_hours - line.unmeasured_gpu_hours
    amounts = [
        effective_hours,
        waste_hours,
        line.unmeasured_gpu_hours,
        effective,
        (line.allocated_usd or 0) - effective - unmeasured,
        unmeasured,
        line.used_beyond_allocation_gpu_hours,
        line.energy_kwh or 0,
        line.energy_gpu_hours or 0,
        line.co2e_kg or 0,
    ]
    distributed = []
    for unit, parts in zip(receivers, zip(*split_each(amounts, weights), strict=True), strict=True):
        effective_hours, waste_hours, unmeasured_hours, effective, waste, unmeasured, beyond_allocation, *energy = parts
        energy_kwh, energy_hours, co2e_kg = energy
        distributed.append(
            line._replace(
                business_unit=unit,
                shared_from=line.business_unit,
                allocated_gpu_hours=effective_hours + waste_hours + unmeasured_hours,
                effective_gpu_hours=None if line.effective_gpu_hours is None else effective_hours,
                unmeasured_gpu_hours=unmeasured_hours,
                allocated_usd=effective + waste + unmeasured if is_priced else None,
                effective_usd=None if line.effective_usd is None else effective,
                waste_usd=None if line.waste_usd is None else waste,
                unmeasured_usd=unmeasured if is_priced else None,
                used_beyond_allocation_gpu_hours=beyond_allocation,
                energy_kwh=None if line.energy_kwh is None else energy_kwh,
                energy_gpu_hours=None if line.energy_gpu_hours is None else energy_hours,
                co2e_kg=None if line.co2e_kg is None else co2e_kg,
            )
        )
    return distributed
