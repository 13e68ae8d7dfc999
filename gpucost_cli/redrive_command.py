"""`gpucost hours redrive`: send the messages of the dead-letter queue again, after the cause is fixed."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from gpucost.core.errors import InvalidMessageError
from gpucost.runtime.messages import (
    AlertTick,
    HourPublished,
    HoursDue,
    HoursToRestate,
    NotificationSetAside,
    ScheduledTick,
    UncheckedAlerts,
    read_alert_input,
    read_attribute_input,
    read_external_alerts,
    read_message,
)
from gpucost_cli.options import format_option, stack_option

if TYPE_CHECKING:
    from gpucost.runtime.messages import MessageBus

VISIBILITY_TIMEOUT_SECONDS = 60
"""How long a received message stays invisible to others if the command is killed before it releases the message."""
POLL_SECONDS = 1
"""Long polling: with a wait of zero SQS asks only some of its servers and may miss messages."""
MAX_MESSAGES_PER_RECEIVE = 10
"""Limit of SQS."""
NO_REASON = "the function failed each time; see its log"
DeadLetterMessage = (
    HoursDue | HoursToRestate | HourPublished | AlertTick | ScheduledTick | UncheckedAlerts | NotificationSetAside
)
Action = Literal["sent", "dropped", "kept"]
ReportMessage = Callable[[Action, str, str], None]
"""Called for each message with what happens to it, what it is (or why it cannot be read), and why it failed."""


class RedriveResult(NamedTuple):
    """How many messages were sent, dropped and kept, or would be."""

    sent: int
    dropped: int
    """Deleted without being sent: the schedule's next invocation does the same work, or the history has the alert."""
    kept: int
    """Left in the queue, because they cannot be read."""


@click.command()
@stack_option
@click.option("--dry-run", is_flag=True, help="List the messages and why they failed, and change nothing.")
@format_option("table", "json")
def redrive(stack: str, output_format: str, *, dry_run: bool) -> None:
    """Send the messages of the dead-letter queue to where they came from.

    A message that cannot be read stays in the queue, and is listed with its reason. A failed invocation of the schedule
    is dropped, because the next one does its work. So is a notification that could not be sent: the history of
    `/v1/alerts` lists it, and an alert that still fires is notified again.

    \b
    Example:
      gpucost hours redrive --stack gpucost-prod --dry-run
    """
    from gpucost_cli import deployment

    messages: list[dict[str, str]] = []

    def add_row(action: Action, message: str, reason: str) -> None:
        messages.append({"action": action, "message": message, "reason": reason})

    report = add_row if output_format == "json" else print_message
    deployed = deployment.find_deployment(stack)
    container = deployed.container()
    version = container.settings_store.current().version
    result = redrive_messages(
        container.client("sqs"),
        deployed.dead_letter_queue_url,
        container.bus,
        alerts_topic=deployed.alerts_topic_arn,
        settings_version=version,
        now=container.clock(),
        dry_run=dry_run,
        report=report,
    )
    if output_format == "json":
        document = {"dry_run": dry_run, **result._asdict(), "messages": messages}
        click.echo(json.dumps(document, indent=2, ensure_ascii=False))
        return
    would = "would be" if dry_run else "were"
    click.echo(
        f"{result.sent} {would} sent again, {result.dropped} {would} dropped, "
        f"{result.kept} stay in the dead-letter queue"
    )


def print_message(action: Action, message: str, reason: str) -> None:
    """Print what happens to a message, to standard error."""
    click.echo(f"stays: {message} (failed because: {reason})" if action == "kept" else f"{message}: {reason}", err=True)


def redrive_messages(
    sqs: Any,
    queue: str,
    bus: "MessageBus",
    *,
    alerts_topic: str,
    settings_version: int,
    now: datetime,
    dry_run: bool,
    report: ReportMessage = print_message,
) -> RedriveResult:
    """Send each message of the dead-letter queue again, then delete it. Messages that stay are released at the end.

    Due hours are sent with the current settings version, as the next tick would send them, because new settings may be
    the fix.

    Args:
        sqs: a client of SQS.
        queue: the dead-letter queue's URL.
        bus: where the messages go.
        alerts_topic: ARN of the topic from which only alerts are sent again.
        settings_version: the current version of the settings.
        now: the time now.
        dry_run: only report.
        report: called for each message.

    Raises:
        SourceError: a queue or the topic failed. A message that was sent and not yet deleted is sent twice, which is
            harmless.
    """
    counts: Counter[Action] = Counter()
    with _released_at_end(sqs, queue) as receipts:
        for received in _receive_messages(sqs, queue, receipts):
            reason = received.get("MessageAttributes", {}).get("reason", {}).get("StringValue", NO_REASON)
            try:
                letter = read_dead_letter(received["Body"], now, alerts_topic)
            except InvalidMessageError as error:
                counts["kept"] += 1
                report("kept", str(error), reason)
                continue
            action: Action = "dropped" if isinstance(letter, ScheduledTick | NotificationSetAside) else "sent"
            counts[action] += 1
            report(action, _describe_letter(letter), reason)
            if not dry_run:
                _resend(bus, letter, settings_version)
                sqs.delete_message(QueueUrl=queue, ReceiptHandle=received["ReceiptHandle"])
                del receipts[received["MessageId"]]
    return RedriveResult(counts["sent"], counts["dropped"], counts["kept"])


