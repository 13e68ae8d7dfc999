"""The expected cost of a business unit's month or quarter, and its budget."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from msgspec import Struct, structs

from gpucost.core.access import FULL_ACCESS, Scope
from gpucost.core.amounts import Costs, to_decimal
from gpucost.core.errors import InvalidInputError, NotFoundError
from gpucost.core.hours import HOUR, month_bounds
from gpucost.core.run_rate import ClusterSpend, counted_since, estimate_so_far, run_rate
from gpucost.features.recommendations.forecast import CONFIDENCE_LEVEL_PERCENT, Backtest, forecast
from gpucost.features.recommendations.model import round_cents
from gpucost.storage.ports import Rollups, SettingsStore, StoredSettings

FORECAST_HISTORY = timedelta(days=56)
Period = Literal["month", "quarter"]
MONTHS: Mapping[Period, int] = {"month": 1, "quarter": 3}
BudgetOf = Callable[[str, int], Decimal | None]
"""Returns the lowest budget of a business unit for a number of months, in USD; None if no rule covers the unit."""
_MIN_DATA_SHARE = Decimal("0.5")
_NOTHING = Costs()
"""The costs of a unit that held nothing, and of an unknown unit."""


class Projection(Struct, frozen=True):
    """What a series of hourly costs says about a period."""

    hours_known: int
    hours_unknown: int
    projected_usd: Decimal | None
    low_usd: Decimal | None
    high_usd: Decimal | None
    backtest: Backtest | None


@dataclass(frozen=True, slots=True)
class PeriodForecast:
    """A period's cost so far, and its expected cost."""

    business_unit: str | None
    """None for the whole fleet."""
    period: Period
    start: datetime
    end: datetime
    known_until: datetime
    """End of the newest hour that all clusters have published. Its cost counts as spent; later hours are projected."""
    spent_usd: Decimal
    """The priced cost so far, exact as in reports."""
    hours_known: int
    """Completely priced hours."""
    hours_unknown: int
    """Hours before `known_until` without figures or a price. The projection uses the mean of the others."""
    projected_usd: Decimal | None
    """None with too little history."""
    low_usd: Decimal | None
    high_usd: Decimal | None
    interval_percent: int
    """Confidence level of the interval."""
    backtest: Backtest | None
    run_rate_usd: Decimal | None
    """The period's cost at the mean hourly cost so far. None with too few hours."""
    budget_usd: Decimal | None
    """From the settings' budget rules; three months' for a quarter. None if no rule covers the unit."""
    currency: str
    estimated_usd: Decimal | None = None
    """The part of the run rate that is of hours so far without figures."""

    @classmethod
    def of(
        cls,
        projection: Projection,
        clusters: Sequence[ClusterSpend],
        *,
        known_until: datetime,
        end: datetime,
        **facts: Any,
    ) -> "PeriodForecast":
        """Build it from a projection, and what was spent in each cluster; `facts` are the other fields."""
        rate = run_rate(clusters, known_until, end)
        return cls(
            **structs.asdict(projection),
            **facts,
            end=end,
            known_until=known_until,
            interval_percent=CONFIDENCE_LEVEL_PERCENT,
            run_rate_usd=rate,
            estimated_usd=None if rate is None else estimate_so_far(clusters, known_until),
        )


