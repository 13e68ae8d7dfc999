"""Types of the price book that its readers and its storage share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from gpucost.core.pricing.price_changes import PriceChange
from gpucost.core.pricing.price_split import InstanceShape
from gpucost.core.pricing.prices import Price

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
