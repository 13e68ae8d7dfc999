"""A purchased commitment is detected where the bill or the capacity type shows it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from functools import cache

import pytest

from gpucost.core.hour_record import HourRecord
from gpucost.features.recommendations.model import Recommendation
from gpucost.settings_document import parse_settings
from gpucost.storage.ports import StoredSettings
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.stubs import NOW, SETTINGS_TEXT, SettingsStub, nightly

DAYS = 39
BOUGHT = 24 * 30
RATED = SETTINGS_TEXT.replace(
    "{source: constant, gpu_hourly_usd: 1}",
    "{sources: [rates], rates: [{capacity_type: reserved, instance_type: SCOPE, node_hourly_usd: 0.9}]}",
)
SAVED = Decimal("1.2") * 730
"""Monthly saving of two nodes, each at $0.90 an hour instead of $1.50."""


class SettingsWithReservedPrice(SettingsStub):
    """Settings with a price for reserved capacity."""

    def __init__(self, scope: str) -> None:
        self._text = RATED.replace("SCOPE", f'"{scope}"')

    def current(self) -> StoredSettings:
        return StoredSettings(1, self._text, parse_settings(self._text), "test", NOW)


def node_count(hour: int) -> int:
    return 4 if 8 <= hour % 24 < 20 else 2


@cache
def fleet(**pool: object) -> list[HourRecord]:
    """Four nodes by day, two by night."""
    workload = sim.Load("serve", lambda hour: 0.5 * node_count(hour), node_count, pool=replace(sim.Pool(), **pool))  # type: ignore[arg-type]
    return list(sim.simulate([workload], 24 * DAYS))


def billed() -> list[HourRecord]:
    """A Savings Plan for two nodes. The bill spreads it over all nodes of a type: $0.90 by night, $1.20 by day."""
    night, day = (fleet(price=Decimal(price), price_source="cur") for price in ("0.9", "1.2"))
    return [day[hour] if node_count(hour) == 4 else night[hour] for hour in range(24 * DAYS)]


def reserved() -> list[HourRecord]:
    """Two nodes in a capacity reservation; the nodes added by day are on demand."""
    fixed = sim.Pool("fixed", price=Decimal("0.9"), capacity_type="reserved")
    loads = [
        sim.Load("serve", lambda hour: 0.5 * node_count(hour), lambda _: 2, pool=fixed),
        sim.Load("more", lambda _: 1.0, lambda hour: node_count(hour) - 2),
    ]
    return list(sim.simulate(loads, 24 * DAYS))


def commitment_history(
    before: list[HourRecord], since: list[HourRecord], scope: str = "g5.xlarge"
) -> list[Recommendation]:
    """The commitment's recommendation on the day of the purchase, the day after, and nine days later."""
    runs = nightly(before[:BOUGHT] + since[BOUGHT:], [30, 31, DAYS], SettingsWithReservedPrice(scope))
    return [
        recommendation
        for rows in runs
        for recommendation in rows.values()
        if recommendation.content.kind == "commitment"
    ]


@pytest.mark.parametrize("scope", ["g5.xlarge", "g5.*"])
@pytest.mark.parametrize(("source", "purchase"), [("cur", billed), ("constant", reserved)], ids=["bill", "reservation"])
def test_commitment_is_verified_if_the_bill_or_the_capacity_type_shows_it(
    source: str, purchase: Callable[[], list[HourRecord]], scope: str
) -> None:
    history = commitment_history(fleet(price_source=source), purchase(), scope)
    assert [recommendation.state for recommendation in history] == ["open", "applied", "verified"]
    assert history[1].applied_at == sim.START + timedelta(hours=BOUGHT)
    assert history[2].verified_usd == SAVED
    assert ("dismiss this after you buy one" in history[0].content.risk_note) is (source == "constant")


def test_hours_before_their_bill_do_not_apply_a_commitment() -> None:
    """The bill arrives a day late. Until then, hours are rated at list price."""
    late = fleet(price_source="on-demand")
    bill = billed()
    for day, state in ((31, "open"), (32, "applied")):
        end = 24 * (day - 1)
        records = fleet(price_source="cur")[:BOUGHT] + bill[BOUGHT:end] + late[end:]
        (last,) = nightly(records, [30, day], SettingsWithReservedPrice("g5.xlarge"))[1:]
        (recommendation,) = [row for row in last.values() if row.content.kind == "commitment"]
        assert recommendation.state == state


def test_plan_that_list_prices_do_not_show_stays_open_with_a_note() -> None:
    history = commitment_history(fleet(), fleet())
    assert [recommendation.state for recommendation in history] == ["open", "open", "open"]
    assert history[2].content.risk_note.endswith(
        "List prices do not show a Savings Plan or Reserved Instance: dismiss this after you buy one, or add its "
        "price to the settings' rates."
    )


@pytest.mark.parametrize(
    ("source", "states"),
    [
        ("on-demand", ["open", "withdrawn", "withdrawn"]),
        ("list-price", ["open", "withdrawn", "withdrawn"]),
        ("constant", ["open", "withdrawn", "withdrawn"]),
        ("rates", ["open", "applied", "verified"]),
    ],
)
def test_lower_list_price_is_no_commitment(source: str, states: list[str]) -> None:
    """All nodes cost $0.90 from that day on. Only a price from rates shows a purchase."""
    history = commitment_history(fleet(price_source=source), fleet(price=Decimal("0.9"), price_source=source))
    assert [recommendation.state for recommendation in history] == states
    assert (history[-1].verified_usd is None) is (source != "rates")


def test_removed_nodes_are_no_commitment() -> None:
    """Half of the nodes are removed for good, and nothing was bought."""
    smaller = sim.Load("serve", lambda hour: 0.25 * node_count(hour), lambda hour: node_count(hour) // 2)
    history = commitment_history(fleet(), list(sim.simulate([smaller], 24 * DAYS)))
    assert {recommendation.state for recommendation in history} <= {"open", "withdrawn"}
    assert all(recommendation.verified_usd is None for recommendation in history)
