"""A commitment that was bought: seen where the bill or the capacity tells of it, and said where nothing can."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from gpucost.core.model import HourRecord
from gpucost.features.recommendations.model import Recommendation
from gpucost.settings_document import parse_settings
from gpucost.storage.ports import StoredSettings
from tests.features.recommendations import simulated_fleet as sim
from tests.features.recommendations.test_recommendation_lifecycle import nightly
from tests.features.recommendations.test_recommendation_service import NOW, TEXT, Store

DAYS = 39
BOUGHT = 24 * 30
RATED = TEXT.replace(
    "{source: constant, gpu_hourly_usd: 1}",
    "{sources: [rates], rates: [{capacity_type: reserved, instance_type: SCOPE, node_hourly_usd: 0.9}]}",
)
SAVED = Decimal("1.2") * 730
"""Two nodes of an hour, each at $0.90 instead of $1.50."""


class Rated(Store):
    """Settings with a price for reserved capacity."""

    def __init__(self, scope: str) -> None:
        self._text = RATED.replace("SCOPE", f'"{scope}"')

    def current(self) -> StoredSettings:
        return StoredSettings(1, self._text, parse_settings(self._text), "test", NOW)


def there(hour: int) -> int:
    return 4 if 8 <= hour % 24 < 20 else 2


def fleet(**pool: object) -> list[HourRecord]:
    """Four nodes by day, two by night."""
    own = sim.Load("serve", lambda hour: 0.5 * there(hour), there, pool=replace(sim.Pool(), **pool))  # type: ignore[arg-type]
    return list(sim.simulate([own], 24 * DAYS))


def billed() -> list[HourRecord]:
    """A Savings Plan of two nodes, as a bill lays it on all nodes of a type alike: $0.90 by night, $1.20 by day."""
    night, day = (fleet(price=Decimal(price), price_source="cur") for price in ("0.9", "1.2"))
    return [day[hour] if there(hour) == 4 else night[hour] for hour in range(24 * DAYS)]


def reserved() -> list[HourRecord]:
    """Two nodes in a capacity reservation; what comes by day is on demand."""
    fixed = sim.Pool("fixed", price=Decimal("0.9"), capacity_type="reserved")
    loads = [
        sim.Load("serve", lambda hour: 0.5 * there(hour), lambda _: 2, pool=fixed),
        sim.Load("more", lambda _: 1.0, lambda hour: there(hour) - 2),
    ]
    return list(sim.simulate(loads, 24 * DAYS))


def life(before: list[HourRecord], since: list[HourRecord], scope: str = "g5.xlarge") -> list[Recommendation]:
    """The commitment's on the day it is bought, the day after, and nine days later."""
    runs = nightly(before[:BOUGHT] + since[BOUGHT:], [30, 31, DAYS], Rated(scope))
    return [
        recommendation
        for rows in runs
        for recommendation in rows.values()
        if recommendation.content.kind == "commitment"
    ]


@pytest.mark.parametrize("scope", ["g5.xlarge", "g5.*"])
@pytest.mark.parametrize(("source", "bought"), [("cur", billed), ("constant", reserved)], ids=["bill", "reservation"])
def test_it_is_applied_and_verified_where_something_tells(
    source: str, bought: Callable[[], list[HourRecord]], scope: str
) -> None:
    message = life(fleet(price_source=source), bought(), scope)
    assert [recommendation.state for recommendation in message] == ["open", "applied", "verified"]
    assert message[1].applied_at == sim.START + timedelta(hours=BOUGHT)
    assert message[2].verified_usd == SAVED
    assert ("dismiss this after you buy one" in message[0].content.risk_note) is (source == "constant")


def test_hours_that_the_bill_does_not_have_yet_tell_nothing() -> None:
    """A bill comes a day late: until then hours are rated at list price, as if nothing was bought."""
    late = fleet(price_source="on-demand")
    bill = billed()
    for day, state in ((31, "open"), (32, "applied")):
        end = 24 * (day - 1)
        records = fleet(price_source="cur")[:BOUGHT] + bill[BOUGHT:end] + late[end:]
        (last,) = nightly(records, [30, day], Rated("g5.xlarge"))[1:]
        (recommendation,) = [own for own in last.values() if own.content.kind == "commitment"]
        assert recommendation.state == state


def test_a_plan_that_list_prices_do_not_show_stays_open_and_says_so() -> None:
    message = life(fleet(), fleet())
    assert [recommendation.state for recommendation in message] == ["open", "open", "open"]
    assert message[2].content.risk_note.endswith(
        "List prices do not show a Savings Plan or Reserved Instance: dismiss this after you buy one, or add its "
        "price to the settings' rates."
    )


@pytest.mark.parametrize(("source", "states"), [
    ("on-demand", ["open", "withdrawn", "withdrawn"]),
    ("constant", ["open", "withdrawn", "withdrawn"]),
    ("rates", ["open", "applied", "verified"]),
])  # fmt: skip
def test_a_price_that_falls_for_everybody_is_no_commitment(source: str, states: list[str]) -> None:
    """All nodes at $0.90 from the day on: a price list is cut; only rates are set for what was bought."""
    message = life(fleet(price_source=source), fleet(price=Decimal("0.9"), price_source=source))
    assert [recommendation.state for recommendation in message] == states
    assert (message[-1].verified_usd is None) is (source != "rates")


def test_nodes_that_went_are_no_commitment() -> None:
    """Half of them go for good: what is on demand is what was advised, and nothing was bought."""
    half_fleet = sim.Load("serve", lambda hour: 0.25 * there(hour), lambda hour: there(hour) // 2)
    message = life(fleet(), list(sim.simulate([half_fleet], 24 * DAYS)))
    assert {recommendation.state for recommendation in message} <= {"open", "withdrawn"}
    assert all(recommendation.verified_usd is None for recommendation in message)
