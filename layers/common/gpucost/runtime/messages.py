"""What functions say to each other: versioned messages, one recorded example per trigger in `events/`.

| message | from → to | carried by |
| --- | --- | --- |
| `ScheduledTick` | EventBridge Scheduler → dispatch | the schedule's input |
| `PricesDue` | EventBridge Scheduler, `gpucost prices refresh` → prices | the schedules' input |
| `ExportDue` | EventBridge Scheduler, `gpucost export` → export | the schedule's input |
| `RecommendationsDue` | EventBridge Scheduler, `gpucost recommendations run` → recommend | the schedule's input |
| `HoursDue` | dispatch, `gpucost backfill` → attribute | SQS `hours` and `backfill` |
| `HoursToRestate` | dispatch, `gpucost restate` → attribute | SQS `backfill` |
| `HourClosed` | attribute → alert | SNS `hour closed` |
| `Tick` | dispatch → alert | SNS `hour closed`, too, told apart by `kind` |
| `ExternalAlerts` | AMP's alert manager → alert | SNS `hour closed`, too |

Delivery is at least once and in any order; every message carries all that its reader needs to act twice the same way.
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

from gpucost.core.errors import MessageError
from gpucost.core.hours import HOUR, floor_day, floor_hour, format_timestamp
from gpucost.core.model import Status

MAX_HOURS_PER_MESSAGE = 24
MAX_DAYS_PER_EXPORT = 31
M = TypeVar("M", bound=BaseModel)
Origin = Literal["schedule", "backfill"]
"""Why an hour is worked on: only hours of origin `schedule` notify anybody."""


def _in_the_calendar(moment: datetime) -> datetime:
    try:
        moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("is not within the years 1 to 9999 in UTC") from None
    return moment


def _full_hour(moment: datetime) -> datetime:
    if floor_hour(moment) != moment:
        raise ValueError("must be on the full hour")
    return moment


def _full_day(moment: datetime) -> datetime:
    if floor_day(moment) != moment or moment.utcoffset() != timedelta(0):
        raise ValueError("must be the start of a UTC day")
    return moment


Instant = Annotated[
    AwareDatetime, AfterValidator(_in_the_calendar), PlainSerializer(format_timestamp, when_used="json")
]
Month = Annotated[str, StringConstraints(pattern=r"^20\d\d-(0[1-9]|1[0-2])$")]
Hour = Annotated[Instant, AfterValidator(_full_hour)]
Day = Annotated[Instant, AfterValidator(_full_day)]


class Message(BaseModel):
    """Base of all messages: unknown fields and unknown versions are refused, never guessed at."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ScheduledTick(Message):
    """The schedule fired. `scheduled_time` is the schedule's own time, so a late or repeated call means the same."""

    version: Literal[1] = 1
    scheduled_time: Instant


class PricesDue(Message):
    """Refresh the price book."""

    version: Literal[1] = 1
    source: Literal["spot", "on-demand", "shapes", "cur"] | None = None
    """Only this one; None: all that the deployment fetches."""
    new_only: bool = False
    """On-demand prices and shapes of those instance types only that the book does not have yet; and not the bill."""
    months: tuple[Month, ...] = ()
    """Of the bill, as `2026-10`: read again though they are closed; none: those that may still move."""


class ExportDue(Message):
    """Export days: those that are due at a time, or those asked for."""

    version: Literal[1] = 1
    scheduled_time: Instant
    cluster: str | None = None
    """Only this one; None: all of the settings."""
    first_day: Day | None = None
    """Export this day whether it is due or not; None: all that are due."""
    days: int = Field(default=1, ge=1, le=MAX_DAYS_PER_EXPORT)
    """How many days from `first_day` on."""


class RecommendationsDue(Message):
    """Review clusters and recommend changes."""

    version: Literal[1] = 1
    scheduled_time: Instant
    cluster: str | None = None
    """Only this one; None: all of the settings."""


class HoursDue(Message):
    """Attribute 1 to 24 consecutive hours of one cluster."""

    version: Literal[1] = 1
    kind: Literal["hours-due"] = "hours-due"
    cluster: str = Field(min_length=1)
    first_hour: Hour
    hours: int = Field(ge=1, le=MAX_HOURS_PER_MESSAGE)
    settings_version: int = Field(ge=1)
    origin: Origin
    correlation_id: str = Field(min_length=1)
    force: bool = False
    """Try an incomplete hour at once, though its next attempt has not come: a person says that the cause is gone."""

    def singles(self) -> list["HoursDue"]:
        """The same work, an hour each."""
        return [self.model_copy(update={"first_hour": hour, "hours": 1}) for hour in self.starts()]

    def starts(self) -> list[datetime]:
        """The hours named, in order."""
        return [self.first_hour + HOUR * i for i in range(self.hours)]


