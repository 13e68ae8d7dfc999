"""A receiver that refuses a message, or fails for days, keeps no other message from anybody."""

import contextlib
import json
from collections.abc import Sequence
from datetime import timedelta

import pytest

from gpucost.core.errors import SourceError
from gpucost.features.alerting.model import Notification
from gpucost.features.alerting.notifiers.slack import slack_message
from gpucost.features.alerting.ports import is_refusal
from gpucost.runtime.messages import NotificationSetAside
from gpucost.storage.sqlite_table import SqliteTable
from tests.features.alerting.fleet import START, Fleet, describe, pod, settings_with_rules

IDLE = "rule: idle-workload, gpus: 1, utilization_percent: 10, for_hours: 1, keep_firing_hours: 1, repeat_hours: 0"


def idle(fleet: Fleet, number: int, workloads: range) -> None:
    """Publish an hour in which some workloads of one unit hold eight idle GPUs each."""
    lines = [pod(name=f"job-{index:02}", gpus=8, use="0") for index in workloads]
    fleet.publish(number, *(lines or [pod(name="busy", gpus=8, use="1")]))


@pytest.mark.parametrize("poison", [0, 4, 11])
def test_refused_notification_is_set_aside_and_the_others_arrive_in_order(
    sqlite_table: SqliteTable, poison: int
) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules(IDLE))
    name = f"job-{poison:02}"
    fleet.email.refuses = lambda notification: notification.subject.workload == name
    idle(fleet, 0, range(12))
    fleet.close_hour(0)
    delivered = [notification.subject.workload for notification in fleet.email.notifications]
    assert delivered == [f"job-{index:02}" for index in range(12) if index != poison]
    ((body, reason),) = fleet.letters
    letter = NotificationSetAside.model_validate_json(body)
    assert letter.receiver == "email"
    assert name in letter.notification_id
    assert reason == "HTTP 400 invalid_blocks"
    assert all(not group.outbox for group in fleet.alert_states.load("demo").groups)
    fleet.close_hour(0)
    assert (len(fleet.email.notifications), len(fleet.letters)) == (11, 1)


def test_receiver_that_refuses_everything_is_given_up_after_some(sqlite_table: SqliteTable) -> None:
    """A revoked webhook: ten notifications are set aside in a delivery, the rest waits for the next one."""
    fleet = Fleet(sqlite_table, settings_with_rules(IDLE))
    fleet.email.refuses = lambda _: True
    idle(fleet, 0, range(14))
    with pytest.raises(SourceError, match="email: not delivered: HTTP 400"):
        fleet.close_hour(0)
    assert len(fleet.letters) == 10
    fleet.email.refuses = lambda _: False
    fleet.close_hour(0)
    assert [notification.subject.workload for notification in fleet.email.notifications] == [
        f"job-{index:02}" for index in range(10, 14)
    ]


def test_statuses_that_alertmanager_would_not_retry_are_refusals() -> None:
    refused = [status for status in range(200, 600) if is_refusal(status)]
    assert refused == [status for status in range(400, 500) if status not in (408, 429)]


def change(fleet: Fleet, number: int, *idle_workloads: str) -> None:
    """Publish and close an hour in which these workloads are idle; the receiver may fail."""
    fleet.publish(
        number, pod(name="busy", gpus=8, use="1"), *(pod(name=name, gpus=8, use="0") for name in idle_workloads)
    )
    with contextlib.suppress(SourceError):
        fleet.close_hour(number)


