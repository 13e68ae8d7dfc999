"""Dead letters return to their queues and topics, on moto; unreadable messages stay."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from gpucost.core.errors import InvalidMessageError
from gpucost.runtime.aws import AwsClients
from gpucost.runtime.messages import (
    AlertTick,
    HourPublished,
    HoursDue,
    HoursToRestate,
    MessageBus,
    NotificationSetAside,
    ScheduledTick,
    UncheckedAlerts,
)
from gpucost_cli.redrive_command import RedriveResult, read_dead_letter, redrive_messages
from gpucost_devstack.aws import client_environment, local_client, running_aws

HOUR = datetime(2026, 11, 19, 10, tzinfo=UTC)
NOW = HOUR + timedelta(days=1)
DUE = HoursDue(cluster="c", first_hour=HOUR, hours=3, settings_version=1, origin="schedule", correlation_id="w")
LATE = DUE.model_copy(update={"origin": "backfill"})
RESTATE = HoursToRestate(cluster="c", first_hour=HOUR, hours=2, reason="deal", correlation_id="w")
CLOSED = HourPublished(
    cluster="c",
    hour=HOUR,
    status="complete",
    record_version=2,
    settings_version=1,
    origin="schedule",
    correlation_id="w",
)
TICK = AlertTick(scheduled_time=HOUR, clusters=(), correlation_id="w")
SET_ASIDE = NotificationSetAside(receiver="email", notification_id="demo/waste", notification={})
EVENTS, ALERTS = (
    f"arn:aws:sns:eu-central-1:123456789012:gpucost-{name}-1" for name in ("InternalEventsTopic", "EventsTopic")
)
SCHEDULED = '{"version": 1, "scheduled_time": "2026-11-19T10:05:00Z"}'
ODD = (
    "",
    "[]",
    "7",
    "{}",
    "[" * 100_000,
    '{"requestPayload":' * 20_000,
    '"\\ud800"',
    '{"requestPayload": null}',
    '{"kind": []}',
    '{"kind": "tick"}',
    '{"kind": "tick", "x": "\\ud800"}',
    '{"Type": "Notification"}',
    '{"Type": "Notification", "Message": 5}',
    '{"Type": "Notification", "Message": "{\\"\\ud800\\": 1}"}',
    '{"Records": []}',
    '{"Records": 5}',
    '{"Records": [{"s3": {}}]}',
    '{"Records": [{"Sns": {"Message": [1]}}]}',
    '{"Records": [{"Sns": {"Message": "{}"}}, {"Sns": {"Message": "{}"}}]}',
    '{"version": 1, "scheduled_time": "9999-12-31T23:00:00-05:00"}',
)


class Queues:
    def __init__(self, endpoint: str) -> None:
        self.sqs, sns = local_client("sqs", endpoint), local_client("sns", endpoint)
        suffix = uuid4()  # moto's servers in a process share their queues
        names = ("hours", "backfill", "dead", "subscribed")
        self.urls = {name: self.sqs.create_queue(QueueName=f"{name}-{suffix}")["QueueUrl"] for name in names}
        self.endpoint = endpoint
        self.topic = topic = sns.create_topic(Name=f"events-{suffix}")["TopicArn"]
        arn = self.sqs.get_queue_attributes(QueueUrl=self.urls["subscribed"], AttributeNames=["QueueArn"])["Attributes"]
        sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn["QueueArn"])
        self.bus = MessageBus(
            hours_queue_url=self.urls["hours"],
            backfill_queue_url=self.urls["backfill"],
            dead_letter_queue_url=self.urls["dead"],
            events_topic_arn=topic,
            client=AwsClients(),
        )

    def letters(self, name: str) -> list[Any]:
        messages: list[Any] = []
        while answer := self.sqs.receive_message(QueueUrl=self.urls[name], MaxNumberOfMessages=10).get("Messages"):
            messages += [json.loads(message["Body"]) for message in answer]
        return messages

    def left(self) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        counts = self.sqs.get_queue_attributes(QueueUrl=self.urls["dead"], AttributeNames=names)["Attributes"]
        return sum(map(int, counts.values()))


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Iterator[Queues]:
    with running_aws() as endpoint:
        for name, value in client_environment(endpoint).items():
            monkeypatch.setenv(name, value)
        yield Queues(endpoint)


@pytest.mark.tools
def test_dead_letters_return_to_their_queue_or_topic(queues: Queues, capsys: pytest.CaptureFixture[str]) -> None:
    for message in (DUE, LATE, RESTATE, CLOSED, TICK):
        queues.bus.send_to_dead_letter_queue(message.model_dump_json(), "a mistake of ours")
    queues.bus.send_to_dead_letter_queue("{}", "not a valid HoursDue")
    queues.bus.send_to_dead_letter_queue(SCHEDULED, "")
    queues.bus.send_to_dead_letter_queue(SET_ASIDE.model_dump_json(), "OverflowError")
    result = redrive_messages(
        queues.sqs, queues.urls["dead"], queues.bus, alerts_topic=ALERTS, settings_version=4, now=NOW, dry_run=False
    )
    assert result == RedriveResult(5, 2, 1)
    (fresh,) = queues.letters("hours")
    assert HoursDue.model_validate(fresh) == DUE.model_copy(update={"force": True, "settings_version": 4})
    kinds = sorted(letter["kind"] for letter in queues.letters("backfill"))
    assert kinds == ["hours-due", "hours-to-restate"]
    assert sorted(json.loads(notification["Message"])["kind"] for notification in queues.letters("subscribed")) == [
        "hour-published",
        "tick",
    ]
    assert queues.left() == 1
    stderr = capsys.readouterr().err
    assert "the schedule's call of 2026-11-19T10:05Z, dropped: the next one does its work" in stderr
    assert "notification demo/waste to email, dropped: the history has it: OverflowError" in stderr
    assert "hours-due c 2026-11-19T10Z, 3 h: a mistake of ours" in stderr
    assert "stays:" in stderr
    assert "not a valid HoursDue" in stderr


def test_dry_run_sends_nothing(queues: Queues) -> None:
    queues.bus.send_to_dead_letter_queue(DUE.model_dump_json(), "why")
    result = redrive_messages(
        queues.sqs, queues.urls["dead"], queues.bus, alerts_topic=ALERTS, settings_version=4, now=NOW, dry_run=True
    )
    assert result == RedriveResult(1, 0, 0)
    assert queues.letters("hours") == []
    assert queues.left() == 1


def test_dry_run_leaves_messages_visible(queues: Queues) -> None:
    """Both commands of the runbook in succession, with more dead letters than one request returns."""
    for body in (*[DUE.model_dump_json()] * 12, SCHEDULED, "{}"):
        queues.bus.send_to_dead_letter_queue(body, "why")
    for dry_run in (True, True, False):
        done = redrive_messages(
            queues.sqs,
            queues.urls["dead"],
            queues.bus,
            alerts_topic=ALERTS,
            settings_version=4,
            now=NOW,
            dry_run=dry_run,
        )
        assert done == RedriveResult(12, 1, 1)
    assert len(queues.letters("hours")) == 12
    result = redrive_messages(
        queues.sqs, queues.urls["dead"], queues.bus, alerts_topic=ALERTS, settings_version=4, now=NOW, dry_run=False
    )
    assert result == RedriveResult(0, 0, 1)


def test_unreadable_dead_letters_stay_and_delay_no_others(queues: Queues, capsys: pytest.CaptureFixture[str]) -> None:
    odd = [body for body in ODD if body]
    for body in odd:
        for message_body in (body, DUE.model_dump_json()):
            queues.sqs.send_message(QueueUrl=queues.urls["dead"], MessageBody=message_body)
    done = redrive_messages(
        queues.sqs, queues.urls["dead"], queues.bus, alerts_topic=ALERTS, settings_version=4, now=NOW, dry_run=False
    )
    assert done == RedriveResult(len(odd), 0, len(odd))
    assert len(queues.letters("hours")) == len(odd)
    assert capsys.readouterr().err.count("stays: not a ") == len(odd)


def test_dead_letter_is_kept_until_it_is_sent(queues: Queues) -> None:
    class Away(MessageBus):
        def send_due(self, messages: Any) -> None:
            raise ConnectionError

    queues.bus.send_to_dead_letter_queue(DUE.model_dump_json(), "why")
    away = Away(
        hours_queue_url="", backfill_queue_url="", dead_letter_queue_url="", events_topic_arn="", client=AwsClients()
    )
    with pytest.raises(ConnectionError):
        redrive_messages(
            queues.sqs, queues.urls["dead"], away, alerts_topic=ALERTS, settings_version=4, now=NOW, dry_run=False
        )
    assert len(queues.letters("dead")) == 1, "not hidden from the next command"


ALERT = UncheckedAlerts(alerts=({"status": "firing"},))


def through(topic: str, body: str, *, by_lambda: bool = False) -> str:
    """A dead letter of a message that was published on a topic, as SNS or Lambda writes it."""
    if by_lambda:
        return json.dumps({"requestPayload": {"Records": [{"Sns": {"TopicArn": topic, "Message": body}}]}})
    return json.dumps({"Type": "Notification", "TopicArn": topic, "Message": body})


@pytest.mark.parametrize("by_lambda", [False, True])
@pytest.mark.parametrize("message", [TICK, CLOSED, DUE, RESTATE, SET_ASIDE], ids=lambda message: message.kind)
def test_message_through_the_topic_of_alerts_is_never_sent_on(message: Any, *, by_lambda: bool) -> None:
    """Whoever edits an alert manager's definition could otherwise send it, with the help of who operates the stack."""
    body = message.model_dump_json()
    with pytest.raises(InvalidMessageError, match="not a valid UncheckedAlerts"):
        read_dead_letter(through(ALERTS, body, by_lambda=by_lambda), NOW, ALERTS)
    disguised = through(EVENTS, body), through(EVENTS, body, by_lambda=True), through(EVENTS, through(ALERTS, body))
    for nested in disguised:
        with pytest.raises(InvalidMessageError, match="not a valid UncheckedAlerts"):
            read_dead_letter(through(ALERTS, nested, by_lambda=by_lambda), NOW, ALERTS)
    assert read_dead_letter(through(EVENTS, body, by_lambda=by_lambda), NOW, ALERTS) == message


