"""Queues and the topic between the functions; fulfils `ports.Bus`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gpucost.core.errors import SourceError
from gpucost.runtime import aws
from gpucost.runtime.messages import ExternalAlerts, HourClosed, HoursDue, HoursToRestate, Origin, Tick

BATCH = 10
"""SQS' own limit."""
TRIES = 3
"""Of a message that the queue does not take."""
BACKLOG = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
"""What waits, and what somebody has received and not yet finished."""
LONGEST_REASON = 1_000
LONGEST_BODY = 200_000


class MessageBus:
    """SQS and SNS.

    Args:
        hours_queue_url: of the schedule's hours.
        backfill_queue_url: of backfilled hours.
        dead_letter_queue_url: of messages that cannot be handled.
        events_topic_arn: of events for the alert function.
        client: makes the boto3 client of a service.
    """

    def __init__(
        self,
        *,
        hours_queue_url: str,
        backfill_queue_url: str,
        dead_letter_queue_url: str,
        events_topic_arn: str,
        client: Callable[[str], Any] | None = None,
    ) -> None:
        self._client = client or aws.client
        self._queues: dict[Origin, str] = {"schedule": hours_queue_url, "backfill": backfill_queue_url}
        self._dead_letter_queue_url = dead_letter_queue_url
        self._events_topic_arn = events_topic_arn

    def send_due(self, messages: Sequence[HoursDue | HoursToRestate]) -> None:
        """Send work to the queue of its origin.

        Raises:
            SourceError: not all of it was taken; sending all again is safe.
        """
        for origin, url in self._queues.items():
            own = [message for message in messages if message.origin == origin]
            for at in range(0, len(own), BATCH):
                entries = [
                    {"Id": str(i), "MessageBody": message.model_dump_json()}
                    for i, message in enumerate(own[at : at + BATCH])
                ]
                _send(self._client("sqs"), url, entries)

    def backlog(self, origin: Origin) -> int:
        """About how many messages wait in the queue of an origin, or are being worked on.

        Raises:
            SourceError: the queue could not be asked.
        """
        with _aws("count messages"):
            answer = self._client("sqs").get_queue_attributes(QueueUrl=self._queues[origin], AttributeNames=BACKLOG)
        return sum(int(count) for count in answer["Attributes"].values())

    def publish(self, message: HourClosed | Tick | ExternalAlerts) -> None:
        """Tell everybody who listens.

        Raises:
            SourceError: the topic did not take it.
        """
        kind = {"kind": {"DataType": "String", "StringValue": message.kind}}
        with _aws(f"publish {message.kind}"):
            self._client("sns").publish(
                TopicArn=self._events_topic_arn, Message=message.model_dump_json(by_alias=True), MessageAttributes=kind
            )

    def dead_letter(self, body: str, reason: str) -> None:
        """Put aside a message that can never be handled, with the reason as its attribute `reason`.

        Raises:
            SourceError: the queue did not take it.
        """
        told = "".join(letter if letter.isprintable() else " " for letter in reason)[:LONGEST_REASON] or "unknown"
        with _aws("put aside a message"):
            self._client("sqs").send_message(
                QueueUrl=self._dead_letter_queue_url,
                MessageBody=body[:LONGEST_BODY] or "(empty)",
                MessageAttributes={"reason": {"DataType": "String", "StringValue": told}},
            )


def _send(sqs: Any, url: str, entries: Sequence[Mapping[str, str]]) -> None:
    """Send a batch; what the queue does not take is sent again, as botocore does with whole calls only."""
    failed: list[Any] = []
    for _ in range(TRIES):
        with _aws("send work"):
            answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        failed = answer.get("Failed", [])
        left = {one["Id"] for one in failed}
        entries = [entry for entry in entries if entry["Id"] in left]
        if not entries:
            return
    raise SourceError(f"the queue did not take {len(entries)} messages ({failed[0].get('Code', 'unknown')})")


@contextmanager
def _aws(what: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise SourceError(f"could not {what}: {error.response.get('Error', {}).get('Code', 'unknown')}") from error
    except BotoCoreError as error:
        raise SourceError(f"could not {what}: {type(error).__name__}") from error


def waiting_messages(queue_url: str, *, client: Callable[[str], Any] | None = None) -> int | None:
    """About how many messages wait in a queue; None where it cannot be asked."""
    if not queue_url:
        return None
    try:
        with _aws("count messages"):
            answer = (client or aws.client)("sqs").get_queue_attributes(
                QueueUrl=queue_url, AttributeNames=["ApproximateNumberOfMessages"]
            )
    except SourceError:
        return None
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])
