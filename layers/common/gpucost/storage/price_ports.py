"""What services need of the price book and of AWS's prices, as Protocols; adapters fulfil them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from gpucost.core.pricing.price_changes import Override, PriceChange
from gpucost.core.pricing.price_split import InstanceShape
from gpucost.core.pricing.prices import OperatingSystem, Price, PriceSource

FetchedSource = Literal["spot", "on-demand"]


@dataclass(frozen=True, slots=True)
class PricesInForce:
    """What the book holds for some hours: prices set by hand and fetched ones, and the instance types' shapes."""

    prices: Sequence[Price] = ()
    shapes: Mapping[str, InstanceShape] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Replaced:
    """What an answer changed in the book."""

    prices: int
    """Things (types, zones, regions) whose known prices or their validity are not what they were."""
    changes: tuple[PriceChange, ...]
    """Of times that may have been rated; each is in the change log."""


class PriceStore(Protocol):
    """The price book. Every read is consistent; what changes past times enters the change log in the same step."""

    def in_force(
        self, start: datetime, end: datetime, *, sources: Collection[PriceSource] | None = None
    ) -> PricesInForce:
        """All that is in force at some time of `[start, end)`; a few requests however much there is.

        Args:
            start: of the time.
            end: of the time; at most 35 days later.
            sources: only these need to be in the answer; None for all.

        Raises:
            InvalidInputError: a longer time.
            SourceError: the book could not be read.
        """
        ...

    def newest(self, source: FetchedSource) -> list[Price]:
        """The newest known prices of a source, one or more of each thing: what a refresh goes on from."""
        ...

    def overrides(self) -> list[Override]:
        """Every price ever set by hand, dropped ones included, in the order in which they were set."""
        ...

    def replace(
        self,
        source: FetchedSource,
        prices: Sequence[Price],
        *,
        since: datetime | None = None,
        rated_until: datetime,
        now: datetime,
    ) -> Replaced:
        """Lay an answer of AWS over what is known: the same answer again writes nothing.

        Args:
            source: whose prices.
            prices: of each thing all from its first moment on, each with its beginning. What has no price among
                them keeps what it has.
            since: from when on the answer tells everything; None: from each thing's first moment on.
            rated_until: hours that end by then may have been rated; changes before it enter the change log.
            now: the time now.

        Raises:
            ConflictError: somebody else kept writing; nothing is lost, replacing again is safe.
            SourceError: the table failed; replacing again is safe.
        """
        ...

    def replace_shapes(self, shapes: Sequence[InstanceShape], *, rated_until: datetime, now: datetime) -> Replaced:
        """The same for shapes of instance types."""
        ...

    def set_override(self, price: Price, *, now: datetime) -> Override:
        """Set a price by hand, with its author and reason; the same one again is the one that is there.

        Raises:
            ConflictError: somebody else kept writing; nothing was written.
        """
        ...

    def drop_override(self, override_id: str, *, at: datetime, author: str, reason: str, now: datetime) -> Override:
        """End a price's validity at a moment; dropped before, it may end earlier still, and never later.

        Raises:
            NotFoundError: there is none of that id.
            ConflictError: somebody else kept writing; nothing was written.
        """
        ...

    def changes(self, start: datetime, end: datetime) -> list[PriceChange]:
        """Changes made in `[start, end)`, settled or not, oldest first."""
        ...

    def pending_changes(self, limit: int = 0) -> list[PriceChange]:
        """Changes whose hours were not rated again yet, oldest first; 0 for all.

        An attribution that was under way when a change was made may have read the book before it: an hour published
        up to `AttributeFunction`'s time-out later may still stand on the old prices.
        """
        ...

    def settle(self, change_id: str, *, now: datetime) -> None:
        """The hours of a change were rated again; settled already, nothing happens.

        Raises:
            NotFoundError: there is no such change.
        """
        ...


class SpotHistory(Protocol):
    """EC2's spot price history."""

    def fetch(
        self,
        region: str,
        instance_types: Collection[str],
        operating_systems: Collection[OperatingSystem],
        *,
        since: datetime,
        now: datetime,
    ) -> list[Price]:
        """All prices in force at some time since, each valid until the next one, the last as `SPOT_VALID_FOR` says.

        Raises:
            SourceError: AWS did not answer.
        """
        ...


class PriceList(Protocol):
    """AWS Price List: on-demand prices."""

    def fetch(
        self,
        region: str,
        instance_types: Collection[str],
        operating_systems: Collection[OperatingSystem],
        *,
        tenancy: str,
        now: datetime,
    ) -> list[Price]:
        """The prices in force now, each from the day on that AWS says. Types that the list does not have are left out.

        Raises:
            SourceError: AWS did not answer, or with two prices for one thing.
        """
        ...


class InstanceTypes(Protocol):
    """EC2's catalogue of instance types."""

    def fetch(self, region: str, instance_types: Collection[str]) -> list[InstanceShape]:
        """The shapes of those types that the region has.

        Raises:
            SourceError: AWS did not answer.
        """
        ...
