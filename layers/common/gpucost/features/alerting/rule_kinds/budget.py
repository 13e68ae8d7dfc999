"""Budgets: what a business unit spent since the month began, and the run rate to the end of the month.

The amount spent is a lower bound, so that it reaches a threshold for certain even if hours are missing.
"""

from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field

from gpucost.core.hours import month_bounds
from gpucost.features.alerting.formatting import FigureFormatter, format_threshold, rounded_percent
from gpucost.features.alerting.rule_kinds.base import (
    Figure,
    Finding,
    FiringPolicy,
    Rule,
    RuleOverride,
    Subject,
    TickRule,
)
from gpucost.settings.section import BOUNDED_DIGITS, Positive

if TYPE_CHECKING:
    from gpucost.features.alerting.model import Alert
    from gpucost.features.alerting.tick_figures import TickFigures

PROJECTION_KEEP_FIRING_HOURS = 24
"""For how long a projection must stay below its threshold to resolve: it changes with every hour."""
_MONTHS_PER_QUARTER = 3


class BudgetOverride(RuleOverride):
    """Another budget."""

    example = """
    business_unit: research
    monthly_usd: 120000
    """

    monthly_usd: Positive | None = None
    """The budget for a calendar month in USD, in place of the rule's."""
    quarterly_usd: Positive | None = None
    """The budget for a calendar quarter in USD, in place of the rule's."""

    def overridden_settings(self) -> dict[str, Any]:
        """Return the keys that the override replaces; another monthly budget also removes the rule's quarterly one."""
        return ({} if self.monthly_usd is None else {"quarterly_usd": None}) | super().overridden_settings()


