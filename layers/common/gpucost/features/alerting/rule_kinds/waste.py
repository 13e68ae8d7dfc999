"""Waste: a business unit wastes a minimum amount per hour and a minimum part of what it holds."""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Literal

from gpucost.core.amounts import Costs, to_decimal
from gpucost.features.alerting.formatting import FigureFormatter, format_for_hours, format_threshold, rounded_percent
from gpucost.features.alerting.rule_kinds.base import (
    CROSS_CLUSTER_WASTE_SCOPE,
    DurationHours,
    Figure,
    Finding,
    HourRule,
    RuleOverride,
    Subject,
    WastefulWorkload,
)
from gpucost.features.alerting.rule_kinds.idle_workload import sum_by_workload, top_wasters
from gpucost.settings.section import Percent, Positive

if TYPE_CHECKING:
    from gpucost.core.hour_record import Line
    from gpucost.features.alerting.evaluation import HourFigures
    from gpucost.features.alerting.model import Alert


class WasteOverride(RuleOverride):
    """Other thresholds of a waste rule."""

    example = """
    business_unit: research
    waste_percent: 60
    """

    waste_usd_per_hour: Positive | None = None
    """The minimum waste in USD in an hour, in place of the rule's."""
    waste_percent: Percent | None = None
    """The minimum waste in percent of the allocated cost, in place of the rule's."""
    for_hours: DurationHours | None = None
    """Hours in a row, in place of the rule's."""


class WasteRule(HourRule):
    """Fires when a business unit wastes a minimum amount and a minimum part of what it holds."""

    kind = "waste"
    title = "GPU waste alert"
    action = "Check the workloads listed: release unused GPUs, and share or slice GPUs with low utilization."
    figures = (
        Figure("Wasted per hour", "waste_usd_per_hour", "waste_percent"),
        Figure("Allocated per hour", "allocated_usd_per_hour"),
    )
    amount_per_hour = "waste_usd_per_hour"
    is_inhibited_by_missing_data = True
    fires_when = "an hour's waste reaches both `waste_usd_per_hour` and `waste_percent` of what is held"
    subjects = (
        "a business unit in a cluster; with `across_clusters: true` over all clusters, in hours for which all of them "
        "have figures"
    )
    example = """
    rule: waste
    waste_usd_per_hour: 20
    waste_percent: 30
    for_hours: 3
    scope: {clusters: ["prod-*"]}
    """

    rule: Literal["waste"]
    """The kind of the rule."""
    waste_usd_per_hour: Positive
    """Fires if this much is wasted in an hour, and at least `waste_percent` of the allocated cost."""
    waste_percent: Percent
    """The minimum waste in percent of the allocated cost."""
    across_clusters: bool = False
    """Whether to sum clusters, in hours for which all of them have figures. Default: each cluster on its own."""
    overrides: tuple[WasteOverride, ...] = ()
    """Other thresholds for some business units or clusters. The first that matches is used."""

    @classmethod
    def predicate(cls, figures: FigureFormatter, detail: str, *, is_resolved: bool) -> str:
        """Return what the sentence of a notification says about its subject."""
        verb = "is below its waste threshold again:" if is_resolved else "wastes"
        return (
            f"{verb} {figures.money('waste_usd_per_hour')} per hour, "
            f"{figures.number('waste_percent')}% of the cost of its GPUs"
        )

    def is_evaluated_in(self, alert_scope: str) -> bool:
        """Whether the rule is evaluated in a scope: in each of its clusters, or over all of them."""
        if self.across_clusters:
            return alert_scope == CROSS_CLUSTER_WASTE_SCOPE
        return super().is_evaluated_in(alert_scope)

    def findings(self, hour: "HourFigures", active_alerts: "Sequence[Alert]") -> Iterator[Finding]:
        """Evaluate an hour, for every business unit."""
        costs_by_unit = hour.costs_by_unit
        if self.scope.namespaces:
            all_costs = hour.costs_by_unit_and_namespace
            selected = all_costs.select(key for key in all_costs if self.scope.has_namespace(key[1]))
            costs_by_unit = selected.group_by(itemgetter(0))
        for unit in sorted({*costs_by_unit, *(alert.subject.business_unit for alert in active_alerts)}):
            if not self.scope.has_unit(unit):
                continue
            subject = Subject(hour.cluster, unit)
            rule, costs = self.for_subject(subject), costs_by_unit.get(unit, Costs())
            is_breach = rule.is_breached_by(costs)
            if is_breach and hour.may_have_estimates:
                costs = Costs.total(sum_by_workload(self._lines(hour, unit)).values())
                is_breach = rule.is_breached_by(costs)
            yield Finding(
                subject,
                hour.hour,
                is_breach,
                rule.threshold(hour.currency),
                {
                    "waste_usd_per_hour": to_decimal(costs.waste_usd),
                    "allocated_usd_per_hour": to_decimal(costs.allocated_usd),
                    "waste_percent": rounded_percent(costs.waste_usd, costs.allocated_usd) or Decimal("0.0"),
                },
                hour.currency,
                rule.firing_policy,
                partial(self._top_wasters, hour, unit),
            )

    def _lines(self, hour: "HourFigures", unit: str) -> "Iterator[Line]":
        return (line for line in hour.lines_of_unit(unit) if self.scope.has_namespace(line.namespace))

    def _top_wasters(self, hour: "HourFigures", unit: str) -> tuple[WastefulWorkload, ...]:
        return top_wasters(self._lines(hour, unit))

    def is_breached_by(self, costs: Costs) -> bool | None:
        """Whether an hour reaches both thresholds; None if a price is missing. Holding nothing is no waste."""
        if costs.unpriced_gpu_hours:
            return None
        return (
            costs.allocated_usd > 0
            and to_decimal(costs.waste_usd) >= self.waste_usd_per_hour
            and costs.waste_usd * 100 >= self.waste_percent * costs.allocated_usd
        )

    def threshold(self, currency: str) -> str:
        """Describe the condition in plain text."""
        min_waste, duration = format_threshold(self.waste_usd_per_hour, currency), format_for_hours(self.for_hours)
        return f"waste ≥ {min_waste} per hour and ≥ {self.waste_percent:f}% of allocated, {duration}"
