"""Types that the ledger's readers share, and Protocols with more than one implementation."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Generic, Protocol

from msgspec import Struct, field
from typing_extensions import TypeVar

from gpucost.core.amounts import Costs
from gpucost.core.costs_by_key import CostsByKey
from gpucost.core.hour_record import ClusterCharge, Line, ModelHour, NodeHour
from gpucost.core.ledger import DEFAULT_RETENTION, DaySummary, FactKey, HourSummary, Manifest, Restatement, Retention
from gpucost.settings import CoreSettings
from gpucost.storage.table import Condition, ConditionalDelete, ConditionalPut, Item, SortKeys

Clock = Callable[[], datetime]
"""Returns the current time in UTC."""


class Table(Protocol):
    """The ledger's table: items with the keys `pk` and `sk`. Reads return what was written last, without expired items.

    Its methods raise SourceError if the table fails.
    """

    def get(self, pk: str, sk: str) -> Item | None:
        """Return an item, or None if there is none or it has expired."""
        ...

    def query(
        self, pk: str, sort_keys: SortKeys | None = None, *, limit: int = 0, newest_first: bool = False
    ) -> Iterator[Item]:
        """Yield the items of a partition in order of `sk`.

        Args:
            pk: the partition.
            sort_keys: which of its items; None for all.
            limit: how many items at most, expired ones included; 0 for all.
            newest_first: in descending order.
        """
        ...

    def put(self, item: Item, condition: Condition) -> None:
        """Write an item if a condition on the stored one holds.

        Raises:
            ConflictError: the condition does not hold.
        """
        ...

    def transact(
        self,
        puts: Sequence[ConditionalPut],
        deletes: Sequence[ConditionalDelete] = (),
        checks: Sequence[ConditionalPut] = (),
    ) -> None:
        """Write and delete items in one transaction, at most 100 items and 4 MB.

        Args:
            puts: items to write.
            deletes: keys of items to delete.
            checks: keys of items that are not written, with the conditions that must hold for them.

        Raises:
            ConflictError: a condition does not hold, or other writers keep writing one of the items.
        """
        ...

    def put_all(self, items: Sequence[Item]) -> None:
        """Write items without conditions, in any order."""
        ...

    def delete_all(self, keys: Iterable[Item]) -> None:
        """Delete items by their keys."""
        ...

    def expire(self, items: Iterable[Item], at: int) -> None:
        """Let items, as they were read, expire at a time (seconds since the epoch)."""
        ...


class Rollups(Protocol):
    """Sums of published hours. Reads always return the sums of the current versions, whichever rollups exist."""

    def days(self, cluster: str, start: datetime, end: datetime) -> list[DaySummary]:
        """Return the sums of every UTC day of `[start, end)` that has a published hour, in order."""
        ...

    def unit_hours(
        self, cluster: str, business_unit: str, start: datetime, end: datetime
    ) -> list[tuple[Manifest, Costs | None]]:
        """Return one business unit's costs in every published hour of `[start, end)`, in order.

        They are None for an hour without figures, and zero if the unit held no GPUs.
        """
        ...

    def facts(
        self, cluster: str, start: datetime, end: datetime, business_unit: str | None = None
    ) -> list[tuple[datetime, CostsByKey[FactKey]]]:
        """Return the facts of every UTC day of `[start, end)` that has a published hour, all or one business unit's."""
        ...

    def roll_up(self, cluster: str, day: datetime, now: datetime, retention: Retention = DEFAULT_RETENTION) -> bool:
        """Update a UTC day's rollups; return False if they were up to date. Rollups only make reading cheaper."""
        ...


class RollupReader(Protocol):
    """Reads sums of versions of one cluster's hours, which are in order.

    Sums come from rollups if there are any of these versions, and otherwise from the versions themselves.
    """

    def days_of(self, manifests: Sequence[Manifest]) -> list[DaySummary]:
        """Return the sums of their UTC days, in order."""
        ...

    def unit_hours_of(self, manifests: Sequence[Manifest], business_unit: str) -> list[tuple[Manifest, Costs | None]]:
        """Return one business unit's costs in each of them, as `Rollups.unit_hours` does."""
        ...

    def facts_of(
        self, manifests: Sequence[Manifest], business_unit: str | None = None
    ) -> list[tuple[datetime, CostsByKey[FactKey]]]:
        """Return the facts of their UTC days, all or one business unit's; days with expired lines are left out."""
        ...


