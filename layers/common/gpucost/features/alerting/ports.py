"""What alerting needs from other modules and from its storage, as types."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from http import HTTPStatus
from typing import Protocol, Self

from msgspec import Struct

from gpucost.core.amounts import Costs, to_decimal
from gpucost.core.errors import GpuCostError
from gpucost.core.ledger import DaySummary
from gpucost.features.alerting.model import AlertGroup, EvaluationCursor, Notification
from gpucost.features.alerting.settings import SettingsDocument
from gpucost.storage.ports import PublishedHours, Rollups


class ScopeStates(Struct, frozen=True):
    """The stored alert groups of a scope, and how far the scope is evaluated."""

    cursor: EvaluationCursor
    groups: tuple[AlertGroup, ...]


class AlertStateStore(Protocol):
    """Stores alert states: in DynamoDB, or in memory for a replay. Reads are consistent, writes are conditional."""

    def load(self, scope: str) -> ScopeStates:
        """Read the states of a scope: a cluster, or one of the scopes over several clusters."""
        ...

    def save_group(self, group: AlertGroup) -> AlertGroup:
        """Write a group if its version is still the stored one, and return it with the next version.

        Raises:
            ConflictError: another writer was first.
        """
        ...

    def save_cursor(self, cursor: EvaluationCursor) -> EvaluationCursor:
        """Write a cursor if its version is still the stored one, and return it with the next version.

        Raises:
            ConflictError: another writer was first.
        """
        ...


class PartialMonthSpend(Struct, frozen=True):
    """The amounts spent in some days of a month, or in the month so far, in one cluster."""

    spend_by_unit: Mapping[str, Decimal]
    """By business unit."""
    hours_with_data: int
    currency: str
    """Empty without data. Several currencies are joined with `+`, and the amounts cannot be used."""
    first_hour: datetime | None = None
    """The first recorded hour, with or without figures; None without any."""

    @classmethod
    def sum_days(cls, days: Iterable[DaySummary]) -> Self:
        """Sum days of one cluster. An incomplete hour has no data."""
        spend: dict[str, Decimal] = {}
        hours, currencies, first_hour = 0, set[str](), None
        for day in days:
            first_hour = first_hour or next((manifest.hour for manifest in day.manifests), None)
            for unit, costs in day.costs.items():
                spend[unit] = spend.get(unit, Decimal(0)) + to_decimal(costs.allocated_usd)
            hours += sum(manifest.status != "incomplete" for manifest in day.manifests)
            currencies |= day.currencies
        return cls(spend, hours, "+".join(sorted(currencies)), first_hour)

    @property
    def currencies(self) -> frozenset[str]:
        """The currencies of its amounts."""
        return frozenset(filter(None, self.currency.split("+")))


class DayToDateSpend(Struct, frozen=True):
    """A day in one cluster from midnight to the end of an hour, as first computed."""

    costs_by_unit: Mapping[str, Costs]
    """By business unit; only `allocated_usd` and `allocated_gpu_hours` are stored."""
    pricing_fingerprint: str
    """Fingerprint of the pricing settings in force."""

    @property
    def is_absent(self) -> bool:
        """Whether the cluster did not exist yet, or not any more."""
        return self == ABSENT_DAY


ABSENT_DAY = DayToDateSpend({}, "")
"""The day of a cluster that did not exist yet, or not any more."""


class SpendStore(Protocol):
    """Stores sums that cost too many reads to compute every hour: in DynamoDB, or in memory for a replay."""

    def month_part(self, cluster: str, month: datetime, part: int) -> PartialMonthSpend | None:
        """Read a part of a month as it was last summed."""
        ...

    def put_month_part(self, cluster: str, month: datetime, part: int, sums: PartialMonthSpend) -> None:
        """Write a part of a month over the previous sums."""
        ...

    def day_to_date(self, cluster: str, hour: datetime) -> DayToDateSpend | None:
        """Read the day of an hour, up to the end of that hour."""
        ...

    def put_day_to_date(self, cluster: str, hour: datetime, sums: DayToDateSpend) -> None:
        """Write a day to date; sums that are already stored are kept."""
        ...


class WorkloadSaving(Struct, frozen=True):
    """What a business unit would save by one open recommendation on one of its workloads."""

    id: str
    business_unit: str
    summary: str
    monthly_usd: Decimal
    currency: str
    confidence: str


ReadSavings = Callable[[str], Sequence[WorkloadSaving]]
"""Returns the savings that are recommended in a cluster."""
ReadSpotFetchTime = Callable[[], datetime | None]
"""Returns when spot prices were last fetched; None if they never were."""
CountDeadLetters = Callable[[], int | None]
"""Returns about how many messages are in the dead-letter queue; None if the count is not available."""


@dataclass(frozen=True, slots=True)
class RuleInputs:
    """The inputs of alert rules."""

    ledger: PublishedHours
    rollups: Rollups
    spend_store: SpendStore
    read_spot_fetch_time: ReadSpotFetchTime | None
    """None: not available, as in a replay of past hours, so that the age of prices is not checked."""
    count_dead_letters: CountDeadLetters
    allows_estimates: Callable[[int], bool]
    """Whether a version of the settings allows estimated utilization, so that lines of its hours may have it."""
    read_savings: ReadSavings | None = None
    """Used by digests; None leaves recommendations out."""


class Notifier(Protocol):
    """Sends notifications to one receiver."""

    @property
    def needs_resend(self) -> bool:
        """Whether the receiver resolves firing alerts by itself unless they are sent again every hour."""
        ...

    def batch_size(self, notifications: Sequence[Notification]) -> int:
        """Return how many of these notifications, from the first one on, fit into one message: at least one."""
        ...

    def send(self, notifications: Sequence[Notification]) -> None:
        """Deliver notifications as one message, or raise `SourceError`."""
        ...


MakeNotifiers = Callable[[SettingsDocument], Mapping[str, Notifier]]
"""Returns the notifiers of the receivers in a settings document, by receiver key."""


# Messages that a receiver refuses for good, as Alertmanager classifies them (notify/util.go, Retrier.Check).
#
# A status of 4xx says that the same message would be refused again, except 408 (timeout) and 429 (too many requests).

_RETRIED = {HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS}


class RefusedMessageError(GpuCostError):
    """A receiver refuses a message for good. It is not a `SourceError`, after which the same message is sent again."""


def is_refusal(status: int) -> bool:
    """Whether an HTTP status refuses a message for good."""
    return HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR and status not in _RETRIED
