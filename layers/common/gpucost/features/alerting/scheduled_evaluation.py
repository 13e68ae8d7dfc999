"""Evaluation on the schedule: the rules that need more than a published hour, and repeated notifications."""

from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from gpucost.features.alerting.findings import FLEET_SCOPE
from gpucost.features.alerting.model import AlertGroup
from gpucost.features.alerting.muting import Muting, is_repeat_due
from gpucost.features.alerting.ports import AlertStateStore, RuleInputs, ScopeStates
from gpucost.features.alerting.rule_kinds.base import TickRule
from gpucost.features.alerting.scope_update import ScopeUpdate
from gpucost.features.alerting.settings import SettingsDocument, rules_of_scope
from gpucost.features.alerting.tick_figures import TickFigures
from gpucost.runtime.messages import AlertTick
from gpucost.storage.ports import StoredSettings


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
