"""Idle workloads: so many GPUs held at next to no utilization (the usual *LowGPUUtilization*, by workload).

Only what was observed counts: lines of rung `shared` or better. Utilization is use over the GPU-hours that somebody
watched, so that an exporter's gap makes nobody idle.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from gpucost.core.model import Costs, Line
from gpucost.core.money import ZERO
from gpucost.features.alerting.formatting import for_hours, percent_of
from gpucost.features.alerting.model import Subject, TopWaster

MEASURED_SOURCES = frozenset({"pod", "shared"})
WorkloadKey = tuple[str, str, str]
"""Namespace, workload's kind and name."""


@dataclass(frozen=True, slots=True)
class IdleThresholds:
    """At least so many GPUs, below so much utilization."""

    gpus: Decimal
    utilization_percent: Decimal

    def breached_by(self, costs: Costs) -> bool | None:
        """Whether a workload is idle in an hour; None where nobody observed any of its use."""
        watched = costs.allocated_gpu_hours - costs.unmeasured_gpu_hours
        if costs.allocated_gpu_hours < self.gpus:
            return False
        if watched <= 0:
            return None
        return costs.effective_gpu_hours * 100 < self.utilization_percent * watched

    def can_be_breached_by(self, costs: Costs) -> bool:
        """Whether a unit with these sums can have such a workload at all: it would hold GPU-hours without use."""
        idle = costs.allocated_gpu_hours - costs.effective_gpu_hours
        return idle * 100 > self.gpus * (100 - self.utilization_percent)

    def describe(self, hours: int) -> str:
        """The rule as people read it."""
        return f"≥ {self.gpus:f} GPUs with utilization < {self.utilization_percent:f}%, {for_hours(hours)}"


def by_workload(lines: Iterable[Line]) -> Mapping[WorkloadKey, Costs]:
    """Lines summed by workload; of lines whose use is a guess, all is unmeasured. A pod without an owner is its own."""
    groups: dict[WorkloadKey, list[Costs]] = {}
    for line in lines:
        groups.setdefault(workload_of(line), []).append(_measured_costs(line))
    return {key: Costs.total(parts) for key, parts in groups.items()}


def workload_of(line: Line) -> WorkloadKey:
    """Which workload a line is part of."""
    return (line.namespace, line.workload_kind or "Pod", line.workload or line.pod)


def top_wasters(lines: Iterable[Line], most: int = 3) -> tuple[TopWaster, ...]:
    """The workloads that waste most money, by what was observed."""
    sums = by_workload(lines)
    ranked = sorted(sums.items(), key=lambda item: (-item[1].waste_usd, item[0]))
    return tuple(TopWaster(*key, c.allocated_gpu_hours, c.waste_usd) for key, c in ranked[:most] if c.waste_usd > 0)


def subject(cluster: str, unit: str, key: WorkloadKey) -> Subject:
    """A workload as what an alert is about."""
    return Subject(cluster, unit, *key)


def figures(costs: Costs) -> dict[str, Decimal | None]:
    """What a notification says of an hour."""
    watched = costs.allocated_gpu_hours - costs.unmeasured_gpu_hours
    return {
        "gpus": costs.allocated_gpu_hours,
        "utilization_percent": percent_of(costs.effective_gpu_hours, watched),
        "waste_usd_per_hour": None if costs.unpriced_gpu_hours else costs.waste_usd,
    }


def _measured_costs(line: Line) -> Costs:
    """What is known of a line's use. Waste without a signal is start-up, which was seen."""
    costs = line.costs()
    if line.utilization_source not in {"node", "cluster"}:
        return costs
    return Costs(
        allocated_gpu_hours=costs.allocated_gpu_hours,
        allocated_usd=costs.allocated_usd,
        unmeasured_usd=costs.allocated_usd,
        unmeasured_gpu_hours=costs.allocated_gpu_hours,
        unpriced_gpu_hours=costs.unpriced_gpu_hours,
        effective_gpu_hours=ZERO,
    )
