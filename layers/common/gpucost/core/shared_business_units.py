"""Shared business units: their cost (operators, validators, monitoring) is distributed among the other units.

Each line of a shared unit becomes one line per receiving unit, so that every report adds up to the same total.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal

from gpucost.core.amounts import split_each
from gpucost.core.hour_record import LINE_AMOUNTS, Line

DistributionPolicy = Literal["proportional", "even"]
"""In proportion to the cost of the receivers' lines in the hour, or in equal parts."""
_SPLIT_AMOUNTS = tuple(name for name in LINE_AMOUNTS if name not in {"allocated_gpu_hours", "allocated_usd"})
"""The amounts of a line that are split; allocated is the sum of its parts."""
_split_amounts: Callable[[Line], tuple[int | None, ...]] = attrgetter(*_SPLIT_AMOUNTS)


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
    amounts = dict(zip(_SPLIT_AMOUNTS, _split_amounts(line), strict=True))
    waste_hours = line.allocated_gpu_hours - (line.effective_gpu_hours or 0) - line.unmeasured_gpu_hours
    columns = split_each([waste_hours, *(amount or 0 for amount in amounts.values())], weights)
    distributed = []
    for unit, (waste_hours, *parts) in zip(receivers, zip(*columns, strict=True), strict=True):
        part = dict(zip(_SPLIT_AMOUNTS, parts, strict=True))
        allocated_usd = part["effective_usd"] + part["waste_usd"] + part["unmeasured_usd"]
        other_amounts: dict[str, Any] = {
            name: None if amounts[name] is None else amount for name, amount in part.items()
        }
        distributed.append(
            line._replace(
                business_unit=unit,
                shared_from=line.business_unit,
                allocated_gpu_hours=part["effective_gpu_hours"] + waste_hours + part["unmeasured_gpu_hours"],
                allocated_usd=None if line.allocated_usd is None else allocated_usd,
                **other_amounts,
            )
        )
    return distributed
