"""Rules that are evaluated on ticks: budgets, spend changes, data, digests, and AMP's alerts."""

import json
import re
from datetime import timedelta
from decimal import Decimal

import pytest

from gpucost.core.amounts import Costs
from gpucost.core.hours import HOUR, format_timestamp
from gpucost.core.query.periods import ClusterSpend, run_rate
from gpucost.features.alerting.rule_kinds.spend_change import (
    SpendChangeRule,
    SpendComparison,
    compare_with_previous_weeks,
)
from gpucost.features.recommendations.model import (
    Evidence,
    Recommendation,
    RecommendationContent,
    RecommendationState,
    RecommendationSubject,
    Saving,
)
from gpucost.features.recommendations.storage import DynamoRecommendations
from gpucost.runtime.messages import ExternalAlerts, read_external_alerts
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.sqlite_table import SqliteTable
from tests.conftest import DynamoTable
from tests.features.alerting.fleet import START, Fleet, pod, settings_with_rules
from tests.newer_settings import push_newer_format
from tests.records import amount

EIGHT = pod(gpus=8, use="0.5")
"""$96 an hour."""


def test_budget_notifies_its_highest_threshold_once_and_ends_with_its_month(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(
        sqlite_table, settings_with_rules("rule: budget, monthly_usd: 2000, projection: false, repeat_hours: 0")
    )
    notifications = {}
    for number in range(24):
        fleet.publish(number, EIGHT)
        notifications[number + 2] = fleet.tick(number + 2)
    # By hand: $96 an hour reaches $1,000 with its 11th hour, $1,600 with its 17th, $2,000 with its 21st.
    month = f"{START:%Y-%m}"
    assert {number: sent for number, sent in notifications.items() if sent} == {
        12: [f"firing budget research {month} spent 50%"],
        18: [f"firing budget research {month} spent 80%"],
        22: [f"firing budget research {month} spent 100%"],
    }
    # A restatement lowers the cost: 15 × $12 + 9 × $96.
    for number in range(15):
        fleet.publish(number, pod(gpus=1, use="0.5"))
    assert fleet.tick(27) == [
        f"resolved budget research {month} spent 80%",
        f"resolved budget research {month} spent 100%",
    ]
    next_month = (START + timedelta(days=32)).replace(day=1)
    assert fleet.tick((next_month - START) // HOUR + 2) == []
    assert fleet.alert_states.load("*").groups[0].alerts == ()


def test_a_budget_over_two_clusters_and_its_projection(sqlite_table: SqliteTable) -> None:
    rule = "rule: budget, monthly_usd: 100000, overrides: [{business_unit: other, monthly_usd: 9000000}]"
    fleet = Fleet(sqlite_table, settings_with_rules(rule, clusters=("east", "west")))
    for number in range(25):
        fleet.publish(number, EIGHT, pod("other", gpus=8), cluster="east")
        fleet.publish(number, EIGHT, cluster="west")
        if number < 23:
            assert fleet.tick(number + 1) == []  # there is no projection before a day of hours has data
    assert fleet.tick(26) == [f"firing budget research {START:%Y-%m} projected 100%"]


def test_projections_by_hand() -> None:
    end = START + 720 * HOUR
    first = ClusterSpend(Decimal(240), 24, START)
    assert run_rate([first], START + 24 * HOUR, end) == 7200
    assert run_rate([first, ClusterSpend(Decimal(48), 48, START)], START + 48 * HOUR, end) == 7920
    assert run_rate([ClusterSpend(Decimal(230), 23, START)], START + 24 * HOUR, end) is None
    assert run_rate([first], START + 49 * HOUR, end) is None
    assert run_rate([], START + 49 * HOUR, end) == 0
    joined = ClusterSpend(Decimal(240), 24, START + 480 * HOUR)
    assert run_rate([joined], START + 504 * HOUR, end) == 2400
    assert run_rate([ClusterSpend(Decimal(50), 5, START, has_left=True), joined], START + 504 * HOUR, end) == 2450


def test_spend_change_ignores_an_unusual_week(sqlite_table: SqliteTable) -> None:
    """Four weeks of the same weekday, one of them at ten times the cost; then one that doubles."""
    fleet = Fleet(
        sqlite_table, settings_with_rules("rule: spend-change, percent: 50, usd: 100, weeks: 4, repeat_hours: 0")
    )
    descriptions = []
    for week, gpus in enumerate((8, 8, 80, 8, 8)):
        for hour in range(3):
            number = week * 168 + hour
            fleet.publish(number, pod(gpus=gpus, use="0.5"), pod("steady", gpus=1))
            descriptions += fleet.tick(number + 2)
    assert descriptions == ["firing spend-change research", "resolved spend-change research"]
    history = fleet.history.between("*", START, START + timedelta(days=40))
    firing = [event for event in history if event.event == "firing"]
    # In the third week: after its first hour, it is at $960 instead of $96.
    assert [(event.figures["today_usd"], event.figures["usual_usd"]) for event in firing] == [
        (Decimal(960), Decimal(96))
    ]
    fleet.publish(5 * 168, pod(gpus=24, use="0.5"), pod("steady", gpus=1))
    assert fleet.tick(5 * 168 + 2) == ["firing spend-change research"]
    assert fleet.tick(5 * 168 + 2) == []
    # With an hour missing, there is no finding.
    assert fleet.tick(5 * 168 + 3) == []


def test_incomplete_hour_does_not_hide_a_spend_change_in_another_currency(sqlite_table: SqliteTable) -> None:
    """Incomplete hours have no amounts, so the currency that they are recorded with does not matter."""
    text = settings_with_rules("rule: spend-change, percent: 50, usd: 100, weeks: 2, repeat_hours: 0")
    fleet = Fleet(sqlite_table, text.replace("pricing: {source", "pricing: {currency: EUR, source"))
    descriptions = []
    for week, gpus in enumerate((8, 8, 80)):
        fleet.publish(week * 168, pod(gpus=gpus, use="0.5"), currency="EUR")
        fleet.publish(week * 168 + 1, status="incomplete")
        descriptions += fleet.tick(week * 168 + 2)
    assert descriptions == ["firing spend-change research"]


def spent(usd: Decimal, gpu_hours: Decimal) -> Costs:
    return Costs(allocated_usd=amount(usd), allocated_gpu_hours=amount(gpu_hours))


def test_days_under_other_price_sources_are_compared_in_gpu_hours() -> None:
    expensive, cheap = spent(Decimal(960), Decimal(8)), spent(Decimal(96), Decimal(8))
    rule = SpendChangeRule(rule="spend-change", percent=Decimal(50), usd=Decimal(10))
    assert compare_with_previous_weeks(expensive, [(cheap, True), (cheap, True)]) == SpendComparison(
        Decimal(960), Decimal(96), False, 2
    )
    comparison = compare_with_previous_weeks(expensive, [(cheap, False), (cheap, False), (cheap, True)])
    assert comparison == SpendComparison(Decimal(960), Decimal(960), True, 3)
    assert rule.is_breached_by(comparison) is False
    grown = compare_with_previous_weeks(spent(Decimal(960), Decimal(16)), [(cheap, False), (cheap, False)])
    assert grown == SpendComparison(Decimal(960), Decimal(480), True, 2)
    assert rule.is_breached_by(grown) is True
    assert compare_with_previous_weeks(expensive, [(cheap, True)]) is None
    assert rule.is_breached_by(None) is None
    assert compare_with_previous_weeks(Costs(), [(cheap, True)] * 3) == SpendComparison(
        Decimal(0), Decimal(96), False, 3
    )


def test_data_rule_fires_and_resolves_for_each_problem(table: DynamoTable) -> None:
    rule = "rule: data, overdue_hours: 2, coverage: 0.9, price_age_hours: 30, repeat_hours: 0"
    text = settings_with_rules(rule).replace("{source: constant, gpu", "{sources: [spot, constant], gpu")
    fleet = Fleet(table, text)
    fleet.prices_fetched_at = START
    fleet.publish(0, EIGHT, coverage="0.5")
    assert fleet.tick(1, demo=1) == ["firing data coverage"]
    fleet.publish(1, EIGHT, coverage="0.95")
    fleet.dead_letters = 3
    assert fleet.tick(2, demo=2) == ["firing data overdue", "resolved data coverage", "firing data dead-letters"]
    fleet.dead_letters = None  # not available: the alert stays
    assert fleet.tick(3, demo=0) == ["resolved data overdue"]
    fleet.dead_letters = 0
    assert fleet.tick(4, demo=0) == ["resolved data dead-letters"]
    assert fleet.tick(31) == ["firing data prices"]
    fleet.prices_fetched_at = START + 31 * HOUR
    assert fleet.tick(32) == ["resolved data prices"]
    reason = push_newer_format(table.client, table.name, 2)
    fleet.service().handle_tick(fleet.tick_message(33))
    (notification,) = fleet.email.notifications
    assert (notification.note, fleet.email.take()) == (reason, ["firing data settings"])
    fleet.push(text)
    assert fleet.tick(34) == ["resolved data settings"]


@pytest.mark.parametrize(("source", "alerts"), [("spot", ["firing data prices"]), ("auto", [])])
def test_deployment_without_spot_prices_alerts_only_where_the_settings_name_them(
    sqlite_table: SqliteTable, source: str, alerts: list[str]
) -> None:
    text = settings_with_rules("rule: data, price_age_hours: 30")
    fleet = Fleet(sqlite_table, re.sub(r"pricing: .*", f"pricing: {{source: {source}}}", text))
    fleet.prices_fetched_at = None
    fleet.publish(0, EIGHT)
    assert fleet.tick(1) == alerts


def test_weekly_digest_is_sent_once_to_each_business_unit(table: DynamoTable) -> None:
    fleet = Fleet(table, settings_with_rules("rule: digest, every: week, at: '09:00', time_zone: Asia/Kolkata"))
    monday = (7 - START.weekday()) % 7 * 24 + 168
    for number in (monday - 168, monday - 1):
        fleet.publish(number, EIGHT, pod(name="idle", gpus=2, use="0"), pod("other", gpus=1, use="1"))
    fleet.publish(monday - 169, EIGHT)
    fleet.publish(monday, EIGHT)
    store = DynamoRecommendations(DynamoDBTable(table.client, table.name))
    for name, usd, state in RECOMMENDATIONS:
        store.put(recommendation(name, usd, state))
    # 09:00 in Kolkata is 03:30 UTC.
    assert [fleet.tick(monday + number) for number in (2, 3)] == [[], []]
    # Hours are missing, so it waits for them, half a day at most.
    assert [fleet.tick(monday + number) for number in (4, 15)] == [[], []]
    at = START + (monday + 16) * HOUR
    fleet.tick(monday + 16)
    assert fleet.tick(monday + 16) == fleet.tick(monday + 17) == []
    digests = {digest.subject.business_unit: digest for digest in fleet.history.between("*", START, at)}
    research = digests["research"]
    # By hand: two hours of 8 GPUs at half use and 2 at none, $12 each; an hour of 8 the week before.
    assert (research.figures["allocated_usd"], research.figures["waste_usd"]) == (Decimal(240), Decimal(144))
    assert (research.figures["previous_usd"], research.figures["hours_unknown"]) == (Decimal(96), Decimal(166))
    assert [(workload.name, workload.waste_usd) for workload in research.workloads] == [
        ("train", Decimal(96)),
        ("idle", Decimal(48)),
    ]
    assert digests["other"].figures["previous_usd"] is None
    assert re.fullmatch(
        r"do idle: \$17520\.00 a month \(high confidence, idle-\w{12}\); 1 more with `gpucost recommendations list`",
        research.note,
    )
    assert digests["other"].note == ""
    assert (research.since, research.hour) == (START + (monday - 168) * HOUR, START + (monday - 1) * HOUR)


def test_digest_names_no_top_wasters_by_estimates_of_earlier_settings(sqlite_table: SqliteTable) -> None:
    text = settings_with_rules("rule: digest, every: week, at: '09:00', time_zone: Asia/Kolkata")
    fleet = Fleet(sqlite_table, text + "utilization: {sources: [pod, cluster]}\n")
    fleet.push(text)
    monday = (7 - START.weekday()) % 7 * 24 + 168
    fleet.publish(monday - 168, pod(gpus=4, use="0", utilization_source="cluster"), settings_version=1)
    fleet.publish(monday - 1, EIGHT, settings_version=2)
    fleet.tick(monday + 16)
    (digest,) = fleet.history.between("*", START, fleet.now)
    assert (digest.figures["allocated_usd"], digest.workloads) == (Decimal(144), ())


def test_digest_compares_only_amounts_of_the_same_currency(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: digest, every: week, at: '09:00', time_zone: Asia/Kolkata"))
    monday = (7 - START.weekday()) % 7 * 24 + 168
    fleet.publish(monday - 169, EIGHT, currency="EUR")
    fleet.publish(monday - 168, EIGHT)
    fleet.tick(monday + 16)
    (digest,) = fleet.history.between("*", START, fleet.now)
    assert (digest.figures["allocated_usd"], digest.figures["previous_usd"]) == (Decimal(96), None)


RECOMMENDATIONS: tuple[tuple[str, int, RecommendationState], ...] = (
    ("idle", 17520, "open"),
    ("small", 5, "open"),
    ("x", 99999, "dismissed"),
)


def recommendation(name: str, usd: int, state: RecommendationState) -> Recommendation:
    about = RecommendationSubject("demo", "research", "ns", "Deployment", name)
    cost = Decimal(usd).quantize(Decimal("0.01"))
    content = RecommendationContent(
        kind="idle",
        subject=about,
        summary=f"do {name}",
        saving=Saving(cost, cost, cost, None, None, cost),
        evidence=Evidence(START, START, 700, 0, None, None, None),
        confidence="high",
        risk="low",
        risk_note="",
        effort="low",
        patch="",
        current_gpus=Decimal(2),
        recommended_gpus=Decimal(0),
        usd_hourly=Decimal(1),
    )
    return Recommendation(content, state, START, START, START)


def amp(status: str, **labels: str) -> ExternalAlerts:
    alert = {
        "status": status,
        "labels": {"alertname": "GPUNodePoolNearLimit", "cluster": "demo", "nodepool": "gpu", **labels},
        "annotations": {"summary": "GPU node pool at 93% of its limit"},
        "startsAt": format_timestamp(START + timedelta(minutes=7)),
        "fingerprint": "abc",
    }
    now = START + HOUR
    message = read_external_alerts(json.dumps({"kind": "amp-alerts", "receiver": "sns", "alerts": [alert]}), now)
    return message.check(now).valid


def test_alert_of_amp_is_forwarded_once_and_repeated(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(
        sqlite_table,
        settings_with_rules("rule: external, repeat_hours: 5", "rule: waste, waste_usd_per_hour: 1, waste_percent: 1"),
    )
    for status in ("firing", "firing"):
        fleet.service().handle_amp_alerts(amp(status))
    (notification,) = fleet.email.notifications
    assert (notification.subject.node_pool, notification.subject.detail) == ("gpu", "GPUNodePoolNearLimit")
    assert notification.note == "GPU node pool at 93% of its limit"
    fleet.email.take()
    assert [fleet.tick(number) for number in (4, 5)] == [[], ["repeat external gpu GPUNodePoolNearLimit"]]
    for status in ("resolved", "resolved"):
        fleet.service().handle_amp_alerts(amp(status))
    assert fleet.email.take() == ["resolved external gpu GPUNodePoolNearLimit"]


def test_scope_matches_only_amp_alerts_with_its_labels(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: external, scope: {business_units: [res*]}"))
    subjects = []
    for labels in ({"business_unit": "research"}, {"business_unit": "sales"}, {"namespace": "research"}, {}):
        fleet.service().handle_amp_alerts(amp("firing", **labels))
        subjects += [(sent.subject.business_unit, sent.subject.detail) for sent in fleet.email.notifications]
        fleet.email.take()
    assert subjects == [("research", "GPUNodePoolNearLimit")]
    fleet.service().handle_amp_alerts(amp("resolved", business_unit="research"))
    assert len(fleet.email.take()) == 1
