"""Idle workloads: GPUs that a workload holds at almost no utilization (*LowGPUUtilization* by workload).

Only measured utilization counts: lines whose utilization source is `pod` or `shared`. Utilization is relative to the
GPU-hours that were measured, so that a gap of the exporter makes no workload idle.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal

from gpucost.core.model import Costs, Line
from gpucost.core.money import ZERO
from gpucost.features.alerting.formatting import for_hours, percent_of
from gpucost.features.alerting.model import Subject, WastefulWorkload

MEASURED_SOURCES = frozenset({"pod", "shared"})
WorkloadKey = tuple[str, str, str]
"""Namespace, kind and name of a workload."""


@dataclass(frozen=True, slots=True)
class IdleThresholds:
    """At least this many GPUs, below this utilization."""

    gpus: Decimal
    utilization_percent: Decimal

    def breached_by(self, costs: Costs) -> bool | None:
        """Whether a workload is idle in an hour; None if its utilization was not measured."""
        measured = costs.allocated_gpu_hours - costs.unmeasured_gpu_hours
        if costs.allocated_gpu_hours < self.gpus:
            return False
        if measured <= 0:
            return None
        return costs.effective_gpu_hours * 100 < self.utilization_percent * measured

    def can_be_breached_by(self, costs: Costs) -> bool:
        """Whether a business unit with these sums holds enough unused GPU-hours to have an idle workload."""
        unused = costs.allocated_gpu_hours - costs.effective_gpu_hours
        return unused * 100 > self.gpus * (100 - self.utilization_percent)

    def describe(self, hours: int) -> str:
        """Describe the condition in plain text."""
        return f"≥ {self.gpus:f} GPUs with utilization < {self.utilization_percent:f}%, {for_hours(hours)}"


def by_workload(lines: Iterable[Line]) -> Mapping[WorkloadKey, Costs]:
    """Sum lines by workload. Estimated utilization counts as unmeasured. A pod without an owner is a workload."""
    groups: dict[WorkloadKey, list[Costs]] = {}
    for line in lines:
        groups.setdefault(workload_of(line), []).append(_measured_costs(line))
    return {key: Costs.total(costs) for key, costs in groups.items()}


def workload_of(line: Line) -> WorkloadKey:
    """Return the workload that a line belongs to."""
    return (line.namespace, line.workload_kind or "Pod", line.workload or line.pod)


def top_wasters(lines: Iterable[Line], limit: int = 3) -> tuple[WastefulWorkload, ...]:
    """Return the workloads with the most measured waste."""
    ranked = sorted(by_workload(lines).items(), key=lambda workload: (-workload[1].waste_usd, workload[0]))
    return tuple(
        WastefulWorkload(*key, costs.allocated_gpu_hours, costs.waste_usd)
        for key, costs in ranked[:limit]
        if costs.waste_usd > 0
    )


def subject(cluster: str, unit: str, key: WorkloadKey) -> Subject:
    """Return a workload as the subject of an alert."""
    return Subject(cluster, unit, *key)


def figures(costs: Costs) -> dict[str, Decimal | None]:
    """Return the figures of a notification."""
    measured = costs.allocated_gpu_hours - costs.unmeasured_gpu_hours
    return {
        "gpus": costs.allocated_gpu_hours,
        "utilization_percent": percent_of(costs.effective_gpu_hours, measured),
        "waste_usd_per_hour": None if costs.unpriced_gpu_hours else costs.waste_usd,
    }


def _measured_costs(line: Line) -> Costs:
    """Return a line's costs with estimated utilization as unmeasured. Waste during startup needs no signal."""
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
