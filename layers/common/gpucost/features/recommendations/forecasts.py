"""The expected cost of a month or quarter: the model, a business unit with its budget, and the fleet with its parts."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from math import sqrt
from typing import Any, Final, Literal

from msgspec import Struct, structs

from gpucost.core.access import FULL_ACCESS, Scope
from gpucost.core.amounts import Costs, Totals, to_decimal
from gpucost.core.errors import AccessDeniedError, InvalidInputError, NotFoundError
from gpucost.core.hours import HOUR, floor_day, month_bounds
from gpucost.core.ledger import CostSummary
from gpucost.core.query.periods import ClusterSpend, counted_since, estimate_so_far, run_rate
from gpucost.features.recommendations.model import round_cents
from gpucost.storage.ports import PublishedHours, Rollups, SettingsStore, StoredSettings

# Forecasts the cost of a period: the pattern of past weeks at the level of the newest weeks.
#
#     cost of a future hour = level × shape of its hour of the week
#
# - shape: the mean over the weeks of (hour's cost ÷ its week's mean). With fewer than two values for an hour of the
#   week, the same hour of all days; without any value, the week's mean.
# - level: the mean of the weeks' levels, each counting half as much as the one after it.
# - interval: the same forecast is made from every past day, for as long ahead as the history allows, and compared with
#   the actual cost. The root mean square of these relative errors × Student's t is the half width. For longer forecasts
#   it grows with the square root of time, like a random walk of the level. It is never narrower than 1% to either side:
#   a unit that cost the same every week says nothing about its next release.
#
# The model has no trend, holidays or release days. Every forecast reports how often past intervals were right.

WEEK: Final = 168
MIN_HISTORY_HOURS: Final = 2 * WEEK
"""Hours of history that a forecast needs."""
_DAY = 24
_MIN_HISTORY_SHARE = 0.8
"""Part of the history's hours that must have a cost."""
_MIN_ERRORS = 4
"""Number of past forecasts that an estimate of errors needs."""
_MIN_RELATIVE_MARGIN: Final = 0.01
"""Least half-width of the interval, as a share of the cost: even constant costs change some day."""
STUDENT_T_80 = (3.08, 1.89, 1.64, 1.53, 1.48, 1.44, 1.41, 1.40, 1.38, 1.37)
"""Student's t at 80%, two-sided, for 1 to 10 degrees of freedom."""
STUDENT_T_80_MANY_DEGREES = 1.32
CONFIDENCE_LEVEL_PERCENT = 80
"""Of the interval."""


class Backtest(Struct, frozen=True):
    """Past forecasts compared with the actual cost."""

    hours: int
    """Length of each forecast, in hours."""
    evaluated: int
    covered: int
    """Number of past forecasts whose interval contains the actual cost."""


class Forecast(Struct, frozen=True):
    """A forecast of the sum of future hours."""

    expected: float
    low: float
    high: float
    backtest: Backtest | None
    """None if the history is too short."""


def forecast(history: Sequence[float | None], first_hour: datetime, hours_ahead: int) -> Forecast | None:
    """Forecast the sum of the hours that follow a history.

    Args:
        history: cost of every hour, oldest first; None if unknown.
        first_hour: of the history.
        hours_ahead: number of hours to forecast.

    Returns:
        None with less than two weeks of history, or if more than a fifth of it is unknown.
    """
    past = _CostHistory(history, first_hour)
    interval = past.interval(len(history), hours_ahead)
    if interval is None:
        return None
    expected, margin = interval
    return Forecast(expected, max(0.0, expected - margin), expected + margin, _backtest(past, hours_ahead))


def backtest(history: Sequence[float | None], first_hour: datetime, hours_ahead: int) -> Backtest | None:
    """Count how often past intervals contain the actual cost; None if there are none."""
    return _backtest(_CostHistory(history, first_hour), hours_ahead)


def _backtest(past: "_CostHistory", hours_ahead: int) -> Backtest | None:
    hours = min(hours_ahead, max(0, len(past.history) - 2 * MIN_HISTORY_HOURS))
    hours -= hours % _DAY
    evaluated = covered = 0
    for origin in _origins(len(past.history), MIN_HISTORY_HOURS + 2 * _DAY, hours):
        actual, interval = past.actual(origin, hours), past.interval(origin, hours)
        if actual is not None and interval is not None:
            evaluated += 1
            covered += abs(actual - interval[0]) <= interval[1]
    return Backtest(hours, evaluated, covered) if evaluated else None


