"""Silences, acknowledgements and replays."""

from datetime import timedelta
from typing import Any

import pytest

from gpucost.core.errors import InvalidInputError, NotFoundError, SettingsError
from gpucost.core.hours import HOUR
from gpucost.features.alerting.evaluation import estimates_check
from gpucost.features.alerting.ports import RuleInputs
from gpucost.features.alerting.queries import AlertQueries
from gpucost.features.alerting.replay import count_firings, replay
from gpucost.features.alerting.storage import DynamoSpendStore
from gpucost.runtime import secrets
from gpucost.settings_document import SettingsDocumentStore, parse_settings
from gpucost.storage.dynamodb_table import DynamoDBTable
from gpucost.storage.ledger import Ledger
from gpucost.storage.ports import StoredSettings
from gpucost.storage.rollups import RollupStore
from tests.conftest import DynamoTable
from tests.features.alerting.fleet import START, Fleet, describe, node, pod, settings_with_rules

RULES = (
    "rule: waste, waste_usd_per_hour: 10, waste_percent: 50, for_hours: 2, keep_firing_hours: 2",
    "rule: idle-workload, gpus: 2, utilization_percent: 10",
    "rule: unallocated, usd_per_hour: 20",
    "rule: budget, monthly_usd: 300",
    "rule: data, overdue_hours: 2, dead_letters: false",
)
IDLE, BUSY = pod(gpus=2, use="0.05"), pod(gpus=2, use="0.9")


def rule_inputs(table: DynamoTable) -> RuleInputs:
    args = (table.client, table.name)
    allows_estimates = estimates_check(SettingsDocumentStore(DynamoDBTable(*args), clock=lambda: START))
    return RuleInputs(
        Ledger(DynamoDBTable(*args)),
        RollupStore(DynamoDBTable(*args)),
        DynamoSpendStore(DynamoDBTable(*args)),
        lambda: None,
        lambda: None,
        allows_estimates,
    )


def alert_queries(fleet: Fleet) -> AlertQueries:
    return AlertQueries(
        fleet.settings_store, fleet.alert_states, fleet.history, fleet.silences, clock=lambda: fleet.now
    )


@pytest.mark.tools
def test_replay_repeats_the_recorded_notifications_and_stores_nothing(table: DynamoTable) -> None:
    fleet = Fleet(table, settings_with_rules(*RULES))
    days = "IIBIBBBIIIBBBIIBB"
    for number, kind in enumerate(days):
        fleet.publish_and_close(number, IDLE if kind == "I" else BUSY, nodes=[node("gpu", "24" if number % 5 else "0")])
        fleet.tick(number + 1)
    end = START + timedelta(days=2)
    recorded = [event for scope in ("demo", "*") for event in fleet.history.between(scope, START, end)]
    stored_items = table.client.scan(TableName=table.name)["Items"]
    replayed = list(replay(rule_inputs(table), fleet.settings_store.current(), START, START + len(days) * HOUR))

    def described(notifications: Any) -> list[tuple[str, Any]]:
        return sorted((describe(notification), notification.hour) for notification in notifications)

    # The service reads stored parts of the month; a replay sums them itself.
    assert described(replayed) == described(recorded)
    assert len(replayed) >= 10
    # By hand: two consecutive idle hours begin at hours 0, 7 and 13, and two busy hours follow each time.
    assert count_firings(replayed)["waste"] == 3
    assert table.client.scan(TableName=table.name)["Items"] == stored_items


def test_replay_evaluates_other_rules(table: DynamoTable) -> None:
    fleet = Fleet(table, settings_with_rules(RULES[0]))
    for number in range(4):
        fleet.publish(number, IDLE)
    text = settings_with_rules("rule: waste, name: strict, waste_usd_per_hour: 10, waste_percent: 50, for_hours: 4")
    stored = StoredSettings(9, text, parse_settings(text), "x", START)
    replayed = list(replay(rule_inputs(table), stored, START, START + 4 * HOUR))
    assert [(describe(notification), notification.hour) for notification in replayed] == [
        ("firing strict research", START + 3 * HOUR)
    ]
    for end in (START, START + timedelta(days=63)):
        with pytest.raises(InvalidInputError, match="1 hour to 62 days"):
            list(replay(rule_inputs(table), stored, START, end))


