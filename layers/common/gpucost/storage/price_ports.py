"""What services need of the price book and of AWS's prices, as Protocols; adapters fulfil them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, Protocol

from gpucost.core.pricing.price_changes import PriceChange
from gpucost.core.pricing.price_split import InstanceShape
from gpucost.core.pricing.prices import OperatingSystem, Price

FetchedSource = Literal["spot", "on-demand"]


@dataclass(frozen=True, slots=True)
class PricesInForce:
    """What the book holds for some hours: prices set by hand and fetched ones, and the instance types' shapes."""

    prices: Sequence[Price] = ()
    shapes: Mapping[str, InstanceShape] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PriceUpdate:
    """What an answer changed in the book."""

    prices: int
    """Things (types, zones, regions) whose known prices or their validity are not what they were."""
    changes: tuple[PriceChange, ...]
    """Of times that may have been rated; each is in the change log."""


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
