"""Evaluation of rules: when hours are published, and on the schedule."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import cached_property, partial
from operator import itemgetter

from gpucost.core.costs_by_key import CostsByKey, sum_by_key
from gpucost.core.costs_by_model import TokenWeights
from gpucost.core.errors import GpuCostError
from gpucost.core.hour_record import MEASURED_SOURCES, Line, ModelHour, NodeHour
from gpucost.core.hours import HOUR
from gpucost.core.ledger import HourSummary
from gpucost.features.alerting.model import Alert, AlertGroup, EvaluationCursor
from gpucost.features.alerting.muting import Muting, is_repeat_due
from gpucost.features.alerting.ports import AlertStateStore, RuleInputs, ScopeStates
from gpucost.features.alerting.rule_kinds.base import (
    CROSS_CLUSTER_WASTE_SCOPE,
    FLEET_SCOPE,
    Finding,
    HourRule,
    TickRule,
)
from gpucost.features.alerting.scope_update import ScopeUpdate
from gpucost.features.alerting.settings import SettingsDocument, rules_of_scope
from gpucost.features.alerting.tick_figures import TickFigures
from gpucost.runtime.messages import AlertTick
from gpucost.storage.ports import PublishedHours, SettingsStore, StoredSettings

# Evaluation of published hours: of one cluster, or of several clusters once all of them have figures for an hour.

MAX_CLUSTER_WAIT_HOURS = 3
"""For how many hours a sum over clusters waits for the last of them."""
MIN_VERSIONS_KEPT = 24
"""For how many hours, at least, the cursor keeps versions, to detect restated hours."""
MAX_SINGLE_UNIT_READS = 50
"""For how many business units lines are read one unit at a time.

