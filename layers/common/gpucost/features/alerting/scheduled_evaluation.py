"""Evaluation on the schedule: budgets, spend changes, the state of the data, digests, and repeated notifications."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from gpucost.core.hours import HOUR, floor_hour
from gpucost.core.metering.implausible_samples import SUSPECT_PREFIX
from gpucost.features.alerting.digests import Digests
from gpucost.features.alerting.hourly_evaluation import (
    cross_cluster_waste_rules,
    hourly_rules,
)
from gpucost.features.alerting.model import AlertGroup
from gpucost.features.alerting.muting import Muting, is_repeat_due
from gpucost.features.alerting.ports import AlertStateStore, RuleInputs, ScopeStates
from gpucost.features.alerting.received_amp_alerts import tick_and_amp_rules
from gpucost.features.alerting.rule_evaluation import firing_policy
from gpucost.features.alerting.scope_update import Finding, ScopeUpdate
from gpucost.features.alerting.settings import SettingsWithAlerts
from gpucost.features.alerting.settings.rules import BudgetRule, DataRule, RuleSettings, SpendChangeRule
from gpucost.features.alerting.spend_evaluation import SpendRuleEvaluator
from gpucost.features.alerting.subjects import CROSS_CLUSTER_WASTE_SCOPE, FLEET_SCOPE, Subject
from gpucost.runtime.messages import AlertTick
from gpucost.storage.ports import StoredSettings

AGE_CHECKED_PRICE_SOURCES = ("spot",)
DATA_CHECK_PERIOD = timedelta(hours=6)


class ScheduledRuleEvaluator:
    """Evaluates the rules that need more than one published hour.

    Args:
        inputs: what rules read.
        state_store: stored alert states.
    """

    def __init__(self, inputs: RuleInputs, state_store: AlertStateStore) -> None:
        self._inputs = inputs
        self._state_store = state_store

    def evaluate(self, stored_settings: StoredSettings[SettingsWithAlerts], message: AlertTick) -> None:
        """Evaluate a tick once; the same or an older tick changes nothing.

        Raises:
            ConflictError: another writer was first; evaluating again is safe.
            SourceError: the ledger could not be read.
        """
        settings, at = stored_settings.settings, floor_hour(message.scheduled_time)
        states = self._state_store.load(FLEET_SCOPE)
        evaluated_through = states.cursor.evaluated_through
        rules = tick_and_amp_rules(settings)
        if evaluated_through is not None and at <= evaluated_through:
            return
        if not (settings.alerts.rules or states.groups):
            return
        update = ScopeUpdate(states, settings.alerts, rules)
        spend = SpendRuleEvaluator(self._inputs, stored_settings, at)
        for name, rule in rules.items():
            for finding in self._findings(name, rule, stored_settings, message, spend, update):
                update.apply_finding(name, finding)
        digest_periods: dict[str, dict[str, str]] = {}
        digests = Digests(self._inputs, stored_settings)
        for name, period, notification in digests.due_digests(rules, at, update.reported_digest_periods):
            update.add_notification(notification)
            digest_periods.setdefault(notification.subject.business_unit, {})[name] = period
        spend.save_days_to_date()
        update.save(self._state_store, at, digest_periods)
        self._state_store.save_cursor(replace(update.cursor, evaluated_through=at))

    def repeat_notifications(
        self, settings: SettingsWithAlerts, states: ScopeStates, at: datetime, muting: Muting
    ) -> tuple[AlertGroup, ...]:
        """Repeat the notifications of firing alerts whose interval is over, unless they are acknowledged or muted.

        Returns:
            The scope's groups as they are stored now.

        Raises:
            ConflictError: another writer was first; the next tick repeats.
        """
        scope = states.cursor.scope
        rules = rules_of_alert_scope(settings, scope)
        update = ScopeUpdate(states, settings.alerts, rules)
        for alert in update.all_alerts():
            hours = rules[alert.rule].repeat_hours
            hours = settings.alerts.repeat_hours if hours is None else hours
            is_due = is_repeat_due(alert.notified_at, at, timedelta(hours=hours) if hours else None)
            if not is_due or alert.acknowledged_by or alert.notification is None:
                continue
            if not muting.mutes(alert.notification):
                update.repeat_notification(alert, at)
        return states.groups if not update.save(self._state_store) else self._state_store.load(scope).groups

    def _findings(
        self,
        rule_name: str,
        rule: RuleSettings,
        stored_settings: StoredSettings[SettingsWithAlerts],
        message: AlertTick,
        spend_evaluator: SpendRuleEvaluator,
        update: ScopeUpdate,
    ) -> Iterator[Finding]:
        if isinstance(rule, BudgetRule):
            yield from spend_evaluator.budget_findings(rule_name, rule, update)
        elif isinstance(rule, SpendChangeRule):
            yield from spend_evaluator.spend_change_findings(rule_name, rule, update)
        elif isinstance(rule, DataRule):
            yield from self._data_findings(rule, stored_settings, message)

    def _data_findings(
        self, rule: DataRule, stored_settings: StoredSettings[SettingsWithAlerts], message: AlertTick
    ) -> Iterator[Finding]:
        at, settings = floor_hour(message.scheduled_time), stored_settings.settings
        finding = DataFindingFactory(rule, at, settings.pricing.currency)
        for state in message.clusters:
            if not rule.scope.has_cluster(state.cluster):
                continue
            if rule.overdue_hours is not None:
                overdue = state.hours_overdue
                yield finding(
                    state.cluster, "overdue", overdue >= rule.overdue_hours, f"≥ {rule.overdue_hours} hours overdue",
                    {"hours": Decimal(overdue)},
                )  # fmt: skip
            if rule.coverage is not None:
                coverage = self._latest_coverage(state.cluster, at)
                is_low = None if coverage is None else coverage < rule.coverage
                yield finding(
                    state.cluster, "coverage", is_low, f"coverage < {rule.coverage * 100:f}%",
                    {"coverage_percent": None if coverage is None else (coverage * 100).quantize(Decimal("0.1"))},
                )  # fmt: skip
            if rule.suspect_samples:
                count, note = self._count_suspect_samples(state.cluster, at)
                yield finding(
                    state.cluster, "suspect-samples", None if count is None else count > 0,
                    "samples that contradict each other or are impossible",
                    {"notes": None if count is None else Decimal(count)}, note,
                )  # fmt: skip
        if rule.price_age_hours is not None and any(
            source in settings.pricing.ordered_sources for source in AGE_CHECKED_PRICE_SOURCES
        ):
            newest = self._inputs.read_spot_fetch_time()
            age = None if newest is None else Decimal((at - newest) // HOUR)
            # With automatic sources, a deployment need not fetch spot prices.
            is_too_old = not settings.pricing.is_automatic if age is None else age >= rule.price_age_hours
            yield finding(
                "", "prices", is_too_old, f"newest price ≥ {rule.price_age_hours} hours old", {"age_hours": age},
            )  # fmt: skip
        if rule.dead_letters:
            count = self._inputs.count_dead_letters()
            yield finding(
                "", "dead-letters", None if count is None else count > 0, "any message in the dead-letter queue",
                {"count": None if count is None else Decimal(count)},
            )  # fmt: skip
        if rule.invalid_settings:
            yield finding(
                "",
                "settings",
                bool(stored_settings.refused),
                "settings that cannot be read",
                {},
                " ".join(stored_settings.refused),
            )

    def _count_suspect_samples(self, cluster: str, at: datetime) -> tuple[int | None, str]:
        """Count the notes about suspect samples, and return the first of them.

        The count covers the hours published since the previous tick, or the newest hour if there are none. It is None
        if nothing was published recently.
        """
        published = [
            manifest
            for manifest in self._inputs.ledger.manifests(cluster, at - DATA_CHECK_PERIOD, at)
            if manifest.coverage
        ]
        newest = [manifest for manifest in published if manifest.published_at > at - HOUR] or published[-1:]
        if not newest:
            return None, ""
        notes = self._inputs.ledger.notes_of(newest)
        suspect = [note for hour in sorted(notes) for note in notes[hour] if note.startswith(SUSPECT_PREFIX)]
        return len(suspect), suspect[0] if suspect else ""

    def _latest_coverage(self, cluster: str, at: datetime) -> Decimal | None:
        """Return the allocation coverage of the newest published hour; None if there is none."""
        for manifest in reversed(self._inputs.ledger.manifests(cluster, at - DATA_CHECK_PERIOD, at)):
            if manifest.coverage is not None:
                return manifest.coverage.allocation
        return None


class DataFindingFactory:
    """Makes the findings of a data rule on one tick."""

    def __init__(self, rule: DataRule, at: datetime, currency: str) -> None:
        self._at = at
        self._currency = currency
        self._firing_policy = firing_policy(rule)

    def __call__(
        self,
        cluster: str,
        detail: str,
        is_breach: bool | None,
        threshold: str,
        figures: dict[str, Decimal | None],
        note: str = "",
    ) -> Finding:
        """Make a finding of a cluster, or of the service if `cluster` is empty."""
        subject = Subject(cluster, detail=detail)
        return Finding(subject, self._at, is_breach, threshold, figures, self._currency, self._firing_policy, note=note)


def rules_of_alert_scope(settings: SettingsWithAlerts, scope: str) -> dict[str, RuleSettings]:
    """Return the rules that are evaluated in a scope."""
    rules_by_scope: dict[str, Callable[[], dict[str, RuleSettings]]] = {
        FLEET_SCOPE: lambda: tick_and_amp_rules(settings),
        CROSS_CLUSTER_WASTE_SCOPE: lambda: cross_cluster_waste_rules(settings),
    }
    return rules_by_scope.get(scope, lambda: hourly_rules(settings, scope))()