def test_silences_need_matchers_a_comment_and_an_end(table: DynamoTable) -> None:
    # At `START`, 90 days before the last day of some months, the silence would be deleted at once.
    fleet = Fleet(table, settings_with_rules(RULES[0]), now=START + timedelta(days=31))
    for matchers, comment, hours, says in (
        ({}, "why", 1.0, "matchers: required"),
        ({"unit": "x"}, "why", 1.0, "'unit': unknown matcher; allowed: rule, cluster, business_unit"),
        ({"rule": "waste"}, " ", 1.0, "comment: required"),
        ({"rule": "waste"}, "why", 0.0, "hours: must be more than 0"),
        ({"rule": "waste"}, "why", 9000.0, "at most 8760"),
    ):
        with pytest.raises(InvalidInputError, match=says):
            alert_queries(fleet).add_silence(matchers, author="alice", comment=comment, hours=hours)
    silence = alert_queries(fleet).add_silence({"rule": "waste"}, author="alice", comment="why", hours=2)
    assert alert_queries(fleet).silences() == [silence]
    expired = alert_queries(fleet).expire_silence(silence.id)
    assert (expired.ends_at, alert_queries(fleet).silences()) == (fleet.now, [expired])
    with pytest.raises(NotFoundError):
        alert_queries(fleet).expire_silence(silence.id)


def test_pending_alert_cannot_be_acknowledged(table: DynamoTable) -> None:
    fleet = Fleet(table, settings_with_rules(RULES[0]))
    fleet.publish_and_close(0, IDLE)
    (pending,) = alert_queries(fleet).active_alerts()
    assert pending.alert.phase == "pending"
    with pytest.raises(NotFoundError):
        alert_queries(fleet).acknowledge(pending.id, author="alice")
    with pytest.raises(InvalidInputError, match="not the id of an alert"):
        alert_queries(fleet).acknowledge("nonsense", author="alice")


def test_single_rule_without_name_has_the_name_of_its_kind() -> None:
    assert list(parse_settings(settings_with_rules(RULES[0])).alerts.rules_by_name()) == ["waste"]


def test_push_rejects_unnamed_rules_of_same_kind_and_unknown_time_zones(table: DynamoTable) -> None:
    two = settings_with_rules(RULES[0], RULES[0])
    fleet = Fleet(table, settings_with_rules(RULES[0]))
    with pytest.raises(SettingsError, match="2 rules of kind waste: each needs a name"):
        fleet.push(two)
    with pytest.raises(SettingsError, match="unknown time_zone 'Mars/Olympus'"):
        fleet.push(settings_with_rules(RULES[0], alert_keys="  time_zone: Mars/Olympus\n"))


def test_a_rotated_secret_is_picked_up_without_a_deploy(monkeypatch: pytest.MonkeyPatch) -> None:
    class Vault:
        webhook, reads = "https://hooks.slack.com/old", 0

        def get_secret_value(self, **_: str) -> dict[str, str]:
            self.reads += 1
            return {"SecretString": self.webhook}

    vault, now = Vault(), [1000.0]
    cached = secrets.Secrets(lambda _service: vault, lambda: now[0])
    for _ in range(3):
        assert cached.value("gpucost/slack") == "https://hooks.slack.com/old"
    assert vault.reads == 1
    vault.webhook = "https://hooks.slack.com/new"
    now[0] += secrets.MAX_AGE_SECONDS + 1
    assert cached.value("gpucost/slack") == "https://hooks.slack.com/new"
