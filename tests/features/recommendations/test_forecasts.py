"""Forecasts of a unit's month and quarter over several clusters, with missing hours, and the tightest budget."""

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from gpucost.core.access import Scope
from gpucost.core.amounts import Costs
from gpucost.core.errors import AccessDeniedError, InvalidInputError, NotFoundError
from gpucost.core.hours import HOUR
from gpucost.core.ledger import Manifest
from gpucost.features.alerting.rule_kinds.budget import lowest_budget
from gpucost.features.recommendations.forecasts import ForecastService
from gpucost.settings_document import SettingsDocument, parse_settings
from gpucost.storage.ports import StoredSettings
from tests.records import amount

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
    """A unit's hourly costs by cluster; None for an incomplete hour."""

    def __init__(
        self,
        costs: Mapping[str, Mapping[datetime, Decimal | None]],
        currency: str = "USD",
        unpriced: Collection[datetime] = (),
    ) -> None:
        self._costs = costs
        self._unpriced = unpriced
        self._currency = currency

    def unit_hours(
        self, cluster: str, business_unit: str, start: datetime, end: datetime
    ) -> list[tuple[Manifest, Costs | None]]:
        if business_unit != "research":
            costs = Costs()  # a unit without GPUs, whether or not the settings have it
            return [(manifest, costs) for manifest, _ in self.unit_hours(cluster, "research", start, end)]
        return [
            (
                Manifest(
                    cluster,
                    hour,
                    "complete",
                    1,
                    "1-a",
                    1,
                    None,
                    0,
                    None,
                    NOW,
                    currency=self._currency if cluster == "west" else "USD",
                ),
                None
                if usd is None
                else Costs(
                    allocated_gpu_hours=amount(usd),
                    allocated_usd=amount(usd),
                    unpriced_gpu_hours=amount(int(hour in self._unpriced and cluster == "east")),
                ),
            )
            for hour, usd in sorted(self._costs.get(cluster, {}).items())
            if start <= hour < end
        ]


def hours(days: int, usd: str) -> dict[datetime, Decimal | None]:
    return {UNTIL - HOUR * (1 + index): Decimal(usd) for index in range(24 * days)}


def forecasts(rollups: Hours, text: str = TEXT) -> ForecastService:
    store = Store(text)
    budget_of = lambda unit, months: lowest_budget(store.current().settings.alerts.rules, unit, months)  # noqa: E731
    return ForecastService(store, rollups, budget_of, published_until=lambda: UNTIL)  # type: ignore[arg-type]  # stubs with the methods it calls


def test_projection_is_spent_cost_plus_future_hours() -> None:
    projection = forecasts(Hours({"east": hours(60, "2"), "west": hours(60, "0.5")})).forecast("research", "month")
    assert (projection.start, projection.end) == (datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 12, 1, tzinfo=UTC))
    assert projection.known_until == UNTIL
    assert projection.spent_usd == Decimal("2.5") * 15 * 24
    fortnight = Decimal("2.5") * 24 * 15
    assert projection.projected_usd == fortnight + fortnight
    assert (projection.low_usd, projection.high_usd) == (
        fortnight + fortnight * Decimal("0.99"),
        fortnight + fortnight * Decimal("1.01"),
    )
    assert projection.budget_usd == 3000, "the tightest that covers all clusters, with the unit's own figure"
    assert projection.backtest is not None
    assert projection.backtest.evaluated == projection.backtest.covered > 5


def test_a_quarter_has_three_months_of_budget() -> None:
    projection = forecasts(Hours({"east": hours(60, "2")})).forecast("research", "quarter")
    assert (projection.start, projection.end) == (datetime(2026, 10, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC))
    assert projection.spent_usd == 2 * 24 * 46
    assert projection.projected_usd == 2 * 24 * 92
    assert projection.budget_usd == 9000