class BudgetRule(TickRule):
    """Fires when a business unit's month to date, or its projection, reaches percentages of a budget."""

    kind = "budget"
    title = "GPU budget alert"
    action = "Stop idle workloads, or change the budget in the settings (alerts.rules)."
    figures = (
        Figure("Spent", "spent_usd", "spent_percent"),
        Figure("Projected", "projected_usd", "projected_percent"),
        Figure("Budget", "budget_usd"),
    )
    days_in_link = 31
    fires_when = (
        "a business unit's spend since the month began reaches one of `percents` of `monthly_usd`. With `projection` "
        "(the default), also when the projection for the month reaches the highest of them. Quarterly forecasts use "
        "`quarterly_usd` (default: three times the monthly budget)"
    )
    subjects = "a business unit, over clusters"
    example = """
    rule: budget
    monthly_usd: 50000
    percents: [50, 80, 100]
    """

    rule: Literal["budget"]
    """The kind of the rule."""
    monthly_usd: Positive
    """The budget of each business unit in scope for a calendar month, in USD."""
    quarterly_usd: Positive | None = None
    """Used by quarterly forecasts. Default: three times the monthly budget. Alerts only use the monthly budget."""
    percents: Annotated[
        tuple[Annotated[Decimal, Field(gt=0, le=1000), BOUNDED_DIGITS], ...], Field(min_length=1, max_length=10)
    ] = (Decimal(50), Decimal(80), Decimal(100))
    """The percentages of the budget at which an alert fires."""
    projection: bool = True
    """Whether to fire also when the projection for the whole month reaches the highest of `percents`."""
    overrides: tuple[BudgetOverride, ...] = ()
    """Other budgets for some business units. The first that matches is used."""

    @classmethod
    def predicate(cls, figures: FigureFormatter, detail: str, *, is_resolved: bool) -> str:
        """Return what the sentence of a notification says about its subject."""
        verb = "is below its budget threshold again:" if is_resolved else "has"
        return (
            f"{verb} spent {figures.money('spent_usd')} of {figures.money('budget_usd')} this month "
            f"({figures.number('spent_percent')}%), projected: {figures.money('projected_usd')}"
        )

    def is_over(self, alert: "Alert", tick: "TickFigures") -> bool:
        """Whether the month of an alert is over."""
        start, _ = month_bounds(tick.newest_expected_hour)
        return not alert.subject.detail.startswith(f"{start:%Y-%m}")

    def findings(self, tick: "TickFigures", active_alerts: "Sequence[Alert]") -> Iterator[Finding]:
        """Evaluate the month to date: one finding for each business unit, percentage, and spend or projection.

        A unit has none while the month of one of its clusters has amounts in several currencies, or a part that is not
        summed yet. The months of clusters that left the settings count.
        """
        start, _ = month_bounds(tick.newest_expected_hour)
        months = tick.months_to_date(self.scope, start)
        units = {*months.units, *(alert.subject.business_unit for alert in active_alerts)}
        for unit in sorted(filter(self.scope.has_unit, units)):
            spent_and_projected = tick.spent_and_projected(months, unit)
            if spent_and_projected is not None:
                rule = self.for_subject(Subject(business_unit=unit))
                yield from rule.findings_of_unit(tick, unit, f"{start:%Y-%m}", *spent_and_projected)

    def findings_of_unit(
        self, tick: "TickFigures", unit: str, month: str, spent: Decimal, projected: Decimal | None
    ) -> Iterator[Finding]:
        """Yield the findings of a business unit, with the thresholds that apply to it."""
        budget = format_threshold(self.monthly_usd, tick.currency)
        figures = {
            "spent_usd": spent,
            "spent_percent": rounded_percent(spent, self.monthly_usd),
            "projected_usd": projected,
            "projected_percent": None if projected is None else rounded_percent(projected, self.monthly_usd),
            "budget_usd": self.monthly_usd,
        }
        highest = self.highest_reached(spent)
        for percent in self.percents:
            yield Finding(
                Subject(business_unit=unit, detail=f"{month} spent {percent:f}%"),
                tick.at,
                self.is_reached(spent, percent),
                f"spent ≥ {percent:f}% of a monthly budget of {budget}",
                figures,
                tick.currency,
                self.firing_policy,
                is_history_only=highest is not None and percent < highest,  # 100% says more than 80%
            )
        if self.projection:
            percent = max(self.percents)
            yield Finding(
                Subject(business_unit=unit, detail=f"{month} projected {percent:f}%"),
                tick.at,
                None if projected is None else self.is_reached(projected, percent),
                f"projected for the month ≥ {percent:f}% of a monthly budget of {budget}",
                figures,
                tick.currency,
                FiringPolicy(self.for_hours, PROJECTION_KEEP_FIRING_HOURS),
                is_history_only=self.is_reached(spent, percent),  # money that is spent says more than a projection
            )

    def is_reached(self, amount: Decimal, percent: Decimal) -> bool:
        """Whether an amount reaches a percentage of the budget."""
        return amount * 100 >= percent * self.monthly_usd

    def highest_reached(self, amount: Decimal) -> Decimal | None:
        """Return the highest threshold that an amount reaches; None if it reaches none."""
        return max((percent for percent in self.percents if self.is_reached(amount, percent)), default=None)


def lowest_budget(rules: Iterable[Rule], business_unit: str, months: int) -> Decimal | None:
    """The lowest budget of a business unit over all clusters, in the currency of the settings.

    Args:
        rules: the rules of the settings.
        business_unit: the unit.
        months: 1 or 3; a rule without a quarterly budget counts three times its monthly one.
    """
    budgets = [
        rule.for_subject(Subject(business_unit=business_unit))
        for rule in rules
        if isinstance(rule, BudgetRule) and rule.scope.has_unit(business_unit) and not rule.scope.clusters
    ]
    quarterly = [budget.quarterly_usd if months == _MONTHS_PER_QUARTER else None for budget in budgets]
    amounts = (usd or budget.monthly_usd * months for usd, budget in zip(quarterly, budgets, strict=True))
    return min(amounts, default=None)
