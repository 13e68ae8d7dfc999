"""Versioned messages between functions, and the bus that sends them. `events/` has an example for each trigger.

| message | from → to | carried by |
| --- | --- | --- |
| `ScheduledTick` | EventBridge Scheduler → dispatch | the schedule's input |
| `PricesDue` | EventBridge Scheduler, `gpucost prices refresh` → prices | the schedules' input |
| `ExportDue` | EventBridge Scheduler, `gpucost export` → export | the schedule's input |
| `RecommendationsDue` | EventBridge Scheduler, `gpucost recommendations run` → recommend | the schedule's input |
| `HoursDue` | dispatch, `gpucost backfill` → attribute | SQS `hours` and `backfill` |
| `HoursToRestate` | dispatch, `gpucost hours restate` → attribute | SQS `backfill` |
| `HourPublished` | attribute → alert | SNS `InternalEventsTopic` |
| `AlertTick` | dispatch → alert | SNS `InternalEventsTopic`, distinguished by `kind` |
| `ExternalAlerts` | AMP's alert manager → alert | SNS `EventsTopic` |
| `NotificationSetAside` | alert → no function: it waits for a person | SQS, the dead-letter queue |

Messages are delivered at least once and in any order. Each carries all that its reader needs, so that handling it twice
has the same result.

Whoever may invoke a function, or write to a queue or topic, can send any text. Therefore texts and counts have limits,
and no time may be in the future: a function would work ahead of time, and then do nothing until then.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from gpucost.core.errors import InvalidMessageError, SourceError
from gpucost.core.hour_record import Status
from gpucost.core.hours import HOUR, MAX_YEAR, MIN_YEAR, floor_day, floor_hour, format_timestamp, parse_month

MAX_NAME_LENGTH = 200
"""As in the settings."""
MAX_CLOCK_SKEW = timedelta(minutes=15)
"""How far the clocks of a sender and a function may differ."""
MAX_HOURS_PER_MESSAGE = 24
MAX_DAYS_PER_EXPORT = 31
Model = TypeVar("Model", bound=BaseModel)
AttributionOrigin = Literal["schedule", "backfill"]
"""Why an hour is attributed. Alerts are sent only for hours of origin `schedule`."""


def _check_year_range(moment: datetime) -> datetime:
    if not MIN_YEAR <= moment.year <= MAX_YEAR:
        raise ValueError(f"must be within the years {MIN_YEAR} to {MAX_YEAR}")
    return moment


def _latest_time(info: ValidationInfo) -> datetime:
    """Return the latest time that is not in the future. A message that this process makes is not checked."""
    now: datetime | None = (info.context or {}).get("now")
    return datetime.max.replace(tzinfo=UTC) if now is None else now + MAX_CLOCK_SKEW


def _check_not_in_future(moment: datetime, info: ValidationInfo) -> datetime:
    if moment > _latest_time(info):
        raise ValueError("must not be in the future")
    return moment


def _check_has_ended(hour: datetime, info: ValidationInfo) -> datetime:
    if hour + HOUR > _latest_time(info):
        raise ValueError("must be an hour that has ended")
    return hour


def _check_hours_have_ended(hours: int, info: ValidationInfo) -> int:
    first_hour: datetime | None = info.data.get("first_hour")
    if first_hour is not None and first_hour + HOUR * hours > _latest_time(info):
        raise ValueError("must be hours that have ended")
    return hours


def _check_days_have_begun(days: int, info: ValidationInfo) -> int:
    first_day: datetime | None = info.data.get("first_day")
    if first_day is not None and first_day + timedelta(days=days - 1) > _latest_time(info):
        raise ValueError("must be days that have begun")
    return days


def _check_month_has_begun(month: str, info: ValidationInfo) -> str:
    if parse_month(month)[0] > _latest_time(info):
        raise ValueError("must not be in the future")
    return month


def _check_full_hour(moment: datetime) -> datetime:
    if floor_hour(moment) != moment:
        raise ValueError("must be on the full hour")
    return moment


def _check_full_day(moment: datetime) -> datetime:
    if floor_day(moment) != moment or moment.utcoffset() != timedelta(0):
        raise ValueError("must be the start of a UTC day")
    return moment


Instant = Annotated[
    AwareDatetime, AfterValidator(_check_year_range), PlainSerializer(format_timestamp, when_used="json")
]
PastTime = Annotated[Instant, AfterValidator(_check_not_in_future)]
Month = Annotated[str, StringConstraints(pattern=r"^20\d\d-(0[1-9]|1[0-2])$"), AfterValidator(_check_month_has_begun)]
Hour = Annotated[Instant, AfterValidator(_check_full_hour)]
HourCount = Annotated[int, Field(ge=1, le=MAX_HOURS_PER_MESSAGE), AfterValidator(_check_hours_have_ended)]
EndedHour = Annotated[Hour, AfterValidator(_check_has_ended)]
Day = Annotated[PastTime, AfterValidator(_check_full_day)]
Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_LENGTH)]
Version = Annotated[int, Field(ge=1, le=10**9)]


class _DeferredModel(BaseModel):
    # Validators are built at first use, because each function reads or sends only a few kinds of message.
    model_config = ConfigDict(frozen=True, defer_build=True)


class Message(_DeferredModel):
    """Base of all messages. Unknown fields and unknown versions are refused."""

    model_config = ConfigDict(extra="forbid")


class ScheduledTick(Message):
    """The schedule fired. `scheduled_time` is the schedule's time, so a late or repeated invocation means the same."""

    version: Literal[1] = 1
    scheduled_time: PastTime