class HoursToRestate(Message):
    """Rate 1 to 24 consecutive hours of one cluster again, from their stored usage; hours without any are left."""

    version: Literal[1] = 1
    kind: Literal["hours-to-restate"] = "hours-to-restate"
    cluster: str = Field(min_length=1)
    first_hour: Hour
    hours: int = Field(ge=1, le=MAX_HOURS_PER_MESSAGE)
    settings_version: int | None = Field(default=None, ge=1)
    """Under which business units and pricing, or newer ones in force; None: those that each hour was published with."""
    reason: str = Field(min_length=1, max_length=500)
    correlation_id: str = Field(min_length=1)

    @property
    def origin(self) -> Origin:
        """It never stands in the way of fresh hours, and notifies nobody."""
        return "backfill"

    def singles(self) -> list["HoursToRestate"]:
        """The same work, an hour each."""
        return [self.model_copy(update={"first_hour": hour, "hours": 1}) for hour in self.starts()]

    def starts(self) -> list[datetime]:
        """The hours named, in order."""
        return [self.first_hour + HOUR * i for i in range(self.hours)]


class HourClosed(Message):
    """A version of a cluster-hour is published and can be read, or an attempt ended incomplete."""

    version: Literal[1] = 1
    kind: Literal["hour-closed"] = "hour-closed"
    cluster: str = Field(min_length=1)
    hour: Hour
    status: Status
    record_version: int = Field(ge=1)
    settings_version: int = Field(ge=1)
    origin: Origin
    correlation_id: str = Field(min_length=1)


class ClusterState(Message):
    """Where one cluster's ledger stands when the schedule fires."""

    cluster: str
    last_complete_hour: Hour | None
    hours_overdue: int = Field(ge=0)


class Tick(Message):
    """An hour has passed: the state of every cluster, for rules over several of them and for missing data."""

    version: Literal[1] = 1
    kind: Literal["tick"] = "tick"
    scheduled_time: Instant
    clusters: tuple[ClusterState, ...]
    correlation_id: str = Field(min_length=1)


def _as_go_writes(moment: object) -> object:
    """Go writes `2026-11-19 11:07:12.345678901 +0000 UTC` where it is not told otherwise, as in AMP's templates."""
    if not isinstance(moment, str):
        return moment
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)(\.\d{1,6})?\d* \+0000 UTC", moment)
    return f"{found[1]}T{found[2]}{found[3] or ''}Z" if found else moment


class ExternalAlert(BaseModel):
    """One alert of AMP's alert manager; fields that are of no use here are left."""

    model_config = ConfigDict(frozen=True)

    status: Literal["firing", "resolved"]
    labels: dict[str, str] = Field(default_factory=dict)
    annotations: dict[str, str] = Field(default_factory=dict)
    starts_at: Annotated[AwareDatetime, BeforeValidator(_as_go_writes)] = Field(alias="startsAt")


class ExternalAlerts(BaseModel):
    """What AMP's alert manager sends: as Alertmanager's own webhook does, with a kind."""

    model_config = ConfigDict(frozen=True)

    kind: Literal["amp-alerts"] = "amp-alerts"
    alerts: tuple[ExternalAlert, ...]

    @property
    def correlation_id(self) -> str:
        """Which alerts they are."""
        return "amp-" + "-".join(sorted({alert.labels.get("alertname", "alert") for alert in self.alerts}))[:100]


class AttributeInput(BaseModel):
    """What the attribute function is sent: either message, told apart by `kind`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    message: Annotated[HoursDue | HoursToRestate, Field(discriminator="kind")]


class AlertInput(BaseModel):
    """What the alert function is sent, told apart by `kind`."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    message: Annotated[HourClosed | Tick | ExternalAlerts, Field(discriminator="kind")]


def read_message(model: type[M], body: str | bytes) -> M:
    """Parse a message's JSON.

    Raises:
        MessageError: not JSON, or it does not fit the model; one sentence that names the field and what is wrong.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise MessageError(f"not a valid {model.__name__}: {first_problem(error)}") from error


def read_attribute_input(body: str) -> HoursDue | HoursToRestate:
    """Parse what arrives on the queues `hours` and `backfill`.

    Raises:
        MessageError: as `read_message`.
    """
    return read_message(AttributeInput, f'{{"message": {body}}}').message


def read_alert_input(body: str) -> HourClosed | Tick | ExternalAlerts:
    """Parse what arrives on the `hour closed` topic.

    Raises:
        MessageError: as `read_message`.
    """
    return read_message(AlertInput, f'{{"message": {body}}}').message


def first_problem(error: ValidationError) -> str:
    """The first finding of a failed validation as `field: what is wrong`."""
    finding = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in finding["loc"])
    return f"{where}: {finding['msg']}" if where else finding["msg"]
