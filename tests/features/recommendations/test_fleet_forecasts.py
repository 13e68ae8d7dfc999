"""Forecasts of the whole fleet and of its groups, compared with sums worked out by hand."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from gpucost.core.access import FULL_ACCESS, Scope
from gpucost.core.amounts import CapacityCosts, Costs
from gpucost.core.errors import AccessDeniedError, InvalidInputError
from gpucost.core.hours import DAY, HOUR
from gpucost.core.ledger import DaySummary
from gpucost.features.recommendations.forecasts import MAX_FACTS, FleetForecast, FleetForecastService
from tests.functions.in_memory_hours import InMemoryHours
from tests.records import amount

UNTIL = datetime(2026, 11, 16, tzinfo=UTC)
MONTH = datetime(2026, 11, 1, tzinfo=UTC)
DAYS_OF_MONTH, DAYS_SO_FAR = 30, 15


class Fleet(InMemoryHours):
    """Clusters east and west, whose units hold a part of the nodes."""

    def days(self, cluster: str, start: datetime, end: datetime) -> list[DaySummary]:
        return self.days_of(self.manifests(cluster, start, end))

    def facts(self, cluster: str, start: datetime, end: datetime) -> Any:
        return self.facts_of(self.manifests(cluster, start, end))

    def add(self, cluster: str, first: datetime, end: datetime, units: dict[str, str], node_usd: str) -> None:
        groups = {
            (unit, "n"): Costs(allocated_gpu_hours=amount(1), allocated_usd=amount(usd)) for unit, usd in units.items()
        }
        for number in range((end - first) // HOUR):
            self.put(cluster, first + HOUR * number, groups, capacity=CapacityCosts(node_cost_usd=amount(node_usd)))

    def forecast(self, group_by: str = "business_unit", budgets: dict[str, Decimal] | None = None) -> FleetForecast:
        budget_of = lambda unit, months: (budgets or {}).get(unit)  # noqa: E731
        service = FleetForecastService(self, self, self, budget_of, published_until=lambda: UNTIL)  # type: ignore[arg-type]
        return service.forecast("month", group_by, scope=FULL_ACCESS)  # type: ignore[arg-type]


def test_fleet_costs_its_nodes_and_rows_what_they_hold() -> None:
    fleet = Fleet()
    fleet.add("east", UNTIL - 60 * DAY, UNTIL, {"research": "2", "serving": "0.5"}, "4")
    fleet.add("west", UNTIL - 60 * DAY, UNTIL, {"research": "1"}, "2")
    forecast = fleet.forecast()
    assert (forecast.fleet.start, forecast.fleet.known_until) == (MONTH, UNTIL)
    assert forecast.fleet.spent_usd == 6 * 24 * DAYS_SO_FAR
    assert forecast.fleet.projected_usd == forecast.fleet.run_rate_usd == 6 * 24 * DAYS_OF_MONTH
    half = Decimal(6 * 24 * DAYS_SO_FAR)
    assert (forecast.fleet.low_usd, forecast.fleet.high_usd) == (
        half + half * Decimal("0.99"),
        half + half * Decimal("1.01"),
    )
    assert (forecast.fleet.hours_known, forecast.fleet.hours_unknown) == (360, 0)
    assert forecast.fleet.estimated_usd == 0
    by_unit: dict[str, tuple[object, ...]] = {
        row.name: (row.spent_usd, row.projection.projected_usd, row.run_rate_usd) for row in forecast.rows
    }
    assert list(by_unit) == ["research", "serving"]
    assert by_unit["research"] == (3 * 360, 3 * 720, 3 * 720)
    assert by_unit["serving"] == (Decimal("0.5") * 360, Decimal("0.5") * 720, Decimal("0.5") * 720)
    by_cluster = {row.name: row.projection.projected_usd for row in fleet.forecast("cluster").rows}
    assert by_cluster == {"east": 4 * 720, "west": 2 * 720}


def test_budget_of_the_fleet_needs_those_of_all_units() -> None:
    fleet = Fleet()
    fleet.add("east", UNTIL - 20 * DAY, UNTIL, {"research": "2"}, "4")
    budgets = {"research": Decimal(500), "idle": Decimal(20)}
    assert fleet.forecast(budgets=budgets).fleet.budget_usd == 520
    assert fleet.forecast(budgets={"research": Decimal(500)}).fleet.budget_usd is None


def test_hours_before_the_first_figures_of_the_fleet_are_unknown_and_not_free() -> None:
    """Ten days have figures: two thirds of the hours so far, each at 6 USD."""
    fleet = Fleet()
    fleet.add("east", UNTIL - 10 * DAY, UNTIL, {"research": "2"}, "4")
    fleet.add("west", UNTIL - 10 * DAY, UNTIL, {"research": "1"}, "2")
    fleet_forecast = fleet.forecast().fleet
    assert (fleet_forecast.hours_known, fleet_forecast.hours_unknown) == (240, 120)
    assert fleet_forecast.run_rate_usd == 6 * 720
    assert fleet_forecast.estimated_usd == 6 * 120
    assert fleet_forecast.projected_usd is None, "less than two weeks of history"


@pytest.mark.parametrize("group_by", ["business_unit", "cluster"])
def test_three_days_of_figures_say_nothing_about_the_month(group_by: str) -> None:
    fleet = Fleet()
    fleet.add("east", UNTIL - 3 * DAY, UNTIL, {"research": "2"}, "4")
    forecast = fleet.forecast(group_by)
    assert (forecast.fleet.run_rate_usd, forecast.fleet.projected_usd) == (None, None)
    assert [row.run_rate_usd for row in forecast.rows] == [None]


def test_cluster_that_joins_a_fleet_with_figures_had_no_cost_before() -> None:
    fleet = Fleet()
    fleet.add("east", MONTH, UNTIL, {"research": "2"}, "4")
    fleet.add("west", UNTIL - 5 * DAY, UNTIL, {"research": "1"}, "2")
    assert fleet.forecast().fleet.run_rate_usd == 4 * 720 + 2 * 24 * (5 + DAYS_SO_FAR)
    by_cluster = {row.name: row.run_rate_usd for row in fleet.forecast("cluster").rows}
    assert by_cluster == {"east": 4 * 720, "west": 2 * 24 * (5 + DAYS_SO_FAR)}


def test_missing_hours_of_a_cluster_are_unknown() -> None:
    fleet = Fleet()
    fleet.add("east", UNTIL - 60 * DAY, UNTIL, {"research": "2"}, "4")
    fleet.add("west", UNTIL - 60 * DAY, UNTIL - 2 * DAY, {"research": "1"}, "2")
    fleet_forecast = fleet.forecast().fleet
    assert (fleet_forecast.hours_known, fleet_forecast.hours_unknown) == (360 - 48, 48)
    assert fleet_forecast.spent_usd == 4 * 360 + 2 * (360 - 48)
    assert fleet_forecast.run_rate_usd == fleet_forecast.projected_usd == 6 * 720
    assert fleet_forecast.estimated_usd == 2 * 48


def test_fleet_is_denied_to_roles_of_a_unit() -> None:
    service = FleetForecastService(Fleet(), Fleet(), Fleet(), lambda unit, months: None, published_until=lambda: UNTIL)  # type: ignore[arg-type]
    with pytest.raises(AccessDeniedError, match="Pass business_unit"):
        service.forecast("month", "business_unit", scope=Scope(frozenset({"research"})))


def test_nodes_without_a_pool_are_a_pool_and_not_the_fleet() -> None:
    fleet = Fleet()
    fleet.add("east", UNTIL - 20 * DAY, UNTIL, {"research": "2", "serving": "0.5"}, "4")
    forecast = fleet.forecast("node_pool")
    assert forecast.fleet.spent_usd == 4 * 24 * DAYS_SO_FAR
    assert [(row.name, row.spent_usd) for row in forecast.rows] == [("", Decimal("2.5") * 24 * DAYS_SO_FAR)]


class ManyFacts:
    """More facts of a day than are added up; reading them is too slow for a test."""

    def __len__(self) -> int:
        return MAX_FACTS + 1

    def group_by(self, _key: object) -> dict[str, Costs]:
        return {}


class CrowdedFleet(Fleet):
    def facts(self, cluster: str, start: datetime, end: datetime) -> Any:
        return [(start, ManyFacts())]


def test_too_many_pools_are_refused_and_clusters_are_not() -> None:
    fleet = CrowdedFleet()
    fleet.add("east", UNTIL - 20 * DAY, UNTIL, {"research": "2"}, "4")
    with pytest.raises(InvalidInputError, match=r"Select group_by=cluster or group_by=business_unit\.$"):
        fleet.forecast("node_pool")
    assert [row.name for row in fleet.forecast("cluster").rows] == ["east"]
    assert [row.name for row in fleet.forecast("business_unit").rows] == ["research"]
