"""Sends messages to the queues and topics between the functions."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gpucost.core.errors import SourceError
from gpucost.runtime.messages import (
    AlertTick,
    AttributionOrigin,
    HourPublished,
    HoursDue,
    HoursToRestate,
    UncheckedAlerts,
)

SQS_BATCH_SIZE = 10
"""Limit of SQS."""
MAX_SEND_ATTEMPTS = 3
"""How often a message is sent that the queue does not accept."""
BACKLOG_ATTRIBUTES = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
"""Messages that wait, and messages that were received and are not finished."""
MAX_REASON_LENGTH = 1_000
MAX_BODY_LENGTH = 200_000


class MessageBus:
    """SQS and SNS.

    Args:
        hours_queue_url: of the schedule's hours.
        backfill_queue_url: of backfilled hours.
        dead_letter_queue_url: of messages that cannot be handled.
        events_topic_arn: of events for the alert function.
        alerts_topic_arn: of AMP's alerts for the alert function.
        client: makes the client of a service.
    """

    def __init__(
        self,
        *,
        hours_queue_url: str,
        backfill_queue_url: str,
        dead_letter_queue_url: str,
        events_topic_arn: str,
        alerts_topic_arn: str = "",
        client: Callable[[str], Any],
    ) -> None:
        self._client = client
        self._queues: dict[AttributionOrigin, str] = {"schedule": hours_queue_url, "backfill": backfill_queue_url}
        self._dead_letter_queue_url = dead_letter_queue_url
        self._events_topic_arn = events_topic_arn
        self._alerts_topic_arn = alerts_topic_arn

    def send_due(self, messages: Sequence[HoursDue | HoursToRestate]) -> None:
        """Send each message to the queue of its origin.

        Raises:
            SourceError: the queue did not accept all of them; sending all again is safe.
        """
        for origin, url in self._queues.items():
            of_origin = [message for message in messages if message.origin == origin]
            for start in range(0, len(of_origin), SQS_BATCH_SIZE):
                entries = [
                    {"Id": str(i), "MessageBody": message.model_dump_json()}
                    for i, message in enumerate(of_origin[start : start + SQS_BATCH_SIZE])
                ]
                _send(self._client("sqs"), url, entries)

    def backlog(self, origin: AttributionOrigin) -> int:
        """Return about how many messages of an origin's queue wait or are being processed.

        Raises:
            SourceError: the queue could not be read.
        """
        with _map_aws_errors("count messages"):
            answer = self._client("sqs").get_queue_attributes(
                QueueUrl=self._queues[origin], AttributeNames=BACKLOG_ATTRIBUTES
            )
        return sum(int(count) for count in answer["Attributes"].values())

    def publish(self, message: HourPublished | AlertTick | UncheckedAlerts) -> None:
        """Publish a message on its topic.

        Raises:
            SourceError: the topic did not accept it.
        """
        kind = {"kind": {"DataType": "String", "StringValue": message.kind}}
        with _map_aws_errors(f"publish {message.kind}"):
            self._client("sns").publish(
                TopicArn=self._alerts_topic_arn if isinstance(message, UncheckedAlerts) else self._events_topic_arn,
                Message=message.model_dump_json(),
                MessageAttributes=kind,
            )

    def send_to_dead_letter_queue(self, body: str, reason: str) -> None:
        """Send a message to the dead-letter queue, with the reason as its attribute `reason`.

        Raises:
            SourceError: the queue did not accept it.
        """
        printable = (
            "".join(letter if letter.isprintable() else " " for letter in reason)[:MAX_REASON_LENGTH] or "unknown"
        )
        with _map_aws_errors("send a message to the dead-letter queue"):
            self._client("sqs").send_message(
                QueueUrl=self._dead_letter_queue_url,
                MessageBody=body[:MAX_BODY_LENGTH] or "(empty)",
                MessageAttributes={"reason": {"DataType": "String", "StringValue": printable}},
            )


def _send(sqs: Any, url: str, entries: Sequence[Mapping[str, str]]) -> None:
    """Send a batch, and repeat the messages that the queue did not accept. botocore repeats only whole calls."""
    failed: list[Any] = []
    for _ in range(MAX_SEND_ATTEMPTS):
        with _map_aws_errors("send messages"):
            answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
        failed = answer.get("Failed", [])
        failed_ids = {failure["Id"] for failure in failed}
        entries = [entry for entry in entries if entry["Id"] in failed_ids]
        if not entries:
            return
    raise SourceError(f"the queue did not accept {len(entries)} messages ({failed[0].get('Code', 'unknown')})")


@contextmanager
def _map_aws_errors(action: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        raise SourceError(f"could not {action}: {error.response.get('Error', {}).get('Code', 'unknown')}") from error
    except BotoCoreError as error:
        raise SourceError(f"could not {action}: {type(error).__name__}") from error


def count_waiting_messages(queue_url: str, *, client: Callable[[str], Any]) -> int | None:
    """Return about how many messages wait in a queue; None if the queue cannot be read."""
    if not queue_url:
        return None
    try:
        with _map_aws_errors("count messages"):
            answer = client("sqs").get_queue_attributes(
                QueueUrl=queue_url, AttributeNames=["ApproximateNumberOfMessages"]
            )
    except SourceError:
        return None
    return int(answer["Attributes"]["ApproximateNumberOfMessages"])