def project_period(
    hours: Sequence[Decimal | None], first: datetime, start: datetime, until: datetime, end: datetime
) -> Projection:
    """Project a period from the costs of its hours so far and of those before; hours without a cost are unknown.

    Args:
        hours: the cost of every hour from `first` to `until`.
        first: start of the first hour.
        start: start of the period.
        until: end of the last hour.
        end: end of the period.
    """
    priced_costs = [cost for cost in hours[(start - first) // HOUR :] if cost is not None]
    passed, ahead = (until - start) // HOUR, (end - until) // HOUR
    history = [None if cost is None else float(cost) for cost in hours[-(FORECAST_HISTORY // HOUR) :]]
    # The unit did not exist before its first cost. A unit without any cost will cost nothing.
    first_cost = next((index for index, cost in enumerate(history) if cost), None)
    first_priced = next((index for index, cost in enumerate(history) if cost is not None), len(history))
    history = history[first_priced if first_cost is None else first_cost :]
    projection = None
    if passed == 0 or len(priced_costs) >= _MIN_DATA_SHARE * passed:
        projection = forecast(history, until - HOUR * len(history), ahead)
    cost_so_far = float(sum(priced_costs, Decimal(0))) * passed / len(priced_costs) if priced_costs else 0.0
    return Projection(
        len(priced_costs),
        passed - len(priced_costs),
        None if projection is None else round_cents(cost_so_far + projection.expected),
        None if projection is None else round_cents(cost_so_far + projection.low),
        None if projection is None else round_cents(cost_so_far + projection.high),
        None if projection is None else projection.backtest,
    )


class ForecastService:
    """Forecasts the cost of the current month or quarter.

    Args:
        settings_store: has the clusters and budgets.
        rollups: reads a unit's hours.
        budget_of: returns a unit's budget.
        published_until: returns the end of the hours that have figures.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        rollups: Rollups,
        budget_of: BudgetOf,
        *,
        published_until: Callable[[], datetime],
    ) -> None:
        self._settings_store = settings_store
        self._rollups = rollups
        self._budget_of = budget_of
        self._published_until = published_until

    def forecast(self, business_unit: str, period: Period, *, scope: Scope = FULL_ACCESS) -> PeriodForecast:
        """Forecast the current month or quarter.

        Raises:
            AccessDeniedError: the caller may not see the unit.
            InvalidInputError: the hours have several currencies.
            NotFoundError: the unit is neither in the settings nor in the hours of the last weeks.
            SettingsMissingError: no settings yet.
        """
        scope.require(business_unit)
        stored = self._settings_store.current()
        until = self._published_until()
        start, end = period_of(until - HOUR, period)
        first = min(start, until - FORECAST_HISTORY)
        hours, priced, clusters, currency = self._hours(stored, business_unit, first, start, until)
        spent = sum(priced[(start - first) // HOUR :], Decimal(0))
        projection = project_period(hours, first, start, until, end)
        return PeriodForecast.of(
            projection,
            clusters,
            business_unit=business_unit,
            period=period,
            start=start,
            end=end,
            known_until=until,
            spent_usd=spent,
            budget_usd=self._budget_of(business_unit, MONTHS[period]),
            currency=currency,
        )

    def _hours(
        self, stored: StoredSettings, unit: str, start: datetime, period_start: datetime, end: datetime
    ) -> tuple[list[Decimal | None], list[Decimal], list[ClusterSpend], str]:
        """The cost of each hour over all clusters; None if a price, or figures of one of its clusters, are missing.

        Returns:
            These costs, the priced part of every hour, what the unit spent since `period_start` in each of its
            clusters, and the currency.
        """
        settings = stored.settings
        count = (end - start) // HOUR
        sums: list[Decimal] = [Decimal(0)] * count
        missing = [False] * count
        seen = [False] * count
        currencies = set()
        of_unit: list[tuple[Decimal, int, datetime, bool]] = []
        fleet_first_hour: datetime | None = None
        is_unit_present = unit in {unit_settings.name for unit_settings in settings.business_units}
        for cluster in stored.clusters(start):
            hours = self._rollups.unit_hours(cluster, unit, start, end)
            if not hours:
                continue
            costs = {manifest.hour: unit_costs for manifest, unit_costs in hours}
            is_in_cluster = any(cost is not None and cost != _NOTHING for cost in costs.values())
            is_unit_present = is_unit_present or is_in_cluster
            currencies |= {manifest.currency for manifest, unit_costs in hours if unit_costs is not None}
            has_left = settings.cluster(cluster) is None
            first_hour, last_hour = min(costs), max(costs)
            first_in_period = max(first_hour, period_start)
            fleet_first_hour = min(fleet_first_hour or first_in_period, first_in_period)
            if is_in_cluster:
                amounts = [
                    to_decimal(cost.allocated_usd)
                    for hour, cost in costs.items()
                    if cost is not None and hour >= period_start
                ]
                of_unit.append((sum(amounts, Decimal(0)), len(amounts), first_in_period, has_left))
            for index in range((first_hour - start) // HOUR, (last_hour - start) // HOUR + 1 if has_left else count):
                cost = costs.get(start + HOUR * index)
                if cost is None:
                    missing[index] |= is_in_cluster
                    continue
                seen[index] = True
                missing[index] |= bool(cost.unpriced_gpu_hours)
                sums[index] += to_decimal(cost.allocated_usd)
        if not is_unit_present:
            raise NotFoundError(
                f"no such business unit: {unit!r} is neither in the settings nor in the hours of the last weeks"
            )
        if len(currencies) > 1:
            raise InvalidInputError(
                f"hours of the last weeks have several currencies: {', '.join(sorted(currencies))}. A forecast needs "
                "a single one"
            )
        hourly_costs = [None if missing[index] or not seen[index] else sums[index] for index in range(count)]
        clusters = [
            ClusterSpend(spent, hours_with_data, counted_since(since, fleet_first_hour, period_start), has_left)
            for spent, hours_with_data, since, has_left in of_unit
        ]
        return hourly_costs, sums, clusters, next(iter(currencies), settings.pricing.currency)


def period_of(moment: datetime, kind: Period) -> tuple[datetime, datetime]:
    """Return the calendar month or quarter that contains a moment."""
    start, end = month_bounds(moment)
    if kind == "quarter":
        start = start.replace(month=(start.month - 1) // MONTHS["quarter"] * MONTHS["quarter"] + 1)
        end = start
        for _ in range(MONTHS["quarter"]):
            end = month_bounds(end)[1]
    return start, end