class PricesDue(Message):
    """Refresh the price book."""

    version: Literal[1] = 1
    source: Literal["spot", "on-demand", "shapes", "cur"] | None = None
    """The source to refresh; None: all that the deployment fetches."""
    new_only: bool = False
    """Fetch only on-demand prices and shapes of instance types that are not in the price book yet, and not the bill."""
    months: tuple[Month, ...] = ()
    """Months of the bill to read, such as `2026-10`, even if closed; none: those that may still change."""


class ExportDue(Message):
    """Export days: those that are due at a time, or the given ones."""

    version: Literal[1] = 1
    scheduled_time: PastTime
    cluster: Name | None = None
    """The cluster to process; None: all clusters of the settings."""
    first_day: Day | None = None
    """The first day to export, due or not; None: all days that are due."""
    days: Annotated[int, Field(ge=1, le=MAX_DAYS_PER_EXPORT), AfterValidator(_check_days_have_begun)] = 1
    """How many days to export from `first_day` on."""


class RecommendationsDue(Message):
    """Review clusters and recommend changes."""

    version: Literal[1] = 1
    scheduled_time: PastTime
    cluster: Name | None = None
    """The cluster to process; None: all clusters of the settings."""


class HoursDue(Message):
    """Attribute 1 to 24 consecutive hours of one cluster."""

    version: Literal[1] = 1
    kind: Literal["hours-due"] = "hours-due"
    cluster: Name
    first_hour: Hour
    hours: HourCount
    settings_version: Version
    origin: AttributionOrigin
    correlation_id: Name
    force: bool = False
    """Try an incomplete hour now, before its next attempt is due: a person says that the cause is fixed."""

    def split_by_hour(self) -> list["HoursDue"]:
        """Split the message into messages of one hour each."""
        return [self.model_copy(update={"first_hour": hour, "hours": 1}) for hour in self.hour_starts()]

    def hour_starts(self) -> list[datetime]:
        """Return the starts of the hours, in order."""
        return [self.first_hour + HOUR * i for i in range(self.hours)]


class HoursToRestate(Message):
    """Rate 1 to 24 consecutive hours of one cluster again from their stored usage; hours without any are skipped."""

    version: Literal[1] = 1
    kind: Literal["hours-to-restate"] = "hours-to-restate"
    cluster: Name
    first_hour: Hour
    hours: HourCount
    settings_version: Version | None = None
    """Version of the settings to rate with, at least; None: the one that each hour was published with."""
    reason: str = Field(min_length=1, max_length=500)
    correlation_id: Name

    @property
    def origin(self) -> AttributionOrigin:
        """Always the backfill queue, which never delays new hours. No alerts are sent."""
        return "backfill"

    def split_by_hour(self) -> list["HoursToRestate"]:
        """Split the message into messages of one hour each."""
        return [self.model_copy(update={"first_hour": hour, "hours": 1}) for hour in self.hour_starts()]

    def hour_starts(self) -> list[datetime]:
        """Return the starts of the hours, in order."""
        return [self.first_hour + HOUR * i for i in range(self.hours)]


class HourPublished(Message):
    """A version of a cluster-hour is published and can be read, or an attempt ended incomplete."""

    version: Literal[1] = 1
    kind: Literal["hour-published"] = "hour-published"
    cluster: Name
    hour: EndedHour
    status: Status
    record_version: Version
    settings_version: Version
    origin: AttributionOrigin
    correlation_id: Name


class ClusterState(Message):
    """The state of one cluster's hours when the schedule fires."""

    cluster: Name
    last_complete_hour: EndedHour | None
    hours_overdue: int = Field(ge=0, le=10**6)


class AlertTick(Message):
    """An hour has passed. Carries the state of every cluster, for alert rules on the fleet and on missing data."""

    version: Literal[1] = 1
    kind: Literal["tick"] = "tick"
    scheduled_time: PastTime
    clusters: tuple[ClusterState, ...]
    correlation_id: Name


def _convert_go_time(time: object) -> object:
    """Convert Go's default format `2026-11-19 11:07:12.345678901 +0000 UTC`, which AMP's templates use, to ISO 8601."""
    if not isinstance(time, str):
        return time
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(\.\d{1,6})?\d* \+0000 UTC", time)
    return f"{match[1]}T{match[2]}{match[3] or ''}Z" if match else time


