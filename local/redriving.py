"""`gpucost redrive`: what nobody could handle, sent again after the fix."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from gpucost.errors import MessageError
from gpucost.messages import (
    ExternalAlerts,
    HourClosed,
    HoursDue,
    HoursToRestate,
    ScheduledTick,
    Tick,
    read_alert_input,
    read_message,
    read_work,
)
from local.options import settings_store, stack_option

if TYPE_CHECKING:
    from gpucost.adapters.messaging import AwsBus

HIDDEN_SECONDS = 60
"""How long a letter that is looked at is hidden from others, this command itself included."""
NO_REASON = "the function failed each time; its log says why"
Letter = HoursDue | HoursToRestate | HourClosed | Tick | ScheduledTick | ExternalAlerts


@click.command()
@stack_option
@click.option("--dry-run", is_flag=True, help="only show what waits, and why")
def redrive(stack: str, *, dry_run: bool) -> None:
    """Send dead letters to where they came from. What fits no message stays, and is shown with its reason."""
    from gpucost.adapters import aws
    from local import deployment

    found = deployment.find(stack)
    version = settings_store(stack).current().version
    bus = found.bus()
    sent, kept = drive(aws.client("sqs"), found.dead_letter_queue_url, bus, settings_version=version, dry_run=dry_run)
    click.echo(f"{sent} {'would be sent' if dry_run else 'were sent'} again, {kept} stay among the dead letters")


def drive(sqs: Any, queue: str, bus: "AwsBus", *, settings_version: int, dry_run: bool) -> tuple[int, int]:
    """Send what can be read again, then delete it; returns how many were sent and how many stay.

    Hours that are due go under the settings in force, as the next tick would send them: these may be what was mended.

    Raises:
        SourceError: a queue or the topic failed; what was sent and not yet deleted is sent twice, which is harmless.
    """
    sent = kept = 0
    for letter in _waiting(sqs, queue):
        reason = letter.get("MessageAttributes", {}).get("reason", {}).get("StringValue", NO_REASON)
        try:
            readable = read_letter(letter["Body"])
        except MessageError as error:
            kept += 1
            click.echo(f"stays: {error} (put aside because: {reason})", err=True)
            continue
        sent += 1
        click.echo(f"{_named(readable)}: {reason}", err=True)
        if not dry_run:
            _send(bus, readable, settings_version)
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=letter["ReceiptHandle"])
    return sent, kept


def read_letter(body: str) -> Letter:
    """What a dead letter is about: a message as it was sent, or the record that SNS or Lambda made of it.

    Raises:
        MessageError: it fits no message.
    """
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        raise MessageError("not a message of this product: not a JSON object")
    if "requestPayload" in document:  # Lambda's own record of an event that failed each time
        return read_letter(json.dumps(document["requestPayload"]))
    if "Records" in document:
        return read_letter(document["Records"][0]["Sns"]["Message"])
    if document.get("Type") == "Notification":
        return read_letter(document["Message"])
    if "scheduled_time" in document and "kind" not in document:
        return read_message(ScheduledTick, body)
    if document.get("kind") in {"hour-closed", "tick", "amp-alerts"}:
        return read_alert_input(body)
    return read_work(body)


def _waiting(sqs: Any, queue: str) -> Iterator[dict[str, Any]]:
    seen: set[str] = set()
    while True:
        answer = sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, VisibilityTimeout=HIDDEN_SECONDS, MessageAttributeNames=["All"]
        )
        letters = [one for one in answer.get("Messages", []) if one["MessageId"] not in seen]
        if not letters:
            return
        seen.update(one["MessageId"] for one in letters)
        yield from letters


def _send(bus: "AwsBus", letter: Letter, settings_version: int) -> None:
    if isinstance(letter, HoursDue):
        bus.send_due([letter.model_copy(update={"force": True, "settings_version": settings_version})])
    elif isinstance(letter, HoursToRestate):
        bus.send_due([letter])
    elif isinstance(letter, HourClosed | Tick | ExternalAlerts):
        bus.publish(letter)
    # A tick of the schedule is made up for by the next one, which sends whatever is due.


def _named(letter: Letter) -> str:
    if isinstance(letter, HoursDue | HoursToRestate):
        return f"{letter.kind} {letter.cluster} {letter.first_hour:%Y-%m-%dT%HZ}, {letter.hours} h"
    if isinstance(letter, HourClosed):
        return f"{letter.kind} {letter.cluster} {letter.hour:%Y-%m-%dT%HZ}"
    if isinstance(letter, ExternalAlerts):
        return f"{letter.kind} {letter.correlation_id}"
    return f"tick {letter.scheduled_time:%Y-%m-%dT%H:%MZ}"
