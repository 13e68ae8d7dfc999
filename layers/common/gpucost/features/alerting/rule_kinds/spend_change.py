"""Spend change: today so far compared with the same hours of the same weekday in previous weeks.

The reference is the median, so that one unusual day, such as a holiday or an incident, does not matter. Amounts are
compared only if they were priced the same way. So each day is stored as first computed, with the price sources in
force, and a day under other price sources is compared in GPU-hours, at today's mean price. (With restated figures, list
prices would be compared with weeks that the bill has restated since, and the rule would fire every day.)
"""

from collections.abc import Iterator, Sequence
from decimal import Decimal
from statistics import median
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field

from gpucost.core.amounts import Costs, to_decimal
from gpucost.features.alerting.formatting import FigureFormatter, format_threshold, quantized_ratio, rounded_percent
from gpucost.features.alerting.rule_kinds.base import Figure, Finding, RuleOverride, Subject, TickRule
from gpucost.settings.section import BOUNDED_DIGITS, Positive

if TYPE_CHECKING:
    from gpucost.features.alerting.model import Alert
    from gpucost.features.alerting.ports import DayToDateSpend
    from gpucost.features.alerting.tick_figures import TickFigures

MIN_WEEKS = 2
"""The median of fewer weeks is no reference."""


class SpendComparison(NamedTuple):
    """Today's spend and its reference."""

    today_usd: Decimal
    usual_usd: Decimal
    compares_gpu_hours: bool
    """Whether GPU-hours were compared, at today's mean price, because the price sources differ."""
    weeks_compared: int

    @property
    def figures(self) -> dict[str, Decimal | None]:
        """The figures of a notification."""
        return {
            "today_usd": self.today_usd,
            "usual_usd": self.usual_usd,
            "change_percent": rounded_percent(self.today_usd - self.usual_usd, self.usual_usd),
            "weeks": Decimal(self.weeks_compared),
            "by_gpu_hours": Decimal(self.compares_gpu_hours),
        }


class SpendChangeOverride(RuleOverride):
    """Other thresholds of a spend-change rule."""

    example = """
    business_unit: research
    percent: 60
    """

    percent: Annotated[Decimal, Field(gt=0, le=100_000), BOUNDED_DIGITS] | None = None
    """The difference in percent, in place of the rule's."""
    usd: Positive | None = None
    """The difference in USD, in place of the rule's."""


class SpendChangeRule(TickRule):
    """Fires when a business unit's day differs from the same hours of previous weeks."""

    kind = "spend-change"
    title = "GPU spend change"
    action = "Compare today's workloads with last week's in the report."
    figures = (
        Figure("Today so far", "today_usd"),
        Figure("Usual at this time", "usual_usd"),
        Figure("Change", "change_percent"),
    )
    is_inhibited_by_missing_data = True
    fires_when = (
        "today so far differs by more than `percent` **and** `usd` from the median of the same hours of the same "
        "weekday in the last `weeks` weeks"
    )
    subjects = "a business unit, over clusters"
    example = """
    rule: spend-change
    percent: 30
    usd: 500
    """

    rule: Literal["spend-change"]
    """The kind of the rule."""
    percent: Annotated[Decimal, Field(gt=0, le=100_000), BOUNDED_DIGITS]
    """Fires if the difference is larger than this part of the previous weeks' median, and larger than `usd`."""
    usd: Positive
    """The minimum difference in USD."""
    weeks: Annotated[int, Field(ge=2, le=8)] = 4
    """How many previous weeks are compared."""
    overrides: tuple[SpendChangeOverride, ...] = ()
    """Other thresholds for some business units. The first that matches is used."""

    @classmethod
    def predicate(cls, figures: FigureFormatter, detail: str, *, is_resolved: bool) -> str:
        """Return what the sentence of a notification says about its subject."""
        verb = "spends as usual again:" if is_resolved else "spent"
        return (
            f"{verb} {figures.money('today_usd')} today instead of the usual {figures.money('usual_usd')} "
            f"({figures.number('change_percent', signed=True)}%)"
        )

    def findings(self, tick: "TickFigures", active_alerts: "Sequence[Alert]") -> Iterator[Finding]:
        """Evaluate today so far: one finding for each business unit.

        A unit has none while an hour of today is missing in one of its clusters, and no reference in a week in which
        such a cluster has no sums. Clusters that left the settings since count.
        """
        clusters = tick.days_to_date(self.scope, self.weeks)
        units = {unit for days in clusters for unit in days.units}
        units |= {alert.subject.business_unit for alert in active_alerts}
        for unit in sorted(filter(self.scope.has_unit, units)):
            of_unit = [days for days in clusters if unit in days.units]
            today = [days.today for days in of_unit if days.today]
            if len(today) < len(of_unit):
                continue
            references = []
            for number in range(self.weeks):
                week = [day for days in of_unit if (day := days.weeks[number])]
                is_summed = any((day := days.weeks[number]) and not day.is_absent for days in clusters)
                if len(week) == len(of_unit) and is_summed:
                    has_same_sources = all(
                        day.is_absent or day.pricing_fingerprint == tick.pricing_fingerprint for day in week
                    )
                    references.append((_costs_of(unit, week), has_same_sources))
            comparison = compare_with_previous_weeks(_costs_of(unit, today), references)
            is_of_gpu_hours = comparison is not None and comparison.compares_gpu_hours
            subject = Subject(business_unit=unit)
            rule = self.for_subject(subject)
            yield Finding(
                subject,
                tick.at,
                rule.is_breached_by(comparison),
                rule.threshold(tick.currency),
                comparison.figures if comparison else {},
                tick.currency,
                rule.firing_policy,
                note="price sources differ: compared in GPU-hours, at today's mean price" if is_of_gpu_hours else "",
            )

    def is_breached_by(self, comparison: SpendComparison | None) -> bool | None:
        """Whether today differs by more than both thresholds, up or down; None without a reference."""
        if comparison is None:
            return None
        difference = abs(comparison.today_usd - comparison.usual_usd)
        return difference > self.usd and difference * 100 > self.percent * comparison.usual_usd

    def threshold(self, currency: str) -> str:
        """Describe the condition in plain text."""
        usd = format_threshold(self.usd, currency)
        return f"spend differs by > {self.percent:f}% and > {usd} from the same hours of the last {self.weeks} weeks"


def compare_with_previous_weeks(today: Costs, weeks: Sequence[tuple[Costs, bool]]) -> SpendComparison | None:
    """Compare today with previous weeks; None if fewer than two weeks have data.

    Args:
        today: a business unit's day to date.
        weeks: the same hours of previous weeks, each with whether its prices came from the same sources.
    """
    today_usd, today_gpu_hours = to_decimal(today.allocated_usd), to_decimal(today.allocated_gpu_hours)
    comparable = [to_decimal(week.allocated_usd) for week, has_same_sources in weeks if has_same_sources]
    if len(comparable) >= MIN_WEEKS:
        return SpendComparison(today_usd, median(comparable), compares_gpu_hours=False, weeks_compared=len(comparable))
    if len(weeks) < MIN_WEEKS or not today_gpu_hours:
        return None
    usual_usd = quantized_ratio(
        median([to_decimal(week.allocated_gpu_hours) for week, _ in weeks]) * today_usd, today_gpu_hours
    )
    return SpendComparison(today_usd, usual_usd, compares_gpu_hours=True, weeks_compared=len(weeks))


def _costs_of(unit: str, days: "Sequence[DayToDateSpend]") -> Costs:
    return Costs.total(day.costs_by_unit[unit] for day in days if unit in day.costs_by_unit)
