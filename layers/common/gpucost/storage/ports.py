"""Types that the ledger's readers share, and Protocols with more than one implementation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Generic, Protocol

from typing_extensions import TypeVar

from gpucost.core.ledger import DEFAULT_RETENTION, HourSummary, Manifest, Restatement, Retention
from gpucost.core.model import ClusterCharge, Costs, Line, NodeHour
from gpucost.core.rollups import DaySummary, FactKey, UnitHour
from gpucost.settings import Settings

Clock = Callable[[], datetime]
"""Returns the current time in UTC."""


class Rollups(Protocol):
    """Sums of published hours. What is read is always the sum of the hours in force, whatever has been rolled up."""

    def days(self, cluster: str, start: datetime, end: datetime) -> list[DaySummary]:
        """Every UTC day of `[start, end)` that has a published hour, in order."""
        ...

    def unit_hours(self, cluster: str, business_unit: str, start: datetime, end: datetime) -> list[UnitHour]:
        """One unit in every published hour of `[start, end)`, in order."""
        ...

    def facts(
        self, cluster: str, start: datetime, end: datetime, business_unit: str | None = None
    ) -> list[tuple[datetime, dict[FactKey, Costs]]]:
        """The facts of every UTC day of `[start, end)` that has a published hour, all or one unit's."""
        ...

    def roll_up(self, cluster: str, day: datetime, now: datetime, retention: Retention = DEFAULT_RETENTION) -> bool:
        """Bring a UTC day's sums up to its hours; False where they were. It makes reading cheap, not right."""
        ...


class RollupReader(Protocol):
    """Sums of versions of one cluster's hours, which are in order: those of a day that was rolled up are read, the
    others are summed from what the versions say, in force or not."""

    def days_of(self, manifests: Sequence[Manifest]) -> list[DaySummary]:
        """Their UTC days, in order."""
        ...

    def unit_hours_of(self, manifests: Sequence[Manifest], business_unit: str) -> list[UnitHour]:
        """One unit in each of them."""
        ...

    def facts_of(
        self, manifests: Sequence[Manifest], business_unit: str | None = None
    ) -> list[tuple[datetime, dict[FactKey, Costs]]]:
        """The facts of their UTC days, all or one unit's; without days whose lines are no longer kept."""
        ...


class PublishedHours(Protocol):
    """What reports read beside.

    An answer reads the manifests once and then what these very versions say (`..._of`), so that it holds nothing of a
    version that is put in force meanwhile. What is superseded is kept for longer than any answer takes.
    """

    def manifest(self, cluster: str, hour: datetime) -> Manifest | None:
        """The version of an hour that is in force."""
        ...

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """Those in `[start, end)`, oldest first, without their notes."""
        ...

    def latest(self, cluster: str) -> Manifest | None:
        """The newest hour that was ever published."""
        ...

    def summaries(self, cluster: str, start: datetime, end: datetime) -> list[HourSummary]:
        """Published hours in `[start, end)`, oldest first."""
        ...

    def lines(self, cluster: str, hour: datetime, business_unit: str | None = None) -> list[Line]:
        """An hour's lines, all or one unit's; empty where the hour has none."""
        ...

    def summaries_of(self, manifests: Sequence[Manifest]) -> list[HourSummary]:
        """The summaries of versions of one cluster's hours, which are in order."""
        ...

    def notes_of(self, manifests: Sequence[Manifest]) -> dict[datetime, tuple[str, ...]]:
        """The notes of those versions of one cluster's hours, which are in order, that have some."""
        ...

    def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
        """A version's lines, all or one unit's."""
        ...

    def nodes_of(self, manifest: Manifest) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """What each node cost by a version, and what was paid for without one."""
        ...

    def nodes(self, cluster: str, hour: datetime) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """What each node of an hour cost, and what was paid for without one."""
        ...

    def all_nodes(self, cluster: str, start: datetime, end: datetime) -> Iterator[NodeHour]:
        """The nodes of every hour in `[start, end)`."""
        ...

    def restatements(self, cluster: str, start: datetime, end: datetime) -> list[Restatement]:
        """What replaced figures in hours of `[start, end)`: oldest hour first, its versions in their order."""
        ...


@dataclass(frozen=True, slots=True)
class Departure:
    """That a cluster left the settings."""

    left_at: datetime
    version: int
    """Of the settings: the last one that names it."""


SettingsModel = TypeVar("SettingsModel", bound=Settings, default=Settings, covariant=True)


@dataclass(frozen=True, slots=True)
class StoredSettings(Generic[SettingsModel]):
    """A settings document as it was pushed."""

    version: int
    text: str
    settings: SettingsModel
    author: str
    pushed_at: datetime
    refused: tuple[str, ...] = ()
    """Why newer versions, which cannot be read, are not in force; newest first."""
    departed: Mapping[str, Departure] = field(default_factory=dict)
    """Clusters of earlier documents that left the settings: what is recorded of them stays in answers."""

    def clusters(self, since: datetime) -> list[str]:
        """Whose hours from then on there are, in order of name: the settings' clusters, and those that left later."""
        left = {name for name, departure in self.departed.items() if departure.left_at > since}
        return sorted({one.name for one in self.settings.clusters} | left)


class SettingsStore(Protocol[SettingsModel]):
    """The versioned settings document."""

    def current(self) -> StoredSettings[SettingsModel]:
        """The newest version that can be read.

        Raises:
            SettingsMissingError: nothing was pushed yet.
        """
        ...

    def newest(self) -> StoredSettings[SettingsModel]:
        """The same, and never a minute old.

        Raises:
            As `current`.
        """
        ...

    def version(self, number: int) -> StoredSettings[SettingsModel]:
        """One version.

        Raises:
            NotFoundError: there is no such version.
        """
        ...

    def history(self) -> Sequence[StoredSettings[SettingsModel]]:
        """Every version, newest first."""
        ...

    def push(self, text: str, *, author: str, now: datetime) -> StoredSettings[SettingsModel]:
        """Validate a document and make it the newest version.

        Raises:
            SettingsError: not valid; nothing was written.
            ConflictError: somebody else pushed at the same time; nothing was written.
        """
        ...
