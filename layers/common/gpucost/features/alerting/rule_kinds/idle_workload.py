"""Idle workloads: GPUs that a workload holds at almost no utilization (*LowGPUUtilization* by workload).

Only measured utilization counts: lines whose utilization source is `pod`, `process` or `shared`. Utilization is
relative to the GPU-hours that were measured, so that a gap of the exporter makes no workload idle. An hour with less
than half of them measured is unknown, unless the use of the measured part is enough for the whole hour.
"""

from collections.abc import Iterable
from decimal import Decimal

from msgspec import Struct

from gpucost.core.amounts import Costs, to_decimal
from gpucost.core.costs_by_key import CostsByKey, sum_by_key
from gpucost.core.hour_record import Line
from gpucost.features.alerting.formatting import format_for_hours, format_gpus, rounded_percent
from gpucost.features.alerting.model import WastefulWorkload
from gpucost.features.alerting.subjects import Subject

MEASURED_UTILIZATION_SOURCES = frozenset({"pod", "process", "shared"})
MIN_MEASURED_SHARE = Decimal("0.5")
"""Part of an hour's GPU-hours that must be measured. A pod's startup alone, which counts as measured, is less."""
WorkloadKey = tuple[str, str, str]
"""Namespace, kind and name of a workload."""


class IdleThresholds(Struct, frozen=True):
    """At least this many GPUs, below this utilization."""

    min_gpus: Decimal
    utilization_percent: Decimal

    def breached_by(self, costs: Costs) -> bool | None:
        """Whether a workload is idle in an hour; None if less than half of its GPU-hours were measured."""
        allocated, used = to_decimal(costs.allocated_gpu_hours), to_decimal(costs.effective_gpu_hours)
        measured = allocated - to_decimal(costs.unmeasured_gpu_hours)
        if allocated < self.min_gpus:
            return False
        if measured < MIN_MEASURED_SHARE * allocated:
            return None if used * 100 < self.utilization_percent * allocated else False
        return used * 100 < self.utilization_percent * measured

    def can_be_breached_by(self, costs: Costs) -> bool:
        """Whether a business unit with these sums holds enough unused GPU-hours to have an idle workload."""
        unused = to_decimal(costs.allocated_gpu_hours - costs.effective_gpu_hours)
        return unused * 100 > self.min_gpus * (100 - self.utilization_percent)

    def describe(self, hours: int) -> str:
        """Describe the condition in plain text."""
        gpus = format_gpus(f"{self.min_gpus:f}")
        return f"≥ {gpus} with utilization < {self.utilization_percent:f}%, {format_for_hours(hours)}"


def sum_by_workload(lines: Iterable[Line]) -> CostsByKey[WorkloadKey]:
    """Sum lines by workload. Estimated utilization counts as unmeasured. A pod without an owner is a workload."""
    return sum_by_key((workload_of(line), _count_estimates_as_unmeasured(line)) for line in lines)


def workload_of(line: Line) -> WorkloadKey:
    """Return the workload that a line belongs to."""
    return (line.namespace, line.workload_kind or "Pod", line.workload or line.pod)


def top_wasters(lines: Iterable[Line], limit: int = 3) -> tuple[WastefulWorkload, ...]:
    """Return the workloads with the most measured waste."""
    ranked = sorted(sum_by_workload(lines).items(), key=lambda workload: (-workload[1].waste_usd, workload[0]))
    return tuple(
        WastefulWorkload(*key, to_decimal(costs.allocated_gpu_hours), to_decimal(costs.waste_usd))
        for key, costs in ranked[:limit]
        if costs.waste_usd > 0
    )


def workload_subject(cluster: str, unit: str, key: WorkloadKey) -> Subject:
    """Return a workload as the subject of an alert."""
    return Subject(cluster, unit, *key)


def notification_figures(costs: Costs) -> dict[str, Decimal | None]:
    """Return the figures of a notification."""
    measured = costs.allocated_gpu_hours - costs.unmeasured_gpu_hours
    return {
        "gpus": to_decimal(costs.allocated_gpu_hours),
        "utilization_percent": rounded_percent(costs.effective_gpu_hours, measured),
        "waste_usd_per_hour": None if costs.unpriced_gpu_hours else to_decimal(costs.waste_usd),
    }


def _count_estimates_as_unmeasured(line: Line) -> Costs:
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
    )
