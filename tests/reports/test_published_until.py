"""Periods relative to now end at the newest published hour, and a just-ended hour is pending before it is missing."""

import json
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from gpucost.container import Container
from gpucost.core.hours import HOUR, format_timestamp, parse_timestamp
from gpucost.runtime.process import Environment
from tests.conftest import DynamoTable
from tests.features.alerting.fleet import START, Fleet, pod, settings_with_rules
from tests.functions.api_requests import iam_caller, request_as, serving

pytestmark = pytest.mark.tools  # seconds

ACCESS = 'access: [{principal: "arn:aws:iam::123456789012:user/fin", roles: [admin]}]\n'
HOURS = 30
AFTER_THE_HOUR = START + HOUR * HOURS + timedelta(minutes=3)
"""Three minutes after the end of hour 29."""


@pytest.fixture
def fleet(table: DynamoTable) -> Iterator[Fleet]:
    rules = settings_with_rules("rule: budget, monthly_usd: 2000", clusters=("east", "west"))
    alert_fleet = Fleet(table, rules + ACCESS, now=AFTER_THE_HOUR)
    for number in range(HOURS - 1):
        publish(alert_fleet, number)
    environment = Environment(table=table.name)
    with serving(Container(environment, clock=lambda: alert_fleet.now, client=lambda _service: table.client)):
        yield alert_fleet


def publish(fleet: Fleet, number: int, *clusters: str) -> None:
    for cluster in clusters or ("east", "west"):
        fleet.publish(number, pod(), cluster=cluster)


def ask(path: str, **query: str) -> Any:
    answer = request_as(iam_caller("arn:aws:iam::123456789012:user/fin"), f"/v1/{path}", query)
    assert answer.status == 200, answer.body
    return json.loads(answer.body, parse_float=Decimal)


@pytest.mark.parametrize("published", [(), ("east",)])
def test_window_ends_before_an_hour_that_a_cluster_still_computes(fleet: Fleet, published: tuple[str, ...]) -> None:
    if published:
        publish(fleet, HOURS - 1, *published)
    costs = ask("costs", window="24h", granularity="total")
    assert costs["end"] == format_timestamp(START + HOUR * (HOURS - 1))
    assert (costs["coverage"]["hours_expected"], costs["coverage"]["hours_complete"]) == (48, 48)


def test_window_ends_at_the_hour_that_all_clusters_have_published(fleet: Fleet) -> None:
    publish(fleet, HOURS - 1)
    costs = ask("costs", window="24h", granularity="total")
    assert costs["end"] == format_timestamp(START + HOUR * HOURS)
    assert costs["coverage"]["hours_complete"] == 48


def test_window_does_not_wait_for_an_overdue_cluster(fleet: Fleet) -> None:
    """West has stopped publishing: a fleet's reports must not lag behind for it."""
    publish(fleet, HOURS - 1, "east")
    publish(fleet, HOURS, "east")
    fleet.now = AFTER_THE_HOUR + HOUR
    costs = ask("costs", window="2h", granularity="total")
    assert costs["end"] == format_timestamp(START + HOUR * (HOURS + 1))
    assert (costs["coverage"]["hours_expected"], costs["coverage"]["hours_complete"]) == (3, 2)


def test_hour_is_pending_before_it_is_missing(fleet: Fleet) -> None:
    period = {"start": format_timestamp(START + HOUR * (HOURS - 2)), "end": format_timestamp(START + HOUR * HOURS)}
    publish(fleet, HOURS - 1, "east")

    def statuses() -> list[tuple[str, str]]:
        return [(row["cluster"], row["status"]) for row in ask("hours", **period)["rows"]]

    assert statuses() == [("east", "complete"), ("west", "complete"), ("east", "complete"), ("west", "pending")]
    assert ask("hours", **period)["coverage"]["hours_expected"] == 3
    fleet.now = AFTER_THE_HOUR + HOUR
    assert statuses()[-1] == ("west", "missing")
    assert ask("costs", **period)["coverage"]["hours_expected"] == 4


def test_budgets_and_forecasts_have_the_same_cut_off_and_run_rate(fleet: Fleet) -> None:
    """East is an hour ahead of west; its hour counts when all clusters have it."""
    publish(fleet, HOURS - 1, "east")
    budgets, forecast = ask("budgets"), ask("forecasts", business_unit="research")
    month = ask("costs", window="month", granularity="total")
    (row,) = budgets["rows"]
    spent = 2 * 12 * (HOURS - 1)
    assert row["spent_usd"] == forecast["spent_usd"] == month["totals"]["allocated_usd"] == spent
    assert budgets["known_until"] == forecast["known_until"] == month["end"]
    assert row["projected_usd"] == forecast["run_rate_usd"] == 2 * 12 * month_hours(forecast)


def month_hours(forecast: dict[str, Any]) -> int:
    return (parse_timestamp(forecast["end"]) - parse_timestamp(forecast["start"])) // HOUR