def test_alerts_return_to_their_topic(queues: Queues) -> None:
    topic = local_client("sns", queues.endpoint).create_topic(Name=f"alerts-{uuid4()}")["TopicArn"]
    arn = queues.sqs.get_queue_attributes(QueueUrl=queues.urls["hours"], AttributeNames=["QueueArn"])["Attributes"]
    local_client("sns", queues.endpoint).subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn["QueueArn"])
    bus = MessageBus(
        hours_queue_url="",
        backfill_queue_url="",
        dead_letter_queue_url="",
        events_topic_arn=queues.topic,
        alerts_topic_arn=topic,
        client=AwsClients(),
    )
    for body in (
        through(topic, ALERT.model_dump_json()),
        ALERT.model_dump_json(),
        through(topic, TICK.model_dump_json()),
    ):
        queues.sqs.send_message(QueueUrl=queues.urls["dead"], MessageBody=body)
    result = redrive_messages(
        queues.sqs, queues.urls["dead"], bus, alerts_topic=topic, settings_version=4, now=NOW, dry_run=False
    )
    assert result == RedriveResult(2, 0, 1)
    sent = [json.loads(letter["Message"]) for letter in queues.letters("hours")]
    assert sent == [ALERT.model_dump(mode="json")] * 2
    assert queues.letters("subscribed") == []


def test_messages_in_sns_and_lambda_envelopes_are_read() -> None:
    notification = {"Type": "Notification", "Message": CLOSED.model_dump_json()}
    assert read_dead_letter(json.dumps(notification), NOW, ALERTS) == CLOSED
    failed = {"requestContext": {}, "requestPayload": {"Records": [{"Sns": {"Message": TICK.model_dump_json()}}]}}
    assert read_dead_letter(json.dumps(failed), NOW, ALERTS) == TICK
    assert isinstance(
        read_dead_letter(json.dumps({"requestPayload": json.loads(SCHEDULED)}), NOW, ALERTS), ScheduledTick
    )
    for rubbish in ODD:
        with pytest.raises(InvalidMessageError):
            read_dead_letter(rubbish, NOW, ALERTS)
