"""Evaluates the rules on published hours against one hour: waste, idle workloads, unallocated capacity, token costs."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter

from gpucost.core.amounts import CapacityCosts, Costs
from gpucost.core.costs_by_key import CostsByKey, sum_by_key
from gpucost.core.hour_record import Line, ModelHour, NodeHour
from gpucost.core.hours import HOUR
from gpucost.core.inference import TokenWeights
from gpucost.core.ledger import HourSummary
from gpucost.features.alerting.model import Alert, WastefulWorkload
from gpucost.features.alerting.rule_kinds import idle_workload as idle
from gpucost.features.alerting.rule_kinds import token_cost, unallocated, waste
from gpucost.features.alerting.rule_kinds.idle_workload import IdleThresholds
from gpucost.features.alerting.rule_kinds.token_cost import TokenBudget
from gpucost.features.alerting.rule_kinds.unallocated import UnallocatedThreshold
from gpucost.features.alerting.rule_kinds.waste import WasteThresholds
from gpucost.features.alerting.scope_update import Finding
from gpucost.features.alerting.settings import SettingsWithAlerts
from gpucost.features.alerting.settings.rules import (
    IdleWorkloadRule,
    RuleSettings,
    TokenCostRule,
    UnallocatedRule,
    WasteRule,
)
from gpucost.features.alerting.state_machine import FiringPolicy
from gpucost.features.alerting.subjects import Subject
from gpucost.storage.ports import PublishedHours

MAX_SINGLE_UNIT_READS = 50
"""For how many business units lines are read one unit at a time.

Each unit costs a read unit. All lines of a large cluster together cost about 240.
"""


class HourFigures:
    """The figures of one hour of one cluster, or of several together. Expensive figures are read on first use.

    Args:
        ledger: published hours.
        summaries: the hour's summaries, of one or more clusters.
        cluster: the cluster's name; empty for several clusters.
        allows_estimates: whether a version of the settings allows estimated utilization.
    """

    def __init__(
        self,
        ledger: PublishedHours,
        summaries: Sequence[HourSummary],
        cluster: str,
        allows_estimates: Callable[[int], bool],
    ) -> None:
        self._ledger = ledger
        self._summaries = summaries
        self.cluster = cluster
        self.hour = summaries[0].start
        self.currency = summaries[0].manifest.currency
        self._allows_estimates = allows_estimates
        self.costs_by_unit_and_namespace = sum_by_key(costs for summary in summaries for costs in summary.costs.items())
        self._lines: dict[str, Sequence[Line]] = {}
        self._models: dict[int, list[ModelHour]] = {}
        self._all_lines: Mapping[str, Sequence[Line]] | None = None

    @cached_property
    def costs_by_unit(self) -> CostsByKey[str]:
        """Costs by business unit."""
        return self.costs_by_unit_and_namespace.group_by(itemgetter(0))

    @cached_property
    def may_have_estimates(self) -> bool:
        """Whether lines may have estimated utilization. Restated hours were measured with settings they do not name."""
        manifests = [summary.manifest for summary in self._summaries]
        return any(manifest.version > 1 or self._allows_estimates(manifest.settings_version) for manifest in manifests)

    @cached_property
    def nodes(self) -> Sequence[NodeHour]:
        """All nodes."""
        return [
            node
            for summary in self._summaries
            for node in self._ledger.nodes_and_charges(summary.cluster, self.hour)[0]
        ]

    def models(self, window_hours: int) -> list[ModelHour]:
        """Return the rows of models of the hours in the same currency, in a window that ends with the hour."""
        if window_hours not in self._models:
            self._models[window_hours] = self._read_models(window_hours)
        return self._models[window_hours]

    def _read_models(self, window_hours: int) -> list[ModelHour]:
        start = self.hour - HOUR * (window_hours - 1)
        rows: list[ModelHour] = []
        for cluster in (summary.cluster for summary in self._summaries):
            manifests = [
                manifest
                for manifest in self._ledger.manifests(cluster, start, self.hour + HOUR)
                if manifest.currency == self.currency
            ]
            models_by_hour = self._ledger.models_of(manifests)
            rows += [row for hour in sorted(models_by_hour) for row in models_by_hour[hour]]
        return rows

    def lines_of_unit(self, unit: str) -> Sequence[Line]:
        """Return a business unit's lines."""
        if self._all_lines is not None:
            return self._all_lines.get(unit, ())
        if unit not in self._lines:
            self._lines[unit] = [
                line for summary in self._summaries for line in self._ledger.lines(summary.cluster, self.hour, unit)
            ]
        return self._lines[unit]

    def prefetch_lines(self, unit_count: int) -> None:
        """Read all lines at once if that costs less than reading those of this many business units one by one."""
        if unit_count <= MAX_SINGLE_UNIT_READS or self._all_lines is not None:
            return
        by_unit: dict[str, list[Line]] = {}
        for summary in self._summaries:
            for line in self._ledger.lines(summary.cluster, self.hour):
                by_unit.setdefault(line.business_unit, []).append(line)
        self._all_lines = by_unit


