"""Types of the price book that its readers and its storage share."""

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct, field

from gpucost.core.pricing.price_changes import PriceChange
from gpucost.core.pricing.price_split import InstanceShape
from gpucost.core.pricing.prices import Price

FetchedSource = Literal["spot", "on-demand"]


class PricesInForce(Struct, frozen=True):
    """The price book's content for some hours: fetched prices, prices set by hand, and shapes of instance types."""

    prices: Sequence[Price] = ()
    shapes: Mapping[str, InstanceShape] = field(default_factory=dict)


class PriceUpdate(Struct, frozen=True):
    """What a write changed in the price book."""

    changed_count: int
    """How many keys (such as instance type and zone) have changed prices, validity or shapes."""
    changes: tuple[PriceChange, ...]
    """Changes of times that may have been rated; each is in the change log."""
