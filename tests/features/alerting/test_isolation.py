"""What one message or alert contains harms no other alert: it is validated on receipt, or set aside with a reason."""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from gpucost.core.errors import IntegrityError, InvalidMessageError, SourceError
from gpucost.core.hours import format_timestamp
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.notifiers.alertmanager import alertmanager_alert
from gpucost.features.alerting.notifiers.email import email_body, email_subject
from gpucost.features.alerting.notifiers.slack import slack_message
from gpucost.features.alerting.ports import ScopeStates
from gpucost.features.alerting.storage import DynamoAlertStateStore
from gpucost.runtime.messages import CheckedAlerts, NotificationSetAside, read_alert_input, read_external_alerts
from gpucost.storage.sqlite_table import SqliteTable
from tests.features.alerting.fleet import START, Fleet, RecordingNotifier, pod, settings_with_rules
from tests.features.alerting.slack_limits import limit_violations

WASTE = "rule: waste, waste_usd_per_hour: 10, waste_percent: 50"
NOW = START + timedelta(hours=3)
LONGEST = "\U0001f600" * 200
"""The longest name that is allowed, in characters that need most bytes in an address."""


def alert(**changes: Any) -> dict[str, Any]:
    labels = {"alertname": "NodePoolNearLimit", "cluster": "demo"}
    return {"status": "firing", "labels": labels, "startsAt": format_timestamp(NOW), **changes}


def read_alerts(*alerts: dict[str, Any]) -> CheckedAlerts:
    message = read_external_alerts(json.dumps({"kind": "amp-alerts", "alerts": alerts}), NOW)
    return message.check(NOW)


class FormattingNotifier(RecordingNotifier):
    """Formats as all real notifiers do, and checks Slack's limits."""

    def send(self, notifications: Sequence[Notification]) -> None:
        super().send(notifications)
        assert limit_violations(slack_message(notifications, "https://costs.example.com")) == []
        email_body(notifications, "https://costs.example.com")
        email_subject(notifications)
        for notification in notifications:
            alertmanager_alert(notification, NOW, "https://costs.example.com")


class FailingNotifier(RecordingNotifier):
    """Cannot format the notifications of one business unit, as if the code had a bug."""

    def send(self, notifications: Sequence[Notification]) -> None:
        if any(notification.subject.business_unit == "sales" for notification in notifications):
            raise OverflowError("date value out of range")
        super().send(notifications)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"startsAt": "0001-01-01T00:00:00Z"}, "startsAt: Value error, must be within the years 1971 to 9998"),
        ({"startsAt": "0001-01-01 00:00:00 +0000 UTC"}, "startsAt: Value error, must be within the years 1971 to 9998"),
        ({"startsAt": "9999-12-31T23:59:59Z"}, "startsAt: Value error, must be within the years 1971 to 9998"),
        ({"startsAt": "2090-01-01T00:00:00Z"}, "startsAt: Value error, must not be in the future"),
        ({"startsAt": 10**17}, "startsAt: "),
        ({"labels": {"cluster": "c" * 600}}, "labels: Value error, cluster: must have at most 200 characters"),
        ({"labels": {str(number): "" for number in range(65)}}, "labels: Dictionary should have at most 64 items"),
        ({"labels": {"x" * 201: ""}}, "labels.xxxx"),
        ({"labels": {"cluster": 7}}, "labels.cluster: Input should be a valid string"),
        ({"labels": ["cluster"]}, "labels: "),
        ({"status": "odd"}, "status: "),
    ],
)
def test_invalid_alert_is_refused_and_its_neighbors_are_not(changes: dict[str, Any], reason: str) -> None:
    checked = read_alerts(alert(), alert(**changes), alert(status="resolved"))
    assert [valid.status for valid in checked.valid.alerts] == ["firing", "resolved"]
    assert checked.refused.alerts == (alert(**changes),)
    (refusal,) = checked.reasons
    assert refusal.startswith(f"alerts.1.{reason}")


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {"cluster": LONGEST, "business_unit": LONGEST, "namespace": LONGEST, "nodepool": LONGEST}},
        {"labels": {"alertname": LONGEST}},
        {"labels": {str(number): "<" * 200 for number in range(64)}},
        {"annotations": {"summary": "<" * 60_000}},
        {"annotations": {"description": "\x00\u202e" * 60_000}},
        {"startsAt": "1971-01-01T00:00:00Z"},
        {"labels": {}},
    ],
)
def test_every_alert_that_is_not_refused_can_be_sent(sqlite_table: SqliteTable, changes: dict[str, Any]) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: external, repeat_hours: 5"), now=NOW)
    fleet.notifiers = {"email": FormattingNotifier()}
    fleet.service().handle_amp_alerts(read_alerts(alert(**changes)).valid)
    assert len(fleet.email.notifications) == 1
    fleet.tick(9)
    assert fleet.letters == []


@pytest.mark.parametrize(
    "changes",
    [
        {"hours_overdue": 10**30},
        {"hours_overdue": 10**6 + 1},
        {"cluster": "c" * 201},
        {"last_complete_hour": "9999-12-31T23:00:00Z"},
    ],
)
def test_tick_with_absurd_state_is_refused(sqlite_table: SqliteTable, changes: dict[str, Any]) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules(WASTE))
    document = fleet.tick_message(4).model_dump(mode="json")
    document["clusters"][0] |= changes
    with pytest.raises(InvalidMessageError):
        read_alert_input(json.dumps(document), fleet.now)


