"""Decisions on ticks: budgets, changes of spend, the state of the data itself, digests, and what is said again."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from gpucost.core.hours import HOUR, floor_hour
from gpucost.core.metering.implausible_samples import SUSPECT
from gpucost.features.alerting.amp_alerts import fleet_rules
from gpucost.features.alerting.digests import Digests
from gpucost.features.alerting.evaluation import firing_policy
from gpucost.features.alerting.hourly_evaluation import CROSS_CLUSTER_SCOPE, cluster_rules, cross_cluster_rules
from gpucost.features.alerting.model import FLEET_SCOPE, AlertGroup, Cursor, Subject
from gpucost.features.alerting.muting import Muting, is_repeat_due
from gpucost.features.alerting.ports import AlertSources, AlertStates, ScopeStates
from gpucost.features.alerting.scope_update import Finding, ScopeUpdate
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.features.alerting.settings.rules import BudgetRule, DataRule, RuleSettings, SpendChangeRule
from gpucost.features.alerting.spend import SpendEvaluation
from gpucost.features.alerting.state_machine import FiringPolicy
from gpucost.runtime.messages import Tick
from gpucost.storage.ports import StoredSettings


class ScheduledEvaluation:
    """Decides what no single closed hour can.

    Args:
        sources: what rules look at.
        memory: what alerting remembers.
    """

    def __init__(self, sources: AlertSources, memory: AlertStates) -> None:
        self._sources = sources
        self._memory = memory

    def evaluate(self, stored: StoredSettings[AlertingSettings], message: Tick) -> None:
        """Take a tick into account, once.

        Raises:
            ConflictError: others wrote first; deciding again is safe.
            SourceError: the ledger could not be read.
        """
        settings, at = stored.settings, floor_hour(message.scheduled_time)
        memory = self._memory.load(FLEET_SCOPE)
        through = memory.cursor.evaluated_through
        rules = fleet_rules(settings)
        if (through is not None and at <= through) or not (settings.alerts.rules or memory.groups):
            return
        decisions = ScopeUpdate(memory, settings.alerts, rules)
        spending = SpendEvaluation(self._sources, settings, at)
        for name, rule in rules.items():
            for finding in self._find(name, rule, stored, message, spending, decisions):
                decisions.apply(name, finding)
        marks: dict[str, dict[str, str]] = {}
        digests = Digests(self._sources, settings)
        for name, period, news in digests.due(rules, at, decisions.reported_periods):
            decisions.notify(news)
            marks.setdefault(news.subject.business_unit, {})[name] = period
        spending.save_days_to_date()
        decisions.save(self._memory, at, marks)
        self._memory.save_cursor(_moved(decisions, at))

    def repeat(
        self, settings: AlertingSettings, memory: ScopeStates, at: datetime, hold: Muting
    ) -> tuple[AlertGroup, ...]:
        """Say again what has been firing for long, unless somebody acknowledged it or it has to wait anyway.

        Returns:
            The scope's books as they are stored now.

        Raises:
            ConflictError: others wrote first; the next tick repeats.
        """
        scope = memory.cursor.scope
        rules = rules_in_scope(settings, scope)
        decisions = ScopeUpdate(memory, settings.alerts, rules)
        for alert in decisions.all_alerts():
            hours = rules[alert.rule].repeat_hours
            hours = settings.alerts.repeat_hours if hours is None else hours
            is_due = is_repeat_due(alert.notified_at, at, timedelta(hours=hours) if hours else None)
            if (
                is_due
                and not alert.acknowledged_by
                and alert.notification is not None
                and not hold.mutes(alert.notification)
            ):
                decisions.repeat(alert, at)
        return memory.groups if not decisions.save_only(self._memory) else self._memory.load(scope).groups

    def _find(
        self,
        name: str,
        rule: RuleSettings,
        stored: StoredSettings[AlertingSettings],
        message: Tick,
        spending: SpendEvaluation,
        decisions: ScopeUpdate,
    ) -> Iterator[Finding]:
        if isinstance(rule, BudgetRule):
            yield from spending.budget_findings(name, rule, decisions)
        elif isinstance(rule, SpendChangeRule):
            yield from spending.spend_change_findings(name, rule, decisions)
        elif isinstance(rule, DataRule):
            yield from self._data(rule, stored, message)

    def _data(self, rule: DataRule, stored: StoredSettings[AlertingSettings], message: Tick) -> Iterator[Finding]:
        at, settings = floor_hour(message.scheduled_time), stored.settings
        own = DataFinding(rule, at, settings.pricing.currency)
        for state in message.clusters:
            if not rule.scope.has_cluster(state.cluster):
                continue
            if rule.overdue_hours is not None:
                late = state.hours_overdue
                yield own(
                    state.cluster, "overdue", late >= rule.overdue_hours, f"≥ {rule.overdue_hours} hours overdue",
                    {"hours": Decimal(late)},
                )  # fmt: skip
            if rule.coverage is not None:
                seen = self._coverage(state.cluster, at)
                low = None if seen is None else seen < rule.coverage
                yield own(
                    state.cluster, "coverage", low, f"coverage < {rule.coverage * 100:f}%",
                    {"coverage_percent": None if seen is None else (seen * 100).quantize(Decimal("0.1"))},
                )  # fmt: skip
            if rule.suspect_samples:
                count, note = self._suspect(state.cluster, at)
                figures = {"notes": None if count is None else Decimal(count)}
                words = "samples that contradict each other or reason"
                yield own(state.cluster, "suspect-samples", None if count is None else count > 0, words, figures, note)
        if rule.price_age_hours is not None and any(
            source in settings.pricing.ordered_sources for source in FETCHED_PRICE_SOURCES
        ):
            newest = self._sources.newest_price()
            age = None if newest is None else Decimal((at - newest) // HOUR)
            yield own(
                "", "prices", age is None or age >= rule.price_age_hours,
                f"newest price ≥ {rule.price_age_hours} hours old", {"age_hours": age},
            )  # fmt: skip
        if rule.dead_letters:
            count = self._sources.dead_letters()
            waiting = None if count is None else Decimal(count)
            yield own("", "dead-letters", None if count is None else count > 0, "any dead letter", {"count": waiting})
        if rule.invalid_settings:
            yield own(
                "", "settings", bool(stored.refused), "settings that cannot be read", {}, " ".join(stored.refused)
            )

    def _suspect(self, cluster: str, at: datetime) -> tuple[int | None, str]:
        """How many notes about suspect samples the hours have that were published since the tick before, and the first
        of them; of the newest hour where none were. None where nothing was published lately."""
        published = [one for one in self._sources.ledger.manifests(cluster, at - RECENT, at) if one.coverage]
        newest = [one for one in published if one.published_at > at - HOUR] or published[-1:]
        if not newest:
            return None, ""
        notes = self._sources.ledger.notes_of(newest)
        suspect = [note for hour in sorted(notes) for note in notes[hour] if note.startswith(SUSPECT)]
        return len(suspect), suspect[0] if suspect else ""

    def _coverage(self, cluster: str, at: datetime) -> Decimal | None:
        """Of the newest published hour; None where nothing was published lately or tells."""
        for manifest in reversed(self._sources.ledger.manifests(cluster, at - RECENT, at)):
            if manifest.coverage is not None:
                return manifest.coverage.allocation
        return None


FETCHED_PRICE_SOURCES = ("spot",)
RECENT = timedelta(hours=6)


class DataFinding:
    """Makes findings of a data rule on one tick."""

    def __init__(self, rule: DataRule, at: datetime, currency: str) -> None:
        self._rule, self._at, self._currency = rule, at, currency

    def __call__(
        self,
        cluster: str,
        detail: str,
        breaches: bool | None,
        words: str,
        figures: dict[str, Decimal | None],
        note: str = "",
    ) -> Finding:
        """One finding."""
        policy: FiringPolicy = firing_policy(self._rule)
        subject = Subject(cluster, detail=detail)
        return Finding(subject, self._at, breaches, words, figures, self._currency, policy, note=note)


def rules_in_scope(settings: AlertingSettings, scope: str) -> dict[str, RuleSettings]:
    """The rules that are decided in a scope."""
    makers: dict[str, Callable[[], dict[str, RuleSettings]]] = {
        FLEET_SCOPE: lambda: fleet_rules(settings),
        CROSS_CLUSTER_SCOPE: lambda: cross_cluster_rules(settings),
    }
    return makers.get(scope, lambda: cluster_rules(settings, scope))()


def _moved(decisions: ScopeUpdate, at: datetime) -> Cursor:
    return replace(decisions.cursor, evaluated_through=at)
