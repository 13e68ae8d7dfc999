"""Alerting's services and storage, each made when it is first used."""

from functools import cached_property, partial
from typing import TYPE_CHECKING

from gpucost.shared_parts import SharedParts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gpucost.features.alerting.alert_service import AlertService
    from gpucost.features.alerting.month_budgets import BudgetService
    from gpucost.features.alerting.ports import Notifier, ReadSavings
    from gpucost.features.alerting.queries import AlertQueries
    from gpucost.features.alerting.settings import SettingsDocument
    from gpucost.features.alerting.storage import AlertHistory, DynamoAlertStateStore, DynamoSpendStore, SilenceStore


class AlertingParts(SharedParts):
    """Alerting's services and storage."""

    @cached_property
    def read_savings(self) -> "ReadSavings":
        """What recommendations would save; of recommendations."""
        raise NotImplementedError

    @cached_property
    def alert_states(self) -> "DynamoAlertStateStore":
        """States of alerts."""
        from gpucost.features.alerting.storage import DynamoAlertStateStore

        return DynamoAlertStateStore(self.table)

    @cached_property
    def alert_history(self) -> "AlertHistory":
        """The history of notifications."""
        from gpucost.features.alerting.storage import AlertHistory

        return AlertHistory(self.table)

    @cached_property
    def silences(self) -> "SilenceStore":
        """Silences of alerts."""
        from gpucost.features.alerting.storage import SilenceStore

        return SilenceStore(self.table)

    @cached_property
    def alert_spend(self) -> "DynamoSpendStore":
        """Spend by month and day, as alert rules on spend compare it."""
        from gpucost.features.alerting.storage import DynamoSpendStore

        return DynamoSpendStore(self.table)

    @cached_property
    def notifiers(self) -> "Callable[[SettingsDocument], Mapping[str, Notifier]]":
        """The notifiers of the settings' receivers, by the receivers' keys."""
        from gpucost.features.alerting.notifiers import make_notifiers

        return partial(
            make_notifiers,
            email_topic_arn=self.environment.email_topic_arn,
            public_url=self.environment.public_url,
            client=self.client,
            secret_value=self.secrets.value,
        )

    @cached_property
    def alert_service(self) -> "AlertService":
        """For `functions/alert`."""
        from gpucost.features.alerting.alert_service import AlertService
        from gpucost.features.alerting.evaluation import estimates_check
        from gpucost.features.alerting.ports import RuleInputs
        from gpucost.runtime.messages import count_waiting_messages
        from gpucost.storage.price_book import last_spot_fetch

        env = self.environment

        rule_inputs = RuleInputs(
            self.ledger,
            self.rollups,
            self.alert_spend,
            read_spot_fetch_time=lambda: last_spot_fetch(self.price_book),
            count_dead_letters=lambda: count_waiting_messages(env.dead_letter_queue_url, client=self.client),
            allows_estimates=estimates_check(self.settings_store),
            read_savings=self.read_savings,
        )
        return AlertService(
            self.settings_store,
            rule_inputs,
            self.alert_states,
            self.alert_history,
            self.silences,
            self.notifiers,
            self.bus.send_to_dead_letter_queue,
            clock=self.clock,
        )

    @cached_property
    def alert_queries(self) -> "AlertQueries":
        """For `functions/api`, which only lists."""
        from gpucost.features.alerting.queries import AlertQueries

        return AlertQueries(self.settings_store, self.alert_states, self.alert_history, self.silences, clock=self.clock)

    @cached_property
    def budgets(self) -> "BudgetService":
        """For `functions/api`."""
        from gpucost.features.alerting.month_budgets import BudgetService

        return BudgetService(self.settings_store, self.rollups, self.ledger, clock=self.clock)