class _CostHistory:
    """A history and the forecasts from its earlier times, each calculated once."""

    def __init__(self, history: Sequence[float | None], first_hour: datetime) -> None:
        self.history = history
        self._first_hour = first_hour
        self._errors: dict[tuple[int, int], float | None] = {}

    def actual(self, origin: int, hours_ahead: int) -> float | None:
        """The cost of the hours after an origin; None if too few are known."""
        return _extrapolated_sum(self.history[origin : origin + hours_ahead])

    def interval(self, origin: int, hours_ahead: int) -> tuple[float, float] | None:
        """The expected sum and the half width of its interval, from the hours before an origin."""
        expected = expected_sum(self.history[:origin], self._first_hour, hours_ahead)
        if not expected:
            return None if expected is None else (0.0, 0.0)
        tested_hours = min(hours_ahead, max(_DAY, origin - MIN_HISTORY_HOURS - _MIN_ERRORS * _DAY))
        tested_hours -= tested_hours % _DAY if tested_hours > _DAY else 0
        all_errors = [self._error(at, tested_hours) for at in _origins(origin, MIN_HISTORY_HOURS, tested_hours)]
        errors = [error for error in all_errors if error is not None]
        if len(errors) < _MIN_ERRORS:
            return expected, expected  # the interval is as wide as the sum: practically unknown
        spread = sqrt(sum(error**2 for error in errors) / len(errors))
        # Forecasts made a day apart overlap, so they count about twice as much as those that fit without overlap.
        freedom = max(2, round(2 * len(errors) * _DAY / max(tested_hours, _DAY)))
        student_t = STUDENT_T_80[freedom - 1] if freedom <= len(STUDENT_T_80) else STUDENT_T_80_MANY_DEGREES
        margin = spread * student_t * sqrt(max(1.0, hours_ahead / tested_hours))
        return expected, expected * max(margin, _MIN_RELATIVE_MARGIN)

    def _error(self, origin: int, hours_ahead: int) -> float | None:
        """The relative error of the forecast made at an origin."""
        key = origin, hours_ahead
        if key not in self._errors:
            actual, expected = (
                self.actual(origin, hours_ahead),
                expected_sum(self.history[:origin], self._first_hour, hours_ahead),
            )
            self._errors[key] = actual / expected - 1 if actual is not None and expected else None
        return self._errors[key]


def expected_sum(history: Sequence[float | None], first_hour: datetime, hours_ahead: int) -> float | None:
    """The expected sum of the hours that follow a history."""
    hours_with_cost = sum(cost is not None for cost in history)
    if len(history) < MIN_HISTORY_HOURS or hours_with_cost < _MIN_HISTORY_SHARE * len(history):
        return None
    first = (first_hour.weekday() * _DAY + first_hour.hour) % WEEK
    weeks = [history[max(0, end - WEEK) : end] for end in range(len(history), 0, -WEEK)]
    levels, shape = _weekly_levels(weeks), [[0.0, 0.0] for _ in range(WEEK)]
    for number, week in enumerate(weeks):
        level = levels[number]
        if level is None or level <= 0:
            continue
        begin = len(history) - number * WEEK - len(week)
        for offset, cost in enumerate(week):
            if cost is not None:
                slot = shape[(first + begin + offset) % WEEK]
                slot[0] += cost / level
                slot[1] += 1
    level = _weighted_level(levels)
    if level is None:
        return None
    by_hour = [_shape_of(shape, hour) for hour in range(WEEK)]
    whole, rest = divmod(hours_ahead, WEEK)
    begin = (first + len(history)) % WEEK
    return level * (whole * sum(by_hour) + sum(by_hour[(begin + hour) % WEEK] for hour in range(rest)))


def _shape_of(shape: Sequence[Sequence[float]], hour: int) -> float:
    total, count = shape[hour]
    if count > 1:
        return total / count
    same_hours = [shape[day * _DAY + hour % _DAY] for day in range(7)]
    observations = sum(count for _, count in same_hours)
    return sum(total for total, _ in same_hours) / observations if observations else 1.0