def evaluate_rule(
    rule: RuleSettings, settings: SettingsWithAlerts, hour_figures: HourFigures, active_alerts: Sequence[Alert]
) -> Iterator[Finding]:
    """Evaluate a rule in an hour, for every subject that breaches it or that has an active alert.

    Thresholds in money do not apply to hours in another currency, for example from before a settings change.
    """
    if isinstance(rule, IdleWorkloadRule):
        yield from _idle_workload_findings(rule, hour_figures, active_alerts)
    elif hour_figures.currency != settings.pricing.currency:
        return
    elif isinstance(rule, WasteRule):
        yield from _waste_findings(rule, hour_figures, active_alerts)
    elif isinstance(rule, UnallocatedRule):
        yield from _unallocated_findings(rule, hour_figures, active_alerts)
    elif isinstance(rule, TokenCostRule):
        yield from _token_cost_findings(rule, settings.inference.rules().weights, hour_figures, active_alerts)


def sum_by_business_unit(costs: CostsByKey[tuple[str, str]], has_namespace: Callable[[str], bool]) -> CostsByKey[str]:
    """Sum the costs of selected namespaces by business unit."""
    return costs.select(key for key in costs if has_namespace(key[1])).group_by(itemgetter(0))


def firing_policy(rule: RuleSettings) -> FiringPolicy:
    """Return for how long a rule's condition must hold before an alert fires, and be over before it resolves."""
    return FiringPolicy(rule.for_hours, rule.keep_firing_hours)


def _waste_findings(rule: WasteRule, hour_figures: HourFigures, active_alerts: Sequence[Alert]) -> Iterator[Finding]:
    units = (
        sum_by_business_unit(hour_figures.costs_by_unit_and_namespace, rule.scope.has_namespace)
        if rule.scope.namespaces
        else hour_figures.costs_by_unit
    )
    for unit in _units_with_costs_or_alerts(units, active_alerts):
        if not rule.scope.has_unit(unit):
            continue
        subject = Subject(hour_figures.cluster, unit)
        effective_rule, costs = rule.for_subject(subject), units.get(unit, Costs())
        thresholds = WasteThresholds(effective_rule.waste_usd_per_hour, effective_rule.waste_percent)
        is_breach = thresholds.breached_by(costs)
        if is_breach and hour_figures.may_have_estimates:
            costs = _sum_with_estimates_unmeasured(
                line for line in hour_figures.lines_of_unit(unit) if rule.scope.has_namespace(line.namespace)
            )
            is_breach = thresholds.breached_by(costs)
        yield Finding(
            subject, hour_figures.hour, is_breach, thresholds.describe(effective_rule.for_hours, hour_figures.currency),
            waste.notification_figures(costs), hour_figures.currency, firing_policy(effective_rule),
            _top_wasters_reader(hour_figures, unit, rule.scope.has_namespace),
        )  # fmt: skip


