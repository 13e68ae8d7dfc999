"""A cluster is replaced, added, or misses hours: budgets, spend changes and digests of the other units go on."""

from collections.abc import Sequence
from datetime import timedelta
from decimal import Decimal

import pytest
from dateutil.relativedelta import MO, relativedelta  # type: ignore[import-untyped]

from gpucost.core.access import FULL_ACCESS
from gpucost.core.hours import HOUR, month_bounds
from gpucost.features.alerting.month_budgets import BudgetService, UnitBudget
from gpucost.storage.sqlite_table import SqliteTable
from tests.features.alerting.fleet import START, Fleet, pod, settings_with_rules

EIGHT = pod(gpus=8, use="0.5")
"""$96 an hour."""
MONTH_HOURS = (month_bounds(START)[1] - START) // HOUR
MONTH = f"{START:%Y-%m}"
MONDAY = (START + relativedelta(days=7, weekday=MO(1)) - START) // HOUR
"""The hour of the second Monday, as dateutil finds it."""
BUDGET = "rule: budget, monthly_usd: 8000, projection: false, repeat_hours: 0"
SPEND_CHANGE = "rule: spend-change, percent: 50, usd: 100, weeks: 3, repeat_hours: 0"


def budgets(fleet: Fleet, number: int) -> dict[str, UnitBudget]:
    """The month's budgets some minutes after the end of an hour."""
    fleet.now = START + HOUR * (number + 1) + timedelta(minutes=10)
    service = BudgetService(fleet.settings_store, fleet.rollups, fleet.ledger, clock=lambda: fleet.now)
    return {row.business_unit: row for row in service.current_month(FULL_ACCESS).rows}


def replace_cluster(fleet: Fleet, number: int, rules: Sequence[str], *, by: str) -> None:
    """Push settings in which another cluster takes the place of the only one."""
    fleet.now = START + HOUR * number
    fleet.push(settings_with_rules(*rules, clusters=(by,)))
    fleet.now += timedelta(minutes=2)  # the settings are cached for a minute


def test_budgets_of_a_replaced_cluster_go_on(sqlite_table: SqliteTable) -> None:
    """Forty hours in the blue cluster and forty in the green one, at $96 each."""
    fleet = Fleet(sqlite_table, settings_with_rules(BUDGET, clusters=("blue",)))
    for number in range(40):
        fleet.publish(number, EIGHT, cluster="blue")
    assert fleet.tick(41) == []
    replace_cluster(fleet, 41, [BUDGET], by="green")
    sent = []
    for number in range(40, 80):
        fleet.publish(number, EIGHT, cluster="green")
        sent += [(number, text) for text in fleet.tick(number + 2)]
    # By hand: $4,000 are reached with the 42nd hour, $6,400 with the 67th.
    assert sent == [
        (41, f"firing budget research {MONTH} spent 50%"),
        (66, f"firing budget research {MONTH} spent 80%"),
    ]
    research = budgets(fleet, 79)["research"]
    assert research.spent_usd == 80 * 96
    assert research.projected_usd == 40 * 96 + (MONTH_HOURS - 40) * 96


def test_cluster_without_hours_leaves_other_units_their_projection(sqlite_table: SqliteTable) -> None:
    """East has all hours; the new cluster has none at first, and then an hour of its own unit."""
    rule = "rule: budget, monthly_usd: 1000, percents: [100], repeat_hours: 0"
    fleet = Fleet(sqlite_table, settings_with_rules(rule, clusters=("east", "new")))
    for number in range(24):
        fleet.publish(number, pod(), cluster="east")
    assert fleet.tick(25) == [f"firing budget research {MONTH} projected 100%"]
    fleet.publish(24, pod(), cluster="east")
    fleet.publish(24, pod("newcomer", gpus=8), cluster="new")
    assert fleet.tick(26) == []
    rows = budgets(fleet, 24)
    assert rows["research"].projected_usd == 12 * MONTH_HOURS
    assert (rows["newcomer"].spent_usd, rows["newcomer"].projected_usd) == (Decimal(96), None)
    for number in range(25, 48):
        fleet.publish(number, pod(), cluster="east")
        fleet.publish(number, pod("newcomer", gpus=8), cluster="new")
    joined_at = 24
    assert budgets(fleet, 47)["newcomer"].projected_usd == 96 * (MONTH_HOURS - joined_at)


def test_units_of_a_silent_cluster_are_unknown_and_not_zero(sqlite_table: SqliteTable) -> None:
    """West stopped in the last hour of the month before: its unit is unknown, the other one is not."""
    rule = "rule: budget, monthly_usd: 8000, overrides: [{business_unit: silent, monthly_usd: 5}]"
    fleet = Fleet(
        sqlite_table,
        settings_with_rules(rule, clusters=("east", "west"))
        + "business_units: [{name: silent, namespaces: [silent-ns]}]\n",
    )
    fleet.publish(-1, pod("silent"), cluster="west")
    for number in range(24):
        fleet.publish(number, pod(), cluster="east")
    rows = budgets(fleet, 23)
    assert (rows["silent"].status, rows["silent"].projected_usd) == ("unknown", None)
    assert (rows["research"].status, rows["research"].projected_usd) == ("projected", Decimal(12 * MONTH_HOURS))


