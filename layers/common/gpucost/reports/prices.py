"""What the price book holds, for people: prices in force in a period, in an order that pages can be cut from."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from fnmatch import fnmatchcase

from gpucost.core.errors import ParameterError
from gpucost.core.hours import format_instant
from gpucost.core.pricing.prices import PRICE_SOURCES, Price, PriceSource
from gpucost.storage.price_ports import PriceStore

PAGE_SIZE = 1000
"""Prices in one answer of the API."""
MAX_DAYS = 35
"""Of a listing."""


@dataclass(frozen=True, slots=True)
class ListedPrice:
    """A price of the book; overrides have an id to drop them by."""

    price: Price
    id: str | None = None

    @property
    def position(self) -> str:
        """Where it stands in a listing: by source, what it applies to, and time."""
        price = self.price
        began = "" if price.valid_from is None else format_instant(price.valid_from)
        applies_to = sorted(price.applies_to.items())
        return json.dumps([PRICE_SOURCES.index(price.source), applies_to, began, price.unit, self.id or ""])


@dataclass(frozen=True, slots=True)
class PricePage:
    """A part of a listing; `last` is the place to go on from, None at the end."""

    rows: Sequence[ListedPrice]
    next_position: str | None


class PriceListing:
    """Reads the price book for people.

    Args:
        book: the prices fetched and those set by hand; the settings' own are in the settings.
    """

    def __init__(self, book: PriceStore) -> None:
        self._book = book

    def page(
        self,
        start: datetime,
        end: datetime,
        *,
        source: PriceSource | None = None,
        instance_type: str | None = None,
        after: str = "",
        limit: int = PAGE_SIZE,
    ) -> PricePage:
        """Prices in force at some time of `[start, end)`.

        Args:
            start: of the period.
            end: of the period.
            source: only this one.
            instance_type: only prices that can apply to it.
            after: the place to go on from.
            limit: at most so many; 0 for all.

        Raises:
            ParameterError: the period is empty or longer than 35 days.
            SourceError: the book could not be read.
        """
        if not start < end:
            raise ParameterError("end", "must be after start")
        if (end - start).total_seconds() > MAX_DAYS * 86_400:
            raise ParameterError("end", f"prices are listed for {MAX_DAYS} days at most")
        sources = None if source is None else (source,)
        found = self._book.in_force(start, end, sources=sources).prices
        by_hand = self._book.overrides() if any(price.source == "override" for price in found) else []
        rows = sorted(
            (
                ListedPrice(price, next((one.id for one in by_hand if one.price == price), None))
                for price in found
                if source in (None, price.source) and _can_apply(price, instance_type)
            ),
            key=lambda row: row.position,
        )
        rest = [row for row in rows if row.position > after]
        shown = rest[:limit] if limit else rest
        return PricePage(shown, shown[-1].position if len(shown) < len(rest) else None)


def _can_apply(price: Price, instance_type: str | None) -> bool:
    pattern = price.applies_to.get("instance_type")
    return instance_type is None or pattern is None or fnmatchcase(instance_type, pattern)