def _idle_workload_findings(
    rule: IdleWorkloadRule, hour_figures: HourFigures, active_alerts: Sequence[Alert]
) -> Iterator[Finding]:
    watched: dict[str, set[idle.WorkloadKey]] = {}
    for alert in active_alerts:
        watched.setdefault(alert.subject.business_unit, set()).add(alert.subject[2:5])
    variants = (rule, *(rule.model_copy(update=override.overridden_settings()) for override in rule.overrides))
    all_thresholds = [IdleThresholds(variant.gpus, variant.utilization_percent) for variant in variants]
    units = [
        unit
        for unit in _units_with_costs_or_alerts(hour_figures.costs_by_unit, active_alerts)
        if rule.scope.has_unit(unit)
    ]
    candidates = {
        unit
        for unit in units
        if any(
            thresholds.can_be_breached_by(hour_figures.costs_by_unit.get(unit, Costs()))
            for thresholds in all_thresholds
        )
    }
    hour_figures.prefetch_lines(len(candidates))
    for unit in units:
        workloads = idle.sum_by_workload(hour_figures.lines_of_unit(unit)) if unit in candidates else {}
        for key in sorted(workloads.keys() | watched.get(unit, set())):
            subject = idle.workload_subject(hour_figures.cluster, unit, key)
            finding = _idle_workload_finding(rule, hour_figures, subject, workloads.get(key, Costs()))
            if finding.is_breach is not False or key in watched.get(unit, set()):
                yield finding


def _idle_workload_finding(
    rule: IdleWorkloadRule, hour_figures: HourFigures, subject: Subject, costs: Costs
) -> Finding:
    effective_rule = rule.for_subject(subject)
    thresholds = IdleThresholds(effective_rule.gpus, effective_rule.utilization_percent)
    is_in_scope = rule.scope.has_namespace(subject.namespace)
    return Finding(
        subject, hour_figures.hour, thresholds.breached_by(costs) if is_in_scope else False,
        thresholds.describe(effective_rule.for_hours), idle.notification_figures(costs), hour_figures.currency,
        firing_policy(effective_rule),
    )  # fmt: skip


def _unallocated_findings(
    rule: UnallocatedRule, hour_figures: HourFigures, active_alerts: Sequence[Alert]
) -> Iterator[Finding]:
    pools = unallocated.capacity_by_node_pool(hour_figures.nodes)
    for name in sorted(pools.keys() | {alert.subject.node_pool for alert in active_alerts}):
        if not rule.scope.has_node_pool(name):
            continue
        subject = Subject(hour_figures.cluster, node_pool=name)
        effective_rule, nodes = rule.for_subject(subject), pools.get(name, [])
        capacity = CapacityCosts.total(nodes)
        threshold = UnallocatedThreshold(effective_rule.usd_per_hour)
        yield Finding(
            subject, hour_figures.hour, threshold.breached_by(capacity),
            threshold.describe(effective_rule.for_hours, hour_figures.currency),
            unallocated.notification_figures(capacity, nodes), hour_figures.currency, firing_policy(effective_rule),
        )  # fmt: skip


def _token_cost_findings(
    rule: TokenCostRule, weights: TokenWeights, hour_figures: HourFigures, active_alerts: Sequence[Alert]
) -> Iterator[Finding]:
    groups = token_cost.models_of_units(
        row for row in hour_figures.models(rule.window_hours) if rule.scope.has_namespace(row.key.namespace)
    )
    watched = {(alert.subject.business_unit, alert.subject.detail) for alert in active_alerts}
    for unit, model in sorted(groups.keys() | watched):
        subject = Subject(hour_figures.cluster, unit, detail=model)
        if not model or not rule.covers(subject):
            continue
        effective_rule, window = rule.for_subject(subject), token_cost.model_window(groups, unit, model)
        budget = TokenBudget(effective_rule.usd_per_million_tokens, rule.tokens, rule.window_hours)
        yield Finding(
            subject, hour_figures.hour, budget.exceeded_by(window, weights), budget.describe(hour_figures.currency),
            budget.notification_figures(window, weights), hour_figures.currency, firing_policy(effective_rule),
            note="" if window.counted(budget.tokens) else "no tokens",
        )  # fmt: skip


def _units_with_costs_or_alerts(units: Iterable[str], active_alerts: Sequence[Alert]) -> list[str]:
    return sorted({*units, *(alert.subject.business_unit for alert in active_alerts)})


def _sum_with_estimates_unmeasured(lines: Iterable[Line]) -> Costs:
    """Sum the costs of lines. Where utilization is an estimate (`node`, `cluster`), the cost counts as unmeasured."""
    return Costs.total(costs for costs in idle.sum_by_workload(lines).values())


def _top_wasters_reader(
    hour_figures: HourFigures, unit: str, has_namespace: Callable[[str], bool]
) -> Callable[[], tuple[WastefulWorkload, ...]]:
    return lambda: idle.top_wasters(line for line in hour_figures.lines_of_unit(unit) if has_namespace(line.namespace))
