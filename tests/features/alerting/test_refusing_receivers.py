"""A receiver that refuses a message, or fails for days, keeps no other message from anybody."""

import pytest

from gpucost.core.errors import SourceError
from gpucost.features.alerting.refusals import is_refusal
from gpucost.runtime.messages import NotificationSetAside
from tests.conftest import DynamoTable
from tests.features.alerting.fleet import Fleet, pod, settings_with_rules

IDLE = "rule: idle-workload, gpus: 1, utilization_percent: 10, for_hours: 1, keep_firing_hours: 1, repeat_hours: 0"


def idle(fleet: Fleet, number: int, workloads: range) -> None:
    """Publish an hour in which some workloads of one unit hold eight idle GPUs each."""
    lines = [pod(name=f"job-{index:02}", gpus=8, use="0") for index in workloads]
    fleet.publish(number, *(lines or [pod(name="busy", gpus=8, use="1")]))


@pytest.mark.parametrize("poison", [0, 4, 11])
def test_refused_notification_is_set_aside_and_the_others_arrive_in_order(table: DynamoTable, poison: int) -> None:
    fleet = Fleet(table, settings_with_rules(IDLE))
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


def test_receiver_that_refuses_everything_is_given_up_after_some(table: DynamoTable) -> None:
    """A revoked webhook: ten notifications are set aside in a delivery, the rest waits for the next one."""
    fleet = Fleet(table, settings_with_rules(IDLE))
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