def read_dead_letter(body: str, now: datetime, alerts_topic: str) -> DeadLetterMessage:
    """Read a dead letter: a message as it was sent, or as SNS or Lambda wrapped it.

    Args:
        body: the dead letter.
        now: the time now.
        alerts_topic: ARN of the topic on which an alert manager can publish any text. What comes from there is only
            read as alerts, because sending it again as anything else would let it pass as a message of the stack.

    Raises:
        InvalidMessageError: it is no message of this product, or it came through the wrong topic.
    """
    try:
        return _read_message(body, now, alerts_topic, None)
    except RecursionError:
        raise InvalidMessageError("not a gpucost message: nested too deeply") from None


def _read_message(body: object, now: datetime, alerts_topic: str, topic: object) -> DeadLetterMessage:
    """Read a message within its envelopes. `topic` is that of the outermost one, which SNS or the function wrote."""
    try:
        document = json.loads(body) if isinstance(body, str) else None
    except ValueError:
        document = None
    if not isinstance(body, str) or not isinstance(document, dict):
        raise InvalidMessageError("not a gpucost message: not a JSON object")
    if "requestPayload" in document:  # Lambda's record of an event that failed each time
        return _read_message(json.dumps(document["requestPayload"]), now, alerts_topic, topic)
    if "Records" in document:
        match document["Records"]:
            case [{"Sns": {"Message": message} as notification}]:
                return _read_message(message, now, alerts_topic, topic or notification.get("TopicArn"))
        raise InvalidMessageError("not a gpucost message: its records are not one notification of SNS")
    if document.get("Type") == "Notification":
        return _read_message(document.get("Message"), now, alerts_topic, topic or document.get("TopicArn"))
    if topic == alerts_topic or document.get("kind") == "amp-alerts":
        return read_external_alerts(body, now)
    if "scheduled_time" in document and "kind" not in document:
        return read_message(ScheduledTick, body, now)
    if document.get("kind") in ("hour-published", "tick"):
        return read_alert_input(body, now)
    if document.get("kind") == "notification-set-aside":
        return read_message(NotificationSetAside, body, now)
    return read_attribute_input(body, now)


@contextmanager
def _released_at_end(sqs: Any, queue: str) -> Iterator[dict[str, str]]:
    """Collect receipts by message id; at the end, make the messages that are still in it visible to others again."""
    from botocore.exceptions import BotoCoreError, ClientError

    receipts: dict[str, str] = {}
    try:
        yield receipts
    finally:
        remaining = list(receipts.values())
        for start in range(0, len(remaining), MAX_MESSAGES_PER_RECEIVE):
            entries = [
                {"Id": str(i), "ReceiptHandle": receipt, "VisibilityTimeout": 0}
                for i, receipt in enumerate(remaining[start : start + MAX_MESSAGES_PER_RECEIVE])
            ]
            with suppress(BotoCoreError, ClientError):  # it becomes visible by itself after HIDDEN_SECONDS
                sqs.change_message_visibility_batch(QueueUrl=queue, Entries=entries)


def _receive_messages(sqs: Any, queue: str, receipts: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Receive every message once, and add its receipt to the receipts."""
    seen: set[str] = set()
    while True:
        answer = sqs.receive_message(
            QueueUrl=queue,
            MaxNumberOfMessages=MAX_MESSAGES_PER_RECEIVE,
            VisibilityTimeout=VISIBILITY_TIMEOUT_SECONDS,
            WaitTimeSeconds=POLL_SECONDS,
            MessageAttributeNames=["All"],
        )
        received = answer.get("Messages", [])
        receipts.update((message["MessageId"], message["ReceiptHandle"]) for message in received)
        new = [message for message in received if message["MessageId"] not in seen]
        if not new:
            return
        seen.update(message["MessageId"] for message in new)
        yield from new


def _resend(bus: "MessageBus", letter: DeadLetterMessage, settings_version: int) -> None:
    if isinstance(letter, HoursDue):
        bus.send_due([letter.model_copy(update={"force": True, "settings_version": settings_version})])
    elif isinstance(letter, HoursToRestate):
        bus.send_due([letter])
    elif isinstance(letter, HourPublished | AlertTick | UncheckedAlerts):
        bus.publish(letter)


def _describe_letter(letter: DeadLetterMessage) -> str:
    if isinstance(letter, HoursDue | HoursToRestate):
        return f"{letter.kind} {letter.cluster} {letter.first_hour:%Y-%m-%dT%HZ}, {letter.hours} h"
    if isinstance(letter, HourPublished):
        return f"{letter.kind} {letter.cluster} {letter.hour:%Y-%m-%dT%HZ}"
    if isinstance(letter, UncheckedAlerts):
        return f"{letter.kind}, {len(letter.alerts)} alerts"
    if isinstance(letter, NotificationSetAside):
        return f"notification {letter.notification_id} to {letter.receiver}, dropped: the history has it"
    if isinstance(letter, ScheduledTick):
        return f"the schedule's call of {letter.scheduled_time:%Y-%m-%dT%H:%MZ}, dropped: the next one does its work"
    return f"tick {letter.scheduled_time:%Y-%m-%dT%H:%MZ}"
