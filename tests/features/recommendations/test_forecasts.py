"""A unit's month and quarter: spent and to come, over clusters, with holes, beside the tightest budget."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from gpucost.core.access import Scope
from gpucost.core.amounts import Costs
from gpucost.core.errors import AccessDeniedError, InvalidInputError, NotFoundError
from gpucost.core.hours import HOUR
from gpucost.core.ledger import Manifest
from gpucost.core.rollups import UnitHour
from gpucost.features.alerting.budgets import tightest_budget
from gpucost.features.recommendations.forecasts import ForecastService
from gpucost.settings_document import SettingsDocument, parse_settings
from gpucost.storage.ports import StoredSettings

NOW = datetime(2026, 11, 16, 2, 30, tzinfo=UTC)
UNTIL = datetime(2026, 11, 16, tzinfo=UTC)
TEXT = """
clusters:
  - {name: east, prometheus: {url: "http://127.0.0.1:9090"}}
  - {name: west, prometheus: {url: "http://127.0.0.1:9090"}}
pricing: {source: constant, gpu_hourly_usd: 1}
business_units: [{name: planned, namespaces: [planned]}]
alerts:
  rules:
    - {rule: budget, name: all, monthly_usd: 5000}
    - {rule: budget, name: tight, monthly_usd: 4000, overrides: [{business_unit: research, monthly_usd: 3000}]}
    - {rule: budget, name: east-alone, monthly_usd: 1, scope: {clusters: [east]}}
"""


class Store:
    def __init__(self, text: str) -> None:
        self._text = text

    def current(self) -> StoredSettings[SettingsDocument]:
        return StoredSettings(1, self._text, parse_settings(self._text), "test", NOW)


class Hours:
    """A unit's hours by cluster: what each cost, None where incomplete."""

    def __init__(
        self,
        costs: Mapping[str, Mapping[datetime, Decimal | None]],
        currency: str = "USD",
        unpriced: Collection[datetime] = (),
    ) -> None:
        self._costs = costs
        self._unpriced = unpriced
        self._currency = currency

    def unit_hours(self, cluster: str, business_unit: str, start: datetime, end: datetime) -> list[UnitHour]:
        if business_unit != "research":
            costs = Costs()  # as of a unit that held nothing, whether or not it is there
            return [replace(hour, costs=costs) for hour in self.unit_hours(cluster, "research", start, end)]
        return [
            UnitHour(
                Manifest(cluster, hour, "complete", 1, "1-a", 1, None, 0, None, NOW,
                         currency=self._currency if cluster == "west" else "USD"),
                None if usd is None else Costs(
                    allocated_gpu_hours=usd, allocated_usd=usd,
                    unpriced_gpu_hours=Decimal(hour in self._unpriced and cluster == "east"),
                ),
            )
            for hour, usd in sorted(self._costs.get(cluster, {}).items()) if start <= hour < end
        ]  # fmt: skip


def hours(days: int, usd: str) -> dict[datetime, Decimal | None]:
    return {UNTIL - HOUR * (1 + index): Decimal(usd) for index in range(24 * days)}


def forecasts(rollups: Hours, text: str = TEXT) -> ForecastService:
    store = Store(text)
    budget_of = lambda unit, months: tightest_budget(store.current().settings, unit, months)  # noqa: E731
    return ForecastService(store, rollups, budget_of, clock=lambda: NOW)  # type: ignore[arg-type]  # what it reads of either


