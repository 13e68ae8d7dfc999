"""Decisions on closed hours: of one cluster, or of several together once all of them know an hour."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from gpucost.core.hours import HOUR
from gpucost.core.ledger import HourSummary
from gpucost.features.alerting.scope_update import ScopeUpdate
from gpucost.features.alerting.evaluation import HourFacts, find_breaches
from gpucost.features.alerting.model import Alert, Cursor
from gpucost.features.alerting.ports import AlertLedger, AlertStates, ScopeStates
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.features.alerting.settings.rules import IdleWorkloadRule, RuleSettings, UnallocatedRule, WasteRule

CROSS_CLUSTER_SCOPE = "*hours"
"""The scope of waste over several clusters; no cluster can be named so."""
MAX_HOURS_WAITED = 3
"""Hours that a sum over clusters waits for the last of them."""
VERSIONS_KEPT = 24
"""At least so many hours are known by their version, to tell a restated one."""


class HourlyEvaluation:
    """Decides the rules that look at hours.

    Args:
        ledger: published hours.
        memory: what alerting remembers.
    """

    def __init__(self, ledger: AlertLedger, memory: AlertStates) -> None:
        self._ledger = ledger
        self._memory = memory

    def evaluate_cluster(self, settings: AlertingSettings, cluster: str, newest: datetime) -> None:
        """Decide all rules of one cluster through an hour.

        Raises:
            ConflictError: others wrote first; deciding again is safe.
        """
        rules = cluster_rules(settings, cluster)
        memory = self._memory.load(cluster)
        if rules or memory.groups:
            self._decide(settings, memory, rules, [cluster], cluster, newest)

    def evaluate_cross_cluster(self, settings: AlertingSettings, newest: datetime) -> None:
        """Decide waste over all clusters of each rule, through the newest hour that all of them know.

        Raises:
            ConflictError: others wrote first; deciding again is safe.
        """
        rules = cross_cluster_rules(settings)
        memory = self._memory.load(CROSS_CLUSTER_SCOPE)
        if rules or memory.groups:
            clusters = [one.name for one in settings.clusters]
            self._decide(settings, memory, rules, clusters, "", newest)

    def _decide(
        self,
        settings: AlertingSettings,
        memory: ScopeStates,
        rules: dict[str, RuleSettings],
        clusters: Sequence[str],
        cluster: str,
        newest: datetime,
    ) -> None:
        decisions = ScopeUpdate(memory, settings.alerts, rules)
        start = _first_undecided(memory, rules, newest, settings)
        read = {name: self._summaries(name, start, newest + HOUR) for name in clusters}
        undecided = [start + HOUR * i for i in range((newest - start) // HOUR + 1)]
        restated = [] if cluster == "" else self._restated(memory, decisions.all_alerts(), cluster, start)
        for facts in (HourFacts(self._ledger, [one], cluster) for one in restated):
            for name, rule in rules.items():
                for finding in find_breaches(rule, settings, facts, decisions.alerts(name)):
                    decisions.apply_restated(name, finding)
        known: dict[datetime, int] = dict(memory.cursor.versions)
        known |= {one.hour: one.version for one in restated}
        through = memory.cursor.evaluated_through
        for hour in undecided:
            own = {name: found[hour] for name, found in read.items() if hour in found}
            if cluster == "" and len(own) < len(clusters) and hour > newest - MAX_HOURS_WAITED * HOUR:
                break  # it may still come
            seen: dict[tuple[str, ...], HourFacts] = {}
            for name, rule in rules.items():
                wanted = self._wanted(rule, own, clusters)
                if wanted and wanted not in seen:
                    seen[wanted] = HourFacts(self._ledger, [own[one] for one in wanted], cluster)
                for finding in find_breaches(rule, settings, seen[wanted], decisions.alerts(name)) if wanted else ():
                    decisions.apply(name, finding)
            if own:
                known[hour] = sum(summary.version for summary in own.values())
                through = hour
            elif cluster == "":
                through = hour
        if through is not None:
            decisions.save(self._memory, through)
            cursor = Cursor(
                memory.cursor.scope, through, _kept(known, decisions.all_alerts(), through), memory.cursor.version
            )
            if cursor != memory.cursor:
                self._memory.save_cursor(cursor)

    def _wanted(self, rule: RuleSettings, own: Mapping[str, HourSummary], clusters: Sequence[str]) -> tuple[str, ...]:
        """The clusters that a rule looks at; none where not all of them know the hour, or in several currencies."""
        wanted = tuple(name for name in clusters if rule.scope.has_cluster(name))
        if any(name not in own for name in wanted) or len({own[name].currency for name in wanted}) > 1:
            return ()
        return wanted

    def _summaries(self, cluster: str, start: datetime, end: datetime) -> dict[datetime, HourSummary]:
        """Hours that have figures."""
        if start >= end:
            return {}
        found = self._ledger.summaries(cluster, start, end)
        return {one.hour: one for one in found if one.status != "incomplete" and one.totals is not None}

    def _restated(self, memory: ScopeStates, alerts: Sequence[Alert], cluster: str, start: datetime) -> list[HourSummary]:
        """Decided hours that somebody's evidence rests on and that have another version by now."""
        newest = memory.cursor.evaluated_through
        if newest is None:
            return []
        versions = dict(memory.cursor.versions)
        hours = {one.hour for alert in alerts for one in alert.evaluations} | {newest}
        hours = {hour for hour in hours if hour in versions and hour <= newest}
        if not hours:
            return []
        manifests = self._ledger.manifests(cluster, min(hours), min(start, newest + HOUR))
        changed = {one.hour for one in manifests if one.hour in hours and one.version > versions[one.hour]}
        found: list[HourSummary] = []
        for hour in sorted(changed):
            found += self._summaries(cluster, hour, hour + HOUR).values()
        return found


def cluster_rules(settings: AlertingSettings, cluster: str) -> dict[str, RuleSettings]:
    """The rules that are decided when an hour of a cluster is closed."""
    return {
        name: rule
        for name, rule in settings.alerts.named_rules().items()
        if isinstance(rule, WasteRule | IdleWorkloadRule | UnallocatedRule)
        and not (isinstance(rule, WasteRule) and rule.across_clusters)
        and rule.scope.has_cluster(cluster)
    }


def cross_cluster_rules(settings: AlertingSettings) -> dict[str, RuleSettings]:
    """The rules on hours of several clusters together."""
    rules = settings.alerts.named_rules().items()
    return {name: rule for name, rule in rules if isinstance(rule, WasteRule) and rule.across_clusters}


def _first_undecided(
    memory: ScopeStates, rules: Mapping[str, RuleSettings], newest: datetime, settings: AlertingSettings
) -> datetime:
    """The oldest hour that may still matter: what a lost or reordered message left out is made up for here."""
    if memory.cursor.evaluated_through is None:
        longest = max((rule.max_for_hours for rule in rules.values()), default=1)
        start = newest - HOUR * (longest - 1)
    else:
        start = memory.cursor.evaluated_through + HOUR
    return max(start, newest + HOUR - timedelta(hours=settings.lookback_hours))


def _kept(known: Mapping[datetime, int], alerts: Sequence[Alert], newest: datetime) -> tuple[tuple[datetime, int], ...]:
    oldest = min((one.hour for alert in alerts for one in alert.evaluations), default=newest)
    oldest = min(oldest, newest - (VERSIONS_KEPT - 1) * HOUR)
    return tuple(sorted((hour, version) for hour, version in known.items() if hour >= oldest))
