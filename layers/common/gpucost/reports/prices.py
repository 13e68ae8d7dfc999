"""Lists the prices of the price book that are in force in a period, page by page."""

import json
from collections.abc import Sequence
from datetime import datetime
from fnmatch import fnmatchcase

from msgspec import Struct

from gpucost.core.errors import ParameterError
from gpucost.core.hours import format_timestamp
from gpucost.core.pricing.prices import PRICE_SOURCES, Price, PriceSource
from gpucost.storage.price_book import PriceStore

PAGE_SIZE = 1000
"""Prices per page of the API."""
MAX_DAYS = 35
"""Longest period of a listing, in days."""


class ListedPrice(Struct, frozen=True):
    """A price of the price book. Prices set by hand have an id, with which they can be removed."""

    price: Price
    id: str | None = None

    @property
    def position(self) -> str:
        """Sort key in a listing: source, what the price applies to, and time."""
        price = self.price
        valid_from = "" if price.valid_from is None else format_timestamp(price.valid_from)
        applies_to = sorted(price.applies_to.items())
        return json.dumps([PRICE_SOURCES.index(price.source), applies_to, valid_from, price.unit, self.id or ""])


class PricePage(Struct, frozen=True):
    """A page of a listing. `next_position` starts the next page; None on the last page."""

    rows: Sequence[ListedPrice]
    next_position: str | None


class PriceBookListing:
    """Reads the price book.

    Args:
        book: prices fetched from AWS and prices set by hand. Prices in the settings are not part of it.
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
        """Return prices in force at some time of `[start, end)`.

        Args:
            start: start of the period.
            end: end of the period, exclusive.
            source: only prices of this source; None for all.
            instance_type: only prices that can apply to this instance type; None for all.
            after: position of the last price of the previous page.
            limit: maximum number of prices; 0 for all.

        Raises:
            ParameterError: the period is empty or longer than 35 days.
            SourceError: the price book could not be read.
        """
        if not start < end:
            raise ParameterError(
                "end",
                f"must be after start ({format_timestamp(start)}), but is {format_timestamp(end)}; pass a later end",
            )
        if (end - start).total_seconds() > MAX_DAYS * 86_400:
            raise ParameterError("end", f"must be at most {MAX_DAYS} days after start; shorten the period")
        sources = None if source is None else (source,)
        prices = self._book.in_force(start, end, sources=sources).prices
        overrides = self._book.overrides() if any(price.source == "override" for price in prices) else []
        rows = sorted(
            (
                ListedPrice(price, next((override.id for override in overrides if override.price == price), None))
                for price in prices
                if source in (None, price.source) and _can_apply(price, instance_type)
            ),
            key=lambda row: row.position,
        )
        remaining_rows = [row for row in rows if row.position > after]
        page_rows = remaining_rows[:limit] if limit else remaining_rows
        return PricePage(page_rows, page_rows[-1].position if len(page_rows) < len(remaining_rows) else None)


def _can_apply(price: Price, instance_type: str | None) -> bool:
    pattern = price.applies_to.get("instance_type")
    return instance_type is None or pattern is None or fnmatchcase(instance_type, pattern)