def test_projection_is_spent_cost_plus_future_hours() -> None:
    found = forecasts(Hours({"east": hours(60, "2"), "west": hours(60, "0.5")})).forecast("research", "month")
    assert (found.start, found.end) == (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
    assert found.known_until == UNTIL
    assert found.spent_usd == Decimal("2.5") * 15 * 24
    assert found.projected_usd == found.low_usd == found.high_usd == Decimal("2.5") * 30 * 24
    assert found.budget_usd == 3000, "the tightest that covers all clusters, with the unit's own figure"
    assert found.backtest is not None
    assert found.backtest.evaluated == found.backtest.covered > 5


def test_a_quarter_has_three_months_of_budget() -> None:
    found = forecasts(Hours({"east": hours(60, "2")})).forecast("research", "quarter")
    assert (found.start, found.end) == (datetime(2026, 10, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    assert found.spent_usd == 2 * 24 * 46
    assert found.projected_usd == 2 * 24 * 92
    assert found.budget_usd == 9000


@pytest.mark.parametrize(
    ("rule", "budget"),
    [
        ("{rule: budget, monthly_usd: 5000, quarterly_usd: 12000}", 12000),
        ("{rule: budget, monthly_usd: 5000, quarterly_usd: 12000, overrides: [{%s, quarterly_usd: 7000}]}", 7000),
        ("{rule: budget, monthly_usd: 5000, quarterly_usd: 12000, overrides: [{%s, monthly_usd: 3000}]}", 9000),
        ("{rule: budget, monthly_usd: 5000, overrides: [{%s, monthly_usd: 3000, quarterly_usd: 8000}]}", 8000),
    ],
)
def test_a_quarter_may_have_a_budget_of_its_own(rule: str, budget: int) -> None:
    rule = rule.replace("%s", "business_unit: research")
    text = f"{TEXT.partition('alerts:')[0]}alerts:\n  rules: [{rule}]\n"
    found = forecasts(Hours({"east": hours(60, "2")}), text).forecast("research", "quarter")
    assert found.budget_usd == budget


def test_unknown_hours_cost_the_mean_and_are_counted() -> None:
    known = hours(60, "2")
    for index in range(30):
        known[UNTIL - HOUR * (40 + index)] = None
    found = forecasts(Hours({"east": known})).forecast("research", "month")
    assert (found.hours_known, found.hours_unknown) == (330, 30)
    assert found.spent_usd == 660
    assert found.projected_usd == 2 * 24 * 30


def test_a_cluster_that_came_later_makes_no_hole_before() -> None:
    found = forecasts(Hours({"east": hours(60, "2"), "west": hours(3, "1")})).forecast("research", "month")
    assert found.hours_unknown == 0
    assert found.spent_usd == 2 * 15 * 24 + 3 * 24


def test_less_than_two_weeks_are_no_forecast() -> None:
    found = forecasts(Hours({"east": hours(13, "2")})).forecast("research", "month")
    assert (found.projected_usd, found.low_usd, found.backtest) == (None, None, None)
    assert found.spent_usd == 2 * 13 * 24


def test_forbidden_units_and_several_currencies_are_rejected() -> None:
    with pytest.raises(AccessDeniedError):
        forecasts(Hours({})).forecast("research", "month", scope=Scope(frozenset({"vision"})))
    mixed = Hours({"east": hours(20, "2"), "west": hours(20, "2")}, currency="EUR")
    with pytest.raises(InvalidInputError, match="EUR, USD"):
        forecasts(mixed).forecast("research", "month")


@pytest.mark.parametrize(("days", "projected"), [(1, None), (13, None), (15, 7200)])
def test_a_unit_that_has_just_begun_is_not_forecast_by_the_weeks_before_it(days: int, projected: int | None) -> None:
    """Hours of a cluster in which a unit held nothing are known and cost 0."""
    costs = hours(60, "0") | hours(days, "10")
    found = forecasts(Hours({"east": costs})).forecast("research", "month")
    assert found.spent_usd == 10 * 24 * days
    assert found.projected_usd == projected


def test_a_unit_that_never_cost_anything_is_forecast_to_cost_nothing() -> None:
    found = forecasts(Hours({"east": hours(60, "2")})).forecast("planned", "month")
    assert found.projected_usd == found.high_usd == 0


def test_unknown_business_unit_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="no such business unit"):
        forecasts(Hours({"east": hours(60, "2")})).forecast("reserch", "month")


def test_partly_unpriced_hour_counts_as_unknown() -> None:
    """Two clusters at $2 an hour each; of 30 hours of one, half of the GPUs have no price: they cost $4, too."""
    east, west = hours(60, "2"), hours(60, "2")
    cheap = {UNTIL - HOUR * (40 + index): Decimal(1) for index in range(30)}
    found = forecasts(Hours({"east": east | cheap, "west": west}, unpriced=cheap.keys())).forecast("research", "month")
    assert (found.hours_known, found.hours_unknown) == (330, 30)
    assert found.spent_usd == 330 * 4 + 30 * 3, "what has a price, as reports say it"
    assert found.projected_usd == 4 * 24 * 30
