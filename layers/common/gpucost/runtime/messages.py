"""Versioned messages between functions. `events/` has a recorded example for each trigger.

| message | from → to | carried by |
| --- | --- | --- |
| `ScheduledTick` | EventBridge Scheduler → dispatch | the schedule's input |
| `PricesDue` | EventBridge Scheduler, `gpucost prices refresh` → prices | the schedules' input |
| `ExportDue` | EventBridge Scheduler, `gpucost export` → export | the schedule's input |
| `RecommendationsDue` | EventBridge Scheduler, `gpucost recommendations run` → recommend | the schedule's input |
| `HoursDue` | dispatch, `gpucost backfill` → attribute | SQS `hours` and `backfill` |
| `HoursToRestate` | dispatch, `gpucost hours restate` → attribute | SQS `backfill` |
| `HourPublished` | attribute → alert | SNS `EventsTopic` |
| `AlertTick` | dispatch → alert | SNS `EventsTopic`, distinguished by `kind` |
| `ExternalAlerts` | AMP's alert manager → alert | SNS `EventsTopic` |

Messages are delivered at least once and in any order. Each carries all that its reader needs, so that handling it twice
has the same result.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, TypeVar

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
)

from gpucost.core.errors import InvalidMessageError
from gpucost.core.hour_record import Status
from gpucost.core.hours import HOUR, floor_day, floor_hour, format_timestamp

MAX_HOURS_PER_MESSAGE = 24
MAX_DAYS_PER_EXPORT = 31
Model = TypeVar("Model", bound=BaseModel)
AttributionOrigin = Literal["schedule", "backfill"]
"""Why an hour is attributed. Alerts are sent only for hours of origin `schedule`."""


def _check_year_range(moment: datetime) -> datetime:
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("is not within the years 1 to 9999 in UTC") from None
    return moment


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
Month = Annotated[str, StringConstraints(pattern=r"^20\d\d-(0[1-9]|1[0-2])$")]
Hour = Annotated[Instant, AfterValidator(_check_full_hour)]
Day = Annotated[Instant, AfterValidator(_check_full_day)]


class _DeferredModel(BaseModel):
    # Validators are built at first use, because each function reads or sends only a few kinds of message.
    model_config = ConfigDict(frozen=True, defer_build=True)


class Message(_DeferredModel):
    """Base of all messages. Unknown fields and unknown versions are refused."""

    model_config = ConfigDict(extra="forbid")


class ScheduledTick(Message):
    """The schedule fired. `scheduled_time` is the schedule's time, so a late or repeated invocation means the same."""

    version: Literal[1] = 1
    scheduled_time: Instant


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
    scheduled_time: Instant
    cluster: str | None = None
    """The cluster to process; None: all clusters of the settings."""
    first_day: Day | None = None
    """The first day to export, due or not; None: all days that are due."""
    days: int = Field(default=1, ge=1, le=MAX_DAYS_PER_EXPORT)
    """How many days to export from `first_day` on."""


class RecommendationsDue(Message):
    """Review clusters and recommend changes."""

    version: Literal[1] = 1
    scheduled_time: Instant
    cluster: str | None = None
    """The cluster to process; None: all clusters of the settings."""


class HoursDue(Message):
    """Attribute 1 to 24 consecutive hours of one cluster."""

    version: Literal[1] = 1
    kind: Literal["hours-due"] = "hours-due"
    cluster: str = Field(min_length=1)
    first_hour: Hour
    hours: int = Field(ge=1, le=MAX_HOURS_PER_MESSAGE)
    settings_version: int = Field(ge=1)
    origin: AttributionOrigin
    correlation_id: str = Field(min_length=1)
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
    cluster: str = Field(min_length=1)
    first_hour: Hour
    hours: int = Field(ge=1, le=MAX_HOURS_PER_MESSAGE)
    settings_version: int | None = Field(default=None, ge=1)
    """Version of the settings to rate with, at least; None: the one that each hour was published with."""
    reason: str = Field(min_length=1, max_length=500)
    correlation_id: str = Field(min_length=1)

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
    cluster: str = Field(min_length=1)
    hour: Hour
    status: Status
    record_version: int = Field(ge=1)
    settings_version: int = Field(ge=1)
    origin: AttributionOrigin
    correlation_id: str = Field(min_length=1)