class PublishedHours(Protocol):
    """Reads published hours, all or those that a caller may see.

    A report reads the manifests once, and then these versions (`..._of`). So it has no figures of a version that is
    published meanwhile. Items of superseded versions are kept for longer than any report takes.
    """

    def manifest(self, cluster: str, hour: datetime) -> Manifest | None:
        """Return the current version of an hour."""
        ...

    def manifests(self, cluster: str, start: datetime, end: datetime) -> list[Manifest]:
        """Return the current versions of the hours in `[start, end)`, oldest first, without notes."""
        ...

    def newest_published_hour(self, cluster: str) -> Manifest | None:
        """Return the newest published hour."""
        ...

    def summaries(self, cluster: str, start: datetime, end: datetime) -> list[HourSummary]:
        """Return the summaries of published hours in `[start, end)`, oldest first."""
        ...

    def lines(self, cluster: str, hour: datetime, business_unit: str | None = None) -> list[Line]:
        """Return an hour's lines, all or one business unit's."""
        ...

    def summaries_of(self, manifests: Sequence[Manifest]) -> list[HourSummary]:
        """Return the summaries of versions of one cluster's hours, which are in order."""
        ...

    def notes_of(self, manifests: Sequence[Manifest]) -> dict[datetime, tuple[str, ...]]:
        """Return the notes, by hour, of versions of one cluster, which are in order; only of those with notes."""
        ...

    def lines_of(self, manifest: Manifest, business_unit: str | None = None) -> list[Line]:
        """Return a version's lines, all or one business unit's."""
        ...

    def models_of(self, manifests: Sequence[Manifest]) -> dict[datetime, tuple[ModelHour, ...]]:
        """Return the costs by model, by hour, of versions of one cluster, which are in order."""
        ...

    def nodes_and_charges_of(self, manifest: Manifest) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """Return a version's nodes, and the charges that belong to no node."""
        ...

    def nodes_and_charges(self, cluster: str, hour: datetime) -> tuple[tuple[NodeHour, ...], tuple[ClusterCharge, ...]]:
        """Return an hour's nodes, and the charges that belong to no node."""
        ...

    def all_nodes(self, cluster: str, start: datetime, end: datetime) -> Iterator[NodeHour]:
        """Yield the nodes of every hour in `[start, end)`."""
        ...

    def restatements(self, cluster: str, start: datetime, end: datetime) -> list[Restatement]:
        """Return the restatements of hours in `[start, end)`, by hour and version."""
        ...


class ClusterDeparture(Struct, frozen=True):
    """When a cluster left the settings."""

    left_at: datetime
    last_settings_version: int
    """The last version of the settings that names it."""


SettingsModel_co = TypeVar("SettingsModel_co", bound=CoreSettings, default=CoreSettings, covariant=True)


class StoredSettings(Struct, Generic[SettingsModel_co], frozen=True):
    """A settings document as it was pushed."""

    version: int
    text: str
    settings: SettingsModel_co
    author: str
    pushed_at: datetime
    refused: tuple[str, ...] = ()
    """Why newer versions are unreadable, so that this one is in force; newest first."""
    departed_clusters: Mapping[str, ClusterDeparture] = field(default_factory=dict)
    """Clusters of earlier documents that left the settings. Their hours stay in reports."""

    def clusters(self, since: datetime) -> list[str]:
        """Return the names of clusters that may have hours from then on: current ones, and those that left later."""
        departed = {name for name, departure in self.departed_clusters.items() if departure.left_at > since}
        return sorted({cluster.name for cluster in self.settings.clusters} | departed)


class SettingsStore(Protocol[SettingsModel_co]):
    """Reads the versions of the settings document. Generic, so that a feature needs only its sections."""

    def current(self) -> StoredSettings[SettingsModel_co]:
        """Return the newest readable version, at most a minute old.

        Raises:
            SettingsMissingError: nothing was pushed yet.
        """
        ...

    def newest(self) -> StoredSettings[SettingsModel_co]:
        """Return the newest readable version, without a cache.

        Raises:
            As `current`.
        """
        ...

    def version(self, number: int) -> StoredSettings[SettingsModel_co]:
        """Return one version.

        Raises:
            NotFoundError: there is no such version.
        """
        ...

    def history(self) -> Sequence[StoredSettings[SettingsModel_co]]:
        """Return all readable versions, newest first."""
        ...