def test_notification_that_cannot_be_sent_is_set_aside_and_delays_no_other(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: external, repeat_hours: 0", WASTE), now=NOW)
    fleet.notifiers = {"email": FailingNotifier()}
    alerts = [alert(labels={"alertname": f"A{number}"}) for number in range(3)]
    unsendable = alert(labels={"alertname": "P", "business_unit": "sales"})
    fleet.service().handle_amp_alerts(read_alerts(*alerts[:2], unsendable, alerts[2]).valid)
    assert fleet.email.take() == ["firing external A0", "firing external A1", "firing external A2"]
    ((body, reason),) = fleet.letters
    letter = NotificationSetAside.model_validate_json(body)
    assert (letter.receiver, letter.notification["subject"][1]) == ("email", "sales")
    assert reason == "OverflowError: date value out of range"
    assert fleet.publish_and_close(0, pod(use="0"), pod("sales", use="0")) == ["firing waste research"]
    assert fleet.tick(4) == []
    assert all(not group.outbox for scope in ("demo", "*") for group in fleet.alert_states.load(scope).groups)


def test_notification_in_a_batch_that_cannot_be_sent_alone_is_set_aside(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: external"), now=NOW)

    class Overflowing(RecordingNotifier):
        def send(self, notifications: Sequence[Notification]) -> None:
            if any("A1" in notification.subject.detail for notification in notifications):
                raise OverflowError
            super().send(notifications)

    fleet.notifiers = {"email": Overflowing()}
    alerts = [alert(labels={"alertname": f"A{number}"}) for number in range(4)]
    fleet.service().handle_amp_alerts(read_alerts(*alerts).valid)
    assert fleet.email.take() == ["firing external A0", "firing external A2", "firing external A3"]
    assert len(fleet.letters) == 1


def test_notification_stays_while_the_dead_letter_queue_fails(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: external, repeat_hours: 0"), now=NOW)
    fleet.notifiers = {"email": FailingNotifier()}

    def fail(body: str, reason: str) -> None:
        raise SourceError("could not send a message to the dead-letter queue: AccessDenied")

    set_aside, fleet.set_aside = fleet.set_aside, fail  # type: ignore[method-assign]
    message = read_alerts(alert(labels={"business_unit": "sales"})).valid
    with pytest.raises(SourceError, match="email: not delivered: could not send a message to the dead-letter queue"):
        fleet.service().handle_amp_alerts(message)
    fleet.set_aside = set_aside  # type: ignore[method-assign]
    fleet.tick(4)
    assert len(fleet.letters) == 1


def test_firing_alert_that_cannot_be_sent_again_delays_no_other(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules("rule: external, repeat_hours: 0"), now=NOW)
    fleet.service().handle_amp_alerts(
        read_alerts(alert(labels={"business_unit": "sales"}), alert(labels={"alertname": "A"})).valid
    )
    notifier = FailingNotifier()
    notifier.needs_resend = True
    fleet.notifiers = {"email": notifier}
    with pytest.raises(SourceError, match="cannot be sent: OverflowError"):
        fleet.tick(4)
    assert notifier.take() == ["firing external A"]


@pytest.mark.tools
def test_number_of_stored_alerts_is_limited(sqlite_table: SqliteTable) -> None:
    most = 2_000
    fleet = Fleet(sqlite_table, settings_with_rules("rule: external, scope: {clusters: [demo]}"), now=NOW)
    alerts = [alert(labels={"cluster": "demo", "alertname": "A", "n": str(n)}) for n in range(most + 2)]
    fleet.service().handle_amp_alerts(read_alerts(*alerts).valid)
    assert len(fleet.email.notifications) == most
    ((body, reason),) = fleet.letters
    assert reason == "2000 alerts of AMP fire already"
    assert [excess["labels"]["n"] for excess in json.loads(body)["alerts"]] == ["2000", "2001"]
    fleet.service().handle_amp_alerts(read_alerts({**alerts[0], "status": "resolved"}, alerts[-1]).valid)
    assert len(fleet.letters) == 1


def test_unreadable_state_of_a_cluster_stops_no_other_cluster(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules(WASTE, clusters=("demo", "other")), now=NOW)

    class Damaged(DynamoAlertStateStore):
        def load(self, scope: str) -> ScopeStates:
            if scope == "demo":
                raise IntegrityError("the ledger's item C#demo#alerts is damaged")
            return super().load(scope)

    fleet.publish(0, pod(use="0"), cluster="other")
    fleet.email.fails = True
    with pytest.raises(SourceError, match="out of order"):
        fleet.close_hour(0, cluster="other")
    fleet.email.fails = False
    fleet.now += timedelta(minutes=1)
    fleet.state_store_class = Damaged
    service = fleet.service()
    with pytest.raises(SourceError, match="C#demo#alerts is damaged"):
        service.handle_tick(fleet.tick_message(4))
    assert fleet.email.take() == ["firing waste research"]