class ClusterState(Message):
    """The state of one cluster's hours when the schedule fires."""

    cluster: str
    last_complete_hour: Hour | None
    hours_overdue: int = Field(ge=0)


class AlertTick(Message):
    """An hour has passed. Carries the state of every cluster, for alert rules on the fleet and on missing data."""

    version: Literal[1] = 1
    kind: Literal["tick"] = "tick"
    scheduled_time: Instant
    clusters: tuple[ClusterState, ...]
    correlation_id: str = Field(min_length=1)


def _convert_go_time(time: object) -> object:
    """Convert Go's default format `2026-11-19 11:07:12.345678901 +0000 UTC`, which AMP's templates use, to ISO 8601."""
    if not isinstance(time, str):
        return time
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(\.\d{1,6})?\d* \+0000 UTC", time)
    return f"{match[1]}T{match[2]}{match[3] or ''}Z" if match else time


class ExternalAlert(_DeferredModel):
    """One alert of AMP's alert manager. Other fields are ignored."""

    status: Literal["firing", "resolved"]
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    starts_at: Annotated[AwareDatetime, BeforeValidator(_convert_go_time)] = Field(alias="startsAt")


class ExternalAlerts(_DeferredModel):
    """A notification of AMP's alert manager: Alertmanager's webhook payload with a kind."""

    kind: Literal["amp-alerts"] = "amp-alerts"
    alerts: tuple[ExternalAlert, ...]

    @property
    def correlation_id(self) -> str:
        """An id made of the alerts' names."""
        return "amp-" + "-".join(sorted({alert.labels.get("alertname", "alert") for alert in self.alerts}))[:100]


class AttributeInput(_DeferredModel):
    """Input of the attribute function: one of these messages, distinguished by `kind`."""

    model_config = ConfigDict(extra="forbid")
    message: Annotated[HoursDue | HoursToRestate, Field(discriminator="kind")]


class AlertInput(_DeferredModel):
    """Input of the alert function: one of these messages, distinguished by `kind`."""

    model_config = ConfigDict(extra="forbid")
    message: Annotated[HourPublished | AlertTick | ExternalAlerts, Field(discriminator="kind")]


def read_message(model: type[Model], body: str | bytes) -> Model:
    """Parse a message's JSON.

    Raises:
        InvalidMessageError: it is not JSON or does not fit the model; the message names the field and the problem.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise InvalidMessageError(f"not a valid {model.__name__}: {_first_problem(error)}") from error


def read_attribute_input(body: str) -> HoursDue | HoursToRestate:
    """Parse a message of the queues `hours` and `backfill`.

    Raises:
        InvalidMessageError: as `read_message`.
    """
    return read_message(AttributeInput, f'{{"message": {body}}}').message


def read_alert_input(body: str) -> HourPublished | AlertTick | ExternalAlerts:
    """Parse a message of the `EventsTopic`.

    Raises:
        InvalidMessageError: as `read_message`.
    """
    return read_message(AlertInput, f'{{"message": {body}}}').message


def read_event(model: type[Model], event: object) -> Model:
    """Parse the event with which a function is invoked.

    Raises:
        InvalidMessageError: the event does not fit; says what is wrong with its first wrong field.
    """
    try:
        return model.model_validate(event)
    except ValidationError as error:
        raise InvalidMessageError(f"not a valid {model.__name__}: {_first_problem(error)}") from error


def _first_problem(error: ValidationError) -> str:
    """Return the first problem of a failed validation as `field: problem`."""
    problem = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in problem["loc"])
    return f"{field}: {problem['msg']}" if field else problem["msg"]