def _weekly_levels(weeks: Sequence[Sequence[float | None]]) -> list[float | None]:
    """Mean cost per hour by week, newest first; None for partial weeks and mostly unknown ones."""
    levels: list[float | None] = []
    for week in weeks:
        week_costs = [cost for cost in week if cost is not None]
        levels.append(sum(week_costs) / len(week_costs) if len(week) == WEEK and len(week_costs) > WEEK / 2 else None)
    return levels


def _weighted_level(levels: Sequence[float | None]) -> float | None:
    weighted = [(0.5**age, level) for age, level in enumerate(levels) if level is not None]
    total = sum(weight for weight, _ in weighted)
    return sum(weight * level for weight, level in weighted) / total if total else None


def _origins(end: int, least: int, hours_ahead: int) -> range:
    """Indexes at which a history can end and still leave `hours_ahead` hours to compare with."""
    last = end - hours_ahead
    return range(last - (last - least) // _DAY * _DAY, last + 1, _DAY) if hours_ahead and last >= least else range(0)


def _extrapolated_sum(hours: Sequence[float | None]) -> float | None:
    available_costs = [cost for cost in hours if cost is not None]
    return (
        sum(available_costs) * len(hours) / len(available_costs)
        if len(available_costs) >= _MIN_HISTORY_SHARE * len(hours) and available_costs
        else None
    )


# Periods and projections, and the expected cost of a business unit with its budget.

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


# The expected cost of the fleet's month or quarter, and of its business units, clusters and node pools.
#
# The fleet and its clusters cost what their nodes cost; business units and node pools have their allocated cost. A
# day's costs are spread over its hours with figures: the weekly pattern of the forecast is one of days.

GroupBy = Literal["business_unit", "cluster", "node_pool"]
MAX_GROUPS = 10
"""Most groups of a forecast, those with the largest cost so far: each takes as long as a forecast of its own."""
MAX_FACTS = 400_000
"""Most day facts that a forecast by node pool is summed from."""
_FLEET = None
"""The key of the whole fleet; "" is that of nodes without a pool."""


class GroupForecast(Struct, frozen=True):
    """The period of a business unit, cluster or node pool."""

    name: str
    spent_usd: Decimal
    projection: Projection
    run_rate_usd: Decimal | None


class FleetForecast(Struct, frozen=True):
    """The fleet's period, and its groups, those with the largest cost first."""

    fleet: PeriodForecast
    rows: tuple[GroupForecast, ...]


class _Costs:
    """The hourly costs of a group in one cluster."""

    def __init__(self) -> None:
        self.hours: dict[datetime, Decimal | None] = {}
        """None if a price is missing."""
        self.spent: dict[datetime, Decimal] = {}
        """The priced cost by start of the day or hour that it was read from."""


class _Cluster(Struct):
    """What is recorded of a cluster, and the costs of its groups."""

    first_hour: datetime
    end: datetime
    """End of its last hour if it has left; else that of the hours that should have figures."""
    has_left: bool
    hours_with_figures: set[datetime]
    """Hours with figures."""
    costs: dict[str | None, _Costs]


class FleetForecastService:
    """Forecasts the cost of the fleet's current month or quarter.

    Args:
        settings_store: has the clusters, business units and budgets.
        rollups: reads days.
        ledger: reads the hours of the current day.
        budget_of: returns a business unit's budget.
        published_until: returns the end of the hours that have figures.
    """

    def __init__(
        self,
        settings_store: SettingsStore,
        rollups: Rollups,
        ledger: PublishedHours,
        budget_of: BudgetOf,
        *,
        published_until: Callable[[], datetime],
    ) -> None:
        self._settings_store = settings_store
        self._rollups = rollups
        self._ledger = ledger
        self._budget_of = budget_of
        self._published_until = published_until

    def forecast(self, period: Period, group_by: GroupBy, *, scope: Scope) -> FleetForecast:
        """Forecast the current month or quarter.

        Raises:
            AccessDeniedError: the caller may not see the whole fleet.
            InvalidInputError: the hours have several currencies, or too many day facts.
            SettingsMissingError: no settings yet.
        """
        if not scope.is_fleet:
            raise AccessDeniedError("this forecast covers all business units. Pass business_unit.")
        stored = self._settings_store.current()
        until = self._published_until()
        start, end = period_of(until - HOUR, period)
        first = floor_day(min(start, until - FORECAST_HISTORY))
        currencies: set[str] = set()
        units = {unit.name for unit in stored.settings.business_units}
        clusters: dict[str, _Cluster] = {}
        fact_count = 0
        for name in stored.clusters(first):
            summaries: list[CostSummary[Any]] = [
                *self._rollups.days(name, first, floor_day(until)),
                *self._ledger.summaries(name, floor_day(until), until),
            ]
            manifests = [manifest for summary in summaries for manifest in summary.manifests]
            if not manifests:
                continue
            has_left = stored.settings.cluster(name) is None
            last = manifests[-1].hour + HOUR
            cluster = _Cluster(manifests[0].hour, last if has_left else until, has_left, set(), {})
            clusters[name] = cluster
            for summary in summaries:
                currencies |= summary.currencies
                units |= {unit for unit, _ in _allocated_by_unit(summary)}
                hours = [manifest.hour for manifest in summary.manifests if manifest.status != "incomplete"]
                if not hours or summary.totals is None:
                    continue
                cluster.hours_with_figures.update(hours)
                _add(cluster, _FLEET, summary.start, hours, *_node_cost(summary.totals))
                if group_by == "business_unit":
                    for unit, amounts in _allocated_by_unit(summary):
                        _add(cluster, unit, summary.start, hours, *amounts)
            if group_by == "node_pool":
                fact_count += self._add_pools(name, cluster, summaries, (first, floor_day(until), until))
                if fact_count > MAX_FACTS:
                    raise InvalidInputError(
                        f"a forecast by node pool would be summed from more than {MAX_FACTS:,} day facts. Select "
                        "group_by=cluster or group_by=business_unit."
                    )
        if len(currencies) > 1:
            raise InvalidInputError(
                f"hours of the last weeks have several currencies: {', '.join(sorted(currencies))}. A forecast needs "
                "a single one"
            )
        times = _Times(first, start, until, end)
        budgets = [self._budget_of(unit, MONTHS[period]) for unit in sorted(units)]
        all_budgets = [budget for budget in budgets if budget is not None]
        spent, projection, clusters_spent = _forecast(clusters, _FLEET, times)
        fleet = PeriodForecast.of(
            projection,
            clusters_spent,
            business_unit=None,
            period=period,
            start=start,
            end=end,
            known_until=until,
            spent_usd=spent,
            budget_usd=sum(all_budgets, Decimal(0)) if budgets and len(all_budgets) == len(budgets) else None,
            currency=next(iter(currencies), stored.settings.pricing.currency),
        )
        return FleetForecast(fleet, _rows(clusters, group_by, times))

    def _add_pools(
        self,
        name: str,
        cluster: _Cluster,
        summaries: Iterable[CostSummary[Any]],
        times: tuple[datetime, datetime, datetime],
    ) -> int:
        """Add the allocated cost of node pools; return the number of facts."""
        first, today, until = times
        hours_of_day: dict[datetime, list[datetime]] = {}
        for summary in summaries:
            for manifest in summary.manifests:
                if manifest.status != "incomplete":
                    hours_of_day.setdefault(floor_day(manifest.hour), []).append(manifest.hour)
        count = 0
        for begin, end in ((first, today), (today, until)):
            for day, facts in self._rollups.facts(name, begin, end) if begin < end else ():
                count += len(facts)
                by_pool = facts.group_by(lambda fact: fact.node_pool)
                for pool, costs in by_pool.items():
                    amounts = to_decimal(costs.allocated_usd), bool(costs.unpriced_gpu_hours)
                    _add(cluster, pool, day, hours_of_day.get(day, []), *amounts)
        return count


class _Times(Struct, frozen=True):
    first: datetime
    start: datetime
    until: datetime
    end: datetime


def _add(
    cluster: _Cluster, key: str | None, begin: datetime, hours: list[datetime], usd: Decimal, is_unpriced: bool
) -> None:
    """Add a group's cost of some hours, which share it evenly."""
    costs = cluster.costs.setdefault(key, _Costs())
    costs.spent[begin] = costs.spent.get(begin, Decimal(0)) + usd
    for hour in hours:
        costs.hours[hour] = None if is_unpriced else usd / len(hours)


def _node_cost(totals: Totals) -> tuple[Decimal, bool]:
    """Return the node cost, and whether a part of it is not known."""
    if totals.capacity is None:
        return Decimal(0), True
    return to_decimal(totals.capacity.node_cost_usd), bool(totals.capacity.unpriced_capacity_gpu_hours)


def _allocated_by_unit(summary: CostSummary[Any]) -> Iterable[tuple[str, tuple[Decimal, bool]]]:
    """Yield each business unit's allocated cost in an hour or a day, and whether a part of it has no price."""
    by_unit = summary.costs.group_by(lambda key: key if isinstance(key, str) else key[0])
    for unit, costs in by_unit.items():
        yield unit, (to_decimal(costs.allocated_usd), bool(costs.unpriced_gpu_hours))


def _forecast(
    clusters: Mapping[str, _Cluster], key: str | None, times: _Times, only_cluster: str | None = None
) -> tuple[Decimal, Projection, list[ClusterSpend]]:
    """Return what a group spent in the period, its projection, and what it spent in each of its clusters."""
    of_group = [cluster for name, cluster in clusters.items() if key in cluster.costs and only_cluster in {None, name}]
    recorded = [max(cluster.first_hour, times.start) for cluster in clusters.values() if cluster.end > times.start]
    fleet_first_hour = min(recorded, default=None)
    series: list[Decimal | None] = []
    for index in range((times.until - times.first) // HOUR):
        hour = times.first + HOUR * index
        present = [cluster for cluster in of_group if cluster.first_hour <= hour < cluster.end]
        is_begun = any(cluster.first_hour <= hour for cluster in clusters.values())
        amounts = [
            cluster.costs[key].hours.get(hour, Decimal(0)) if hour in cluster.hours_with_figures else None
            for cluster in present
        ]
        total = [amount for amount in amounts if amount is not None]
        series.append(sum(total, Decimal(0)) if is_begun and len(total) == len(amounts) else None)
    spends = []
    for cluster in of_group:
        if cluster.end <= times.start:
            continue
        spent = sum((usd for begin, usd in cluster.costs[key].spent.items() if begin >= times.start), Decimal(0))
        since = counted_since(max(cluster.first_hour, times.start), fleet_first_hour, times.start)
        hours_with_data = sum(hour >= times.start for hour in cluster.hours_with_figures)
        spends.append(ClusterSpend(spent, hours_with_data, since, cluster.has_left))
    projection = project_period(series, times.first, times.start, times.until, times.end)
    return sum((spend.spent for spend in spends), Decimal(0)), projection, spends


def _rows(clusters: Mapping[str, _Cluster], group_by: GroupBy, times: _Times) -> tuple[GroupForecast, ...]:
    """Return the groups with the largest costs in the period."""
    groups: list[tuple[str, str | None, str | None]]
    if group_by == "cluster":
        groups = [(name, _FLEET, name) for name in clusters]
    else:
        keys = {key for cluster in clusters.values() for key in cluster.costs if key is not None}
        groups = [(key, key, None) for key in keys]

    def spent_so_far(group: tuple[str, str | None, str | None]) -> Decimal:
        _, key, only_cluster = group
        return sum(
            (
                usd
                for name, cluster in clusters.items()
                if key in cluster.costs and only_cluster in {None, name}
                for begin, usd in cluster.costs[key].spent.items()
                if begin >= times.start
            ),
            Decimal(0),
        )

    rows = []
    for name, key, only_cluster in sorted(groups, key=lambda group: (-spent_so_far(group), group[0]))[:MAX_GROUPS]:
        spent, projection, spends = _forecast(clusters, key, times, only_cluster)
        if spent or projection.projected_usd:
            rows.append(GroupForecast(name, spent, projection, run_rate(spends, times.until, times.end)))
    return tuple(rows)
