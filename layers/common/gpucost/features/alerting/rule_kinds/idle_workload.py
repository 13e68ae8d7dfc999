"""Idle workloads: GPUs that a workload holds at almost no utilization (*LowGPUUtilization* by workload).

Only measured utilization counts: lines whose utilization source is `pod`, `process` or `shared`. Utilization is
relative to the GPU-hours that were measured, so that a gap of the exporter makes no workload idle. An hour with less
than half of them measured is unknown, unless the use of the measured part is enough for the whole hour.
"""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

from gpucost.core.amounts import Costs, to_decimal
from gpucost.core.costs_by_key import CostsByKey, sum_by_key
from gpucost.core.hour_record import ESTIMATED_SOURCES, Line
from gpucost.features.alerting.formatting import FigureFormatter, format_for_hours, format_gpus, rounded_percent
from gpucost.features.alerting.rule_kinds.base import (
    DurationHours,
    Figure,
    Finding,
    HourRule,
    RuleOverride,
    Subject,
    WastefulWorkload,
)
from gpucost.settings.section import Percent, Positive

if TYPE_CHECKING:
    from gpucost.features.alerting.evaluation import HourFigures
    from gpucost.features.alerting.model import Alert

MIN_MEASURED_SHARE = Decimal("0.5")
"""Part of an hour's GPU-hours that must be measured. A pod's startup alone, which counts as measured, is less."""
WorkloadKey = tuple[str, str, str]
"""Namespace, kind and name of a workload."""


class IdleWorkloadOverride(RuleOverride):
    """Other thresholds of an idle-workload rule."""

    example = """
    namespace: "notebooks-*"
    for_hours: 2
    """

    gpus: Positive | None = None
    """The fewest physical GPUs, in place of the rule's."""
    utilization_percent: Percent | None = None
    """The utilization in percent, in place of the rule's."""
    for_hours: DurationHours | None = None
    """Hours in a row, in place of the rule's."""