Each unit costs a read unit. All lines of a large cluster together cost about 240.
"""


class HourFigures:
    """The figures of one hour of one cluster, or of several together. Expensive figures are read on first use.

    Args:
        ledger: published hours.
        settings: the settings document.
        summaries: the hour's summaries, of one or more clusters.
        cluster: the cluster's name; empty for several clusters.
        allows_estimates: whether a version of the settings allows estimated utilization.
    """

    def __init__(
        self,
        ledger: PublishedHours,
        settings: SettingsDocument,
        summaries: Sequence[HourSummary],
        cluster: str,
        allows_estimates: Callable[[int], bool],
    ) -> None:
        self._ledger = ledger
        self._settings = settings
        self._summaries = summaries
        self.cluster = cluster
        self.hour = summaries[0].start
        self.currency = summaries[0].manifest.currency
        self._allows_estimates = allows_estimates
        self.costs_by_unit_and_namespace = sum_by_key(costs for summary in summaries for costs in summary.costs.items())
        self._lines: dict[str, Sequence[Line]] = {}
        self._models: dict[int, list[ModelHour]] = {}
        self._all_lines: Mapping[str, Sequence[Line]] | None = None

    @property
    def is_in_currency_of_settings(self) -> bool:
        """Whether amounts can be compared with thresholds: the hour may be from before a change of the currency."""
        return self.currency == self._settings.pricing.currency

    @property
    def token_weights(self) -> TokenWeights:
        """How the cost of a model is divided to its tokens."""
        return self._settings.inference.rules().weights

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


class HourlyRuleEvaluator:
    """Evaluates the rules that need a single published hour.

    Args:
        inputs: what rules read.
        state_store: stored alert states.
    """

    def __init__(self, inputs: RuleInputs, state_store: AlertStateStore) -> None:
        self._ledger = inputs.ledger
        self._allows_estimates = inputs.allows_estimates
        self._state_store = state_store

    def evaluate_cluster(self, settings: SettingsDocument, cluster: str, newest: datetime) -> tuple[AlertGroup, ...]:
        """Evaluate all rules of one cluster through an hour, and return the cluster's groups as they are stored now.

        Raises:
            ConflictError: another writer was first; evaluating again is safe.
        """
        rules = _hour_rules(settings, cluster)
        states = self._state_store.load(cluster)
        if rules or states.groups:
            return self._evaluate_through(settings, states, rules, [cluster], newest)
        return ()

    def evaluate_cross_cluster_waste(self, settings: SettingsDocument, newest: datetime) -> None:
        """Evaluate waste over all clusters of each rule, through the newest hour that all of them have figures for.

        Raises:
            ConflictError: another writer was first; evaluating again is safe.
        """
        rules = _hour_rules(settings, CROSS_CLUSTER_WASTE_SCOPE)
        states = self._state_store.load(CROSS_CLUSTER_WASTE_SCOPE)
        if rules or states.groups:
            clusters = [cluster.name for cluster in settings.clusters]
            self._evaluate_through(settings, states, rules, clusters, newest)

    def _evaluate_through(
        self,
        settings: SettingsDocument,
        states: ScopeStates,
        rules: Mapping[str, HourRule],
        clusters: Sequence[str],
        newest: datetime,
    ) -> tuple[AlertGroup, ...]:
        """Evaluate every hour after the last evaluated one through `newest`, and restated hours of a cluster again."""
        is_cross_cluster = states.cursor.scope == CROSS_CLUSTER_WASTE_SCOPE
        cluster = "" if is_cross_cluster else states.cursor.scope
        update = ScopeUpdate(states, settings.alerts, rules)
        start = _first_hour_to_evaluate(states, rules, newest, settings)
        summaries = {name: self._summaries(name, start, newest + HOUR) for name in clusters}
        hours = [start + HOUR * i for i in range((newest - start) // HOUR + 1)]
        restated = [] if is_cross_cluster else self._restated_hours(states, update.all_alerts(), cluster, start)
        self._apply_restated_hours(settings, update, rules, cluster, restated)
        versions: dict[datetime, int] = dict(states.cursor.versions)
        versions |= {summary.start: summary.manifest.version for summary in restated}
        evaluated_through = states.cursor.evaluated_through
        for hour in hours:
            by_cluster = {name: by_hour[hour] for name, by_hour in summaries.items() if hour in by_hour}
            if is_cross_cluster and len(by_cluster) < len(clusters) and hour > newest - MAX_CLUSTER_WAIT_HOURS * HOUR:
                break  # the missing cluster may still publish it
            figures_by_clusters: dict[tuple[str, ...], HourFigures] = {}
            for name, rule in rules.items():
                selected = _clusters_to_sum(rule, by_cluster, clusters)
                if not selected:
                    continue
                if selected not in figures_by_clusters:
                    selected_summaries = [by_cluster[selected_name] for selected_name in selected]
                    figures_by_clusters[selected] = self._figures(settings, selected_summaries, cluster)
                for finding in _findings(rule, figures_by_clusters[selected], update.alerts_of_rule(name)):
                    update.apply_finding(name, finding)
            if by_cluster:
                versions[hour] = sum(summary.manifest.version for summary in by_cluster.values())
                evaluated_through = hour
            elif is_cross_cluster:
                evaluated_through = hour
        if evaluated_through is None:
            return states.groups
        groups = update.save(self._state_store, evaluated_through)
        kept_versions = _versions_to_keep(versions, update.all_alerts(), evaluated_through)
        cursor = EvaluationCursor(states.cursor.scope, evaluated_through, kept_versions, states.cursor.version)
        if cursor != states.cursor:
            self._state_store.save_cursor(cursor)
        return groups

    def _apply_restated_hours(
        self,
        settings: SettingsDocument,
        update: ScopeUpdate,
        rules: Mapping[str, HourRule],
        cluster: str,
        restated: Sequence[HourSummary],
    ) -> None:
        for hour_figures in (self._figures(settings, [summary], cluster) for summary in restated):
            for name, rule in rules.items():
                for finding in _findings(rule, hour_figures, update.alerts_of_rule(name)):
                    update.apply_restated_finding(name, finding)

    def _figures(self, settings: SettingsDocument, summaries: Sequence[HourSummary], cluster: str) -> HourFigures:
        return HourFigures(self._ledger, settings, summaries, cluster, self._allows_estimates)

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


def _hour_rules(settings: SettingsDocument, scope: str) -> dict[str, HourRule]:
    rules = rules_of_scope(settings, scope).items()
    return {name: rule for name, rule in rules if isinstance(rule, HourRule)}


def _findings(rule: HourRule, hour: HourFigures, active_alerts: Sequence[Alert]) -> Iterator[Finding]:
    if hour.is_in_currency_of_settings or not rule.has_amounts:
        yield from rule.findings(hour, active_alerts)


def _clusters_to_sum(rule: HourRule, by_cluster: Mapping[str, HourSummary], clusters: Sequence[str]) -> tuple[str, ...]:
    """Return a rule's clusters; none if one of them has no figures for the hour, or if their currencies differ."""
    selected = tuple(name for name in clusters if rule.scope.has_cluster(name))
    summaries = [by_cluster[name] for name in selected if name in by_cluster]
    is_single_currency = len({summary.manifest.currency for summary in summaries}) <= 1
    return selected if len(summaries) == len(selected) and is_single_currency else ()