@pytest.mark.parametrize(
    ("rule", "budget"),
    [
        ("{rule: budget, monthly_usd: 5000, quarterly_usd: 12000}", 12000),
        ("{rule: budget, monthly_usd: 5000, quarterly_usd: 12000, overrides: [{%s, quarterly_usd: 7000}]}", 7000),
        ("{rule: budget, monthly_usd: 5000, quarterly_usd: 12000, overrides: [{%s, monthly_usd: 3000}]}", 9000),
        ("{rule: budget, monthly_usd: 5000, overrides: [{%s, monthly_usd: 3000, quarterly_usd: 8000}]}", 8000),
    ],
)
def test_quarterly_budget_overrides_three_monthly_budgets(rule: str, budget: int) -> None:
    rule = rule.replace("%s", "business_unit: research")
    text = f"{TEXT.partition('alerts:')[0]}alerts:\n  rules: [{rule}]\n"
    projection = forecasts(Hours({"east": hours(60, "2")}), text).forecast("research", "quarter")
    assert projection.budget_usd == budget


def test_unknown_hours_cost_the_mean_and_are_counted() -> None:
    costs = hours(60, "2")
    for index in range(30):
        costs[UNTIL - HOUR * (40 + index)] = None
    projection = forecasts(Hours({"east": costs})).forecast("research", "month")
    assert (projection.hours_known, projection.hours_unknown) == (330, 30)
    assert projection.spent_usd == 660
    assert projection.projected_usd == 2 * 24 * 30


def test_hours_before_a_cluster_was_added_are_not_missing() -> None:
    projection = forecasts(Hours({"east": hours(60, "2"), "west": hours(3, "1")})).forecast("research", "month")
    assert projection.hours_unknown == 0
    assert projection.spent_usd == 2 * 15 * 24 + 3 * 24


def test_less_than_two_weeks_give_no_projection() -> None:
    projection = forecasts(Hours({"east": hours(13, "2")})).forecast("research", "month")
    assert (projection.projected_usd, projection.low_usd, projection.backtest) == (None, None, None)
    assert projection.spent_usd == 2 * 13 * 24


def test_forbidden_units_and_several_currencies_are_rejected() -> None:
    with pytest.raises(AccessDeniedError):
        forecasts(Hours({})).forecast("research", "month", scope=Scope(frozenset({"vision"})))
    mixed = Hours({"east": hours(20, "2"), "west": hours(20, "2")}, currency="EUR")
    with pytest.raises(InvalidInputError, match="EUR, USD"):
        forecasts(mixed).forecast("research", "month")


@pytest.mark.parametrize(("days", "projected"), [(1, None), (13, None), (15, 7200)])
def test_new_unit_is_not_projected_from_the_weeks_before_it(days: int, projected: int | None) -> None:
    """Hours in which a unit held nothing cost 0 and are not missing."""
    costs = hours(60, "0") | hours(days, "10")
    projection = forecasts(Hours({"east": costs})).forecast("research", "month")
    assert projection.spent_usd == 10 * 24 * days
    assert projection.projected_usd == projected


def test_unit_without_costs_is_projected_to_cost_nothing() -> None:
    projection = forecasts(Hours({"east": hours(60, "2")})).forecast("planned", "month")
    assert projection.projected_usd == projection.high_usd == 0


def test_unknown_business_unit_is_rejected() -> None:
    with pytest.raises(NotFoundError, match="no such business unit"):
        forecasts(Hours({"east": hours(60, "2")})).forecast("reserch", "month")


def test_partly_unpriced_hour_counts_as_unknown() -> None:
    """Two clusters cost $2 an hour each. In 30 hours of the first, half of the GPUs have no price."""
    east, west = hours(60, "2"), hours(60, "2")
    cheap = {UNTIL - HOUR * (40 + index): Decimal(1) for index in range(30)}
    projection = forecasts(Hours({"east": east | cheap, "west": west}, unpriced=cheap.keys())).forecast(
        "research", "month"
    )
    assert (projection.hours_known, projection.hours_unknown) == (330, 30)
    assert projection.spent_usd == 330 * 4 + 30 * 3, "the priced part, as in reports"
    assert projection.projected_usd == 4 * 24 * 30