def test_stale_notifications_of_an_outage_are_a_note_in_one_message(sqlite_table: SqliteTable) -> None:
    """In 14 days an alert fires and resolves once a day: 28 notifications, none of which matters afterwards."""
    fleet = Fleet(sqlite_table, settings_with_rules(IDLE))
    fleet.email.fails = True
    for day in range(14):
        change(fleet, 24 * day, "train")
        change(fleet, 24 * day + 1)
    (group,) = fleet.alert_states.load("demo").groups
    assert len(group.outbox) == 28
    assert group.failed_since == (("email", START + timedelta(hours=1, minutes=1)),)
    fleet.email.fails = False
    change(fleet, 24 * 14)

    ((message,),) = fleet.email.messages
    assert (message.event, message.hour) == ("resolved", START + timedelta(days=13, hours=1))
    assert message.note == (
        f"messages to this receiver failed from {START:%Y-%m-%d}T01:01:00Z on. 27 older notifications are left out, "
        "because the alerts have resolved or were notified again; the alert history has them"
    )
    assert message.note in json.dumps(slack_message([message]))
    history = fleet.history.between("demo", START, START + timedelta(days=15))
    assert [notification.event for notification in history] == ["firing", "resolved"] * 14
    assert {notification.note for notification in history} == {""}
    (group,) = fleet.alert_states.load("demo").groups
    assert (group.outbox, group.failed_since) == ((), ())
    fleet.close_hour(24 * 14)
    assert len(fleet.email.messages) == 1


def test_current_notifications_after_an_outage_arrive_in_order(sqlite_table: SqliteTable) -> None:
    """What the receiver knows to fire is resolved there; what fired and resolved since is left out."""
    fleet = Fleet(sqlite_table, settings_with_rules(IDLE))
    change(fleet, 0, "known")
    assert fleet.email.take() == ["firing idle-workload research known"]
    fleet.email.fails = True
    change(fleet, 1, "stays")
    change(fleet, 2, "stays", "passes")
    change(fleet, 3, "stays")
    fleet.email.fails = False
    change(fleet, 4, "stays", "new")

    (message,) = fleet.email.messages
    assert [describe(notification) for notification in message] == [
        "resolved idle-workload research known",
        "firing idle-workload research stays",
        "firing idle-workload research new",
    ]
    assert ["2 older notifications are left out" in notification.note for notification in message] == [
        True,
        False,
        False,
    ]


def test_alert_that_fires_through_an_outage_is_notified_once(sqlite_table: SqliteTable) -> None:
    """A repetition supersedes the first notification and earlier repetitions."""
    fleet = Fleet(sqlite_table, settings_with_rules(IDLE.replace("repeat_hours: 0", "repeat_hours: 24")))
    fleet.email.fails = True
    for day in range(4):
        change(fleet, 24 * day, "train")
        with contextlib.suppress(SourceError):
            fleet.tick(24 * day + 1)
    fleet.email.fails = False
    assert fleet.tick(24 * 3 + 2) == ["repeat idle-workload research train"]


def test_receiver_that_learns_of_alerts_elsewhere_gets_every_end(sqlite_table: SqliteTable) -> None:
    """Alertmanager gets all firing alerts on every tick. It must learn when they end."""
    fleet = Fleet(sqlite_table, settings_with_rules(IDLE))
    fleet.email.needs_resend = True
    fleet.email.fails = True
    change(fleet, 0, "train")
    change(fleet, 1)
    fleet.email.fails = False
    change(fleet, 2, "other")
    assert fleet.email.take() == ["resolved idle-workload research train", "firing idle-workload research other"]


def test_notifications_that_wait_without_an_outage_are_all_sent(sqlite_table: SqliteTable) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules(IDLE))
    for number in range(4):
        change(fleet, number, *["train"] * (number % 2 == 0))
    assert fleet.email.take() == ["firing idle-workload research train", "resolved idle-workload research train"] * 2


@pytest.mark.parametrize("crash", ["before the message", "after the message"])
def test_crash_after_an_outage_repeats_at_most_the_message(sqlite_table: SqliteTable, crash: str) -> None:
    fleet = Fleet(sqlite_table, settings_with_rules(IDLE))
    fleet.email.fails = True
    for number in range(4):
        change(fleet, number, *["train"] * (number % 2 == 0))
    fleet.email.fails = False
    send = fleet.email.send

    def crashing_send(notifications: Sequence[Notification]) -> None:
        if crash == "after the message":
            send(notifications)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(fleet.email, "send", crashing_send)
        change(fleet, 4)
    fleet.now += timedelta(minutes=1)
    fleet.close_hour(4)
    events = ["resolved idle-workload research train"] * (2 if crash == "after the message" else 1)
    assert fleet.email.take() == events