def _first_hour_to_evaluate(
    states: ScopeStates, rules: Mapping[str, HourRule], newest: datetime, settings: SettingsDocument
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


def estimates_check(settings_store: SettingsStore[SettingsDocument]) -> Callable[[int], bool]:
    """Return a check whether a version of the settings allows estimated utilization. An unreadable version may."""

    def allows_estimates(version: int) -> bool:
        try:
            sources = settings_store.version(version).settings.utilization.sources
        except GpuCostError:
            return True
        return not set(sources) <= set(MEASURED_SOURCES)

    return allows_estimates


# Evaluation on the schedule: the rules that need more than a published hour, and repeated notifications.


class ScheduledRuleEvaluator:
    """Evaluates the rules that need more than one published hour.

    Args:
        inputs: what rules read.
        state_store: stored alert states.
    """

    def __init__(self, inputs: RuleInputs, state_store: AlertStateStore) -> None:
        self._inputs = inputs
        self._state_store = state_store

    def evaluate(self, stored_settings: StoredSettings[SettingsDocument], message: AlertTick) -> None:
        """Evaluate a tick once; the same or an older tick changes nothing.

        Raises:
            ConflictError: another writer was first; evaluating again is safe.
            SourceError: the ledger could not be read.
        """
        settings, tick = stored_settings.settings, TickFigures(self._inputs, stored_settings, message)
        states = self._state_store.load(FLEET_SCOPE)
        evaluated_through = states.cursor.evaluated_through
        if evaluated_through is not None and tick.at <= evaluated_through:
            return
        if not (settings.alerts.rules or states.groups):
            return
        all_rules = rules_of_scope(settings, FLEET_SCOPE)
        rules = {name: rule for name, rule in all_rules.items() if isinstance(rule, TickRule)}
        update = ScopeUpdate(states, settings.alerts, rules)
        for name, rule in rules.items():
            for alert in update.alerts_of_rule(name):
                if rule.is_over(alert, tick):
                    update.discard_alert(alert)
            for finding in rule.findings(tick, update.alerts_of_rule(name)):
                update.apply_finding(name, finding)
        digest_periods: dict[str, dict[str, str]] = {}
        for name, rule in rules.items():
            for digest in rule.digests(tick, partial(_reported_period, update, name)):
                update.add_digest(name, digest)
                digest_periods.setdefault(digest.subject.business_unit, {})[name] = digest.period
        tick.save_days_to_date()
        update.save(self._state_store, tick.at, digest_periods)
        self._state_store.save_cursor(replace(update.cursor, evaluated_through=tick.at))

    def repeat_notifications(
        self, settings: SettingsDocument, states: ScopeStates, at: datetime, muting: Muting
    ) -> tuple[AlertGroup, ...]:
        """Repeat the notifications of firing alerts whose interval is over, unless they are acknowledged or muted.

        Returns:
            The scope's groups as they are stored now.

        Raises:
            ConflictError: another writer was first; the next tick repeats.
        """
        rules = rules_of_scope(settings, states.cursor.scope)
        update = ScopeUpdate(states, settings.alerts, rules)
        for alert in update.all_alerts():
            hours = rules[alert.rule].repeat_hours
            hours = settings.alerts.repeat_hours if hours is None else hours
            is_due = is_repeat_due(alert.notified_at, at, timedelta(hours=hours) if hours else None)
            if not is_due or alert.acknowledged_by or alert.notification is None:
                continue
            if not muting.mutes(alert.notification):
                update.repeat_notification(alert, at)
        return update.save(self._state_store)


def _reported_period(update: ScopeUpdate, rule_name: str, business_unit: str) -> str | None:
    return update.reported_digest_periods(business_unit).get(rule_name)