class IdleWorkloadRule(HourRule):
    """Fires when a workload holds a minimum number of GPUs below a utilization."""

    kind = "idle-workload"
    default_severity = "info"
    title = "Idle GPU workload"
    action = (
        "Stop the workload, scale it down, or move it to a shared GPU or a MIG slice. "
        "If the workload must stay idle, acknowledge the alert."
    )
    figures = (
        Figure("GPUs held", "gpus"),
        Figure("Utilization", "utilization_percent"),
        Figure("Wasted per hour", "waste_usd_per_hour"),
    )
    amount_per_hour = "waste_usd_per_hour"
    is_inhibited_by_missing_data = True
    has_amounts = False
    fires_when = "a workload holds ≥ `gpus` GPUs at less than `utilization_percent` utilization, while it was measured"
    subjects = "a workload"
    example = """
    rule: idle-workload
    gpus: 2
    utilization_percent: 5
    for_hours: 6
    """

    rule: Literal["idle-workload"]
    """The kind of the rule."""
    gpus: Positive = Decimal(1)
    """The fewest physical GPUs, on average over the hour, that the workload must hold."""
    utilization_percent: Percent = Decimal(10)
    """Fires if the mean utilization of these GPUs is lower."""
    overrides: tuple[IdleWorkloadOverride, ...] = ()
    """Other thresholds for some workloads. The first that matches is used."""

    @classmethod
    def predicate(cls, figures: FigureFormatter, detail: str, *, is_resolved: bool) -> str:
        """Return what the sentence of a notification says about its subject."""
        verb = "is no longer idle:" if is_resolved else "is idle:"
        gpus = format_gpus(figures.number("gpus"))
        return f"{verb} {gpus} at {figures.number('utilization_percent')}% utilization"

    def findings(self, hour: "HourFigures", active_alerts: "Sequence[Alert]") -> Iterator[Finding]:
        """Evaluate an hour, for every idle workload, and for those that were idle before."""
        watched: dict[str, set[WorkloadKey]] = {}
        for alert in active_alerts:
            watched.setdefault(alert.subject.business_unit, set()).add(alert.subject[2:5])
        units = [unit for unit in sorted({*hour.costs_by_unit, *watched}) if self.scope.has_unit(unit)]
        rules = (self, *(self.model_copy(update=override.overridden_settings()) for override in self.overrides))
        candidates = {
            unit
            for unit in units
            if any(rule.can_be_breached_by(hour.costs_by_unit.get(unit, Costs())) for rule in rules)
        }
        hour.prefetch_lines(len(candidates))
        for unit in units:
            workloads = sum_by_workload(hour.lines_of_unit(unit)) if unit in candidates else {}
            for key in sorted(workloads.keys() | watched.get(unit, set())):
                finding = self._finding(hour, Subject(hour.cluster, unit, *key), workloads.get(key, Costs()))
                if finding.is_breach is not False or key in watched.get(unit, set()):
                    yield finding

    def _finding(self, hour: "HourFigures", subject: Subject, costs: Costs) -> Finding:
        rule, measured = self.for_subject(subject), costs.allocated_gpu_hours - costs.unmeasured_gpu_hours
        gpus, duration = format_gpus(f"{rule.gpus:f}"), format_for_hours(rule.for_hours)
        return Finding(
            subject,
            hour.hour,
            rule.is_breached_by(costs) if self.scope.has_namespace(subject.namespace) else False,
            f"≥ {gpus} with utilization < {rule.utilization_percent:f}%, {duration}",
            {
                "gpus": to_decimal(costs.allocated_gpu_hours),
                "utilization_percent": rounded_percent(costs.effective_gpu_hours, measured),
                "waste_usd_per_hour": None if costs.unpriced_gpu_hours else to_decimal(costs.waste_usd),
            },
            hour.currency,
            rule.firing_policy,
        )

    def is_breached_by(self, costs: Costs) -> bool | None:
        """Whether a workload is idle in an hour; None if less than half of its GPU-hours were measured."""
        allocated, used = to_decimal(costs.allocated_gpu_hours), to_decimal(costs.effective_gpu_hours)
        measured = allocated - to_decimal(costs.unmeasured_gpu_hours)
        if allocated < self.gpus:
            return False
        if measured < MIN_MEASURED_SHARE * allocated:
            return None if used * 100 < self.utilization_percent * allocated else False
        return used * 100 < self.utilization_percent * measured

    def can_be_breached_by(self, costs: Costs) -> bool:
        """Whether a business unit with these sums holds enough unused GPU-hours to have an idle workload."""
        unused = to_decimal(costs.allocated_gpu_hours - costs.effective_gpu_hours)
        return unused * 100 > self.gpus * (100 - self.utilization_percent)


def sum_by_workload(lines: Iterable[Line]) -> CostsByKey[WorkloadKey]:
    """Sum lines by workload. Estimated utilization counts as unmeasured. A pod without an owner is a workload."""
    return sum_by_key(
        ((line.namespace, line.workload_kind or "Pod", line.workload or line.pod), _count_estimates_as_unmeasured(line))
        for line in lines
    )


def top_wasters(lines: Iterable[Line], limit: int = 3) -> tuple[WastefulWorkload, ...]:
    """Return the workloads with the most measured waste."""
    ranked = sorted(sum_by_workload(lines).items(), key=lambda workload: (-workload[1].waste_usd, workload[0]))
    return tuple(
        WastefulWorkload(*key, to_decimal(costs.allocated_gpu_hours), to_decimal(costs.waste_usd))
        for key, costs in ranked[:limit]
        if costs.waste_usd > 0
    )


def _count_estimates_as_unmeasured(line: Line) -> Costs:
    """Return a line's costs with estimated utilization as unmeasured. Waste during startup needs no signal."""
    costs = line.costs()
    if line.utilization_source not in ESTIMATED_SOURCES:
        return costs
    return Costs(
        allocated_gpu_hours=costs.allocated_gpu_hours,
        allocated_usd=costs.allocated_usd,
        unmeasured_usd=costs.allocated_usd,
        unmeasured_gpu_hours=costs.allocated_gpu_hours,
        unpriced_gpu_hours=costs.unpriced_gpu_hours,
    )