class ExternalAlert(_DeferredModel):
    """One alert of AMP's alert manager. Other fields are ignored."""

    status: Literal["firing", "resolved"]
    labels: Annotated[dict[Name, str], Field(max_length=64)] = Field(default_factory=dict)
    annotations: Annotated[dict[Name, str], Field(max_length=64)] = Field(default_factory=dict)
    starts_at: Annotated[PastTime, BeforeValidator(_convert_go_time)] = Field(alias="startsAt")

    @field_validator("labels")
    @classmethod
    def _check_label_lengths(cls, labels: dict[str, str]) -> dict[str, str]:
        for name, label in labels.items():
            if len(label) > MAX_NAME_LENGTH:
                raise ValueError(f"{name}: must have at most {MAX_NAME_LENGTH} characters, but has {len(label)}")
        return labels


class ExternalAlerts(_DeferredModel):
    """A notification of AMP's alert manager: Alertmanager's webhook payload with a kind."""

    kind: Literal["amp-alerts"] = "amp-alerts"
    alerts: tuple[ExternalAlert, ...]

    @property
    def correlation_id(self) -> str:
        """An id made of the alerts' names."""
        return "amp-" + "-".join(sorted({alert.labels.get("alertname", "alert") for alert in self.alerts}))[:100]


class UncheckedAlerts(_DeferredModel):
    """A notification of AMP's alert manager whose alerts are not validated yet."""

    kind: Literal["amp-alerts"] = "amp-alerts"
    alerts: tuple[Any, ...]

    def check(self, now: datetime) -> "CheckedAlerts":
        """Validate each alert. An invalid one does not affect the others."""
        valid, refused, reasons = [], [], []
        for index, content in enumerate(self.alerts):
            try:
                valid.append(ExternalAlert.model_validate(content, context={"now": now}))
            except ValidationError as error:
                refused.append(content)
                reasons.append(f"alerts.{index}.{_first_problem(error)}")
        return CheckedAlerts(ExternalAlerts(alerts=tuple(valid)), UncheckedAlerts(alerts=tuple(refused)), reasons)


class CheckedAlerts(NamedTuple):
    """The alerts of one message that are valid, and those that are not."""

    valid: ExternalAlerts
    refused: UncheckedAlerts
    reasons: Sequence[str]
    """Why each alert is refused."""


class NotificationSetAside(Message):
    """A dead letter: a notification that cannot be sent. The history has it, too."""

    version: Literal[1] = 1
    kind: Literal["notification-set-aside"] = "notification-set-aside"
    receiver: str
    notification_id: str
    notification: dict[str, Any]
    """Its content, for the person who looks for the cause."""


class AttributeInput(_DeferredModel):
    """Input of the attribute function: one of these messages, distinguished by `kind`."""

    model_config = ConfigDict(extra="forbid")
    message: Annotated[HoursDue | HoursToRestate, Field(discriminator="kind")]


class AlertInput(_DeferredModel):
    """Input of the alert function: one of these messages, distinguished by `kind`."""

    model_config = ConfigDict(extra="forbid")
    message: Annotated[HourPublished | AlertTick, Field(discriminator="kind")]


# Reading: each function's input is checked against the time at which it arrives.


def read_message(model: type[Model], body: str | bytes, now: datetime) -> Model:
    """Parse a message's JSON.

    Args:
        model: the message.
        body: the JSON.
        now: the time now; the message must not be about a later time.

    Raises:
        InvalidMessageError: it is not JSON or does not fit the model; the message names the field and the problem.
    """
    try:
        return model.model_validate_json(body, context={"now": now})
    except ValidationError as error:
        raise InvalidMessageError(f"not a valid {model.__name__}: {_first_problem(error)}") from error


def read_attribute_input(body: str, now: datetime) -> HoursDue | HoursToRestate:
    """Parse a message of the queues `hours` and `backfill`.

    Raises:
        InvalidMessageError: as `read_message`.
    """
    return read_message(AttributeInput, f'{{"message": {body}}}', now).message


def read_alert_input(body: str, now: datetime) -> HourPublished | AlertTick:
    """Parse a message of the `InternalEventsTopic`.

    Raises:
        InvalidMessageError: as `read_message`.
    """
    return read_message(AlertInput, f'{{"message": {body}}}', now).message


def read_external_alerts(body: str, now: datetime) -> UncheckedAlerts:
    """Parse a message of the `EventsTopic`, on which only AMP's alert manager publishes.

    Raises:
        InvalidMessageError: as `read_message`; also for the messages of another topic.
    """
    return read_message(UncheckedAlerts, body, now)


def wrap_external_message(body: str, topic_arn: str) -> str:
    """A message as SNS puts it into a dead-letter queue, with the topic on which it was published."""
    return json.dumps({"Type": "Notification", "TopicArn": topic_arn, "Message": body})


def read_event(model: type[Model], event: object, now: datetime) -> Model:
    """Parse the event with which a function is invoked; `now` as in `read_message`.

    Raises:
        InvalidMessageError: the event does not fit; says what is wrong with its first wrong field.
    """
    try:
        return model.model_validate(event, context={"now": now})
    except ValidationError as error:
        raise InvalidMessageError(f"not a valid {model.__name__}: {_first_problem(error)}") from error


def _first_problem(error: ValidationError) -> str:
    """Return the first problem of a failed validation as `field: problem`."""
    problem = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in problem["loc"])
    return f"{field}: {problem['msg']}" if field else problem["msg"]


# Sends messages to the queues and topics between the functions.

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
