"""Budgets that the alert rules of the settings set."""

from collections.abc import Sequence
from decimal import Decimal

from gpucost.features.alerting.settings import SettingsWithAlerts
from gpucost.features.alerting.settings.rules import BudgetRule
from gpucost.features.alerting.subjects import Subject

_MONTHS_PER_QUARTER = 3


def lowest_budget(settings: SettingsWithAlerts, business_unit: str, months: int) -> Decimal | None:
    """The lowest budget of a business unit over all clusters, in the currency of the settings.

    Args:
        settings: the document.
        business_unit: the unit.
        months: 1 or 3; a rule without a quarterly budget counts three times its monthly one.
    """
    rules: Sequence[BudgetRule] = [
        rule
        for rule in settings.alerts.rules_by_name().values()
        if isinstance(rule, BudgetRule) and rule.scope.has_unit(business_unit) and not rule.scope.clusters
    ]
    effective = [rule.for_subject(Subject(business_unit=business_unit)) for rule in rules]
    if months == _MONTHS_PER_QUARTER:
        return min((rule.quarterly_usd or rule.monthly_usd * months for rule in effective), default=None)
    return min((rule.monthly_usd * months for rule in effective), default=None)
