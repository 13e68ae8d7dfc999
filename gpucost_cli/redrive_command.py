"""`gpucost redrive`: what nobody could handle, sent again after the fix."""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpucost.core.errors import MessageError
from gpucost.runtime.messages import (
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
from gpucost_cli.options import settings_store, stack_option

if TYPE_CHECKING:
    from gpucost.runtime.messaging import AwsBus

HIDDEN_SECONDS = 60
"""How long a letter that is looked at is hidden from others, where the command ends before it can give it back."""
LOOK_SECONDS = 1
"""A look of no length asks only some of the queue's servers, and may find nothing where there is something."""
BATCH = 10
"""SQS' own limit."""
NO_REASON = "the function failed each time; its log says why"
Letter = HoursDue | HoursToRestate | HourClosed | Tick | ScheduledTick | ExternalAlerts


class Driven(NamedTuple):
    """What became of the dead letters, or would."""

    sent: int
    dropped: int
    """Deleted without being sent: the schedule's next call does the same work."""
    kept: int
    """They fit no message."""


@click.command()
@stack_option
@click.option("--dry-run", is_flag=True, help="only show what waits, and why")
def redrive(stack: str, *, dry_run: bool) -> None:
    """Send dead letters to where they came from. What fits no message stays, and is shown with its reason.

    A schedule's own call is dropped: the next one does its work.
    """
    from gpucost.runtime import aws
    from gpucost_cli import deployment

    found = deployment.find(stack)
    version = settings_store(stack).current().version
    done = drive(aws.client("sqs"), found.dead_letter_queue_url, found.bus(), settings_version=version, dry_run=dry_run)
    would = "would be" if dry_run else "were"
    click.echo(
        f"{done.sent} {would} sent again, {done.dropped} {would} dropped, {done.kept} stay among the dead letters"
    )


def drive(sqs: Any, queue: str, bus: "AwsBus", *, settings_version: int, dry_run: bool) -> Driven:
    """Send what can be read again, then delete it; what stays can be seen by others at once.

    Hours that are due go under the settings in force, as the next tick would send them: these may be what was mended.

    Raises:
        SourceError: a queue or the topic failed; what was sent and not yet deleted is sent twice, which is harmless.
    """
    sent = dropped = kept = 0
    with _given_back(sqs, queue) as held:
        for letter in _waiting(sqs, queue, held):
            reason = letter.get("MessageAttributes", {}).get("reason", {}).get("StringValue", NO_REASON)
            try:
                readable = read_letter(letter["Body"])
            except MessageError as error:
                kept += 1
                click.echo(f"stays: {error} (put aside because: {reason})", err=True)
                continue
            is_made_up_for = isinstance(readable, ScheduledTick)
            sent, dropped = sent + (not is_made_up_for), dropped + is_made_up_for
            click.echo(f"{_named(readable)}: {reason}", err=True)
            if not dry_run:
                _send(bus, readable, settings_version)
                sqs.delete_message(QueueUrl=queue, ReceiptHandle=letter["ReceiptHandle"])
                del held[letter["MessageId"]]
    return Driven(sent, dropped, kept)


def read_letter(body: str) -> Letter:
    """What a dead letter is about: a message as it was sent, or the record that SNS or Lambda made of it.

    Raises:
        MessageError: it fits no message.
    """
    try:
        return _read(body)
    except RecursionError:
        raise MessageError("not a message of this product: nested too deeply") from None


def _read(body: object) -> Letter:
    try:
        document = json.loads(body) if isinstance(body, str) else None
    except ValueError:
        document = None
    if not isinstance(body, str) or not isinstance(document, dict):
        raise MessageError("not a message of this product: not a JSON object")
    if "requestPayload" in document:  # Lambda's own record of an event that failed each time
        return _read(json.dumps(document["requestPayload"]))
    if "Records" in document:
        match document["Records"]:
            case [{"Sns": {"Message": message}}]:
                return _read(message)
        raise MessageError("not a message of this product: its records are not one notification of SNS")
    if document.get("Type") == "Notification":
        return _read(document.get("Message"))
    if "scheduled_time" in document and "kind" not in document:
        return read_message(ScheduledTick, body)
    if document.get("kind") in ("hour-closed", "tick", "amp-alerts"):
        return read_alert_input(body)
    return read_work(body)


@contextmanager
def _given_back(sqs: Any, queue: str) -> Iterator[dict[str, str]]:
    """Receipts of letters by their ids: those still in it at the end can be received again at once, by anybody."""
    from botocore.exceptions import BotoCoreError, ClientError

    held: dict[str, str] = {}
    try:
        yield held
    finally:
        receipts = list(held.values())
        for at in range(0, len(receipts), BATCH):
            entries = [
                {"Id": str(i), "ReceiptHandle": receipt, "VisibilityTimeout": 0}
                for i, receipt in enumerate(receipts[at : at + BATCH])
            ]
            with suppress(BotoCoreError, ClientError):  # it comes back by itself when its time is over
                sqs.change_message_visibility_batch(QueueUrl=queue, Entries=entries)


def _waiting(sqs: Any, queue: str, held: dict[str, str]) -> Iterator[dict[str, Any]]:
    """Every letter once; its receipt is put among those that are held."""
    seen: set[str] = set()
    while True:
        answer = sqs.receive_message(
            QueueUrl=queue,
            MaxNumberOfMessages=BATCH,
            VisibilityTimeout=HIDDEN_SECONDS,
            WaitTimeSeconds=LOOK_SECONDS,
            MessageAttributeNames=["All"],
        )
        letters = answer.get("Messages", [])
        held.update((one["MessageId"], one["ReceiptHandle"]) for one in letters)
        fresh = [one for one in letters if one["MessageId"] not in seen]
        if not fresh:
            return
        seen.update(one["MessageId"] for one in fresh)
        yield from fresh


def _send(bus: "AwsBus", letter: Letter, settings_version: int) -> None:
    if isinstance(letter, HoursDue):
        bus.send_due([letter.model_copy(update={"force": True, "settings_version": settings_version})])
    elif isinstance(letter, HoursToRestate):
        bus.send_due([letter])
    elif isinstance(letter, HourClosed | Tick | ExternalAlerts):
        bus.publish(letter)


def _named(letter: Letter) -> str:
    if isinstance(letter, HoursDue | HoursToRestate):
        return f"{letter.kind} {letter.cluster} {letter.first_hour:%Y-%m-%dT%HZ}, {letter.hours} h"
    if isinstance(letter, HourClosed):
        return f"{letter.kind} {letter.cluster} {letter.hour:%Y-%m-%dT%HZ}"
    if isinstance(letter, ExternalAlerts):
        return f"{letter.kind} {letter.correlation_id}"
    if isinstance(letter, ScheduledTick):
        return f"the schedule's call of {letter.scheduled_time:%Y-%m-%dT%H:%MZ}, dropped as the next one does its work"
    return f"tick {letter.scheduled_time:%Y-%m-%dT%H:%MZ}"
