"""The expected cost of the fleet's month or quarter, and of its business units, clusters and node pools.

The fleet and its clusters cost what their nodes cost; business units and node pools have their allocated cost. A day's
costs are spread over its hours with figures: the weekly pattern of the forecast is one of days.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Literal

from msgspec import Struct

from gpucost.core.access import Scope
from gpucost.core.amounts import Totals, to_decimal
from gpucost.core.errors import AccessDeniedError, InvalidInputError
from gpucost.core.hours import HOUR, floor_day
from gpucost.core.ledger import CostSummary
from gpucost.core.run_rate import ClusterSpend, counted_since, run_rate
from gpucost.features.recommendations.forecasts import (
    FORECAST_HISTORY,
    MONTHS,
    BudgetOf,
    Period,
    PeriodForecast,
    Projection,
    period_of,
    project_period,
)
from gpucost.storage.ports import PublishedHours, Rollups, SettingsStore

GroupBy = Literal["business_unit", "cluster", "node_pool"]
MAX_ROWS = 10
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
    for name, key, only_cluster in sorted(groups, key=lambda group: (-spent_so_far(group), group[0]))[:MAX_ROWS]:
        spent, projection, spends = _forecast(clusters, key, times, only_cluster)
        if spent or projection.projected_usd:
            rows.append(GroupForecast(name, spent, projection, run_rate(spends, times.until, times.end)))
    return tuple(rows)