def test_spend_change_fires_while_another_cluster_misses_an_hour(sqlite_table: SqliteTable) -> None:
    """Research triples in east. West misses an hour, and the new cluster has only the last one."""
    fleet = Fleet(sqlite_table, settings_with_rules(SPEND_CHANGE, clusters=("east", "west", "new")))
    sent = []
    for week, gpus in enumerate((8, 8, 8, 24)):
        for hour in range(2):
            number = week * 168 + hour
            fleet.publish(number, pod(gpus=gpus), cluster="east")
            if (week, hour) != (3, 0):
                fleet.publish(number, pod("steady", gpus=20 if week < 3 else 1), cluster="west")
            sent += fleet.tick(number + 2)
    fleet.publish(3 * 168 + 2, pod(gpus=24), cluster="east")
    fleet.publish(3 * 168 + 2, pod("fresh", gpus=80), cluster="new")
    assert sent == ["firing spend-change research"]
    assert fleet.tick(3 * 168 + 4) == [], "an hour of west is still missing today, so its unit is unknown"


@pytest.mark.parametrize(("gpus", "sent"), [(8, []), (24, ["firing spend-change research"])])
def test_spend_change_compares_with_the_replaced_cluster(sqlite_table: SqliteTable, gpus: int, sent: list[str]) -> None:
    """Three weeks in blue; the fourth begins there, and goes on in green after an hour."""
    fleet = Fleet(sqlite_table, settings_with_rules(SPEND_CHANGE, clusters=("blue",)))
    for week in range(3):
        for hour in range(3):
            fleet.publish(week * 168 + hour, EIGHT, cluster="blue")
            assert fleet.tick(week * 168 + hour + 2) == []
    first = 3 * 168
    fleet.publish(first, EIGHT, cluster="blue")
    replace_cluster(fleet, first + 1, [SPEND_CHANGE], by="green")
    texts = []
    for hour in (1, 2):
        fleet.publish(first + hour, pod(gpus=gpus), cluster="green")
        texts += fleet.tick(first + hour + 2)
    assert texts == sent


def test_digest_has_the_hours_of_a_replaced_cluster(sqlite_table: SqliteTable) -> None:
    rule = "rule: digest, every: week, at: '09:00', time_zone: UTC"
    fleet = Fleet(sqlite_table, settings_with_rules(rule, clusters=("blue",)))
    week = MONDAY - 168
    for number in range(week, week + 100):
        fleet.publish(number, pod(), cluster="blue")
    replace_cluster(fleet, week + 100, [rule], by="green")
    for number in range(week + 100, week + 168):
        fleet.publish(number, pod(), cluster="green")
    fleet.tick(MONDAY + 9)
    (digest,) = fleet.history.between("*", START, fleet.now)
    assert (digest.figures["allocated_usd"], digest.figures["hours_unknown"]) == (Decimal(168 * 12), Decimal(0))


def test_digest_waits_for_the_last_hour_and_only_of_its_clusters(sqlite_table: SqliteTable) -> None:
    """At 08:00 east of UTC, the last hour of the week is not computed yet, or not even over.

    $12 an hour: $2,016 for the week. The lab's cluster stopped two hours before; its digest goes out after half a day.
    """
    zones = {"shanghai": "Asia/Shanghai", "tokyo": "Asia/Tokyo", "auckland": "Pacific/Auckland"}
    rules = [f"rule: digest, name: {name}, every: week, at: '08:00', time_zone: {zone}" for name, zone in zones.items()]
    fleet = Fleet(sqlite_table, settings_with_rules(*rules, clusters=("main", "lab")))
    week = MONDAY - 168
    for number in range(week, week + 167):
        fleet.publish(number, pod(), cluster="main")
    fleet.publish(week, pod("lab"), cluster="lab")
    for number in (MONDAY - 13, MONDAY - 5, MONDAY - 1, MONDAY):
        assert fleet.tick(number) == []
    fleet.publish(MONDAY - 1, pod(), cluster="main")
    assert sorted(fleet.tick(MONDAY + 1)) == sorted(f"digest {name} research" for name in zones)
    digests = fleet.history.between("*", START, fleet.now)
    assert {(digest.figures["allocated_usd"], digest.figures["hours_unknown"]) for digest in digests} == {
        (Decimal(2016), Decimal(0))
    }
    assert [fleet.tick(MONDAY + hour) for hour in (2, 11)] == [[], []]
    assert sorted(fleet.tick(MONDAY + 12)) == sorted(f"digest {name} lab" for name in zones)
    last = fleet.history.between("*", START, fleet.now)
    assert {digest.figures["hours_unknown"] for digest in last if digest.subject.business_unit == "lab"} == {167}


def test_digest_does_not_wait_for_an_abandoned_hour(sqlite_table: SqliteTable) -> None:
    rule = "rule: digest, every: week, at: '08:00', time_zone: Asia/Shanghai"
    fleet = Fleet(sqlite_table, settings_with_rules(rule))
    week = MONDAY - 168
    for number in range(week, MONDAY):
        is_missing = number == week + 5
        fleet.publish(number, pod(), status="incomplete" if is_missing else "complete", is_abandoned=is_missing)
    assert fleet.tick(MONDAY) == ["digest digest research"]
    (digest,) = fleet.history.between("*", START, fleet.now)
    assert (digest.figures["allocated_usd"], digest.figures["hours_unknown"]) == (Decimal(167 * 12), Decimal(1))
