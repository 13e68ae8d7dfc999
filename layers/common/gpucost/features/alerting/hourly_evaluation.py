"""Evaluation of published hours: of one cluster, or of several clusters once all of them have figures for an hour."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from gpucost.core.hours import HOUR
from gpucost.core.ledger import HourSummary
from gpucost.features.alerting.model import Alert, EvaluationCursor
from gpucost.features.alerting.ports import AlertStateStore, RuleInputs, ScopeStates
from gpucost.features.alerting.rule_evaluation import HourFigures, evaluate_rule
from gpucost.features.alerting.scope_update import ScopeUpdate
from gpucost.features.alerting.settings import SettingsWithAlerts
from gpucost.features.alerting.settings.rules import (
    IdleWorkloadRule,
    RuleSettings,
    TokenCostRule,
    UnallocatedRule,
    WasteRule,
)
from gpucost.features.alerting.subjects import CROSS_CLUSTER_WASTE_SCOPE

MAX_CLUSTER_WAIT_HOURS = 3
"""For how many hours a sum over clusters waits for the last of them."""
MIN_VERSIONS_KEPT = 24
"""For how many hours, at least, the cursor keeps versions, to detect restated hours."""


class HourlyRuleEvaluator:
    """Evaluates the rules that need a single published hour: waste, idle workloads, unallocated capacity, token costs.

    Args:
        inputs: what rules read.
        state_store: stored alert states.
    """

    def __init__(self, inputs: RuleInputs, state_store: AlertStateStore) -> None:
        self._ledger = inputs.ledger
        self._allows_estimates = inputs.allows_estimates
        self._state_store = state_store

    def evaluate_cluster(self, settings: SettingsWithAlerts, cluster: str, newest: datetime) -> None:
        """Evaluate all rules of one cluster through an hour.

        Raises:
            ConflictError: another writer was first; evaluating again is safe.
        """
        rules = hourly_rules(settings, cluster)
        states = self._state_store.load(cluster)
        if rules or states.groups:
            self._evaluate_through(settings, states, rules, [cluster], cluster, newest)

    def evaluate_cross_cluster_waste(self, settings: SettingsWithAlerts, newest: datetime) -> None:
        """Evaluate waste over all clusters of each rule, through the newest hour that all of them have figures for.

        Raises:
            ConflictError: another writer was first; evaluating again is safe.
        """
        rules = cross_cluster_waste_rules(settings)
        states = self._state_store.load(CROSS_CLUSTER_WASTE_SCOPE)
        if rules or states.groups:
            clusters = [cluster.name for cluster in settings.clusters]
            self._evaluate_through(settings, states, rules, clusters, "", newest)

    def _evaluate_through(
        self,
        settings: SettingsWithAlerts,
        states: ScopeStates,
        rules: dict[str, RuleSettings],
        clusters: Sequence[str],
        cluster: str,
        newest: datetime,
    ) -> None:
        """Evaluate every hour after the last evaluated one through `newest`, and restated hours again."""
        update = ScopeUpdate(states, settings.alerts, rules)
        start = _first_hour_to_evaluate(states, rules, newest, settings)
        summaries = {name: self._summaries(name, start, newest + HOUR) for name in clusters}
        hours = [start + HOUR * i for i in range((newest - start) // HOUR + 1)]
        restated = [] if cluster == "" else self._restated_hours(states, update.all_alerts(), cluster, start)
        self._apply_restated_hours(settings, update, rules, cluster, restated)
        versions: dict[datetime, int] = dict(states.cursor.versions)
        versions |= {summary.start: summary.manifest.version for summary in restated}
        evaluated_through = states.cursor.evaluated_through
        for hour in hours:
            by_cluster = {name: by_hour[hour] for name, by_hour in summaries.items() if hour in by_hour}
            if cluster == "" and len(by_cluster) < len(clusters) and hour > newest - MAX_CLUSTER_WAIT_HOURS * HOUR:
                break  # the missing cluster may still publish it
            figures_by_clusters: dict[tuple[str, ...], HourFigures] = {}
            for name, rule in rules.items():
                selected = _clusters_to_sum(rule, by_cluster, clusters)
                if not selected:
                    continue
                if selected not in figures_by_clusters:
                    selected_summaries = [by_cluster[selected_name] for selected_name in selected]
                    figures_by_clusters[selected] = self._figures(selected_summaries, cluster)
                for finding in evaluate_rule(
                    rule, settings, figures_by_clusters[selected], update.alerts_of_rule(name)
                ):
                    update.apply_finding(name, finding)
            if by_cluster:
                versions[hour] = sum(summary.manifest.version for summary in by_cluster.values())
                evaluated_through = hour
            elif cluster == "":
                evaluated_through = hour
        if evaluated_through is not None:
            update.save(self._state_store, evaluated_through)
            kept_versions = _versions_to_keep(versions, update.all_alerts(), evaluated_through)
            cursor = EvaluationCursor(states.cursor.scope, evaluated_through, kept_versions, states.cursor.version)
            if cursor != states.cursor:
                self._state_store.save_cursor(cursor)

    def _apply_restated_hours(
        self,
        settings: SettingsWithAlerts,
        update: ScopeUpdate,
        rules: dict[str, RuleSettings],
        cluster: str,
        restated: Sequence[HourSummary],
    ) -> None:
        for hour_figures in (self._figures([summary], cluster) for summary in restated):
            for name, rule in rules.items():
                for finding in evaluate_rule(rule, settings, hour_figures, update.alerts_of_rule(name)):
                    update.apply_restated_finding(name, finding)

    def _figures(self, summaries: Sequence[HourSummary], cluster: str) -> HourFigures:
        return HourFigures(self._ledger, summaries, cluster, self._allows_estimates)

    def _summaries(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, HourSummary]:
        """Read the hours of a period that have figures."""
        if start >= end:
            return {}
        return {
            summary.start: summary
            for summary in self._ledger.summaries(cluster, start, end)
            if summary.totals is not None
        }

    def _restated_hours(
        self, states: ScopeStates, alerts: Sequence[Alert], cluster: str, start: datetime
    ) -> list[HourSummary]:
        """Read the evaluated hours that an alert depends on and that have a new version now."""
        newest = states.cursor.evaluated_through
        if newest is None:
            return []
        versions = dict(states.cursor.versions)
        hours = {evaluation.hour for alert in alerts for evaluation in alert.evaluations} | {newest}
        hours = {hour for hour in hours if hour in versions and hour <= newest}
        if not hours:
            return []
        manifests = self._ledger.manifests(cluster, min(hours), min(start, newest + HOUR))
        changed = {
            manifest.hour
            for manifest in manifests
            if manifest.hour in hours and manifest.version > versions[manifest.hour]
        }
        return [summary for hour in sorted(changed) for summary in self._summaries(cluster, hour, hour + HOUR).values()]


def hourly_rules(settings: SettingsWithAlerts, cluster: str) -> dict[str, RuleSettings]:
    """Return the rules that are evaluated when an hour of a cluster is published."""
    return {
        name: rule
        for name, rule in settings.alerts.rules_by_name().items()
        if isinstance(rule, WasteRule | IdleWorkloadRule | UnallocatedRule | TokenCostRule)
        and not (isinstance(rule, WasteRule) and rule.across_clusters)
        and rule.scope.has_cluster(cluster)
    }


def cross_cluster_waste_rules(settings: SettingsWithAlerts) -> dict[str, RuleSettings]:
    """Return the rules on the hours of several clusters together."""
    rules = settings.alerts.rules_by_name().items()
    return {name: rule for name, rule in rules if isinstance(rule, WasteRule) and rule.across_clusters}


def _clusters_to_sum(
    rule: RuleSettings, by_cluster: Mapping[str, HourSummary], clusters: Sequence[str]
) -> tuple[str, ...]:
    """Return a rule's clusters; none if one of them has no figures for the hour, or if their currencies differ."""
    selected = tuple(name for name in clusters if rule.scope.has_cluster(name))
    summaries = [by_cluster[name] for name in selected if name in by_cluster]
    is_single_currency = len({summary.manifest.currency for summary in summaries}) <= 1
    return selected if len(summaries) == len(selected) and is_single_currency else ()


def _first_hour_to_evaluate(
    states: ScopeStates, rules: Mapping[str, RuleSettings], newest: datetime, settings: SettingsWithAlerts
) -> datetime:
    """Return the oldest hour that may still matter, so that hours of lost or reordered messages are evaluated, too."""
    if states.cursor.evaluated_through is None:
        max_for_hours = max((rule.max_for_hours for rule in rules.values()), default=1)
        start = newest - HOUR * (max_for_hours - 1)
    else:
        start = states.cursor.evaluated_through + HOUR
    return max(start, newest + HOUR - timedelta(hours=settings.lookback_hours))


def _versions_to_keep(
    versions: Mapping[datetime, int], alerts: Sequence[Alert], newest: datetime
) -> tuple[tuple[datetime, int], ...]:
    oldest = min((evaluation.hour for alert in alerts for evaluation in alert.evaluations), default=newest)
    oldest = min(oldest, newest - (MIN_VERSIONS_KEPT - 1) * HOUR)
    return tuple(sorted((hour, version) for hour, version in versions.items() if hour >= oldest))
