"""What alerting needs from the outside, as Protocols (see `ports`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from gpucost.features.alerting.model import AlertGroup, Cursor, Notification
from gpucost.features.alerting.rules.spend_change import DayToDate
from gpucost.features.alerting.settings import AlertingSettings
from gpucost.features.alerting.muting import Silence
from gpucost.storage.ports import PublishedHours, Rollups


@dataclass(frozen=True, slots=True)
class ScopeStates:
    """What alerting remembers of a scope."""

    cursor: Cursor
    groups: tuple[AlertGroup, ...]


class AlertStates(Protocol):
    """The memory of alerting. Every read is consistent, every write conditional."""

    def load(self, scope: str) -> ScopeStates:
        """All of a scope: a cluster, or one of those over several clusters."""
        ...

    def save_group(self, book: AlertGroup) -> AlertGroup:
        """Write a book on condition that its version is still the stored one; returns it with the next version.

        Raises:
            ConflictError: somebody else wrote first.
        """
        ...

    def save_cursor(self, cursor: Cursor) -> Cursor:
        """The same for a cursor.

        Raises:
            ConflictError: somebody else wrote first.
        """
        ...


class AlertHistory(Protocol):
    """What people were told, or would have been; kept for a year and a month."""

    def add(self, scope: str, notifications: Sequence[Notification]) -> None:
        """Keep notifications; the same one again is the one that is there."""
        ...

    def between(self, scope: str, start: datetime, end: datetime) -> list[Notification]:
        """Those decided by hours in `[start, end)`, oldest first."""
        ...


class Silences(Protocol):
    """Who wants to hear nothing of what, until when."""

    def all(self) -> list[Silence]:
        """Those that are or were in force lately, and those to come; the one that ends last first."""
        ...

    def put(self, silence: Silence) -> None:
        """Keep one, in place of the one with its id."""
        ...


@dataclass(frozen=True, slots=True)
class MonthPart:
    """Some days of a month in one cluster, summed by business unit."""

    units: Mapping[str, Decimal]
    hours_with_data: int
    currency: str
    """"" where nothing is known; several of them make no sum."""


@dataclass(frozen=True, slots=True)
class ClusterDayToDate:
    """A day in one cluster from midnight to an hour's end, as it was first known."""

    units: Mapping[str, DayToDate]
    price_sources: str
    """Tells the price sources in force from others."""


class SpendStore(Protocol):
    """Sums that rules over long periods would be too dear to read anew every hour."""

    def month_part(self, cluster: str, month: datetime, part: int) -> MonthPart | None:
        """A part of a month as it was last summed."""
        ...

    def put_month_part(self, cluster: str, month: datetime, part: int, sums: MonthPart) -> None:
        """Keep it, in place of the one before."""
        ...

    def day_to_date(self, cluster: str, hour: datetime) -> ClusterDayToDate | None:
        """The day of an hour, to that hour's end."""
        ...

    def put_day_to_date(self, cluster: str, hour: datetime, sums: ClusterDayToDate) -> None:
        """Keep it; what was known first stays."""
        ...


class AlertLedger(PublishedHours, Protocol):
    """What rules read of published hours."""


@dataclass(frozen=True, slots=True)
class WorkloadSaving:
    """What a business unit would save by one open recommendation on a workload of its own."""

    id: str
    business_unit: str
    summary: str
    monthly_usd: Decimal
    currency: str
    confidence: str


WorkloadSavings = Callable[[str], Sequence[WorkloadSaving]]
"""The savings that are recommended in a cluster."""


@dataclass(frozen=True, slots=True)
class AlertSources:
    """What rules look at."""

    ledger: AlertLedger
    rollups: Rollups
    spend: SpendStore
    newest_price: "NewestPrice"
    dead_letters: "DeadLetters"
    savings: WorkloadSavings | None = None
    """What digests name as the thing to do first; None where no advice is at hand."""


class NewestPrice(Protocol):
    """How fresh fetched prices are."""

    def __call__(self) -> datetime | None:
        """When prices were last fetched; None where none ever were."""
        ...


class DeadLetters(Protocol):
    """The dead-letter queue."""

    def __call__(self) -> int | None:
        """About how many messages wait in it; None where nobody knows."""
        ...


class Notifier(Protocol):
    """One way to reach people."""

    @property
    def max_batch_size(self) -> int:
        """So many notifications fit into one message."""
        ...

    @property
    def needs_resend(self) -> bool:
        """Whether firing alerts must be sent again every hour, or count as over."""
        ...

    def send(self, notifications: Sequence[Notification]) -> None:
        """Deliver them as one message, or raise `SourceError`."""
        ...


class Notifiers(Protocol):
    """The receivers that the settings name, by a name that is stable across pushes."""

    def __call__(self, settings: AlertingSettings) -> Mapping[str, Notifier]:
        """The receivers of a document."""
        ...
